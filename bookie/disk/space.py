"""The decision which writes the free space of a bookie's disks allows. Pure;
``maintenance/disk_watch.py`` acts on it."""

from __future__ import annotations

from dataclasses import dataclass

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import DiskSpace
from fencelog.ledgers.limits import MAX_DISK_RESERVE_BYTES, MIB

_FLUSH_BYTES = 4 * MIB
"""The space that a flush needs besides the runs: headers, index, checkpoint."""


@dataclass(frozen=True, slots=True)
class Room:
    """The kinds of writes for which there is enough space."""

    for_adds: bool
    for_recovery: bool
    for_flush: bool


def has_room_for_flush(space: DiskSpace, flush_bytes: int) -> bool:
    return space.free_bytes >= flush_bytes + _FLUSH_BYTES


def reserve_bytes(total_bytes: int) -> int:
    """Return the space that is reserved for recovery and for compaction."""
    return min(total_bytes // 50, MAX_DISK_RESERVE_BYTES)


def room(
    space: DiskSpace, *, cached_bytes: int, flush_bytes: int, had_room: bool, config: BookieConfig
) -> Room:
    """Decide which writes the free space allows. Pure.

    ``had_room``: whether adds were taken until now. ``flush_bytes`` of ``cached_bytes`` are written
    by the next flush: it must not wait for more space, for only flushes free space.
    """
    used = 1 - space.free_bytes / space.total_bytes if space.total_bytes else 1.0
    limit = config.read_only_at if had_room else config.writable_at
    for_flush = has_room_for_flush(space, flush_bytes)
    kept = cached_bytes + reserve_bytes(space.total_bytes)
    for_recovery = for_flush and space.free_bytes > kept
    # On a small disk, the share is less than what is written between two checks.
    for_journal = space.free_bytes > kept + config.journal_file_bytes
    return Room(
        for_adds=used < limit and for_recovery and for_journal,
        for_recovery=for_recovery,
        for_flush=for_flush,
    )
