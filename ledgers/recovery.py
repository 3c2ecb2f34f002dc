"""Recovering a ledger: fence it, find its end, make the end durable, close it (rules 4 to 6).

1. CAS to IN_RECOVERY.
2. Fencing LAC reads to the last ensemble until every write set is covered.
3. Fencing recovery reads from there on, against the ensemble at recovery start.
4. Each recovered entry is rewritten, byte for byte as its writer made it, to the current ensemble
   and needs Qa acks. So it carries the writer's own LAC, which was true when it was sent: a second
   recovery can never be led above entries that only the first one's in-memory ensemble holds.
   Ensemble changes stay in memory until
5. one CAS writes the ensembles, CLOSED, last entry and length together.

It may be interrupted anywhere and repeated, and any number of recoverers converge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

from fencelog.ledgers.bookie_port import BookieDirectory
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_READ_BYTES, MAX_RUN_ENTRIES
from fencelog.ledgers.metadata import NO_ENTRY, LedgerMetadata
from fencelog.ledgers.metadata_update import Ledgers, update_metadata
from fencelog.ledgers.placement import Placement
from fencelog.ledgers.reader import LedgerReader, verified_reply
from fencelog.ledgers.recovery_core import EntryRound, FenceRound, Verdict, recovery_incomplete
from fencelog.ledgers.run import Entry, slice_run
from fencelog.ledgers.transitions import begin_recovery, closed_by_recoverer
from fencelog.ledgers.writer_core import (
    Acknowledged,
    ChangeEnsemble,
    Effect,
    Failed,
    PendingRun,
    Send,
    WriterCore,
)

T = TypeVar("T")


async def recover_ledger(
    ledger_id: int,
    *,
    ledgers: Ledgers,
    bookies: BookieDirectory,
    placement: Placement,
    key: bytes = b"",
) -> LedgerMetadata:
    """Close a ledger safely, whoever wrote it; returns the closed metadata.

    Raises RECOVERY_INCOMPLETE naming the bookies that are missing (nothing was closed; repeat it),
    LEDGER_NOT_FOUND, UNAUTHORIZED, METADATA_UNAVAILABLE.
    """
    base, version = await ledgers.get(ledger_id)
    base, version = await update_metadata(ledgers, base, version, begin_recovery)
    if base.is_closed:
        return base
    recovery = _Recovery(base, bookies=bookies, placement=placement, key=key)
    await recovery.run()
    close = partial(
        closed_by_recoverer,
        snapshot=base,
        fragments=recovery.core.metadata.fragments,
        last_entry_id=recovery.core.lac,
        length=recovery.core.length,
    )
    closed, _ = await update_metadata(ledgers, base, version, close)
    return closed


async def fence_ledger(metadata: LedgerMetadata, *, bookies: BookieDirectory) -> FenceRound:
    """Fence the last ensemble on so many bookies that its writer can get no more acks.

    Raises RECOVERY_INCOMPLETE naming the bookies that are missing, UNAUTHORIZED.
    """
    fence = FenceRound(metadata)

    def answered(index: int, answer: int | FencelogError) -> bool:
        if isinstance(answer, int):
            fence.answer(index, answer)
        elif answer.code is ErrorCode.UNAUTHORIZED:
            raise answer
        else:
            fence.error(index, answer)
        return fence.verdict is not Verdict.WAITING

    members = metadata.last_fragment.bookies
    await _ask_all(
        [bookies.client(member).read_lac(metadata.ledger_id, fence=True) for member in members],
        answered,
    )
    if fence.verdict is not Verdict.POSITIVE:
        raise fence.incomplete()
    return fence


class _Recovery:
    """Steps 2 to 4 for one ledger. ``core`` holds the result: LAC, length and ensembles."""

    def __init__(
        self,
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
        self._progress = asyncio.Event()
        self.core = WriterCore(snapshot, lac=NO_ENTRY, length=0)

    async def run(self) -> None:
        fence = await fence_ledger(self._snapshot, bookies=self._bookies)
        start = fence.start_lac
        self.core = WriterCore(self._snapshot, lac=start, length=await self._length_at(start))
        while True:
            found = await self._read(self.core.last_add_pushed + 1)
            if found is None:
                return
            await self._rewrite(*found)

    async def _length_at(self, entry_id: int) -> int:
        """The ledger's length up to a committed entry, as the entry itself says."""
        if entry_id == NO_ENTRY:
            return 0
        reader = LedgerReader(self._snapshot, bookies=self._bookies, key=self._key)
        try:
            entries = await reader.read_unbounded(entry_id, entry_id, max_bytes=MAX_READ_BYTES)
        except FencelogError as error:
            raise recovery_incomplete(
                self._snapshot.ledger_id, f"cannot read entry {entry_id}", {"write set": error}
            ) from error
        return entries[0].length

    async def _read(self, entry_id: int) -> tuple[bytes, list[Entry]] | None:
        """The first verified copy of an entry, and what follows it in the run; None: the end."""
        round_ = EntryRound(self._snapshot, entry_id)
        found: list[tuple[bytes, list[Entry]]] = []
        members = round_.bookies

        def answered(index: int, answer: tuple[bytes, list[Entry]] | FencelogError) -> bool:
            if isinstance(answer, FencelogError):
                round_.answer(members[index], answer)
            else:
                round_.answer(members[index], None)
                found.append(answer)
            return round_.verdict is not Verdict.WAITING

        await _ask_all([self._read_from(bookie, entry_id) for bookie in members], answered)
        if round_.verdict is Verdict.POSITIVE:
            return found[0]
        if round_.verdict is Verdict.NEGATIVE:
            return None
        raise round_.incomplete()

    async def _read_from(self, bookie_id: str, entry_id: int) -> tuple[bytes, list[Entry]]:
        reply = await self._bookies.client(bookie_id).read(
            self._snapshot.ledger_id,
            entry_id,
            max_entries=MAX_RUN_ENTRIES,
            max_bytes=MAX_READ_BYTES,
            fence=True,
        )
        entries = verified_reply(
            reply, self._snapshot, entry_id, bookie_id=bookie_id, key=self._key
        )
        return reply.run, entries

    async def _rewrite(self, run: bytes, entries: list[Entry]) -> None:
        """Recovery adds of the entries as they are; returns when they have Qa acks."""
        core, before = self.core, self.core.length
        for entry in entries:
            if entry.length - len(entry.payload) != before:
                raise recovery_incomplete(
                    self._snapshot.ledger_id,
                    f"entry {entry.entry_id} does not continue the ledger's length {before}",
                    {},
                )
            before = entry.length
        if self._snapshot.ensemble_size == self._snapshot.write_quorum:
            self._execute(core.push(run, count=len(entries), length=before))
        else:
            for entry in entries:
                one = slice_run(run, entry.entry_id, entry.entry_id)
                self._execute(core.push(one, count=1, length=entry.length))
        while core.has_pending:
            self._progress.clear()
            await self._progress.wait()
        if core.finished is not None:
            raise recovery_incomplete(
                self._snapshot.ledger_id, "cannot be rewritten", {"write set": core.finished}
            )

    def _execute(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(run, index, bookie_id):
                    self._bookies.client(bookie_id).add(
                        run.data,
                        recovery=True,
                        incarnation=None,
                        on_reply=partial(self._on_reply, run, index, bookie_id),
                    )
                case ChangeEnsemble():
                    self._execute(self._changed_in_memory(effect))
                case Acknowledged() | Failed():
                    self._progress.set()

    def _on_reply(
        self, run: PendingRun, index: int, bookie_id: str, error: FencelogError | None
    ) -> None:
        if error is not None:
            self._placement.report_failure(bookie_id)
        self._execute(self.core.reply(run, index, bookie_id, error))

    def _changed_in_memory(self, change: ChangeEnsemble) -> list[Effect]:
        core = self.core
        try:
            ensemble = self._placement.replace(core.ensemble, change.failed)
            changed = core.metadata.with_ensemble(change.first_entry_id, ensemble)
        except FencelogError:  # no bookie to replace one with, or no room for another fragment
            return core.ensemble_unchanged()
        return core.ensemble_changed(changed)


async def _ask_all(
    questions: Iterable[Coroutine[Any, Any, T]], answered: Callable[[int, T | FencelogError], bool]
) -> None:
    """Ask all at once; hand over each answer as it comes, until ``answered`` says it is enough."""
    loop = asyncio.get_running_loop()
    tasks = {loop.create_task(question): index for index, question in enumerate(questions)}
    try:
        pending: set[asyncio.Task[T]] = set(tasks)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            enough = False
            for task in done:
                error = task.exception()
                if error is not None and not isinstance(error, FencelogError):
                    raise error
                enough = answered(tasks[task], error or task.result()) or enough
            if enough:
                return
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
