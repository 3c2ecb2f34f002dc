"""Reads of several ranges: what is there, from cache and entry logs, and no word about the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from fencelog.bookie.engine.bookie import Bookie
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Range
from fencelog.ledgers.format.run import verify_entries, verify_run
from fencelog.ledgers.limits import MAX_READ_BYTES
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk

ROWS = [(n, n + 2) for n in range(0, 400, 4)]
"""The entries that a bookie has of a striped ledger: three of every four."""


async def fill(bookie: Bookie, requests: Requests, rows: Sequence[Range], size: int = 100) -> None:
    for first, last in rows:
        run = requests.run(1, first, last - first + 1, size=size)
        assert await requests.add(bookie, run) is None


async def read(
    bookie: Bookie, ranges: Sequence[Range], max_bytes: int = MAX_READ_BYTES
) -> list[Range]:
    """Read ranges; return those that came, each verified, with its own entries."""
    found: list[Range] = []
    for run in await bookie.read_ranges(1, ranges, max_bytes=max_bytes):
        header = verify_run(run)
        for entry in verify_entries(run):
            assert bytes(entry.payload).startswith(f"1/{entry.entry_id}|".encode())
        found.append((header.first_entry_id, header.last_entry_id))
    return found


async def stored(
    open_bookie: OpenBookie, requests: Requests, rows: Sequence[Range], size: int = 100
) -> Bookie:
    """A bookie that has rows in its entry logs, and none in its cache."""
    bookie = await open_bookie()
    await fill(bookie, requests, rows, size)
    await bookie.close()
    return await open_bookie()


@pytest.mark.parametrize("is_stored", [False, True], ids=["cached", "stored"])
async def test_rows_of_a_striped_ledger_come_in_one_answer(
    open_bookie: OpenBookie, requests: Requests, *, is_stored: bool
) -> None:
    if is_stored:
        bookie = await stored(open_bookie, requests, ROWS)
    else:
        bookie = await open_bookie()
        await fill(bookie, requests, ROWS)
    assert await read(bookie, ROWS) == ROWS
    parts = [(n + 1, n + 1) for n, _ in ROWS[::3]]
    assert await read(bookie, parts) == parts
    # An entry that is missing says nothing, and does not keep the others back.
    assert await read(bookie, [(3, 3), (7, 9), (13, 20), (396, 500)]) == [(13, 14), (396, 398)]


async def test_rows_come_from_cache_and_entry_logs_together(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await stored(open_bookie, requests, ROWS[:50])
    await fill(bookie, requests, ROWS[50:])
    assert await read(bookie, ROWS) == ROWS
    assert await read(bookie, ROWS[49:51]) == ROWS[49:51]


async def test_an_answer_ends_at_its_size_and_has_one_entry_at_least(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await stored(open_bookie, requests, ROWS[:50], size=10_000)
    await fill(bookie, requests, ROWS[50:], size=10_000)
    for ranges in (ROWS, ROWS[50:]):
        assert await read(bookie, ranges, 1) == [(ranges[0][0], ranges[0][0])]
        some = await read(bookie, ranges, 100_000)
        assert some == ranges[:3]
    assert await read(bookie, [(0, 0)], 10**9) == [(0, 0)]


async def test_a_run_that_holds_several_ranges_is_read_once(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    await fill(bookie, requests, [(0, 499)])
    await bookie.close()
    bookie = await open_bookie(disk=faulty_disk)
    faulty_disk.calls.clear()
    wanted = [(n, n) for n in range(0, 500, 5)]
    assert await read(bookie, wanted) == wanted
    reads = [c for c in faulty_disk.calls if c.startswith("read") and c.endswith(".entrylog")]
    assert len(reads) <= 2  # the header of the file, and the run


async def test_ranges_far_apart_are_found(open_bookie: OpenBookie, requests: Requests) -> None:
    rows = [(0, 2), (70, 70), (10_000, 10_003), (2**40, 2**40 + 1)]
    bookie = await stored(open_bookie, requests, rows)
    assert await read(bookie, rows) == rows
    assert await read(bookie, [(5, 5), (10_001, 10_002), (2**41, 2**41)]) == [(10_001, 10_002)]


async def code_of(bookie: Bookie, ranges: Sequence[Range], ledger_id: int = 1) -> ErrorCode:
    with pytest.raises(FencelogError) as caught:
        await bookie.read_ranges(ledger_id, ranges, max_bytes=1000)
    return caught.value.code


async def test_nothing_found_is_answered_as_a_read_is(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await stored(open_bookie, requests, ROWS)
    assert await code_of(bookie, [(3, 3), (7, 7)]) is ErrorCode.NO_SUCH_ENTRY
    assert await code_of(bookie, [(1000, 2000)]) is ErrorCode.NO_SUCH_ENTRY
    assert await code_of(bookie, [(0, 0)], 2) is ErrorCode.NO_SUCH_LEDGER
    bookie.fence_forgotten(1)
    await bookie.forgotten_are_fenced()
    assert await code_of(bookie, [(3, 3), (7, 7)]) is ErrorCode.LEDGER_IN_LIMBO
    assert await read(bookie, [(3, 3), (4, 4)]) == [(4, 4)]


async def test_a_ledger_that_is_repaired_during_a_read_is_still_unknown_to_it(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    """The read has looked where the entries were not yet."""
    bookie = await open_bookie(disk=faulty_disk)
    await fill(bookie, requests, ROWS)
    await bookie.close()
    bookie = await open_bookie(disk=faulty_disk)
    bookie.fence_forgotten(1)
    await bookie.forgotten_are_fenced()
    faulty_disk.waits.add("read index")
    faulty_disk.calls.clear()
    reading = asyncio.get_running_loop().create_task(code_of(bookie, [(3, 3), (7, 7)]))
    try:
        await requests.until(lambda: "read index" in faulty_disk.calls)
        await bookie.clear_limbo(1)
    finally:
        faulty_disk.waits.clear()  # or the bookie could not be closed
    assert await reading is ErrorCode.LEDGER_IN_LIMBO


async def test_damage_ends_an_answer_and_is_told_to_who_asks_for_it(
    open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    bookie = await stored(open_bookie, requests, [(0, 0), (2, 2), (4, 4)], size=5000)
    (log,) = tmp_path.rglob("*.entrylog")
    content = bytearray(log.read_bytes())
    content[content.index(b"1/2|")] ^= 1
    log.write_bytes(content)
    assert await read(bookie, [(0, 0), (2, 2), (4, 4)]) == [(0, 0)]
    assert await code_of(bookie, [(2, 2), (4, 4)]) is ErrorCode.CORRUPT
    assert await read(bookie, [(4, 4)]) == [(4, 4)]
