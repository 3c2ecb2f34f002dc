"""The names of subscriptions by id, for figures: cursors know their ids alone.

A name is read from metadata once: a subscription never changes it, and its id is never used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from fencelog.broker.limits import NAMES_AT_ONCE

NamesOf = Callable[[str], Awaitable[Mapping[str, str]]]
"""A function that returns the names of a topic's subscriptions, by id, for the id of the topic."""


class SubscriptionNames:
    """The names of the subscriptions that were asked for last."""

    def __init__(self, names_of: NamesOf) -> None:
        self._names_of = names_of
        self._names: dict[str, str] = {}

    def known(self) -> Mapping[str, str]:
        """Return the names that are known by now, by id."""
        return self._names

    async def learn(self, topic_ids: Mapping[str, str]) -> Mapping[str, str]:
        """Return the names of these subscriptions by id, and forget all others. One that is missing
        was deleted. ``topic_ids``: by the ids of subscriptions. Raises METADATA_UNAVAILABLE."""
        self._names = {id_: name for id_, name in self._names.items() if id_ in topic_ids}
        unknown = sorted({topic_ids[id_] for id_ in topic_ids.keys() - self._names.keys()})
        for first in range(0, len(unknown), NAMES_AT_ONCE):
            some = unknown[first : first + NAMES_AT_ONCE]
            for names in await asyncio.gather(*(self._names_of(topic_id) for topic_id in some)):
                self._names |= names
        return self._names
