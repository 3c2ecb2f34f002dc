"""Entry logs on a real disk: their space comes back, and nothing that is live goes with it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from errno import EIO
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.format.records import FILE_HEADER_BYTES, decode_file_header
from fencelog.bookie.gc.files import FileGarbage, FileLimits
from fencelog.bookie.storage.entry_log import StoredRun, decode_footer, entry_log_name
from fencelog.bookie.storage.index import FIRST
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk

FILE_BYTES = 40_000
RUNS = 6
"""The runs of each ledger; a file holds some of each."""

MAJOR = 0.91


class Logs:
    """The entry logs of one bookie, small ones, and the garbage collection of them."""

    def __init__(self, bookie: Bookie, requests: Requests, io_thread: Any) -> None:
        self.bookie, self.requests = bookie, requests
        self.shard = bookie.shards[0]
        self.shard.storage._log._max_file_bytes = FILE_BYTES
        self.directory = self.shard.storage.entry_logs.directory
        self.damage: list[StoredRun] = []
        self.spare_bytes = 0
        self.is_suspended = False
        limits = FileLimits(
            bytes_per_s=1 << 40,
            file_bytes=FILE_BYTES,
            spare_bytes=lambda: self.spare_bytes,
            must_stop=lambda: self.is_suspended,
        )
        self.garbage = FileGarbage(
            self.shard, io_thread, limits, on_damage=lambda run, error: self.damage.append(run)
        )

    async def begin_flush(self) -> None:
        """Begin a flush that takes all there is: one that was running already has not."""
        await self.requests.until(lambda: self.shard.flusher._begun is None)
        self.shard.flusher.request()

    async def flush(self) -> None:
        await self.begin_flush()
        before = self.shard.flusher.completed
        await self.requests.until(lambda: self.shard.flusher.completed > before)

    async def fill(self, ledger_ids: range) -> None:
        """Runs of all the ledgers, flushed one round after the other, so that files mix them."""
        for number in range(RUNS):
            for ledger_id in ledger_ids:
                run = self.requests.run(ledger_id, number * 2, 2, size=800)
                assert await self.requests.add(self.bookie, run) is None
            await self.flush()

    async def remove(self, ledger_ids: Any) -> None:
        for ledger_id in ledger_ids:
            await self.shard.remove(ledger_id, deleted=True)
        await self.flush()

    async def holds(self, ledger_ids: Any) -> None:
        """All that was added of these ledgers can be read."""
        for ledger_id in ledger_ids:
            for entry_id in range(RUNS * 2):
                found = await self.requests.read(self.bookie, ledger_id, entry_id, 1)
                assert found == self.requests.run(ledger_id, entry_id, size=800)

    @property
    def names(self) -> list[str]:
        return PosixDisk().names(self.directory)

    @property
    def used_bytes(self) -> int:
        return sum((self.directory / name).stat().st_size for name in self.names)

    @property
    def live_bytes(self) -> int:
        sizes, rest = self.shard.storage.index.bytes_behind(FIRST, 100_000)
        assert rest is None
        return sum(sizes.values())


@asynccontextmanager
async def logs_of(bookie: Bookie, requests: Requests) -> AsyncIterator[Logs]:
    io_thread = PosixDisk().io_thread("garbage")
    logs = Logs(bookie, requests, io_thread)
    try:
        yield logs
    finally:
        await io_thread.close()
        logs.garbage.close()


@pytest.fixture
async def logs(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> AsyncIterator[Logs]:
    async with logs_of(await open_bookie(disk=faulty_disk, read_cache_bytes=0), requests) as logs:
        yield logs


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


@pytest.mark.parametrize("fault", ["write .entrylog", "sync .entrylog"])
async def test_a_file_that_cannot_be_begun_costs_the_pass_alone(
    logs: Logs, faulty_disk: FaultyDisk, fault: str
) -> None:
    """A full disk does this: the space that the newest file would give back comes later."""
    await logs.fill(range(1, 3))
    await logs.remove([1])
    faulty_disk.fails.add(fault)
    with pytest.raises(OSError, match="made to fail"):
        await logs.garbage.collect(MAJOR)
    faulty_disk.fails.clear()
    await logs.fill(range(3, 5))
    await logs.garbage.collect(MAJOR)
    await logs.holds([2, 3, 4])
    assert logs.used_bytes <= 1.1 * logs.live_bytes + 3 * FILE_HEADER_BYTES


async def test_the_last_that_befalls_a_copy_is_its_sync(
    logs: Logs, faulty_disk: FaultyDisk
) -> None:
    await logs.fill(range(1, 11))
    await logs.remove(range(1, 10))
    faulty_disk.calls.clear()
    await logs.garbage.collect(MAJOR)
    befell = [call.split()[0] for call in faulty_disk.calls if call.endswith(".compacting")]
    assert "write" in befell
    assert befell[-1] == "sync"


@pytest.mark.parametrize("fault", ["write .compacting", "sync .compacting", "read .entrylog"])
async def test_a_disk_that_fails_costs_the_compaction_and_no_run(
    logs: Logs, faulty_disk: FaultyDisk, fault: str
) -> None:
    await logs.fill(range(1, 11))
    await logs.remove(range(1, 10))
    faulty_disk.fails.add(fault)
    if fault.startswith("read"):
        await logs.garbage.collect(MAJOR)
    else:
        with pytest.raises(OSError, match="made to fail"):
            await logs.garbage.collect(MAJOR)
    faulty_disk.fails.clear()
    assert not [name for name in logs.names if name.endswith(".compacting")]
    assert not logs.bookie.failure.done()
    await logs.holds([10])


async def test_old_files_stay_until_the_name_of_the_new_one_is_durable(
    logs: Logs, faulty_disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await logs.fill(range(1, 11))
    await logs.remove(range(1, 10))
    before = set(logs.names)

    rename = faulty_disk.rename

    def rename_and_fail(path: Path, to: Path) -> None:
        rename(path, to)
        if path.suffix == ".compacting":
            monkeypatch.setattr(faulty_disk, "sync_directory", fail)

    def fail(_path: Path) -> None:
        monkeypatch.undo()
        raise OSError(EIO, "made to fail")

    monkeypatch.setattr(faulty_disk, "rename", rename_and_fail)
    with pytest.raises(OSError, match="made to fail"):
        await logs.garbage.collect(MAJOR)
    assert before <= set(logs.names)
    await logs.holds([10])


async def test_an_index_that_cannot_be_written_stops_the_bookie(
    logs: Logs, faulty_disk: FaultyDisk, open_bookie: OpenBookie
) -> None:
    await logs.fill(range(1, 11))
    await logs.remove(range(1, 10))
    faulty_disk.fails.add("write index")
    with pytest.raises(FencelogError) as caught:
        await logs.garbage.collect(MAJOR)
    assert caught.value.code is ErrorCode.STORAGE_FAILED
    assert logs.bookie.failure.done()
    faulty_disk.fails.clear()
    names = logs.names
    with pytest.raises(FencelogError):
        await logs.garbage.collect(MAJOR)
    assert logs.names == names, "what the index shows now may not be on the disk"
    await logs.bookie.close()
    logs.bookie = await open_bookie()
    await logs.holds([10])


async def test_no_file_goes_for_what_the_index_shows_and_the_disk_lacks(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush that removes all ledgers fails while a pass has begun: its items can be seen, but
    the next start may not find them."""
    await logs.fill(range(1, 3))
    names, begun, go_on = set(logs.names), Event(), Event()
    store = logs.shard.storage.index._store
    write = store.write

    def seen_but_not_durable(
        items: Iterable[tuple[bytes, bytes]], *, delete: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        begun.set()
        go_on.wait()
        write(items, delete=delete)
        raise OSError(EIO, "made to fail")

    monkeypatch.setattr(store, "write", seen_but_not_durable)
    for ledger_id in (1, 2):
        await logs.shard.remove(ledger_id, deleted=True)
    await logs.begin_flush()
    await logs.requests.until(begun.is_set)
    collecting = asyncio.create_task(logs.garbage.collect(0.0))
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(FencelogError) as caught:
        await collecting
    assert caught.value.code is ErrorCode.STORAGE_FAILED
    assert names <= set(logs.names)


def count_all_effects(disk: Any) -> Any:
    """Names change on the disk, too: a process may die there as well. What it reads does nothing
    to the disk."""
    on_call = disk.on_call
    disk.on_call = lambda what, name: None if what == "read" else on_call(what, name)
    create, rename, sync_directory = disk.create, disk.rename, disk.sync_directory

    def counted(what: str, call: Any) -> Any:
        def on_path(path: Path, *rest: Path) -> Any:
            disk.on_call(what, path.name)
            return call(path, *rest)

        return on_path

    disk.create, disk.rename = counted("create", create), counted("rename", rename)
    disk.sync_directory = counted("sync directory", sync_directory)
    return disk


async def test_a_process_that_dies_anywhere_in_a_compaction_loses_and_leaves_nothing(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk, tmp_path: Path
) -> None:
    async with logs_of(await open_bookie(), requests) as logs:
        await logs.fill(range(1, 11))
        await logs.remove(i for i in range(1, 11) if i not in (3, 7))
        await logs.bookie.close()
    calls, is_through = 0, False
    while not is_through:
        data = tmp_path / str(calls)
        shutil.copytree(tmp_path / "data", data)
        disk = count_all_effects(type(faulty_disk)())
        async with logs_of(await open_bookie(data_dir=data, disk=disk), requests) as logs:
            await logs.flush()
            disk.calls.clear()
            disk.calls_left = calls
            with suppress(FencelogError, OSError):
                await logs.garbage.collect(MAJOR)
                is_through = disk.calls_left >= 0
            await logs.bookie.close()
        async with logs_of(await open_bookie(data_dir=data, read_cache_bytes=0), requests) as logs:
            assert not [name for name in logs.names if name.endswith(".compacting")]
            await logs.holds([3, 7])
            await logs.garbage.collect(MAJOR)
            await logs.holds([3, 7])
            assert logs.used_bytes <= 1.1 * logs.live_bytes + 3 * FILE_HEADER_BYTES
            assert logs.damage == []
            await logs.bookie.close()
        shutil.rmtree(data)
        calls += 1
    assert {call.split()[0] for call in disk.calls} >= {"create", "write", "sync", "rename"}
    assert calls > 10
