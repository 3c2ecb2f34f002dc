"""Garbage collection: the removal of ledgers, their runs, and the entry logs that held them.

A pass, which runs periodically or when an operator asks for one:

    metadata: which ledgers go (gc/ledgers.py) ──► tombstones, in the journal
        ──► a flush takes their runs out of the index, whose table files are compacted there
        ──► entry logs without a live byte go, sparse ones are compacted (gc/files.py)

The last step needs no metadata and is taken without it. A bookie that is read-only or out of space
collects garbage like any other: this is how it regains space.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from fencelog.bookie.disk.port import IoThread
from fencelog.bookie.disk.space import BY_DISK, used_share
from fencelog.bookie.engine.admin import arguments
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.engine.shard import Shard
from fencelog.bookie.gc.config import GarbageConfig
from fencelog.bookie.gc.core import id_ranges
from fencelog.bookie.gc.files import FileGarbage, FileLimits, OnDamage
from fencelog.bookie.gc.ledgers import ClusterMetadata, Doubt, LedgerGarbage
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB

_log = logging.getLogger(__name__)

_FLUSH_WAIT_S = 30
"""Wait for the flush that takes removed ledgers out of the index. A flush that waits for disk space
must not keep garbage collection from freeing some."""

_POLL_S = 0.02

_FLUSH_BYTES = 4 * MIB
"""The space that a flush needs besides the runs."""

_MOST_RANGES = 16
"""Highest number of ranges of the index that are compacted one by one."""


class Garbage:
    """The garbage collector of one bookie; ``run`` it. ``io_thread`` is its own; the owner of the
    thread closes it, then calls ``close``."""

    def __init__(
        self,
        bookie: Bookie,
        io_thread: IoThread,
        metadata: ClusterMetadata,
        config: GarbageConfig,
        *,
        doubt: Doubt,
        entry_log_bytes: int,
        sharers: int = 1,
        turn: asyncio.Lock | None = None,
        on_damage: OnDamage,
    ) -> None:
        """``sharers`` bookies have their data on this disk, and compact in turns."""
        self._bookie = bookie
        self._io_thread = io_thread
        self._config = config
        self._sharers = sharers
        self._loop = asyncio.get_running_loop()
        self._ledgers = LedgerGarbage(bookie, metadata, doubt, grace_ms=config.grace_ms)
        limits = FileLimits(
            bytes_per_s=config.compaction_bytes_per_s,
            file_bytes=entry_log_bytes,
            spare_bytes=self._spare_bytes,
            must_stop=lambda: self._is_suspended,
            turn=turn or asyncio.Lock(),
        )
        self._files = [
            FileGarbage(shard, io_thread, limits, on_damage=on_damage) for shard in bookie.shards
        ]
        self._is_suspended = False
        self._asked = asyncio.Event()
        bookie.on_read_only[self._on_read_only] = None
        self._asked_below = 0.0
        self._is_asked_without_grace = False
        self._minor_s = self._major_s = self._loop.time()
        self._is_running = False
        self._passes = self._removed_ledgers = 0
        self._last_error: str | None = None
        bookie.status_parts["garbage"] = self.status
        bookie.admin["gc"] = self._begin
        bookie.admin["suspend_compaction"] = self._suspend
        bookie.admin["resume_compaction"] = self._resume

    async def run(self) -> None:
        """Run a pass after each interval, or when asked, for ever."""
        while True:
            try:
                async with asyncio.timeout(self._interval_ms / 1000):
                    await self._asked.wait()
            except TimeoutError:
                pass
            self._asked.clear()
            await self.collect(max(self._due_below(), self._asked_below))

    def _on_read_only(self) -> None:
        """Begin a pass when a disk has become full."""
        if self._is_disk_full:
            self._asked.set()

    @property
    def _interval_ms(self) -> int:
        """The time to the next pass, which is short while a full disk waits for space."""
        usual_ms = self._config.interval_ms
        return min(usual_ms, self._config.full_interval_ms) if self._is_disk_full else usual_ms

    @property
    def _is_disk_full(self) -> bool:
        return BY_DISK in self._bookie.read_only_for

    async def collect(self, below: float) -> None:
        """Run one pass. It compacts entry logs of which less than a share ``below`` is live, unless
        compaction is suspended. Failures are reported, and left to the next pass."""
        self._is_running, self._last_error, self._asked_below = True, None, 0.0
        without_grace, self._is_asked_without_grace = self._is_asked_without_grace, False
        try:
            try:
                grace = not without_grace and await self._is_space_left()
                await self._collect_ledgers(grace_of_deleted=grace)
            except FencelogError as error:
                self._report("ledgers", error)
            for files in self._files:
                try:
                    await files.collect(0.0 if self._is_suspended else below)
                except (FencelogError, OSError) as error:
                    self._report("entry logs", error)
        finally:
            self._is_running = False
            self._passes += 1

    def close(self) -> None:
        """Close the files. Call it after the I/O thread has ended."""
        self._bookie.on_read_only.pop(self._on_read_only, None)
        for files in self._files:
            files.close()

    def status(self) -> dict[str, Any]:
        """Return this part of ``status``. Counts are since the start, except
        ``ledgers_ahead_of_metadata`` and ``unconfirmed_ledgers`` (over-replicated ones, which stay
        as other bookies may lack their entries), which are those of the last check."""
        return {
            "is_running": self._is_running,
            "passes": self._passes,
            "removed_ledgers": self._removed_ledgers,
            "ledgers_ahead_of_metadata": self._ledgers.ahead,
            "unconfirmed_ledgers": len(self._ledgers.doubts),
            "removed_entry_logs": sum(files.removed_files for files in self._files),
            "copied_bytes": sum(files.copied_bytes for files in self._files),
            "compaction_is_suspended": self._is_suspended,
            "last_error": self._last_error,
        }

    # -- one pass ------------------------------------------------------------------------------

    async def _collect_ledgers(self, *, grace_of_deleted: bool) -> None:
        removed = await self._ledgers.collect(grace_of_deleted=grace_of_deleted)
        if not removed:
            return
        self._removed_ledgers += len(removed)
        _log.info("bookie %s has removed %d ledgers", self._bookie.bookie_id, len(removed))
        for shard in self._bookie.shards:
            mine = [i for i in removed if self._bookie.shard(i) is shard]
            if mine:
                await self._flush(shard, mine)
                await self._compact_index(shard, mine)

    async def _flush(self, shard: Shard, removed: list[int]) -> None:
        """Wait until the removed ledgers are out of the index. Raises FencelogError."""
        try:
            async with asyncio.timeout(_FLUSH_WAIT_S):
                while any(_is_leaving(shard, ledger_id) for ledger_id in removed):
                    shard.check_open()
                    shard.flusher.request()
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            raise FencelogError(
                ErrorCode.OVERLOADED,
                f"{len(removed)} ledgers were removed, but no flush took them out of the index",
            ) from error

    async def _compact_index(self, shard: Shard, removed: list[int]) -> None:
        kept = [ledger_id for ledger_id, state in shard.states.items() if not state.deleted]
        for first, last in id_ranges(removed, kept, _MOST_RANGES):
            await self._io_thread.run(partial(shard.storage.index.compact, first, last))

    async def _is_space_left(self) -> bool:
        """Tell whether deleted ledgers may stay for their grace time. Raises
        FencelogError(STORAGE_FAILED)."""
        if self._is_disk_full or not self._config.grace_ms:
            return False
        return used_share(await self._bookie.space()) < self._config.grace_below

    def _spare_bytes(self) -> int:
        """Return the space that must stay free for cached runs and their flush, of each bookie on
        this disk: all have about as much. The reserve is available to garbage collection too."""
        own = _FLUSH_BYTES + sum(shard.cache.size for shard in self._bookie.shards)
        return own * self._sharers

    def _due_below(self) -> float:
        """Return the threshold of the compaction that is due; 0 if none is."""
        now, config = self._loop.time(), self._config
        if self._is_disk_full or now - self._major_s >= config.major_interval_ms / 1000:
            self._major_s = self._minor_s = now
            return config.major_below
        if now - self._minor_s >= config.minor_interval_ms / 1000:
            self._minor_s = now
            return config.minor_below
        return 0.0

    def _report(self, what: str, error: Exception) -> None:
        self._last_error = f"{what}: {error}"
        _log.error("garbage collection of bookie %s, %s: %s", self._bookie.bookie_id, what, error)

    # -- verbs ---------------------------------------------------------------------------------

    async def _begin(self, given: dict[str, Any]) -> dict[str, Any]:
        """Start a pass now, or after the current one. ``below``: also compact entry logs with a
        lower share of live bytes. ``no_grace``: remove deleted ledgers without the grace time."""
        arguments(given, {}, {"below": float, "no_grace": bool})
        below = given.get("below", 0)
        if not 0 <= below <= 1:
            raise FencelogError(ErrorCode.BAD_REQUEST, f"'below' is to be a share, not {below}")
        self._asked_below = max(self._asked_below, below)
        self._is_asked_without_grace |= given.get("no_grace", False)
        self._asked.set()
        return {"begun": True}

    async def _suspend(self, given: dict[str, Any]) -> dict[str, Any]:
        """Suspend compaction until ``resume_compaction``, or until the process ends."""
        arguments(given, {})
        self._is_suspended = True
        return {"compaction_is_suspended": True}

    async def _resume(self, given: dict[str, Any]) -> dict[str, Any]:
        arguments(given, {})
        self._is_suspended = False
        return {"compaction_is_suspended": False}


def _is_leaving(shard: Shard, ledger_id: int) -> bool:
    state = shard.states.get(ledger_id)
    return state is not None and state.removing
