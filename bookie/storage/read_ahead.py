"""Stored runs for readers: from the read cache, or index and entry log, with what comes next read
ahead of whoever reads a ledger from front to back.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from fencelog.bookie.disk.port import IoThread
from fencelog.bookie.format.runs import Range, join_runs
from fencelog.bookie.storage.read_cache import ReadCache
from fencelog.bookie.storage.stored_reads import StoredReads
from fencelog.ledgers.format.run import read_run_header
from fencelog.ledgers.limits import MIB

_AHEAD_BYTES = 2 * MIB
"""Read ahead of a reader: what the disk gives while one answer is on its way."""

_MAX_AHEAD = 4
"""Ledgers read ahead at a time, so that other reads get their turn on the I/O thread."""

_MAX_STRIDE = 64
"""A reader that skips no more than this is still reading on: other bookies hold the rest."""

_MAX_READERS = 1024
"""Ledgers whose readers are remembered."""

_ANY_NUMBER = 1 << 62


@dataclass(slots=True)
class _Reader:
    """Of a ledger, as far as it can be told from what is asked."""

    next: int = 0
    nothing_at: int = -1
    """Where nothing was stored yet when it was looked for."""


class ShardReadAhead:
    """Reads of one shard, on its reading thread. Used on the event loop."""

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
        """Entries from ``first_entry_id`` on as one run, within both limits but at least one, if
        the cache has that."""
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
        """The same, wherever it is stored. None: it is not, says an index that was read without
        error. Raises FencelogError(CORRUPT, STORAGE_FAILED)."""
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

    async def ranges(self, ledger_id: int, wanted: Range) -> list[Range]:
        """What of the entries wanted is stored. Raises FencelogError(CORRUPT, STORAGE_FAILED)."""
        return await self._io_thread.run(lambda: self._reads.ranges(ledger_id, wanted))

    def _read_on(self, ledger_id: int, first_entry_id: int, run: bytes) -> None:
        """Somebody was given ``run``: if he reads in order, read ahead of him."""
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
            """An error is for whoever asks for these entries: he looks for himself."""
            del self._ahead[ledger_id]
            if not runs:
                reader.nothing_at = begin
            self._cache.put(runs)
            fetched.set_result(None)

        self._io_thread.submit(work, done)
