"""One bookie: the meaning of requests, and when they may be answered.

It runs on one event loop and knows no transport: ``server/server.py`` serves it over TCP,
``server/local.py`` within the same process. No call here blocks: cached runs are answered at once,
the rest runs on an I/O thread. A ledger is stored in one of the bookie's shards
(``engine/shard.py``); this module has the parts that the shards share.

The promises (PROTOCOL.md), and where they are kept:
* an add is answered after its record is synced (``journal.append``), in the order of the journal;
* a fence holds from the moment of the request, and no reply to a fencing request, negative ones
  included, leaves before it is durable (``engine/fences.py``);
* an entry that is stored is never replaced: an overlapping run is trimmed
  (``engine/recovery_add_dedup.py``);
* "not there" is answered only when cache and index were read without error (``engine/reads.py``);
* the reported LAC never goes back (``engine/lacs.py``);
* a ledger that may have lost entries is fenced before any request is served (``engine/boot.py``);
* after a failed write or sync no promise is made any more: ``failure`` (``_fail``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import AsyncExitStack
from typing import TypeVar

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import DirectorySpace, Disk, DiskSpace, IoThread
from fencelog.bookie.engine.admin import StatusPart, Verb, own_verbs
from fencelog.bookie.engine.entry_list import list_entries
from fencelog.bookie.engine.fence_answers import fence_and_read
from fencelog.bookie.engine.fences import Fenced
from fencelog.bookie.engine.opening import OpenShard, open_shard
from fencelog.bookie.engine.shard import Shard, stopped
from fencelog.bookie.identity.claim import claim_directories
from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.bookie.identity.cookies import Identity, State
from fencelog.bookie.identity.data_directory import DataDirectory
from fencelog.bookie.metrics import BookieCounts
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Range
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.format.run import Run
from fencelog.ledgers.host import Host
from fencelog.ledgers.rpc.bookie_port import (
    NO_LAC,
    AddCallback,
    AddsCallback,
    AddToken,
    FenceAnswer,
    LedgerLac,
    ReadReply,
)
from fencelog.ledgers.rpc.handshake import FEATURES, PLACES
from fencelog.ledgers.rpc.places import PlacedRuns

__all__ = ["Bookie", "BookieConfig"]

_Item = TypeVar("_Item")


class Bookie:
    """One storage node. Create it with ``open``, and ``close`` it when done."""

    def __init__(
        self,
        config: BookieConfig,
        directory: DataDirectory,
        identity: Identity,
        io_thread: IoThread,
        host: Host,
    ) -> None:
        self.host = host
        self.bookie_id = identity.bookie_id
        self.incarnation = identity.incarnation
        self.instance = identity.cookie.instance
        """The id of the cluster that the data belongs to; empty for an unregistered bookie."""
        self.metrics = BookieCounts()
        self._config = config
        self._identity = identity
        self._directory = directory
        self._io_thread = io_thread
        self._is_marked_unsynced = False
        self._loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[FencelogError] = self._loop.create_future()
        """The future that gets the error as its *result* when storage has failed. The owner should
        then close the bookie and end the process: the next start checks what is on disk."""
        self.shards: list[Shard] = []
        """The shards. Ledger ``i`` is stored in ``shards[i % len(shards)]``."""
        self.read_only_for: set[str] = set()
        """The reasons to be read-only (``set_read_only``)."""
        self.read_only_since_us: int | None = None
        """The time at which the first of them came; None: it takes adds."""
        self.on_pressure: dict[Callable[[], None], None] = {}
        """Callbacks for a change of ``is_under_pressure``: transports stop or resume reading."""
        self.on_read_only: dict[Callable[[], None], None] = {}
        """Callbacks for a change of ``read_only_for``: the registration has to show it."""
        self.status_parts: dict[str, StatusPart] = {}
        """The parts of the answer to ``status``, by name."""
        self.admin: dict[str, Verb] = own_verbs(self)
        """The verbs of admin requests, by name (``engine/admin.py``)."""
        self._resources = AsyncExitStack()

    @classmethod
    async def open(
        cls, config: BookieConfig, *, disk: Disk, host: Host, cookies: CookieRegistry | None = None
    ) -> Bookie:
        """Open a data directory, created if it is new, and restore all that was promised in it.

        ``cookies``: the registry of the bookie's own cookie; None for a bookie that needs no
        registration.

        Raises FencelogError: DATA_DIRECTORY_IN_USE; CORRUPT naming file and offset when
        acknowledged data is damaged or missing; STORAGE_FAILED when the disk fails; and as
        ``claim_directories``.
        """
        try:
            async with AsyncExitStack() as stack:
                bookie = await cls._open(config, disk, host, cookies, stack)
                bookie._resources = stack.pop_all()  # noqa: SLF001 - a method of its own class
        except OSError as error:
            raise FencelogError(
                ErrorCode.STORAGE_FAILED, f"cannot open data directory {config.data_dir}: {error}"
            ) from error
        return bookie

    @classmethod
    async def _open(
        cls,
        config: BookieConfig,
        disk: Disk,
        host: Host,
        cookies: CookieRegistry | None,
        stack: AsyncExitStack,
    ) -> Bookie:
        io_thread = disk.io_thread("bookie-directory")
        stack.push_async_callback(io_thread.close)
        directory = DataDirectory(disk, config)
        await io_thread.run(directory.lock)
        stack.callback(directory.unlock)
        identity = await claim_directories(directory, config, io_thread, cookies, host)
        bookie = cls(config, directory, identity, io_thread, host)
        for shard in directory.shards:
            opened = await open_shard(
                shard,
                config,
                incarnation=identity.directory_bytes,
                disk=disk,
                host=host,
                stack=stack,
                metrics=bookie.metrics,
                on_failure=bookie._fail,
            )
            await bookie._add_shard(opened, disk)
        if not config.is_synced:
            await io_thread.run(directory.mark_unsynced)
            bookie._is_marked_unsynced = True
        spaces = [each.space for each in await bookie.spaces() if each.has_ledgers]
        for started in bookie.shards:
            started.begin(spaces)
        return bookie

    async def _add_shard(self, opened: OpenShard, disk: Disk) -> None:
        shard = Shard(
            opened,
            self._config,
            self.bookie_id,
            metrics=self.metrics,
            on_pressure=self._pressure_changed,
            on_failure=self._fail,
        )
        await shard.start(disk)
        self.shards.append(shard)

    async def close(self) -> None:
        """Answer accepted requests, flush, and release the directory; after a failure only the
        last."""
        error = FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, f"bookie {self.bookie_id} is closing")
        for shard in self.shards:
            if shard.adds.refusal is None:
                shard.refuse(error)
        for shard in self.shards:
            await shard.stop()
        async with self._resources:
            if not self.failure.done():
                try:
                    for shard in self.shards:
                        await shard.flush()
                    if self._is_marked_unsynced:
                        await self._io_thread.run(self._directory.unmark_unsynced)
                        self._is_marked_unsynced = False
                except (OSError, FencelogError) as error:
                    self._fail(FencelogError(ErrorCode.STORAGE_FAILED, f"flush failed: {error}"))

    def shard(self, ledger_id: int) -> Shard:
        """Return the shard of a ledger."""
        return self.shards[ledger_id % len(self.shards)]

    # -- requests ----------------------------------------------------------------------------

    def add(self, run: bytes, *, recovery: bool, on_reply: AddCallback) -> None:
        """Store a run durably; the contract of ``BookieClient.add``.

        ``run`` was verified by the transport, or built in this process.
        """
        shard = self.shard(int.from_bytes(run[:8], "little"))
        shard.adds.add(run, recovery=recovery, on_reply=on_reply)

    def add_many(
        self, runs: Sequence[Run], tokens: Sequence[AddToken], *, on_replies: AddsCallback
    ) -> None:
        """Store runs of any ledgers durably; the contract of ``BookieClient.add_many``."""
        if len(self.shards) == 1:
            self.shards[0].adds.add_many(runs, tokens, on_replies)
            return
        for shard, part in self._by_shard(runs, tokens, lambda run: run.header.ledger_id):
            shard.adds.add_many(*part, on_replies)

    def write_lacs(
        self, lacs: Sequence[LedgerLac], tokens: Sequence[AddToken], *, on_replies: AddsCallback
    ) -> None:
        """Take explicit LACs durably; the contract of ``BookieClient.write_lacs``."""
        if len(self.shards) == 1:
            self.shards[0].write_lacs(lacs, tokens, on_replies)
            return
        for shard, part in self._by_shard(lacs, tokens, lambda lac: lac[0]):
            shard.write_lacs(*part, on_replies)

    def _by_shard(
        self, items: Sequence[_Item], tokens: Sequence[AddToken], ledger_of: Callable[[_Item], int]
    ) -> Iterable[tuple[Shard, tuple[list[_Item], list[AddToken]]]]:
        """Return what is for each shard, in the order of the items."""
        parts: dict[Shard, tuple[list[_Item], list[AddToken]]] = {}
        for item, token in zip(items, tokens, strict=True):
            part = parts.setdefault(self.shard(ledger_of(item)), ([], []))
            part[0].append(item)
            part[1].append(token)
        return parts.items()

    @property
    def is_under_pressure(self) -> bool:
        """Tell whether adds are waiting for the flush: then no more should be read from sockets."""
        return any(shard.adds.are_waiting for shard in self.shards)

    async def read(
        self,
        ledger_id: int,
        first_entry_id: int,
        *,
        max_entries: int,
        max_bytes: int,
        fence: bool = False,
    ) -> ReadReply:
        """Return consecutive entries from ``first_entry_id`` on; the contract of
        ``BookieClient.read``."""
        return await self.shard(ledger_id).reads.read(
            ledger_id, first_entry_id, max_entries=max_entries, max_bytes=max_bytes, fence=fence
        )

    @property
    def features(self) -> Set[str]:
        """Return the features of the wire that this bookie offers."""
        return FEATURES if self._config.local_reads else FEATURES - {PLACES}

    async def places(
        self, ledger_id: int, first_entry_id: int, *, max_entries: int, max_bytes: int
    ) -> tuple[int, PlacedRuns] | None:
        """Return the LAC, and where in an entry log ``read`` would find its entries; None: it has
        to be answered with them. Raises FencelogError: as ``read``."""
        return await self.shard(ledger_id).reads.places(
            ledger_id, first_entry_id, max_entries=max_entries, max_bytes=max_bytes
        )

    async def read_ranges(
        self, ledger_id: int, ranges: Sequence[Range], *, max_bytes: int
    ) -> list[bytes]:
        """Return entries of several ranges; the contract of ``BookieClient.read_ranges``."""
        return await self.shard(ledger_id).reads.read_ranges(ledger_id, ranges, max_bytes=max_bytes)

    async def read_lac(
        self, ledger_id: int, *, fence: bool = False, above: int = NO_LAC, wait_ms: int = 0
    ) -> int:
        """Return the highest LAC seen for a ledger; the contract of ``BookieClient.read_lac``."""
        return await self.shard(ledger_id).reads.read_lac(
            ledger_id, fence=fence, above=above, wait_ms=wait_ms
        )

    async def fence_and_read(self, ledger_id: int, above: int) -> FenceAnswer:
        """Fence a ledger and read its end; the contract of ``BookieClient.fence_and_read``."""
        return await fence_and_read(self, ledger_id, above)

    async def list_entries(self, ledger_id: int, from_entry: int = 0) -> EntryList:
        """List the entries of a ledger that are here; the contract of
        ``BookieClient.list_entries``."""
        return await list_entries(self.shard(ledger_id), ledger_id, from_entry)

    def fence(self, ledger_id: int) -> Fenced | None:
        """Take no regular add of a ledger, known or not, from this call on.

        A transport calls this when a fencing request comes in, so that the requests behind it see
        the fence; ``read`` and ``read_lac`` with ``fence`` then wait until it is durable. Return
        None if the fence is durable; else a future that is done when it is, with None or an error.
        """
        return self.shard(ledger_id).fence(ledger_id)

    # -- for operators, registration and repair ------------------------------------------------

    @property
    def is_read_only(self) -> bool:
        """Tell whether regular adds and explicit LACs are refused (READ_ONLY); recovery and reads
        go on."""
        return bool(self.read_only_for)

    @is_read_only.setter
    def is_read_only(self, value: bool) -> None:
        self.set_read_only("operator", value)

    def set_read_only(self, reason: str, on: bool) -> None:
        """Set or clear one reason to be read-only."""
        before = set(self.read_only_for)
        (self.read_only_for.add if on else self.read_only_for.discard)(reason)
        if self.read_only_for != before:
            if not (before and self.read_only_for):
                self.read_only_since_us = self.host.now_us() if self.read_only_for else None
            for shard in self.shards:
                shard.adds.is_read_only = self.is_read_only
            for listener in self.on_read_only:
                listener()

    async def space(self) -> DiskSpace:
        """Return the space of the fullest disk that has ledgers. Raises
        FencelogError(STORAGE_FAILED)."""
        return await self._io_thread.run(self._directory.space)

    async def spaces(self) -> list[DirectorySpace]:
        """Return the space of the disk of every directory. Raises
        FencelogError(STORAGE_FAILED)."""
        return await self._io_thread.run(self._directory.spaces)

    async def clear_limbo(self, ledger_id: int) -> None:
        """Take a ledger that was repaired out of limbo, durably; it stays fenced. A ledger that is
        not in limbo is left as it is. Raises FencelogError(STORAGE_FAILED, BOOKIE_UNAVAILABLE)."""
        shard = self.shard(ledger_id)
        shard.check_open()
        shard.fences.clear_limbo(ledger_id)
        await shard.settle()

    # -- before serving (engine/boot.py) ----------------------------------------------------------

    @property
    def may_have_forgotten(self) -> bool:
        """Tell whether data may be lost: then no request may be served before
        ``forgotten_are_fenced``."""
        return self._identity.may_have_forgotten

    def fence_forgotten(self, ledger_id: int) -> None:
        """Fence a ledger that may have lost entries, and put it in limbo: its missing entries are
        unknown. Not durable yet."""
        self.shard(ledger_id).fences.put_in_limbo(ledger_id)

    async def forgotten_are_fenced(self) -> None:
        """Make all calls of ``fence_forgotten`` durable, then record that they are. Raises
        FencelogError(STORAGE_FAILED)."""
        for shard in self.shards:
            await shard.settle(sync=True)
        try:
            self._identity = await self._io_thread.run(
                lambda: self._directory.set_state(self._identity, State.READY)
            )
        except OSError as error:
            raise FencelogError(
                ErrorCode.STORAGE_FAILED, f"cannot write identity: {error}"
            ) from error

    # -- end -----------------------------------------------------------------------------------

    def _pressure_changed(self) -> None:
        for listener in self.on_pressure:
            listener()

    def _fail(self, error: FencelogError) -> None:
        """Handle a storage failure: no more is written, and every waiting request is answered
        "unknown"."""
        if self.failure.done():
            return
        self.failure.set_result(error)
        for shard in self.shards:
            shard.fail(stopped(self.bookie_id, error))
