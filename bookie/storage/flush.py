"""The flush, which moves the write cache into entry logs and index, and then the checkpoint.

    swap halves -> merge small runs -> journal durable up to there -> entry log, fsync -> index
        -> free the half -> checkpoint -> older journal files deleted

A flush begins when a half is full, or with the interval. The journal goes first so that the index
never holds more than the journal: replay checks that the journal reaches the index's mark.

Runs are merged on the event loop, a step in each of its turns. On the I/O thread the work would be
the same, but the thread would take the interpreter from the loop for up to 5 ms at a time until it
ends, and so would those of other bookies in the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from errno import ENOSPC

from fencelog.bookie.disk.port import IoThread
from fencelog.bookie.format.ledger_state import LedgerStates
from fencelog.bookie.journal.file import JournalPosition
from fencelog.bookie.journal.journal import Journal
from fencelog.bookie.metrics import BookieCounts
from fencelog.bookie.storage.storage import FlushedState, Storage
from fencelog.bookie.storage.write_cache import WriteCache
from fencelog.ledgers.errors import ErrorCode, FencelogError


class Flusher:
    """The service that runs flushes, one at a time. ``on_room`` is called when a half has become
    free, ``on_failure`` once, when storage has failed."""

    def __init__(
        self,
        *,
        cache: WriteCache,
        states: LedgerStates,
        storage: Storage,
        io_thread: IoThread,
        journal: Journal,
        interval_ms: int,
        on_space: Callable[[], None],
        on_failure: Callable[[FencelogError], None],
        metrics: BookieCounts | None = None,
    ) -> None:
        self._metrics = metrics or BookieCounts()
        self._loop = asyncio.get_running_loop()
        self._cache = cache
        self._states = states
        self._storage = storage
        self._io_thread = io_thread
        self._journal = journal
        self._interval_s = interval_ms / 1000
        self._on_space = on_space
        self._on_failure = on_failure
        self._wake = asyncio.Event()
        self._begun: FlushedState | None = None
        self._closing = False
        self._is_held = False
        self._space = asyncio.Event()
        self._space.set()
        self._task: asyncio.Task[None] | None = None
        self.completed = 0
        """Number of flushes that have moved their half into the index."""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="bookie-flush")

    def request(self) -> None:
        """Begin a flush now unless one is running: the active half is empty on return."""
        if self._begun is None and not self._closing:
            self._begin(self._journal.position)
            self._wake.set()

    async def flush(self, position: JournalPosition) -> None:
        """Flush all cached runs, which lie before ``position``; for use while the flusher is not
        started. Raises OSError or FencelogError."""
        self._begin(position)
        await self._carry_out()

    def hold(self, on: bool) -> None:
        """Hold back flushes, or release them: no flush begins to write while the disk has no space
        for it."""
        if not self._closing:
            self._is_held = on
            (self._space.clear if on else self._space.set)()

    async def close(self) -> None:
        """End the running flush, and no more: the owner flushes the rest with ``flush``. A flush
        that is held back fails: its runs are in the journal, and writing half of them would fill
        the disk, so that a start on it would fail too."""
        self._closing = True
        self._space.set()
        if self._task is not None:
            task, self._task = self._task, None
            if self._begun is None:
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # -- one flush ---------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._closing:
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._wake.wait()
            except TimeoutError:
                self.request()
            self._wake.clear()
            try:
                await self._carry_out()
            except Exception as error:  # any error: a bookie that cannot flush must stop
                self._on_failure(FencelogError(ErrorCode.STORAGE_FAILED, f"flush failed: {error}"))
                return
            if self._cache.wants_flush:
                self.request()

    def _begin(self, position: JournalPosition) -> None:
        self._begun = FlushedState(
            self._cache.swap(), self._states.take_changed(), self._states.take_removed(), position
        )

    async def _carry_out(self) -> None:
        flushed = self._begun
        if flushed is None:
            return
        for _ in flushed.runs.merge():
            await asyncio.sleep(0)
        await self._space.wait()
        if self._is_held:
            raise OSError(ENOSPC, "closed without space on the disk for what is in the journal")
        has_moved = flushed.position != self._storage.checkpoint
        if has_moved or not flushed.is_empty:
            began_s = self._loop.time()
            await self._journal.settle(sync=True)
            await self._io_thread.run(lambda: self._storage.store(flushed))
            self._metrics.flush_time.observe(self._loop.time() - began_s)
            self._metrics.flushed_bytes += flushed.runs.size
        self._cache.release()
        self._states.are_removed(flushed.removed)
        self.completed += 1
        self._on_space()
        if has_moved:
            await self._io_thread.run(lambda: self._storage.write_checkpoint(flushed.position))
        self._begun = None
