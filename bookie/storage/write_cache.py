"""The runs that are in the journal and not yet in an entry log, in memory for reads and the flush.

The cache has two halves: one takes adds while the other is being flushed. Within the cache and the
index together no entry of a ledger is held twice (``engine/bookie.py`` trims overlapping runs), so
runs of a ledger can be found by bisection.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from fencelog.bookie.format.runs import CachedRun, Range, merging
from fencelog.ledgers.errors import check
from fencelog.ledgers.format.availability import MAX_ENTRY_ID
from fencelog.ledgers.limits import KIB

_STEP = 256
"""The work after which a step ends, about a millisecond: one for each entry, and one for each
_COPIED_BYTES."""

_COPIED_BYTES = 4 * KIB

_LEDGERS_LOOKED_AT = 4096
"""Ledgers after which a step ends although nothing of them is to be merged."""


class _LedgerRuns:
    """Disjoint runs of one ledger in entry order."""

    __slots__ = ("firsts", "lasts", "runs")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.lasts: list[int] = []
        self.runs: list[bytes] = []

    def put(self, first: int, last: int, run: bytes) -> None:
        at = bisect_right(self.firsts, first)
        apart = (at == 0 or self.lasts[at - 1] < first) and (
            at == len(self.firsts) or last < self.firsts[at]
        )
        check(apart, f"run {first}..{last} overlaps a cached one of its ledger")
        self.firsts.insert(at, first)
        self.lasts.insert(at, last)
        self.runs.insert(at, run)

    def merge(self) -> Iterator[int]:
        """Merge small adjacent runs; yields how much each step was."""
        if len(self.runs) < 2:
            return
        kept: list[CachedRun] = []
        for item in merging(zip(self.firsts, self.lasts, self.runs, strict=True)):
            if item is None:
                yield _STEP
                continue
            kept.append(item)
            first, last, run = item
            yield last - first + 1 + len(run) // _COPIED_BYTES
        self.firsts = [first for first, _, _ in kept]
        self.lasts = [last for _, last, _ in kept]
        self.runs = [run for _, _, run in kept]


class CacheHalf:
    """One half of the cache, with runs of many ledgers."""

    __slots__ = ("_ledgers", "replaced", "size")

    def __init__(self) -> None:
        self._ledgers: dict[int, _LedgerRuns] = {}
        self.size = 0
        self.replaced: list[tuple[int, Range]] = []
        """The entries of ledgers that replace stored ones."""

    def put(self, ledger_id: int, first: int, last: int, run: bytes) -> None:
        runs = self._ledgers.get(ledger_id)
        if runs is None:
            runs = self._ledgers[ledger_id] = _LedgerRuns()
        if not runs.lasts or first > runs.lasts[-1]:
            runs.firsts.append(first)
            runs.lasts.append(last)
            runs.runs.append(run)
        else:
            runs.put(first, last, run)
        self.size += len(run)

    def discard(self, ledger_id: int) -> None:
        """Remove the runs of a ledger."""
        runs = self._ledgers.pop(ledger_id, None)
        if runs is not None:
            self.size -= sum(map(len, runs.runs))
            self.replaced = [item for item in self.replaced if item[0] != ledger_id]

    def find(self, ledger_id: int, entry_id: int) -> tuple[int, bytes] | None:
        """Return the last entry id of the run that holds an entry, and the run."""
        runs = self._ledgers.get(ledger_id)
        if runs is None:
            return None
        at = bisect_right(runs.firsts, entry_id) - 1
        if at < 0 or runs.lasts[at] < entry_id:
            return None
        return runs.lasts[at], runs.runs[at]

    def ranges(self, ledger_id: int, wanted: Range, *, most: int | None = None) -> list[Range]:
        """Return the ranges of a ledger's runs that hold any of the wanted entries; with ``most``
        the first so many, perhaps one more."""
        runs = self._ledgers.get(ledger_id)
        if runs is None:
            return []
        low = max(0, bisect_right(runs.firsts, wanted[0]) - 1)
        high = bisect_right(runs.firsts, wanted[1])
        if most is not None:
            high = min(high, low + most + 1)  # the first of them may end before the wanted range
        return [
            (first, last)
            for first, last in zip(runs.firsts[low:high], runs.lasts[low:high], strict=True)
            if last >= wanted[0]
        ]

    def merge(self) -> Iterator[None]:
        """Merge small adjacent runs of each ledger, step by step: yields after each step. At any
        time between two steps all entries are here, but nothing may be put or discarded. A ledger's
        runs are kept beside the merged ones until it is done. ``size`` stays as it is."""
        work = 0
        for number, runs in enumerate(self._ledgers.values(), start=1):
            for done in runs.merge():
                work += done
                if work >= _STEP:
                    work = 0
                    yield
            if number % _LEDGERS_LOOKED_AT == 0:
                yield

    def in_order(self) -> Iterator[bytes]:
        """Yield the runs in the order in which they are written: by ledger, then entry."""
        for _, runs in sorted(self._ledgers.items()):
            yield from runs.runs


class WriteCache:
    """The write cache with both halves. A flush begins at a third of ``max_bytes``: runs added
    while it runs have twice that before adds must wait."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._active = CacheHalf()
        self._frozen: CacheHalf | None = None
        self.put: Callable[[int, int, int, bytes], None] = self._active.put
        """Caches a run with the entries of a ledger from the first to the last one."""

    @property
    def size(self) -> int:
        return self._active.size + (self._frozen.size if self._frozen else 0)

    @property
    def flush_bytes(self) -> int:
        """Return the bytes that the running flush writes, or else the next one would."""
        return (self._frozen or self._active).size

    @property
    def wants_flush(self) -> bool:
        """Tell whether the active half has taken its share."""
        return self._active.size * 3 >= self._max_bytes

    @property
    def space(self) -> int:
        """Return the bytes after which regular adds have to wait; 0 or less: they have to now."""
        return self._max_bytes - self.size

    def has_space(self, *, recovery: bool) -> bool:
        """Tell whether an add can be taken now. Recovery has a reserve of an eighth: it must be
        able to end a ledger while the load of others keeps the cache full."""
        return self.space + (self._max_bytes // 8 if recovery else 0) > 0

    def replace(self, ledger_id: int, first: int, last: int, run: bytes) -> None:
        """Cache a run of which exactly these entries are in the index, perhaps: to be removed
        there."""
        self._active.put(ledger_id, first, last, run)
        self._active.replaced.append((ledger_id, (first, last)))

    def discard(self, ledger_id: int) -> None:
        """Remove the runs of a removed ledger that are not being flushed."""
        self._active.discard(ledger_id)

    def swap(self) -> CacheHalf:
        """Begin a flush: return the half to be flushed, which stays readable until ``release``."""
        check(self._frozen is None, "a flush is running")
        self._frozen, self._active = self._active, CacheHalf()
        self.put = self._active.put
        return self._frozen

    def release(self) -> None:
        """Release the frozen half, whose runs can be found through the index now."""
        self._frozen = None

    def find(self, ledger_id: int, entry_id: int) -> tuple[int, bytes] | None:
        """Return the last entry id of the run that holds an entry, and the run."""
        found = self._active.find(ledger_id, entry_id)
        if found is None and self._frozen is not None:
            found = self._frozen.find(ledger_id, entry_id)
        return found

    def collect(
        self, ledger_id: int, first_entry_id: int, *, max_entries: int, max_bytes: int
    ) -> list[bytes]:
        """Return adjacent runs from the one that holds ``first_entry_id`` on, enough for both
        limits."""
        runs: list[bytes] = []
        entry_id, size = first_entry_id, 0
        while size < max_bytes and entry_id - first_entry_id < max_entries:
            found = self.find(ledger_id, entry_id)
            if found is None:
                break
            runs.append(found[1])
            size += len(found[1])
            entry_id = found[0] + 1
        return runs

    def first_ranges(self, ledger_id: int, entry_id: int, most: int) -> list[list[Range]]:
        """Return, for each half, the runs that hold ``entry_id`` or come behind it, ascending; all
        of them if they are fewer than ``most``, else at least so many."""
        halves = (self._active, self._frozen) if self._frozen else (self._active,)
        wanted = (entry_id, MAX_ENTRY_ID)
        return [half.ranges(ledger_id, wanted, most=most) for half in halves]

    def ranges(self, ledger_id: int, wanted: Range) -> list[Range]:
        """Return the ranges of cached runs that hold any of the wanted entries."""
        halves = (self._active, self._frozen) if self._frozen else (self._active,)
        return [found for half in halves for found in half.ranges(ledger_id, wanted)]
