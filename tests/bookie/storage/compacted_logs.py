"""The entry logs of one bookie, small enough to be compacted in a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.gc.files import FileGarbage, FileLimits
from fencelog.bookie.storage.entry_log import StoredRun
from fencelog.bookie.storage.index import FIRST
from tests.support.bookie_stage import Requests

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
        self.limits = FileLimits(
            bytes_per_s=1 << 40,
            file_bytes=FILE_BYTES,
            spare_bytes=lambda: self.spare_bytes,
            must_stop=lambda: self.is_suspended,
        )
        self.garbage = FileGarbage(
            self.shard, io_thread, self.limits, on_damage=lambda run, error: self.damage.append(run)
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
