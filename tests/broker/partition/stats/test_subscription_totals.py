"""Figures of all subscriptions of a broker: a row for each, added up over partitions."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.broker.broker import Broker
from fencelog.broker.limits import TOPIC_TOTALS_MS
from fencelog.broker.names import TopicName
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.partition.stats import subscription_names, subscription_totals
from fencelog.broker.partition.stats.subscription_totals import SubscriptionKey, SubscriptionTotals
from fencelog.broker.registry.subscription_config import SubscriptionConfig
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.record_batch import Message
from tests.broker.partition.stats.test_broker_stats import opened, subscribed
from tests.support.broker_stage import BrokerMaker

BILLING = SubscriptionKey("shop/orders", "billing")


async def subscribed_everywhere(broker: Broker, logs: list[PartitionLog], name: str) -> None:
    (topic_id, _) = logs[0].name.split("/")
    registered, _ = await broker.subscriptions.create(
        topic_id, name, SubscriptionConfig(), "earliest", partitions=len(logs), at_most=10
    )
    for log in logs:
        await log.subscriptions.begin(registered)


async def test_a_subscription_is_the_sum_of_its_partitions(
    make_broker: BrokerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_totals, "STATS_AT_ONCE", 1)
    monkeypatch.setattr(subscription_names, "NAMES_AT_ONCE", 1)
    broker = await make_broker("a")
    logs = await opened(broker, "orders", partitions=2)
    await opened(broker, "unread")
    (paid,) = await opened(broker, "paid")
    await subscribed_everywhere(broker, logs, "billing")
    await subscribed(broker, paid, "slow", start="latest")
    first = await logs[1].append_message(Message(b"x" * 100))
    await logs[0].append_message(Message(b"x" * 100))
    await logs[0].append_message(Message(b"x" * 100))
    rows = await broker.backlog_table.totals()
    size = sum(log.stored_bytes() for log in logs)
    assert rows == {
        BILLING: SubscriptionTotals(2, 3, size, 0, 0, 0, first.publish_time_us),
        ("shop/paid", "slow"): SubscriptionTotals(1),
    }


async def test_names_are_read_once(make_broker: BrokerMaker) -> None:
    broker = await make_broker("a")
    logs = await opened(broker, "orders")
    await subscribed_everywhere(broker, logs, "billing")
    assert BILLING in await broker.backlog_table.totals()
    (topic_id, _) = logs[0].name.split("/")
    await broker.subscriptions.delete(topic_id, "billing")
    await asyncio.sleep(TOPIC_TOTALS_MS / 1000)
    assert BILLING in await broker.backlog_table.totals()  # its cursor is still there
    await subscribed_everywhere(broker, logs, "billing")
    (second,) = await opened(broker, "other")
    await subscribed(broker, second, "s", start="earliest")
    await asyncio.sleep(TOPIC_TOTALS_MS / 1000)
    assert set(await broker.backlog_table.totals()) == {BILLING, ("shop/other", "s")}


async def test_a_cursor_whose_subscription_is_gone_has_no_row(make_broker: BrokerMaker) -> None:
    broker = await make_broker("a")
    logs = await opened(broker, "orders")
    await subscribed_everywhere(broker, logs, "billing")
    (topic_id, _) = logs[0].name.split("/")
    await broker.subscriptions.delete(topic_id, "billing")
    assert await broker.backlog_table.totals() == {}


async def test_space_is_held_back_by_the_slowest_durable_subscription_alone(
    make_broker: BrokerMaker,
) -> None:
    """One that is not durable may be further behind: retention does not wait for it."""
    broker = await make_broker("a")
    name = TopicName.of("shop", "orders")
    config = TopicConfig(overrides={"roll_entries": 1, "retention_bytes": 1})
    await broker.topics.create(name, config)
    log = await broker.partition(name, 0)
    (topic_id, _) = log.name.split("/")
    for subscription, durable in (("passing", False), ("slow", True), ("quick", True)):
        registered, _ = await broker.subscriptions.create(
            topic_id,
            subscription,
            SubscriptionConfig(durable=durable),
            "earliest",
            partitions=1,
            at_most=10,
        )
        await log.subscriptions.begin(registered)
    ids = {each.info.name: each.info.subscription_id for each in
           await broker.subscriptions.list(topic_id)}  # fmt: skip
    for _ in range(4):
        await log.append_message(Message(b"x" * 100))
    await log.subscriptions.acknowledge_below(ids["slow"], 1)
    await log.subscriptions.acknowledge_below(ids["quick"], 3)
    found = await broker.backlog_table.totals()
    held = {key.subscription: totals.held_bytes > 0 for key, totals in found.items()}
    assert held == {"passing": False, "slow": True, "quick": False}
    assert [slow.subscription for slow in (await broker.troubles()).subscriptions] == ["slow"]
