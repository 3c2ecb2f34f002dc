"""The metrics of the bookies in a process: their counts, and their answers to ``status``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fencelog.api.metrics.table import Metric, samples, times
from fencelog.bookie.engine.admin import administer
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.metrics import BookieCounts


class MeasuredBookie(NamedTuple):
    """A bookie as it is now. ``status``: see ``engine/admin.py``."""

    status: Mapping[str, Any]
    counted: BookieCounts
    waiting_bytes: int
    cached_bytes: int

    @property
    def label(self) -> tuple[str]:
        return (self.status["bookie_id"],)


_OF_STATUS = {
    "fencelog_bookie_read_only": ("read_only",),
    "fencelog_bookie_ledgers": ("ledgers",),
    "fencelog_bookie_limbo_ledgers": ("ledgers_in_limbo",),
    "fencelog_bookie_garbage_passes": ("garbage", "passes"),
    "fencelog_bookie_removed_ledgers": ("garbage", "removed_ledgers"),
    "fencelog_bookie_removed_entry_logs": ("garbage", "removed_entry_logs"),
    "fencelog_bookie_compacted_bytes": ("garbage", "copied_bytes"),
    "fencelog_bookie_scrub_passes": ("scrub", "passes"),
    "fencelog_bookie_scrubbed_bytes": ("scrub", "bytes"),
    "fencelog_bookie_damaged_runs": ("integrity", "damaged_runs"),
    "fencelog_bookie_damaged_runs_found": ("integrity", "damaged_runs_found"),
    "fencelog_bookie_repaired_ledgers": ("integrity", "repaired_ledgers"),
    "fencelog_bookie_copied_bytes": ("integrity", "copied_bytes"),
}
"""The place of each of these figures in the answer to ``status``."""


_OF_DIRECTORIES = {
    "fencelog_bookie_disk_bytes": "total_bytes",
    "fencelog_bookie_disk_free_bytes": "free_bytes",
}
"""The member of each directory in it that is one of these figures."""


_COUNTED = {
    "fencelog_bookie_journal_records": "journaled_records",
    "fencelog_bookie_journal_bytes": "journaled_bytes",
    "fencelog_bookie_entry_log_bytes": "flushed_bytes",
}
"""The counts of ``BookieCounts`` by the name of their metric."""


async def measure_bookies(bookies: Sequence[Bookie]) -> list[MeasuredBookie]:
    """Measure running bookies of this process. Raises FencelogError(STORAGE_FAILED)."""
    return [
        MeasuredBookie(
            await administer(bookie.admin, {"do": "status"}),
            bookie.metrics,
            sum(shard.journal.waiting_bytes for shard in bookie.shards),
            sum(shard.cache.size for shard in bookie.shards),
        )
        for bookie in bookies
    ]


def bookie_metrics(bookies: Sequence[MeasuredBookie]) -> Iterator[Metric]:
    """Yield the metrics of bookies."""
    for name, place in _OF_STATUS.items():
        yield samples(name, ((each.label, _at(each.status, place)) for each in bookies))
    for name, member in _OF_DIRECTORIES.items():
        yield samples(name, _of_directories(bookies, member))
    for name, member in _COUNTED.items():
        counts = ((each.label, getattr(each.counted, member)) for each in bookies)
        yield samples(name, counts)
    waiting = ((each.label, each.waiting_bytes) for each in bookies)
    yield samples("fencelog_bookie_journal_waiting_bytes", waiting)
    cached = ((each.label, each.cached_bytes) for each in bookies)
    yield samples("fencelog_bookie_write_cache_bytes", cached)
    queued = ((each.label, each.counted.journal_time) for each in bookies)
    yield times("fencelog_bookie_journal_queue_seconds", queued)
    synced = ((each.label, each.counted.sync_time) for each in bookies)
    yield times("fencelog_bookie_journal_sync_seconds", synced)
    flushed = ((each.label, each.counted.flush_time) for each in bookies)
    yield times("fencelog_bookie_flush_seconds", flushed)
    yield samples("fencelog_bookie_reads", _reads(bookies))


def _reads(bookies: Sequence[MeasuredBookie]) -> Iterator[tuple[tuple[str, str], float]]:
    for each in bookies:
        (bookie_id,) = each.label
        yield (bookie_id, "write_cache"), each.counted.write_cache_hits
        yield (bookie_id, "read_cache"), each.counted.read_cache_hits
        yield (bookie_id, "disk"), each.counted.disk_reads
        yield (bookie_id, "local"), each.counted.placed_reads


def _of_directories(
    bookies: Sequence[MeasuredBookie], member: str
) -> Iterator[tuple[tuple[str, str], float]]:
    for each in bookies:
        (bookie_id,) = each.label
        for directory in each.status["directories"]:
            if directory["holds"] != ["identity"]:  # which entries do not fill
                yield (bookie_id, directory["path"]), float(directory[member])


def _at(status: Any, place: Sequence[str]) -> float:
    for name in place:
        status = status[name]
    return float(status)
