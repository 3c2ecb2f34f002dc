"""The messages that pulls deliver: bounds, headers that say when and to whom, dead letters,
interruptions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fencelog.api.subscriptions.pull import take
from fencelog.api.subscriptions.requests import PullRequest
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.policy import Policy
from fencelog.broker.read.stored import ReadLimits, ReadResult
from fencelog.broker.registry.subscription_config import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    ORDERED,
    SHARED,
    SubscriptionConfig,
    SubscriptionInfo,
)
from fencelog.broker.subscriptions import dead_letters
from fencelog.broker.subscriptions import pull as subscription_pull
from fencelog.broker.subscriptions.answers import PulledMessage
from fencelog.broker.subscriptions.batch import DELIVER_AT, REPLAY_FOR
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import CODEC_ZSTD, Message, check_batch, encode_batch
from tests.support.broker_stage import Stage, Until


class Graves:
    """Dead letters in memory; ``errors`` come first."""

    def __init__(self) -> None:
        self.forwarded: list[tuple[int, int]] = []
        self.errors: list[FencelogError] = []
        self.refused: set[int] = set()

    async def forward(self, info: SubscriptionInfo, partition: int, dead: PulledMessage) -> None:
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop()
        if dead.offset in self.refused:
            raise FencelogError(ErrorCode.TOPIC_TERMINATED, "it has ended")
        self.forwarded.append((dead.offset, dead.attempt))


async def opened(
    stage: Stage, messages: Sequence[Message] = (), **config: Any
) -> tuple[PartitionLog, SubscriptionInfo]:
    """A log with these messages, and a subscription that begins at the first."""
    log = await stage.open()
    info = SubscriptionInfo("s", "id-s", SubscriptionConfig(**config), "earliest")
    await log.subscriptions.open(info)
    await asyncio.gather(*map(log.append_message, messages))
    return log, info


async def pull(
    log: PartitionLog, info: SubscriptionInfo, count: int = 100, *, size: int = 1 << 20
) -> list[int]:
    found = await log.subscriptions.pull(info, "a", max_messages=count, max_bytes=size)
    return [message.offset for message in found]


def with_header(name: str, value: str) -> Message:
    return Message(b"v", headers=((name, value.encode()),))


async def test_a_pull_keeps_within_its_bounds(stage: Stage) -> None:
    log, info = await opened(stage, [Message(b"x" * 10, b"key")] * 9)
    assert await pull(log, info, 2) == [0, 1]
    assert await pull(log, info, size=39) == [2, 3, 4]
    assert await pull(log, info, size=1) == [5]  # one message, whatever its size
    found = await log.subscriptions.pull(info, "a", max_messages=9, max_bytes=999)
    assert await log.subscriptions.nack(info, [message.ack_id for message in found], 0) == []
    assert await pull(log, info, size=26) == [6, 7]
    assert await pull(log, info, size=5) == [8]


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
async def test_what_was_not_used_comes_again_at_once_and_has_not_failed(
    stage: Stage, kind: str
) -> None:
    log, info = await opened(stage, [Message(b"")] * 4, type=kind, max_deliveries=1)
    subscriptions = log.subscriptions
    found = await subscriptions.pull(info, "a", max_messages=4, max_bytes=999)
    await subscriptions.ack(info, [found[0].ack_id])
    unused = [message.ack_id for message in found[2:]]
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(subscriptions.wait(info, "a", 30_000))
        await asyncio.sleep(0)
        assert await subscriptions.nack(info, unused, failed=False) == []
    assert waiting.result()
    again = await subscriptions.pull(info, "a", max_messages=4, max_bytes=999)
    expected = [1, 2, 3] if kind in ORDERED else [2, 3]
    assert [(message.offset, message.attempt) for message in again] == [(n, 1) for n in expected]
    assert await subscriptions.nack(info, unused, failed=False) == unused
    assert subscriptions.stats("id-s")["redelivering"] == 0


async def test_one_pull_goes_on_over_batches_and_ledgers(stage: Stage) -> None:
    log = await stage.open(max_entries=2)
    info = SubscriptionInfo("s", "id-s", SubscriptionConfig(), "earliest")
    await log.subscriptions.open(info)
    for first in range(0, 24, 3):
        codec = {"codec": CODEC_ZSTD} if first % 2 else {}
        batch = encode_batch([Message(b"%d" % n) for n in range(first, first + 3)], **codec)
        await log.append_batch(batch, check_batch(batch))
    await log.close()
    second = await stage.open()
    found = await second.subscriptions.pull(info, "a", max_messages=20, max_bytes=1 << 20)
    assert [message.message.value for message in found] == [b"%d" % n for n in range(20)]
    scattered = [found[n].ack_id for n in (1, 2, 9, 19)]
    assert await second.subscriptions.nack(info, scattered, 0) == []
    assert await pull(second, info) == [1, 2, 9, 19, 20, 21, 22, 23]


async def test_a_message_is_for_the_subscription_that_it_names(stage: Stage) -> None:
    mine, others = with_header(REPLAY_FOR, "s"), with_header(REPLAY_FOR, "t")
    log, info = await opened(stage, [others, mine, others, others, Message(b"")])
    assert await pull(log, info, 1) == [1]
    assert await pull(log, info) == [4]
    stats = log.subscriptions.stats("id-s")
    assert (stats["backlog_messages"], stats["holes"]) == (2, 1)
    assert await pull(await stage.open(), info) == [1, 4]


async def test_a_message_waits_for_its_time(stage: Stage) -> None:
    now_us = stage.host.clock_us
    soon = with_header(DELIVER_AT, str(now_us + 30_000))
    messages = [soon, with_header(DELIVER_AT, str(now_us)), with_header(DELIVER_AT, "soon"), soon]
    log, info = await opened(stage, [*messages, with_header("fencelog-else", "1")])
    assert await pull(log, info) == [1, 2, 4]
    assert log.subscriptions.stats("id-s")["delayed"] == 2
    assert await log.subscriptions.wait(info, "a", 60_000)
    assert await pull(log, info) == [0, 3]
    ordered = SubscriptionInfo("o", "id-o", SubscriptionConfig(type="exclusive"), "earliest")
    await log.subscriptions.open(ordered)
    assert await pull(log, ordered) == [0, 1, 2, 3, 4]


async def test_a_pull_looks_at_so_many_messages(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_pull, "MAX_LOOKED_AT", 6)
    later = with_header(DELIVER_AT, str(stage.host.clock_us + 10**12))
    log, info = await opened(stage, [*[later] * 20, Message(b"")])
    pulls = 0
    while not (found := await pull(log, info, 1)):
        assert await log.subscriptions.wait(info, "a", 0)
        pulls += 1
        assert pulls < 20
    assert found == [20]
    assert pulls >= 2
    assert not await log.subscriptions.wait(info, "a", 0)


async def test_what_failed_too_often_is_forwarded_and_then_acknowledged(
    stage: Stage, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "RETRY_S", 0.001)
    log, info = await opened(stage, [Message(b"v")] * 3, max_deliveries=2)
    graves = Graves()
    graves.errors.append(FencelogError(ErrorCode.NO_OWNER, "not now"))
    for _ in range(2):
        found = await log.subscriptions.pull(info, "a", max_messages=1, max_bytes=100)
        await log.subscriptions.nack(info, [message.ack_id for message in found], 0)
    await until(lambda: log.subscriptions.stats("id-s")["burying"] == 1)
    assert await pull(log, info) == [1, 2]
    log.subscriptions.dead_letters = graves
    await until(lambda: log.subscriptions.stats("id-s")["acked_to"] == 1)
    assert graves.forwarded == [(0, 2)]
    second = await stage.open()
    assert await pull(second, info) == [1, 2]


async def test_what_is_forwarded_during_a_seek_comes_again(
    stage: Stage, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, info = await opened(stage, [Message(b"v")] * 3, max_deliveries=1)
    graves, gate = Graves(), asyncio.Event()
    forward = graves.forward

    async def slowly(info: SubscriptionInfo, partition: int, dead: PulledMessage) -> None:
        await forward(info, partition, dead)
        await gate.wait()

    monkeypatch.setattr(graves, "forward", slowly)
    log.subscriptions.dead_letters = graves
    found = await log.subscriptions.pull(info, "a", max_messages=1, max_bytes=100)
    await log.subscriptions.nack(info, [message.ack_id for message in found], 0)
    await until(lambda: graves.forwarded == [(0, 1)])
    await log.subscriptions.seek(info, 0)
    gate.set()
    await asyncio.sleep(0.01)
    assert await pull(log, info) == [0, 1, 2]


async def test_what_cannot_be_forwarded_holds_up_nothing_else_and_is_told(
    stage: Stage, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "RETRY_S", 0.001)
    monkeypatch.setattr(dead_letters, "AT_ONCE", 2)
    log, info = await opened(stage, [Message(b"v")] * 5, max_deliveries=1)
    graves = Graves()
    graves.refused = {0, 1, 2}
    log.subscriptions.dead_letters = graves
    assert log.subscriptions.stats("id-s")["burial_error"] is None
    found = await log.subscriptions.pull(info, "a", max_messages=5, max_bytes=100)
    await log.subscriptions.nack(info, [message.ack_id for message in found], 0)
    await until(lambda: log.subscriptions.stats("id-s")["burying"] == 3)
    assert "topic_terminated" in log.subscriptions.stats("id-s")["burial_error"]
    graves.refused = set()
    await until(lambda: log.subscriptions.stats("id-s")["acked_to"] == 5)
    assert log.subscriptions.stats("id-s")["burial_error"] is None
    assert sorted(graves.forwarded) == [(offset, 1) for offset in range(5)]


async def test_burials_end_with_the_subscription_and_with_the_log(
    stage: Stage, until: Until
) -> None:
    log, info = await opened(stage, [Message(b"v")], max_deliveries=1)

    async def fail() -> None:
        found = await log.subscriptions.pull(info, "a", max_messages=1, max_bytes=100)
        await log.subscriptions.nack(info, [message.ack_id for message in found])
        assert log.subscriptions.stats("id-s")["burying"] == 1

    await fail()
    await log.subscriptions.seek(info, 0)  # it is tried again
    await fail()
    await log.subscriptions.drop("id-s")
    await log.subscriptions.open(info)
    await fail()
    await log.close()
    assert not [
        task for task in asyncio.all_tasks() if "DeadLetterForwarder.run" in repr(task.get_coro())
    ]


class Gate:
    """Reads of a log one entry at a time; ``reached`` is set when they stop, before one of them."""

    def __init__(self, log: PartitionLog, monkeypatch: pytest.MonkeyPatch, *, free: int) -> None:
        self.open, self.reached = asyncio.Event(), asyncio.Event()
        read = log._reader.read

        async def held(offset: int, limits: ReadLimits) -> ReadResult:
            nonlocal free
            free -= 1
            if free < 0:
                self.reached.set()
                await self.open.wait()
            return await read(offset, limits._replace(max_messages=1 if free >= 0 else 99))

        monkeypatch.setattr(log._reader, "read", held)


async def append_one_by_one(log: PartitionLog, count: int) -> None:
    """Append messages of one key, each in an entry of its own."""
    for _ in range(count):
        await log.append_message(Message(b"v", b"k"))


async def held_pull(
    log: PartitionLog, info: SubscriptionInfo, monkeypatch: pytest.MonkeyPatch, free: int = 0
) -> tuple[Gate, asyncio.Task[list[int]]]:
    gate = Gate(log, monkeypatch, free=free)
    task = asyncio.create_task(pull(log, info))
    await gate.reached.wait()
    return gate, task


async def test_what_is_acknowledged_while_it_is_read_is_not_handed_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, info = await opened(stage, [Message(b"v")] * 5)
    gate, task = await held_pull(log, info, monkeypatch)
    await log.subscriptions.acknowledge_below("id-s", 2)
    gate.open.set()
    assert await task == [2, 3, 4]


@pytest.mark.parametrize("failed", [False, True])
async def test_a_seek_ends_a_pull_that_is_under_way(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, failed: bool
) -> None:
    log, info = await opened(stage, [Message(b"v")] * 3)
    if failed:
        found = await log.subscriptions.pull(info, "a", max_messages=3, max_bytes=100)
        await log.subscriptions.nack(info, [message.ack_id for message in found], 0)
    gate, task = await held_pull(log, info, monkeypatch)
    await log.subscriptions.seek(info, 1)
    gate.open.set()
    assert await task == []
    assert await pull(log, info) == [1, 2]


async def test_a_refusal_sends_an_ordered_pull_back_to_the_beginning(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, info = await opened(stage, [Message(b"v")] * 3, type="exclusive")
    first = await log.subscriptions.pull(info, "a", max_messages=1, max_bytes=100)
    gate, task = await held_pull(log, info, monkeypatch)
    await log.subscriptions.nack(info, [first[0].ack_id], 0)
    gate.open.set()
    assert await task == [0, 1, 2]


@pytest.mark.parametrize(("delay_ms", "expected"), [(0, [0, 1, 2]), (60_000, [])])
async def test_what_an_ordered_pull_has_taken_comes_after_what_failed_meanwhile(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, delay_ms: int, expected: list[int]
) -> None:
    log, info = await opened(stage, type="exclusive")
    await append_one_by_one(log, 3)
    first = await log.subscriptions.pull(info, "a", max_messages=1, max_bytes=100)
    gate, task = await held_pull(log, info, monkeypatch, free=1)
    await log.subscriptions.nack(info, [first[0].ack_id], delay_ms)
    gate.open.set()
    assert await task == expected
    assert log.subscriptions.stats("id-s")["outstanding"] == len(expected)


async def test_a_lease_that_ends_during_an_ordered_pull_sends_it_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, info = await opened(stage, type="failover")
    await append_one_by_one(log, 5)
    first = await log.subscriptions.pull(info, "a", max_messages=1, max_bytes=100, lease_ms=50)
    gate, task = await held_pull(log, info, monkeypatch, free=1)
    await asyncio.sleep(0.07)
    gate.open.set()
    assert await task == [0, 1, 2, 3, 4]
    assert log.subscriptions.stats("id-s")["outstanding"] == 5
    assert (await log.subscriptions.ack(info, [first[0].ack_id])).stale == []


async def test_a_pull_ends_with_the_first_of_its_leases(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hand the message out twice."""
    log, info = await opened(stage, backoff_min_ms=0)
    await append_one_by_one(log, 3)
    gate = Gate(log, monkeypatch, free=1)
    pulling = log.subscriptions.pull(info, "a", max_messages=9, max_bytes=100, lease_ms=50)
    task = asyncio.create_task(pulling)
    await gate.reached.wait()
    await asyncio.sleep(0.07)
    gate.open.set()
    assert [message.offset for message in await task] == [0, 1]


async def test_an_error_after_what_was_taken_has_failed_comes_to_who_pulls(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, info = await opened(stage, type="exclusive")
    await append_one_by_one(log, 3)
    first = await log.subscriptions.pull(info, "a", max_messages=1, max_bytes=100)
    gate, task = await held_pull(log, info, monkeypatch, free=1)
    await log.subscriptions.nack(info, [first[0].ack_id], 0)
    monkeypatch.undo()
    log._reader.closed = FencelogError(ErrorCode.NO_OWNER, "lost")
    gate.open.set()
    with pytest.raises(FencelogError) as caught:
        await task
    assert caught.value.code is ErrorCode.NO_OWNER


@pytest.mark.parametrize("kind", ["exclusive", "shared", "key_shared"])
async def test_a_pull_that_nobody_waits_for_hands_nothing_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    log, info = await opened(stage, type=kind)
    await append_one_by_one(log, 3)
    gate, task = await held_pull(log, info, monkeypatch, free=2)
    assert log.subscriptions.stats("id-s")["outstanding"] == 2
    task.cancel()
    await asyncio.wait((task,))
    stats = log.subscriptions.stats("id-s")
    assert (stats["outstanding"], stats["redelivering"]) == (0, 0)
    gate.open.set()
    assert await pull(log, info) == [0, 1, 2]


async def test_a_failure_after_some_were_handed_out_gives_those(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, info = await opened(stage)
    await append_one_by_one(log, 3)
    gate, task = await held_pull(log, info, monkeypatch, free=1)
    monkeypatch.undo()
    log._reader.closed = FencelogError(ErrorCode.NO_OWNER, "lost")
    gate.open.set()
    assert await task == [0]


async def test_reading_errors_come_to_who_pulls(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, info = await opened(stage, [Message(b"v")] * 2)

    async def broken(*args: Any, **options: Any) -> Any:
        raise FencelogError(errors.pop(0), "no answer")

    errors = [ErrorCode.READ_UNKNOWN, ErrorCode.OFFSET_TRIMMED]
    monkeypatch.setattr(log._reader, "read", broken)
    with pytest.raises(FencelogError) as caught:
        await pull(log, info)
    assert caught.value.code is ErrorCode.READ_UNKNOWN
    assert await pull(log, info) == []  # retention was faster; the next pull knows
    monkeypatch.undo()
    assert await pull(log, info) == [0, 1]


async def test_a_wait_lasts_until_the_rate_lets_something_through(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await stage.open(policy=Policy(dispatch_bytes_per_s=20_000))
    info = SubscriptionInfo("s", "id-s", SubscriptionConfig(), "earliest")
    await log.subscriptions.open(info)
    await asyncio.gather(*(log.append_message(Message(bytes(11_000))) for _ in range(3)))
    assert [await pull(log, info) for _ in range(2)] == [[0], [1]]  # 0.1 s are owed
    for refused in (pull(log, info), log.subscriptions.wait(info, "a", 0)):
        with pytest.raises(FencelogError) as caught:
            await refused
        assert caught.value.code is ErrorCode.RATE_LIMITED
    pulls = 0
    subscriptions_pull = log.subscriptions.pull

    async def counted(*args: Any, **options: Any) -> list[PulledMessage]:
        nonlocal pulls
        pulls += 1
        found: list[PulledMessage] = await subscriptions_pull(*args, **options)
        return found

    monkeypatch.setattr(log.subscriptions, "pull", counted)
    found = await take(log, info, PullRequest(wait=5))
    assert ([message.offset for message in found], pulls) == ([2], 2)
