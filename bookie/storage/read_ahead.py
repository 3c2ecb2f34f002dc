"""Stored runs for readers: from the read cache, or index and entry log, with read-ahead for readers
that read a ledger from front to back."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from fencelog.bookie.disk.port import IoThread
from fencelog.bookie.format.runs import Range, join_runs
from fencelog.bookie.storage.read_cache import ReadCache
from fencelog.bookie.storage.stored_reads import StoredReads
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import read_run_header
from fencelog.ledgers.limits import MIB
from fencelog.ledgers.rpc.places import PlacedRuns

_AHEAD_BYTES = 2 * MIB
"""Bytes read ahead of a reader: as much as the disk delivers while one answer is in flight."""

_MAX_AHEAD = 4
"""Number of ledgers read ahead at a time, so that other reads get their turn on the I/O thread."""

_MAX_STRIDE = 64
"""Gap up to which a reader still counts as sequential: other bookies hold the entries between."""

_MAX_READERS = 1024
"""Number of ledgers whose readers are remembered."""

_ANY_NUMBER = 1 << 62


@dataclass(slots=True)
class _Reader:
    """The reader of a ledger, as far as its requests show it."""

    next: int = 0
    nothing_at: int = -1
    """Entry at which no run was stored yet at the last look-up."""


class ShardReadAhead:
    """The reads of one shard, on its reading thread. It is used on the event loop."""

    def __init__(self, reads: StoredReads, io_thread: IoThread, *, cache_bytes: int) -> None:
        self._reads = reads
        self._io_thread = io_thread
        self._cache = ReadCache(cache_bytes)
        self._ahead_bytes = min(_AHEAD_BYTES, cache_bytes // 4)
        self._loop = asyncio.get_running_loop()
        self._readers: OrderedDict[int, _Reader] = OrderedDict()
        self._ahead: dict[int, asyncio.Future[None]] = {}

    def cached(
        self, ledger_id: int, first_entry_id: int, *, max_entries: int, max_bytes: int
    ) -> bytes | None:
        """Return entries from ``first_entry_id`` on as one run, within both limits but at least
        one, if the cache has them."""
        runs = self._cache.collect(
            ledger_id, first_entry_id, max_entries=max_entries, max_bytes=max_bytes
        )
        if not runs:
            return None
        run = join_runs(runs, first_entry_id, max_entries=max_entries, max_bytes=max_bytes)
        self._read_on(ledger_id, first_entry_id, run)
        return run

    async def read(
        self, ledger_id: int, first_entry_id: int, *, max_entries: int, max_bytes: int
    ) -> bytes | None:
        """Return the same as ``cached``, from any storage. None: the entry is not stored, by an
        index that was read without error. Raises FencelogError(CORRUPT, STORAGE_FAILED)."""
        if (ahead := self._ahead.get(ledger_id)) is not None:
            await asyncio.wait([ahead])
            run = self.cached(
                ledger_id, first_entry_id, max_entries=max_entries, max_bytes=max_bytes
            )
            if run is not None:
                return run

        def work() -> tuple[list[bytes], bytes | None]:
            runs = self._reads.runs(
                ledger_id, first_entry_id, max_entries=max_entries, max_bytes=max_bytes
            )
            if not runs:
                return runs, None
            return runs, join_runs(
                runs, first_entry_id, max_entries=max_entries, max_bytes=max_bytes
            )

        runs, run = await self._io_thread.run(work)
        self._cache.put(runs)
        if run is not None:
            self._read_on(ledger_id, first_entry_id, run)
        return run

    async def places(
        self, ledger_id: int, first_entry_id: int, *, max_entries: int, max_bytes: int
    ) -> PlacedRuns | None:
        """Return where entries from ``first_entry_id`` on are in a file, for a client that reads it
        itself: they are neither read nor read ahead here. None: an ordinary read has to answer."""

        def work() -> PlacedRuns | None:
            with suppress(FencelogError, OSError):
                return self._reads.places(
                    ledger_id, first_entry_id, max_entries=max_entries, max_bytes=max_bytes
                )
            return None

        return await self._io_thread.run(work)

    async def read_ranges(
        self, ledger_id: int, ranges: Sequence[Range], *, max_bytes: int
    ) -> list[bytes]:
        """Return entries of several ranges as ``StoredReads.ranges_of_runs`` does. They are not
        kept: whoever copies reads an entry once."""
        return await self._io_thread.run(
            lambda: self._reads.ranges_of_runs(ledger_id, ranges, max_bytes=max_bytes)
        )

    async def ranges(self, ledger_id: int, wanted: Range) -> list[Range]:
        """Return the ranges of wanted entries that are stored. Raises FencelogError(CORRUPT,
        STORAGE_FAILED)."""
        return await self._io_thread.run(lambda: self._reads.ranges(ledger_id, wanted))

    def _read_on(self, ledger_id: int, first_entry_id: int, run: bytes) -> None:
        """Record that a reader got ``run``, and read ahead of a sequential reader."""
        end = read_run_header(run).last_entry_id + 1
        reader = self._readers.pop(ledger_id, None) or _Reader()
        self._readers[ledger_id] = reader
        if len(self._readers) > _MAX_READERS:
            self._readers.popitem(last=False)
        is_in_order = reader.next <= first_entry_id <= reader.next + _MAX_STRIDE
        reader.next = end
        if not is_in_order or ledger_id in self._ahead or len(self._ahead) >= _MAX_AHEAD:
            return
        enough = self._ahead_bytes // 2
        there = self._cache.collect(ledger_id, end, max_entries=_ANY_NUMBER, max_bytes=enough)
        if sum(map(len, there)) < enough:
            begin = read_run_header(there[-1]).last_entry_id + 1 if there else end
            if begin != reader.nothing_at:
                self._fetch(ledger_id, begin, reader)

    def _fetch(self, ledger_id: int, begin: int, reader: _Reader) -> None:
        runs: list[bytes] = []
        fetched = self._ahead[ledger_id] = self._loop.create_future()

        def work() -> None:
            runs.extend(
                self._reads.runs(
                    ledger_id, begin, max_entries=_ANY_NUMBER, max_bytes=self._ahead_bytes
                )
            )

        def done(error: BaseException | None) -> None:
            """Put the runs into the cache. An error is ignored: the next read of these entries
            meets it itself."""
            del self._ahead[ledger_id]
            if not runs:
                reader.nothing_at = begin
            self._cache.put(runs)
            fetched.set_result(None)

        self._io_thread.submit(work, done)
