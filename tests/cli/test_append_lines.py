"""The append of lines: to a topic with a rate of a real service, and to scripted partitions."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fencelog.api.client import FencelogClient
from fencelog.api.streams import append_lines as module
from fencelog.api.streams.append_lines import AppendOptions, Summary, append_lines
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from fencelog.ledgers.record_batch import open_batch
from tests.cli.test_appender import LOST_BUT_WRITTEN, ScriptedService
from tests.support.until import PATIENCE_S

BATCH = 100
"""The lines of one append here."""

LINES = [b"%d" % number for number in range(3 * BATCH)]

each_way = pytest.mark.parametrize("producer_id", [None, "p"])


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of three appends."""
    monkeypatch.setattr(module, "MAX_LINES", BATCH)
    file = tmp_path / "lines"
    file.write_bytes(b"\n".join(LINES))
    return file


async def append(options: AppendOptions, file: Path) -> Summary:
    appending = append_lines(options, file, on_progress=lambda _: None)
    return await asyncio.wait_for(appending, PATIENCE_S)


async def values_of(client: FencelogClient, topic: str) -> list[bytes]:
    batches = [found.batch async for found in client.batches(topic, 0)]
    return [value for batch in batches for value in open_batch(batch)[1].values()]


@each_way
async def test_lines_are_appended_as_fast_as_the_topic_takes_them(
    service: str, topic: str, file: Path, producer_id: str | None
) -> None:
    async with FencelogClient(service) as client:
        slow = f"{topic}.slow"
        await client.create_topic(slow, partitions=1, publish_messages_per_s=BATCH)
        await append(AppendOptions(slow, service, producer_id=producer_id), file)
        assert await values_of(client, slow) == LINES


@each_way
async def test_an_interrupt_ends_the_pause_that_a_topic_asks_for(
    service: str,
    topic: str,
    file: Path,
    producer_id: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take = module._Pauses.take

    async def interrupted(pauses: module._Pauses, pause_s: float) -> bool:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
        return await take(pauses, pause_s)

    monkeypatch.setattr(module._Pauses, "take", interrupted)
    async with FencelogClient(service) as client:
        slow = f"{topic}.slow"
        await client.create_topic(slow, partitions=1, publish_messages_per_s=1)
        summary = await append(AppendOptions(slow, service, producer_id=producer_id), file)
        assert summary.interrupted
        assert summary.appended.startswith(f"{BATCH} messages")
        assert await values_of(client, slow) == LINES[:BATCH]


class Partition:
    """A partition that takes batches, once ``gate`` is open; ``refusal`` is all it says if set."""

    def __init__(self, number: int, gate: asyncio.Event, refusal: FencelogError | None) -> None:
        self.partition = number
        self.acknowledged = 0
        self.end: int | None = None
        self.lines: list[bytes] = []
        self._gate, self._refusal = gate, refusal

    async def append(self, values: list[bytes]) -> None:
        await self._gate.wait()
        if self._refusal is not None:
            raise self._refusal
        self.lines += values
        self.acknowledged += len(values)
        self.end = self.acknowledged


def dealt_to(monkeypatch: pytest.MonkeyPatch, partitions: Sequence[Any]) -> None:
    async def appenders(*_: object) -> Sequence[Any]:
        return partitions

    monkeypatch.setattr(module, "_appenders", appenders)


def late_refusal(monkeypatch: pytest.MonkeyPatch, code: ErrorCode) -> Partition:
    """Two partitions: the first refuses its batch when the other has taken two."""
    gate, opened = asyncio.Event(), asyncio.Event()
    opened.set()
    first = Partition(0, gate, FencelogError(code, "no", retry_after_ms=1))
    other = Partition(1, opened, None)
    take = other.append

    async def append(values: list[bytes]) -> None:
        await take(values)
        if other.acknowledged == 2 * BATCH:
            if code is ErrorCode.RATE_LIMITED:  # as the pause that an interrupt ends
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(0.05)
            gate.set()

    other.append = append  # type: ignore[method-assign]  # it opens the gate of the first one
    dealt_to(monkeypatch, [first, other])
    return other


LEFT_OUT = "lines 1-100 of {} are not, nor is what follows line 300"


async def test_lines_that_others_have_overtaken_are_named_when_they_are_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who appends the rest must not do so from the number of messages that are appended."""
    other = late_refusal(monkeypatch, ErrorCode.TOPIC_TERMINATED)
    with pytest.raises(FencelogError, match="no; 200 messages are appended; ") as raised:
        await append(AppendOptions("a/b", "http://127.0.0.1:1"), file)
    assert other.lines == LINES[BATCH:]
    assert raised.value.detail.endswith(LEFT_OUT.format(file))


async def test_lines_that_others_have_overtaken_are_named_after_an_interrupt(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_refusal(monkeypatch, ErrorCode.RATE_LIMITED)
    summary = await append(AppendOptions("a/b", "http://127.0.0.1:1"), file)
    assert summary.interrupted
    assert summary.left_out == LEFT_OUT.format(file)


async def test_what_was_read_is_appended_though_the_file_cannot_be_read_further(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append that is in flight is not cut off, which would leave its outcome unknown."""

    async def chunks(_source: object) -> AsyncIterator[bytes]:
        yield b"one\ntwo\nthr"
        asyncio.get_running_loop().call_later(0.05, gate.set)
        raise OSError(5, "Input/output error")

    gate = asyncio.Event()
    partition = Partition(0, gate, None)
    dealt_to(monkeypatch, [partition])
    monkeypatch.setattr(module, "_chunks", chunks)
    with pytest.raises(FencelogError) as raised:
        await append(AppendOptions("a/b", "http://127.0.0.1:1"), file)
    assert partition.lines == [b"one", b"two"]
    said = f"{file} cannot be read further: Input/output error; 2 messages are appended"
    assert raised.value.detail == said


class LostOnce(ScriptedService):
    """A topic of four partitions, of which one is written. The first answer is lost."""

    async def topic(self, _topic: str) -> dict[str, Any]:
        return {"partitions": 4}


async def test_the_first_append_with_a_key_is_resumed_too(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = LostOnce([LOST_BUT_WRITTEN])

    async def enter(*_: object) -> LostOnce:
        return service

    monkeypatch.setattr(AsyncExitStack, "enter_async_context", enter)
    summary = await append(AppendOptions("a/b", "http://x", key="k", resume=True), file)
    assert service.values == LINES
    assert summary.appended.startswith("300 messages")


async def test_a_second_interrupt_does_not_wait_for_what_is_in_flight(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its outcome is not known, unlike that of the lines before it."""
    opened = asyncio.Event()
    opened.set()
    partition, silent = Partition(0, opened, None), Partition(0, asyncio.Event(), None)
    interrupts: list[int] = []

    async def append_until_silence(values: list[bytes]) -> None:
        if partition.acknowledged < BATCH:
            return await Partition.append(partition, values)
        for number in (1, 2):
            asyncio.get_running_loop().call_later(
                0.05 * number, os.kill, os.getpid(), signal.SIGINT
            )
            interrupts.append(number)
        return await silent.append(values)

    partition.append = append_until_silence  # type: ignore[method-assign]  # silent from then on
    dealt_to(monkeypatch, [partition])
    with pytest.raises(FencelogError) as raised:
        await append(AppendOptions("a/b", "http://127.0.0.1:1"), file)
    assert raised.value.code.effects is Effects.MAYBE
    assert raised.value.detail == (
        f"interrupted before its answer; 100 messages are appended; lines 101-200 of {file} "
        "may be or not"
    )
    assert interrupts == [1, 2]
