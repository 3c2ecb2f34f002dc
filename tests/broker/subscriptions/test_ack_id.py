"""Ack ids say something about the delivery that they were given for, and of nothing else."""

from __future__ import annotations

from fencelog.broker.subscriptions.ack_id import ack_id_maker, parse_ack_ids
from fencelog.broker.subscriptions.answers import AckResult
from tests.broker.subscriptions.test_subscriptions import (
    fill,
    ids,
    offsets,
    pull,
    subscription,
)
from tests.support.broker_stage import Stage


async def test_ids_of_a_previous_owner_take_no_lease_from_who_has_it_now(stage: Stage) -> None:
    info = subscription()
    first = await stage.open()
    await first.subscriptions.open(info)
    await fill(first, 2)
    previous = ids(await pull(first, info, "a"))
    second = await stage.open()
    held = ids(await pull(second, info, "b"))
    assert await second.subscriptions.extend(info, previous, 1_000) == previous
    assert await second.subscriptions.nack(info, previous, 0) == previous
    assert await pull(second, info, "c") == []
    assert await second.subscriptions.nack(info, held, 0) == []


async def test_an_id_beyond_the_tail_acknowledges_nothing(stage: Stage) -> None:
    """No owner has given it: the message does not exist yet."""
    info = subscription()
    log = await stage.open()
    await log.subscriptions.open(info)
    await fill(log, 1)
    (given,) = parse_ack_ids(ids(await pull(log, info)), info.subscription_id)
    make = ack_id_maker(
        info.subscription_id,
        partition=given.partition,
        epoch=given.epoch,
        generation=given.generation,
        delivery=given.delivery,
    )
    assert await log.subscriptions.ack(info, [make(0), make(1)]) == AckResult(1, [make(1)])
    await fill(log, 1)
    assert offsets(await pull(log, info)) == [1]
