"""The add pipeline as a pure state machine: in come runs, replies and ensembles, out come effects.

No clock, no I/O, no awaiting. The shell (``writer.py``, and ``recovery.py`` for recovery adds)
carries the effects out. Rules of PROTOCOL.md that live here:

1. Acknowledgements reach the caller in entry order, at Qa, never past a hole; LAC is the highest
   acknowledged entry.
2. Ensemble change: acknowledgements and LAC are frozen from the moment it is decided; the new
   fragment starts at LAC + 1; then acks of every replaced index are dropped in all pending runs,
   the runs are resent, and only then the queue is drained, always (BK#3005, #4097, #4261). Late
   replies of replaced bookies are ignored.
3. Fenced or unauthorized: the writer is finished, and what is pending is of unknown outcome.

Where no replacement is to be had the writer goes on with a smaller ensemble as long as Qa bookies
of each write set answer (BookKeeper's delayed ensemble change): acknowledged still means Qa copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from fencelog.ledgers.errors import ErrorCode, FencelogError, check
from fencelog.ledgers.metadata import LedgerMetadata
from fencelog.ledgers.quorum import write_set

FATAL_CODES = frozenset({ErrorCode.LEDGER_FENCED, ErrorCode.UNAUTHORIZED})
"""Answers after which no other bookie may be tried (rule 3)."""


@dataclass(slots=True)
class PendingRun:
    """A run that is not acknowledged yet. ``length`` counts the ledger's bytes up to its end."""

    first_entry_id: int
    last_entry_id: int
    length: int
    data: bytes
    members: tuple[int, ...]
    acks: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Send:
    """Send the run to the bookie at this index; report the reply with the same three values."""

    run: PendingRun
    index: int
    bookie_id: str


@dataclass(frozen=True, slots=True)
class ChangeEnsemble:
    """Replace these bookies (index -> id) from ``first_entry_id`` on, then report the outcome."""

    failed: Mapping[int, str]
    first_entry_id: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Every entry up to ``lac`` is acknowledged; the ledger is ``length`` bytes long there."""

    lac: int
    length: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The writer is finished. Entries above LAC are of unknown outcome."""

    error: FencelogError


Effect = Send | ChangeEnsemble | Acknowledged | Failed


class WriterCore:
    """One ledger's adds. Every method returns the effects to carry out, in their order."""

    def __init__(self, metadata: LedgerMetadata, *, lac: int, length: int) -> None:
        self.metadata = metadata
        self.lac = lac
        self.length = length
        self.last_add_pushed = lac
        self.finished: FencelogError | None = None
        self.changing = False
        self._pending: deque[PendingRun] = deque()
        self._failed: dict[int, str] = {}

    @property
    def ensemble(self) -> tuple[str, ...]:
        return self.metadata.last_fragment.bookies

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    @property
    def failed_members(self) -> Mapping[int, str]:
        """Members of the ensemble (index -> id) that failed and have not been replaced."""
        return self._failed

    @property
    def is_degraded(self) -> bool:
        return bool(self._failed)

    def push(self, data: bytes, *, count: int, length: int) -> list[Effect]:
        """Take the next run of ``count`` entries; they follow ``last_add_pushed`` directly."""
        check(self.finished is None, "push to a finished writer")
        first = self.last_add_pushed + 1
        members = self.members_of(first, count)
        run = PendingRun(first, first + count - 1, length, data, members)
        self.last_add_pushed = run.last_entry_id
        self._pending.append(run)
        ensemble = self.ensemble
        return [Send(run, index, ensemble[index]) for index in members]

    def members_of(self, first_entry_id: int, count: int) -> tuple[int, ...]:
        """The write set of a run. Its entries must share one: with striping a run holds one."""
        metadata = self.metadata
        if metadata.ensemble_size == metadata.write_quorum:
            return tuple(range(metadata.ensemble_size))
        check(count == 1, "a run of a striped ledger holds one entry")
        return write_set(
            first_entry_id,
            ensemble_size=metadata.ensemble_size,
            write_quorum=metadata.write_quorum,
        )

    def reply(
        self, run: PendingRun, index: int, bookie_id: str, error: FencelogError | None
    ) -> list[Effect]:
        """A bookie has answered. A success is recorded even for a run that is complete: an ensemble
        change may still undo its completion."""
        if self.finished is not None or self.ensemble[index] != bookie_id:
            return []
        if error is None:
            run.acks.add(index)
            run.failed.discard(index)
            if not self.changing:
                self._failed.pop(index, None)
            return self._drain()
        if error.code in FATAL_CODES:
            return self._fail(error)
        run.failed.add(index)
        known = index in self._failed
        self._failed[index] = bookie_id
        if self.changing:
            return []
        if known:
            return self._fail_if_unreachable()
        return self.change_ensemble()

    def change_ensemble(self) -> list[Effect]:
        """Ask for the failed members to be replaced; acknowledgements are frozen from here on."""
        if self.changing or not self._failed or self.finished is not None:
            return []
        self.changing = True
        return [ChangeEnsemble(dict(self._failed), self.lac + 1)]

    def ensemble_changed(self, metadata: LedgerMetadata) -> list[Effect]:
        """The new fragment is committed (in recovery: decided). Drop acks, resend, drain."""
        if self.finished is not None:
            return []
        check(self.changing, "an ensemble change that nobody asked for")
        before, self.metadata = self.ensemble, metadata
        after = metadata.last_fragment.bookies
        replaced = {i for i in range(len(after)) if after[i] != before[i]}
        for index in replaced:
            self._failed.pop(index, None)
        effects: list[Effect] = []
        for run in self._pending:
            run.acks -= replaced
            run.failed -= replaced
        for run in self._pending:
            effects += [Send(run, i, after[i]) for i in run.members if i in replaced]
        self.changing = False
        if self._failed and replaced:
            return [*effects, *self.change_ensemble()]
        return [*effects, *self._drain(), *self._fail_if_unreachable()]

    def ensemble_unchanged(self) -> list[Effect]:
        """No replacement is to be had, and it is certain that metadata was not changed."""
        self.changing = False
        return [*self._drain(), *self._fail_if_unreachable()]

    def fail(self, error: FencelogError) -> list[Effect]:
        """The shell found out that this writer is over (metadata says so)."""
        return self._fail(error)

    def _drain(self) -> list[Effect]:
        if self.changing or self.finished is not None:
            return []
        pending, quorum, before = self._pending, self.metadata.ack_quorum, self.lac
        while pending and len(pending[0].acks) >= quorum:
            run = pending.popleft()
            self.lac, self.length = run.last_entry_id, run.length
        return [Acknowledged(self.lac, self.length)] if self.lac != before else []

    def _fail_if_unreachable(self) -> list[Effect]:
        """A pending run that too many members refused can never reach Qa in this ensemble."""
        spare = self.metadata.write_quorum - self.metadata.ack_quorum
        for run in self._pending:
            if len(run.failed) > spare:
                missing = sorted(self.ensemble[index] for index in run.failed)
                return self._fail(
                    FencelogError(
                        ErrorCode.APPEND_UNKNOWN,
                        f"ledger {self.metadata.ledger_id}: entry {run.first_entry_id} cannot "
                        f"reach {self.metadata.ack_quorum} bookies: {', '.join(missing)} failed",
                        bookies=missing,
                    )
                )
        return []

    def _fail(self, error: FencelogError) -> list[Effect]:
        if self.finished is not None:
            return []
        self.finished = error
        self._pending.clear()
        return [Failed(error)]
