"""One bookie: what requests mean, and when they may be answered.

Runs on one event loop, transport-free: ``server.py`` puts it on TCP, ``local.py`` into the same
process. Nothing here blocks: cached runs are answered at once, the rest is lane work.

The promises (PROTOCOL.md), and where they are kept:
* an add is answered after its record is synced (``journal.append``), in the order of the journal;
* a fence holds from the moment of the request, and no reply to a fencing request, negative ones
  included, leaves before it is durable (``fences.py``);
* an entry that is stored is never replaced: what overlaps it is trimmed (``overlaps.py``);
* "not there" is said only when cache and index were read without error (``reads.py``);
* the LAC that is told never goes back (``lacs.py``);
* what may have been forgotten is fenced before anything is served (``boot.py``);
* after a failed write or sync nothing is promised any more: ``failure`` (``_fail``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from fencelog.bookie.adds import Adds
from fencelog.bookie.config import BookieConfig
from fencelog.bookie.control_records import take_back
from fencelog.bookie.disk import Disk
from fencelog.bookie.fences import Fenced, Fences
from fencelog.bookie.flush import Flusher
from fencelog.bookie.lacs import Lacs
from fencelog.bookie.opening import OpenDirectory, open_directory, replay_journal
from fencelog.bookie.reads import Reads
from fencelog.bookie.records import Record, RecordType
from fencelog.bookie.write_cache import WriteCache
from fencelog.ledgers.bookie_port import NO_LAC, AddCallback, ReadReply
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.run import read_run_header

__all__ = ["Bookie", "BookieConfig"]


class Bookie:
    """One storage node over one data directory. Use ``open``; ``close`` when done."""

    def __init__(self, opened: OpenDirectory) -> None:
        config, states, journal = opened.config, opened.states, opened.journal
        self.bookie_id = opened.identity.bookie_id
        self.incarnation = opened.identity.incarnation
        self._identity = opened.identity
        self._directory = opened.directory
        self._marked_unsynced = False
        self._loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[FencelogError] = self._loop.create_future()
        """Gets its *result*, the error, when storage has failed. The owner should then close the
        bookie and end the process: what is on disk is for a fresh start to judge."""
        self._journal = journal
        self._states = states
        self._cache = WriteCache(config.write_cache_bytes)
        self._write_lane = opened.write_lane
        self._read_lane = opened.read_lane
        self._fences = Fences(states, journal)
        self._lacs = Lacs(states, journal)
        self._reads = Reads(
            self.bookie_id,
            cache=self._cache,
            states=states,
            storage=opened.storage,
            lane=opened.read_lane,
            lacs=self._lacs,
            fence=self.fence,
            refusal=lambda: self._adds.refusal,
        )
        self._flusher = Flusher(
            cache=self._cache,
            states=states,
            storage=opened.storage,
            lane=opened.write_lane,
            journal=journal,
            interval_ms=config.flush_interval_ms,
            on_room=lambda: self._adds.release(),
            on_failure=self._fail,
        )
        self._adds = Adds(
            cache=self._cache,
            states=states,
            lacs=self._lacs,
            journal=journal,
            flusher=self._flusher,
            max_held_bytes=config.write_cache_bytes // 2,
            stored_ranges=self._reads.stored_ranges,
            on_pressure=self._pressure_changed,
        )
        self.on_pressure: dict[Callable[[], None], None] = {}
        """Called when ``is_under_pressure`` changes: transports stop reading, or go on."""
        self.on_read_only: dict[Callable[[], None], None] = {}
        """Called when ``is_read_only`` changes: the registration has to say so."""
        self._resources = AsyncExitStack()

    @classmethod
    async def open(cls, config: BookieConfig, *, disk: Disk, host: Host) -> Bookie:
        """Open a data directory, made if it is new, and take back all that was promised in it.

        Raises FencelogError: DATA_DIRECTORY_IN_USE; CORRUPT naming file and offset when something
        that was acknowledged is damaged or missing; STORAGE_FAILED when the disk fails;
        BAD_REQUEST when the directory belongs to another bookie id.
        """
        try:
            async with AsyncExitStack() as stack:
                bookie = await cls._open(config, disk, host, stack)
                bookie._resources = stack.pop_all()
        except OSError as error:
            raise FencelogError(
                ErrorCode.STORAGE_FAILED, f"cannot open data directory {config.data_dir}: {error}"
            ) from error
        return bookie

    @classmethod
    async def _open(
        cls, config: BookieConfig, disk: Disk, host: Host, stack: AsyncExitStack
    ) -> Bookie:
        opened = await open_directory(
            config,
            disk=disk,
            host=host,
            stack=stack,
            on_failure=lambda error: bookie._fail(error),
        )
        bookie = cls(opened)
        end = await replay_journal(
            opened,
            take_back=bookie._take_back,
            must_flush=lambda: bookie._cache.wants_flush,
            flush=bookie._flusher.flush,
        )
        if not config.journal_sync:
            await opened.write_lane.run(opened.directory.mark_unsynced)
            bookie._marked_unsynced = True
        await opened.journal.start(file_id=end.file_id, sequence=end.sequence)
        stack.push_async_callback(opened.journal.close)
        bookie._flusher.start()
        bookie._flusher.request()  # so that a crash now need not replay all this again
        bookie._adds.start()
        return bookie

    async def close(self) -> None:
        """Answer what was accepted, flush, let go of the directory; after a failure only that."""
        if self._adds.refusal is None:
            self._adds.refuse(
                FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, f"bookie {self.bookie_id} is closing")
            )
        self._lacs.wake_all()
        await self._adds.close()
        await self._flusher.close()
        async with self._resources:
            if not self.failure.done():
                try:
                    await self._flusher.flush(self._journal.position)
                    if self._marked_unsynced:
                        await self._write_lane.run(self._directory.unmark_unsynced)
                        self._marked_unsynced = False
                except (OSError, FencelogError) as error:
                    self._fail(FencelogError(ErrorCode.STORAGE_FAILED, f"flush failed: {error}"))

    # -- requests ----------------------------------------------------------------------------

    def add(self, run: bytes, *, recovery: bool, on_reply: AddCallback) -> None:
        """Store a run durably; the contract of ``BookieClient.add``.

        ``run`` was verified by the transport, or built in this process.
        """
        self._adds.add(run, recovery=recovery, on_reply=on_reply)

    def write_lac(self, ledger_id: int, lac: int, *, on_reply: AddCallback) -> None:
        """Take an explicit LAC durably; the contract of ``BookieClient.write_lac``."""
        try:
            self._adds.check_writable()
            self._lacs.write(ledger_id, lac, on_reply)
        except FencelogError as error:
            self._loop.call_soon(on_reply, error)

    @property
    def is_under_pressure(self) -> bool:
        """Adds are waiting for the flush: nothing more should be read from sockets."""
        return self._adds.are_waiting

    async def read(
        self,
        ledger_id: int,
        first_entry_id: int,
        *,
        max_entries: int,
        max_bytes: int,
        fence: bool = False,
    ) -> ReadReply:
        """Consecutive entries from ``first_entry_id`` on; the contract of ``BookieClient.read``."""
        return await self._reads.read(
            ledger_id, first_entry_id, max_entries=max_entries, max_bytes=max_bytes, fence=fence
        )

    async def read_lac(
        self, ledger_id: int, *, fence: bool = False, above: int = NO_LAC, wait_ms: int = 0
    ) -> int:
        """The highest LAC seen for a ledger; the contract of ``BookieClient.read_lac``."""
        return await self._reads.read_lac(ledger_id, fence=fence, above=above, wait_ms=wait_ms)

    def fence(self, ledger_id: int) -> Fenced | None:
        """Take no regular add of a ledger, known or not, from now on.

        A transport calls this when a fencing request comes in, so that the requests behind it see
        the fence; ``read`` and ``read_lac`` with ``fence`` then wait until it is durable. None: it
        is; else done when it is, with None or an error.
        """
        if self._adds.refusal is not None:
            return None
        fenced = self._fences.fence(ledger_id)
        self._lacs.wake(ledger_id)
        return fenced

    # -- for operators, registration and repair ------------------------------------------------

    @property
    def is_read_only(self) -> bool:
        """No regular add and no explicit LAC is taken (READ_ONLY); recovery and reads go on."""
        return self._adds.is_read_only

    @is_read_only.setter
    def is_read_only(self, value: bool) -> None:
        if value != self._adds.is_read_only:
            self._adds.is_read_only = value
            for listener in self.on_read_only:
                listener()

    async def free_bytes(self) -> int:
        """What its disk has left. Raises FencelogError(STORAGE_FAILED)."""
        return await self._read_lane.run(self._directory.free_bytes)

    async def clear_limbo(self, ledger_id: int) -> None:
        """Take a ledger that was repaired out of limbo, durably; it stays fenced. Nothing to do
        for one that is not in limbo. Raises FencelogError(STORAGE_FAILED, BOOKIE_UNAVAILABLE)."""
        if self._adds.refusal is not None:
            raise self._adds.refusal
        self._fences.clear_limbo(ledger_id)
        await self._journal.settle()

    # -- before serving (boot.py) --------------------------------------------------------------

    @property
    def may_have_forgotten(self) -> bool:
        """Nobody may be served before ``forgotten_are_fenced``."""
        return self._identity.may_have_forgotten

    def fence_forgotten(self, ledger_id: int, *, in_limbo: bool) -> None:
        """Fence a ledger of which something may have been forgotten; with ``in_limbo`` what is
        missing of it is unknown. Not durable yet."""
        if in_limbo:
            self._fences.put_in_limbo(ledger_id)
        else:
            self._fences.fence(ledger_id)

    async def forgotten_are_fenced(self) -> None:
        """``fence_forgotten`` was called for all of them: make that durable, then remember that
        it is. Raises FencelogError(STORAGE_FAILED)."""
        await self._journal.settle(sync=True)
        try:
            self._identity = await self._write_lane.run(
                lambda: self._directory.mark_ready(self._identity)
            )
        except OSError as error:
            raise FencelogError(
                ErrorCode.STORAGE_FAILED, f"cannot write identity: {error}"
            ) from error

    # -- start and end -------------------------------------------------------------------------

    def _take_back(self, record: Record) -> None:
        if record.type is RecordType.RUN:
            self._adds.remember(read_run_header(record.body), record.body)
        else:
            take_back(record, self._states)

    def _pressure_changed(self) -> None:
        for listener in self.on_pressure:
            listener()

    def _fail(self, error: FencelogError) -> None:
        """Storage failed: nothing more is written, everything waiting is answered "unknown"."""
        if self.failure.done():
            return
        refusal = FencelogError(
            ErrorCode.STORAGE_FAILED, f"bookie {self.bookie_id} has stopped: {error.detail}"
        )
        self._adds.refuse(refusal)
        self._lacs.wake_all()
        self._journal.fail(refusal)
        self.failure.set_result(error)
