"""The watch over free disk space, and the requests that a bookie takes while it is low.

A full disk must prevent new entries alone: acknowledged entries are flushed, and ledgers can still
be recovered, fenced and compacted. So, as it fills up:

    used ≥ read_only_at, or no   no regular adds (registered so: writers choose others); below
    space for a journal file     writable_at they are taken again. Spare journal files are removed
    free ≤ cached + reserve      no recovery adds either (OUT_OF_SPACE); reads and fences go on
    free < its half + a little   the flush waits: the journal has the runs that it would write

Compaction needs space for its copies; the reserve is for it, too (``gc/collector.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import DirectorySpace, DiskSpace
from fencelog.bookie.disk.space import (
    BY_DISK,
    AllowedWrites,
    allowed_by_all,
    allowed_writes,
    bytes_below_limit,
    bytes_kept_from_adds,
    fullest,
    part_of,
)
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.engine.shard import Shard
from fencelog.bookie.maintenance.forecast_core import DiskForecast
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import DISK_WATCH_MS, MAX_DISK_BYTES_PER_S, MIN_DISK_WATCH_MS

_log = logging.getLogger(__name__)


class DiskWatch:
    """A service that checks the disks periodically, and sets which requests the bookie takes."""

    def __init__(self, bookie: Bookie, config: BookieConfig) -> None:
        self._bookie = bookie
        self._config = config
        self._allowed = AllowedWrites(for_adds=True, for_recovery=True, for_flush=True)
        self._takes_adds: dict[Path, bool] = {}
        """The directories, and whether there was space for adds on the disk of each."""
        self._fullest = DiskSpace(0, 0)
        self._left_bytes = 0
        self._until_full_bytes = 0
        self._forecasts: dict[Path, DiskForecast] = {}
        bookie.status_parts["disk"] = self.status

    async def check(self) -> None:
        """Check the disks now. Raises FencelogError(STORAGE_FAILED) where their space cannot be
        read."""
        directories = [each for each in await self._bookie.spaces() if each.is_filled]
        self._fullest = fullest(directories)
        cached_bytes = sum(shard.cache.size for shard in self._bookie.shards)
        self._look_ahead(directories, cached_bytes)
        allowed = [(each, self._allowed_by(each, cached_bytes)) for each in directories]
        self._takes_adds = {each.path: writes.for_adds for each, writes in allowed}
        before, now = self._allowed, allowed_by_all(allowed)
        self._allowed = now
        for shard in self._bookie.shards:
            shard.adds.set_out_of_space(not now.for_recovery)
            shard.flusher.hold(not now.for_flush)
        self._bookie.set_read_only(BY_DISK, not now.for_adds)
        if now != before:
            _log.warning(
                "bookie %s: %s; takes adds: %s, recovery: %s, flushes: %s",
                self._bookie.bookie_id,
                ", ".join(map(_free, directories)),
                now.for_adds,
                now.for_recovery,
                now.for_flush,
            )
        if not now.for_adds:
            for shard in self._bookie.shards:
                await _remove_spares(shard)

    def _look_ahead(self, directories: Sequence[DirectorySpace], cached_bytes: int) -> None:
        """Note what is left for adds on each disk."""
        now_s, config = asyncio.get_running_loop().time(), self._config
        until_full, left = list[int](), list[int]()
        for directory in directories:
            part = part_of(directory.space, config.sharers)
            until_full.append(part.free_bytes - bytes_kept_from_adds(part, cached_bytes, config))
            left.append(min(until_full[-1], bytes_below_limit(part, config)))
            self._forecasts.setdefault(directory.path, DiskForecast()).note(now_s, left[-1])
        self._until_full_bytes, self._left_bytes = min(until_full), min(left)

    def _allowed_by(self, directory: DirectorySpace, cached_bytes: int) -> AllowedWrites:
        return allowed_writes(
            part_of(directory.space, self._config.sharers),
            cached_bytes=cached_bytes,
            flush_bytes=sum(shard.cache.flush_bytes for shard in self._bookie.shards),
            had_space=self._takes_adds.get(directory.path, True),
            config=self._config,
        )

    @property
    def _pause_s(self) -> float:
        """The time to the next check. The fastest disk writes less in it than what is left for
        adds, so that they end before their space does, on small disks too."""
        usual_s = DISK_WATCH_MS / 1000
        if not self._allowed.for_adds:
            return usual_s
        until_full_s = self._until_full_bytes / MAX_DISK_BYTES_PER_S
        return max(MIN_DISK_WATCH_MS / 1000, min(usual_s, until_full_s))

    async def run(self) -> None:
        """Check the disks periodically, for ever."""
        while True:
            try:
                await self.check()
            except FencelogError as error:
                _log.warning("bookie %s: %s", self._bookie.bookie_id, error.detail)
            await asyncio.sleep(self._pause_s)

    def status(self) -> dict[str, int | bool | None]:
        """Return this part of ``status``. ``free_bytes`` of ``total_bytes``: of the fullest disk
        that has ledgers; ``left_bytes``: for adds, on the disk that has the least; ``full_in_s``:
        until there are none, at the pace of the last hours; None: it does not fill up, or that is
        not known yet."""
        foretold = [forecast.full_in_s() for forecast in self._forecasts.values()]
        return {
            "total_bytes": self._fullest.total_bytes,
            "free_bytes": self._fullest.free_bytes,
            "left_bytes": max(0, self._left_bytes),
            "full_in_s": min((s for s in foretold if s is not None), default=None),
            "space_for_adds": self._allowed.for_adds,
            "space_for_recovery": self._allowed.for_recovery,
            "space_for_flush": self._allowed.for_flush,
        }


def _free(directory: DirectorySpace) -> str:
    space = directory.space
    return f"{space.free_bytes} of {space.total_bytes} bytes are free in {directory.path}"


async def _remove_spares(shard: Shard) -> None:
    """Remove spare journal files, which take the larger part of a small disk. Raises
    FencelogError(STORAGE_FAILED)."""
    try:
        await shard.journal.remove_spares()
    except OSError as error:
        raise FencelogError(
            ErrorCode.STORAGE_FAILED, f"cannot remove spare journal files: {error}"
        ) from error
