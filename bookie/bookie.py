"""One bookie: what requests mean, and when they may be answered.

Runs on one event loop, transport-free: ``server.py`` puts it on TCP, ``local.py`` into the same
process. Nothing here blocks: cached runs are answered at once, the rest is lane work.

The promises (PROTOCOL.md), and where they are kept:
* an add is answered after its record is synced (``journal.append``), in the order of the journal;
* a fence holds from the moment of the request, and no reply to a fencing request, negative ones
  included, leaves before it is durable (``fences.py``);
* an entry that is stored is never replaced: what overlaps it is trimmed (``overlaps.py``);
* "not there" is said only when cache and index were read without error (``read``);
* after a failed write or sync nothing is promised any more: ``failure`` (``_fail``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from fencelog.bookie.adds import Adds
from fencelog.bookie.config import BookieConfig
from fencelog.bookie.data_directory import DataDirectory, Identity
from fencelog.bookie.disk import Disk, Lane
from fencelog.bookie.fences import FENCE_BODY, Fenced, Fences
from fencelog.bookie.flush import Flusher
from fencelog.bookie.journal import Journal
from fencelog.bookie.journal_replay import Replay
from fencelog.bookie.lacs import LAC_RECORD, Lacs
from fencelog.bookie.ledger_state import LedgerState, LedgerStates
from fencelog.bookie.records import Record, RecordType
from fencelog.bookie.runs import Range, join_runs
from fencelog.bookie.storage import Storage
from fencelog.bookie.write_cache import WriteCache
from fencelog.ledgers.bookie_port import NO_LAC, AddCallback, ReadReply
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.limits import MAX_READ_BYTES, MAX_RUN_ENTRIES, MIB
from fencelog.ledgers.run import read_run_header

__all__ = ["Bookie", "BookieConfig"]

_REPLAY_CHUNK_BYTES = 8 * MIB


class Bookie:
    """One storage node over one data directory. Use ``open``; ``close`` when done."""

    def __init__(
        self,
        identity: Identity,
        config: BookieConfig,
        *,
        journal: Journal,
        storage: Storage,
        states: LedgerStates,
        write_lane: Lane,
        read_lane: Lane,
    ) -> None:
        self.bookie_id = identity.bookie_id
        self.incarnation = identity.incarnation
        self._loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[FencelogError] = self._loop.create_future()
        """Gets its *result*, the error, when storage has failed. The owner should then close the
        bookie and end the process: what is on disk is for a fresh start to judge."""
        self._journal = journal
        self._storage = storage
        self._states = states
        self._cache = WriteCache(config.write_cache_bytes)
        self._read_lane = read_lane
        self._flusher = Flusher(
            cache=self._cache,
            states=states,
            storage=storage,
            lane=write_lane,
            journal=journal,
            interval_ms=config.flush_interval_ms,
            on_room=lambda: self._adds.release(),
            on_failure=self._fail,
        )
        self._adds = Adds(
            cache=self._cache,
            states=states,
            journal=journal,
            flusher=self._flusher,
            max_held_bytes=config.write_cache_bytes // 2,
            stored_ranges=self._stored_ranges,
            on_pressure=self._pressure_changed,
        )
        self.on_pressure: set[Callable[[], None]] = set()
        """Called when ``is_under_pressure`` changes: transports stop reading, or go on."""
        self._fences = Fences(states, journal)
        self._lacs = Lacs(states, journal)
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
        write_lane = disk.lane("bookie-write")
        stack.push_async_callback(write_lane.close)
        directory = DataDirectory(disk, config.data_dir)
        await write_lane.run(directory.lock)
        stack.callback(directory.unlock)
        identity = await write_lane.run(lambda: directory.load_or_create(config.bookie_id, host))
        storage = await write_lane.run(lambda: Storage(disk, directory, identity, config, host))
        stack.push_async_callback(write_lane.run, storage.close)
        read_lane = disk.lane("bookie-read")  # closed before the files that it reads
        stack.push_async_callback(read_lane.close)
        journal_lane = disk.lane("bookie-journal")
        stack.push_async_callback(journal_lane.close)
        states = LedgerStates()
        states.load(await write_lane.run(lambda: list(storage.index.states())))
        journal = Journal(
            disk=disk,
            lane=journal_lane,
            host=host,
            directory=directory.journal,
            incarnation=identity.incarnation_bytes,
            max_file_bytes=config.journal_file_bytes,
            on_failure=lambda error: bookie._fail(error),
        )
        bookie = cls(
            identity,
            config,
            journal=journal,
            storage=storage,
            states=states,
            write_lane=write_lane,
            read_lane=read_lane,
        )
        replay = await write_lane.run(
            lambda: Replay(
                disk,
                directory.journal,
                start=storage.checkpoint,
                incarnation=identity.incarnation_bytes,
            )
        )
        try:
            await bookie._replay(replay, write_lane)
        finally:
            await write_lane.run(replay.close)
        await journal.start(file_id=replay.last_file_id + 1, sequence=replay.position.sequence)
        stack.push_async_callback(journal.close)
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
        await self._adds.close()
        await self._flusher.close()
        async with self._resources:
            if not self.failure.done():
                try:
                    await self._flusher.flush(self._journal.position)
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
        if self._adds.refusal is None:
            self._lacs.write(ledger_id, lac, on_reply)
        else:
            self._loop.call_soon(on_reply, self._adds.refusal)

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
        state = await self._known(ledger_id, fence=fence)
        max_entries = max(1, min(max_entries, MAX_RUN_ENTRIES))
        max_bytes = max(1, min(max_bytes, MAX_READ_BYTES))
        runs = self._cache.collect(
            ledger_id, first_entry_id, max_entries=max_entries, max_bytes=max_bytes
        )
        if runs:
            run = join_runs(runs, first_entry_id, max_entries=max_entries, max_bytes=max_bytes)
            return ReadReply(state.lac, run)
        # An entry moves from the cache to the index and never back: not in the cache now means in
        # the index by the time of the look there, or nowhere.
        stored = None
        if first_entry_id <= state.last_entry:
            stored = await self._read_lane.run(
                lambda: self._storage.read(
                    ledger_id, first_entry_id, max_entries=max_entries, max_bytes=max_bytes
                )
            )
        if stored is None:
            raise FencelogError(
                ErrorCode.NO_SUCH_ENTRY,
                f"bookie {self.bookie_id} has no entry {first_entry_id} of ledger {ledger_id}",
            )
        return ReadReply(state.lac, stored)

    async def read_lac(
        self, ledger_id: int, *, fence: bool = False, above: int = NO_LAC, wait_ms: int = 0
    ) -> int:
        """The highest LAC seen for a ledger; the contract of ``BookieClient.read_lac``."""
        return (await self._known(ledger_id, fence=fence)).lac

    def fence(self, ledger_id: int) -> Fenced | None:
        """Take no regular add of a ledger, known or not, from now on.

        A transport calls this when a fencing request comes in, so that the requests behind it see
        the fence; ``read`` and ``read_lac`` with ``fence`` then wait until it is durable. None: it
        is; else done when it is, with None or an error.
        """
        return None if self._adds.refusal is not None else self._fences.fence(ledger_id)

    async def _known(self, ledger_id: int, *, fence: bool) -> LedgerState:
        """The state of a ledger that the bookie knows, fenced durably if that was asked for."""
        fenced = self.fence(ledger_id) if fence else None
        if fenced is not None and (error := await fenced) is not None:
            raise error
        if self._adds.refusal is not None:
            raise self._adds.refusal
        state = self._states.get(ledger_id)
        if state is None:
            raise FencelogError(
                ErrorCode.NO_SUCH_LEDGER, f"bookie {self.bookie_id} has no ledger {ledger_id}"
            )
        return state

    async def _stored_ranges(self, ledger_id: int, wanted: Range) -> list[Range]:
        return await self._read_lane.run(lambda: self._storage.ranges(ledger_id, wanted))

    # -- start and end -------------------------------------------------------------------------

    async def _replay(self, replay: Replay, lane: Lane) -> None:
        """Take back what the journal holds and the index does not."""
        mark = self._storage.mark
        while records := await lane.run(lambda: replay.next_records(_REPLAY_CHUNK_BYTES)):
            for record, end in records:
                if record.sequence < mark:
                    continue
                self._take_back(record)
                if self._cache.wants_flush:
                    await self._flusher.flush(end)
        if replay.position.sequence < mark:
            raise FencelogError(
                ErrorCode.CORRUPT,
                f"journal ends before record {replay.position.sequence}; up to {mark} had been "
                "synced",
            )

    def _take_back(self, record: Record) -> None:
        if record.type is RecordType.RUN:
            self._adds.remember(read_run_header(record.body), record.body)
        elif record.type is RecordType.LAC:
            ledger_id, lac = LAC_RECORD.unpack(record.body)
            state = self._states.change(ledger_id)
            state.lac = max(state.lac, lac)
        else:
            state = self._states.change(FENCE_BODY.unpack(record.body)[0])
            state.fenced = state.fence_durable = True

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
        self._journal.fail(refusal)
        self.failure.set_result(error)
