"""The conclusions of a recoverer from answers, as pure values (PROTOCOL.md rule 4, seed 000).

Generous with positives, strict with negatives: one verified copy recovers an entry; only (Qw - Qa)
+ 1 explicit "no such entry" end the ledger; anything else is unknown, and an unknown entry aborts
the recovery and never closes the ledger.

A ledger that is recovered is in the metadata. "No such ledger" is therefore no negative here: the
bookie has a tombstone (a fencing request makes an unknown ledger known), and what it held is gone.
So it is where the metadata store was restored from an old backup, after the ledger was deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from fencelog.ledgers.errors import (
    ErrorCode,
    FencelogError,
    recovery_incomplete,
)
from fencelog.ledgers.format.run import Entry, slice_run
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.quorum import coverage_threshold, is_ensemble_covered, write_set

_LOST = (ErrorCode.LEDGER_IN_LIMBO, ErrorCode.NO_SUCH_LEDGER)
"""The errors of a bookie that has lost, or deleted, what it may have held. It takes no adds of the
ledger's writer, for good: limbo is the state of a fenced ledger; a tombstone is fenced, is kept for
ever (in the journal, before any answer; in the index; by replay), and refuses recovery adds, too
(``bookie/engine/adds.py``). Who rebuilds a lost index, which held tombstones, fences every ledger
of the metadata that names the bookie (rule 10)."""


class Verdict(Enum):
    """The state of a question to several bookies."""

    WAITING = "waiting"
    POSITIVE = "positive"
    NEGATIVE = "negative"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class AcceptedLoss:
    """The consent of a person to lose what only bookies in limbo, or that have deleted the ledger,
    may have held, and the resulting losses. With it, "in limbo" and "no such ledger" count as "no
    such entry" once the whole write set has answered, and as fenced, because such a bookie is
    fenced. So a ledger whose copies are lost for good can be closed. Without it (None wherever one
    may be passed, and so everywhere except in that person's own command) both are unknown."""

    fenced: set[str] = field(default_factory=set)
    """Bookies whose answer to the fencing read was one of these."""
    entries: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Entries that were given up, each with the bookies, sorted, that may have held it."""
    deleted: set[str] = field(default_factory=set)
    """The bookies, of all these, that have deleted the ledger; the others have it in limbo."""

    def lost_by(self, bookie_id: str, error: FencelogError) -> bool:
        """Tell whether the error is one that is accepted; note whether it is a deletion."""
        if error.code is ErrorCode.NO_SUCH_LEDGER:
            self.deleted.add(bookie_id)
        return error.code in _LOST


@dataclass(frozen=True, slots=True)
class Copy:
    """Verified copies of consecutive entries, as they came in one run."""

    run: bytes
    entries: Sequence[Entry]

    def starting_at(self, entry_id: int) -> Copy | None:
        """Return the part from this entry on; None if it is not here."""
        skipped = entry_id - self.entries[0].entry_id
        if not 0 <= skipped < len(self.entries):
            return None
        if not skipped:
            return self
        entries = self.entries[skipped:]
        return Copy(slice_run(self.run, entry_id, entries[-1].entry_id), entries)


@dataclass(frozen=True, slots=True)
class Told:
    """The end of a ledger as a bookie has told it after it had fenced the ledger: copies of
    entries, and an entry that it certainly does not hold. This is as good as its answers to fencing
    reads of these entries; of any other entry it says nothing."""

    copy: Copy | None = None
    absent: int | None = None

    def about(self, entry_id: int, bookie_id: str) -> Copy | FencelogError | None:
        """Return the bookie's answer to a read of this entry; None: it has not told."""
        if entry_id == self.absent:
            detail = f"bookie {bookie_id} has no entry {entry_id}"
            return FencelogError(ErrorCode.NO_SUCH_ENTRY, detail)
        return None if self.copy is None else self.copy.starting_at(entry_id)


@dataclass(slots=True)
class FenceRound:
    """The fencing reads of the last ensemble: the fenced bookies, the highest LAC received, and
    what else they have told, each by its name."""

    metadata: LedgerMetadata
    accepted: AcceptedLoss | None = None
    fenced: set[int] = field(default_factory=set)
    failed: dict[int, FencelogError] = field(default_factory=dict)
    highest_lac: int = -1
    told: dict[str, Told] = field(default_factory=dict)

    @property
    def asks_for_entries(self) -> bool:
        """Tell whether to ask for entries too: a bookie of a striped ledger has not all of them."""
        return self.metadata.ensemble_size == self.metadata.write_quorum

    @property
    def above(self) -> int:
        """Return the entry above which recovery reads, whatever LAC the bookies know. It is never
        below the last fragment: the fragment's first entry was LAC + 1 when it was made
        (BK#2615)."""
        return self.metadata.last_fragment.first_entry_id - 1

    @property
    def members(self) -> tuple[str, ...]:
        """Return the bookies to ask, by their index in the ensemble."""
        return self.metadata.last_fragment.bookies

    def answer(self, index: int, lac: int, told: Told | None = None) -> None:
        self.fenced.add(index)
        self.highest_lac = max(self.highest_lac, lac)
        if told is not None:
            self.told[self.members[index]] = told

    def error(self, index: int, error: FencelogError) -> None:
        """Record an error. Any error is unknown: a fencing read creates the ledger where it was not
        known."""
        if self.accepted is not None and self.accepted.lost_by(self.members[index], error):
            self.accepted.fenced.add(self.members[index])
            self.fenced.add(index)
        else:
            self.failed[index] = error

    @property
    def verdict(self) -> Verdict:
        if self._covered_by(self.fenced):
            return Verdict.POSITIVE
        if not self._covered_by(set(range(self.metadata.ensemble_size)) - self.failed.keys()):
            return Verdict.UNKNOWN
        return Verdict.WAITING

    def _covered_by(self, indices: set[int]) -> bool:
        metadata = self.metadata
        return is_ensemble_covered(
            indices,
            ensemble_size=metadata.ensemble_size,
            write_quorum=metadata.write_quorum,
            ack_quorum=metadata.ack_quorum,
        )

    @property
    def start_lac(self) -> int:
        """Return the last entry that is certainly committed; reading begins above it."""
        return max(self.highest_lac, self.above)

    def incomplete(self) -> FencelogError:
        return recovery_incomplete(
            self.metadata.ledger_id,
            "cannot be fenced on enough bookies",
            {self.members[index]: error for index, error in self.failed.items()},
        )


@dataclass(slots=True)
class EntryRound:
    """The reads of one entry, against the ensemble at recovery start."""

    metadata: LedgerMetadata
    entry_id: int
    accepted: AcceptedLoss | None = None
    negative: dict[str, FencelogError] = field(default_factory=dict)
    unknown: dict[str, FencelogError] = field(default_factory=dict)
    found: bool = False

    @property
    def bookies(self) -> tuple[str, ...]:
        """Return the write set of the entry, in the fragment that holds it."""
        ensemble = self.metadata.fragment_of(self.entry_id).bookies
        members = write_set(
            self.entry_id,
            ensemble_size=self.metadata.ensemble_size,
            write_quorum=self.metadata.write_quorum,
        )
        return tuple(ensemble[index] for index in members)

    def answer(self, bookie_id: str, error: FencelogError | None) -> None:
        """Record an answer. ``error`` None: a copy whose digest is valid. A copy with a bad digest
        is an error."""
        if error is None:
            self.found = True
        elif error.code is ErrorCode.NO_SUCH_LEDGER:  # a tombstone
            self.unknown[bookie_id] = error
        elif error.code.is_negative:
            self.negative[bookie_id] = error
        else:
            self.unknown[bookie_id] = error

    @property
    def verdict(self) -> Verdict:
        if self.found:
            return Verdict.POSITIVE
        metadata = self.metadata
        need = coverage_threshold(cohort=metadata.write_quorum, ack_quorum=metadata.ack_quorum)
        if len(self.negative) >= need:
            return Verdict.NEGATIVE
        if not self.is_over:
            return Verdict.WAITING
        return Verdict.NEGATIVE if self.is_given_up else Verdict.UNKNOWN

    @property
    def is_over(self) -> bool:
        """Tell whether all bookies have answered, and none with a copy."""
        return len(self.negative) + len(self.unknown) == self.metadata.write_quorum

    @property
    def is_given_up(self) -> bool:
        """Tell whether all bookies have answered, and the only remaining doubt is what bookies have
        lost or deleted, which is accepted. Any other doubt may still turn out to be a copy."""
        is_lost = bool(self.unknown) and all(e.code in _LOST for e in self.unknown.values())
        return self.accepted is not None and self.is_over and is_lost

    def give_up(self) -> None:
        """Treat the entry as missing. If that is not certain, note the bookies that may have held
        it."""
        if self.accepted is not None and self.is_given_up:
            for bookie_id, error in self.unknown.items():
                self.accepted.lost_by(bookie_id, error)
            self.accepted.entries[self.entry_id] = tuple(sorted(self.unknown))

    def incomplete(self) -> FencelogError:
        return recovery_incomplete(
            self.metadata.ledger_id,
            f"cannot tell whether entry {self.entry_id} exists",
            self.unknown,
            entry_id=self.entry_id,
        )

    def length_unknown(self) -> FencelogError:
        """Return the error that the length of the ledger up to an acknowledged entry is not known
        without one of its copies, which must exist."""
        return recovery_incomplete(
            self.metadata.ledger_id,
            f"cannot be closed: its length stands in entry {self.entry_id}, which no bookie has",
            self.negative | self.unknown,
            entry_id=self.entry_id,
        )
