"""The backlogs of the subscriptions in all partitions that are open at one broker.

A partition is looked at again only after something has changed there: of ten thousand, few have
between two looks, and each look at one costs a few microseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from fencelog.broker.limits import STATS_AT_ONCE
from fencelog.broker.subscriptions.table import SubscriptionTable


class BacklogCounts:
    """The messages that are not acknowledged, by subscription id, as of the last ``count``; also
    how many of all are with consumers, and how many are on the way to their dead letter topic."""

    def __init__(self) -> None:
        self.total = 0
        """Messages of all subscriptions together."""
        self.leases = 0
        self.dead_letters = 0
        self._messages: dict[str, int] = {}
        self._partitions: dict[str, int] = {}
        """Partitions that have a cursor of the subscription."""
        self._topic_ids: dict[str, str] = {}
        self._counted: dict[SubscriptionTable, Sequence[tuple[str, int]]] = {}
        """The backlogs in each open partition when it was looked at last."""
        self._changed: dict[SubscriptionTable, str] = {}
        """The partitions that have to be looked at again, with the ids of their topics."""
        self._used: dict[SubscriptionTable, None] = {}
        """The partitions in which messages may be with consumers."""

    @property
    def messages(self) -> Mapping[str, int]:
        """The messages by subscription id."""
        return self._messages

    def topic_of(self, subscription_id: str) -> str | None:
        """Return the id of a subscription's topic; None: it has no cursor here any more."""
        return self._topic_ids.get(subscription_id)

    def opened(self, table: SubscriptionTable, topic_id: str) -> None:
        """Add a partition that was opened."""
        self._counted[table] = ()
        self._changed[table] = topic_id
        table.call_when_backlogs_change(partial(self._changed.setdefault, table, topic_id))

    def closed(self, table: SubscriptionTable) -> None:
        """Remove a partition that was closed."""
        table.call_when_backlogs_change(None)
        self._subtract(self._counted.pop(table))
        self._changed.pop(table, None)
        self._used.pop(table, None)

    async def count(self) -> None:
        """Count what has changed since the last time; appends and consumers go on in between."""
        for number, table in enumerate(list(self._changed), 1):
            if number % STATS_AT_ONCE == 0:
                await asyncio.sleep(0)
            topic_id = self._changed.pop(table, None)
            if topic_id is not None:  # else it was closed meanwhile
                self._count(table, topic_id)
        leases = dead_letters = 0
        for number, table in enumerate(list(self._used), 1):
            if number % STATS_AT_ONCE == 0:
                await asyncio.sleep(0)
            some_leases, some_letters = table.in_delivery()
            leases, dead_letters = leases + some_leases, dead_letters + some_letters
        self.leases, self.dead_letters = leases, dead_letters

    def _count(self, table: SubscriptionTable, topic_id: str) -> None:
        found, before = table.count_backlogs(), self._counted[table]
        self._counted[table] = found
        messages, partitions = self._messages, self._partitions
        for id_, count in found:
            self.total += count
            if id_ in messages:
                messages[id_] += count
                partitions[id_] += 1
            else:
                messages[id_], partitions[id_], self._topic_ids[id_] = count, 1, topic_id
        self._subtract(before)  # after that: what is still there keeps its place
        if table.is_used:
            self._used[table] = None

    def _subtract(self, counted: Sequence[tuple[str, int]]) -> None:
        messages, partitions = self._messages, self._partitions
        for id_, count in counted:
            self.total -= count
            if partitions[id_] > 1:
                messages[id_] -= count
                partitions[id_] -= 1
            else:
                del messages[id_], partitions[id_], self._topic_ids[id_]
