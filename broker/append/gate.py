"""The way into the pipeline for appends that are bound to something, and for all while who may
append is limited or being changed. What is bound to nothing passes it by.

An append that cannot be decided yet waits here, in the order of arrival: for a change of access to
become durable, or (``If-Offset``) for those before it whose outcome decides its own: no offset is
refused because of an append that may vanish.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fencelog.broker.append.pending import PendingEntry, check_batch_size, message_size
from fencelog.broker.append.producer_access import Access
from fencelog.broker.append.producer_table import Kept, Producer, ProducerTable
from fencelog.broker.append.terms import (
    NO_TERMS,
    AppendFuture,
    Repeated,
    Runs,
    Terms,
    Tracked,
    fail_all,
)
from fencelog.broker.ledger_list.state_core import Event
from fencelog.broker.limits import MAX_WAITING_APPENDS
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError, copy_of
from fencelog.ledgers.format.entry_header import RUN, ProducerRun
from fencelog.ledgers.record_batch import BatchInfo, Message

if TYPE_CHECKING:
    from fencelog.broker.append.pipeline import AppendPipeline

Record = Callable[[Event], "asyncio.Future[None]"]


@dataclass(slots=True, eq=False)
class _Bound:
    """An append before it is admitted: ``count`` messages, ``size`` bytes counted as waiting.
    ``send`` adds it to the queue."""

    terms: Terms
    count: int
    size: int
    future: AppendFuture
    send: Callable[[Tracked | None], None]


class AppendGate:
    """Of one pipeline. ``record`` writes what producers have changed to the state log."""

    def __init__(
        self,
        pipeline: AppendPipeline,
        producers: ProducerTable,
        access: Access,
        record: Record | None,
    ) -> None:
        self.producers = producers
        self.access = access
        self._pipeline = pipeline
        self._record = record
        self._recorded: asyncio.Future[None] | None = None
        self.waiting: deque[_Bound] = deque()
        """Appends that cannot be decided yet."""
        self._drained: asyncio.Future[None] | None = None
        self._is_held = False
        self._refusal: FencelogError | None = None
        self.look: Callable[[], asyncio.Future[bool]] | None = None
        """Tells whether the log is still this owner's. Asked before an append is refused that
        builds on others which are not known here: another owner may have them."""
        self._loop = asyncio.get_running_loop()

    # -- appends ---------------------------------------------------------------------------------

    def append_message(self, message: Message, terms: Terms | None) -> AppendFuture:
        """As ``AppendPipeline.append_message``; fails besides with what the terms lead to."""
        future: AppendFuture = self._loop.create_future()
        try:
            size = message_size(message) + _run_bytes(terms)
        except FencelogError as error:
            future.set_exception(error)
            return future

        def send(tracked: Tracked | None) -> None:
            self._pipeline.queue.add_message(message, size, future, tracked)

        return self._append(_Bound(terms or NO_TERMS, 1, size, future, send))

    def append_batch(self, batch: bytes, info: BatchInfo, terms: Terms | None) -> AppendFuture:
        """As ``AppendPipeline.append_batch``; fails besides with what the terms lead to."""
        future: AppendFuture = self._loop.create_future()
        size = len(batch) + _run_bytes(terms)
        try:
            check_batch_size(size)
        except FencelogError as error:
            future.set_exception(error)
            return future

        def send(tracked: Tracked | None) -> None:
            entry = PendingEntry(batch, info.count, size, [future], is_group=False)
            if tracked is not None:
                entry.runs = Runs()
                entry.runs.add(tracked)
            self._pipeline.queue.add_entry(entry)

        return self._append(_Bound(terms or NO_TERMS, info.count, size, future, send))

    def _append(self, bound: _Bound) -> AppendFuture:
        try:
            if self._refusal is not None:
                raise copy_of(self._refusal)
            if len(self.waiting) >= MAX_WAITING_APPENDS:
                raise FencelogError(
                    ErrorCode.OVERLOADED,
                    f"{len(self.waiting)} appends wait for others in partition "
                    f"{self._pipeline.partition}",
                )
            if self._pipeline.refusal is not None:
                raise copy_of(self._pipeline.refusal)
            self._pipeline.room.admit(bound.size, bound.count)
        except FencelogError as error:
            bound.future.set_exception(error)
            return bound.future
        if self._is_held or not self._decide(bound):
            self.waiting.append(bound)
        return bound.future

    def _decide(self, bound: _Bound) -> bool:
        """Send, answer or refuse an append; False: it has to wait."""
        terms = bound.terms
        tracked = None
        try:
            self.access.check(terms)
            if terms.run is not None:
                run = terms.run._replace(rows=bound.count)
                found = self.producers.find(run, now_us=self._pipeline.now_us())
                if found is not None:
                    self._pipeline.count(-bound.size)
                    self._repeat(bound.future, run, found)
                    return True
                tracked = Tracked(run)
            if terms.if_offset is not None and not self._is_next(terms.if_offset):
                return False
        except FencelogError as error:
            if self.look is not None and _builds_on_unknown(terms, error):
                self.look().add_done_callback(partial(self._refuse_after_look, bound, error))
            else:
                self._refuse(bound, error)
            return True
        if tracked is not None:
            self.producers.push(tracked)
        bound.send(tracked)
        self._pipeline.schedule_pump()
        return True

    def _repeat(self, future: AppendFuture, run: ProducerRun, found: Kept | Tracked) -> None:
        if isinstance(found, Tracked):
            found.share(future, run)
            return
        place = (self._pipeline.partition, found.offset, found.rows, found.publish_time_us)
        future.set_result(Repeated(*place))

    def _is_next(self, offset: int) -> bool:
        """Whether the next append gets this offset; False: that depends on appends on their way.
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

    def _refuse_after_look(
        self, bound: _Bound, error: FencelogError, looked: asyncio.Future[bool]
    ) -> None:
        if not looked.result():
            error = self._pipeline.refusal or FencelogError(
                ErrorCode.NO_OWNER,
                f"partition {self._pipeline.partition} may have another owner, who knows better: "
                f"{error.detail}",
            )
        self._refuse(bound, error)

    def _refuse(self, bound: _Bound, error: FencelogError) -> None:
        self._pipeline.count(-bound.size)
        fail_all([bound.future], error)

    def _retry(self) -> None:
        waiting, self.waiting = self.waiting, deque()
        for bound in waiting:
            if bound.future.done():
                self._pipeline.count(-bound.size)  # its caller has gone
            elif self._pipeline.refusal is not None:
                self._refuse(bound, self._pipeline.refusal)
            elif not self._decide(bound):
                self.waiting.append(bound)

    # -- news from the pipeline ------------------------------------------------------------------

    def settled(self, entry: PendingEntry, runs: Sequence[ProducerRun], offset: int) -> None:
        """An entry with runs of producers is in the log."""
        self.producers.settle(runs, offset, entry.publish_time_us, entry.size)
        told = self._recorded is None or self._recorded.done()
        if self._record is not None and told and self.producers.is_change_due:
            for event in self.producers.changes():
                self._recorded = self._record(event)

    def progressed(self) -> None:
        """Appends were settled, or have vanished."""
        if self._drained is not None and self._pipeline.is_idle and not self._drained.done():
            self._drained.set_result(None)
        if self.waiting and not self._is_held:
            self._retry()

    def give_up(self, error: FencelogError) -> None:
        """Nothing of what waits here was sent, or will be."""
        waiting, self.waiting = self.waiting, deque()
        for bound in waiting:
            self._refuse(bound, error)
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(copy_of(error))

    # -- for changes of who may append -----------------------------------------------------------

    async def drain(self) -> None:
        """Hold every append that comes from now on, until ``open``; return when all before them are
        settled. Raises FencelogError, why they cannot be: BOOKIE_UNAVAILABLE, NO_OWNER, …."""
        self._is_held = True
        self._pipeline.is_gated = True
        if self._pipeline.refusal is not None:
            raise copy_of(self._pipeline.refusal)
        if not self._pipeline.is_idle:
            self._drained = self._loop.create_future()
            try:
                await self._drained
            finally:
                self._drained = None

    def refuse(self, error: FencelogError) -> None:
        """Refuse what waits and all that comes, until ``open``."""
        self._refusal = error
        self.give_up(error)

    def open(self) -> None:
        """Decide on what has waited, and on all that comes, by the access as it is now."""
        self._is_held = False
        self._refusal = None
        self._pipeline.is_gated = not self.access.is_open
        self._retry()

    async def producer(self, producer: bytes) -> Producer | None:
        """What is settled of a producer once all that it has on its way is. Raises READ_UNKNOWN if
        the outcome of that is not known, or why appends are refused while it is not."""
        tracked = self.producers.last_pushed(producer)
        if tracked is not None:
            if self._pipeline.refusal is not None:  # it may take as long as bookies are away
                raise copy_of(self._pipeline.refusal)
            future: AppendFuture = self._loop.create_future()
            tracked.share(future, tracked.run)
            try:
                await future
            except FencelogError as error:
                if error.code.effects is Effects.MAYBE:
                    raise FencelogError(ErrorCode.READ_UNKNOWN, error.detail) from error
        return self.producers.get(producer)


def _run_bytes(terms: Terms | None) -> int:
    return RUN.size if terms is not None and terms.run is not None else 0


def _builds_on_unknown(terms: Terms, error: FencelogError) -> bool:
    """Whether a refused append has numbers, or names an offset, beyond what is known here."""
    if error.code is ErrorCode.SEQUENCE_MISMATCH:
        return True  # its end is beyond, if not its beginning
    offset: int | None = error.extra.get("next_offset")
    return offset is not None and terms.if_offset is not None and terms.if_offset > offset
