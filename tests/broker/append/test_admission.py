"""Rates and quotas: what is refused, for how long, and what it costs where nothing is set."""

from __future__ import annotations

import asyncio
from array import array
from dataclasses import replace
from typing import Any

import pytest

from fencelog.broker.append import admission
from fencelog.broker.append.rates import DispatchLimit, Rate, TokenBucket
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.policy import Policy
from fencelog.broker.read.stored import (
    ONE_MESSAGE,
    CompactedBatch,
    ReadLimits,
    ReadResult,
    StoredBatch,
)
from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message, check_batch, encode_values
from tests.support.broker_stage import Stage
from tests.support.scripted_ledgers import ScriptedLedgers

SUBSCRIPTION = SubscriptionInfo("s", "s-id", SubscriptionConfig(), "earliest")


class Clock:
    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


async def refusal(log: PartitionLog, value: bytes = b"x") -> FencelogError:
    """Return the error of an append, which is not held for ever."""
    with pytest.raises(FencelogError) as raised:
        async with asyncio.timeout(10 * admission.HOLD_S):
            await log.append_message(Message(value))
    return raised.value


def test_a_bucket_holds_a_second_and_goes_into_debt() -> None:
    clock = Clock()
    bucket = TokenBucket(10, clock)
    assert (bucket.tokens, bucket.wait_s()) == (10, 0)
    bucket.take(35)
    assert bucket.wait_s() == 2.5
    clock.s += 2.5
    assert bucket.wait_s() == 0
    clock.s += 99
    assert bucket.tokens == 10


@pytest.mark.parametrize(("messages", "size", "wait_s"), [(20, 1, 1.0), (1, 300, 2.0), (1, 1, 0)])
def test_the_slower_of_two_rates_counts(messages: int, size: int, wait_s: float) -> None:
    rate = Rate(10, 100, Clock())
    rate.take(messages, size)
    assert rate.wait_s() == wait_s


async def test_appends_over_the_rate_are_told_when_to_come_again(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open(policy=Policy(publish_messages_per_s=2))
    batch = encode_values([b"a"] * 6)
    await log.append_batch(batch, check_batch(batch))
    error = await refusal(log)
    assert error.code is ErrorCode.RATE_LIMITED
    assert 0 < error.extra["retry_after_ms"] <= 2000
    assert log.tail_offset == 6
    log.apply_policy(Policy())
    assert (await log.append_message(Message(b"x"))).offset == 6


async def test_bytes_are_a_rate_too(stage: Stage) -> None:
    log = await stage.open(policy=Policy(publish_bytes_per_s=100))
    await log.append_message(Message(bytes(500)))
    assert (await refusal(log)).code is ErrorCode.RATE_LIMITED


async def test_reads_wait_for_the_rate_or_are_refused(stage: Stage) -> None:
    log = await stage.open(policy=Policy(dispatch_messages_per_s=100))
    batch = encode_values([b"a"] * 110)
    await log.append_batch(batch, check_batch(batch))
    first = await log.read(0, ReadLimits(max_messages=1000, max_bytes=1 << 20))
    assert first.next_offset == 110
    with pytest.raises(FencelogError) as raised:
        await log.read(0, ONE_MESSAGE)
    assert raised.value.code is ErrorCode.RATE_LIMITED
    assert raised.value.extra["retry_after_ms"] <= 100
    assert (
        await log.read(0, ReadLimits(max_messages=1, max_bytes=1, wait_ms=5000))
    ).next_offset == 110
    await log.subscriptions.open(SUBSCRIPTION)
    with pytest.raises(FencelogError) as raised:
        await log.subscriptions.pull(SUBSCRIPTION, "c", max_messages=5, max_bytes=1000)
    assert raised.value.code is ErrorCode.RATE_LIMITED


@pytest.mark.parametrize(
    ("offset", "max_messages", "messages", "size"),
    [(0, 3, 3, 75), (8, 3, 3, 98), (8, 1000, 13, 400), (15, 1000, 6, 173), (15, None, 21, 600)],
)
def test_a_read_is_charged_what_it_answers(
    offset: int, max_messages: int | None, messages: int, size: int
) -> None:
    """Its bytes are their share of the batches; the last batch has gaps."""
    columns = array("q", [30]), array("q", [0])
    batches = [
        StoredBatch(0, 8, 0, memoryview(bytes(200))),
        StoredBatch(8, 12, 0, memoryview(bytes(390))),
        CompactedBatch(30, 1, 0, memoryview(bytes(10)), *columns),
    ]
    rate = Rate(1000, 1000, Clock())
    DispatchLimit(rate).charge(ReadResult(batches, 31, 31), offset, max_messages)
    assert rate.messages is not None
    assert rate.bytes is not None
    assert (1000 - rate.messages.tokens, 1000 - rate.bytes.tokens) == (messages, size)


async def test_a_log_charges_a_read_of_one_message_as_one(stage: Stage) -> None:
    log = await stage.open(policy=Policy(dispatch_messages_per_s=100))
    batch = encode_values([b"a"] * 5000)
    await log.append_batch(batch, check_batch(batch))
    for source in (log, log.compaction.view):
        for _ in range(3):
            assert (await source.read(7, ONE_MESSAGE)).next_offset == 5000


async def test_a_rate_of_reads_holds_as_soon_as_it_is_set(stage: Stage) -> None:
    log = await stage.open()
    batch = encode_values([b"a"] * 50)
    await log.append_batch(batch, check_batch(batch))
    log.apply_policy(Policy(dispatch_messages_per_s=1))
    limits = ReadLimits(max_messages=50, max_bytes=1 << 20)
    await log.read(0, limits)
    with pytest.raises(FencelogError) as raised:
        await log.read(0, limits)
    assert raised.value.code is ErrorCode.RATE_LIMITED


async def test_a_read_gets_no_more_than_there_is(stage: Stage) -> None:
    log = await stage.open(policy=Policy(dispatch_messages_per_s=3, dispatch_bytes_per_s=1 << 20))
    for number in range(6):
        await log.append_message(Message(b"%d" % number))
    result = await log.read(0, ReadLimits(max_messages=1000, max_bytes=1 << 20))
    assert result.next_offset <= 4


async def test_bytes_on_their_way_are_the_policys(stage: Stage, ledgers: ScriptedLedgers) -> None:
    ledgers.auto_ack = False
    log = await stage.open(policy=Policy(max_pending_bytes=1000))
    kept = log.append_message(Message(bytes(900)))
    assert (await refusal(log, bytes(900))).code is ErrorCode.OVERLOADED
    log.apply_policy(Policy(max_pending_bytes=10_000))
    more = log.append_message(Message(bytes(900)))
    assert not more.done()
    assert not kept.done()


async def over_quota(stage: Stage, action: str) -> PartitionLog:
    """A subscription has a message more before it than it may have."""
    policy = Policy(backlog_quota_bytes=600, backlog_action=action)
    log = await stage.open(policy=policy)
    await log.subscriptions.open(SUBSCRIPTION)
    for _ in range(2):
        await log.append_message(Message(bytes(400)))
    await log.retention.tend()
    return log


async def test_over_its_quota_appends_are_refused_until_it_is_read(stage: Stage) -> None:
    log = await over_quota(stage, "refuse")
    assert (await refusal(log)).code is ErrorCode.BACKLOG_QUOTA_EXCEEDED
    assert log.internals()["over_backlog_quota"]
    await log.subscriptions.acknowledge_below("s-id", 2)
    await log.retention.tend()
    assert (await log.append_message(Message(b"x"))).offset == 2


async def test_over_its_quota_the_oldest_messages_are_given_up(stage: Stage) -> None:
    log = await over_quota(stage, "evict")
    assert log.subscriptions.slowest_offset() == 1
    assert (await log.append_message(Message(b"x"))).offset == 2


async def test_over_its_quota_appends_wait_and_go_on(stage: Stage) -> None:
    log = await over_quota(stage, "hold")
    held = log.append_message(Message(b"x"))
    await asyncio.sleep(0.01)
    assert not held.done()
    await log.subscriptions.acknowledge_below("s-id", 2)
    await log.retention.tend()
    assert (await held).offset == 2


async def test_they_wait_for_some_seconds_only(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "HOLD_S", 0.02)
    log = await over_quota(stage, "hold")
    assert (await refusal(log)).code is ErrorCode.BACKLOG_QUOTA_EXCEEDED
    assert (await refusal(log)).code is ErrorCode.BACKLOG_QUOTA_EXCEEDED
    assert log.pending_bytes == 0


async def test_a_quota_that_is_lifted_lets_go_at_once(stage: Stage) -> None:
    log = await over_quota(stage, "hold")
    held = log.append_message(Message(b"x"))
    await asyncio.sleep(0.01)
    log.apply_policy(Policy())
    assert (await held).offset == 2


async def test_a_closing_log_lets_go_what_it_held(stage: Stage) -> None:
    log = await over_quota(stage, "hold")
    held = log.append_message(Message(b"x"))
    await asyncio.sleep(0.01)
    await log.close()
    assert (await held).offset == 2


async def test_how_old_a_backlog_is_counts_too(stage: Stage) -> None:
    log = await stage.open(policy=Policy(backlog_quota_ms=10_000))
    await log.subscriptions.open(SUBSCRIPTION)
    await log.append_message(Message(b"0"))
    await log.retention.tend()
    assert not log.internals()["over_backlog_quota"]
    stage.host.clock_us += 11_000_000
    log.retention._old_below.clear()
    await log.retention.tend()
    assert (await refusal(log)).code is ErrorCode.BACKLOG_QUOTA_EXCEEDED


def look_under_way(log: Any) -> tuple[asyncio.Task[None], asyncio.Future[int]]:
    """A look at the quota, and what it waits for to go on."""
    log.apply_policy(replace(log.policy, backlog_quota_ms=1))
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    log.retention._older_than = lambda age_ms: found
    return asyncio.create_task(log.retention.tend()), found


async def test_a_quota_that_is_lifted_during_a_look_stays_lifted(stage: Stage) -> None:
    """The look goes on with the settings that it began with."""
    log = await over_quota(stage, "hold")
    look, found = look_under_way(log)
    await asyncio.sleep(0)
    log.apply_policy(Policy())
    found.set_result(2)
    await look
    assert not log.internals()["over_backlog_quota"]
    assert (await log.append_message(Message(b"x"))).offset == 2


async def test_a_look_holds_no_log_back_that_is_closed_meanwhile(stage: Stage) -> None:
    log = await over_quota(stage, "hold")
    held = log.append_message(Message(b"x"))
    look, found = look_under_way(log)
    await asyncio.sleep(0)
    log._admission.close()  # as ``close`` does first
    found.set_result(2)
    await look
    assert (await held).offset == 2
    assert log._admission._timer is None  # it would hold the log in memory for ever
    await log.close()


async def test_whoever_evicts_refuses_nothing(stage: Stage) -> None:
    """A cursor that is moved back during a look is over the quota until the next one."""
    log = await over_quota(stage, "evict")
    log._admission.over_quota(True)
    assert (await log.append_message(Message(b"x"))).offset == 2
