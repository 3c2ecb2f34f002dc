"""Reading a ledger from front to back: the disk is ahead of the reader."""

from __future__ import annotations

import asyncio
from typing import Any, Unpack

import pytest

from fencelog.bookie.engine.bookie import Bookie
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import read_run_header, run_starts
from tests.support.bookie_stage import BookieSettings, OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk


async def filled(
    open_bookie: OpenBookie,
    requests: Requests,
    disk: FaultyDisk,
    entries: int,
    **config: Unpack[BookieSettings],
) -> Bookie:
    """A bookie whose ledger 1 is in entry logs alone, as runs of about 1 MiB."""
    bookie = await open_bookie(disk=disk)
    for first in range(0, entries, 40):
        assert await requests.add(bookie, requests.run(1, first, 40, size=20_000)) is None
    await bookie.close()
    bookie = await open_bookie(disk=disk, **config)
    disk.calls.clear()
    return bookie


def log_reads(disk: FaultyDisk) -> int:
    return sum(call.startswith("read") and call.endswith(".entrylog") for call in disk.calls)


async def read_all(bookie: Bookie, entries: int, step: int) -> int:
    """Read in order; how many requests it took."""
    entry_id = requests = 0
    while entry_id < entries:
        reply = await bookie.read(1, entry_id, max_entries=step, max_bytes=1 << 20)
        header = read_run_header(reply.run)
        assert header.first_entry_id == entry_id
        for at, start in enumerate(run_starts(reply.run, header)):
            assert f"1/{entry_id + at}|".encode() in reply.run[start : start + 100]
        entry_id = header.last_entry_id + 1
        requests += 1
    return requests


async def test_entry_by_entry_costs_one_read_of_each_run(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await filled(open_bookie, requests, faulty_disk, 400)
    assert await read_all(bookie, 400, step=1) == 400
    assert log_reads(faulty_disk) <= 15
    assert await read_all(bookie, 400, step=1) == 400
    assert log_reads(faulty_disk) <= 15


async def test_without_a_cache_every_read_goes_to_the_disk(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await filled(open_bookie, requests, faulty_disk, 120, read_cache_bytes=0)
    await read_all(bookie, 120, step=1)
    assert log_reads(faulty_disk) >= 120


async def test_what_follows_is_there_before_it_is_asked_for(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await filled(open_bookie, requests, faulty_disk, 400)
    await bookie.read(1, 0, max_entries=10, max_bytes=1 << 20)
    ahead = bookie.shards[0].reads._stored
    await requests.until(lambda: not ahead._ahead)
    read = log_reads(faulty_disk)
    reply = await bookie.read(1, 50, max_entries=10, max_bytes=1 << 20)
    assert read_run_header(reply.run).first_entry_id == 50
    assert ahead.cached(1, 60, max_entries=1, max_bytes=1) is not None
    assert read >= 2
    await requests.until(lambda: not ahead._ahead)


async def test_an_entry_that_was_not_read_ahead_is_looked_for(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await filled(open_bookie, requests, faulty_disk, 400)
    await bookie.read(1, 0, max_entries=10, max_bytes=1 << 20)
    assert bookie.shards[0].reads._stored._ahead  # some of the next ones are being read
    reply = await bookie.read(1, 390, max_entries=10, max_bytes=1 << 20)
    assert read_run_header(reply.run).first_entry_id == 390


async def test_jumping_about_reads_nothing_ahead(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await filled(open_bookie, requests, faulty_disk, 400, read_cache_bytes=1 << 20)
    for entry_id in (350, 120, 300, 80):
        await bookie.read(1, entry_id, max_entries=1, max_bytes=1)
        assert not bookie.shards[0].reads._stored._ahead


async def test_damage_ahead_is_met_by_who_asks_for_it(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk, tmp_path: Any
) -> None:
    bookie = await filled(open_bookie, requests, faulty_disk, 400)
    (log,) = (path for path in tmp_path.rglob("*.entrylog") if path.stat().st_size > 1 << 20)
    with log.open("r+b") as file:
        file.seek(log.stat().st_size // 2)
        file.write(b"damaged!")
    with pytest.raises(FencelogError) as caught:
        await read_all(bookie, 400, step=10)
    assert caught.value.code is ErrorCode.CORRUPT
    reply = await bookie.read(1, 0, max_entries=1, max_bytes=1)
    assert read_run_header(reply.run).first_entry_id == 0


async def test_many_readers_of_one_ledger_get_what_they_asked_for(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await filled(open_bookie, requests, faulty_disk, 400, read_cache_bytes=2 << 20)
    steps = (1, 7, 40, 100)
    counts = await asyncio.gather(*(read_all(bookie, 400, step=step) for step in steps))
    assert counts[0] == 400
    assert bookie.shards[0].reads._stored._cache.size <= 2 << 20
