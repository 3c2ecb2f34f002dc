"""The decision which writes the free space of a bookie's disks allows. ``allowed_writes`` is
pure; ``maintenance/disk_watch.py`` acts on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import DirectorySpace, Disk, DiskSpace
from fencelog.ledgers.limits import MAX_DISK_RESERVE_BYTES, MIB

BY_DISK = "disk"
"""The reason of a bookie that is read-only because a disk has no space for adds."""

_FLUSH_BYTES = 4 * MIB
"""The space that a flush needs besides the runs: headers, index, checkpoint."""


@dataclass(frozen=True, slots=True)
class AllowedWrites:
    """The kinds of writes for which there is enough space."""

    for_adds: bool
    for_recovery: bool
    for_flush: bool


def allowed_by_all(disks: Iterable[tuple[DirectorySpace, AllowedWrites]]) -> AllowedWrites:
    """Return what the disks of all directories have enough space for. A flush writes to those of
    ledgers alone."""
    each = list(disks)
    return AllowedWrites(
        for_adds=all(writes.for_adds for _, writes in each),
        for_recovery=all(writes.for_recovery for _, writes in each),
        for_flush=all(writes.for_flush for disk, writes in each if disk.has_ledgers),
    )


def fullest(directories: Iterable[DirectorySpace]) -> DiskSpace:
    """Return the space of the fullest disk that has ledgers."""
    return max((each.space for each in directories if each.has_ledgers), key=used_share)


def has_space_for_flush(space: DiskSpace, flush_bytes: int) -> bool:
    return space.free_bytes >= flush_bytes + _FLUSH_BYTES


def reserve_bytes(total_bytes: int) -> int:
    """Return the space that is reserved for recovery and for compaction."""
    return min(total_bytes // 50, MAX_DISK_RESERVE_BYTES)


def smallest_disk_bytes(disk: Disk, config: BookieConfig) -> int:
    """Return the size of the smallest disk that the bookie's directories are on, or will be. It
    blocks. Raises OSError."""
    paths = (config.data_dir, *config.journal_dirs, *config.ledger_dirs)
    return min(disk.space(_existing(path)).total_bytes for path in paths)


def _existing(path: Path) -> Path:
    """Return the directory, or the nearest parent that exists."""
    path = path.absolute()
    return next(each for each in (path, *path.parents) if each.is_dir())


def used_share(space: DiskSpace) -> float:
    """Return the share of a disk that is in use."""
    return 1 - space.free_bytes / space.total_bytes if space.total_bytes else 1.0


def part_of(space: DiskSpace, sharers: int) -> DiskSpace:
    """Return a bookie's part of the space of a disk on which so many bookies have their data."""
    return DiskSpace(space.total_bytes // sharers, space.free_bytes // sharers)


def bytes_kept_from_adds(space: DiskSpace, cached_bytes: int, config: BookieConfig) -> int:
    """Return the free space that adds may not use: for the flush of what is cached, the next
    journal file, recovery and compaction."""
    return cached_bytes + reserve_bytes(space.total_bytes) + config.journal_file_bytes


def bytes_below_limit(space: DiskSpace, config: BookieConfig) -> int:
    """Return the bytes that may be written until so much is in use that adds end."""
    return space.free_bytes - int((1 - config.read_only_at) * space.total_bytes)


def allowed_writes(
    space: DiskSpace, *, cached_bytes: int, flush_bytes: int, had_space: bool, config: BookieConfig
) -> AllowedWrites:
    """Decide which writes the free space allows. Pure.

    ``had_space``: whether adds were taken until now. ``flush_bytes`` of ``cached_bytes`` are
    written by the next flush: it must not wait for more space, for only flushes free space.
    """
    used = used_share(space)
    limit = config.read_only_at if had_space else config.writable_at
    for_flush = has_space_for_flush(space, flush_bytes)
    kept = cached_bytes + reserve_bytes(space.total_bytes)
    for_recovery = for_flush and space.free_bytes > kept
    kept_from_adds = bytes_kept_from_adds(space, cached_bytes, config)
    if not had_space:  # a flush and a journal file that is trimmed after it are no gain
        kept_from_adds += config.write_cache_bytes + config.journal_file_bytes
    for_journal = space.free_bytes > kept_from_adds
    return AllowedWrites(
        for_adds=used < limit and for_recovery and for_journal,
        for_recovery=for_recovery,
        for_flush=for_flush,
    )
