"""The recorder of the timeline of events, beside ``BrokerCounts``.

``record`` is called where counts change: it costs an object and an entry of a queue, waits for
nothing and never fails. One task takes the events from there in batches and appends them to the
topic of events, wherever its owner is. An append whose outcome is not known is repeated under the
same idempotency key, so that it is written once; one that fails for good is counted as dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from fencelog.broker.cluster.events_core import (
    Event,
    EventKind,
    EventQueue,
    PreviousOwner,
    is_recorded,
    is_repeated,
    is_report,
    previous_owner,
)
from fencelog.broker.config import BrokerConfig
from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.broker.limits import (
    EVENT_APPEND_MS,
    EVENT_FLUSH_MS,
    EVENT_LINGER_MS,
    EVENT_PAUSE_MS,
    MAX_EVENT_TEXT,
    UNREACHABLE_FOR_MS,
)
from fencelog.broker.metrics import BrokerCounts
from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata

_KEY_BYTES = 8

log = logging.getLogger(__name__)


class EventSink(Protocol):
    """The port to the topic of events."""

    async def append(self, events: Sequence[Event], key: str) -> None:
        """Append the events, all or none, and once for all calls with the same ``key``. Raises
        FencelogError as an append does."""


def _nobody(_broker_id: str) -> bool:
    return False


class EventRecorder:
    """The recorder of one broker. ``start`` it with a sink, else events only wait. Where ``is_on``
    is False it records nothing."""

    def __init__(
        self,
        config: BrokerConfig,
        metrics: BrokerCounts,
        host: Host,
        is_registered: Callable[[str], bool] = _nobody,
    ) -> None:
        self.is_on = config.record_events
        self._broker_id = config.broker_id
        self._metrics = metrics
        self._host = host
        self._is_registered = is_registered
        self._started_us = host.now_us()
        self._unreachable_us: dict[str, int] = {}
        self._queue = EventQueue(config.broker_id)
        self._topics: dict[str, TopicName] = {}
        """The topics of open partitions by id, for events that know only the log."""
        self._wakeup = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._batches = 0
        self._task: asyncio.Task[None] | None = None

    def start(self, sink: EventSink) -> None:
        """Append what is recorded, from now on."""
        if self.is_on and self._task is None:
            run = self._run(sink, self._host.random_bytes(_KEY_BYTES).hex())
            self._task = asyncio.get_running_loop().create_task(run, name="recorder of events")

    async def close(self) -> None:
        """Stop, for good. What waits is dropped. Never raises."""
        if not self.is_on:
            return
        self.is_on = False
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._metrics.dropped_events += len(self._queue)

    async def flush(self) -> None:
        """Wait until everything that was recorded is durable or dropped, for a moment."""
        if self._task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(EVENT_FLUSH_MS / 1000):
                    await self._settled.wait()

    # -- recording -------------------------------------------------------------------------------

    def record(
        self,
        kind: EventKind,
        *,
        topic: TopicName | None = None,
        partition: int | None = None,
        epoch: int | None = None,
        ledger_id: int | None = None,
        previous: PreviousOwner | None = None,
        **detail: Any,
    ) -> None:
        """Record an event that has just happened. Never raises, never waits. ``detail``:
        JSON-compatible."""
        if not self.is_on or not is_recorded(kind, topic):
            return
        event = Event(
            time_us=self._host.now_us(),
            kind=kind.value,
            broker_id=self._broker_id,
            topic=None if topic is None else str(topic),
            partition=partition,
            epoch=epoch,
            ledger_id=ledger_id,
            previous=previous,
            detail=detail,
        )
        self._metrics.dropped_events += not self._queue.add(event)
        self._settled.clear()
        self._wakeup.set()

    def of_partition(self, topic: TopicName, topic_id: str, partition: int) -> PartitionEvents:
        """Return the recorder of one partition's events."""
        if not self.is_on:
            return NO_EVENTS
        self._topics[topic_id] = topic
        return PartitionEvents(self, topic, partition)

    def forget(self, topic_id: str) -> None:
        """Forget a topic that was deleted."""
        self._topics.pop(topic_id, None)

    def ensemble_changed(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        """Record that the writer of a ledger has replaced bookies."""
        topic_id, _, partition = after.properties.get("log", "").partition("/")
        topic = self._topics.get(topic_id)
        if topic is None:  # no log of a partition
            return
        old, new = before.last_fragment.bookies, after.last_fragment.bookies
        self.record(
            EventKind.ENSEMBLE_CHANGE,
            topic=topic,
            partition=int(partition),
            epoch=int(after.properties.get("epoch", 0)),
            ledger_id=after.ledger_id,
            first_entry=after.last_fragment.first_entry_id,
            removed=[bookie for bookie in old if bookie not in new],
            added=[bookie for bookie in new if bookie not in old],
        )

    def owner_unreachable(self, broker_id: str, url: str, topic: TopicName, partition: int) -> None:
        """Record that the port of an owner refuses connections, so that its partitions are free;
        once in a while, since each request to it meets that."""
        if self._is_unreachable(broker_id):
            return
        now_us = self._host.now_us()
        self._unreachable_us = {
            each: seen_us
            for each, seen_us in self._unreachable_us.items()
            if _is_recent(seen_us, now_us)
        } | {broker_id: now_us}
        self.record(
            EventKind.OWNER_UNREACHABLE,
            topic=topic,
            partition=partition,
            owner=broker_id,
            url=url,
        )

    def previous_owner(self, before: LedgerList) -> PreviousOwner | None:
        """Return the owner before a takeover, see ``events_core.previous_owner``."""
        return previous_owner(
            before,
            own_id=self._broker_id,
            started_us=self._started_us,
            is_registered=self._is_registered,
            is_unreachable=self._is_unreachable,
        )

    def _is_unreachable(self, broker_id: str) -> bool:
        seen_us = self._unreachable_us.get(broker_id)
        return seen_us is not None and _is_recent(seen_us, self._host.now_us())

    # -- appending -------------------------------------------------------------------------------

    async def _run(self, sink: EventSink, process: str) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            await asyncio.sleep(EVENT_LINGER_MS / 1000)
            while not self._queue.is_empty:
                self._batches += 1
                batch = self._queue.take(self._host.now_us())
                try:
                    is_told = await self._append(sink, batch, f"events/{process}/{self._batches}")
                except asyncio.CancelledError:
                    self._metrics.dropped_events += self._queue.lose(batch)
                    raise
                if not (is_told or self._queue) and is_report(batch):
                    break  # it would be refused again at once: it goes with the next event
            self._settled.set()

    async def _append(self, sink: EventSink, batch: Sequence[Event], key: str) -> bool:
        """Append a batch until it is durable or given up; return whether it is durable. Never
        raises FencelogError."""
        loop = asyncio.get_running_loop()
        unknown_since_s: float | None = None
        complaint = ""
        while True:
            try:
                async with asyncio.timeout(EVENT_APPEND_MS / 1000):
                    await sink.append(batch, key)
                self._metrics.recorded_events += len(batch)
                return True
            except TimeoutError:
                took_s = EVENT_APPEND_MS / 1000
                error = FencelogError(ErrorCode.APPEND_UNKNOWN, f"no answer within {took_s:g} s")
            except FencelogError as failed:
                error = failed
            except Exception:  # a bug in the sink must not end the record for good
                log.exception("events are not appended")
                error = FencelogError(ErrorCode.INTERNAL, "events are not appended")
            if error.code.effects is Effects.MAYBE and unknown_since_s is None:
                unknown_since_s = loop.time()
            if str(error) != complaint:
                complaint = str(error)
                log.info("%d events are not appended: %s", len(batch), error)
            unknown_ms = None
            if unknown_since_s is not None:
                unknown_ms = (loop.time() - unknown_since_s) * 1000
            if not is_repeated(error, unknown_ms=unknown_ms):
                log.warning("%d events are dropped: %s", len(batch), error)
                self._metrics.dropped_events += self._queue.lose(batch)
                return False
            await asyncio.sleep(EVENT_PAUSE_MS / 1000)


def _is_recent(seen_us: int, now_us: int) -> bool:
    return now_us - seen_us < UNREACHABLE_FOR_MS * 1000


class PartitionEvents:
    """The recorder of one partition's events; without a recorder it records nothing."""

    __slots__ = ("_partition", "_recorder", "_topic")

    def __init__(
        self, recorder: EventRecorder | None, topic: TopicName | None, partition: int
    ) -> None:
        self._recorder = recorder
        self._topic = topic
        self._partition = partition

    def record(
        self,
        kind: EventKind,
        *,
        epoch: int | None = None,
        ledger_id: int | None = None,
        **detail: Any,
    ) -> None:
        """Record an event of the partition, see ``EventRecorder.record``."""
        if self._recorder is not None:
            self._recorder.record(
                kind,
                topic=self._topic,
                partition=self._partition,
                epoch=epoch,
                ledger_id=ledger_id,
                **detail,
            )

    def taken_over(self, before: LedgerList, after: LedgerList, *, took_us: int) -> None:
        """Record a takeover. ``before``: the list that was found; ``after``: as it was written."""
        if self._recorder is not None:
            written = after.segments[-1].ledger_id if after.segments else None
            self._recorder.record(
                EventKind.TAKEOVER,
                topic=self._topic,
                partition=self._partition,
                epoch=after.epoch,
                ledger_id=None if after.terminated else written,
                previous=self._recorder.previous_owner(before),
                took_us=max(0, took_us),
                recovered=[s.ledger_id for s in before.to_recover if s.sealed is None],
            )


NO_EVENTS = PartitionEvents(None, None, 0)
"""The recorder of a partition whose events are not recorded."""


def short(error: FencelogError) -> str:
    """Return the text of an error as an event has it."""
    return error.detail[:MAX_EVENT_TEXT]
