"""Copies on their way: reads ahead, adds in flight; nothing counts before it is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from copy import copy
from functools import partial
from typing import Any

import pytest

from fencelog.bookie.disk.rate_limit import Pace
from fencelog.bookie.repair.copier import EntryCopier
from fencelog.bookie.repair.copies import Copies, NoCopy, PutOff
from fencelog.bookie.repair.core import CopyRange
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Range
from fencelog.ledgers.format.run import build_run, read_run_header
from fencelog.ledgers.ledger_metadata.model import new_metadata
from fencelog.ledgers.limits import COPIES_AT_ONCE, COPY_PENDING_BYTES, COPY_READ_BYTES
from fencelog.ledgers.rpc.bookie_port import AddCallback, BookieInfo, ReadReply
from tests.support.until import until

METADATA = new_metadata(
    1, ensemble=("b1", "b2", "b3"), write_quorum=3, ack_quorum=2, token="t"
).closed(last_entry_id=99, length=100)


class Source:
    """A directory of bookies that have every entry, of ``payload_bytes`` each, and return one at a
    time; ``lost``: those that none of them has. ``ranges``: the ranges that were asked for together
    of each bookie, which returns them up to ``most`` entries, and those of ``refusing`` none."""

    def __init__(self, payload_bytes: int = 1) -> None:
        self._payload = bytes(payload_bytes)
        self.asked: list[int] = []
        self.lost: dict[int, ErrorCode] = {}
        self.slow: asyncio.Event | None = None
        self.ranges: list[tuple[str, list[Range]]] = []
        self.most = 10_000
        self.refusing: dict[str, ErrorCode] = {}
        self.limits: set[int] = set()

    def describe(self, bookie_id: str) -> BookieInfo:
        return BookieInfo(bookie_id)

    def client(self, bookie_id: str) -> Any:
        client: Any = copy(self)
        client.read_ranges = partial(self.read_ranges_of, bookie_id)
        return client

    async def read_ranges_of(
        self, bookie_id: str, ledger_id: int, ranges: Sequence[Range], *, max_bytes: int
    ) -> list[bytes]:
        self.ranges.append((bookie_id, list(ranges)))
        self.limits.add(max_bytes)
        if self.slow is not None and ranges[0][0] == 0:
            await self.slow.wait()
        if bookie_id in self.refusing:
            raise FencelogError(self.refusing[bookie_id], "as told")
        wanted = [n for first, last in ranges for n in range(first, last + 1)]
        there = [n for n in wanted[: self.most] if n not in self.lost]
        if not there:
            raise FencelogError(ErrorCode.NO_SUCH_ENTRY, "as told")
        return [build_run(ledger_id, n, [self._payload], lac=-1, length_before=0) for n in there]

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
    assert target.added == [0]  # adjacent entries of several ranges are one add
    assert (task.done(), under_test.copied_entries) == (False, 0)
    target.answer()
    await task
    assert (under_test.copied_entries, lost) == (3, [])
    assert under_test.copied_bytes > 3


async def test_adds_are_in_the_order_of_the_entries_although_reads_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fencelog.bookie.repair.copies.entries_of_read", lambda *_: 1)
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
    await until(lambda: len(target.added) == 6)
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


# -- ranges that are read together ---------------------------------------------------------------

ROWS = [(n, n + 1) for n in range(0, 40, 4)]
"""Entries of a striped ledger: two of every four, each with its own order of sources."""


def rows() -> Iterator[CopyRange]:
    for first, last in ROWS:
        yield CopyRange(first, first, ("b2", "b3"))
        yield CopyRange(last, last, ("b3", "b2"))


async def copy_rows(source: Source, lost: list[NoCopy], monkeypatch: pytest.MonkeyPatch) -> Target:
    """Copy the rows, ten entries at a time, by a worker that nothing limits."""
    monkeypatch.setattr("fencelog.bookie.repair.copies.entries_of_read", lambda *_: 10)
    target = Target()
    task = asyncio.create_task(copier(source).copy(METADATA, rows(), target.add, lost))
    while not task.done():
        await turns()
        target.answer()
    await task
    return target


async def test_rows_are_read_together_and_added_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source()
    target = await copy_rows(source, [], monkeypatch)
    assert target.added == [first for first, _ in ROWS]
    # The second of each row is asked of the source of the first, which has it too.
    assert source.ranges == [("b2", ROWS[n : n + 5]) for n in (0, 5)]
    assert source.asked == []
    assert source.limits == {COPY_READ_BYTES}


@pytest.mark.parametrize("code", [ErrorCode.BOOKIE_UNAVAILABLE, ErrorCode.LEDGER_IN_LIMBO])
async def test_what_one_source_does_not_give_is_asked_of_the_next(
    code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source()
    source.refusing["b2"] = code
    target = await copy_rows(source, [], monkeypatch)
    assert target.added == [first for first, _ in ROWS]
    assert source.asked == []
    assert [bookie for bookie, _ in source.ranges].count("b2") == 2  # once for each batch


async def test_an_older_bookie_is_asked_for_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Source()
    source.refusing = dict.fromkeys(("b2", "b3"), ErrorCode.UNSUPPORTED_VERSION)
    lost: list[NoCopy] = []
    target = await copy_rows(source, lost, monkeypatch)
    entries = [n for row in ROWS for n in row]
    assert (source.asked, target.added, lost) == (entries, entries, [])


async def test_what_an_answer_left_out_is_asked_for_again_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Source()
    source.most = 7
    target = await copy_rows(source, [], monkeypatch)
    assert [n for n in target.added if n % 4 == 0] == [first for first, _ in ROWS]
    assert sorted(target.added) == target.added
    assert source.ranges[:2] == [("b2", ROWS[:5]), ("b2", ROWS[5:])]
    assert source.ranges[2:4] == [("b3", [(13, 13)]), ("b2", [(16, 17)])]


async def test_entries_that_nobody_has_are_told_one_by_one_and_the_others_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, lost = Source(), list[NoCopy]()
    source.lost = dict.fromkeys((0, 5, 9, 37), ErrorCode.NO_SUCH_ENTRY)
    target = await copy_rows(source, lost, monkeypatch)
    assert [missing.entry_id for missing in lost] == [0, 5, 9, 37]
    assert target.added == [1, *(first for first, _ in ROWS[1:])]
    assert all(n in source.lost for n in source.asked)


async def test_a_stop_adds_none_of_what_was_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target, stopped = Source(), Target(), list[PutOff]()
    source.slow = asyncio.Event()

    def check() -> None:
        if stopped:
            raise stopped[0]

    task = asyncio.create_task(copier(source).copy(METADATA, rows(), target.add, [], check=check))
    await turns()
    stopped.append(PutOff("lock_lost", "by now"))
    source.slow.set()
    with pytest.raises(PutOff):
        await task
    assert target.added == []
