"""Entry logs on a real disk: their space comes back, and nothing that is live goes with it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.format.records import FILE_HEADER_BYTES, decode_file_header
from fencelog.bookie.storage.entry_log import decode_footer, entry_log_name
from fencelog.bookie.storage.index import FIRST
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.bookie.storage.compacted_logs import FILE_BYTES, MAJOR, Logs
from tests.support.bookie_stage import OpenBookie
from tests.support.faulty_disk import FaultyDisk


async def test_the_space_comes_back_to_within_a_tenth_of_what_is_live(logs: Logs) -> None:
    await logs.fill(range(1, 21))
    full = logs.used_bytes
    await logs.remove(i for i in range(1, 21) if i % 5)
    await logs.garbage.collect(MAJOR)
    assert logs.live_bytes < full / 4
    assert logs.used_bytes <= 1.1 * logs.live_bytes + 2 * FILE_HEADER_BYTES + FILE_BYTES * 0.02
    await logs.holds(range(5, 21, 5))
    before = logs.garbage.copied_bytes
    await logs.garbage.collect(MAJOR)
    assert logs.garbage.copied_bytes == before, "what is dense is not copied again"


async def test_nothing_is_left_of_ledgers_that_were_all_deleted(
    logs: Logs, open_bookie: OpenBookie
) -> None:
    await logs.fill(range(1, 11))
    assert len(logs.names) > 2
    await logs.remove(range(1, 11))
    await logs.garbage.collect(0.0)
    (name,) = logs.names
    assert logs.used_bytes == FILE_HEADER_BYTES, "a file to write to, and the highest number"
    await logs.garbage.collect(0.0)
    assert logs.names == [name], "it is not begun anew for nothing"
    await logs.bookie.close()
    bookie = await open_bookie()
    assert await logs.requests.add(bookie, logs.requests.run(99, 0)) is None
    await bookie.close()
    assert logs.names == [name, entry_log_name(int(name[:16], 16) + 1)], "no number comes twice"


async def test_minor_compaction_takes_the_emptiest_alone(logs: Logs) -> None:
    await logs.fill(range(1, 11))
    await logs.remove(range(1, 6))
    await logs.garbage.collect(0.2)
    assert logs.garbage.copied_bytes == 0
    await logs.remove(range(6, 10))
    await logs.garbage.collect(0.2)
    assert 0 < logs.garbage.copied_bytes <= logs.live_bytes
    await logs.holds([10])


async def test_a_compacted_file_is_whole(logs: Logs) -> None:
    await logs.fill(range(1, 11))
    await logs.remove(range(1, 10))
    await logs.garbage.collect(MAJOR)
    sizes, _ = logs.shard.storage.index.bytes_behind(FIRST, 1000)
    (file_id,) = sizes
    file = PosixDisk().open(logs.directory / entry_log_name(file_id))
    header = decode_file_header(file.read(0, FILE_HEADER_BYTES))
    assert header is not None
    assert decode_footer(file, seed=header.seed) == {10: logs.live_bytes}
    file.close()


async def test_readers_meet_no_gap_while_their_runs_are_moved(logs: Logs) -> None:
    await logs.fill(range(1, 11))
    await logs.remove(range(1, 9))
    reads, done = 0, False

    async def read_on() -> None:
        nonlocal reads
        while not done:
            await logs.holds([9, 10])
            reads += 1
            await asyncio.sleep(0)

    reading = asyncio.get_running_loop().create_task(read_on())
    await logs.requests.until(lambda: reads > 0)
    old = set(logs.names)
    await logs.garbage.collect(MAJOR)
    done = True
    await reading
    assert not old & set(logs.names)
    open_files = {Path(f).resolve() for f in Path("/proc/self/fd").iterdir()}
    assert not [f for f in open_files if "(deleted)" in str(f) and "entrylog" in str(f)]


async def test_what_is_removed_or_replaced_while_it_is_copied_stays_so(
    logs: Logs, faulty_disk: FaultyDisk
) -> None:
    await logs.fill(range(1, 11))
    await logs.remove(range(1, 8))
    faulty_disk.waits.add("write .compacting")
    collecting = asyncio.get_running_loop().create_task(logs.garbage.collect(MAJOR))
    await logs.requests.until(lambda: any(n.endswith(".compacting") for n in logs.names))
    logs.shard.fence(8)
    await logs.shard.adds.replace(logs.requests.run(8, 0, 2, size=800))
    await logs.remove([9])
    faulty_disk.waits.clear()
    await collecting
    await logs.holds([8, 10])
    sizes, _ = logs.shard.storage.index.bytes_behind(FIRST, 1000)
    runs, _ = logs.shard.storage.index.runs_behind(FIRST, 1000)
    assert {run.ledger_id for run in runs} == {8, 10}
    (replaced, *others) = runs
    assert replaced.file_id not in {run.file_id for run in others}
    await logs.garbage.collect(MAJOR)
    assert logs.used_bytes <= 1.1 * sum(sizes.values()) + FILE_BYTES * 0.02


async def test_adds_are_taken_while_compaction_waits_for_its_disk(
    logs: Logs, faulty_disk: FaultyDisk
) -> None:
    await logs.fill(range(1, 11))
    await logs.remove(range(1, 8))
    faulty_disk.waits.add("write .compacting")
    collecting = asyncio.get_running_loop().create_task(logs.garbage.collect(MAJOR))
    await logs.requests.until(lambda: any(n.endswith(".compacting") for n in logs.names))
    await logs.fill(range(20, 25))
    await logs.holds(range(20, 25))
    assert not collecting.done()
    faulty_disk.waits.clear()
    await collecting
    await logs.holds([8, 9, 10, *range(20, 25)])


async def test_a_damaged_run_stays_where_it_is_and_is_reported(logs: Logs) -> None:
    await logs.fill(range(1, 6))
    await logs.remove(range(1, 5))
    runs, _ = logs.shard.storage.index.runs_behind(FIRST, 1000)
    bad = runs[3]
    path = logs.directory / entry_log_name(bad.file_id)
    data = bytearray(path.read_bytes())
    data[bad.offset + 50] ^= 1
    path.write_bytes(data)
    await logs.garbage.collect(MAJOR)
    assert logs.damage == [bad]
    assert path.name in logs.names
    left, _ = logs.shard.storage.index.runs_behind(FIRST, 1000)
    assert [run for run in left if run.file_id == bad.file_id] == [bad], "the others are moved"
    names = logs.names
    await logs.garbage.collect(MAJOR)
    assert logs.names == names, "no file is made for nothing"
    with pytest.raises(FencelogError) as caught:
        await logs.requests.read(logs.bookie, 5, bad.first_entry_id)
    assert caught.value.code is ErrorCode.CORRUPT
    logs.shard.fence(5)
    await logs.shard.adds.replace(logs.requests.run(5, bad.first_entry_id, 2, size=800))
    await logs.flush()
    await logs.garbage.collect(MAJOR)
    assert path.name not in logs.names, "nothing points to it once it is repaired"
    await logs.holds([5])


@pytest.mark.parametrize("offset", [0, 8, 30], ids=["magic", "file id", "directory"])
async def test_a_file_whose_header_is_not_ours_is_never_removed(logs: Logs, offset: int) -> None:
    await logs.fill(range(1, 6))
    name = logs.names[0]
    data = bytearray((logs.directory / name).read_bytes())
    data[offset] ^= 1
    (logs.directory / name).write_bytes(data)
    await logs.remove(range(1, 6))
    await logs.garbage.collect(MAJOR)
    assert logs.names[0] == name
    assert len(logs.names) == 2


async def test_a_file_without_anything_in_it_goes_whatever_its_header(logs: Logs) -> None:
    await logs.fill(range(1, 3))
    empty = logs.directory / entry_log_name(0)
    empty.write_bytes(b"torn")
    await logs.garbage.collect(0.0)
    assert not empty.exists()


async def test_compaction_leaves_the_space_that_others_need(logs: Logs) -> None:
    await logs.fill(range(1, 11))
    await logs.remove(range(1, 10))
    before = logs.names
    logs.spare_bytes = 1 << 60
    with pytest.raises(FencelogError, match="too few to compact"):
        await logs.garbage.collect(MAJOR)
    assert set(before) <= set(logs.names)
    logs.spare_bytes = 0
    await logs.garbage.collect(MAJOR)
    assert not set(before) & set(logs.names)


async def test_bookies_on_one_disk_compact_in_turns(logs: Logs) -> None:
    """A full disk has all of them begin at once, each by what was free then."""
    await logs.fill(range(1, 11))
    await logs.remove(range(1, 10))
    await logs.garbage.collect(0.0)
    before = logs.names
    turn = logs.limits.turn
    async with turn:
        collecting = asyncio.get_running_loop().create_task(logs.garbage.collect(MAJOR))
        await logs.requests.until(lambda: bool(turn._waiters))
        assert (logs.garbage.copied_bytes, set(before) - set(logs.names)) == (0, set())
    await collecting
    assert not set(before) & set(logs.names)
    assert not turn.locked()


async def test_suspended_it_leaves_nothing_half_done(logs: Logs, faulty_disk: FaultyDisk) -> None:
    await logs.fill(range(1, 11))
    await logs.remove(range(1, 10))
    faulty_disk.waits.add("write .compacting")
    collecting = asyncio.get_running_loop().create_task(logs.garbage.collect(MAJOR))
    await logs.requests.until(lambda: any(n.endswith(".compacting") for n in logs.names))
    logs.is_suspended = True
    faulty_disk.waits.clear()
    await collecting
    assert not [name for name in logs.names if name.endswith(".compacting")]
    await logs.holds([10])
