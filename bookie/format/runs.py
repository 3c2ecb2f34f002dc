"""Slicing and joining of runs for readers and for the flush. Pure; per run, not per entry."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from fencelog.ledgers.format.run import merge_runs, read_run_header, run_starts, slice_run
from fencelog.ledgers.limits import MAX_RUN_ENTRIES, TARGET_RUN_BYTES

_MERGE_BELOW_BYTES = TARGET_RUN_BYTES // 4
"""Size from which on merging a run gains nothing: its index record is negligible already."""

_STEP_RUNS = 256
"""The number of runs that are merged at once: about a millisecond."""

Range = tuple[int, int]
"""First and last entry id, both included."""

CachedRun = tuple[int, int, bytes]
"""The first and last entry id of a run, and the run."""


def clip_run(run: bytes, first_entry_id: int, *, max_entries: int, max_bytes: int) -> bytes:
    """Return the part of a run from ``first_entry_id`` on, within both limits, but at least one
    entry."""
    header = read_run_header(run)
    low = max(0, first_entry_id - header.first_entry_id)
    high = min(header.entries, low + max_entries) - 1
    starts = run_starts(run, header)
    if header.size - starts[low] > max_bytes:
        fitting = bisect_right(starts, starts[low] + max_bytes, lo=low) - 2
        high = max(low, min(high, fitting))
    return slice_run(run, header.first_entry_id + low, header.first_entry_id + high)


def join_runs(
    runs: Sequence[bytes], first_entry_id: int, *, max_entries: int, max_bytes: int
) -> bytes:
    """Join adjacent runs into one, from ``first_entry_id`` (which the first holds) on, within both
    limits, but with at least one entry. The last run is cut where the reader wants no more entries;
    one that is too large is left to the next read, whole."""
    is_cut = max_entries < MAX_RUN_ENTRIES
    max_entries = min(max_entries, MAX_RUN_ENTRIES)
    parts = [clip_run(runs[0], first_entry_id, max_entries=max_entries, max_bytes=max_bytes)]
    if len(runs) == 1:
        return parts[0]
    header = read_run_header(parts[0])
    count, size, last = header.entries, header.size, header.last_entry_id
    if last < read_run_header(runs[0]).last_entry_id:
        return parts[0]
    for run in runs[1:]:
        header = read_run_header(run)
        wanted = max_entries - count
        if header.entries > wanted:
            if not (is_cut and wanted):
                break
            run = slice_run(run, header.first_entry_id, header.first_entry_id + wanted - 1)
            header = read_run_header(run)
        if size + header.size > max_bytes:
            break
        parts.append(run)
        count += header.entries
        size += header.size
    return parts[0] if len(parts) == 1 else merge_runs(parts)


def within(runs: Sequence[bytes], max_bytes: int) -> list[bytes]:
    """Return the first of the runs, and those behind it up to a size of all."""
    sizes = accumulate(map(len, runs))
    return [run for run, size in zip(runs, sizes, strict=True) if size <= max_bytes] or [*runs[:1]]


def merged(runs: Iterable[CachedRun]) -> Iterator[bytes]:
    """Yield runs of one ledger in entry order, small adjacent ones merged up to
    TARGET_RUN_BYTES."""
    for item in merging(runs):
        if item is not None:
            yield item[2]


def merging(runs: Iterable[CachedRun]) -> Iterator[CachedRun | None]:
    """Yield what ``merged`` does, each run with its first and last entry, and None after each step
    that has completed no run."""
    group: list[CachedRun] = []
    total = size = 0
    following = -1
    for first, last, run in runs:
        count, length = last - first + 1, len(run)
        joins = (
            first == following
            and length < _MERGE_BELOW_BYTES
            and size + length <= TARGET_RUN_BYTES
            and total + count <= MAX_RUN_ENTRIES
        )
        if not joins and group:
            yield _one_run(group)
            group, total, size = [], 0, 0
        elif len(group) == _STEP_RUNS:
            group = [_one_run(group)]
            yield None
        group.append((first, last, run))
        total += count
        size += length
        following = last + 1
    if group:
        yield _one_run(group)


def _one_run(group: Sequence[CachedRun]) -> CachedRun:
    """Return adjacent runs as one."""
    if len(group) == 1:
        return group[0]
    return group[0][0], group[-1][1], merge_runs([run for _, _, run in group])


def missing_ranges(wanted: Range, held: Iterable[Range]) -> list[Range]:
    """Return the parts of ``wanted`` that none of the ranges ``held`` contains, ascending."""
    missing: list[Range] = []
    position, last = wanted
    for low, high in sorted(held):
        if low > last:
            break
        if low > position:
            missing.append((position, low - 1))
        position = max(position, high + 1)
    if position <= last:
        missing.append((position, last))
    return missing
