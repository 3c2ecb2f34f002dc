"""Figures of all topics of a broker: a row for each, added up over partitions, used again for a
while."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.broker.limits import TOPIC_TOTALS_MS
from fencelog.broker.partition.stats import topic_totals
from fencelog.broker.partition.stats.topic_totals import TopicTotals
from fencelog.ledgers.record_batch import Message
from tests.broker.partition.stats.test_broker_stats import opened, subscribed
from tests.support.broker_stage import BrokerMaker


async def test_each_topic_has_a_row(
    make_broker: BrokerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_totals, "STATS_AT_ONCE", 2)
    broker = await make_broker("a")
    first, _ = await opened(broker, "orders", partitions=2)
    await opened(broker, "idle")
    await subscribed(broker, first, "s", start="earliest")
    await subscribed(broker, first, "done", start="earliest")
    for _ in range(3):
        await first.append_message(Message(b"x" * 100))
    await first.retention.trim(0)
    for slot in broker.open_slots():
        slot.meter.in_bytes_per_s = 5.0
    rows = await broker.topic_table.totals()
    assert rows == {
        "shop/orders": TopicTotals(2, 10.0, 0.0, first.stored_bytes(), 3, 3, 0),
        "shop/idle": TopicTotals(1, 5.0),
    }


async def test_a_look_is_used_again_for_a_while(make_broker: BrokerMaker) -> None:
    broker = await make_broker("a")
    (log,) = await opened(broker, "orders")
    both = await asyncio.gather(broker.topic_table.totals(), broker.topic_table.totals())
    assert both[0] is both[1]
    await log.append_message(Message(b"x"))
    assert (await broker.topic_table.totals())["shop/orders"].messages == 0
    await asyncio.sleep(TOPIC_TOTALS_MS / 1000)
    assert (await broker.topic_table.totals())["shop/orders"].messages == 1


async def test_a_partition_that_closes_meanwhile_is_left_out(make_broker: BrokerMaker) -> None:
    broker = await make_broker("a")
    await opened(broker, "orders")
    (slot,) = broker.open_slots()
    await slot.close()
    assert topic_totals.totals_of(slot) is None
