"""The append pipeline of one partition: from callers' messages to acknowledged entries, in order.

Synchronous, free of I/O: the shell (``log_writer``) gives it a ledger's writer and reports what is
acknowledged; ``LogCore`` decides, by its ``mode``, which appends are sent and which are refused. It
guarantees:

* entries are handed to a ledger in the order of arrival, and callers are notified in that order,
  over ledger boundaries too: a new ledger begins only when nothing of the previous one is
  outstanding;
* natural batching: while a group is in flight, messages that arrive wait together and are sent as
  one entry; there is no timer, so an idle partition answers at once;
* after a ledger failed nothing is reported or sent until recovery has said which entries are in it;
  those are acknowledged, the others are sent again to the next ledger: nothing twice;
* an append that never reached a ledger fails with a definite error, one that did with
  APPEND_UNKNOWN;
* no append vanishes without all that follow it: an append's offset is known when it is admitted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fencelog.broker.append.conditional_appends import CheckOwner, ConditionalAppends, Record
from fencelog.broker.append.conditions import AppendConditions
from fencelog.broker.append.followed import handed_over, report
from fencelog.broker.append.mode import AppendMode
from fencelog.broker.append.pending import (
    MAX_BATCH_BYTES,
    AppendFuture,
    PendingEntry,
    WaitingGroup,
    check_batch_size,
    message_size,
)
from fencelog.broker.append.pending_bytes import PendingBytes, PendingBytesLimit
from fencelog.broker.append.producer_access import Access
from fencelog.broker.append.producer_table import ProducerTable
from fencelog.broker.append.queue import AppendQueue, tracked_of
from fencelog.broker.ledger_list.ledger_port import EntryWriter
from fencelog.broker.metrics import BrokerCounts
from fencelog.broker.read.stored import StoredBatch
from fencelog.ledgers.errors import ErrorCode, FencelogError, check, copy_of
from fencelog.ledgers.format.entry_header import pack_header
from fencelog.ledgers.format.request_context import Contexts, merge
from fencelog.ledgers.format.run import Payload, Pieces
from fencelog.ledgers.limits import KIB
from fencelog.ledgers.record_batch import BatchInfo, Message

FULL_GROUPS_IN_FLIGHT = 4
"""The number of groups of single messages in flight above which even a full one waits. A group that
is not full waits for the group before it: acknowledgements come in order anyhow, and fewer, larger
entries carried a tenth more messages a second than four small ones in flight at a time."""

ENTRIES_IN_FLIGHT = 64
"""The number of entries in flight above which all appends wait, whole batches too."""

_LARGE_BATCH_BYTES = 16 * KIB
"""The size from which on a batch is copied once, into the run that is sent, and not into an entry
before that."""

_VANISHED = FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "the failed ledger does not hold it")

OnStored = Callable[[list[StoredBatch]], None]


class AppendPipeline:
    """The appends of one partition. ``tail_offset``: the end of the acknowledged messages.
    ``conditional``: the way in for conditional appends, and for all while the mode
    ``checks_every_append``."""

    def __init__(
        self,
        partition: int,
        mode: AppendMode,
        *,
        tail_offset: int,
        last_publish_us: int,
        now_us: Callable[[], int],
        on_stored: OnStored,
        broker_pending: PendingBytes,
        producers: ProducerTable | None = None,
        access: Access | None = None,
        record: Record | None = None,
        check_owner: CheckOwner | None = None,
        metrics: BrokerCounts | None = None,
    ) -> None:
        self._metrics = metrics or BrokerCounts()
        self.partition = partition
        self.mode = mode
        self.tail_offset = tail_offset
        self.last_publish_us = self.settled_publish_us = last_publish_us
        self.pending_limit = PendingBytesLimit(partition, broker_pending)
        self.count = self.pending_limit.count
        self.now_us = now_us
        self._on_stored = on_stored
        self.queue = AppendQueue(tail_offset, now_us)
        self._in_flight: list[PendingEntry] = []
        self._writer: EntryWriter | None = None
        self._first_offset = tail_offset
        self._next_number = 0
        self._last_range_entry = -1
        self.has_producers = False
        self._pump_scheduled = False
        self._loop = asyncio.get_running_loop()
        self.conditional = ConditionalAppends(
            self, producers or ProducerTable(), access or Access(), record, check_owner
        )

    # -- for callers -----------------------------------------------------------------------------

    def append_message(
        self, message: Message, conditions: AppendConditions | None = None
    ) -> AppendFuture:
        mode = self.mode
        if conditions is not None or mode.checks_every_append:
            return self.conditional.append_message(message, conditions)
        future: AppendFuture = self._loop.create_future()
        try:
            size = message_size(message)
            if mode.refusal is not None:
                raise copy_of(mode.refusal)
            self.pending_limit.admit(size, 1)
        except FencelogError as error:
            future.set_exception(error)
            return future
        group = self.queue.gathering
        if group is None or group.is_full:
            group = self.queue.new_group()
        group.add(message, size, future)
        if not self._pump_scheduled:
            self.schedule_pump()
        return future

    def append_batch(
        self, batch: bytes, info: BatchInfo, conditions: AppendConditions | None = None
    ) -> AppendFuture:
        mode = self.mode
        if conditions is not None or mode.checks_every_append:
            return self.conditional.append_batch(batch, info, conditions)
        future: AppendFuture = self._loop.create_future()
        size = len(batch)
        try:
            if size > MAX_BATCH_BYTES:
                check_batch_size(size)
            if mode.refusal is not None:
                raise copy_of(mode.refusal)
            self.pending_limit.admit(size, info.count)
        except FencelogError as error:
            future.set_exception(error)
            return future
        self.queue.add_entry(PendingEntry(batch, info.count, size, [future], is_group=False))
        if not self._pump_scheduled:
            self.schedule_pump()
        return future

    def follow(self, future: AppendFuture, contexts: Contexts) -> None:
        """Have the entry of an append, which was made just now, name these requests to its bookies
        and in log lines. An append that waits for others, or has no entry, names none."""
        if contexts and self.queue.items:
            last = self.queue.items[-1]
            if last.futures and last.futures[-1] is future:
                last.contexts = merge((last.contexts, contexts))

    def schedule_pump(self) -> None:
        """Hand appends to the ledger soon, since one was added to the queue; together with those of
        other partitions, which would be a callback of the loop each. The next ledger takes them
        when it begins."""
        if not self._pump_scheduled and self._writer is not None:
            self._pump_scheduled = True
            self._writer.append_soon(self._pump_now)

    # -- for the shell ---------------------------------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        return self.pending_limit.pending_bytes

    @property
    def is_drained(self) -> bool:
        """Tell whether nothing is outstanding in the ledger (appends may wait for the next)."""
        return not self._in_flight

    @property
    def is_idle(self) -> bool:
        return not self._in_flight and not self.queue.items

    @property
    def messages_in_ledger(self) -> int:
        """The number of acknowledged messages in the current ledger."""
        return self.tail_offset - self._first_offset

    def start_ledger(self, writer: EntryWriter) -> None:
        """Send to this ledger from now on, beginning with the appends that the previous one did not
        take."""
        check(self.is_drained, "a new ledger before the old one is drained")
        self._writer = writer
        self._first_offset = self.tail_offset
        self._next_number = 0
        self._last_range_entry = -1
        self.has_producers = False
        self._pump()

    def adopt(self, messages: int, publish_time_us: int) -> None:
        """Note that messages have joined the log at its tail, past this pipeline; what waits comes
        after them."""
        check(self.is_drained, "messages join while others are in flight")
        self.tail_offset += messages
        self.last_publish_us = self.settled_publish_us = publish_time_us
        self._recount()

    def acknowledged(self, last_entry_id: int) -> None:
        """Note that all entries of the current ledger up to this one are durable."""
        self._settle(last_entry_id)
        if self.queue.items:
            self._pump()
        if self.mode.checks_every_append or self.conditional.waiting:
            self.conditional.progressed()

    def resolve(self, last_entry_id: int) -> None:
        """Note that the failed ledger was recovered and ends at this entry: the entries in it are
        acknowledged, the rest waits for the next ledger, in the same order."""
        check(not self.mode.may_send, "a ledger is resolved while it is in use")
        self._settle(last_entry_id)
        while self._in_flight:
            entry = self._in_flight.pop()
            if entry.is_given_up:
                self.count(-entry.size)
                entry.fail(_VANISHED)  # answers the repeats that came since
            else:
                entry.entry_id = -1
                self.queue.put_back(entry)
        self._recount()
        self.conditional.progressed()

    def refuse_waiting(self, error: FencelogError) -> None:
        """Fail the appends that have not reached a ledger."""
        self.count(-self.queue.give_up(error))
        self._recount()
        self.conditional.progressed()

    def give_up(self, waiting: FencelogError, handed: FencelogError) -> None:
        """Fail every append: with ``handed`` those that reached a ledger whose end is not known.

        Entries in flight stay, without their callers, until ``resolve`` says whether they are in
        the log: offsets must count them.
        """
        self.count(-self.queue.give_up(waiting))
        for entry in self._in_flight:
            entry.fail(handed)
        self._recount()
        self.conditional.give_up(waiting)

    def discard(self) -> None:
        """Forget the entries in flight: this instance is finished. Called after ``give_up``
        only."""
        while self._in_flight:
            self.count(-self._in_flight.pop().size)
        self._recount()

    # -- internals -------------------------------------------------------------------------------

    def _recount(self) -> None:
        """Count again after appends were given up: only the remaining ones are in flight."""
        self.queue.recount(self.tail_offset + sum(entry.count for entry in self._in_flight))
        self.conditional.producers.retrack((*tracked_of(self._in_flight), *self.queue.tracked))

    def _pump_now(self) -> None:
        self._pump_scheduled = False
        self._pump()

    def _pump(self) -> None:
        """Hand waiting appends to the ledger as far as the limits in flight allow."""
        queue, mode = self.queue, self.mode
        if self._writer is None:
            return
        while queue.items and mode.may_send and self._has_capacity(queue.items[0]):
            head = queue.take_first()
            entry = queue.build(head) if isinstance(head, WaitingGroup) else head
            if not self._push(self._writer, entry):
                return

    def _has_capacity(self, head: PendingEntry | WaitingGroup) -> bool:
        """Tell whether an append may join those in flight; otherwise it waits for others to join
        its group."""
        under_way = len(self._in_flight)
        if isinstance(head, PendingEntry) or not under_way:
            return under_way < ENTRIES_IN_FLIGHT
        groups = sum(entry.is_group for entry in self._in_flight)
        limit = FULL_GROUPS_IN_FLIGHT if head.is_full else 1
        return under_way < ENTRIES_IN_FLIGHT and groups < limit

    def _push(self, writer: EntryWriter, entry: PendingEntry) -> bool:
        """Hand an entry to the ledger; return whether the ledger took it."""
        if not entry.publish_time_us:
            now_us = self.now_us()
            self.last_publish_us = max(now_us, self.last_publish_us)
            entry.publish_time_us = self.last_publish_us
            self._metrics.queue_time.observe_us(now_us - entry.queued_us)
        header = pack_header(
            count=entry.count,
            first_number=self._next_number,
            publish_time_us=entry.publish_time_us,
            ranges=() if entry.ranges is None else entry.ranges.found,
            previous_range_entry=self._last_range_entry,
        )
        payload: Payload = (
            header + entry.batch
            if len(entry.batch) < _LARGE_BATCH_BYTES
            else Pieces.of(header, entry.batch)
        )
        if entry.contexts:
            entry.sent_contexts = handed_over(entry.contexts, self._metrics.spans)
        try:
            entry.entry_id = writer.append(payload, entry.sent_contexts)
        except FencelogError:
            # Nothing was sent. Its failure, or the acks that free space again, are reported
            # separately.
            self.queue.put_back(entry)
            return False
        self._next_number += entry.count
        if entry.ranges is not None:
            self._last_range_entry = entry.entry_id
        self._in_flight.append(entry)
        return True

    def _settle(self, last_entry_id: int) -> None:
        in_flight, tail_offset, metrics = self._in_flight, self.tail_offset, self._metrics
        stored: list[StoredBatch] = []
        size = now_us = 0
        while in_flight and in_flight[0].entry_id <= last_entry_id:
            entry = in_flight.pop(0)
            now_us = now_us or self.now_us()
            offset = self.tail_offset
            self.tail_offset += entry.count
            size += entry.size
            self.settled_publish_us = entry.publish_time_us
            if entry.ranges is not None:
                self.has_producers = True
                self.conditional.settled(entry, entry.ranges.found, offset)
            if entry.contexts and self._writer is not None:
                report(entry, self.partition, self._writer.ledger_id, now_us, metrics.spans)
            entry.succeed(self.partition, offset, now_us)
            stored.append(
                StoredBatch(offset, entry.count, entry.publish_time_us, memoryview(entry.batch))
            )
            metrics.appended_bytes += len(entry.batch)
            metrics.ledger_time.observe_us(now_us - entry.publish_time_us)
        if stored:
            self.count(-size)
            metrics.appended_messages += self.tail_offset - tail_offset
            metrics.appended_entries += len(stored)
            self._on_stored(stored)
