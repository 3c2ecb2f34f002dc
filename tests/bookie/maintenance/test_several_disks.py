"""A bookie whose journal and ledgers are on disks of their own: each decides what it takes."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import DirectorySpace, DiskSpace
from fencelog.bookie.disk.space import AllowedWrites, allowed_by_all
from fencelog.bookie.engine.admin import administer
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.maintenance.disk_watch import DiskWatch
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk

CONFIG = BookieConfig(Path("unused"))
GIB = 1024 * MIB
JOURNAL, LEDGERS, IDENTITY = "journal", "ledgers", "identity"
SIZES = {JOURNAL: 20 * GIB, LEDGERS: 500 * GIB, IDENTITY: 100 * GIB}


class Disks:
    """The disks of a bookie, as large as ``SIZES``, with so many free GiB."""

    def __init__(self, root: Path, disk: FaultyDisk) -> None:
        self.free_gib = {JOURNAL: 19.0, LEDGERS: 250.0, IDENTITY: 50.0}
        self._root = root
        self._disk = disk

    def space(self, path: Path) -> DiskSpace:
        name = path.relative_to(self._root).parts[0]
        return DiskSpace(SIZES[name], int(self.free_gib[name] * GIB))

    async def open(self, open_bookie: OpenBookie) -> Bookie:
        return await open_bookie(
            disk=self._disk,
            data_dir=self._root / IDENTITY,
            journal_dirs=(self._root / JOURNAL,),
            ledger_dirs=(self._root / LEDGERS,),
        )


@pytest.fixture
def disks(tmp_path: Path, faulty_disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> Disks:
    for name in SIZES:
        (tmp_path / name).mkdir()
    disks = Disks(tmp_path, faulty_disk)
    monkeypatch.setattr(faulty_disk, "space", disks.space)
    return disks


async def takes(requests: Requests, bookie: Bookie, entry: int) -> bool:
    """Tell whether the bookie takes an add, or is read-only."""
    error: FencelogError | None = await requests.add(bookie, requests.run(1, entry))
    assert error is None or error.code is ErrorCode.READ_ONLY
    return error is None


async def test_a_used_share_is_that_of_each_disk(
    open_bookie: OpenBookie, requests: Requests, disks: Disks
) -> None:
    """Behind a small journal, which has less free space, the ledgers' disk would fill up."""
    bookie = await disks.open(open_bookie)
    watch = DiskWatch(bookie, CONFIG)
    await watch.check()
    assert await takes(requests, bookie, 0)
    disks.free_gib[LEDGERS] = 20.0
    await watch.check()
    assert not await takes(requests, bookie, 1)
    disks.free_gib[LEDGERS] = 60.0
    await watch.check()
    assert await takes(requests, bookie, 1)


async def test_a_disk_that_was_never_full_does_not_have_to_become_emptier(
    open_bookie: OpenBookie, requests: Requests, disks: Disks
) -> None:
    bookie = await disks.open(open_bookie)
    watch = DiskWatch(bookie, CONFIG)
    disks.free_gib[LEDGERS] = 40.0  # 92 % in use
    await watch.check()
    assert await takes(requests, bookie, 0)
    disks.free_gib[JOURNAL] = 0.5
    await watch.check()
    assert not await takes(requests, bookie, 1)
    disks.free_gib[JOURNAL] = 19.0
    await watch.check()
    assert await takes(requests, bookie, 1)


async def test_what_is_left_and_free_is_of_the_disk_that_has_least(
    open_bookie: OpenBookie, disks: Disks
) -> None:
    """Free space is shown, and registered for placement and balance, of disks that have ledgers."""
    bookie = await disks.open(open_bookie)
    watch = DiskWatch(bookie, CONFIG)
    await watch.check()
    status = watch.status()
    assert (status["total_bytes"], status["free_bytes"]) == (500 * GIB, 250 * GIB)
    assert status["left_bytes"] == 18 * GIB
    told = await administer(bookie.admin, {"do": "status"})
    assert told["free_bytes"] == 250 * GIB
    assert await bookie.space() == DiskSpace(500 * GIB, 250 * GIB)


async def test_the_disk_that_has_least_says_when_to_look_again(
    open_bookie: OpenBookie, disks: Disks
) -> None:
    """Whatever the others have left, adds have to end before its space does."""
    watch = DiskWatch(await disks.open(open_bookie), CONFIG)
    await watch.check()
    assert watch._pause_s == 1.0
    disks.free_gib[JOURNAL] = 1.1
    await watch.check()
    assert watch._pause_s < 0.5


async def test_the_disk_of_the_identity_alone_may_be_full(
    open_bookie: OpenBookie, requests: Requests, disks: Disks
) -> None:
    bookie = await disks.open(open_bookie)
    disks.free_gib[IDENTITY] = 1.0
    await DiskWatch(bookie, CONFIG).check()
    assert await takes(requests, bookie, 0)


async def test_what_fills_up_is_foretold_of_each_disk(
    open_bookie: OpenBookie, disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledgers' disk takes no more with 25 GiB free, long before the journal's is full."""
    bookie = await disks.open(open_bookie)
    watch = DiskWatch(bookie, CONFIG)
    for minute, free_gib in enumerate(range(50, 30, -1)):
        disks.free_gib[LEDGERS] = float(free_gib)
        disks.free_gib[JOURNAL] = 19.0 - minute / 10
        with monkeypatch.context() as patch:
            now_s = 1000.0 + 60 * minute
            patch.setattr(asyncio.get_running_loop(), "time", partial(float, now_s))
            await watch.check()
    status = watch.status()
    assert abs((status["left_bytes"] or 0) - 6 * GIB) < MIB
    assert abs((status["full_in_s"] or 0) - 6 * 60) < 2


async def test_a_flush_needs_no_space_on_the_disk_of_the_journal(
    open_bookie: OpenBookie, disks: Disks
) -> None:
    """A flush trims the journal: it must not wait for that."""
    bookie = await disks.open(open_bookie)
    watch = DiskWatch(bookie, CONFIG)
    disks.free_gib[JOURNAL] = 0.0
    await watch.check()
    status = watch.status()
    assert (status["space_for_recovery"], status["space_for_flush"]) == (False, True)


def test_every_disk_has_to_have_space() -> None:
    everything = AllowedWrites(for_adds=True, for_recovery=True, for_flush=True)
    recovery = AllowedWrites(for_adds=False, for_recovery=True, for_flush=True)
    nothing = AllowedWrites(for_adds=False, for_recovery=False, for_flush=False)
    journal, ledgers = (
        DirectorySpace(Path(name), (name,), DiskSpace(GIB, 0)) for name in (JOURNAL, LEDGERS)
    )
    assert allowed_by_all([(journal, everything), (ledgers, everything)]) == everything
    assert allowed_by_all([(journal, everything), (ledgers, recovery)]) == recovery
    assert allowed_by_all([(journal, recovery), (ledgers, nothing)]) == nothing
    assert allowed_by_all([(journal, nothing), (ledgers, everything)]).for_flush
