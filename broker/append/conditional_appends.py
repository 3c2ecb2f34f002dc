"""The way into the pipeline for conditional appends, and for all appends while producer access is
limited or being changed. Other appends bypass it.

An append that cannot be decided yet waits here, in the order of arrival: for a change of access to
become durable, or (``If-Offset``) for those before it whose outcome decides its own: no offset is
refused because of an append that may vanish.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from fencelog.broker.append.conditions import (
    NO_CONDITIONS,
    AppendConditions,
    AppendFuture,
    AppendResult,
    Repeated,
    SequenceRanges,
    Tracked,
    fail_all,
)
from fencelog.broker.append.contents import check_contents
from fencelog.broker.append.mode import AppendMode
from fencelog.broker.append.pending import PendingEntry, check_batch_size, message_size
from fencelog.broker.append.pending_bytes import PendingBytesLimit
from fencelog.broker.append.producer_access import Access
from fencelog.broker.append.producer_table import ProducerState, ProducerTable, RecentAppend
from fencelog.broker.append.queue import AppendQueue
from fencelog.broker.ledger_list.state_core import Event
from fencelog.broker.limits import MAX_WAITING_APPENDS
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError, copy_of
from fencelog.ledgers.format.entry_header import RANGE, SequenceRange
from fencelog.ledgers.record_batch import BatchInfo, Message

Record = Callable[[Event], "asyncio.Future[None]"]
CheckOwner = Callable[[], "asyncio.Future[bool]"]


@dataclass(slots=True, eq=False)
class _ConditionalAppend:
    """An append before it is admitted: ``count`` messages, ``size`` bytes counted as waiting.
    ``send`` adds it to the queue."""

    conditions: AppendConditions
    count: int
    size: int
    future: AppendFuture
    send: Callable[[Tracked | None], None]


class Pipeline(Protocol):
    """The pipeline as conditional appends see it."""

    partition: int
    mode: AppendMode
    queue: AppendQueue
    pending_limit: PendingBytesLimit
    tail_offset: int
    now_us: Callable[[], int]

    @property
    def is_idle(self) -> bool: ...

    def count(self, size: int) -> None: ...

    def schedule_pump(self) -> None: ...


class ConditionalAppends:
    """The conditional appends of one pipeline, whose ``mode`` also says whether producer access is
    being changed.

    ``record`` writes the changes of producers to the state log. ``check_owner`` checks whether the
    log still belongs to this owner: it is called before an append is refused that a later owner may
    take, since that one has more appends, or another token or claim.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        producers: ProducerTable,
        access: Access,
        record: Record | None,
        check_owner: CheckOwner | None,
    ) -> None:
        self.producers = producers
        self.access = access
        self._pipeline = pipeline
        self._mode = pipeline.mode
        self._record = record
        self._recorded: asyncio.Future[None] | None = None
        self.waiting: list[_ConditionalAppend] = []
        """Appends that cannot be decided yet."""
        self._drained: asyncio.Future[None] | None = None
        self._check_owner = check_owner
        self._mode.open_access(is_limited=not access.is_open)
        self._loop = asyncio.get_running_loop()

    # -- appends ---------------------------------------------------------------------------------

    def append_message(self, message: Message, conditions: AppendConditions | None) -> AppendFuture:
        """Append one message, as ``AppendPipeline.append_message``; the future fails also with the
        errors of the conditions."""
        future: AppendFuture = self._loop.create_future()
        try:
            size = message_size(message) + _range_bytes(conditions)
        except FencelogError as error:
            future.set_exception(error)
            return future

        def send(tracked: Tracked | None) -> None:
            self._pipeline.queue.add_message(message, size, future, tracked)

        return self._append(_ConditionalAppend(conditions or NO_CONDITIONS, 1, size, future, send))

    def append_batch(
        self, batch: bytes, info: BatchInfo, conditions: AppendConditions | None
    ) -> AppendFuture:
        """Append a batch, as ``AppendPipeline.append_batch``; the future fails also with the
        errors of the conditions."""
        future: AppendFuture = self._loop.create_future()
        size = len(batch) + _range_bytes(conditions)
        try:
            check_batch_size(size)
        except FencelogError as error:
            future.set_exception(error)
            return future

        def send(tracked: Tracked | None) -> None:
            entry = PendingEntry(batch, info.count, size, [future], is_group=False)
            if tracked is not None:
                entry.ranges = SequenceRanges()
                entry.ranges.add(tracked)
            self._pipeline.queue.add_entry(entry)

        return self._append(
            _ConditionalAppend(conditions or NO_CONDITIONS, info.count, size, future, send)
        )

    def _append(self, append: _ConditionalAppend) -> AppendFuture:
        try:
            if self._mode.access_refusal is not None:
                raise copy_of(self._mode.access_refusal)
            if len(self.waiting) >= MAX_WAITING_APPENDS:
                raise FencelogError(
                    ErrorCode.OVERLOADED,
                    f"{len(self.waiting)} appends wait for others in partition "
                    f"{self._pipeline.partition}",
                )
            if self._mode.refusal is not None:
                raise copy_of(self._mode.refusal)
            self._pipeline.pending_limit.admit(append.size, append.count)
        except FencelogError as error:
            append.future.set_exception(error)
            return append.future
        if self._mode.is_access_changing or not self._decide(append):
            self.waiting.append(append)
        return append.future

    def _decide(self, append: _ConditionalAppend) -> bool:
        """Send, answer or refuse an append; False: it has to wait."""
        conditions = append.conditions
        tracked = None
        try:
            self.access.check(conditions)
            if conditions.sequences is not None:
                sequences = conditions.sequences
                if sequences.rows != append.count:
                    sequences = sequences._replace(rows=append.count)
                found = self.producers.find(sequences, now_us=self._pipeline.now_us())
                if found is not None:
                    check_contents(sequences, found)
                    self._pipeline.count(-append.size)
                    self._repeat(append.future, sequences, found)
                    return True
                tracked = Tracked(sequences)
            if conditions.if_offset is not None and not self._is_next(conditions.if_offset):
                return False
        except FencelogError as error:
            if self._check_owner is not None and _may_be_outdated(conditions, error):
                self._check_owner().add_done_callback(
                    partial(self._refuse_after_check, append, error)
                )
            else:
                self._refuse(append, error)
            return True
        if tracked is not None:
            self.producers.track(tracked)
        append.send(tracked)
        self._pipeline.schedule_pump()
        return True

    def _repeat(
        self, future: AppendFuture, sequences: SequenceRange, found: RecentAppend | Tracked
    ) -> None:
        if isinstance(found, Tracked):
            found.add_waiter(future, sequences)
            return
        place = (self._pipeline.partition, found.offset, found.rows, found.publish_time_us)
        future.set_result(Repeated(*place))

    def _is_next(self, offset: int) -> bool:
        """Tell whether the next append gets this offset; False: that depends on appends in flight.
        Raises PRECONDITION_FAILED."""
        tail, following = self._pipeline.tail_offset, self._pipeline.queue.next_offset
        if offset == following:
            return True
        if tail <= offset < following:
            return False
        raise FencelogError(
            ErrorCode.PRECONDITION_FAILED,
            f"the next offset is {tail}, not {offset}"
            if tail == following
            else f"the next offset is {tail} or higher, not {offset}",
            next_offset=tail,
        )

    def _refuse_after_check(
        self, append: _ConditionalAppend, error: FencelogError, checked: asyncio.Future[bool]
    ) -> None:
        self._refuse(append, error if checked.result() else self._outdated(error))

    def _outdated(self, error: FencelogError) -> FencelogError:
        return self._mode.refusal or FencelogError(
            ErrorCode.NO_OWNER,
            f"partition {self._pipeline.partition} may have another owner, who knows better: "
            f"{error.detail}",
        )

    def _refuse(self, append: _ConditionalAppend, error: FencelogError) -> None:
        self._pipeline.count(-append.size)
        fail_all([append.future], error)

    def _retry(self) -> None:
        waiting, self.waiting = self.waiting, []
        for append in waiting:
            if append.future.done():
                self._pipeline.count(-append.size)  # its caller has gone away
            elif self._mode.refusal is not None:
                self._refuse(append, self._mode.refusal)
            elif not self._decide(append):
                self.waiting.append(append)

    # -- events of the pipeline ------------------------------------------------------------------

    def settled(self, entry: PendingEntry, ranges: Sequence[SequenceRange], offset: int) -> None:
        """Note that an entry with sequence ranges is in the log."""
        self.producers.commit(ranges, offset, entry.publish_time_us, entry.size)
        told = self._recorded is None or self._recorded.done()
        if self._record is not None and told and self.producers.is_change_due:
            for event in self.producers.changes():
                self._recorded = self._record(event)

    def progressed(self) -> None:
        """Decide again: appends were settled, or have vanished."""
        if self._drained is not None and self._pipeline.is_idle and not self._drained.done():
            self._drained.set_result(None)
        if self.waiting and not self._mode.is_access_changing:
            self._retry()

    def give_up(self, error: FencelogError) -> None:
        """Refuse all appends that wait here: none of them was sent, or will be."""
        waiting, self.waiting = self.waiting, []
        for append in waiting:
            self._refuse(append, error)
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(copy_of(error))

    # -- for changes of access -------------------------------------------------------------------

    async def confirmed(self, refusal: FencelogError) -> FencelogError:
        """Return the refusal of a change if the log still belongs to this owner; else NO_OWNER, or
        why the log ended."""
        if self._check_owner is None or await self._check_owner():
            return refusal
        return copy_of(self._outdated(refusal))

    def check_settled(self) -> None:
        """Check that the outcome of every change of access is known. Raises
        BOOKIE_UNAVAILABLE."""
        if self._mode.access_refusal is not None:
            raise copy_of(self._mode.access_refusal)

    async def drain(self) -> None:
        """Hold every new append, until ``open``; return when all appends before them are settled.
        Raises FencelogError, why they cannot be: BOOKIE_UNAVAILABLE, NO_OWNER, …."""
        self._mode.hold_access()
        if self._mode.refusal is not None:
            raise copy_of(self._mode.refusal)
        if not self._pipeline.is_idle:
            self._drained = self._loop.create_future()
            try:
                await self._drained
            finally:
                self._drained = None

    def refuse(self, error: FencelogError) -> None:
        """Refuse the appends that wait and all new ones, until ``open``."""
        self._mode.refuse_access(error)
        self.give_up(error)

    def open(self) -> None:
        """Decide the appends that have waited, and all new ones, by the access as it is now."""
        self._mode.open_access(is_limited=not self.access.is_open)
        self._retry()

    @property
    def is_terminated(self) -> bool:
        """Tell whether no owner appends anything any more."""
        refusal = self._mode.refusal
        return refusal is not None and refusal.code is ErrorCode.TOPIC_TERMINATED

    async def find_key(self, sequences: SequenceRange) -> AppendResult | None:
        """Return the append under an idempotency key, in the log or once it is settled; None: there
        is none. Raises IDEMPOTENCY_KEY_REUSED, why the append failed, or why it is not settled."""
        found = self.producers.find(sequences, now_us=self._pipeline.now_us())
        if found is None:
            return None
        check_contents(sequences, found)
        if isinstance(found, Tracked) and self._mode.refusal is not None:
            raise copy_of(self._mode.refusal)
        future: AppendFuture = self._loop.create_future()
        self._repeat(future, sequences, found)
        return await future

    async def producer(self, producer: bytes) -> ProducerState | None:
        """Return what is settled of a producer once all its appends in flight are. Raises
        READ_UNKNOWN if the outcome of those is not known, or why appends are refused while it is
        not."""
        tracked = self.producers.last_tracked(producer)
        if tracked is not None:
            if self._mode.refusal is not None:  # it may take as long as bookies are unavailable
                raise copy_of(self._mode.refusal)
            future: AppendFuture = self._loop.create_future()
            tracked.add_waiter(future, tracked.sequences)
            try:
                await future
            except FencelogError as error:
                if error.code.effects is Effects.MAYBE:
                    raise FencelogError(ErrorCode.READ_UNKNOWN, error.detail) from error
        return self.producers.get(producer)


def _range_bytes(conditions: AppendConditions | None) -> int:
    return RANGE.size if conditions is not None and conditions.sequences is not None else 0


def _may_be_outdated(conditions: AppendConditions, error: FencelogError) -> bool:
    """Tell whether a later owner may take an append that is refused here: it has numbers, or names
    an offset, beyond what is known here, or there is another token or claim now. What an owner has
    of the log each later one has too; and of epochs that are over, unless it has forgotten them."""
    sequences = conditions.sequences
    match error.code:
        case ErrorCode.SEQUENCE_MISMATCH:  # its end is beyond, if not its beginning
            return True
        case ErrorCode.PRODUCER_BUSY | ErrorCode.BAD_REQUEST:  # an epoch that no claim gave yet
            return True
        case ErrorCode.PRODUCER_FENCED:
            return sequences is not None and sequences.epoch > error.extra["epoch"]
        case ErrorCode.PRECONDITION_FAILED:
            tail: int | None = error.extra.get("next_offset")
            offset = conditions.if_offset
            return tail is None or (offset is not None and offset > tail)
        case _:
            return False
