"""A real bookie on a temporary directory, and ways to talk to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Unpack

import pytest

from fencelog.bookie.disk.port import Disk
from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.ledgers.host import SystemHost
from tests.support.bookie_stage import BookieSettings, OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk


@pytest.fixture
def faulty_disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def requests() -> Requests:
    return Requests()


@pytest.fixture
async def open_bookie(tmp_path: Path) -> AsyncIterator[OpenBookie]:
    """Opens bookies on ``tmp_path / "data"`` (or ``data_dir``); closes those still open."""
    opened: list[Bookie] = []
    disks: list[Disk] = []

    async def open_one(
        *,
        data_dir: Path | None = None,
        disk: Disk | None = None,
        cookies: CookieRegistry | None = None,
        **settings: Unpack[BookieSettings],
    ) -> Bookie:
        disk = disk or PosixDisk()
        disks.append(disk)
        config = BookieConfig(data_dir or tmp_path / "data", **settings)
        bookie = await Bookie.open(config, disk=disk, host=SystemHost(), cookies=cookies)
        opened.append(bookie)
        return bookie

    yield open_one
    for disk in disks:
        if isinstance(disk, FaultyDisk):
            disk.waits.clear()  # a test that failed while its disk waited must not hang as well
    for bookie in opened:
        await bookie.close()
