"""One shard of a bookie: a journal, and the write cache, entry logs and index behind it.

Shards share nothing but the bookie that routes to them, so each has a checkpoint of its own: there
is no common one that could move only after all of them are flushed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import Disk, DiskSpace
from fencelog.bookie.disk.space import has_space_for_flush
from fencelog.bookie.engine.adds import Adds
from fencelog.bookie.engine.fences import Fenced, Fences
from fencelog.bookie.engine.lacs import Lacs
from fencelog.bookie.engine.opening import OpenShard, replay_journal
from fencelog.bookie.engine.reads import Reads
from fencelog.bookie.format.control_records import take_back
from fencelog.bookie.format.records import Record, RecordType
from fencelog.bookie.metrics import BookieCounts
from fencelog.bookie.storage.flush import Flusher
from fencelog.bookie.storage.read_ahead import ShardReadAhead
from fencelog.bookie.storage.write_cache import WriteCache
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import read_run_header
from fencelog.ledgers.rpc.bookie_port import AddsCallback, AddToken, LedgerLac


class Shard:
    """The journal, caches, entry logs and index for the ledgers of one shard. ``Bookie`` opens and
    closes it, and calls ``refuse`` when no more requests are taken.

    ``on_pressure`` is called when ``is_under_pressure`` changes, ``on_failure`` when storage has
    failed.
    """

    def __init__(
        self,
        opened: OpenShard,
        config: BookieConfig,
        bookie_id: str,
        *,
        metrics: BookieCounts,
        on_pressure: Callable[[], None],
        on_failure: Callable[[FencelogError], None],
    ) -> None:
        self._opened = opened
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self.journal = journal = opened.journal
        self.states = states = opened.states
        self.storage = opened.storage
        self.cache = WriteCache(config.write_cache_bytes // config.shard_count)
        self.write_io_thread = opened.write_io_thread
        self.read_io_thread = opened.read_io_thread
        self.fences = Fences(states, journal)
        self.lacs = Lacs(states, journal)
        self.reads = Reads(
            bookie_id,
            cache=self.cache,
            states=states,
            stored=ShardReadAhead(
                opened.storage.reads,
                opened.read_io_thread,
                cache_bytes=config.read_cache_bytes // config.shard_count,
            ),
            lacs=self.lacs,
            fence=self.fence,
            refusal=lambda: self.adds.refusal,
            metrics=metrics,
        )
        self.flusher = Flusher(
            cache=self.cache,
            states=states,
            storage=opened.storage,
            io_thread=opened.write_io_thread,
            journal=journal,
            interval_ms=config.flush_interval_ms,
            on_space=lambda: self.adds.release(),
            metrics=metrics,
            on_failure=on_failure,
        )
        self.adds = Adds(
            cache=self.cache,
            states=states,
            lacs=self.lacs,
            journal=journal,
            flusher=self.flusher,
            max_held_bytes=config.write_cache_bytes // config.shard_count // 2,
            stored_ranges=self.reads.stored_ranges,
            on_pressure=on_pressure,
            journal_runs=config.journal_write,
        )

    async def start(self, disk: Disk) -> None:
        """Replay the journal and continue after its end. Raises OSError, FencelogError."""
        end = await replay_journal(
            self._opened,
            disk,
            take_back=self._take_back,
            must_flush=lambda: self.cache.wants_flush,
            flush=self.flusher.flush,
        )
        await self.journal.start(file_id=end.file_id, sequence=end.sequence)

    def begin(self, spaces: Sequence[DiskSpace]) -> None:
        """Start to flush in the background, once the ledgers' disks have space for the first flush,
        and to take adds."""
        flush_bytes = self.cache.flush_bytes
        self.flusher.hold(not all(has_space_for_flush(each, flush_bytes) for each in spaces))
        self.flusher.start()
        self.flusher.request()  # so that a crash now need not replay all this again
        self.adds.start()

    async def stop(self) -> None:
        """Stop the background work. Call ``refuse`` first. Cached runs remain for ``flush``."""
        self.lacs.wake_all()
        await self.adds.close()
        await self.flusher.close()

    async def flush(self) -> None:
        """Move everything into entry logs and index. Call ``stop`` first. Raises OSError,
        FencelogError."""
        await self.flusher.flush(self.journal.position)

    def write_lacs(
        self, lacs: Sequence[LedgerLac], tokens: Sequence[AddToken], on_replies: AddsCallback
    ) -> None:
        """Take explicit LACs; the contract of ``Bookie.write_lacs``."""
        try:
            self.adds.check_writable()
        except FencelogError as error:
            self._loop.call_soon(on_replies, tokens, error)
        else:
            self.lacs.write(lacs, tokens, on_replies)

    def fence(self, ledger_id: int) -> Fenced | None:
        """Fence a ledger; the contract of ``Bookie.fence``."""
        if self.adds.refusal is not None:
            return None
        fenced = self.fences.fence(ledger_id)
        self.lacs.wake(ledger_id)
        return fenced

    async def remove(self, ledger_id: int, *, deleted: bool) -> None:
        """Release a ledger's entries, durably (``Fences.remove``); their space is freed by the next
        flushes and compactions. Raises FencelogError(STORAGE_FAILED), the refusal."""
        self.check_open()
        self.fences.remove(ledger_id, deleted=deleted)
        self.cache.discard(ledger_id)
        self.lacs.wake(ledger_id)
        await self.settle()

    def refuse(self, error: FencelogError) -> None:
        """Take no more requests; adds that wait for space are answered with ``error``."""
        self.adds.refuse(error)
        self.lacs.wake_all()

    def report_failure(self, error: FencelogError) -> None:
        """Report a write whose outcome is unknown: the bookie stops."""
        self._on_failure(error)

    def fail(self, error: FencelogError) -> None:
        """Handle a storage failure, here or in another shard: no more is written."""
        self.refuse(error)
        self.journal.fail(error)

    async def settle(self, *, sync: bool = False) -> None:
        """Wait until everything so far is durable. Raises FencelogError(STORAGE_FAILED)."""
        await self.journal.settle(sync=sync)

    def check_open(self) -> None:
        """Check that requests are taken. Raises the refusal."""
        if self.adds.refusal is not None:
            raise self.adds.refusal

    def _take_back(self, record: Record) -> None:
        if record.type.is_run:
            replaces = record.type is RecordType.REPLACEMENT
            self.adds.remember(read_run_header(record.body), record.body, replaces=replaces)
            return
        take_back(record, self.states)
        if record.type in (RecordType.DELETED, RecordType.DROPPED):
            self.cache.discard(int.from_bytes(record.body, "little"))


def stopped(bookie_id: str, error: FencelogError) -> FencelogError:
    """Return the error that a bookie answers with once its storage has failed."""
    return FencelogError(
        ErrorCode.STORAGE_FAILED, f"bookie {bookie_id} has stopped: {error.detail}"
    )
