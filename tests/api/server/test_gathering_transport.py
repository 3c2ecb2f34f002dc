"""Answers that leave in one piece."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from fencelog.api.server.gathering_transport import GatheringTransport


class RecordingTransport(asyncio.Transport):
    """Keeps what it is told, one item a call."""

    def __init__(self) -> None:
        super().__init__(extra={"peername": ("127.0.0.1", 1)})
        self.calls: list[Any] = []

    def write(self, data: Any) -> None:
        self.calls.append(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.calls.append(b"".join(list_of_data))

    def close(self) -> None:
        self.calls.append("close")

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.calls.append("eof")

    def abort(self) -> None:
        self.calls.append("abort")

    def is_closing(self) -> bool:
        return "close" in self.calls

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")


@pytest.fixture
async def below() -> RecordingTransport:
    return RecordingTransport()


@pytest.fixture
async def transport(below: RecordingTransport) -> GatheringTransport:
    return GatheringTransport(below)


async def test_the_writes_of_one_turn_leave_as_one(
    below: RecordingTransport, transport: GatheringTransport
) -> None:
    transport.write(b"head ")
    transport.write(b"body")
    assert below.calls == []

    await asyncio.sleep(0)
    assert below.calls == [b"head body"]

    transport.write(b"next")
    await asyncio.sleep(0)
    assert below.calls == [b"head body", b"next"]


async def test_a_large_body_does_not_wait(
    below: RecordingTransport, transport: GatheringTransport
) -> None:
    large = bytes(100_000)
    transport.write(b"head")
    transport.write(large)
    assert below.calls == [b"head" + large]

    transport.writelines([b"a", b"b"])
    await asyncio.sleep(0)
    assert below.calls[1:] == [b"ab"]


async def test_closing_writes_what_waits_first(
    below: RecordingTransport, transport: GatheringTransport
) -> None:
    transport.write(b"last words")
    transport.close()
    assert below.calls == [b"last words", "close"]
    assert transport.is_closing()

    await asyncio.sleep(0)
    assert below.calls == [b"last words", "close"]


async def test_nothing_is_written_to_a_connection_that_was_lost_meanwhile(
    below: RecordingTransport, transport: GatheringTransport
) -> None:
    transport.write(b"too late")
    below.calls.append("close")
    await asyncio.sleep(0)
    assert below.calls == ["close"]


async def test_aborting_writes_nothing_more(
    below: RecordingTransport, transport: GatheringTransport
) -> None:
    transport.write(b"never sent")
    transport.abort()
    await asyncio.sleep(0)
    assert below.calls == ["abort"]


async def test_a_client_that_still_sends_gets_time_to_read(
    below: RecordingTransport, transport: GatheringTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.api.server.gathering_transport.LINGER_S", 0.01)
    transport.has_unread = True
    transport.write(b"too large")
    transport.close()
    assert below.calls == [b"too large", "eof", "resume"]
    assert transport.is_closing()

    transport.close()
    transport.write(b"more")
    transport.write_now(b"and more")
    await asyncio.sleep(0.05)
    assert below.calls == [b"too large", "eof", "resume", "close"]


async def test_a_whole_answer_leaves_at_once_in_its_order(
    below: RecordingTransport, transport: GatheringTransport
) -> None:
    transport.write_now(b"one")
    transport.write(b"two ")
    transport.write_now(b"three")
    assert below.calls == [b"one", b"two three"]


async def test_the_rest_is_passed_on(
    below: RecordingTransport, transport: GatheringTransport
) -> None:
    transport.pause_reading()
    transport.resume_reading()
    assert below.calls == ["pause", "resume"]
    assert transport.get_extra_info("peername") == ("127.0.0.1", 1)
    assert not transport.is_closing()
