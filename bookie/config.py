"""Settings of one bookie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_BOOKIE_DIRECTORIES, MAX_RUN_BYTES, MIB


@dataclass(frozen=True, slots=True)
class BookieConfig:
    """Where a bookie keeps its data and how much it may hold in memory.

    Raises FencelogError(BAD_REQUEST) for sizes it cannot work with.
    """

    data_dir: Path
    """Locked by one process at a time; created when missing."""

    journal_dirs: tuple[Path, ...] = ()
    """Where journals are; each may be a disk of its own. None given: ``journal`` in ``data_dir``.
    For good, as is ``ledger_dirs``: see storage/shard_directory.py."""

    ledger_dirs: tuple[Path, ...] = ()
    """Where entry logs and indexes are. None given: ``data_dir``."""

    bookie_id: str | None = None
    """Given: the id of a new data directory, or what an existing one must say. None: keep the
    directory's own, or make one up for a new directory."""

    write_cache_bytes: int = 64 * MIB
    """Runs that are not in an entry log yet. Over it adds wait, and over half as much again they
    are refused."""

    read_cache_bytes: int = 32 * MIB
    """Runs read from entry logs, kept for whoever reads on. 0: none are."""

    journal_file_bytes: int = 64 * MIB
    """A journal file is closed and the next begun at this size. Small, so that trimmed files give
    their page cache back soon: writing through memory that is in use already cost a third less
    processor time per add than filling 256 MiB of fresh pages."""

    entry_log_bytes: int = 1024 * MIB
    """An entry log is sealed at this size. The space of deleted ledgers comes back per file."""

    read_only_at: float = 0.95
    """Share of a disk in use at which no regular add is taken any more
    (``maintenance/disk_watch.py``)."""

    writable_at: float = 0.90
    """Share in use below which they are taken again."""

    flush_interval_ms: int = 10_000
    """Longest time an entry waits in the write cache: bounds the replay after a crash."""

    journal_sync: bool = True
    """False: adds are answered when they are written to the journal, not yet synced. A bookie that
    is not closed cleanly then counts as one that forgot: it takes a new incarnation and fences all
    its ledgers before it serves again (PROTOCOL.md rule 10)."""

    journal_write: bool = True
    """False: adds are in no journal at all, only in memory until the next flush (BP-46). Everything
    else about ``journal_sync=False`` holds too; fences, limbo and the like are journaled and synced
    as ever."""

    repair_cookie: bool = False
    """True: a directory that was lost is made anew without asking (BP-46). The bookie then counts
    as one that forgot. Safe, but whoever mounts the wrong disk gets an empty bookie."""

    @property
    def is_synced(self) -> bool:
        """Whether all that is acknowledged is on disk, so that a crash takes nothing."""
        return self.journal_sync and self.journal_write

    @property
    def shard_count(self) -> int:
        return max(len(self.journal_dirs), len(self.ledger_dirs), 1)

    def __post_init__(self) -> None:
        smallest = 2 * MAX_RUN_BYTES
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
        """What the data directory holds for shards that have no directories of their own."""
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
