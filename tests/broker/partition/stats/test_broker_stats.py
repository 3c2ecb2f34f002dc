"""Rows of the busiest topics and the longest backlogs; the rest is one row."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.broker.broker import Broker
from fencelog.broker.names import TopicName
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.partition.stats import broker_stats
from fencelog.broker.partition.stats.broker_stats import OTHERS
from fencelog.broker.registry.subscription_config import SubscriptionConfig
from fencelog.broker.registry.subscription_registry import RegisteredSubscription
from fencelog.broker.registry.topics import TopicConfig
from fencelog.broker.subscriptions.table import SubscriptionTable
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import BrokerMaker, Until
from tests.support.scripted_ledgers import ScriptedLedgers


async def opened(broker: Broker, name: str, *, partitions: int = 1) -> list[PartitionLog]:
    topic = TopicName.of("shop", name)
    await broker.topics.create(topic, TopicConfig(partitions=partitions))
    return [await broker.partition(topic, number) for number in range(partitions)]


async def set_rates(broker: Broker, rates: dict[tuple[str, int], tuple[float, float]]) -> None:
    """Have the balancer find these rates in bytes per second, in and out, by topic and
    partition."""
    await broker._balancer.round(1e-9)  # which takes note of the bytes until now
    for slot in broker.open_slots():
        into, out = rates[slot.info.name.topic, slot.partition]
        slot.meter.in_bytes_per_s, slot.meter.out_bytes_per_s = into, out
    await broker._balancer.round(1e-9)  # a time in which no mean changes


async def subscribed(broker: Broker, log: PartitionLog, name: str, *, start: str) -> None:
    (topic_id, _) = log.name.split("/")
    registered, _ = await broker.subscriptions.create(
        topic_id, name, SubscriptionConfig(), start, partitions=1, at_most=10
    )
    await broker.subscriptions.find(topic_id, name)
    await log.subscriptions.begin(registered)


async def test_partitions_of_a_topic_are_added_up(make_broker: BrokerMaker) -> None:
    broker = await make_broker("a")
    await opened(broker, "orders", partitions=3)
    measured = await broker.measure()
    assert measured.partitions == 3
    assert [(row.topic, row.partitions, row.stored_bytes) for row in measured.topics] == [
        ("shop/orders", 3, 0),
        (OTHERS, 0, None),
    ]


async def test_the_busiest_have_rows_and_no_traffic_is_lost(
    make_broker: BrokerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_stats, "SHOWN_TOPICS", 2)
    monkeypatch.setattr(broker_stats, "STATS_AT_ONCE", 2)
    broker = await make_broker("a")
    rates = {}
    for rate, name in enumerate(("idle", "slow", "busy", "busiest")):
        await opened(broker, name)
        rates[name, 0] = (rate * 1_000.0, rate * 10_000.0)
    await set_rates(broker, rates)
    rows = (await broker.measure()).topics
    assert [(row.topic, row.partitions) for row in rows] == [
        ("shop/busiest", 1),
        ("shop/busy", 1),
        (OTHERS, 2),
    ]
    assert [row.in_bytes_per_s for row in rows] == pytest.approx([3_000, 2_000, 1_000])
    assert [row.out_bytes_per_s for row in rows] == pytest.approx([30_000, 20_000, 10_000])


async def test_the_busiest_partitions_have_rows_where_they_are_asked_for(
    make_broker: BrokerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_stats, "SHOWN_PARTITIONS", 2)
    monkeypatch.setattr(broker_stats, "STATS_AT_ONCE", 2)
    monkeypatch.setattr(broker_stats, "SHOWN_AT_ONCE", 1)
    broker = await make_broker("a")
    logs = await opened(broker, "orders", partitions=4)
    await logs[3].append_message(Message(b"x" * 100))
    for slot in broker.open_slots():
        slot.meter.in_bytes_per_s = slot.partition
        slot.meter.out_bytes_per_s = 10 * slot.partition
    rows = await broker.measure_partitions()
    assert [
        (row.topic, row.partition, row.in_bytes_per_s, row.out_bytes_per_s, row.stored_bytes)
        for row in rows
    ] == [
        ("shop/orders", 3, 3, 30, logs[3].stored_bytes()),
        ("shop/orders", 2, 2, 20, 0),
        (OTHERS, None, 1, 10, None),
    ]
    assert logs[3].stored_bytes() > 0


async def test_appends_that_wait_are_of_their_partition_or_of_the_others(
    make_broker: BrokerMaker, monkeypatch: pytest.MonkeyPatch, ledgers: ScriptedLedgers
) -> None:
    monkeypatch.setattr(broker_stats, "SHOWN_PARTITIONS", 1)
    broker = await make_broker("a")
    busy, idle = await opened(broker, "orders", partitions=2)
    next(slot for slot in broker.open_slots() if slot.partition == 0).meter.in_bytes_per_s = 1
    for writer in ledgers.writers.values():
        writer.auto_ack = False
    waiting = [busy.append_message(Message(b"x" * 100)), idle.append_message(Message(b"y" * 50))]
    row, others = await broker.measure_partitions()
    assert (row.partition, row.pending_bytes) == (0, busy.pending_bytes)
    assert others.pending_bytes == idle.pending_bytes > 0
    for writer in ledgers.writers.values():
        writer.ack(len(writer.payloads) - 1)
    await asyncio.gather(*waiting)
    assert [each.pending_bytes for each in await broker.measure_partitions()] == [0, 0]


async def test_the_longest_backlogs_have_rows(
    make_broker: BrokerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_stats, "SHOWN_SUBSCRIPTIONS", 1)
    broker = await make_broker("a")
    (log,) = await opened(broker, "orders")
    await subscribed(broker, log, "long", start="earliest")
    first = await log.append_message(Message(b"x" * 100))
    await subscribed(broker, log, "short", start="latest")
    await log.append_message(Message(b"y" * 100))
    row, others = (await broker.measure()).subscriptions
    assert (row.topic, row.subscription, row.messages) == ("shop/orders", "long", 2)
    assert row.lag_bytes == log.stored_bytes() > 0
    assert row.oldest_us == first.publish_time_us
    assert (others.subscription, others.messages, others.lag_bytes) == (OTHERS, 1, None)


async def test_a_subscription_that_nobody_uses_since_the_takeover_has_its_name(
    make_broker: BrokerMaker,
) -> None:
    broker = await make_broker("a")
    (log,) = await opened(broker, "orders")
    await subscribed(broker, log, "s", start="earliest")
    await log.append_message(Message(b"x"))
    broker.subscriptions.close()  # its memory
    row, others = (await broker.measure()).subscriptions
    assert (row.subscription, row.messages) == ("s", 1)
    assert (others.subscription, others.messages) == (OTHERS, 0)


@pytest.mark.parametrize("is_silent", [False, True])
async def test_a_subscription_whose_name_cannot_be_read_is_among_the_others(
    make_broker: BrokerMaker, monkeypatch: pytest.MonkeyPatch, *, is_silent: bool
) -> None:
    async def unavailable(topic_id: str) -> list[RegisteredSubscription]:
        if is_silent:
            await asyncio.sleep(60)
        raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "it is away")

    broker = await make_broker("a")
    (log,) = await opened(broker, "orders")
    await subscribed(broker, log, "s", start="earliest")
    await log.append_message(Message(b"x"))
    with monkeypatch.context() as patched:
        patched.setattr(broker.subscriptions, "list", unavailable)
        async with asyncio.timeout(5):
            (others,) = (await broker.measure()).subscriptions
    assert (others.subscription, others.messages) == (OTHERS, 1)
    row, others = (await broker.measure()).subscriptions
    assert (row.subscription, row.messages, others.messages) == ("s", 1, 0)


async def test_backlogs_are_those_of_now(make_broker: BrokerMaker) -> None:
    """They are kept between two looks, until something changes them."""

    async def backlogs() -> list[tuple[str, int]]:
        rows = (await broker.measure()).subscriptions
        return [(row.subscription, row.messages) for row in rows]

    broker = await make_broker("a")
    (log,) = await opened(broker, "orders")
    await subscribed(broker, log, "s", start="earliest")
    table = log.subscriptions
    (subscription_id,) = table.all()
    assert await backlogs() == [("s", 0), (OTHERS, 0)]
    for value in (b"x", b"y", b"z"):
        await log.append_message(Message(value))
    assert await backlogs() == [("s", 3), (OTHERS, 0)]
    await table.acknowledge_below(subscription_id, 2)
    assert await backlogs() == [("s", 1), (OTHERS, 0)]
    await subscribed(broker, log, "late", start="earliest")
    assert await backlogs() == [("late", 3), ("s", 1), (OTHERS, 0)]
    await table.drop(subscription_id)
    assert await backlogs() == [("late", 3), (OTHERS, 0)]


async def test_a_partition_that_was_closed_has_no_figures(
    make_broker: BrokerMaker, until: Until
) -> None:
    broker = await make_broker("a")
    await opened(broker, "gone")
    (first, second) = await opened(broker, "orders", partitions=2)
    for log in (first, second):
        await subscribed(broker, log, f"s{log.partition}", start="earliest")
        await log.append_message(Message(b"x"))
    rates = {("gone", 0): (9e3, 0.0), ("orders", 0): (3e3, 0.0), ("orders", 1): (2e3, 0.0)}
    await set_rates(broker, rates)
    measured = await broker.measure()
    assert (measured.partitions, len(measured.topics), len(measured.subscriptions)) == (3, 3, 3)
    for topic, partition in (("gone", 0), ("orders", 0)):
        await broker.unload(TopicName.of("shop", topic), partition)
    measured = await broker.measure()
    assert measured.partitions == 1
    assert [(row.topic, row.partitions) for row in measured.topics] == [
        ("shop/orders", 1),
        (OTHERS, 0),
    ]
    assert [row.in_bytes_per_s for row in measured.topics] == pytest.approx([2_000, 0], abs=1e-3)
    assert [(row.subscription, row.messages) for row in measured.subscriptions] == [
        ("s1", 1),
        (OTHERS, 0),
    ]
    await broker.topics.delete(TopicName.of("shop", "orders"))
    await until(lambda: not broker.open_slots())
    measured = await broker.measure()
    assert [row.topic for row in measured.topics] == [OTHERS]
    assert measured.topics[0].in_bytes_per_s == pytest.approx(0, abs=1e-3)
    assert [(row.topic, row.messages) for row in measured.subscriptions] == [(OTHERS, 0)]


async def test_only_what_has_changed_is_counted_again(
    make_broker: BrokerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[SubscriptionTable] = []
    count = SubscriptionTable.count_backlogs

    def note(table: SubscriptionTable) -> tuple[tuple[str, int], ...]:
        counted.append(table)
        return count(table)

    monkeypatch.setattr(SubscriptionTable, "count_backlogs", note)
    broker = await make_broker("a")
    logs = await opened(broker, "orders", partitions=3)
    await subscribed(broker, logs[0], "s", start="earliest")
    await broker.measure()
    assert counted == [log.subscriptions for log in logs]
    for log in logs[:2]:
        await log.append_message(Message(b"x"))
    counted.clear()
    (row, _) = (await broker.measure()).subscriptions
    assert row.messages == 1
    assert counted == [logs[0].subscriptions]  # the other has no subscription
    await broker.measure()
    assert counted == [logs[0].subscriptions]


async def test_what_is_busy_is_shown_before_what_came_first(
    make_broker: BrokerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_stats, "SHOWN_TOPICS", 1)
    monkeypatch.setattr(broker_stats, "SHOWN_SUBSCRIPTIONS", 1)
    monkeypatch.setattr(broker_stats, "RANKED_AT_ONCE", 1)
    monkeypatch.setattr(broker_stats, "SHOWN_AT_ONCE", 1)
    broker = await make_broker("a")
    (first,) = await opened(broker, "first")
    await subscribed(broker, first, "idle", start="latest")
    (second,) = await opened(broker, "second")
    await subscribed(broker, second, "behind", start="earliest")
    measured = await broker.measure()
    assert measured.topics[0].topic == "shop/first"
    assert measured.subscriptions[0].subscription == "idle"
    await second.append_message(Message(b"x"))
    await set_rates(broker, {("first", 0): (0, 0), ("second", 0): (1_000, 0)})
    measured = await broker.measure()
    assert [row.topic for row in measured.topics] == ["shop/second", OTHERS]
    assert [row.subscription for row in measured.subscriptions] == ["behind", OTHERS]


async def test_a_broker_counts_batches_reads_and_takeovers(make_broker: BrokerMaker) -> None:
    broker = await make_broker("a")
    (log,) = await opened(broker, "orders")
    for value in (b"x", b"y"):
        await log.append_message(Message(value))
    counted = broker.metrics
    assert (counted.appended_messages, counted.appended_entries) == (2, 2)
    assert counted.appended_bytes == log.bytes_in
    assert (counted.queue_time.count, counted.ledger_time.count) == (2, 2)
    assert (counted.takeover_time.count, counted.takeovers_failed) == (1, 0)
    assert counted.rolls == counted.lost_partitions == counted.ledger_list_conflicts == 0
