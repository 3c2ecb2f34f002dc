"""Repetitions of requests: their pauses, their ends, and what an error says of all attempts, not of
the last one alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio
import pytest

from fencelog.api.client import Appended, FencelogClient
from fencelog.api.client.producer import ExactlyOnceProducer
from fencelog.api.client.retry import (
    MAX_PAUSE_S,
    RETRY_S,
    asked_pause_s,
    retry_at_least_once,
    retry_idempotent,
    retry_not_applied,
)
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError

OWED_S = 49.0
"""The pause that a rate of 1,000 messages a second asks for after 50,000: more than RETRY_S."""

LATER = FencelogError(ErrorCode.RATE_LIMITED, "slower", retry_after_ms=int(OWED_S * 1000))


class Script:
    """A request whose answers are scripted; the last one is given again and again."""

    def __init__(self, *answers: ErrorCode | FencelogError | None) -> None:
        self._answers = list(answers)
        self.sent = 0

    async def __call__(self) -> str:
        self.sent += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is None:
            return "an answer"
        raise answer if isinstance(answer, FencelogError) else FencelogError(answer, "why")


async def exactly_once(request: Script) -> str:
    """Have an exactly-once producer append by this request."""

    class Client:
        async def append_batch(self, _topic: str, _batch: bytes, **_: Any) -> Appended:
            await request()
            return Appended(0, 0, 1)

    producer = ExactlyOnceProducer(cast("FencelogClient", Client()), "a/b", "p")
    await producer.append([b"x"])
    return "an answer"


Retry = Callable[[Script], Awaitable[str]]

each_way = pytest.mark.parametrize(
    "retry", [retry_not_applied, retry_at_least_once, retry_idempotent, exactly_once]
)


@pytest.mark.parametrize("last", [ErrorCode.NO_OWNER, ErrorCode.TOPIC_TERMINATED])
async def test_a_refusal_after_an_unknown_outcome_is_an_unknown_outcome(last: ErrorCode) -> None:
    assert last.effects is Effects.NONE
    with pytest.raises(FencelogError) as raised:
        await retry_at_least_once(Script(ErrorCode.APPEND_UNKNOWN, last))
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
    assert raised.value.extra["last_code"] == last.slug
    with pytest.raises(FencelogError) as raised:
        await retry_at_least_once(Script(last))
    assert raised.value.code is last


@pytest.mark.parametrize("last", [ErrorCode.NO_OWNER, ErrorCode.TOPIC_TERMINATED])
async def test_so_it_is_for_a_request_that_is_harmless_to_repeat(last: ErrorCode) -> None:
    unknown = ErrorCode.METADATA_UNKNOWN
    with pytest.raises(FencelogError, match="may have taken effect") as raised:
        await retry_idempotent(Script(unknown, last))
    assert (raised.value.code, raised.value.extra["last_code"]) == (unknown, last.slug)
    with pytest.raises(FencelogError) as raised:
        await retry_idempotent(Script(last))
    assert raised.value.code is last


async def test_but_not_for_a_read_nor_for_what_passes_by_itself() -> None:
    read = FencelogError(ErrorCode.REQUEST_TIMEOUT, "lost")
    read.is_read = True
    gone = ErrorCode.TOPIC_NOT_FOUND
    with pytest.raises(FencelogError) as raised:
        await retry_idempotent(Script(read, gone))
    assert raised.value.code is gone
    with pytest.raises(FencelogError) as raised:
        await retry_idempotent(Script(ErrorCode.STATE_UNKNOWN, gone), passes=True)
    assert raised.value.code is gone


async def test_an_unknown_outcome_is_followed_by_another_attempt() -> None:
    unknown = [ErrorCode.APPEND_UNKNOWN] * 2
    assert await retry_at_least_once(Script(*unknown, ErrorCode.NO_OWNER, None)) == "an answer"
    with pytest.raises(FencelogError) as raised:
        await retry_at_least_once(Script(ErrorCode.APPEND_UNKNOWN))
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN


@each_way
async def test_a_request_waits_for_as_long_as_its_topics_rate_asks(retry: Retry) -> None:
    began = anyio.current_time()
    request = Script(LATER, LATER, LATER, None)
    assert await retry(request) == "an answer"
    assert anyio.current_time() - began == pytest.approx(3 * OWED_S)
    assert request.sent == 4


@each_way
async def test_after_such_a_pause_there_is_as_much_time_as_before(retry: Retry) -> None:
    began = anyio.current_time()
    with pytest.raises(FencelogError) as raised:
        await retry(Script(LATER, ErrorCode.NO_OWNER))
    assert raised.value.code is ErrorCode.NO_OWNER
    assert OWED_S + RETRY_S < anyio.current_time() - began < OWED_S + RETRY_S + 10


@each_way
async def test_a_backlog_quota_is_waited_for_as_any_refusal_is(retry: Retry) -> None:
    """Consumers acknowledge meanwhile; where none does, the refusal is the end."""
    full = ErrorCode.BACKLOG_QUOTA_EXCEEDED
    began = anyio.current_time()
    assert await retry(Script(full, full, full, None)) == "an answer"
    assert anyio.current_time() - began < 5
    with pytest.raises(FencelogError) as raised:
        await retry(Script(full))
    assert raised.value.code is full
    assert anyio.current_time() - began < 2 * RETRY_S


@pytest.mark.parametrize("retry", [retry_at_least_once, exactly_once])
async def test_an_outcome_that_is_lost_after_such_a_pause_is_repeated(retry: Retry) -> None:
    assert await retry(Script(LATER, ErrorCode.APPEND_UNKNOWN, LATER, None)) == "an answer"


@each_way
async def test_such_a_pause_can_be_cancelled(retry: Retry) -> None:
    began = anyio.current_time()
    with anyio.move_on_after(7) as scope:
        await retry(Script(LATER))
    assert scope.cancelled_caught
    assert anyio.current_time() - began == pytest.approx(7)


async def test_a_pause_that_is_ended_raises_its_refusal() -> None:
    asked: list[float] = []

    async def pause(pause_s: float) -> bool:
        asked.append(pause_s)
        return len(asked) < 2

    with pytest.raises(FencelogError) as raised:
        await retry_not_applied(Script(LATER), pause=pause)
    assert raised.value is LATER
    assert asked == [OWED_S, OWED_S]


def test_the_pause_that_a_service_asks_for_has_bounds() -> None:
    def asked(told: object, code: ErrorCode = ErrorCode.RATE_LIMITED) -> float | None:
        return asked_pause_s(FencelogError(code, "why", retry_after_ms=told))

    assert [asked(1), asked(1500), asked(10**9)] == [0.05, 1.5, MAX_PAUSE_S]
    assert [asked("soon"), asked(None), asked(1500, ErrorCode.NO_OWNER)] == [None] * 3


@pytest.mark.parametrize("retry", [retry_not_applied, retry_at_least_once, exactly_once])
async def test_the_time_of_repetitions_begins_with_the_first_failure(retry: Retry) -> None:
    """A long poll may have taken all of it before the server died."""
    request = Script(ErrorCode.NO_OWNER, None)

    class Slow(Script):
        async def __call__(self) -> str:
            if not self.sent:
                await anyio.sleep(RETRY_S + 1)
            self.sent += 1
            return await request()

    slow = Slow()
    assert await retry(slow) == "an answer"
    assert slow.sent == 2
