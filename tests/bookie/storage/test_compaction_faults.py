"""Compaction on a disk that fails, and in a process that dies."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from errno import EIO
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from fencelog.bookie.format.records import FILE_HEADER_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.bookie.storage.compacted_logs import MAJOR, Logs, logs_of
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk


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
