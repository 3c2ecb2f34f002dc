"""The recorder: it holds nothing up, appends once, and says what it has lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from fencelog.broker.cluster.event_recorder import NO_EVENTS, EventRecorder
from fencelog.broker.cluster.events_core import EVENTS_TOPIC, Event, EventKind
from fencelog.broker.config import BrokerConfig
from fencelog.broker.limits import EVENT_APPEND_MS, EVENT_REPEAT_MS, MAX_QUEUED_EVENTS
from fencelog.broker.metrics import BrokerCounts
from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import new_metadata

NAME = TopicName("ns", "t")


def config(*, record_events: bool) -> BrokerConfig:
    return BrokerConfig("a", "http://a", record_events=record_events)


class ScriptedSink:
    """A topic that remembers keys. ``errors``: of the next appends, in order; ``written_anyhow``:
    an append of unknown outcome writes. ``gate``: appends wait for it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.keys: list[str] = []
        self.calls = 0
        self.errors: list[FencelogError] = []
        self.written_anyhow = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def append(self, events: Sequence[Event], key: str) -> None:
        self.calls += 1
        await self.gate.wait()
        error = self.errors.pop(0) if self.errors else None
        if (error is None or self.written_anyhow) and key not in self.keys:
            self.keys.append(key)
            self.events += events
        if error is not None:
            raise error

    @property
    def kinds(self) -> list[str]:
        return [each.kind for each in self.events]


@pytest.fixture
def sink() -> ScriptedSink:
    return ScriptedSink()


@pytest.fixture
def metrics() -> BrokerCounts:
    return BrokerCounts()


@pytest_asyncio.fixture
async def recorder(metrics: BrokerCounts) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(config(record_events=True), metrics, SystemHost())
    yield recorder
    await recorder.close()


def record(recorder: EventRecorder, count: int) -> None:
    for number in range(count):
        recorder.record(EventKind.ROLL, topic=NAME, partition=number)


async def test_events_are_appended_together_a_moment_later(
    recorder: EventRecorder, sink: ScriptedSink, metrics: BrokerCounts
) -> None:
    recorder.start(sink)
    record(recorder, 3)
    assert sink.calls == 0
    await recorder.flush()
    assert [each.partition for each in sink.events] == [0, 1, 2]
    assert sink.events[0].topic == "ns/t"
    assert (sink.calls, metrics.recorded_events, metrics.dropped_events) == (1, 3, 0)


async def test_a_recorder_that_is_off_has_nothing_to_do(metrics: BrokerCounts) -> None:
    off = EventRecorder(config(record_events=False), metrics, SystemHost())
    sink = ScriptedSink()
    off.start(sink)
    record(off, 3)
    assert off.of_partition(NAME, "t1", 0) is NO_EVENTS
    await asyncio.sleep(10)
    await off.close()
    assert (sink.calls, metrics.dropped_events) == (0, 0)


async def test_what_was_recorded_before_the_start_is_appended(
    recorder: EventRecorder, sink: ScriptedSink
) -> None:
    record(recorder, 1)
    recorder.start(sink)
    await recorder.flush()
    assert sink.kinds == ["roll"]


async def test_an_append_of_unknown_outcome_is_repeated_and_written_once(
    recorder: EventRecorder, sink: ScriptedSink, metrics: BrokerCounts
) -> None:
    sink.written_anyhow = True
    sink.errors = [FencelogError(ErrorCode.APPEND_UNKNOWN, "lost")] * 3
    recorder.start(sink)
    record(recorder, 2)
    await asyncio.sleep(10)
    assert (sink.calls, len(sink.events), len(sink.keys)) == (4, 2, 1)
    assert (metrics.recorded_events, metrics.dropped_events) == (2, 0)


async def test_an_append_that_never_answers_is_repeated(
    recorder: EventRecorder, sink: ScriptedSink
) -> None:
    sink.gate.clear()
    recorder.start(sink)
    record(recorder, 1)
    await asyncio.sleep(EVENT_APPEND_MS / 1000 + 0.5)
    sink.gate.set()
    await asyncio.sleep(2)
    assert (sink.calls, sink.kinds) == (2, ["roll"])


async def test_an_outcome_that_stays_unknown_counts_as_lost_and_is_reported(
    recorder: EventRecorder, sink: ScriptedSink, metrics: BrokerCounts
) -> None:
    tries = EVENT_REPEAT_MS // 1000
    sink.errors = [FencelogError(ErrorCode.APPEND_UNKNOWN, "lost")] * (tries + 1)
    recorder.start(sink)
    record(recorder, 2)
    await asyncio.sleep(tries + 10)
    assert sink.kinds == ["events_lost"]
    assert sink.events[0].detail == {"events": 2}
    assert (metrics.recorded_events, metrics.dropped_events) == (1, 2)


async def test_a_topic_that_is_away_for_long_gets_everything(
    recorder: EventRecorder, sink: ScriptedSink, metrics: BrokerCounts
) -> None:
    tries = 3 * EVENT_REPEAT_MS // 1000
    sink.errors = [FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "none")] * tries
    recorder.start(sink)
    record(recorder, 2)
    await asyncio.sleep(tries + 10)
    assert sink.kinds == ["roll", "roll"]
    assert metrics.dropped_events == 0


async def test_a_refusal_for_good_drops_one_batch_and_the_next_says_so(
    recorder: EventRecorder, sink: ScriptedSink, metrics: BrokerCounts
) -> None:
    sink.errors = [FencelogError(ErrorCode.TOPIC_TERMINATED, "over")]
    recorder.start(sink)
    record(recorder, 2)
    await recorder.flush()
    assert sink.kinds == ["events_lost"]
    record(recorder, 1)
    await recorder.flush()
    assert sink.kinds == ["events_lost", "roll"]
    assert (metrics.recorded_events, metrics.dropped_events) == (2, 2)


async def test_two_brokers_append_under_keys_of_their_own(
    recorder: EventRecorder, sink: ScriptedSink
) -> None:
    other = EventRecorder(config(record_events=True), BrokerCounts(), SystemHost())
    for each in (recorder, other):
        each.start(sink)
        record(each, 1)
        await each.flush()
    await other.close()
    assert sink.kinds == ["roll", "roll"]


async def test_a_loss_that_is_refused_for_good_is_reported_with_the_next_event(
    recorder: EventRecorder, sink: ScriptedSink, metrics: BrokerCounts
) -> None:
    """It must not be sent again and again meanwhile: the topic may refuse it at once, for ever."""
    sink.errors = [FencelogError(ErrorCode.TOPIC_TERMINATED, "over")] * 1_000
    recorder.start(sink)
    record(recorder, 2)
    await recorder.flush()
    await asyncio.sleep(10)
    assert sink.calls == 2
    sink.errors.clear()
    record(recorder, 1)
    await recorder.flush()
    assert sink.kinds == ["roll", "events_lost"]
    assert sink.events[1].detail == {"events": 2}
    assert (metrics.recorded_events, metrics.dropped_events) == (2, 2)


async def test_what_happens_while_a_loss_is_refused_is_waited_for(
    recorder: EventRecorder, sink: ScriptedSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = sink.append

    async def append_and_meet_another(events: Sequence[Event], key: str) -> None:
        if sink.calls == 1:  # the report of the loss is the second
            record(recorder, 1)
        await append(events, key)

    monkeypatch.setattr(sink, "append", append_and_meet_another)
    sink.errors = [FencelogError(ErrorCode.TOPIC_TERMINATED, "over")] * 2
    recorder.start(sink)
    record(recorder, 2)
    await recorder.flush()
    assert sink.kinds == ["roll", "events_lost"]


async def test_a_full_queue_drops_and_holds_nothing_up(
    recorder: EventRecorder, sink: ScriptedSink, metrics: BrokerCounts
) -> None:
    sink.gate.clear()
    recorder.start(sink)
    record(recorder, 1)
    await asyncio.sleep(1)  # the first one is in flight
    record(recorder, MAX_QUEUED_EVENTS + 7)
    assert metrics.dropped_events == 7
    sink.gate.set()
    await recorder.flush()
    assert sink.kinds.count("roll") == MAX_QUEUED_EVENTS + 1
    assert sink.events[-1].detail == {"events": 7}


async def test_a_bug_of_the_sink_is_no_end(recorder: EventRecorder, sink: ScriptedSink) -> None:
    class Broken(ScriptedSink):
        async def append(self, events: Sequence[Event], key: str) -> None:
            if self.calls == 0:
                self.calls = 1
                raise ValueError("a bug")
            await super().append(events, key)

    broken = Broken()
    recorder.start(broken)
    record(recorder, 1)
    await asyncio.sleep(5)
    assert broken.kinds == ["roll"]


async def test_what_waits_at_the_end_is_counted(
    recorder: EventRecorder, sink: ScriptedSink, metrics: BrokerCounts
) -> None:
    sink.gate.clear()
    recorder.start(sink)
    record(recorder, 2)
    await asyncio.sleep(1)
    record(recorder, 3)
    await recorder.flush()  # for a moment, not for ever
    await recorder.close()
    assert metrics.dropped_events == 5
    record(recorder, 1)
    assert metrics.dropped_events == 5


async def test_an_ensemble_change_names_the_topic_of_its_log(
    recorder: EventRecorder, sink: ScriptedSink
) -> None:
    recorder.start(sink)
    recorder.of_partition(NAME, "t1", 4)
    before = new_metadata(
        7,
        ensemble=("b1", "b2", "b3"),
        write_quorum=3,
        ack_quorum=2,
        token="x",
        properties={"log": "t1/4", "epoch": "9"},
    )
    recorder.ensemble_changed(before, before.with_ensemble(5, ("b1", "b4", "b3")))
    recorder.of_partition(EVENTS_TOPIC, "t2", 0)
    of_events = {"log": "t2/0", "epoch": "1"}
    for properties in (of_events, {"log": "gone/0"}, {}):
        other = new_metadata(
            8,
            ensemble=("b1", "b2", "b3"),
            write_quorum=3,
            ack_quorum=2,
            token="x",
            properties=properties,
        )
        recorder.ensemble_changed(other, other.with_ensemble(5, ("b1", "b4", "b3")))
    recorder.forget("t1")
    recorder.ensemble_changed(before, before.with_ensemble(5, ("b1", "b4", "b3")))
    await recorder.flush()
    (event,) = sink.events
    assert (event.topic, event.partition, event.epoch, event.ledger_id) == ("ns/t", 4, 9, 7)
    assert event.detail == {"first_entry": 5, "removed": ["b2"], "added": ["b4"]}
