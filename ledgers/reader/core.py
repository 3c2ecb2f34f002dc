"""The next request of a reader, and its conclusions, as pure values (PROTOCOL.md rule 7).

One verified copy is the entry. "Not there" needs an explicit no from the whole write set of a
closed ledger: the write set of an open one may have changed since its metadata was read. Anything
else is unknown, and names the bookies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from fencelog.ledgers.errors import ErrorCode, FencelogError, prefix_bookie
from fencelog.ledgers.ledger_metadata.model import NO_ENTRY, LedgerMetadata
from fencelog.ledgers.limits import MAX_SIDE_BY_SIDE_READS
from fencelog.ledgers.quorum import is_ensemble_covered


class ReadVerdict(Enum):
    """The state of the read of one entry."""

    WAITING = "waiting"
    FOUND = "found"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class ReadRound:
    """The read of one entry, requested from the bookies of its write set in this order.

    The next one is asked at once after a no or an error, and also when no bookie has answered for a
    while (``overdue``); the first verified answer wins.
    """

    candidates: tuple[str, ...]
    is_closed: bool
    failed: dict[str, FencelogError] = field(default_factory=dict)
    winner: str | None = None
    _asked: int = 0
    _slow: set[str] = field(default_factory=set)

    def ask_next(self) -> str | None:
        """Return the next bookie to ask; None when all of them were asked."""
        if self._asked == len(self.candidates):
            return None
        self._asked += 1
        return self.candidates[self._asked - 1]

    def overdue(self) -> str | None:
        """Return the next bookie to ask as well, because none has answered for a while."""
        self._slow.update(set(self.candidates[: self._asked]) - self.failed.keys())
        return self.ask_next()

    def answer(self, bookie_id: str, error: FencelogError | None) -> None:
        """Record an answer. ``error`` None: a verified copy. A copy with a bad digest is an
        error."""
        if error is not None:
            self.failed[bookie_id] = error
        elif self.winner is None:
            self.winner = bookie_id

    @property
    def has_more(self) -> bool:
        """Tell whether there is another bookie to ask."""
        return self._asked < len(self.candidates)

    @property
    def verdict(self) -> ReadVerdict:
        if self.winner is not None:
            return ReadVerdict.FOUND
        if len(self.failed) < len(self.candidates):
            return ReadVerdict.WAITING
        absent = all(error.code.is_negative for error in self.failed.values())
        return ReadVerdict.ABSENT if absent and self.is_closed else ReadVerdict.UNKNOWN

    @property
    def unreliable(self) -> set[str]:
        """Return the bookies that answered with an error, or so late that another was asked as
        well."""
        errors = {b for b, error in self.failed.items() if not error.code.is_negative}
        return errors | (self._slow - self.failed.keys() - {self.winner})


@dataclass(slots=True)
class LacRound:
    """LAC reads to the members of the last fragment. Any LAC that a bookie reports is a true one,
    the highest is the best; with enough answers it is at most one write behind the writer's."""

    metadata: LedgerMetadata
    highest: int = NO_ENTRY
    answered: set[int] = field(default_factory=set)
    failed: dict[int, FencelogError] = field(default_factory=dict)

    @property
    def members(self) -> tuple[str, ...]:
        return self.metadata.last_fragment.bookies

    def answer(self, index: int, answer: int | FencelogError) -> None:
        """Record a LAC, or the reason why there is none. A ledger that a bookie does not know was
        not written there yet."""
        if isinstance(answer, int):
            self.highest = max(self.highest, answer)
        elif not answer.code.is_negative:
            self.failed[index] = answer
            return
        self.answered.add(index)

    @property
    def is_over(self) -> bool:
        return len(self.answered) + len(self.failed) == self.metadata.ensemble_size

    @property
    def is_covered(self) -> bool:
        """Tell whether no entry can have been acknowledged without one of the bookies that
        answered."""
        metadata = self.metadata
        return is_ensemble_covered(
            self.answered,
            ensemble_size=metadata.ensemble_size,
            write_quorum=metadata.write_quorum,
            ack_quorum=metadata.ack_quorum,
        )

    def unknown(self) -> FencelogError | None:
        """Return the reason why the LAC is not known, None unless every member failed."""
        if len(self.failed) < len(self.members):
            return None
        failures = {self.members[index]: error for index, error in self.failed.items()}
        return read_unknown(self.metadata.ledger_id, "the LAC", failures)


def side_by_side(*, entry_bytes: int, budget_bytes: int) -> int:
    """Return how many entries of a striped ledger are read at once, if they have about this
    size."""
    return max(1, min(MAX_SIDE_BY_SIDE_READS, budget_bytes // max(entry_bytes, 1)))


def expected_entry_bytes(expected: int, seen: int) -> int:
    """Return the size that the next entries are assumed to have: the largest recent one, forgotten
    gradually."""
    return max(seen, expected * 7 // 8)


def is_older(metadata: LedgerMetadata, known: LedgerMetadata) -> bool:
    """Tell whether ``metadata`` is certainly older than ``known``, of the same ledger: a closed
    ledger is never opened again, and an open ledger's fragments only grow in number."""
    if known.is_closed or metadata.is_closed:
        return not metadata.is_closed
    return metadata.last_fragment.first_entry_id < known.last_fragment.first_entry_id


def no_such_entry(ledger_id: int, entry_id: int) -> FencelogError:
    """Return the error when the whole write set of a closed ledger says that there is no such
    entry."""
    return FencelogError(
        ErrorCode.NO_SUCH_ENTRY,
        f"ledger {ledger_id} has no entry {entry_id}",
        ledger_id=ledger_id,
        entry_id=entry_id,
    )


def read_unknown(ledger_id: int, what: str, failures: dict[str, FencelogError]) -> FencelogError:
    """Return the error when no bookie that answered has it, and a bookie that did not answer may
    have it."""
    reasons = "; ".join(
        prefix_bookie(bookie, error.detail) for bookie, error in sorted(failures.items())
    )
    return FencelogError(
        ErrorCode.READ_UNKNOWN,
        f"{what} of ledger {ledger_id} cannot be read now ({reasons})",
        ledger_id=ledger_id,
        missing_bookies=sorted(failures),
    )
