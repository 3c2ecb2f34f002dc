"""The add pipeline as a pure state machine: in come runs, replies and ensembles, out come effects.

No clock, no I/O, no awaiting. The shell (``writer/writer.py``, and ``recovery/recovery.py`` for
recovery adds) carries the effects out. Rules of PROTOCOL.md implemented here:

1. Acknowledgements reach the caller in entry order, at Qa, never past a hole; LAC is the highest
   acknowledged entry.
2. Ensemble change: acknowledgements and LAC are frozen from the moment it is decided; the new
   fragment starts at LAC + 1; then acks of every replaced index are dropped in all pending runs,
   the runs are resent, and only then the queue is drained, always (BK#3005, #4097, #4261). Late
   replies of replaced bookies are ignored.
3. Fenced: the writer is finished, and pending entries are of unknown outcome.

Where there is no replacement the writer continues with a smaller ensemble as long as Qa bookies of
each write set answer: acknowledged still means Qa copies. With ``delay_changes`` it does not ask
for a replacement before that (BookKeeper's delayed ensemble change), unless a member is lost for
good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fencelog.ledgers.errors import ErrorCode, FencelogError, check, prefix_bookie
from fencelog.ledgers.format.request_context import NO_CONTEXTS, Contexts
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.quorum import write_set

LASTING_CODES = frozenset({ErrorCode.READ_ONLY, ErrorCode.WRONG_INCARNATION})
"""Answers of a bookie that accepts none of the next adds either: waiting for it is of no use."""


@dataclass(slots=True)
class PendingRun:
    """A run that is not acknowledged yet. ``length`` counts the ledger's bytes up to its end.

    ``acks`` and ``failed`` are disjoint indices into the current ensemble, of ``members``.
    ``contexts``: the requests that it was appended for, as far as they can be followed.
    """

    first_entry_id: int
    last_entry_id: int
    length: int
    data: bytes
    members: tuple[int, ...]
    acks: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    contexts: Contexts = NO_CONTEXTS


class Send(NamedTuple):
    """Send the run to a bookie, the ensemble's ``member``; report the reply with the same three
    values."""

    run: PendingRun
    member: int
    bookie_id: str


@dataclass(frozen=True, slots=True)
class ChangeEnsemble:
    """Replace these bookies (index -> id) from ``first_entry_id`` on, then report the outcome."""

    failed: Mapping[int, str]
    first_entry_id: int


class Acknowledged(NamedTuple):
    """Every entry up to ``lac`` is acknowledged; the ledger is ``length`` bytes long there."""

    lac: int
    length: int


@dataclass(frozen=True, slots=True)
class Failed:
    """End the writer. Entries above LAC are of unknown outcome."""

    error: FencelogError


Effect = Send | ChangeEnsemble | Acknowledged | Failed


class WriterCore:
    """One ledger's adds. Every method returns the effects to carry out, in their order.

    While no change is in progress, every pending run can still reach Qa: the failure after which it
    could not has requested a change, and a change that does not help finishes the writer. So,
    once all requests in flight are answered, nothing is pending.
    """

    def __init__(
        self, metadata: LedgerMetadata, *, lac: int, length: int, delay_changes: bool = False
    ) -> None:
        self.metadata = metadata
        self.ensemble = metadata.last_fragment.bookies
        self.lac = lac
        self.length = length
        self.last_add_pushed = lac
        self.finished: FencelogError | None = None
        self.changing = False
        self._sealed = False
        self._delay_changes = delay_changes
        self._pending: list[PendingRun] = []
        """Few runs at a time; and an empty deque takes 700 bytes, in every idle ledger."""
        self._failed: dict[int, str] = {}
        self._delayed: dict[int, str] = {}
        self._reasons: dict[str, str] = {}
        """The last failure of each bookie that had one, for the error of the writer."""
        size = metadata.ensemble_size
        self._all_members = tuple(range(size)) if size == metadata.write_quorum else None

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    @property
    def failed_members(self) -> Mapping[int, str]:
        """Return the members of the ensemble (index -> id) that failed and have not been
        replaced."""
        return self._failed | self._delayed

    @property
    def is_degraded(self) -> bool:
        return bool(self._failed or self._delayed)

    def push(
        self, data: bytes, *, count: int, length: int, contexts: Contexts = NO_CONTEXTS
    ) -> list[Send]:
        """Accept the next run of ``count`` entries; they follow ``last_add_pushed`` directly."""
        check(self.finished is None and not self._sealed, "push to a finished writer")
        first = self.last_add_pushed + 1
        members = self.members_of(first, count)
        run = PendingRun(first, first + count - 1, length, data, members, contexts=contexts)
        self.last_add_pushed = run.last_entry_id
        self._pending.append(run)
        ensemble = self.ensemble
        return [Send(run, index, ensemble[index]) for index in members]

    def members_of(self, first_entry_id: int, count: int) -> tuple[int, ...]:
        """Return the write set of a run. Its entries must share one: with striping a run holds one
        entry."""
        if self._all_members is not None:
            return self._all_members
        metadata = self.metadata
        check(count == 1, "a run of a striped ledger holds one entry")
        return write_set(
            first_entry_id,
            ensemble_size=metadata.ensemble_size,
            write_quorum=metadata.write_quorum,
        )

    def reply(
        self, run: PendingRun, index: int, bookie_id: str, error: FencelogError | None
    ) -> list[Effect]:
        """Report a bookie's answer to an add. A success is recorded even for a run that is
        complete: an ensemble change may still undo its completion."""
        if self.finished is not None or self._sealed or self.ensemble[index] != bookie_id:
            return []
        if error is None:
            run.acks.add(index)
            if run.failed:
                run.failed.discard(index)
            if self.changing:
                return []
            if self._failed or self._delayed:
                self._failed.pop(index, None)
                self._delayed.pop(index, None)
            return self._drain() if self._pending else []
        if error.code is ErrorCode.LEDGER_FENCED:
            return self._fail(error)
        self._reasons[bookie_id] = error.detail
        if index not in run.acks:  # it was a member before, and was sent the run twice
            run.failed.add(index)
        is_news = index not in self._failed
        if is_news and self._delay_changes and error.code not in LASTING_CODES:
            self._delayed[index] = bookie_id
            is_news = False
        else:
            self._failed[index] = bookie_id
        return self._change() if is_news or self._is_lost(run) else []

    def on_lac_reply(self, bookie_id: str, error: FencelogError | None) -> list[Effect]:
        """Report a bookie's answer to an explicit LAC: an idle writer learns here that it is
        fenced."""
        if error is None or error.code is not ErrorCode.LEDGER_FENCED:
            return []
        return [] if self._sealed or bookie_id not in self.ensemble else self._fail(error)

    def change_ensemble(self) -> list[Effect]:
        """Ask once more for the replacement of members for which there was none."""
        return self._change() if self._failed else []

    def ensemble_changed(self, metadata: LedgerMetadata) -> list[Effect]:
        """Report that the new fragment is committed (in recovery: decided). Drop acks, resend,
        drain."""
        if self.finished is not None:
            return []
        check(self.changing, "an ensemble change that was not requested")
        before, after = self.ensemble, metadata.last_fragment.bookies
        self.metadata, self.ensemble = metadata, after
        replaced = {i for i in range(len(after)) if after[i] != before[i]}
        for index in replaced:
            self._failed.pop(index, None)
            self._delayed.pop(index, None)
        for run in self._pending:
            run.acks -= replaced
            run.failed -= replaced
        effects: list[Effect] = [
            Send(run, i, after[i]) for run in self._pending for i in run.members if i in replaced
        ]
        self.changing = False
        if replaced and (self._failed or self._lost_run() is not None):
            return [*effects, *self._change()]
        return [*effects, *self._go_on()]

    def ensemble_unchanged(self) -> list[Effect]:
        """Report that there is no replacement, and that metadata was certainly not changed."""
        self.changing = False
        return self._go_on()

    def fail(self, error: FencelogError) -> list[Effect]:
        """Fail with an error that the shell has found in the metadata."""
        return self._fail(error)

    def seal(self) -> None:
        """Prepare for the close of the ledger at LAC: no answer of a bookie matters any more.
        Without this a late failure would begin an ensemble change during the close."""
        check(not self._pending and not self.changing, "closing before all is acknowledged")
        self._sealed = True

    def _change(self) -> list[Effect]:
        """Begin an ensemble change: acknowledgements are frozen from here on. Members whose change
        was delayed are included."""
        if self.changing or self.finished is not None or self._sealed:
            return []
        self._failed |= self._delayed
        self._delayed.clear()
        self.changing = True
        return [ChangeEnsemble(dict(self._failed), self.lac + 1)]

    def _go_on(self) -> list[Effect]:
        """Continue in the current ensemble, after a change or without one, if it can serve the
        pending runs."""
        effects = self._drain()
        run = self._lost_run()
        if run is None:
            return effects
        missing = sorted(self.ensemble[index] for index in run.failed)
        reasons = "; ".join(prefix_bookie(each, self._reasons[each]) for each in missing)
        error = FencelogError(
            ErrorCode.APPEND_UNKNOWN,
            f"ledger {self.metadata.ledger_id}: entry {run.first_entry_id} cannot reach "
            f"{self.metadata.ack_quorum} bookies ({reasons})",
            bookies=missing,
        )
        return [*effects, *self._fail(error)]

    def _drain(self) -> list[Effect]:
        pending = self._pending
        if not pending:
            return []
        quorum, before = self.metadata.ack_quorum, self.lac
        while pending and len(pending[0].acks) >= quorum:
            run = pending.pop(0)
            self.lac, self.length = run.last_entry_id, run.length
        return [Acknowledged(self.lac, self.length)] if self.lac != before else []

    def _is_lost(self, run: PendingRun) -> bool:
        """Tell whether so many members refused a run that it can never reach Qa in this
        ensemble."""
        return len(run.failed) > self.metadata.write_quorum - self.metadata.ack_quorum

    def _lost_run(self) -> PendingRun | None:
        return next((run for run in self._pending if self._is_lost(run)), None)

    def _fail(self, error: FencelogError) -> list[Effect]:
        """Finish the writer. A ledger that was being closed has nothing pending, so there is
        nothing to report."""
        if self.finished is not None:
            return []
        self.finished = error
        self._pending.clear()
        return [] if self._sealed else [Failed(error)]
