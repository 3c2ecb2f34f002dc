"""The data of a small bookie that was killed, and the offline tools on it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fencelog.bookie import config
from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.offline.inspect_disk import ReadOnlyDisk
from fencelog.bookie.offline.offline import Offline, offline
from fencelog.bookie.offline.verify import verify
from tests.support.bookie_stage import BookieSettings, OpenBookie, Requests

ENTRIES = {1: (0, 15), 2: (0, 3), 3: (7, 1)}
"""The ledgers: the first entry of each, and the number of its entries."""


async def make_data(open_bookie: OpenBookie, requests: Requests, path: Path, killed: Path) -> None:
    """Write ledgers 1 and 2 to a sealed entry log, and more of ledger 1 to another one; the last
    entries of ledgers 1 and 3 are in the journal only, because the process was killed. Ledger 2 is
    fenced in the index, ledger 3 in the journal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "_SMALLEST_FILE_BYTES", 8192)  # so that files can be small
        settings: BookieSettings = {"journal_file_bytes": 8192}
        bookie = await open_bookie(data_dir=path, **settings)
        await bookie.forgotten_are_fenced()
        await requests.add(bookie, requests.run(1, 0, 5))
        await requests.add(bookie, requests.run(2, 0, 3))
        await bookie.read_lac(2, fence=True)
        shard = bookie.shards[0]
        flusher = shard.flusher
        wanted = flusher.completed + 3  # of which one begins only now

        def is_flushed() -> bool:
            flusher.request()
            return flusher.completed >= wanted

        await requests.until(is_flushed)
        await shard.write_io_thread.run(shard.storage.begin_entry_log)
        await requests.add(bookie, requests.run(1, 5, 5, lac=4))
        await bookie.close()
        bookie = await open_bookie(data_dir=path, **settings)
        await requests.until(lambda: len(list(path.glob("journal/*.journal"))) == 1)
        await requests.add(bookie, requests.run(1, 10, 5, lac=9))
        await requests.add(bookie, requests.run(3, 7, 1))
        await bookie.read_lac(3, fence=True)
        shutil.copytree(path, killed)
        await bookie.close()


@contextmanager
def opened(data: Path, disk: Any = None, **settings: Any) -> Iterator[Offline]:
    """Open the data under its lock, read through ``disk``; by default through one that is only
    read."""
    disk = disk or ReadOnlyDisk(PosixDisk())
    with offline(disk, BookieConfig(data, **settings)) as found:
        yield found


def problems(data: Path, **settings: Any) -> list[str]:
    """Return what ``fencelog bookie verify`` prints."""
    with opened(data, **settings) as found:
        return [str(problem) for problem in verify(found)]
