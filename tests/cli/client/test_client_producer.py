"""The exactly-once producer: its numbers belong to the messages that they were first sent with."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import anyio
import pytest

from fencelog.api.client import Appended, FencelogClient
from fencelog.api.client.conditions import Producer
from fencelog.api.client.producer import ExactlyOnceProducer
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import decode_batch, encode_values


class Log:
    """A partition as a producer sees it: numbers decide, not contents. ``losses``: the answers that
    are lost next; ``answers``: cleared while none come."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.losses = 0
        self.refusals = 0
        self.answers = asyncio.Event()
        self.answers.set()

    async def append_batch(
        self, _: str, batch: bytes, *, producer: Producer, **__: Any
    ) -> Appended:
        if self.refusals:
            self.refusals -= 1
            raise FencelogError(ErrorCode.TOPIC_TERMINATED, "it has ended")
        values = [message.value for message in decode_batch(batch)]
        first, end = producer.sequence, producer.sequence + len(values)
        is_duplicate = end <= len(self.values)
        if not is_duplicate:
            assert first == len(self.values)
            self.values += values
        await asyncio.sleep(0)
        await self.answers.wait()
        if self.losses:
            self.losses -= 1
            raise FencelogError(ErrorCode.APPEND_UNKNOWN, "the answer was lost")
        return Appended(0, first, len(values), is_duplicate)

    async def get_object(self, _: str) -> dict[str, int]:
        return {"epoch": 0, "next_sequence": len(self.values)}


def producer_to(log: Log, **options: Any) -> ExactlyOnceProducer:
    return ExactlyOnceProducer(cast("FencelogClient", log), "a/b", "p", **options)


async def check_that_numbers_are_kept(log: Log, producer: ExactlyOnceProducer) -> None:
    """Check that after an append of ``a`` and ``b`` whose outcome is unknown nothing else counts as
    appended by their numbers."""
    for values in ([b"c"], [b"c", b"d"], [b"c", b"d", b"e"]):
        with pytest.raises(FencelogError, match="append them again") as raised:
            await producer.append(values)
        assert raised.value.code is ErrorCode.SEQUENCE_REUSED
    await producer.append([b"a", b"b"])
    await producer.append([b"c"])
    assert log.values == [b"a", b"b", b"c"]


async def test_an_append_of_unknown_outcome_keeps_its_numbers() -> None:
    log = Log()
    producer = producer_to(log, timeout_s=0)
    log.losses = 1
    with pytest.raises(FencelogError) as raised:
        await producer.append([b"a", b"b"])
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
    await check_that_numbers_are_kept(log, producer)


async def test_a_refusal_of_the_same_messages_decides_nothing() -> None:
    log = Log()
    producer = producer_to(log, timeout_s=0)
    log.losses = 1
    with pytest.raises(FencelogError):
        await producer.append([b"a", b"b"])
    log.refusals = 1
    with pytest.raises(FencelogError, match="may have been written") as raised:
        await producer.append([b"a", b"b"])
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
    await check_that_numbers_are_kept(log, producer)


async def test_an_append_that_is_cancelled_keeps_its_numbers() -> None:
    log = Log()
    producer = producer_to(log)
    log.answers.clear()
    with anyio.move_on_after(0.01) as scope:
        await producer.append([b"a", b"b"])
    assert scope.cancelled_caught
    log.answers.set()
    await check_that_numbers_are_kept(log, producer)


async def test_a_producer_that_resumes_knows_what_became_of_its_numbers() -> None:
    log = Log()
    producer = producer_to(log, timeout_s=0)
    log.losses = 1
    with pytest.raises(FencelogError):
        await producer.append([b"a", b"b"])
    assert await producer.resume() == 2
    await producer.append([b"c"])
    assert log.values == [b"a", b"b", b"c"]


async def test_a_producer_that_cannot_resume_knows_nothing_of_its_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    producer = producer_to(log, timeout_s=0)
    log.losses = 1
    with pytest.raises(FencelogError):
        await producer.append([b"a", b"b"])

    async def refused(_: str) -> dict[str, int]:
        raise FencelogError(ErrorCode.UNAUTHORIZED, "not now")

    with monkeypatch.context() as patch:
        patch.setattr(log, "get_object", refused)
        with pytest.raises(FencelogError, match="not now"):
            await producer.resume()
    await check_that_numbers_are_kept(log, producer)


async def test_numbers_of_an_append_that_was_refused_are_free() -> None:
    log = Log()
    producer = producer_to(log)
    log.refusals = 1
    with pytest.raises(FencelogError, match="ended"):
        await producer.append([b"a", b"b"])
    await producer.append([b"c"])
    assert log.values == [b"c"]


async def test_appends_of_several_tasks_get_numbers_of_their_own() -> None:
    log = Log()
    producer = producer_to(log)
    await asyncio.gather(*(producer.append([b"%d" % n]) for n in range(5)))
    assert log.values == [b"%d" % n for n in range(5)]
    assert producer.sequence == 5


async def test_a_batch_of_another_count_is_refused_and_nothing_is_sent() -> None:
    """Its other messages would be in the log under the numbers of those that follow."""
    log = Log()
    producer = producer_to(log)
    for count in (1, 3):
        with pytest.raises(FencelogError, match=f"has 2 messages, not {count}") as raised:
            await producer.append_batch(encode_values([b"a", b"b"]), count)
        assert raised.value.code is ErrorCode.BAD_REQUEST
    assert (log.values, producer.sequence) == ([], 0)
    await producer.append_batch(encode_values([b"a", b"b"]), 2)
    await producer.append([b"c"])
    assert log.values == [b"a", b"b", b"c"]
