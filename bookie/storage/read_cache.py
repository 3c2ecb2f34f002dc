"""The runs that were read from entry logs lately, or will be asked for next.

The page cache keeps the bytes; this cache keeps them verified and on the event loop, so that a
sequential reader, entry by entry or in large steps, waits for no thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable

from fencelog.ledgers.format.run import read_run_header


class _CachedRuns:
    """Disjoint runs of one ledger in entry order."""

    __slots__ = ("firsts", "lasts", "runs")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.lasts: list[int] = []
        self.runs: list[bytes] = []


class ReadCache:
    """A cache of at most ``max_bytes`` of runs. The least recently used ledger is evicted first,
    from its front.

    Entries never change, so no run here can be out of date; the caller has to know whether a ledger
    may be read at all.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._ledgers: OrderedDict[int, _CachedRuns] = OrderedDict()
        self.size = 0

    def put(self, runs: Iterable[bytes]) -> None:
        """Cache verified runs."""
        for run in runs:
            header = read_run_header(run)
            cached = self._ledgers.setdefault(header.ledger_id, _CachedRuns())
            self._ledgers.move_to_end(header.ledger_id)
            at = bisect_left(cached.lasts, header.first_entry_id)
            if at < len(cached.lasts) and cached.firsts[at] <= header.last_entry_id:
                continue  # compaction and flush may cut the same entries in other runs
            cached.firsts.insert(at, header.first_entry_id)
            cached.lasts.insert(at, header.last_entry_id)
            cached.runs.insert(at, run)
            self.size += len(run)
        while self.size > self._max_bytes:
            self._forget_one()

    def collect(
        self, ledger_id: int, first_entry_id: int, *, max_entries: int, max_bytes: int
    ) -> list[bytes]:
        """Return adjacent runs from the one that holds ``first_entry_id`` on, enough for both
        limits or as many as there are."""
        cached = self._ledgers.get(ledger_id)
        if cached is None:
            return []
        runs: list[bytes] = []
        entry_id, size = first_entry_id, 0
        for at in range(bisect_left(cached.lasts, first_entry_id), len(cached.lasts)):
            if cached.firsts[at] > entry_id:
                break
            runs.append(cached.runs[at])
            size += len(cached.runs[at])
            entry_id = cached.lasts[at] + 1
            if size >= max_bytes or entry_id - first_entry_id >= max_entries:
                break
        if runs:
            self._ledgers.move_to_end(ledger_id)
        return runs

    def _forget_one(self) -> None:
        ledger_id, cached = next(iter(self._ledgers.items()))
        self.size -= len(cached.runs[0])
        for column in (cached.firsts, cached.lasts, cached.runs):
            del column[0]
        if not cached.runs:
            del self._ledgers[ledger_id]
