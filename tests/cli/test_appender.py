"""Appending in order through refusals, lost answers and takeovers: against a scripted service."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.api.client import Appended, FencelogClient, ReadPage
from fencelog.api.streams import appender as module
from fencelog.api.streams.appender import PartitionAppender
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import FramedBatch, encode_values, open_batch
from tests.support.virtual_time import VirtualTimeLoop

WRITTEN, REFUSED, LOST, LOST_BUT_WRITTEN, BEFORE_THE_NEXT, AFTER_THE_NEXT, WRITTEN_LATER = range(7)
"""The ways in which the service treats an append; all but the first two give no answer. Those of
the last three still wait at a broker: they come before or after the next append, or are not durable
before it."""


@dataclass
class ScriptedService:
    """A partition of a log whose answers are scripted; after the script everything is written."""

    script: list[int]
    values: list[bytes] = field(default_factory=list)
    late: list[tuple[int, list[bytes], int | None]] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    refused: int = 0

    async def append_batch(
        self,
        _topic: str,
        batch: bytes,
        *,
        partition: int | None,
        key: str | None,
        if_offset: int | None,
    ) -> Appended:
        fate = self.script.pop(0) if self.script else WRITTEN
        if fate == REFUSED:
            raise FencelogError(ErrorCode.NO_OWNER, "nobody owns it now")
        values = open_batch(batch)[1].values()
        self.sent += values
        self.keys.append(key)
        late, self.late = self.late, []
        self._arrive([each for each in late if each[0] == BEFORE_THE_NEXT])
        offset = len(self.values)
        is_pending = any((how, at) == (WRITTEN_LATER, offset) for how, _, at in late)
        fits = not is_pending and if_offset in (None, offset)
        if fate in (BEFORE_THE_NEXT, AFTER_THE_NEXT) or (fate == WRITTEN_LATER and fits):
            self.late.append((fate, values, if_offset))
        elif fate != LOST and not fits:
            self._arrive([each for each in late if each[0] != BEFORE_THE_NEXT])
            raise FencelogError(ErrorCode.PRECONDITION_FAILED, "another offset is the next one")
        elif fate in (WRITTEN, LOST_BUT_WRITTEN):
            self.values += values
        self._arrive([each for each in late if each[0] != BEFORE_THE_NEXT])
        if fate == WRITTEN:
            return Appended(partition or 0, offset, len(values))
        raise FencelogError(ErrorCode.APPEND_UNKNOWN, "the answer was lost")

    def _arrive(self, late: list[tuple[int, list[bytes], int | None]]) -> None:
        for _, values, if_offset in late:
            if if_offset in (None, len(self.values)):
                self.values += values
            else:
                self.refused += 1

    async def read(
        self, _topic: str, _partition: int, start: int | str, **_limits: Any
    ) -> ReadPage:
        tail = len(self.values)
        first = tail if isinstance(start, str) else max(0, start - 1)
        page = self.values[first : first + 2]
        frames = []
        if page:
            frames.append(FramedBatch(first, 0, len(page), memoryview(encode_values(page))))
        end = first + len(page)
        return ReadPage(end, tail, end == tail, frames)


def appender_to(service: ScriptedService, **options: Any) -> PartitionAppender:
    options = {"partition": 0, "resume": True} | options
    return PartitionAppender(cast("FencelogClient", service), "a/b", **options)


@pytest.fixture(autouse=True, scope="module")
def _no_delays() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PAUSE_S", 0.001)
        patch.setattr(module, "RETRY_S", 5.0)
        patch.setattr("fencelog.api.client.retry._DELAYS_S", (0.0,))
        yield


BATCHES = [[b"one", b"two", b"three"], [b"four"], [b"five", b"six"]]
EVERYTHING = [value for batch in BATCHES for value in batch]


@given(st.lists(st.sampled_from(range(7)), max_size=8))
def test_everything_is_written_once_and_in_order(script: list[int]) -> None:
    service = ScriptedService(list(script))
    appender = appender_to(service)

    async def main() -> None:
        for batch in BATCHES:
            await appender.append(batch)

    asyncio.run(main())
    service._arrive(service.late)
    assert service.values == EVERYTHING
    assert (appender.acknowledged, appender.end) == (6, 6)


async def test_a_copy_that_arrives_after_its_repetition_is_refused() -> None:
    service = ScriptedService([AFTER_THE_NEXT])
    await appender_to(service).append([b"one"])
    assert (service.sent, service.values, service.refused) == ([b"one", b"one"], [b"one"], 1)


async def test_what_stays_unknown_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.05)
    service = ScriptedService([LOST] * 10_000)
    with pytest.raises(FencelogError, match="the answer was lost") as raised:
        await appender_to(service).append([b"one"])
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
    assert service.values == []


async def test_a_refusal_of_the_repetition_says_nothing_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = ScriptedService([LOST])
    append, answers = service.append_batch, [0]

    async def terminated(*arguments: Any, **options: Any) -> Appended:
        if answers.pop():
            raise FencelogError(ErrorCode.TOPIC_TERMINATED, "it has ended")
        answers.append(1)
        return await append(*arguments, **options)

    monkeypatch.setattr(service, "append_batch", terminated)
    with pytest.raises(FencelogError) as raised:
        await appender_to(service).append([b"one"])
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN


@pytest.mark.parametrize("fate", [LOST, LOST_BUT_WRITTEN, AFTER_THE_NEXT])
async def test_without_the_promise_nothing_is_looked_for(fate: int) -> None:
    service = ScriptedService([fate])
    with pytest.raises(FencelogError) as raised:
        await appender_to(service, resume=False).append([b"one"])
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
    assert service.sent == [b"one"]


async def test_another_producer_makes_it_unknown_for_good() -> None:
    service = ScriptedService([WRITTEN, LOST])
    appender = appender_to(service)
    await appender.append([b"one"])
    read = service.read

    async def read_with_another(*arguments: Any, **options: Any) -> ReadPage:
        service.values[1:] = [b"somebody else's"]
        return await read(*arguments, **options)

    service.read = read_with_another  # type: ignore[method-assign]  # another one is faster
    with pytest.raises(FencelogError, match="the answer was lost") as raised:
        await appender.append([b"two"])
    assert "another producer" in raised.value.detail
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
    assert service.sent.count(b"two") == 1


async def test_another_producer_before_it_is_a_definite_refusal() -> None:
    service = ScriptedService([])
    appender = appender_to(service)
    await appender.append([b"one"])
    service.values.append(b"somebody else's")
    with pytest.raises(FencelogError) as raised:
        await appender.append([b"two"])
    assert raised.value.code is ErrorCode.PRECONDITION_FAILED


async def test_a_partition_that_has_messages_is_continued() -> None:
    service = ScriptedService([LOST_BUT_WRITTEN], values=[b"old", b"older"])
    appender = appender_to(service)
    await appender.append([b"new"])
    assert service.values == [b"old", b"older", b"new"]
    assert appender.end == 3


async def test_a_definite_error_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    service = ScriptedService([])

    async def refuse(*_arguments: Any, **_options: Any) -> Appended:
        raise FencelogError(ErrorCode.PAYLOAD_TOO_LARGE, "too large")

    monkeypatch.setattr(service, "append_batch", refuse)  # this one answers differently
    with pytest.raises(FencelogError, match="too large"):
        await appender_to(service).append([b"one"])


async def test_a_key_is_sent_along_and_the_partition_it_chose_is_kept() -> None:
    service = ScriptedService([])
    appender = appender_to(service, partition=None, key="k", resume=False)
    await appender.append([b"one"])
    assert (service.keys, appender.partition) == (["k"], 0)


def in_virtual_time(appending: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(appending)


def test_the_pauses_of_a_rate_leave_time_for_an_unknown_outcome() -> None:
    service = ScriptedService([LOST])
    appender = appender_to(service)
    append, refused = service.append_batch, [1] * 3

    async def slowly(*arguments: Any, **options: Any) -> Appended:
        if service.sent and refused:
            refused.pop()
            raise FencelogError(ErrorCode.RATE_LIMITED, "slower", retry_after_ms=49_000)
        return await append(*arguments, **options)

    service.append_batch = slowly  # type: ignore[method-assign]  # the topic has a rate
    in_virtual_time(appender.append([b"one"]))
    assert (service.values, refused) == ([b"one"], [])


async def test_a_refusal_to_read_says_nothing_of_the_append() -> None:
    service = ScriptedService([WRITTEN, LOST])
    appender = appender_to(service)
    await appender.append([b"one"])

    async def refuse(*_arguments: Any, **_options: Any) -> ReadPage:
        raise FencelogError(ErrorCode.TOPIC_NOT_FOUND, "it is gone")

    service.read = refuse  # type: ignore[method-assign]  # the topic is deleted meanwhile
    with pytest.raises(FencelogError) as raised:
        await appender.append([b"two"])
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
