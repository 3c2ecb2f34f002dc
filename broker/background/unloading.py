"""The transfer of partitions from a broker while it serves: one that an operator names, or all of
them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

from fencelog.broker.background.balancer import Balancer
from fencelog.broker.cluster.balance_core import PartitionKey, targets
from fencelog.broker.cluster.broker_directory import BrokerDirectory
from fencelog.broker.cluster.event_recorder import EventRecorder
from fencelog.broker.cluster.events_core import EventKind
from fencelog.broker.limits import MAX_MOVING_PARTITIONS
from fencelog.broker.partition.partition_slot import PartitionSlot
from fencelog.ledgers.errors import ErrorCode, FencelogError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DrainResult:
    """The numbers of partitions that a drain has left. ``not_taken``: no broker accepted them, and
    any may have them. ``still_open``: they are open here, or on their way, because the time was
    over or the drain was ended."""

    not_taken: int = 0
    still_open: int = 0


class Unloading:
    """The transfers of one broker. ``slots``: all slots of the broker."""

    def __init__(
        self,
        slots: Mapping[PartitionKey, PartitionSlot],
        directory: BrokerDirectory,
        balancer: Balancer,
        events: EventRecorder,
        timeout_s: float,
    ) -> None:
        self._events = events
        self._slots = slots
        self._directory = directory
        self._balancer = balancer
        self._timeout_s = timeout_s
        self._drained: asyncio.Task[DrainResult] | None = None
        self._is_last = False

    async def stop(self) -> None:
        """Begin no more transfers; those in progress continue."""
        if self._drained is not None:
            self._drained.cancel()
            await asyncio.wait((self._drained,))
        await self._balancer.stop()

    async def unload(self, slot: PartitionSlot, *, to: str | None = None) -> str | None:
        """Transfer one partition to the broker ``to``, otherwise to the least loaded one. Return
        the new owner; None if no broker accepted it: it is free for the next request.

        Raises FencelogError: NotOwner, NOT_FOUND (no such broker), METADATA_UNAVAILABLE, and, if
        ``to`` is this broker, the error of opening it here.
        """
        if to == self._directory.own_id:
            await slot.log(take=True)
            return to
        if to is not None and self._directory.url_of(to) is None:
            raise FencelogError(ErrorCode.NOT_FOUND, f"no broker {to} is registered")
        if not slot.is_here:
            await slot.check_free()
        return await slot.transfer(to)

    async def drain(self) -> DrainResult:
        """Accept no more partitions, and transfer every open one to another broker; requests are
        served, or find their new owner, meanwhile.

        Another call waits for the same drain, and continues one whose time was over; ``undrain``
        ends it. Never raises FencelogError.
        """
        return await self._drain_within(self._timeout_s)

    async def leave(self) -> DrainResult:
        """Drain before the broker is closed: it takes partitions never again. A drain in progress
        is continued where it ends before the time of this one is over."""
        self._is_last = True
        now = asyncio.get_running_loop().time
        end_s = now() + self._timeout_s
        result = await self._drain_within(self._timeout_s)
        if result.still_open and (left_s := end_s - now()) > 0:
            result = await self._drain_within(left_s)
        return result

    def check_successor(self) -> None:
        """Check that another broker takes partitions. Raises FencelogError(PRECONDITION_FAILED)."""
        if not targets(self._directory.own_id, self._directory.views()):
            raise FencelogError(
                ErrorCode.PRECONDITION_FAILED,
                f"no other broker takes partitions: without {self._directory.own_id} every request "
                "for one would be refused; ?force=true drains it all the same",
            )

    async def undrain(self) -> None:
        """Take partitions again. A drain in progress ends; what it has transferred stays there.
        Raises FencelogError(DRAINING) if the broker is about to be closed."""
        if self._is_last:
            raise FencelogError(ErrorCode.DRAINING, f"{self._directory.own_id} is being closed")
        drained = self._drained
        if drained is None:
            return
        drained.cancel()
        await asyncio.wait((drained,))
        if self._drained is not drained:  # another call has ended it meanwhile
            return
        self._drained = None
        self._directory.set_draining(False)
        self._balancer.start()
        self._events.record(EventKind.UNDRAIN)

    async def _drain_within(self, timeout_s: float) -> DrainResult:
        """Return the result of the drain in progress, or of a new one if there was none or the
        last one has left something."""
        drained = self._drained
        if drained is None or self._has_left(drained):
            loop = asyncio.get_running_loop()
            drained = self._drained = loop.create_task(self._drain(timeout_s), name="drain")
        await asyncio.wait((drained,))
        if drained.cancelled():
            return DrainResult(still_open=len(self._here()))
        return drained.result()

    def _has_left(self, drained: asyncio.Task[DrainResult]) -> bool:
        if not drained.done() or drained.cancelled():
            return False
        return bool(self._here() or drained.result().still_open)

    def _here(self) -> list[PartitionSlot]:
        """Return the partitions that are open here, being opened, or on their way to others."""
        return [slot for slot in self._slots.values() if slot.is_here or slot.is_moving]

    async def _drain(self, timeout_s: float) -> DrainResult:
        count = len(self._here())
        record = partial(self._events.record, EventKind.DRAIN, partitions=count)
        record(is_done=False, not_taken=0, still_open=0)
        if self._is_last:
            await self._events.flush()  # before the topic of events may have nobody who takes it
        result = await self._transfer_all(timeout_s)
        record(is_done=True, not_taken=result.not_taken, still_open=result.still_open)
        if self._is_last and targets(self._directory.own_id, self._directory.views()):
            await self._events.flush()
        return result

    async def _transfer_all(self, timeout_s: float) -> DrainResult:
        self._directory.set_draining()
        await self._balancer.stop()
        tried, not_taken = set[PartitionSlot](), set[PartitionSlot]()

        async def transfer(slot: PartitionSlot) -> None:
            tried.add(slot)
            taker = await slot.transfer()
            if taker is None:
                not_taken.add(slot)
            else:
                not_taken.discard(slot)

        def left() -> list[PartitionSlot]:
            """Partitions that are open, on their way to others, or being opened since before this
            drain began. An opening that begins later is refused."""
            return [
                slot
                for slot in self._slots.values()
                if slot.held_log is not None
                or slot.is_moving
                or (slot.is_here and slot not in tried)
            ]

        try:
            async with asyncio.timeout(timeout_s):
                while here := left():
                    await few_at_a_time(transfer, here)
        except TimeoutError:
            still_open = set(left())
            log.warning("%d partitions were not handed over in time", len(still_open))
            return DrainResult(len(not_taken - still_open), len(still_open))
        return DrainResult(len(not_taken))


async def few_at_a_time(
    work: Callable[[PartitionSlot], Awaitable[None]], slots: Iterable[PartitionSlot]
) -> None:
    """Call ``work`` with all slots, MAX_MOVING_PARTITIONS at the same time."""
    waiting = iter(slots)

    async def one_after_the_other(first: PartitionSlot) -> None:
        await work(first)
        for slot in waiting:
            await work(slot)

    async with asyncio.TaskGroup() as group:
        for first in islice(waiting, MAX_MOVING_PARTITIONS):
            group.create_task(one_after_the_other(first))
