"""Copies on their way: reads ahead, adds in flight; nothing counts before it is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from fencelog.bookie.disk.rate_limit import Pace
from fencelog.bookie.repair.copier import EntryCopier
from fencelog.bookie.repair.copies import Copies, NoCopy, PutOff
from fencelog.bookie.repair.core import CopyRange
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import build_run, read_run_header
from fencelog.ledgers.ledger_metadata.model import new_metadata
from fencelog.ledgers.limits import COPIES_AT_ONCE, COPY_PENDING_BYTES
from fencelog.ledgers.rpc.bookie_port import AddCallback, ReadReply

METADATA = new_metadata(
    1, ensemble=("b1", "b2", "b3"), write_quorum=3, ack_quorum=2, token="t"
).closed(last_entry_id=99, length=100)


class Source:
    """A directory of bookies that have every entry, of ``payload_bytes`` each, and return one at a
    time; ``lost``: those that none of them has."""

    def __init__(self, payload_bytes: int = 1) -> None:
        self._payload = bytes(payload_bytes)
        self.asked: list[int] = []
        self.lost: dict[int, ErrorCode] = {}
        self.slow: asyncio.Event | None = None

    def client(self, bookie_id: str) -> Any:
        return self

    async def read(self, ledger_id: int, first: int, **limits: int) -> ReadReply:
        self.asked.append(first)
        if self.slow is not None and first == 0:
            await self.slow.wait()
        if first in self.lost:
            raise FencelogError(self.lost[first], "as told")
        run = build_run(ledger_id, first, [self._payload], lac=-1, length_before=0)
        return ReadReply(-1, run)


class Target:
    """A bookie that answers adds when a test says so."""

    def __init__(self) -> None:
        self.added: list[int] = []
        self._unanswered: list[tuple[int, AddCallback]] = []

    def add(self, run: bytes, on_reply: AddCallback) -> None:
        first = read_run_header(run).first_entry_id
        self.added.append(first)
        self._unanswered.append((first, on_reply))

    def answer(self, *, error: FencelogError | None = None) -> None:
        """Answer all adds so far."""
        unanswered, self._unanswered = self._unanswered, []
        for _, on_reply in unanswered:
            on_reply(error)


def copier(source: Source) -> EntryCopier:
    copies = Copies(source, key=b"", pace=Pace(None))  # type: ignore[arg-type]  # a stub
    return EntryCopier(copies)


def ranges(*parts: tuple[int, int]) -> Iterator[CopyRange]:
    return iter([CopyRange(first, last, ("b2", "b3")) for first, last in parts])


async def turns() -> None:
    """Let everything happen that can."""
    for _ in range(200):
        await asyncio.sleep(0)


async def test_a_copy_counts_when_it_is_durable_and_not_before() -> None:
    target, lost = Target(), list[NoCopy]()
    under_test = copier(Source())
    task = asyncio.create_task(under_test.copy(METADATA, ranges((0, 1), (2, 2)), target.add, lost))
    await turns()
    assert target.added == [0, 1, 2]
    assert (task.done(), under_test.copied_entries) == (False, 0)
    target.answer()
    await task
    assert (under_test.copied_entries, lost) == (3, [])
    assert under_test.copied_bytes > 3


async def test_adds_are_in_the_order_of_the_entries_although_reads_are_not() -> None:
    source, target = Source(), Target()
    source.slow = asyncio.Event()
    task = asyncio.create_task(
        copier(source).copy(METADATA, ranges(*((n, n) for n in range(20))), target.add, [])
    )
    await turns()
    assert source.asked == list(range(COPIES_AT_ONCE))  # no more of them are in memory
    assert target.added == []
    source.slow.set()
    await turns()
    assert target.added == list(range(20))
    target.answer()
    await task


async def test_no_more_is_in_flight_than_the_limit() -> None:
    size = COPY_PENDING_BYTES // 3
    source, target = Source(size), Target()
    task = asyncio.create_task(copier(source).copy(METADATA, ranges((0, 9)), target.add, []))
    await turns()
    assert target.added == [0, 1]
    target.answer()
    await turns()
    assert target.added == [0, 1, 2, 3]
    while not task.done():
        target.answer()
        await turns()
    await task
    assert target.added == list(range(10))


async def test_a_run_that_is_larger_than_the_limit_goes_alone() -> None:
    source, target = Source(COPY_PENDING_BYTES + 1), Target()
    task = asyncio.create_task(copier(source).copy(METADATA, ranges((0, 1)), target.add, []))
    await turns()
    assert target.added == [0]
    target.answer()
    await turns()
    assert target.added == [0, 1]
    target.answer()
    await task


async def test_an_add_that_finds_a_full_cache_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fencelog.bookie.repair.copier._ADD_PAUSE_S", 0.001)
    target = Target()
    under_test = copier(Source())
    task = asyncio.create_task(under_test.copy(METADATA, ranges((0, 2)), target.add, []))
    await turns()
    target.answer(error=FencelogError(ErrorCode.OVERLOADED, "full"))
    await asyncio.sleep(0.05)
    assert (target.added, under_test.copied_entries) == ([0, 1, 2, 0, 1, 2], 0)
    target.answer()
    await task
    assert under_test.copied_entries == 3


async def test_a_cache_that_stays_full_ends_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencelog.bookie.repair.copier._ADD_PAUSE_S", 0.0)
    added = 0

    def add(run: bytes, on_reply: AddCallback) -> None:
        nonlocal added
        added += 1
        error = FencelogError(ErrorCode.OVERLOADED, "full")
        asyncio.get_running_loop().call_soon(on_reply, error)

    with pytest.raises(FencelogError, match="full"):
        await copier(Source()).copy(METADATA, ranges((0, 0)), add, [])
    assert added == 100


async def test_an_add_that_fails_ends_the_copy() -> None:
    target = Target()
    under_test = copier(Source())
    task = asyncio.create_task(under_test.copy(METADATA, ranges((0, 2)), target.add, []))
    await turns()
    target.answer(error=FencelogError(ErrorCode.REQUEST_TIMEOUT, "lost"))
    with pytest.raises(FencelogError, match="lost"):
        await task
    assert under_test.copied_entries == 0


async def test_what_is_to_stop_adds_nothing_that_was_read() -> None:
    target, stopped = Target(), list[PutOff]()
    source = Source()
    source.slow = asyncio.Event()

    def check() -> None:
        if stopped:
            raise stopped[0]

    task = asyncio.create_task(
        copier(source).copy(METADATA, ranges((0, 0), (1, 1)), target.add, [], check=check)
    )
    await turns()
    stopped.append(PutOff("disabled", "turned off"))
    source.slow.set()
    with pytest.raises(PutOff):
        await task
    assert target.added == []


async def test_the_others_are_copied_where_one_entry_is_lost() -> None:
    source, target, lost = Source(), Target(), list[NoCopy]()
    source.lost[1] = ErrorCode.NO_SUCH_ENTRY
    task = asyncio.create_task(copier(source).copy(METADATA, ranges((0, 3)), target.add, lost))
    await turns()
    target.answer()
    await task
    assert (target.added, [missing.entry_id for missing in lost]) == ([0, 2, 3], [1])
    source.lost[2] = ErrorCode.BOOKIE_UNAVAILABLE
    with pytest.raises(NoCopy):
        await copier(source).copy(METADATA, ranges((2, 3)), target.add, lost)
