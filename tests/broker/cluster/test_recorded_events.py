"""What brokers record: takeovers, fences, rolls, repairs, trims, drains of real logs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fencelog.broker.background.unloading import DrainResult
from fencelog.broker.broker import Broker
from fencelog.broker.cluster.events_core import EVENTS_TOPIC, Event
from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import BrokerMaker, Stage
from tests.support.scripted_ledgers import ScriptedLedgers

NAME = TopicName.of("shop", "orders")


class Timeline:
    """The events that brokers append. Implements ``EventSink``."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def append(self, events: Sequence[Event], key: str) -> None:
        self.events += events

    async def of(self, kind: str, *brokers: Broker) -> list[Event]:
        """Return the events of a kind, with all that these brokers have recorded until now."""
        for broker in brokers:
            await broker.events.flush()
        return [event for event in self.events if event.kind == kind]


@pytest.fixture
def timeline() -> Timeline:
    return Timeline()


@pytest.fixture
def make(make_broker: BrokerMaker, timeline: Timeline) -> BrokerMaker:
    async def make(
        broker_id: str, *, store: MemoryMetadataStore | None = None, record_events: bool = True
    ) -> Broker:
        broker = await make_broker(broker_id, store=store, record_events=record_events)
        broker.events.start(timeline)
        return broker

    return make


async def test_takeovers_name_the_previous_owner_and_its_end(
    make: BrokerMaker, stage: Stage, timeline: Timeline
) -> None:
    store = await stage.store()
    a, b = await make("a", store=store), await make("b")
    await a.topics.create(NAME, TopicConfig())
    log = await a.partition(NAME, 0)
    await log.append_message(Message(b"x"))
    store.disconnect()
    store.expire()
    await b.partition(NAME, 0)
    first, second = await timeline.of("takeover", a, b)
    assert (first.broker_id, first.topic, first.partition, first.epoch, first.previous) == (
        "a",
        "shop/orders",
        0,
        1,
        None,
    )
    assert first.ledger_id == 1
    assert (second.broker_id, second.epoch, second.ledger_id) == ("b", 2, 2)
    assert second.previous is not None
    assert (second.previous.broker_id, second.previous.ended) == ("a", "session_ended")
    assert second.detail["recovered"] == [1]
    store.reconnect()
    await asyncio.sleep(0.03)
    lost = await timeline.of("lost", a, b)
    assert [(event.broker_id, event.epoch) for event in lost] == [("a", 1)]


async def test_an_owner_that_lives_is_fenced(
    make: BrokerMaker, stage: Stage, timeline: Timeline, ledgers: ScriptedLedgers
) -> None:
    store = await stage.store()
    a, b = await make("a", store=store), await make("b")
    await a.topics.create(NAME, TopicConfig())
    zombie = await a.partition(NAME, 0)
    store.disconnect()
    await b.report_dead_owner(NAME, 0, "http://a")
    await b.partition(NAME, 0)
    (unreachable,) = await timeline.of("owner_unreachable", b)
    assert (unreachable.broker_id, unreachable.topic) == ("b", "shop/orders")
    assert unreachable.detail == {"owner": "a", "url": "http://a"}
    *_, takeover = await timeline.of("takeover", b)
    assert takeover.previous is not None
    assert takeover.previous.ended == "unreachable"
    doomed = zombie.append_message(Message(b"zombie"))
    await asyncio.sleep(0.1)
    (fenced,) = await timeline.of("fenced", a)
    assert (fenced.broker_id, fenced.epoch, fenced.ledger_id) == ("a", 1, 1)
    store.reconnect()
    with pytest.raises(FencelogError):
        await doomed
    (lost,) = await timeline.of("lost", a)
    assert (lost.broker_id, lost.detail) == (
        "a",
        {"error": "partition 0 of shop/orders is owned by b"},
    )


async def test_a_takeover_that_starts_again_is_a_conflict(
    make: BrokerMaker, stage: Stage, timeline: Timeline, ledgers: ScriptedLedgers
) -> None:
    """The previous owner changes the list once more in the middle of it."""
    store = await stage.store()
    a, b = await make("a", store=store), await make("b")
    info, _ = await a.topics.create(NAME, TopicConfig())
    await (await a.partition(NAME, 0)).append_message(Message(b"x"))
    store.disconnect()
    store.expire()
    rolling = await b.topics.open_ledger_list(info, 0)
    changes: list[asyncio.Task[object]] = []

    def roll() -> None:
        if not changes:
            changes.append(asyncio.create_task(rolling.change(lambda ledger_list: ledger_list)))

    ledgers.before_recover = roll
    await b.partition(NAME, 0)
    (conflict,) = await timeline.of("conflict", b)
    assert (conflict.broker_id, conflict.partition) == ("b", 0)
    assert "error" in conflict.detail
    *_, takeover = await timeline.of("takeover", b)
    assert takeover.epoch == 2
    assert b.metrics.ledger_list_conflicts == 1
    store.reconnect()


async def test_a_registered_owner_is_fenced(make: BrokerMaker, timeline: Timeline) -> None:
    a = await make("a")
    await a.topics.create(NAME, TopicConfig())
    await a.partition(NAME, 0)
    again = await make("a")  # its former self is still there
    await again.partition(NAME, 0)
    *_, takeover = await timeline.of("takeover", a, again)
    assert takeover.previous is not None
    assert takeover.previous.broker_id == "a"
    assert takeover.epoch == 2


async def test_a_transfer_is_a_release(make: BrokerMaker, timeline: Timeline) -> None:
    a, b = await make("a"), await make("b")
    await a.topics.create(NAME, TopicConfig())
    await a.partition(NAME, 0)
    assert await a.drain() == DrainResult(
        not_taken=1
    )  # there is no link between them, so b is not asked
    await b.partition(NAME, 0)
    await a.undrain()
    *_, takeover = await timeline.of("takeover", a, b)
    assert takeover.previous is not None
    assert (takeover.previous.broker_id, takeover.previous.ended) == ("a", "released")
    assert takeover.detail["recovered"] == []
    begun, ended = await timeline.of("drain", a)
    assert begun.topic is None
    assert begun.detail == {"is_done": False, "partitions": 1, "not_taken": 0, "still_open": 0}
    assert ended.detail == {"is_done": True, "partitions": 1, "not_taken": 1, "still_open": 0}
    (undrain,) = await timeline.of("undrain", a)
    assert undrain.time_us >= ended.time_us


async def test_rolls_trims_and_the_end_of_a_log(make: BrokerMaker, timeline: Timeline) -> None:
    a = await make("a")
    await a.topics.create(NAME, TopicConfig(1, {"roll_entries": 1}))
    log = await a.partition(NAME, 0)
    for _ in range(3):
        await log.append_message(Message(b"x"))
        await asyncio.sleep(0.02)
    rolls = await timeline.of("roll", a)
    assert [(e.ledger_id, e.detail) for e in rolls] == [
        (2, {"previous_ledger": 1}),
        (3, {"previous_ledger": 2}),
        (4, {"previous_ledger": 3}),
    ]
    await log.retention.trim(2)
    (trim,) = await timeline.of("trim", a)
    assert (trim.epoch, trim.detail) == (1, {"count": 2, "ledgers": [1, 2], "start_offset": 2})
    await log.retention.trim(2)  # there is nothing left to do
    assert len(await timeline.of("trim", a)) == 1
    await log.terminate()
    (terminated,) = await timeline.of("terminate", a)
    assert terminated.detail == {"end_offset": 3}


async def test_a_failed_ledger_is_recovered_and_replaced(
    make: BrokerMaker, timeline: Timeline, ledgers: ScriptedLedgers
) -> None:
    a = await make("a")
    await a.topics.create(NAME, TopicConfig())
    log = await a.partition(NAME, 0)
    await log.append_message(Message(b"x"))
    ledgers.newest.fail(FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "gone"))
    await log.append_message(Message(b"y"))
    (recovery,) = await timeline.of("recovery", a)
    assert (recovery.ledger_id, recovery.detail) == (1, {"last_entry": 0})
    (repair,) = await timeline.of("repair", a)
    assert (repair.ledger_id, repair.detail) == (2, {"previous_ledger": 1})
    assert await timeline.of("fenced", a) == []


async def test_an_opening_that_fails_again_and_again_is_one_event(
    make: BrokerMaker, timeline: Timeline, ledgers: ScriptedLedgers
) -> None:
    a = await make("a")
    await a.topics.create(NAME, TopicConfig())
    ledgers.create_errors = [FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "none")] * 3
    for _ in range(3):
        with pytest.raises(FencelogError):
            await a.partition(NAME, 0)
    (failed,) = await timeline.of("takeover_failed", a)
    assert (failed.topic, failed.detail) == ("shop/orders", {"error": "none"})
    await a.partition(NAME, 0)
    assert len(await timeline.of("takeover", a)) == 1


async def test_the_topic_of_events_is_no_subject_beyond_its_takeovers(
    make: BrokerMaker, timeline: Timeline
) -> None:
    a = await make("a")
    await a.topics.create(EVENTS_TOPIC, TopicConfig(1, {"roll_entries": 1}))
    log = await a.partition(EVENTS_TOPIC, 0)
    for _ in range(3):
        await log.append_message(Message(b"x"))
        await asyncio.sleep(0.02)
    await log.retention.trim(2)
    await a.events.flush()
    assert [event.kind for event in timeline.events] == ["takeover"]


async def test_brokers_record_nothing_unless_they_are_told(make_broker: BrokerMaker) -> None:
    a = await make_broker("a")
    timeline = Timeline()
    a.events.start(timeline)
    await a.topics.create(NAME, TopicConfig())
    await a.partition(NAME, 0)
    await asyncio.sleep(10)
    assert timeline.events == []
