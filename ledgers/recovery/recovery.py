"""The recovery of a ledger: fence it, find its end, make the end durable, close it (rules 4 to 6).

1. CAS to IN_RECOVERY.
2. Fencing LAC reads to the last ensemble until every write set is covered.
3. Fencing recovery reads from there on, against the ensemble at recovery start.
4. Each recovered entry is rewritten, byte for byte as its writer made it, to the current ensemble
   and needs Qa acks. So it carries the writer's own LAC, which was true when it was sent: a second
   recovery can never be led above entries that only the first one's in-memory ensemble holds.
   Ensemble changes stay in memory until
5. one CAS writes the ensembles, CLOSED, last entry and length together.

It may be interrupted anywhere and repeated, and any number of recoverers converge. ``rules`` and
``machine`` decide what to do; this module does it.

``find_end`` leaves step 5 to its caller, and takes step 1 only before it writes: nothing has to be
announced by a recoverer of which no bookie holds anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import NamedTuple

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import Entry, slice_run
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.ledger_metadata.store import replacement_of
from fencelog.ledgers.ledger_metadata.transitions import begin_recovery, closed_by_recoverer
from fencelog.ledgers.ledger_metadata.update import MetadataAccess, update_metadata
from fencelog.ledgers.limits import MAX_READ_BYTES
from fencelog.ledgers.metastore.port import Set
from fencelog.ledgers.placement.placement import Placement
from fencelog.ledgers.reader.entry_reads import verified_reply
from fencelog.ledgers.reader.fan_out import cancel_all
from fencelog.ledgers.recovery.fencing import fence_for_recovery
from fencelog.ledgers.recovery.machine import (
    Abort,
    Close,
    ReadCopy,
    RecoveryCore,
    RecoveryEffect,
)
from fencelog.ledgers.recovery.rules import AcceptedLoss, Copy
from fencelog.ledgers.rpc.bookie_port import BookieDirectory
from fencelog.ledgers.writer.core import ChangeEnsemble, Send


class FoundEnd(NamedTuple):
    """A fenced ledger whose end is found and durable: its metadata as ``change`` makes it CLOSED;
    None: it is closed already. ``last``: as in ``Recovered``."""

    metadata: LedgerMetadata
    last: Entry | None = None
    change: Set | None = None


class _ChangedMeanwhile(Exception):
    """The end of a recovery that was not announced in time."""


class Recovered(NamedTuple):
    """A ledger that is closed. ``last``: its last entry, if the recovery has read it; None: it is
    empty, or another client has closed it."""

    metadata: LedgerMetadata
    last: Entry | None = None


async def recover_ledger(
    ledger_id: int,
    *,
    ledgers: MetadataAccess,
    bookies: BookieDirectory,
    placement: Placement,
    key: bytes = b"",
    accepted: AcceptedLoss | None = None,
) -> LedgerMetadata:
    """Close a ledger safely and return its metadata, see ``recover_with_last``."""
    recovered = await recover_with_last(
        ledger_id, ledgers=ledgers, bookies=bookies, placement=placement, key=key, accepted=accepted
    )
    return recovered.metadata


async def recover_with_last(
    ledger_id: int,
    *,
    ledgers: MetadataAccess,
    bookies: BookieDirectory,
    placement: Placement,
    key: bytes = b"",
    accepted: AcceptedLoss | None = None,
) -> Recovered:
    """Close a ledger safely, whichever writer it had.

    ``accepted``: only with the consent of a person (``AcceptedLoss``); it records what was lost.

    Raises RECOVERY_INCOMPLETE naming the bookies that are missing (nothing was closed; repeat it),
    LEDGER_NOT_FOUND, METADATA_UNAVAILABLE.
    """
    base, version = await ledgers.get(ledger_id)
    base, version = await update_metadata(ledgers, base, version, begin_recovery)
    if base.is_closed:
        return Recovered(base)
    try:
        recovery = await _fenced(
            base, bookies=bookies, placement=placement, key=key, accepted=accepted
        )
        end = await recovery.run()
    except FencelogError as error:
        return Recovered(await _closed_by_another(ledger_id, ledgers, error))
    close = partial(
        closed_by_recoverer,
        snapshot=base,
        fragments=end.fragments,
        last_entry_id=end.last_entry_id,
        length=end.length,
    )
    closed, _ = await update_metadata(ledgers, base, version, close)
    is_ours = (closed.last_entry_id, closed.length) == (end.last_entry_id, end.length)
    return Recovered(closed, end.last if is_ours else None)


async def find_end(
    ledger_id: int,
    *,
    ledgers: MetadataAccess,
    bookies: BookieDirectory,
    placement: Placement,
    key: bytes = b"",
) -> FoundEnd:
    """Fence a ledger and find its end, to be closed by the caller's commit of ``change``: the only
    proof of the end. It is refused if the metadata was changed since it was read here, by its
    writer or by another recoverer; then nothing is known of the end.

    Raises RECOVERY_INCOMPLETE, LEDGER_NOT_FOUND, METADATA_UNAVAILABLE as ``recover_with_last``.
    """
    base, version = await ledgers.get(ledger_id)
    if base.is_closed:
        return FoundEnd(base)
    snapshot = base

    async def announce() -> None:
        nonlocal base, version
        base, version = await update_metadata(ledgers, base, version, begin_recovery)
        if base.is_closed or base.fragments != snapshot.fragments:
            raise _ChangedMeanwhile

    try:
        recovery = await _fenced(base, bookies=bookies, placement=placement, key=key)
        end = await recovery.run(announce)
    except _ChangedMeanwhile:  # once more, of what its writer has left open, from the beginning
        found = await recover_with_last(
            ledger_id, ledgers=ledgers, bookies=bookies, placement=placement, key=key
        )
        return FoundEnd(*found)
    except FencelogError as error:
        return FoundEnd(await _closed_by_another(ledger_id, ledgers, error))
    closed = closed_by_recoverer(
        base,
        snapshot=snapshot,
        fragments=end.fragments,
        last_entry_id=end.last_entry_id,
        length=end.length,
    )
    assert closed is not None
    return FoundEnd(closed, end.last, replacement_of(closed, version))


async def _fenced(
    base: LedgerMetadata,
    *,
    bookies: BookieDirectory,
    placement: Placement,
    key: bytes,
    accepted: AcceptedLoss | None = None,
) -> _Recovery:
    """Fence a ledger; return the rest of its recovery."""
    fence = await fence_for_recovery(base, bookies=bookies, key=key, accepted=accepted)
    for index, error in fence.failed.items():
        if error.code is not ErrorCode.LEDGER_IN_LIMBO:  # otherwise it takes entries
            placement.report_failure(fence.members[index])
    return _Recovery(
        RecoveryCore(base, start_lac=fence.start_lac, accepted=accepted, told=fence.told),
        base,
        bookies=bookies,
        placement=placement,
        key=key,
    )


async def _closed_by_another(
    ledger_id: int, ledgers: MetadataAccess, error: FencelogError
) -> LedgerMetadata:
    """Return the metadata of a ledger that another recoverer has closed meanwhile: a recoverer that
    cannot finish adopts that close. Raises ``error`` if the ledger is not closed."""
    if error.code is ErrorCode.RECOVERY_INCOMPLETE:
        try:
            metadata, _ = await ledgers.get(ledger_id)
        except FencelogError as reason:
            raise error from reason
        if metadata.is_closed:
            return metadata
    raise error


class _Recovery:
    """The shell that carries out what ``RecoveryCore`` decides for one ledger."""

    def __init__(
        self,
        core: RecoveryCore,
        snapshot: LedgerMetadata,
        *,
        bookies: BookieDirectory,
        placement: Placement,
        key: bytes,
    ) -> None:
        self._snapshot = snapshot
        self._bookies = bookies
        self._placement = placement
        self._key = key
        self._core = core
        self._reads: dict[asyncio.Task[Copy], int] = {}
        self._end: asyncio.Future[Close] = asyncio.get_running_loop().create_future()
        self._is_announced = True
        self._has_to_write: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held: list[RecoveryEffect] = []
        """The adds that wait until the recovery is announced."""

    async def run(self, announce: Callable[[], Awaitable[None]] | None = None) -> Close:
        """Return how to close the ledger; ``announce`` comes before the first entry is written.
        Raises the error with which the core aborts, or that of ``announce``."""
        self._is_announced = announce is None
        try:
            self._carry_out(self._core.start)
            if announce is not None and not self._end.done():
                await asyncio.wait(
                    (self._end, self._has_to_write), return_when=asyncio.FIRST_COMPLETED
                )
                if not self._end.done():
                    await announce()
                    self._is_announced = True
                    held, self._held = self._held, []
                    self._carry_out(lambda: held)
            return await self._end
        finally:
            # A run that was cancelled, or whose announcement failed, has no use for its error.
            if not self._end.cancel() and not self._end.cancelled():
                self._end.exception()
            await cancel_all(list(self._reads))

    def _carry_out(self, step: Callable[[], Iterable[RecoveryEffect]]) -> None:
        """Carry out one step of the core, unless ``run`` has ended or was cancelled. It is called
        from the event loop itself: every error has to reach ``run``, which waits."""
        if self._end.done():
            return
        try:
            for effect in step():
                self._execute(effect)
        except Exception as error:
            if not self._end.done():
                self._end.set_exception(error)

    def _execute(self, effect: RecoveryEffect) -> None:
        if not self._is_announced and isinstance(effect, Send):
            self._held.append(effect)
            if not self._has_to_write.done():
                self._has_to_write.set_result(None)
            return
        match effect:
            case ReadCopy():
                read = asyncio.get_running_loop().create_task(self._read(effect))
                self._reads[read] = effect.entry_id
                read.add_done_callback(partial(self._on_read, effect))
            case Send(run, _, bookie_id):
                self._bookies.client(bookie_id).add(
                    run.data,
                    recovery=True,
                    incarnation=None,
                    on_reply=partial(self._on_add, effect),
                )
            case ChangeEnsemble():
                chosen = self._replacement(effect)
                now_us = self._placement.host.now_us()
                self._carry_out(partial(self._core.ensemble_chosen, effect, chosen, now_us))
            case Close():
                self._end.set_result(effect)
            case Abort(error):
                self._end.set_exception(error)

    async def _read(self, ask: ReadCopy) -> Copy:
        reply = await self._bookies.client(ask.bookie_id).read(
            self._snapshot.ledger_id,
            ask.entry_id,
            max_entries=ask.max_entries,
            max_bytes=MAX_READ_BYTES,
            fence=ask.fence,
        )
        entries = verified_reply(
            reply, self._snapshot, ask.entry_id, bookie_id=ask.bookie_id, key=self._key
        )
        if len(entries) <= ask.max_entries:
            return Copy(bytes(reply.run), entries)
        run = slice_run(reply.run, ask.entry_id, ask.entry_id + ask.max_entries - 1)
        return Copy(run, entries[: ask.max_entries])

    def _on_read(self, ask: ReadCopy, read: asyncio.Task[Copy]) -> None:
        del self._reads[read]
        if read.cancelled():
            return
        error = read.exception()

        def step() -> Iterable[RecoveryEffect]:
            answer = error if isinstance(error, FencelogError) else read.result()
            return self._core.read_answer(ask.entry_id, ask.bookie_id, answer)

        self._carry_out(step)
        for other, entry_id in self._reads.items():
            if not self._core.is_reading(entry_id):
                other.cancel()

    def _on_add(self, send: Send, error: FencelogError | None) -> None:
        if error is not None:
            self._placement.report_failure(send.bookie_id)
        self._carry_out(
            partial(self._core.write_reply, send.run, send.member, send.bookie_id, error)
        )

    def _replacement(self, change: ChangeEnsemble) -> tuple[str, ...] | None:
        try:
            return self._placement.replace(
                self._core.writer.ensemble,
                change.failed,
                write_quorum=self._snapshot.write_quorum,
            )
        except FencelogError:
            return None
