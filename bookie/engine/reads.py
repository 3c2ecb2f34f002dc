"""The path of a read: the ledger is fenced durably if the request asks for it; then the read is
served from the cache, or from index and entry log.

"Not there" is answered only when all of them were read without error, and never in limbo
(PROTOCOL.md rule 7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

from fencelog.bookie.engine.fences import Fenced
from fencelog.bookie.engine.lacs import Lacs
from fencelog.bookie.format.ledger_state import BookieLedgerState, LedgerStates
from fencelog.bookie.format.runs import Range, join_runs, within
from fencelog.bookie.metrics import BookieCounts
from fencelog.bookie.storage.read_ahead import ShardReadAhead
from fencelog.bookie.storage.write_cache import WriteCache
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import read_run_header
from fencelog.ledgers.limits import (
    MAX_LAC_WAIT_MS,
    MAX_PLACED_BYTES,
    MAX_READ_BYTES,
    MAX_RUN_ENTRIES,
)
from fencelog.ledgers.rpc.bookie_port import NO_LAC, ReadReply
from fencelog.ledgers.rpc.places import PlacedRuns


class _Limits(TypedDict):
    max_entries: int
    max_bytes: int


class Reads:
    """The reads of one shard. ``fence`` is ``Bookie.fence``; ``refusal`` returns the error with
    which all requests are refused, or None."""

    def __init__(
        self,
        bookie_id: str,
        *,
        cache: WriteCache,
        states: LedgerStates,
        stored: ShardReadAhead,
        lacs: Lacs,
        fence: Callable[[int], Fenced | None],
        refusal: Callable[[], FencelogError | None],
        metrics: BookieCounts,
    ) -> None:
        self._metrics = metrics
        self._bookie_id = bookie_id
        self._cache = cache
        self._states = states
        self._stored = stored
        self._lacs = lacs
        self._fence = fence
        self._refusal = refusal

    async def read(
        self, ledger_id: int, first_entry_id: int, *, max_entries: int, max_bytes: int, fence: bool
    ) -> ReadReply:
        """Read consecutive entries; the contract of ``BookieClient.read``."""
        if fence:
            await self._fenced(ledger_id)
        state = self.known(ledger_id)
        # The state as of now: if the ledger is repaired during the look-up, or dropped and then
        # repaired, we may look before its entries are back.
        in_limbo, removals = state.limbo, state.removals
        max_entries = max(1, min(max_entries, MAX_RUN_ENTRIES))
        max_bytes = max(1, min(max_bytes, MAX_READ_BYTES))
        limits: _Limits = {"max_entries": max_entries, "max_bytes": max_bytes}
        if runs := self._cache.collect(ledger_id, first_entry_id, **limits):
            self._metrics.write_cache_hits += 1
            run = join_runs(runs, first_entry_id, **limits)
            return ReadReply(self._lacs.durable(state), run)
        # An entry moves from the cache to the index and never back: not in the cache now means in
        # the index by the time of the look there, or nowhere.
        stored = None
        if first_entry_id <= state.last_entry:
            stored = self._stored.cached(ledger_id, first_entry_id, **limits)
            if stored is None:
                self._metrics.disk_reads += 1
                stored = await self._stored.read(ledger_id, first_entry_id, **limits)
            else:
                self._metrics.read_cache_hits += 1
        if stored is None:
            if in_limbo or state.limbo or state.removals != removals:
                raise self._in_limbo(ledger_id)
            raise self._no_such_entry(ledger_id, first_entry_id)
        return ReadReply(self._lacs.durable(state), stored)

    async def places(
        self, ledger_id: int, first_entry_id: int, *, max_entries: int, max_bytes: int
    ) -> tuple[int, PlacedRuns] | None:
        """Return the LAC, and where in an entry log a read would find its entries; None: it has to
        be answered with them. Raises FencelogError: as ``read``."""
        state = self.known(ledger_id)
        max_bytes = min(max_bytes, MAX_PLACED_BYTES)
        is_in_entry_log = first_entry_id <= state.last_entry and not self._cache.collect(
            ledger_id, first_entry_id, max_entries=1, max_bytes=1
        )
        if not is_in_entry_log:
            return None
        found = await self._stored.places(
            ledger_id, first_entry_id, max_entries=max_entries, max_bytes=max_bytes
        )
        if found is None:
            return None
        self._metrics.placed_reads += 1
        return self._lacs.durable(state), found

    async def read_ranges(
        self, ledger_id: int, ranges: Sequence[Range], *, max_bytes: int
    ) -> list[bytes]:
        """Read entries of several ranges; the contract of ``BookieClient.read_ranges``."""
        state = self.known(ledger_id)
        in_limbo, removals = state.limbo, state.removals  # as in ``read``
        max_bytes = max(1, min(max_bytes, MAX_READ_BYTES))
        found = self._cached_runs(ledger_id, ranges, max_bytes)
        # As in ``read``: what is not in the cache now is in the index by the time of the look.
        others = [(a, b) for a, b in ranges if a not in found and a <= state.last_entry]
        if others:
            self._metrics.disk_reads += 1
            for run in await self._stored.read_ranges(ledger_id, others, max_bytes=max_bytes):
                found[read_run_header(run).first_entry_id] = run
        if not found:
            if in_limbo or state.limbo or state.removals != removals:
                raise self._in_limbo(ledger_id)
            raise self._no_such_entry(ledger_id, ranges[0][0])
        return within([run for _, run in sorted(found.items())], max_bytes)

    def _cached_runs(
        self, ledger_id: int, ranges: Sequence[Range], max_bytes: int
    ) -> dict[int, bytes]:
        """Return the beginnings of those ranges that begin in the write cache, up to a size."""
        found: dict[int, bytes] = {}
        size = 0
        for first, last in ranges:
            limits: _Limits = {"max_entries": last - first + 1, "max_bytes": max_bytes}
            if runs := self._cache.collect(ledger_id, first, **limits):
                found[first] = run = join_runs(runs, first, **limits)
                size += len(run)
                if size >= max_bytes:
                    break
        self._metrics.write_cache_hits += bool(found)
        return found

    async def read_lac(self, ledger_id: int, *, fence: bool, above: int, wait_ms: int) -> int:
        """Read the LAC of a ledger; the contract of ``BookieClient.read_lac``."""
        if wait_ms > MAX_LAC_WAIT_MS:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"cannot wait {wait_ms} ms, at most {MAX_LAC_WAIT_MS}"
            )
        if fence:
            await self._fenced(ledger_id)
        elif wait_ms > 0 and self._must_wait(ledger_id, above):
            await self._lacs.wait(ledger_id, above, wait_ms)
        state = self.known(ledger_id)
        in_limbo = state.limbo
        lac = await self._lacs.latest(state)
        if lac == NO_LAC and in_limbo:
            raise self._in_limbo(ledger_id)
        return lac

    async def stored_ranges(self, ledger_id: int, wanted: Range) -> list[Range]:
        """Return the ranges of the wanted entries that are in the index. Raises FencelogError."""
        return await self._stored.ranges(ledger_id, wanted)

    async def _fenced(self, ledger_id: int) -> None:
        """Fence a ledger, and return when the fence is durable. Raises
        FencelogError(STORAGE_FAILED)."""
        fenced = self._fence(ledger_id)
        if fenced is not None and (error := await fenced) is not None:
            raise error

    def known(self, ledger_id: int) -> BookieLedgerState:
        """Return the state of a ledger. Raises FencelogError: NO_SUCH_LEDGER, or the refusal."""
        if (refusal := self._refusal()) is not None:
            raise refusal
        state = self._states.get(ledger_id)
        if state is None or state.deleted:
            raise FencelogError(
                ErrorCode.NO_SUCH_LEDGER, f"bookie {self._bookie_id} has no ledger {ledger_id}"
            )
        return state

    def _must_wait(self, ledger_id: int, above: int) -> bool:
        """Tell whether to wait for a higher LAC. A ledger that is not known yet may be added, and
        its LAC with it."""
        state = self._states.get(ledger_id)
        return self._refusal() is None and (
            state is None or (state.lac <= above and not state.fenced)
        )

    def _no_such_entry(self, ledger_id: int, entry_id: int) -> FencelogError:
        return FencelogError(
            ErrorCode.NO_SUCH_ENTRY,
            f"bookie {self._bookie_id} has no entry {entry_id} of ledger {ledger_id}",
        )

    def _in_limbo(self, ledger_id: int) -> FencelogError:
        return FencelogError(
            ErrorCode.LEDGER_IN_LIMBO,
            f"bookie {self._bookie_id} may have forgotten entries of ledger {ledger_id}",
        )
