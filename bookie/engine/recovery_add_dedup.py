"""Adds whose entries may be stored already in part, as recovery sends them.

The look-up of stored entries reads the index, which takes time, so such adds are handled one after
the other. Missing entries are stored as if they had been added alone. Stored entries stay as they
are: the same ledger and entry id mean the same bytes, whichever client sends them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from fencelog.bookie.format.runs import Range, missing_ranges
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import RunHeader, read_run_header, slice_run
from fencelog.ledgers.limits import MIB
from fencelog.ledgers.rpc.bookie_port import AddCallback

_MAX_WAITING_BYTES = 32 * MIB
"""Limit for runs that wait for their look-up; more are refused with OVERLOADED."""


class _Admit(Protocol):
    def __call__(self, ledger_id: int, *, recovery: bool) -> object: ...


@dataclass(frozen=True, slots=True)
class _Add:
    header: RunHeader
    run: bytes
    recovery: bool
    on_reply: AddCallback


class RecoveryAddDedup:
    """A queue of such adds and the one task that processes it."""

    def __init__(
        self,
        *,
        stored_ranges: Callable[[int, Range], Awaitable[list[Range]]],
        cached_ranges: Callable[[int, Range], list[Range]],
        generation: Callable[[], int],
        admit: _Admit,
        store: Callable[[RunHeader, bytes, AddCallback], None],
        barrier: Callable[[AddCallback], None],
    ) -> None:
        self._stored_ranges = stored_ranges
        self._cached_ranges = cached_ranges
        self._generation = generation
        self._admit = admit
        self._store = store
        self._barrier = barrier
        self._waiting: deque[_Add] = deque()
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="recovery-add-dedup")

    def add(self, header: RunHeader, run: bytes, *, recovery: bool, on_reply: AddCallback) -> None:
        """Store the missing entries of the run; call ``on_reply`` once all of the run is
        durable."""
        if self._waiting_bytes + len(run) > _MAX_WAITING_BYTES:
            error = FencelogError(ErrorCode.OVERLOADED, "too many overlapping adds are waiting")
            asyncio.get_running_loop().call_soon(on_reply, error)
            return
        self._waiting.append(_Add(header, run, recovery, on_reply))
        self._waiting_bytes += len(run)
        self._wake.set()

    async def close(self) -> None:
        """Stop. Runs that were not looked up yet are not stored, and are answered so."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        error = FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "the bookie is closing")
        for add in self._waiting:
            add.on_reply(error)
        self._waiting.clear()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                add = self._waiting[0]
                try:
                    missing = await self._missing(add.header)
                    self._admit(add.header.ledger_id, recovery=add.recovery)
                    self._store_missing(add, missing)
                except FencelogError as error:
                    add.on_reply(error)
                except Exception as error:  # a bug; the others still deserve their answers
                    add.on_reply(FencelogError(ErrorCode.INTERNAL, f"overlapping add: {error!r}"))
                self._waiting.popleft()
                self._waiting_bytes -= len(add.run)

    async def _missing(self, header: RunHeader) -> list[Range]:
        """Return the entries of the run that are neither in the index nor in the cache, as of the
        return.

        A flush that ended during the look-up may have moved an entry from the cache, which is read
        second, to the index, which was read first: then the look-up is repeated.
        """
        wanted = (header.first_entry_id, header.last_entry_id)
        while True:
            before = self._generation()
            stored = await self._stored_ranges(header.ledger_id, wanted)
            if self._generation() == before:
                cached = self._cached_ranges(header.ledger_id, wanted)
                return missing_ranges(wanted, [*stored, *cached])

    def _store_missing(self, add: _Add, missing: list[Range]) -> None:
        if not missing:
            # All is here, but the journal may still be syncing it.
            self._barrier(add.on_reply)
            return
        for first, last in missing:
            piece = slice_run(add.run, first, last)
            # The journal answers in order, so the last piece answers for all of them.
            reply = add.on_reply if (first, last) == missing[-1] else _ignore
            self._store(read_run_header(piece), piece, reply)


def _ignore(error: FencelogError | None) -> None:
    """Ignore a failure; it reaches the add through its last piece."""
