"""The reconciliation of cursors with the registry, whatever messages were lost.

The broker that creates or deletes a subscription notifies every partition's owner. An owner that
was not reached finds out here: it drops cursors whose subscription is gone, which would retain
messages for ever, and opens those that are missing, as in partitions that were added to a topic
later.

A cursor that is dropped by mistake loses its acknowledgements, and no longer retains the
unacknowledged messages. So a cursor that seems to be left over is dropped only when a read of the
registry that involves no lagging server and no cache does not show its subscription: ids are never
used again, so a subscription that is gone then stays gone. With such a read a partition's cursors
are also completed (``complete``) before it removes any message: a message that no cursor retains
looks unneeded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from fencelog.broker.limits import SUBSCRIPTION_LOOK_MS
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.partition.partition_slot import PartitionSlot
from fencelog.broker.registry.subscription_registry import (
    RegisteredSubscription,
    SubscriptionRegistry,
)
from fencelog.broker.subscriptions.table import SubscriptionTable
from fencelog.ledgers.errors import ErrorCode, FencelogError

log = logging.getLogger(__name__)


class CursorReconciler:
    """The reconciler of the open partitions of a broker."""

    def __init__(
        self, registry: SubscriptionRegistry, open_slots: Callable[[], Iterable[PartitionSlot]]
    ) -> None:
        self._registry = registry
        self._open_slots = open_slots
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SUBSCRIPTION_LOOK_MS / 1000)
            try:
                await self.reconcile()
            except Exception:  # a bug must not leave all later subscriptions without cursors
                log.exception("cursors not compared")

    async def reconcile(self) -> None:
        """Examine all partitions once. Failed steps are repeated the next time. Never raises."""
        found: dict[str, list[RegisteredSubscription]] = {}
        doubtful: dict[str, list[tuple[PartitionLog, set[str]]]] = {}
        try:
            subscribed = await self._registry.topic_ids()
            for slot in self._open_slots():
                opened, topic_id = slot.open_log, slot.info.topic_id
                if opened is None:
                    continue
                if topic_id not in subscribed and not opened.subscriptions.all():
                    continue  # most topics have never had a subscription
                try:
                    if topic_id not in found:
                        found[topic_id] = await self._subscriptions(topic_id)
                    left = await _open_missing(opened, found[topic_id])
                    if left:
                        doubtful.setdefault(topic_id, []).append((opened, left))
                except FencelogError as error:
                    log.info("%s: cursors not compared: %s", slot, error)
        except FencelogError as error:
            log.info("cursors not compared: %s", error)
        for topic_id, logs in doubtful.items():
            await self._drop(topic_id, logs)

    async def _drop(self, topic_id: str, logs: list[tuple[PartitionLog, set[str]]]) -> None:
        """Drop the cursors without a subscription; each was opened before this call, and so after
        its subscription was registered."""
        try:
            latest = await self._registry.list_latest(topic_id)
        except FencelogError as error:
            log.info("%s: no cursors dropped: %s", topic_id, error)
            return
        registered = {each.info.subscription_id for each in latest}
        for opened, left in logs:
            for subscription_id in sorted(left - registered):
                try:
                    await opened.subscriptions.drop(subscription_id)
                except FencelogError as error:
                    about = {"partition": opened.partition}
                    log.info("%s: cursor not dropped: %s", opened.name, error, extra=about)

    async def complete(self, topic_id: str, subscriptions: SubscriptionTable) -> None:
        """Open the cursors that are missing in a partition, of every subscription that was
        registered before this call. Raises FencelogError: METADATA_…, and the error of a cursor
        that cannot be opened, after all others were."""
        errors = await _begin_missing(subscriptions, await self._registry.list_latest(topic_id))
        if errors:
            raise errors[0]

    async def _subscriptions(self, topic_id: str) -> list[RegisteredSubscription]:
        found = []
        for name in await self._registry.list_names(topic_id):
            try:
                found.append(await self._registry.find(topic_id, name))
            except FencelogError as error:
                if error.code is not ErrorCode.SUBSCRIPTION_NOT_FOUND:
                    raise
        return found


async def _open_missing(opened: PartitionLog, found: list[RegisteredSubscription]) -> set[str]:
    """Open the missing cursors, as far as that is possible now; return those that belong to none of
    these subscriptions."""
    left = set(opened.subscriptions.all())
    for error in await _begin_missing(opened.subscriptions, found):
        about = {"partition": opened.partition}
        log.info("%s: cursor not opened: %s", opened.name, error, extra=about)
    return left - {registered.info.subscription_id for registered in found}


async def _begin_missing(
    subscriptions: SubscriptionTable, found: list[RegisteredSubscription]
) -> list[FencelogError]:
    """Open the missing cursors; return the errors of those that cannot be opened."""
    errors = []
    for registered in found:
        info = registered.info
        if info.config.durable and info.subscription_id not in subscriptions.all():
            try:
                await subscriptions.begin(registered)
            except FencelogError as error:
                errors.append(error)
    return errors
