"""The scrubber, which slowly reads every stored run that the index points to, and finds damage.

Unread data may decay unnoticed, and a copy is lost for good once the last other one is. The index
is read on the reading thread, like all reads of it, a few runs at a time; files are read on an I/O
thread of the scrubber's own, with its own handles, so that no read of a client waits for its disk.
The page cache is no proof of the content of the disk, so it is dropped before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from fencelog.bookie.disk.port import Disk, File, IoThread
from fencelog.bookie.disk.rate_limit import Pace
from fencelog.bookie.engine.admin import arguments
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.engine.shard import Shard
from fencelog.bookie.storage.entry_log import StoredRun
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.limits import MIB, SCRUB_BYTES_PER_S, SCRUB_INTERVAL_MS

_log = logging.getLogger(__name__)

_STEP_BYTES = 1 * MIB
_STEP_RUNS = 256
"""Number of runs looked up and read at a time; ``_STEP_BYTES`` limits their size, unless one run
alone is larger."""

_LOOKS = 3
"""Number of times that a run may be moved away before it is left to the next pass."""


class Scrubber:
    """The scrubber of one bookie. Use ``run``, then ``close``. It adds to the bookie the verb
    ``scrub`` (a pass now, or of one ledger) and its part of ``status``. ``bytes_per_s`` None: no
    limit. ``begin_at``: the share of the ledgers that the first pass reads last; a random one lets
    each ledger have its turn where a bookie is restarted before its passes end."""

    def __init__(
        self,
        bookie: Bookie,
        *,
        disk: Disk,
        on_damage: Callable[[StoredRun, FencelogError], None],
        bytes_per_s: int | None = SCRUB_BYTES_PER_S,
        interval_ms: int = SCRUB_INTERVAL_MS,
        begin_at: float = 0.0,
    ) -> None:
        self._bookie = bookie
        self._disk = disk
        self._io_thread: IoThread = disk.io_thread("bookie-scrub")
        self._on_damage = on_damage
        self._pace = Pace(bytes_per_s)
        self._interval_s = interval_ms / 1000
        self._begin_at = begin_at
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._is_pass_asked = False
        self._asked: list[int] = []
        """The ledgers that an operator has requested to be read next."""
        self._at: int | None = None
        self._passes = self._runs = self._bytes = 0
        bookie.status_parts["scrub"] = self.status
        bookie.admin["scrub"] = self._scrub_now

    async def run(self) -> None:
        """Make a pass every ``interval_ms``, or as soon as the one before has ended; for ever."""
        while True:
            due = self._loop.time() + self._interval_s
            self._is_pass_asked = False
            await self.scrub()
            while not self._is_pass_asked and self._loop.time() < due:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(due):
                        await self._wake.wait()
                self._wake.clear()
                await self._scrub_asked()

    async def scrub(self, ledger_ids: Sequence[int] | None = None) -> None:
        """Read all stored runs of these ledgers; None: all ledgers."""
        ledgers = list(self._ledgers(ledger_ids))
        if ledger_ids is None:
            first, self._begin_at = int(self._begin_at * len(ledgers)), 0.0
            ledgers = ledgers[first:] + ledgers[:first]
        for shard, ledger_id in ledgers:
            if ledger_ids is None:
                await self._scrub_asked()
            self._at = ledger_id
            try:
                await self._scrub_ledger(shard, ledger_id)
            except FencelogError as error:  # the index; its readers get the error too
                _log.error("scrubbing ledger %d: %s", ledger_id, error.detail)
        self._at = None
        self._passes += ledger_ids is None

    def status(self) -> dict[str, Any]:
        """Return this part of ``status``: what was read since the start, and the current ledger
        (None: between two passes). Damaged runs are in the part ``integrity``."""
        return {
            "at_ledger": self._at,
            "passes": self._passes,
            "runs": self._runs,
            "bytes": self._bytes,
        }

    async def close(self) -> None:
        """Close the I/O thread. Call it after ``run`` was cancelled."""
        await self._io_thread.close()

    async def _scrub_now(self, given: dict[str, Any]) -> dict[str, Any]:
        arguments(given, {}, {"ledger": int})
        ledger_id = given.get("ledger")
        if ledger_id is None:
            self._is_pass_asked = True
        elif ledger_id not in self._asked:
            self._bookie.shard(ledger_id).reads.known(ledger_id)
            self._asked.append(ledger_id)
        self._wake.set()
        return self.status()

    async def _scrub_asked(self) -> None:
        while self._asked:
            await self.scrub([self._asked.pop(0)])

    def _ledgers(self, ledger_ids: Sequence[int] | None) -> Iterator[tuple[Shard, int]]:
        for shard in self._bookie.shards:
            known = [ledger_id for ledger_id, state in shard.states.items() if not state.deleted]
            for ledger_id in sorted(known):
                if ledger_ids is None or ledger_id in ledger_ids:
                    yield shard, ledger_id

    async def _scrub_ledger(self, shard: Shard, ledger_id: int) -> None:
        position = 0
        while runs := await self._look_up(shard, ledger_id, position):
            for stored, _ in await self._unreadable(shard, runs):
                await self._look_again(shard, stored)
            size = sum(stored.size for stored in runs)
            self._runs += len(runs)
            self._bytes += size
            position = runs[-1].last_entry_id + 1
            await self._pace.took(size)

    async def _look_up(self, shard: Shard, ledger_id: int, position: int) -> list[StoredRun]:
        def work() -> list[StoredRun]:
            runs: list[StoredRun] = []
            size = 0
            for stored in shard.storage.index.runs_from(ledger_id, position):
                runs.append(stored)
                size += stored.size
                if size >= _STEP_BYTES or len(runs) >= _STEP_RUNS:
                    break
            return runs

        return await shard.read_io_thread.run(work)

    async def _unreadable(
        self, shard: Shard, runs: Sequence[StoredRun]
    ) -> list[tuple[StoredRun, FencelogError]]:
        """Return the runs that cannot be read back from the disk, and why."""

        def work() -> list[tuple[StoredRun, FencelogError]]:
            found: list[tuple[StoredRun, FencelogError]] = []
            # A reader uses a disk only to open files.
            reader = shard.storage.entry_log_reader(cast("Disk", _Uncached(self._disk)))
            with contextlib.closing(reader):
                for stored in runs:
                    try:
                        reader.read(stored)
                    except FencelogError as error:
                        found.append((stored, error))
            return found

        return await self._io_thread.run(work)

    async def _look_again(self, shard: Shard, stored: StoredRun) -> None:
        """Check an unreadable run again before it is reported. Compaction may have moved it, or
        garbage collection removed it. And a disk, or a process short of file handles, may fail
        once."""
        for _ in range(_LOOKS):
            present = await self._look_up(shard, stored.ledger_id, stored.last_entry_id)
            if not present or present[0].first_entry_id > stored.last_entry_id:
                return
            before, stored = stored, present[0]
            unreadable = await self._unreadable(shard, [stored])
            if not unreadable:
                return
            if stored == before:
                self._on_damage(*unreadable[0])
                return


class _Uncached:
    """The files of a disk, read from the disk itself."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def open(self, path: Path) -> _UncachedFile:
        return _UncachedFile(self._disk.open(path))


class _UncachedFile:
    def __init__(self, file: File) -> None:
        self._file = file
        self.close = file.close

    def read(self, offset: int, size: int) -> bytes:
        self._file.drop_cache(offset, size)
        return self._file.read(offset, size)
