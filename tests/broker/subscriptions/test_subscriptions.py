"""Subscriptions of a partition over scripted ledgers: what lasts, what a takeover may forget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest

from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.policy import Policy
from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.broker.registry.subscription_registry import RegisteredSubscription
from fencelog.broker.subscriptions.answers import AckResult, PulledMessage
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import Stage
from tests.support.scripted_ledgers import ScriptedLedgers


def subscription(name: str = "s", start: Any = "earliest", **config: Any) -> SubscriptionInfo:
    return SubscriptionInfo(name, f"id-{name}", SubscriptionConfig(**config), start)


async def fill(log: PartitionLog, count: int) -> None:
    await asyncio.gather(*(log.append_message(Message(b"%d" % n)) for n in range(count)))


async def pull(
    log: PartitionLog, info: SubscriptionInfo, consumer: str = "a", count: int = 100, **more: Any
) -> list[PulledMessage]:
    return await log.subscriptions.pull(
        info, consumer, max_messages=count, max_bytes=1 << 20, **more
    )


def offsets(messages: Sequence[PulledMessage]) -> list[int]:
    return [message.offset for message in messages]


def ids(messages: Sequence[PulledMessage]) -> list[str]:
    return [message.ack_id for message in messages]


async def refused(work: Awaitable[Any]) -> ErrorCode:
    with pytest.raises(FencelogError) as caught:
        await work
    return caught.value.code


async def test_a_confirmed_ack_is_never_forgotten(stage: Stage) -> None:
    info = subscription()
    first = await stage.open()
    await first.subscriptions.open(info)
    await fill(first, 6)
    messages = await pull(first, info)
    assert offsets(messages) == [0, 1, 2, 3, 4, 5]
    assert [message.message.value for message in messages] == [b"%d" % n for n in range(6)]
    result = await first.subscriptions.ack(info, ids(messages[:2] + messages[4:5]))
    assert result == (3, [])
    second = await stage.open()
    assert offsets(await pull(second, info)) == [2, 3, 5]
    again = await second.subscriptions.ack(info, ids(messages))  # ids of the previous owner's
    assert again == (6, [])
    assert second.subscriptions.slowest_offset() == 6
    third = await stage.open()
    assert await pull(third, info) == []
    assert third.subscriptions.all() == ["id-s"]


async def test_an_ack_is_not_confirmed_before_it_is_durable(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    info = subscription()
    first = await stage.open(timeout_s=0.02)
    await first.subscriptions.open(info)
    await fill(first, 3)
    messages = await pull(first, info)
    state = ledgers.writer_of(first._node.ledger_list.state_ledger)
    state.auto_ack = False
    acks = [first.subscriptions.ack(info, ids(messages[:1])) for _ in range(2)]
    assert [await refused(ack) for ack in acks] == [ErrorCode.STATE_UNKNOWN] * 2
    assert first.subscriptions.slowest_offset() == 0  # nothing may go by it
    assert first.subscriptions.stats("id-s")["acked_to"] == 1  # but it is not handed out again
    ledgers.stored[state.ledger_id] = state.lac
    second = await stage.open()
    assert offsets(await pull(second, info)) == [0, 1, 2]
    assert await refused(first.subscriptions.ack(info, ids(messages[1:]))) in (
        ErrorCode.STATE_UNKNOWN,
        ErrorCode.NO_OWNER,
    )


async def test_an_ack_that_is_confirmed_after_a_seek_lets_nothing_go(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    """Messages that were acknowledged before the seek are to come again."""
    info = subscription()
    log = await stage.open()
    await log.subscriptions.open(info)
    await fill(log, 3)
    messages = await pull(log, info)
    state = ledgers.writer_of(log._node.ledger_list.state_ledger)
    state.auto_ack = False
    ack = asyncio.create_task(log.subscriptions.ack(info, ids(messages)))
    await asyncio.sleep(0.01)  # it is sent
    sent = len(state.payloads)
    seek = asyncio.create_task(log.subscriptions.seek(info, 0))
    await asyncio.sleep(0.01)
    state.ack(sent - 1)
    await ack
    assert log.subscriptions.slowest_offset() == 0
    await asyncio.sleep(0.01)  # the seek is sent
    state.ack(len(state.payloads) - 1)
    await seek
    assert log.subscriptions.slowest_offset() == 0
    assert offsets(await pull(log, info)) == [0, 1, 2]


async def test_an_ack_that_is_confirmed_lets_nothing_go_that_was_acknowledged_after_it(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    """The later acknowledgement may be lost with its owner yet."""
    info = subscription()
    log = await stage.open()
    await log.subscriptions.open(info)
    await fill(log, 3)
    messages = await pull(log, info)
    state = ledgers.writer_of(log._node.ledger_list.state_ledger)
    state.auto_ack = False
    first = asyncio.create_task(log.subscriptions.ack(info, ids(messages[:1])))
    await asyncio.sleep(0.01)  # it is sent
    sent = len(state.payloads)
    second = asyncio.create_task(log.subscriptions.ack(info, ids(messages[1:])))
    await asyncio.sleep(0)
    state.ack(sent - 1)
    await first
    assert log.subscriptions.slowest_offset() == 1
    await asyncio.sleep(0.01)  # the second one is sent
    state.ack(len(state.payloads) - 1)
    await second
    assert log.subscriptions.slowest_offset() == 3


async def test_retries_of_an_ack_wait_for_the_first_one(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    info = subscription()
    log = await stage.open()
    await log.subscriptions.open(info)
    await fill(log, 1)
    messages = await pull(log, info)
    state = ledgers.writer_of(log._node.ledger_list.state_ledger)
    state.auto_ack = False
    tasks = [asyncio.create_task(log.subscriptions.ack(info, ids(messages))) for _ in range(2)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    state.ack(len(state.payloads) - 1)
    assert await asyncio.gather(*tasks) == [(1, []), (1, [])]


async def test_a_cursor_begins_where_it_is_told_and_only_once(stage: Stage) -> None:
    log = await stage.open()
    await fill(log, 5)
    starts = {
        "earliest": 0,
        "latest": 5,
        "offset": 3,
        "beyond": 5,
        "given": 2,
    }
    wanted = {"offset": {"offset": 3}, "beyond": {"offset": 99}, "given": {"time_us": 1}}
    for name in starts:
        info = subscription(name, wanted.get(name, name))
        given = {"start_offset": 2} if name == "given" else {}
        await log.subscriptions.open(info, **given)
        await log.subscriptions.open(info, start_offset=4)
    acked_to = {name: log.subscriptions.stats(f"id-{name}")["acked_to"] for name in starts}
    assert acked_to == starts
    assert log.subscriptions.slowest_offset() == 0
    late = subscription("late", {"time_us": 1})
    assert await refused(log.subscriptions.open(late)) is ErrorCode.BAD_REQUEST


async def test_a_cursor_begins_where_its_subscription_says_or_where_its_partition_does(
    stage: Stage,
) -> None:
    log = await stage.open()
    for _ in range(4):
        stage.host.clock_us += 1_000_000
        await fill(log, 1)
    published = stage.host.clock_us
    await log.retention.trim(1)
    for name, start, partitions, begins in (
        ("latest", "latest", 1, 4),
        ("offset", {"offset": 2}, 1, 2),
        ("time", {"time_us": published - 1_000_000}, 1, 2),
        ("later", "latest", 0, 1),
    ):
        info = subscription(name, start)
        await log.subscriptions.begin(RegisteredSubscription(info, partitions, 0))
        assert log.subscriptions.stats(info.subscription_id)["acked_to"] == begins, name


async def test_a_seek_makes_former_ids_stale_and_lasts(stage: Stage) -> None:
    info = subscription()
    log = await stage.open()
    await log.subscriptions.open(info)
    await fill(log, 5)
    previous = await pull(log, info)
    await log.subscriptions.ack(info, ids(previous))
    await log.subscriptions.seek(info, 3)
    assert log.subscriptions.slowest_offset() == 3
    assert await log.subscriptions.ack(info, ids(previous)) == (0, ids(previous))
    assert await log.subscriptions.nack(info, ids(previous)) == ids(previous)
    assert offsets(await pull(log, info, count=1)) == [3]
    assert await refused(log.subscriptions.seek(info, 6)) is ErrorCode.OFFSET_BEYOND_TAIL
    second = await stage.open()
    assert offsets(await pull(second, info)) == [3, 4]
    assert second.subscriptions.stats("id-s")["generation"] == 1 << 32


async def test_a_subscription_that_is_gone_is_not_found(stage: Stage) -> None:
    info = subscription()
    log = await stage.open()
    assert await refused(pull(log, info)) is ErrorCode.SUBSCRIPTION_NOT_FOUND
    await log.subscriptions.open(info)
    waiting = asyncio.create_task(log.subscriptions.wait(info, "a", 60_000))
    await asyncio.sleep(0)
    await log.subscriptions.drop("id-s")
    await log.subscriptions.drop("id-s")
    assert await refused(waiting) is ErrorCode.SUBSCRIPTION_NOT_FOUND
    assert log.subscriptions.slowest_offset() is None
    with pytest.raises(FencelogError):
        log.subscriptions.stats("id-s")
    assert await refused(log.subscriptions.extend(info, [], 1)) is ErrorCode.SUBSCRIPTION_NOT_FOUND
    below = log.subscriptions.acknowledge_below("id-s", 1)
    assert await refused(below) is ErrorCode.SUBSCRIPTION_NOT_FOUND
    assert (await stage.open()).subscriptions.all() == []


async def test_a_subscription_that_is_not_durable_is_in_memory_only(stage: Stage) -> None:
    info = subscription(durable=False)
    log = await stage.open()
    await fill(log, 3)
    await log.subscriptions.open(info)
    messages = await pull(log, info, count=2)
    await log.subscriptions.ack(info, ids(messages))
    assert offsets(await pull(log, info)) == [2]
    assert log._node.ledger_list.state_ledger is None
    assert log.subscriptions.slowest_offset() is None
    assert log.subscriptions.all() == ["id-s"]
    assert (await stage.open()).subscriptions.all() == []


async def test_there_are_so_many_subscriptions(stage: Stage) -> None:
    log = await stage.open(policy=Policy(max_subscriptions=1))
    await log.subscriptions.open(subscription())
    more = log.subscriptions.open(subscription("t", durable=False))
    assert await refused(more) is ErrorCode.LIMIT_REACHED
    log.apply_policy(Policy(max_subscriptions=2))
    await log.subscriptions.open(subscription("t"))


async def test_what_retention_took_is_passed_over_and_counted(stage: Stage) -> None:
    info = subscription()
    log = await stage.open()
    await log.subscriptions.open(info)
    await fill(log, 6)
    messages = await pull(log, info, count=3)
    await log.subscriptions.ack(info, ids(messages[1:2]))
    log._reader.trim(4)
    assert offsets(await pull(log, info)) == [4, 5]
    stats = log.subscriptions.stats("id-s")
    assert (stats["acked_to"], stats["lost_to_retention"], stats["outstanding"]) == (4, 3, 2)
    assert await log.subscriptions.ack(info, ids(messages)) == (3, [])
    assert await log.subscriptions.seek(info, 0) == 4  # where it goes on, not what was asked for
    assert offsets(await pull(log, info)) == [4, 5]


async def test_ttl_and_eviction_acknowledge_for_the_subscription(stage: Stage) -> None:
    info = subscription()
    log = await stage.open()
    await log.subscriptions.open(info)
    await fill(log, 5)
    await pull(log, info, count=2)
    await log.subscriptions.acknowledge_below("id-s", 3)
    await log.subscriptions.acknowledge_below("id-s", 1)
    assert log.subscriptions.stats("id-s")["outstanding"] == 0
    assert offsets(await pull(log, info)) == [3, 4]
    second = await stage.open()
    await second.subscriptions.acknowledge_below("id-s", 99)  # nobody has used it here yet
    assert second.subscriptions.slowest_offset() == 5


async def test_cumulative_acks_are_for_who_holds_an_ordered_subscription(stage: Stage) -> None:
    info, shared = subscription(type="failover"), subscription("t")
    log = await stage.open()
    await log.subscriptions.open(info)
    await log.subscriptions.open(shared)
    await fill(log, 5)
    held = ids(await pull(log, info, "a"))
    busy = log.subscriptions.ack_through(info, held[2], "b")
    assert await refused(busy) is ErrorCode.SUBSCRIPTION_BUSY
    assert await log.subscriptions.ack_through(info, held[2], "a") == AckResult(1, [])
    assert await log.subscriptions.ack_through(info, held[1]) == AckResult(1, [])
    others = ids(await pull(log, shared))
    for given, said in ((shared, others[2]), (info, others[2])):
        wrong = log.subscriptions.ack_through(given, said)
        assert await refused(wrong) is ErrorCode.BAD_REQUEST
    second = await stage.open()
    assert offsets(await pull(second, info, "b")) == [3, 4]


async def test_a_cumulative_ack_from_before_a_seek_is_stale(stage: Stage) -> None:
    info = subscription(type="exclusive")
    log = await stage.open()
    await log.subscriptions.open(info)
    await fill(log, 5)
    held = ids(await pull(log, info))
    await log.subscriptions.ack_through(info, held[3])
    await log.subscriptions.seek(info, 1)
    assert await log.subscriptions.ack_through(info, held[4]) == AckResult(0, [held[4]])
    assert offsets(await pull(log, info)) == [1, 2, 3, 4]


async def test_ids_of_a_former_owner_are_stale_after_a_seek_that_only_one_of_both_knows(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    info = subscription()
    first = await stage.open(timeout_s=0.02)
    await first.subscriptions.open(info)
    await fill(first, 4)
    state = ledgers.writer_of(first._node.ledger_list.state_ledger)
    state.auto_ack = False
    # The owner is cut off: its seek never becomes durable, and it hands out until it notices.
    assert await refused(first.subscriptions.seek(info, 0)) is ErrorCode.STATE_UNKNOWN
    old = ids(await pull(first, info))
    ledgers.stored[state.ledger_id] = state.lac
    second = await stage.open()
    assert await second.subscriptions.ack(info, old) == AckResult(0, old)
    await second.subscriptions.seek(info, 0)
    assert await second.subscriptions.ack(info, old) == AckResult(0, old)
    assert offsets(await pull(second, info)) == [0, 1, 2, 3]


async def test_how_often_a_message_failed_is_known_after_a_takeover(stage: Stage) -> None:
    info = subscription()
    log = await stage.open()
    await log.subscriptions.open(info)
    await fill(log, 3)
    for attempt in (1, 2):
        messages = await pull(log, info, count=1)
        assert [message.attempt for message in messages] == [attempt]
        assert await log.subscriptions.nack(info, ids(messages), 0) == []
    await log.subscriptions.ack(info, ids(await pull(log, info, count=2))[1:])
    second = await stage.open()
    found = [(message.offset, message.attempt) for message in await pull(second, info)]
    assert found == [(0, 3), (2, 1)]
    assert second.subscriptions.stats("id-s")["redelivering"] == 1


async def test_a_settings_change_keeps_what_is_handed_out_unless_it_is_of_the_type(
    stage: Stage,
) -> None:
    log = await stage.open()
    info = subscription(max_outstanding=1)
    await log.subscriptions.open(info)
    await fill(log, 3)
    assert offsets(await pull(log, info)) == [0]
    assert offsets(await pull(log, subscription(max_outstanding=2))) == [1]
    assert offsets(await pull(log, subscription(type="exclusive"))) == [0, 1, 2]


async def test_a_log_that_was_closed_ends_waits_and_hands_nothing_out(stage: Stage) -> None:
    info = subscription()
    log = await stage.open()
    await log.subscriptions.open(info)
    waiting = asyncio.create_task(log.subscriptions.wait(info, "a", 60_000))
    await asyncio.sleep(0)
    await log.close()
    assert await refused(waiting) is ErrorCode.DRAINING
    assert await refused(pull(log, info)) is ErrorCode.DRAINING


async def test_leases_end_by_themselves_and_wake_who_waits(stage: Stage) -> None:
    info = subscription()
    log = await stage.open()
    await log.subscriptions.open(info)
    assert not await log.subscriptions.wait(info, "b", 0)
    waiting = asyncio.create_task(log.subscriptions.wait(info, "b", 60_000))
    await asyncio.sleep(0)
    await fill(log, 2)
    assert await waiting
    messages = await pull(log, info, lease_ms=20)
    assert await log.subscriptions.extend(info, ids(messages[:1]), 60_000) == []
    assert await log.subscriptions.wait(info, "b", 60_000)
    again = await pull(log, info, "b")
    assert [(message.offset, message.attempt) for message in again] == [(1, 2)]
    assert await log.subscriptions.extend(info, ids(messages), 60_000) == ids(messages[1:])
    assert await log.subscriptions.nack(info, ids(messages[1:])) == ids(messages[1:])
    assert await log.subscriptions.ack(info, ids(messages)) == (2, [])  # late, and counts
    assert log.subscriptions.stats("id-s")["backlog_messages"] == 0


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
async def test_the_next_consumer_takes_over_when_the_holders_lease_ends(
    stage: Stage, kind: str
) -> None:
    info = subscription(type=kind)
    log = await stage.open()
    await log.subscriptions.open(info)
    await fill(log, 2)
    await pull(log, info, "a", lease_ms=30)
    if kind == "exclusive":
        assert await refused(pull(log, info, "b")) is ErrorCode.SUBSCRIPTION_BUSY
        busy = log.subscriptions.wait(info, "b", 1)
        assert await refused(busy) is ErrorCode.SUBSCRIPTION_BUSY
        assert await log.subscriptions.wait(info, "a", 60_000)
    else:
        assert await pull(log, info, "b") == []
        assert await log.subscriptions.wait(info, "b", 60_000)
    again = await pull(log, info, "a" if kind == "exclusive" else "b")
    assert [(message.offset, message.attempt) for message in again] == [(0, 2), (1, 1)]
    assert [c["name"] for c in log.subscriptions.stats("id-s")["consumers"]][-1:] != []


async def test_refusals_without_end_do_not_fill_a_state_log_that_is_stuck(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.broker.ledger_list.state_log.MAX_STATE_EVENTS_WAITING", 5)
    info = subscription()
    log = await stage.open(timeout_s=0.02)
    await log.subscriptions.open(info)
    await fill(log, 1)
    ledgers.writer_of(log._node.ledger_list.state_ledger).auto_ack = False
    for attempt in range(1, 30):
        (message,) = await pull(log, info)
        assert message.attempt == attempt
        assert await log.subscriptions.nack(info, [message.ack_id], 0) == []
    assert len(log._state_log._waiting) <= 5
    assert await refused(log.subscriptions.ack(info, [message.ack_id])) is ErrorCode.OVERLOADED
    assert log.subscriptions.stats("id-s")["backlog_messages"] == 1  # it was not acknowledged


async def test_figures_show_what_time_has_done(stage: Stage) -> None:
    info = subscription(max_deliveries=1)
    log = await stage.open()
    await log.subscriptions.open(info)
    await fill(log, 1)
    await pull(log, info, lease_ms=1)
    await asyncio.sleep(0.002)  # no longer than the lease
    stats = log.subscriptions.stats("id-s")
    assert (stats["outstanding"], stats["burying"], stats["redelivering"]) == (0, 1, 1)
    log._reader.trim(1)
    stats = log.subscriptions.stats("id-s")
    assert (stats["backlog_messages"], stats["lost_to_retention"]) == (0, 1)
    await log.close()
    assert log.subscriptions.stats("id-s")["acked_to"] == 1
