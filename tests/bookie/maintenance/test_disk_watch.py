"""A disk that fills up: what is still taken, what waits, and that nothing is lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import Disk, DiskSpace
from fencelog.bookie.disk.space import (
    AllowedWrites,
    allowed_writes,
    bytes_kept_from_adds,
    part_of,
    reserve_bytes,
    smallest_disk_bytes,
)
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.maintenance.disk_watch import DiskWatch
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk

CONFIG = BookieConfig(Path("unused"))
GIB = 1024 * MIB


def allowed_for(
    space: DiskSpace, cached: int, had_space: bool, *, flush: int | None = None
) -> AllowedWrites:
    """Return the allowed writes with everything cached in the half to be flushed, unless told."""
    return allowed_writes(
        space,
        cached_bytes=cached,
        flush_bytes=cached if flush is None else flush,
        had_space=had_space,
        config=CONFIG,
    )


@pytest.mark.parametrize(
    ("free", "cached", "had_space", "expected"),
    [
        (50 * GIB, 64 * MIB, True, AllowedWrites(for_adds=True, for_recovery=True, for_flush=True)),
        (6 * GIB, 0, True, AllowedWrites(for_adds=True, for_recovery=True, for_flush=True)),
        (6 * GIB, 0, False, AllowedWrites(for_adds=False, for_recovery=True, for_flush=True)),
        (11 * GIB, 0, False, AllowedWrites(for_adds=True, for_recovery=True, for_flush=True)),
        (4 * GIB, 0, True, AllowedWrites(for_adds=False, for_recovery=True, for_flush=True)),
        (1 * GIB, MIB, True, AllowedWrites(for_adds=False, for_recovery=False, for_flush=True)),
        (
            64 * MIB,
            64 * MIB,
            True,
            AllowedWrites(for_adds=False, for_recovery=False, for_flush=False),
        ),
        (0, 0, True, AllowedWrites(for_adds=False, for_recovery=False, for_flush=False)),
    ],
)
def test_what_there_is_room_for(
    free: int, cached: int, had_space: bool, expected: AllowedWrites
) -> None:
    space = DiskSpace(100 * GIB, free)
    assert allowed_for(space, cached, had_space) == expected


def test_a_disk_of_no_size_has_room_for_nothing() -> None:
    assert allowed_for(DiskSpace(0, 0), 0, True) == AllowedWrites(
        for_adds=False, for_recovery=False, for_flush=False
    )


def test_a_flush_waits_for_no_more_room_than_it_takes() -> None:
    """Were it to wait for room for all that is cached, it would wait for ever: there will be no
    more of it before a flush lets go of the journal."""
    space = DiskSpace(200 * MIB, 50 * MIB)
    now = allowed_for(space, 60 * MIB, True, flush=20 * MIB)
    assert now == AllowedWrites(for_adds=False, for_recovery=False, for_flush=True)


def test_adds_begin_again_with_space_for_what_the_next_flush_moves() -> None:
    """Else a bookie whose limits are no shares would stop and begin with every flush."""
    config = BookieConfig(Path("unused"), read_only_at=1, writable_at=1)
    for free, had_space, for_adds in ((70, True, True), (70, False, False), (200, False, True)):
        space = DiskSpace(200 * MIB, free * MIB)
        now = allowed_writes(
            space, cached_bytes=0, flush_bytes=0, had_space=had_space, config=config
        )
        assert now.for_adds == for_adds


@given(st.integers(1, 8), st.integers(0, 1 << 40))
def test_bookies_that_share_a_disk_never_count_on_more_than_there_is(
    sharers: int, free: int
) -> None:
    part = part_of(DiskSpace(1 << 40, free), sharers)
    assert part.free_bytes * sharers <= free < (part.free_bytes + 1) * sharers


@pytest.mark.parametrize(
    ("gib", "sharers", "journal_mib", "cache_mib", "entry_log_mib"),
    [(1000, 1, 64, 64, 1024), (1000, 3, 64, 64, 1024), (12, 3, 64, 64, 256), (0.4, 3, 24, 16, 24)],
)
def test_files_suit_the_disk(
    gib: float, sharers: int, journal_mib: int, cache_mib: int, entry_log_mib: int
) -> None:
    fitted = BookieConfig(Path("unused"), sharers=sharers).fitted(int(gib * GIB))
    assert fitted.journal_file_bytes == journal_mib * MIB
    assert fitted.write_cache_bytes == cache_mib * MIB
    assert fitted.entry_log_bytes == entry_log_mib * MIB


def test_the_smallest_of_its_disks_counts_before_its_directories_exist(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    sizes = {tmp_path: 10 * GIB, tmp_path / "large": 90 * GIB}

    class Disks:
        def space(self, path: Path) -> DiskSpace:
            return DiskSpace(sizes[path], 0)

    config = BookieConfig(tmp_path / "large" / "a" / "b", journal_dirs=(tmp_path / "journal",))
    assert smallest_disk_bytes(cast("Disk", Disks()), config) == 10 * GIB


async def test_a_disk_is_checked_more_often_the_less_is_left_for_adds(
    open_bookie: OpenBookie, faulty_disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 500 * GIB
    monkeypatch.setattr(faulty_disk, "space", lambda _path: DiskSpace(1000 * GIB, free))
    bookie = await open_bookie(disk=faulty_disk)
    config = BookieConfig(Path("unused"), read_only_at=1, writable_at=1)
    watch = DiskWatch(bookie, config)
    pauses_s: list[float] = []

    async def sleep(pause_s: float) -> None:
        nonlocal free
        pauses_s.append(pause_s)
        free = (free - bytes_kept_from_adds(DiskSpace(1000 * GIB, 0), 0, config)) // 4
        free += bytes_kept_from_adds(DiskSpace(1000 * GIB, 0), 0, config)
        if len(pauses_s) == 12:
            raise asyncio.CancelledError

    monkeypatch.setattr("fencelog.bookie.maintenance.disk_watch.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await watch.run()
    assert pauses_s[0] == 1.0
    assert pauses_s == sorted(pauses_s, reverse=True)
    assert pauses_s[-1] == 0.01


def test_a_small_disk_keeps_room_for_a_journal_file() -> None:
    """The next one is begun between two looks, and so is what it holds written."""
    for free, for_adds in ((60 * MIB, False), (70 * MIB, True)):
        now = allowed_for(DiskSpace(200 * MIB, free), 0, True)
        assert now.for_adds == for_adds
        assert (now.for_recovery, now.for_flush) == (True, True)


@given(st.integers(1, 1 << 45), st.floats(0, 1), st.integers(0, 1 << 28), st.booleans())
def test_less_is_taken_as_it_fills_up(
    total: int, share: float, cached: int, had_space: bool
) -> None:
    space = DiskSpace(total, int(total * share))
    now = allowed_for(space, cached, had_space)
    assert not now.for_adds or now.for_recovery
    assert reserve_bytes(total) <= total // 50
    fuller = DiskSpace(total, space.free_bytes // 2)
    later = allowed_for(fuller, cached, now.for_adds)
    assert not later.for_adds or now.for_adds
    assert not later.for_recovery or now.for_recovery
    assert not later.for_flush or now.for_flush


@pytest.mark.parametrize(("low", "high"), [(0.9, 0.8), (0.0, 0.5), (0.5, 1.1)])
def test_thresholds_in_no_order_are_refused(low: float, high: float) -> None:
    with pytest.raises(FencelogError, match="writable_at") as caught:
        BookieConfig(Path("unused"), writable_at=low, read_only_at=high)
    assert caught.value.code is ErrorCode.BAD_REQUEST


@dataclass
class Space:
    """The free space of a disk of 1,000 MiB."""

    free: int = 500 * MIB


@pytest.fixture
def space(faulty_disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> Space:
    """Make the disk of the bookie one whose free space the test says."""
    space = Space()
    monkeypatch.setattr(faulty_disk, "space", lambda _path: DiskSpace(1000 * MIB, space.free))
    return space


async def code_of(requests: Requests, bookie: Bookie, run: bytes, **how: Any) -> ErrorCode | None:
    error: FencelogError | None = await requests.add(bookie, run, **how)
    return error.code if error else None


async def test_a_bookie_on_a_disk_that_fills_up_and_empties_again(
    open_bookie: OpenBookie,
    requests: Requests,
    faulty_disk: FaultyDisk,
    space: Space,
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    watch = DiskWatch(bookie, CONFIG)
    changes: list[bool] = []
    bookie.on_read_only[lambda: changes.append(bookie.is_read_only)] = None
    await watch.check()
    assert await requests.add(bookie, requests.run(1, 0)) is None

    space.free = 40 * MIB
    await watch.check()
    assert await code_of(requests, bookie, requests.run(1, 1)) is ErrorCode.READ_ONLY
    assert await requests.add(bookie, requests.run(1, 1), recovery=True) is None

    space.free = 10 * MIB
    await watch.check()
    full = await code_of(requests, bookie, requests.run(1, 2), recovery=True)
    assert full is ErrorCode.OUT_OF_SPACE
    assert await bookie.read_lac(1, fence=True) == -1
    assert len(await requests.read(bookie, 1, 0)) > 200

    space.free = 95 * MIB
    await watch.check()
    assert await requests.add(bookie, requests.run(1, 2), recovery=True) is None
    assert await code_of(requests, bookie, requests.run(2, 0)) is ErrorCode.READ_ONLY

    space.free = 250 * MIB
    await watch.check()
    assert await requests.add(bookie, requests.run(2, 0)) is None
    assert changes == [True, False]
    assert watch.status()["free_bytes"] == space.free


async def test_a_flush_waits_for_room_and_nothing_is_lost(
    open_bookie: OpenBookie,
    requests: Requests,
    faulty_disk: FaultyDisk,
    space: Space,
) -> None:
    bookie = await open_bookie(disk=faulty_disk, flush_interval_ms=5)
    await requests.until(lambda: bookie.shards[0].flusher.completed > 0)
    assert await requests.add(bookie, requests.run(1, 0)) is None
    watch = DiskWatch(bookie, CONFIG)
    space.free = 0
    await watch.check()
    flusher = bookie.shards[0].flusher
    held = flusher.completed
    for entry_id in range(1, 60):  # each takes a sync; the interval passes again and again
        assert await requests.add(bookie, requests.run(1, entry_id), recovery=False) is not None
        await bookie.read_lac(entry_id + 1, fence=True)
    assert flusher.completed <= held + 1  # one may have been under way
    space.free = 500 * MIB
    await watch.check()
    await requests.until(lambda: flusher.completed > held + 1)
    assert len(await requests.read(bookie, 1, 0)) > 100


async def test_no_add_waits_for_a_flush_that_waits_for_room(
    open_bookie: OpenBookie,
    requests: Requests,
    faulty_disk: FaultyDisk,
    space: Space,
) -> None:
    """While any does, transports read nothing: no read and no fence would be served."""
    bookie = await open_bookie(disk=faulty_disk, write_cache_bytes=20_000)
    watch = DiskWatch(bookie, CONFIG)
    faulty_disk.waits.add("write index")
    try:
        loop = asyncio.get_running_loop()
        adds = [loop.create_task(requests.add(bookie, requests.run(1, 0, 9, size=1000)))]
        await adds[0]
        adds = [
            loop.create_task(requests.add(bookie, requests.run(1, first, 9, size=1000)))
            for first in range(9, 36, 9)
        ]
        await requests.until(lambda: bookie.is_under_pressure)
        space.free = 0
        await watch.check()
        assert not bookie.is_under_pressure
        late = await requests.add(bookie, requests.run(1, 36, 9, size=1000))
        answers = [error and error.code for error in await asyncio.gather(*adds)]
    finally:
        faulty_disk.waits.clear()
    assert answers[-1] is ErrorCode.OUT_OF_SPACE
    assert late is not None
    assert late.code is ErrorCode.READ_ONLY


async def test_a_bookie_that_closes_waits_for_no_room(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    faulty_disk.waits.add("write index")
    try:
        assert await requests.add(bookie, requests.run(1, 0)) is None
        bookie.shards[0].flusher.request()
        assert await requests.add(bookie, requests.run(1, 1)) is None
        closing = asyncio.get_running_loop().create_task(bookie.close())
        await requests.until(lambda: bookie.shards[0].flusher._task is None)
        bookie.shards[0].flusher.hold(True)  # by a look that had begun before
    finally:
        faulty_disk.waits.clear()
    async with asyncio.timeout(20):
        await closing
    bookie = await open_bookie(disk=faulty_disk)
    assert await requests.read(bookie, 1, 1) == requests.run(1, 1)


async def test_a_bookie_that_is_closed_without_room_leaves_it_to_the_journal(
    open_bookie: OpenBookie,
    requests: Requests,
    faulty_disk: FaultyDisk,
    space: Space,
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    watch = DiskWatch(bookie, CONFIG)
    assert await requests.add(bookie, requests.run(1, 0)) is None
    await requests.until(lambda: bookie.shards[0].flusher._begun is None)
    space.free = 0
    await watch.check()
    calls = len(faulty_disk.calls)
    await bookie.close()
    assert bookie.failure.result().code is ErrorCode.STORAGE_FAILED
    assert not [call for call in faulty_disk.calls[calls:] if not call.startswith("sync")]
    bookie = await open_bookie(disk=faulty_disk)
    assert await requests.read(bookie, 1, 0) == requests.run(1, 0)


async def test_journal_files_kept_to_be_written_over_go_when_room_is_short(
    open_bookie: OpenBookie,
    requests: Requests,
    faulty_disk: FaultyDisk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    space: Space,
) -> None:
    await (await open_bookie(disk=faulty_disk)).close()
    bookie = await open_bookie(disk=faulty_disk)
    spares = tmp_path / "data" / "journal"
    await requests.until(lambda: bool(list(spares.glob("*.spare"))))
    watch = DiskWatch(bookie, CONFIG)
    await watch.check()
    assert list(spares.glob("*.spare"))
    space.free = 40 * MIB

    def unreadable(_path: Path) -> list[str]:
        raise OSError("made to fail")

    with monkeypatch.context() as broken:
        broken.setattr(faulty_disk, "names", unreadable)
        with pytest.raises(FencelogError, match="spare journal files") as caught:
            await watch.check()
    assert caught.value.code is ErrorCode.STORAGE_FAILED
    assert bookie.is_read_only  # the room that adds would take is not there either way
    await watch.check()
    assert not list(spares.glob("*.spare"))


async def test_an_index_that_finds_no_room_is_not_called_damaged(
    open_bookie: OpenBookie, faulty_disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await open_bookie(disk=faulty_disk)).close()

    def no_space(*_args: Any, **_settings: Any) -> None:
        raise Exception("IO error: No space left on device: While appending to file: MANIFEST")

    monkeypatch.setattr("fencelog.bookie.disk.rocks_store.Rdict", no_space)
    with pytest.raises(FencelogError, match="No space left") as caught:
        await open_bookie(disk=faulty_disk)
    assert caught.value.code is ErrorCode.STORAGE_FAILED


async def test_what_an_operator_and_what_the_disk_want_are_two_things(
    open_bookie: OpenBookie,
) -> None:
    bookie = await open_bookie()
    bookie.is_read_only = True
    bookie.set_read_only("disk", True)
    bookie.is_read_only = False
    assert bookie.is_read_only
    bookie.set_read_only("disk", False)
    assert not bookie.is_read_only


async def test_a_start_on_a_full_disk_waits_with_its_first_flush(
    open_bookie: OpenBookie,
    requests: Requests,
    faulty_disk: FaultyDisk,
    space: Space,
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    await requests.until(lambda: bookie.shards[0].flusher.completed > 0)
    assert await requests.add(bookie, requests.run(1, 0)) is None
    bookie._fail(FencelogError(ErrorCode.STORAGE_FAILED, "killed"))
    await bookie.close()
    space.free = 1 * MIB
    bookie = await open_bookie(disk=faulty_disk, flush_interval_ms=1)
    assert len(await requests.read(bookie, 1, 0)) > 100
    for _ in range(20):
        await bookie.space()
    assert bookie.shards[0].flusher.completed == 0
    space.free = 500 * MIB
    await DiskWatch(bookie, CONFIG).check()
    await requests.until(lambda: bookie.shards[0].flusher.completed > 0)
