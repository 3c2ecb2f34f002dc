"""Where entries lie in entry logs, for clients of the machine: named where they are stored and
large, and neither read nor kept here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fencelog.bookie.engine.bookie import Bookie
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import read_run_header, verify_run
from fencelog.ledgers.limits import KIB, MAX_READ_BYTES, MIB, MIN_PLACED_BYTES
from fencelog.ledgers.rpc.handshake import FEATURES, PLACES
from fencelog.ledgers.rpc.places import PlacedRuns, end_of_runs
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk

SIZE = 100 * KIB


async def stored(
    open_bookie: OpenBookie, requests: Requests, *runs: bytes, disk: FaultyDisk | None = None
) -> Bookie:
    """A bookie that has runs in its entry logs, and none in its cache."""
    bookie = await open_bookie(disk=disk)
    for run in runs:
        assert await requests.add(bookie, run) is None
    await bookie.close()
    return await open_bookie(disk=disk)


async def places(
    bookie: Bookie, first: int, max_entries: int = 4096, max_bytes: int = MAX_READ_BYTES
) -> PlacedRuns | None:
    found = await bookie.places(1, first, max_entries=max_entries, max_bytes=max_bytes)
    return None if found is None else found[1]


def entries(found: PlacedRuns | None) -> list[tuple[int, int]]:
    """Read the file; return the entries of each run, which is intact."""
    assert found is not None
    content = Path(os.fsdecode(found.path)).read_bytes()
    assert content[:64] == found.head
    runs = [content[offset : offset + size] for offset, size in found.places]
    for run in runs:
        verify_run(run)
    headers = [read_run_header(run) for run in runs]
    data, first = content[found.offset : found.offset + found.size], headers[0].first_entry_id
    assert end_of_runs(found.in_memory, data, 1, first) == headers[-1].last_entry_id + 1
    return [(header.first_entry_id, header.last_entry_id) for header in headers]


async def test_stored_entries_are_named_and_not_read(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    runs = [requests.run(1, first, 8, lac=first - 1, size=SIZE) for first in range(0, 80, 8)]
    bookie = await stored(open_bookie, requests, *runs, disk=faulty_disk)
    faulty_disk.calls.clear()
    found = await places(bookie, 0)
    assert entries(found) == [(n, n + 7) for n in range(0, 40, 8)]
    assert entries(await places(bookie, 40)) == [(n, n + 7) for n in range(40, 80, 8)]
    reads = [call for call in faulty_disk.calls if call.startswith("read") and "entrylog" in call]
    assert len(reads) == 3  # the file's header: as it is opened, and for each answer
    counts = bookie.metrics
    assert (counts.placed_reads, counts.disk_reads, counts.read_cache_hits) == (2, 0, 0)
    assert found is not None
    assert found.size <= MAX_READ_BYTES
    asked = await bookie.places(1, 0, max_entries=1, max_bytes=MAX_READ_BYTES)
    assert asked is None
    asked = await bookie.places(1, 0, max_entries=8, max_bytes=MAX_READ_BYTES)
    assert asked is not None
    assert asked[0] == 71


async def test_a_run_that_the_entry_is_in_the_middle_of_is_named(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    runs = [requests.run(1, first, 8, size=SIZE) for first in (0, 8)]
    bookie = await stored(open_bookie, requests, *runs)
    assert entries(await places(bookie, 3)) == [(0, 7), (8, 15)]
    # The last three of the first run alone would do, those of the second do not.
    assert entries(await places(bookie, 5, max_entries=4)) == [(0, 7)]
    assert await places(bookie, 6) is None  # too little of the first run is wanted
    assert entries(await places(bookie, 0, max_entries=11)) == [(0, 7), (8, 15)]


async def test_an_answer_keeps_to_the_size_that_was_asked_for(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await stored(open_bookie, requests, requests.run(1, 0, 8, size=SIZE))
    assert await places(bookie, 0, max_bytes=8 * SIZE) is None
    assert entries(await places(bookie, 0, max_bytes=MIB)) == [(0, 7)]


async def test_small_runs_are_answered_with_bytes(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    small = MIN_PLACED_BYTES // 2
    runs = [requests.run(1, 0, size=small), requests.run(2, 0, size=3 * small)]
    bookie = await stored(open_bookie, requests, *runs)
    assert await places(bookie, 0) is None
    found = await bookie.places(2, 0, max_entries=1, max_bytes=MAX_READ_BYTES)
    assert found is not None


async def test_what_is_in_memory_is_answered_with_bytes(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await stored(open_bookie, requests, requests.run(1, 0, 8, size=SIZE))
    await requests.add(bookie, requests.run(1, 8, 8, size=SIZE))
    assert entries(await places(bookie, 0)) == [(0, 7)]
    assert await places(bookie, 8) is None
    assert await places(bookie, 16) is None
    with pytest.raises(FencelogError) as caught:
        await bookie.places(2, 0, max_entries=1, max_bytes=1)
    assert caught.value.code is ErrorCode.NO_SUCH_LEDGER


async def test_the_place_of_a_damaged_run_is_not_named_once_its_replacement_is_there(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    run = requests.run(1, 0, 8, size=SIZE)
    bookie = await stored(open_bookie, requests, run)
    await bookie.read_lac(1, fence=True)
    await bookie.shard(1).adds.replace(run)
    assert await places(bookie, 0) is None
    assert await requests.read(bookie, 1, 0) == run


async def test_entries_that_are_not_in_a_row_are_asked_for_separately(
    open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    bookie = await stored(
        open_bookie,
        requests,
        requests.run(1, 0, 8, size=SIZE),
        requests.run(1, 9, 8, size=SIZE),
        requests.run(2, 0, 8, size=SIZE),
    )
    for first in (17, 25):
        assert await requests.add(bookie, requests.run(1, first, 8, size=SIZE)) is None
    await bookie.close()
    bookie = await open_bookie()
    assert entries(await places(bookie, 0)) == [(0, 7)]  # entry 8 is not here
    assert entries(await places(bookie, 9)) == [(9, 16)]  # the next one is in another file
    assert entries(await places(bookie, 17)) == [(17, 24), (25, 32)]
    assert len(list((tmp_path / "data" / "entrylog").iterdir())) == 2


async def test_runs_of_several_flushes_are_named_together(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    flusher = bookie.shard(1).flusher
    for ledger_id, first in ((1, 0), (2, 0), (1, 8)):
        assert await requests.add(bookie, requests.run(ledger_id, first, 8, size=SIZE)) is None
        flusher.request()
        await requests.until(lambda: not bookie.shard(1).cache.size)
    found = await places(bookie, 0)
    assert entries(found) == [(0, 7), (8, 15)]
    assert found is not None
    assert [len(part.places) for part in found.split(MAX_READ_BYTES)] == [1, 1]


async def test_a_file_that_is_not_there_is_left_to_the_read(
    open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    bookie = await stored(open_bookie, requests, requests.run(1, 0, 8, size=SIZE))
    (file,) = (tmp_path / "data" / "entrylog").iterdir()
    file.unlink()
    assert await places(bookie, 0) is None
    with pytest.raises(FencelogError) as caught:
        await requests.read(bookie, 1, 0)
    assert caught.value.code is ErrorCode.STORAGE_FAILED


async def test_a_bookie_offers_local_reads_unless_they_are_switched_off(
    open_bookie: OpenBookie,
) -> None:
    bookie = await open_bookie()
    assert bookie.features == FEATURES
    await bookie.close()
    bookie = await open_bookie(local_reads=False)
    assert bookie.features == FEATURES - {PLACES}
