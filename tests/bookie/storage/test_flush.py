"""A flush moves runs from the cache to the disk, and reads find them at any moment of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.journal.file import journal_ids
from fencelog.bookie.storage.write_cache import CacheHalf
from fencelog.ledgers.format.run import verify_entries
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk


async def test_entries_are_found_while_they_are_flushed(
    open_bookie: OpenBookie, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index has them only when the flush has ended: until then the cache does."""
    bookie = await open_bookie(flush_interval_ms=3_600_000)
    shard = bookie.shard(1)
    shard.flusher.request()  # what the start of a bookie has left to do
    await requests.until(lambda: shard.flusher.completed > 0 and shard.flusher._begun is None)
    before = shard.flusher.completed
    run = requests.run(1, 0, 5)
    assert await requests.add(bookie, run) is None
    store = shard.storage.store
    has_begun, goes_on = threading.Event(), threading.Event()

    def slow(*args: Any) -> None:
        has_begun.set()
        assert goes_on.wait(60)
        store(*args)

    monkeypatch.setattr(shard.storage, "store", slow)
    shard.flusher.request()
    try:
        await requests.until(has_begun.is_set)
        assert await requests.read(bookie, 1, 0) == run
    finally:
        goes_on.set()
    await requests.until(lambda: shard.flusher.completed > before)
    assert await requests.read(bookie, 1, 0) == run


async def test_a_flush_syncs_runs_before_the_index_names_them(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk, flush_interval_ms=3_600_000)
    shard = bookie.shard(1)
    await requests.until(lambda: shard.flusher._begun is None)
    await requests.add(bookie, requests.run(1, 0))
    faulty_disk.calls.clear()
    shard.flusher.request()
    await requests.until(lambda: "write index" in faulty_disk.calls)
    before = faulty_disk.calls[: faulty_disk.calls.index("write index")]
    logged = [call.split()[0] for call in before if call.endswith(".entrylog")]
    assert logged[-2:] == ["write", "sync"]


async def test_a_flush_lets_go_of_the_journal_files_before_its_checkpoint(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    """Kept, they would fill the disk up."""
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0))
    await bookie.close()
    bookie = await open_bookie(flush_interval_ms=20)
    shard = bookie.shard(1)
    await requests.add(bookie, requests.run(1, 1))
    newest = shard.journal.position.file_id
    assert newest > 1
    directory = shard.storage._paths.journal
    await requests.until(lambda: journal_ids(PosixDisk(), directory) == [newest])
    assert await requests.read(bookie, 1, 0, 2) != b""


@pytest.fixture
def merging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Merging]:
    """Merging in the smallest steps, each of which waits until it may take place."""
    monkeypatch.setattr("fencelog.bookie.storage.write_cache._STEP", 1)
    merging = Merging()
    merge = CacheHalf.merge

    def slow(half: CacheHalf) -> Iterator[None]:
        for _ in merge(half):
            merging.steps += 1
            while not merging.may_go_on:
                yield
            yield

    monkeypatch.setattr(CacheHalf, "merge", slow)
    yield merging
    merging.may_go_on = True


class Merging:
    """The steps that were made. ``may_go_on``: nothing holds up the next one."""

    def __init__(self) -> None:
        self.steps = 0
        self.may_go_on = True


LEDGERS, ENTRIES = range(50), range(3)


async def begin_to_merge(bookie: Bookie, requests: Requests, merging: Merging) -> None:
    """Begin a flush, which waits after its first step."""
    shard = bookie.shard(1)
    await requests.until(lambda: shard.flusher._begun is None)
    runs = [requests.run(ledger_id, entry_id) for ledger_id in LEDGERS for entry_id in ENTRIES]
    assert await requests.add_many(bookie, runs) == [None] * len(runs)
    merging.may_go_on, merging.steps = False, 0
    shard.flusher.request()
    await requests.until(lambda: merging.steps == 1)


async def check_entries(bookie: Bookie, requests: Requests) -> None:
    for ledger_id in LEDGERS:
        entries = verify_entries(await requests.read(bookie, ledger_id, 0, len(ENTRIES)))
        assert [entry.entry_id for entry in entries] == [*ENTRIES]


async def test_entries_are_found_and_added_while_runs_are_merged(
    open_bookie: OpenBookie, requests: Requests, merging: Merging
) -> None:
    bookie = await open_bookie(flush_interval_ms=3_600_000)
    await begin_to_merge(bookie, requests, merging)
    await check_entries(bookie, requests)
    assert await requests.add(bookie, requests.run(1, len(ENTRIES))) is None
    assert merging.steps == 1
    completed = bookie.shard(1).flusher.completed
    merging.may_go_on = True
    await requests.until(lambda: bookie.shard(1).flusher.completed > completed)
    assert merging.steps >= len(LEDGERS)
    await check_entries(bookie, requests)
    last = verify_entries(await requests.read(bookie, 1, len(ENTRIES)))
    assert [entry.entry_id for entry in last] == [len(ENTRIES)]


async def test_a_bookie_that_closes_while_runs_are_merged_has_all_of_them(
    open_bookie: OpenBookie, requests: Requests, merging: Merging
) -> None:
    bookie = await open_bookie(flush_interval_ms=3_600_000)
    await begin_to_merge(bookie, requests, merging)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(bookie.close())
        await asyncio.sleep(0)
        merging.may_go_on = True
    await check_entries(await open_bookie(), requests)


async def test_a_flush_that_is_held_back_while_it_merges_writes_nothing(
    open_bookie: OpenBookie, requests: Requests, merging: Merging, faulty_disk: FaultyDisk
) -> None:
    """There is no space on the disk for it."""
    bookie = await open_bookie(disk=faulty_disk, flush_interval_ms=3_600_000)
    flusher = bookie.shard(1).flusher
    await begin_to_merge(bookie, requests, merging)
    completed = flusher.completed
    faulty_disk.calls.clear()
    flusher.hold(True)
    merging.may_go_on = True
    await requests.until(lambda: merging.steps >= len(LEDGERS))
    for _ in range(20):
        await asyncio.sleep(0)
    assert (flusher.completed, faulty_disk.calls) == (completed, [])
    flusher.hold(False)
    await requests.until(lambda: flusher.completed > completed)
    await check_entries(bookie, requests)
