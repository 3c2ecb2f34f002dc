"""The decisions of a replication worker: what a ledger lacks, and what restores it. Pure.

In come the metadata of a ledger, its mark, and what each marked bookie says about its entries; out
come the steps for the fragments that get no more entries. The last fragment of a ledger that is not
closed is never touched: its writer, or a recoverer, may still add to it, and nobody else knows its
end.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from fencelog.bookie.repair.core import CopyRange, copy_ranges, wanted_ranges
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedger
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.availability import Availability
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, LedgerState
from fencelog.ledgers.ledger_metadata.transitions import with_replaced_bookie

SELF_REPAIR = "self_repair"
"""The reason of a wait for a bookie that may restore its copies by itself."""


@dataclass(frozen=True, slots=True)
class BookieEntries:
    """The entries of a ledger that a bookie says it has. ``in_limbo``: an entry that is not among
    them may have been lost, and the bookie looks for it by itself."""

    availability: Availability
    in_limbo: bool = False


Answer = BookieEntries | FencelogError
"""The list of a bookie, or the reason why there is none (never a negative: that is an empty
list)."""


@dataclass(frozen=True, slots=True)
class ClosedFragment:
    """A fragment that gets no more entries. ``last`` is below ``first`` where it has none."""

    first: int
    last: int
    bookies: tuple[str, ...]


class Action(Enum):
    """The way in which a member of a fragment is restored."""

    REPLACE = "replace"
    """Copy its entries to another bookie, which takes its place in the metadata."""
    SPREAD = "spread"
    """The same, if the other bookie's rack makes the write sets safer."""
    FILL = "fill"
    """Copy the entries that it lacks to it."""
    VERIFY = "verify"
    """Read its entries, whose digests did not match."""
    MOVE = "move"
    """Copy its entries to the bookie that the mark names, if that may still take its place."""


@dataclass(frozen=True, slots=True)
class Step:
    """One action for one bookie in one fragment."""

    action: Action
    fragment: ClosedFragment
    bookie_id: str
    target: str | None = None

    @property
    def index(self) -> int:
        return self.fragment.bookies.index(self.bookie_id)


@dataclass(frozen=True, slots=True)
class Wait:
    """A reason why a bookie cannot be restored by now; ``why`` is one word for ``status``."""

    why: str
    detail: str


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The needs of a ledger. ``needs_close``: fragments that may get entries name bookies that are
    to be replaced, or cannot be compared before."""

    steps: tuple[Step, ...] = ()
    waits: tuple[Wait, ...] = ()
    needs_close: bool = False

    @property
    def is_done(self) -> bool:
        return not (self.steps or self.waits or self.needs_close)

    @property
    def leaves_time(self) -> bool:
        """Tell whether a bookie that answers is left its own repair, or given what it lacks."""
        fills = any(step.action is Action.FILL for step in self.steps)
        return fills or any(wait.why == SELF_REPAIR for wait in self.waits)


def closed_fragments(metadata: LedgerMetadata) -> Iterator[ClosedFragment]:
    """Yield the fragments that get no more entries. All entries before the last fragment are
    acknowledged, because it begins at LAC + 1. During a recovery there is none: the recoverer
    writes all fragments with its close, and must find them as they were."""
    if metadata.state is LedgerState.IN_RECOVERY:
        return
    fragments = metadata.fragments
    for fragment, following in pairwise(fragments):
        yield ClosedFragment(
            fragment.first_entry_id, following.first_entry_id - 1, fragment.bookies
        )
    if metadata.is_closed:
        last = metadata.last_fragment
        yield ClosedFragment(last.first_entry_id, metadata.last_entry_id, last.bookies)


def plan_repair(
    metadata: LedgerMetadata,
    mark: UnderReplicatedLedger,
    answers: Mapping[str, Answer],
    *,
    registered: Container[str],
    attempts: int,
    self_repair_attempts: int,
) -> RepairPlan:
    """Return what the ledger needs. ``answers``: those of the marked bookies that fragments
    name. ``registered``: the bookies that are. ``attempts``: how many have left a bookie its own
    repair so far; from ``self_repair_attempts`` on, a bookie that lacks entries is replaced even if
    it answers."""
    fragments = list(closed_fragments(metadata))
    if mark.is_for_balance:
        return RepairPlan(tuple(_moves(fragments, mark)))
    steps: list[Step] = []
    waits: dict[Wait, None] = {}
    for bookie_id, causes in sorted(mark.lacking.items()):
        for fragment in fragments:
            if bookie_id not in fragment.bookies:
                continue
            found = _needed(
                metadata,
                fragment,
                bookie_id,
                causes,
                answers[bookie_id],
                is_registered=bookie_id in registered,
                is_patient=attempts < self_repair_attempts,
            )
            if isinstance(found, Action):
                steps.append(Step(found, fragment, bookie_id))
            elif found is not None:
                waits[found] = None
    leaving = leaving_bookies(mark, answers, registered)
    return RepairPlan(tuple(steps), tuple(waits), _needs_close(metadata, mark, leaving))


def _moves(fragments: list[ClosedFragment], mark: UnderReplicatedLedger) -> Iterator[Step]:
    """Yield the moves that are still to be made: the bookie is in the fragment, the target is
    not."""
    by_first = {fragment.first: fragment for fragment in fragments}
    for move in mark.moves:
        fragment = by_first.get(move.first_entry_id)
        if fragment is None or move.bookie_id not in fragment.bookies:
            continue
        if move.target not in fragment.bookies:
            yield Step(Action.MOVE, fragment, move.bookie_id, move.target)


def _needed(
    metadata: LedgerMetadata,
    fragment: ClosedFragment,
    bookie_id: str,
    causes: frozenset[Cause],
    answer: Answer,
    *,
    is_registered: bool,
    is_patient: bool,
) -> Action | Wait | None:
    if Cause.DECOMMISSION in causes:
        return Action.REPLACE
    if Cause.LOST_BOOKIE in causes and not _is_back(answer, is_registered=is_registered):
        # One that answers and is not registered is cut off from the metadata store. The auditor
        # would not mark it again if it died: it is lost already.
        return Action.REPLACE
    if isinstance(answer, FencelogError):
        # A bookie that cannot be asked may have everything: only the auditor, which has waited
        # for it, says that it is lost.
        return Wait("unreached", f"bookie {bookie_id}: {answer.detail}")
    if next(missing_ranges(metadata, fragment, bookie_id, answer.availability), None) is not None:
        if not is_patient:
            return Action.REPLACE
        if answer.in_limbo:
            return Wait(SELF_REPAIR, f"bookie {bookie_id} is in limbo, and repairs itself")
        return Action.FILL
    if Cause.DAMAGED in causes:
        return Action.VERIFY
    return Action.SPREAD if Cause.PLACEMENT in causes else None


def _is_back(answer: Answer | None, *, is_registered: bool) -> bool:
    """Tell whether a bookie that was lost is part of the cluster again."""
    return is_registered and isinstance(answer, BookieEntries)


def leaving_bookies(
    mark: UnderReplicatedLedger, answers: Mapping[str, Answer], registered: Container[str]
) -> frozenset[str]:
    """Return the marked bookies whose places others have to take, whatever they have: those that
    are lost, and not back, and those that are to leave the cluster."""
    return frozenset(
        bookie
        for bookie, causes in mark.lacking.items()
        if Cause.DECOMMISSION in causes
        or (
            Cause.LOST_BOOKIE in causes
            and not _is_back(answers.get(bookie), is_registered=bookie in registered)
        )
    )


def _needs_close(
    metadata: LedgerMetadata, mark: UnderReplicatedLedger, leaving: frozenset[str]
) -> bool:
    """Tell whether fragments that may get entries name a bookie that has to be replaced. Only a
    bookie that leaves is reason enough to end a writer. During a recovery it has ended already, and
    no fragment can be compared before the close: any marked bookie is reason enough to finish
    it."""
    if metadata.is_closed:
        return False
    if metadata.state is LedgerState.IN_RECOVERY:
        return any(mark.lacking.keys() & set(each.bookies) for each in metadata.fragments)
    return bool(leaving.intersection(metadata.last_fragment.bookies))


def decommissioned(mark: UnderReplicatedLedger) -> set[str]:
    """Return the marked bookies that are to get no more copies, although they may run."""
    return {bookie for bookie, causes in mark.lacking.items() if Cause.DECOMMISSION in causes}


def missing_ranges(
    metadata: LedgerMetadata, fragment: ClosedFragment, bookie_id: str, held: Availability
) -> Iterator[tuple[int, int]]:
    """Yield the entries of the fragment that belong on the bookie by ``metadata``, and that are not
    among those that it has."""
    return held.missing_from(wanted_ranges(metadata, bookie_id, fragment.first, fragment.last))


def moved(metadata: LedgerMetadata, step: Step, target: str) -> LedgerMetadata:
    """Return the metadata with ``target`` in the place of the step's bookie. Raises
    METADATA_CONFLICT."""
    changed = with_replaced_bookie(
        metadata,
        first_entry_id=step.fragment.first,
        last_entry_id=step.fragment.last,
        index=step.index,
        old=step.bookie_id,
        new=target,
    )
    return metadata if changed is None else changed


def sources(
    metadata: LedgerMetadata, target: str, entries: tuple[int, int], *, last_resort: str | None
) -> Iterator[CopyRange]:
    """Yield the bookies that ``target`` gets entries from, by the metadata as it is, all of them in
    turn; ``last_resort``, which is lost, comes last, in case it has returned."""
    for part in copy_ranges(metadata, target, entries, spread=True):
        others = [bookie for bookie in part.sources if bookie != last_resort]
        lost = [bookie for bookie in part.sources if bookie == last_resort]
        yield CopyRange(part.first, part.last, (*others, *lost))


def urgency(mark: UnderReplicatedLedger) -> tuple[int, int, int]:
    """Return the key by which ledgers are repaired: those with the most lost copies first, then the
    oldest marks."""
    lost = sum(
        bool(causes - {Cause.PLACEMENT, Cause.DECOMMISSION}) for causes in mark.lacking.values()
    )
    return -lost, mark.since_us, mark.ledger_id
