"""Settings of one bookie."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_BOOKIE_DIRECTORIES, MAX_RUN_BYTES, MIB

SMALL_DISK_SHARE = 16

_SMALLEST_FILE_BYTES = 2 * MAX_RUN_BYTES
_SMALLEST_CACHE_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True)
class BookieConfig:
    """The directories of a bookie, its memory limits and its durability settings.

    Raises FencelogError(BAD_REQUEST) for sizes it cannot work with.
    """

    data_dir: Path
    """The data directory. It is locked by one process at a time, and created when missing."""

    journal_dirs: tuple[Path, ...] = ()
    """The directories of journals; each may be a disk of its own. The default is ``journal`` in
    ``data_dir``. The choice is permanent, as is ``ledger_dirs``: see storage/shard_directory.py."""

    ledger_dirs: tuple[Path, ...] = ()
    """The directories of entry logs and indexes. The default is ``data_dir``."""

    bookie_id: str | None = None
    """The id for a new data directory, which an existing one must match. None: keep the id of the
    directory, or generate one for a new directory."""

    write_cache_bytes: int = 64 * MIB
    """The limit for runs that are not in an entry log yet. Above it, adds wait; above one and a
    half times this size, they are refused."""

    read_cache_bytes: int = 32 * MIB
    """The limit for runs read from entry logs and kept for sequential readers. 0: no run is
    kept."""

    journal_file_bytes: int = 64 * MIB
    """The size at which a journal file is closed and the next one begun. It is small, so that
    trimmed files give their page cache back soon: writing through memory that is in use already
    cost a third less processor time per add than filling 256 MiB of fresh pages."""

    entry_log_bytes: int = 1024 * MIB
    """The size at which an entry log is sealed. The space of deleted ledgers is freed per file."""

    read_only_at: float = 0.95
    """Share of a disk in use from which on no regular add is taken
    (``maintenance/disk_watch.py``)."""

    writable_at: float = 0.90
    """Share of a disk in use below which regular adds are taken again."""

    sharers: int = 1
    """The number of bookies whose data is on the same disks, this one included. Each counts on its
    part of the free space alone: all write their copies of the same entries at the same time."""

    flush_interval_ms: int = 10_000
    """Longest time an entry waits in the write cache. It bounds the replay after a crash."""

    journal_sync: bool = True
    """The switch for syncs of adds. False: adds are answered when they are written to the journal,
    before they are synced. A bookie that is not closed cleanly then counts as one that may have
    lost entries: it takes a new incarnation and fences all its ledgers before it serves again
    (PROTOCOL.md rule 10)."""

    journal_write: bool = True
    """The switch for the journaling of adds. False: adds are not journaled at all; they are only in
    memory until the next flush (BP-46). Everything else about ``journal_sync=False`` holds too;
    fences, limbo and other control records are still journaled and synced."""

    repair_cookie: bool = False
    """The switch for the repair of lost directories. True: a directory that was lost is created
    again without confirmation (BP-46). The bookie then counts as one that may have lost entries.
    This is safe, but mounting the wrong disk yields an empty bookie."""

    local_reads: bool = True
    """The switch for reads by clients of the same machine from the entry logs themselves. False:
    they are sent all bytes, and no path."""

    def fitted(self, disk_bytes: int) -> BookieConfig:
        """Return the configuration with files and a cache that suit disks of this size: each takes
        at most a SMALL_DISK_SHARE of the bookie's part of the smallest one, so that a small disk
        holds more entries than preparations for them."""
        most = disk_bytes // self.sharers // SMALL_DISK_SHARE
        fitted = (
            min(self.write_cache_bytes, max(most, _SMALLEST_CACHE_BYTES)),
            min(self.journal_file_bytes, max(most, _SMALLEST_FILE_BYTES)),
            min(self.entry_log_bytes, max(most, _SMALLEST_FILE_BYTES)),
        )
        if fitted == (self.write_cache_bytes, self.journal_file_bytes, self.entry_log_bytes):
            return self  # also one with files smaller than allowed, as the simulator makes it
        cache_bytes, journal_bytes, log_bytes = fitted
        return replace(
            self,
            write_cache_bytes=cache_bytes,
            journal_file_bytes=journal_bytes,
            entry_log_bytes=log_bytes,
        )

    @property
    def is_synced(self) -> bool:
        """Tell whether all that is acknowledged is on disk, so that a crash loses nothing."""
        return self.journal_sync and self.journal_write

    @property
    def shard_count(self) -> int:
        return max(len(self.journal_dirs), len(self.ledger_dirs), 1)

    def __post_init__(self) -> None:
        smallest = _SMALLEST_FILE_BYTES
        for name in ("journal_file_bytes", "entry_log_bytes"):
            if getattr(self, name) < smallest:
                raise FencelogError(
                    ErrorCode.BAD_REQUEST, f"{name} must be at least {smallest}: two largest runs"
                )
        if not 0 < self.writable_at <= self.read_only_at <= 1:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"writable_at {self.writable_at} and read_only_at {self.read_only_at} must be "
                "shares of a disk, in this order",
            )
        if self.write_cache_bytes < 2 or self.flush_interval_ms < 1:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, "write_cache_bytes and flush_interval_ms must be positive"
            )
        self._check_directories()

    def _check_directories(self) -> None:
        for name, count in (
            ("journal_dirs", len(self.journal_dirs)),
            ("ledger_dirs", len(self.ledger_dirs)),
        ):
            if count > MAX_BOOKIE_DIRECTORIES:
                raise FencelogError(
                    ErrorCode.BAD_REQUEST, f"{name} are more than {MAX_BOOKIE_DIRECTORIES}"
                )
            if count and self.shard_count % count:
                raise FencelogError(
                    ErrorCode.BAD_REQUEST,
                    f"{count} {name} do not divide the {self.shard_count} shards evenly: one of "
                    "the two numbers of directories has to be a multiple of the other",
                )
        given = (*self.journal_dirs, *self.ledger_dirs)
        for number, path in enumerate(given):
            for other in (*given[:number], *given[number + 1 :], *self._taken_in_data_dir()):
                if path.is_relative_to(other):
                    raise _overlap(path, other)
            if self.data_dir.is_relative_to(path):
                raise _overlap(self.data_dir, path)

    def _taken_in_data_dir(self) -> list[Path]:
        """Return the paths in the data directory used by shards without directories of their
        own."""
        names = [] if self.journal_dirs else ["journal"]
        if not self.ledger_dirs:
            names += ["entrylog", "index"] if self.shard_count == 1 else []
            names += [f"shard-{i:02d}" for i in range(self.shard_count) if self.shard_count > 1]
        return [self.data_dir / name for name in (*names, "lock", "identity")]


def _overlap(path: Path, other: Path) -> FencelogError:
    return FencelogError(
        ErrorCode.BAD_REQUEST,
        f"{path} lies in {other}: give directories that are none of each other's files",
    )
