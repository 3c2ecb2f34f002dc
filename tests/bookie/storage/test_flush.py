"""A flush moves runs from the cache to the disk, and reads find them at any moment of it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.journal.file import journal_ids
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


async def test_entries_are_found_and_added_while_runs_are_merged(
    open_bookie: OpenBookie, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.bookie.storage.write_cache._STEP", 1)
    bookie = await open_bookie(flush_interval_ms=3_600_000)
    shard = bookie.shard(1)
    await requests.until(lambda: shard.flusher._begun is None)
    count, ledgers = 3, range(50)
    runs = [requests.run(ledger_id, entry) for ledger_id in ledgers for entry in range(count)]
    assert await requests.add_many(bookie, runs) == [None] * len(runs)
    completed, steps, added = shard.flusher.completed, 0, count
    shard.flusher.request()
    while shard.flusher.completed == completed:
        steps += 1
        for ledger_id, entry_id in ((1, steps % added), (steps % len(ledgers), steps % count)):
            found = await requests.read(bookie, ledger_id, entry_id)
            assert verify_entries(found)[0].entry_id == entry_id
        assert await requests.add(bookie, requests.run(1, added)) is None
        added += 1
    assert steps > 0
    entries = verify_entries(await requests.read(bookie, 1, 0, count))
    assert [entry.entry_id for entry in entries] == list(range(count))
    assert verify_entries(await requests.read(bookie, 1, added - 1))[0].entry_id == added - 1


async def test_a_bookie_that_closes_while_runs_are_merged_has_all_of_them(
    open_bookie: OpenBookie, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.bookie.storage.write_cache._STEP", 1)
    bookie = await open_bookie(flush_interval_ms=3_600_000)
    shard = bookie.shard(1)
    await requests.until(lambda: shard.flusher._begun is None)
    for ledger_id in range(9):
        for entry_id in range(3):
            await requests.add(bookie, requests.run(ledger_id, entry_id))
    shard.flusher.request()
    await asyncio.sleep(0)
    assert shard.flusher._begun is not None
    await bookie.close()
    bookie = await open_bookie()
    for ledger_id in range(9):
        entries = verify_entries(await requests.read(bookie, ledger_id, 0, 3))
        assert [entry.entry_id for entry in entries] == [0, 1, 2]
