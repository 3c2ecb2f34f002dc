"""The repair of one ledger: copies first, durable and compared, then the metadata, then compared
again.

For each fragment that gets no more entries, and each marked bookie in it (``core`` decides):

    a target ──► its list of entries ──► copy what it lacks, verified, as recovery adds
        ──► its list again: all there? ──► metadata as it is now: still the same fragment?
        ──► compare-and-set of this one bookie ──► its list again: all there?

What may happen in between, and why no answer becomes false (PROTOCOL.md rule 11):

* this process dies: the target has copies that the metadata does not name. The next worker finds
  them in its list; if there is none, the target's garbage collector removes them once the ledger is
  not marked any more;
* another worker does the same, as both believe they hold the lock: both have copied everything they
  name, and the second compare-and-set finds another bookie in the place, and changes nothing;
* the writer, a recoverer or another worker changes the metadata: the step is computed again from
  the metadata as it is then, and refuses a fragment that is not the one that was copied;
* the ledger is deleted: the compare-and-set fails. What was copied is garbage, and is collected;
* the target loses its disk: adds and lists name its incarnation. A bookie that comes back under
  another one puts every marked ledger in limbo (``engine/boot.py``), so it denies nothing that was
  copied to it before; and the mark stays until the list after the change has come from the
  incarnation that got the copies: where it does not come, the target is marked before this worker
  repairs anything else. One that loses it later finds itself in the metadata;
* the target's garbage collector removes the copies: it leaves marked ledgers alone, and one that it
  removed before that is in limbo there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from fencelog.bookie.repair.copier import EntryCopier, all_lost
from fencelog.bookie.repair.copies import Copies, NoCopy, PutOff
from fencelog.bookie.repair.core import CopyRange, MissingReason, wanted_ranges
from fencelog.bookie.replication.core import (
    SELF_REPAIR,
    Action,
    Answer,
    BookieEntries,
    ClosedFragment,
    Step,
    closed_fragments,
    decommissioned,
    leaving_bookies,
    missing_ranges,
    moved,
    plan_repair,
    sources,
)
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedger, UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Availability, Range
from fencelog.ledgers.format.run import read_run_header
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.ledger_metadata.transitions import with_replaced_bookie
from fencelog.ledgers.ledger_metadata.update import update_metadata
from fencelog.ledgers.limits import MAX_REPLICATION_ROUNDS, SELF_REPAIR_ATTEMPTS
from fencelog.ledgers.metastore.port import Version
from fencelog.ledgers.placement.placement import Placement
from fencelog.ledgers.rpc.bookie_port import AddCallback, BookieDirectory

CloseLedger = Callable[
    [LedgerMetadata, Version, UnderReplicatedLedger, frozenset[str]], Awaitable[None]
]
"""Closes a ledger by its recovery, or raises the reason why it is not closed yet. The bookies are
those whose places others have to take."""


@dataclass(frozen=True, slots=True)
class RepairTools:
    """The tools that all repairs of one worker share."""

    ledgers: LedgerStore
    marks: UnderReplicatedLedgers
    bookies: BookieDirectory
    placement: Placement
    copies: Copies
    copier: EntryCopier
    close: CloseLedger
    host: Host
    unproven: set[tuple[int, str]] = field(default_factory=set)
    """Ledgers, and bookies that the metadata may name for them since, of which no list has shown
    that they have the copies: still to be marked."""

    async def mark_unproven(self) -> None:
        """Mark what is ``unproven``. Raises FencelogError: what is not marked stays for the next
        call."""
        for ledger_id, target in sorted(self.unproven):
            await self.marks.mark(
                ledger_id, missing=[target], why=Cause.MISSING_COPIES, now_us=self.host.now_us()
            )
            self.unproven.discard((ledger_id, target))


class LedgerRepair:
    """One attempt to repair one marked ledger. ``attempts``: how many have left a bookie its own
    repair so far; ``leaves_time``: this one did. ``check`` raises where nothing more is to be
    changed, since the lock is lost or workers are disabled. ``replaced``: the bookies that have
    left fragments for others."""

    def __init__(
        self,
        tools: RepairTools,
        mark: UnderReplicatedLedger,
        *,
        attempts: int,
        check: Callable[[], None],
    ) -> None:
        self._tools = tools
        self._mark = mark
        self._attempts = attempts
        self._check = check
        self._id = mark.ledger_id
        self.replaced = 0
        self.leaves_time = False

    async def run(self) -> None:
        """Return when the ledger lacks nothing of what its mark says, by metadata that is not older
        than the mark. Raises FencelogError: why it still does."""
        for _ in range(MAX_REPLICATION_ROUNDS):
            self._check()
            try:
                metadata, version = await self._tools.ledgers.get_latest(self._id)
            except FencelogError as error:
                if error.code is ErrorCode.LEDGER_NOT_FOUND:
                    return  # it was deleted
                raise
            answers = await self._answers(metadata)
            bookies = self._tools.bookies
            registered = {*bookies.available(), *bookies.read_only()}
            plan = plan_repair(
                metadata,
                self._mark,
                answers,
                registered=registered,
                attempts=self._attempts,
                self_repair_attempts=SELF_REPAIR_ATTEMPTS,
            )
            self.leaves_time |= plan.leaves_time
            why: FencelogError | None = None
            if plan.waits:
                why = PutOff(plan.waits[0].why, plan.waits[0].detail)
            try:
                if await self._carry_out(metadata, plan.steps):
                    continue
            except FencelogError as error:
                self._check()  # nothing more, where that is the reason
                why = error
            if plan.needs_close:
                leaving = leaving_bookies(self._mark, answers, registered)
                await self._close(metadata, version, leaving, why)
            elif why is not None:
                raise why
            else:
                return
        raise PutOff("changing", f"ledger {self._id} was changed each time during its repair")

    async def _close(
        self,
        metadata: LedgerMetadata,
        version: Version,
        leaving: frozenset[str],
        why: FencelogError | None,
    ) -> None:
        """Close the ledger, so that its last fragment can be repaired; fragments before it may have
        to wait all the same, ``why`` tells the reason. Raises FencelogError: that one, if there
        is one."""
        try:
            await self._tools.close(metadata, version, self._mark, leaving)
        except FencelogError as error:
            if why is None:
                raise
            raise why from error

    async def _answers(self, metadata: LedgerMetadata) -> dict[str, Answer]:
        """Ask the marked bookies for their entries in fragments that get no more; those of the
        last fragment alone only for an answer."""
        fragments = list(closed_fragments(metadata))
        answers: dict[str, Answer] = {}
        for bookie_id in sorted(self._mark.lacking):
            parts = [fragment for fragment in fragments if bookie_id in fragment.bookies]
            first, last = (parts[0].first, parts[-1].last) if parts else (0, -1)
            if not parts and bookie_id not in metadata.last_fragment.bookies:
                continue
            try:
                answers[bookie_id] = await self._list(bookie_id, first, last)
            except FencelogError as error:
                answers[bookie_id] = error
        return answers

    async def _carry_out(self, metadata: LedgerMetadata, steps: tuple[Step, ...]) -> bool:
        """Carry out the steps, and tell whether any of them changed something: then the ledger is
        to be looked at again. A step that fails does not keep the others back. Raises the error
        that tells most."""
        if any(step.action is not Action.SPREAD for step in steps):
            self._tools.copies.check_key(metadata)
        changed, errors = set[int](), list[FencelogError]()
        for step in steps:
            if step.fragment.first in changed:
                continue  # its ensemble is another one now
            try:
                if await self._step(metadata, step):
                    changed.add(step.fragment.first)
            except FencelogError as error:
                self._check()  # nothing more, where that is the reason
                errors.append(error)
        if errors:
            lost = [error for error in errors if isinstance(error, NoCopy)]
            raise all_lost(lost) if lost else errors[0]
        return bool(changed)

    async def _step(self, metadata: LedgerMetadata, step: Step) -> bool:
        match step.action:
            case Action.FILL:
                await self._fill(metadata, step)
            case Action.VERIFY:
                return not await self._is_well(metadata, step) and await self._move(metadata, step)
            case Action.REPLACE | Action.SPREAD | Action.MOVE:
                return await self._move(metadata, step)
        return True

    # -- one member of one fragment ------------------------------------------------------------

    async def _fill(self, metadata: LedgerMetadata, step: Step) -> None:
        """Copy to a bookie what it lacks; the next round compares its list."""
        incarnation = self._tools.bookies.describe(step.bookie_id).incarnation
        await self._copy(metadata, metadata, step.fragment, step.bookie_id, incarnation, None)

    async def _move(self, metadata: LedgerMetadata, step: Step) -> bool:
        """Let another bookie take the place of the step's bookie; False: there is no better
        one."""
        ensemble = self._target_ensemble(metadata, step)
        if ensemble is None:
            return False
        target = ensemble[step.index]
        incarnation = self._tools.bookies.describe(target).incarnation
        wanted = moved(metadata, step, target)
        try:
            await self._copy(metadata, wanted, step.fragment, target, incarnation, step.bookie_id)
            await self._compare(wanted, step.fragment, target, incarnation)
        except FencelogError as error:
            if not isinstance(error, NoCopy | PutOff):
                self._tools.placement.report_failure(target)
            raise
        try:
            await self._commit(step, target)
        except asyncio.CancelledError:
            self._tools.unproven.add((self._id, target))  # the metadata may name it
            raise
        self.replaced += 1
        try:
            await self._compare(wanted, step.fragment, target, incarnation)
        except BaseException as error:
            # The metadata names it, and it may not have the copies (any more).
            self._tools.unproven.add((self._id, target))
            if isinstance(error, FencelogError):
                await self._tools.mark_unproven()
            raise
        return True

    def _target_ensemble(self, metadata: LedgerMetadata, step: Step) -> tuple[str, ...] | None:
        """Return the fragment's bookies with another one in the place of the step's; None: none
        spreads them better, or the one that is named may not take it. Raises
        NOT_ENOUGH_BOOKIES."""
        if step.target is not None:
            return self._tools.placement.moved(
                step.fragment.bookies,
                step.index,
                step.target,
                write_quorum=metadata.write_quorum,
            )
        replace = (
            self._tools.placement.spread
            if step.action is Action.SPREAD
            else self._tools.placement.replace
        )
        by_preference = partial(
            replace, step.fragment.bookies, [step.index], write_quorum=metadata.write_quorum
        )
        try:
            return by_preference(exclude=set(self._mark.lacking))
        except FencelogError as error:
            if error.code is not ErrorCode.NOT_ENOUGH_BOOKIES:
                raise
        # There may be no other bookie than one that lacked entries, and is about to get them: its
        # place in the mark stays until this fragment is repaired as well.
        return by_preference(exclude=decommissioned(self._mark))

    async def _copy(
        self,
        metadata: LedgerMetadata,
        wanted: LedgerMetadata,
        fragment: ClosedFragment,
        target: str,
        incarnation: str,
        last_resort: str | None,
    ) -> None:
        """Copy to the target what belongs there by the metadata ``wanted`` and is not there yet,
        from the members that ``metadata`` names. Raises NoCopy, after all others were copied."""
        held = await self._list(target, fragment.first, fragment.last, incarnation)

        def ranges() -> Iterator[CopyRange]:
            for entries in missing_ranges(wanted, fragment, target, held.availability):
                yield from sources(metadata, target, entries, last_resort=last_resort)

        def add(run: bytes, on_reply: AddCallback) -> None:
            client = self._tools.bookies.client(target)
            client.add(run, recovery=True, incarnation=incarnation, on_reply=on_reply)

        lost: list[NoCopy] = []
        await self._tools.copier.copy(metadata, ranges(), add, lost, check=self._check)
        if lost:
            raise all_lost(lost)

    async def _compare(
        self, wanted: LedgerMetadata, fragment: ClosedFragment, target: str, incarnation: str
    ) -> None:
        """Check that the target, in this incarnation, has all entries that belong on it. Raises
        FencelogError."""
        held = await self._list(target, fragment.first, fragment.last, incarnation)
        missing = next(missing_ranges(wanted, fragment, target, held.availability), None)
        if missing is not None:
            raise FencelogError(
                ErrorCode.READ_UNKNOWN,
                f"bookie {target} does not have entries {missing[0]}..{missing[1]} of ledger "
                f"{self._id}, which were copied to it",
            )

    async def _commit(self, step: Step, target: str) -> None:
        """Write the target into the metadata as it is now. Raises FencelogError; METADATA_CONFLICT
        where the fragment is not the one that was copied, LEDGER_NOT_FOUND."""
        if await self._tools.marks.get(self._id) is None:
            raise PutOff("changing", f"ledger {self._id} is not marked any more")
        self._check()
        base, version = await self._tools.ledgers.get(self._id)
        replaced = partial(
            with_replaced_bookie,
            first_entry_id=step.fragment.first,
            last_entry_id=step.fragment.last,
            index=step.index,
            old=step.bookie_id,
            new=target,
        )
        await update_metadata(self._tools.ledgers, base, version, replaced)

    async def _is_well(self, metadata: LedgerMetadata, step: Step) -> bool:
        """Read all entries that a bookie should have, and tell whether their digests match. Raises
        PutOff while the bookie may still repair them by itself; FencelogError where it cannot be
        read."""
        for first, last in wanted_ranges(
            metadata, step.bookie_id, step.fragment.first, step.fragment.last
        ):
            entry_id = first
            while entry_id <= last:
                self._check()
                part = CopyRange(entry_id, last, (step.bookie_id,))
                try:
                    run = await self._tools.copies.run(metadata, part, entry_id)
                except NoCopy as error:
                    if error.reason is MissingReason.UNREACHED and not error.is_damaged:
                        raise PutOff("unreached", error.detail) from error
                    if self._attempts < SELF_REPAIR_ATTEMPTS:
                        self.leaves_time = True
                        raise PutOff(SELF_REPAIR, error.detail) from error
                    return False
                entry_id = read_run_header(run).last_entry_id + 1
        return True

    async def _list(
        self, bookie_id: str, first: int, last: int, incarnation: str | None = None
    ) -> BookieEntries:
        """Return the entries ``first`` … ``last`` that a bookie has; it is asked even if there are
        none. Raises FencelogError; never a negative, which is an empty list."""
        client = self._tools.bookies.client(bookie_id)
        ranges: list[Range] = []
        in_limbo, position = False, first
        while True:
            try:
                page = await client.list_entries(self._id, position, incarnation=incarnation)
            except FencelogError as error:
                if not error.code.is_negative:
                    raise
                return BookieEntries(Availability.of(ranges), in_limbo)
            end = last if page.next_entry is None else min(page.next_entry - 1, last)
            ranges += page.availability.ranges(position, end)
            in_limbo |= page.in_limbo
            if end >= last:
                return BookieEntries(Availability.of(ranges), in_limbo)
            position = end + 1
