"""The steps of an open log: what follows each, and what its failure means. Part of ``LogCore``."""

from __future__ import annotations

from fencelog.broker.append.mode import AppendMode
from fencelog.broker.log.effects import (
    Adopted,
    CheckOwnership,
    CloseLedger,
    CreateLedger,
    Drain,
    Effect,
    EndLog,
    ListLedger,
    LogState,
    Lost,
    Recover,
    RefuseAppends,
    RestoreState,
    Seal,
    SetRollTimer,
    Settle,
    StartDeadline,
    Step,
    StopDeadline,
    TakeOver,
    Terminated,
    Write,
)
from fencelog.broker.log.roll_core import CurrentLedger, RollRule
from fencelog.broker.policy import Policy
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError, check

FENCE_GRACE_S = 0.25
"""Time for another owner to write the list: if our ledger was fenced, a takeover is the most likely
reason."""

RETRY_MIN_S, RETRY_MAX_S = 0.1, 2.0
"""Pauses between attempts, doubling."""

_TELLING = (ErrorCode.OUT_OF_SPACE, ErrorCode.NOT_ENOUGH_BOOKIES)
"""The errors of a step that say what an operator has to change before appends are taken again."""


class LogSteps:
    """The steps by which a log's ledgers change. Each report returns the effects that follow.

    ``ledger`` is the one that is written, None before the log is open and after its end; ``mode``
    is what the log lets appends do; ``error`` says why the instance is LOST.
    """

    def __init__(self, path: str, policy: Policy) -> None:
        self.path = path
        self.state = LogState.OPENING
        self.mode = AppendMode()
        self.ledger: CurrentLedger | None = None
        self.error: FencelogError | None = None
        self.is_terminated = False
        self._rolls = RollRule(policy)
        self._to_recover: list[int] = []
        self._following: CurrentLedger | None = None
        self._ending: CurrentLedger | None = None
        """The ledger that is rolled, replaced or closed."""
        self._step: Step | None = None
        self._retried: Step | None = None
        """The step that follows a check of the ownership."""
        self._pause_s = RETRY_MIN_S
        self._obstacle: FencelogError | None = None
        """The error of the last attempt to replace a ledger that failed."""
        self._is_closing = self._is_terminating = self._has_deadline = False
        self._is_adopting = False
        """True from the request for an adoption until its answer."""

    def _open_next(self) -> list[Effect]:
        return self._do(Recover(self._to_recover.pop(0)) if self._to_recover else RestoreState())

    def restored(self) -> list[Effect]:
        """Report that the state log and the producers are read."""
        if not self._ends(RestoreState):
            return []
        return self._do(TakeOver(None) if self.is_terminated else CreateLedger())

    def taken_over(self, *, tail_offset: int) -> list[Effect]:
        """Report that the list names this instance as the owner: serve."""
        if not self._ends(TakeOver):
            return []
        if self._following is None:
            return self._end(tail_offset)
        effects = self._write_following()
        self._rest()
        return effects

    def created(self, ledger_id: int, *, opened_at_s: float) -> list[Effect]:
        """Report that there is a new ledger; it is on no list yet."""
        if not self._ends(CreateLedger):
            return []
        self._following = CurrentLedger(ledger_id, opened_at_s)
        if self.state is LogState.OPENING:
            return self._do(TakeOver(ledger_id))
        if self.state is LogState.ROLLING:
            return self._do(ListLedger(ledger_id))
        if self.state is LogState.ADOPTING:
            return [*self._start_deadline(), *self._drain()]
        return self._do(ListLedger(ledger_id, seals=self._left.ledger_id))

    def listed(self) -> list[Effect]:
        """Report that the new ledger is listed: it may be used, once everything in the old one is
        settled."""
        step = self._step
        if not self._ends(ListLedger):
            return []
        if self.state is LogState.ROLLING:
            return self._drain()
        effects = self._write_following()
        self._rest()
        if isinstance(step, ListLedger) and step.adopts:
            self._is_adopting = False
            effects.append(Adopted())
        return effects

    def drained(self) -> list[Effect]:
        """Report that nothing is outstanding in the ledger, or that it has failed."""
        if not self._ends(Drain):
            return []
        ledger = self._left
        if ledger.failure is not None:
            return self._recover(ledger)
        ledger.is_drained = True
        closing: Step = CloseLedger(ledger.ledger_id)
        if self.state in (LogState.ROLLING, LogState.CLOSING):
            closing = Seal(ledger.ledger_id, closes=True)
        if self.state is LogState.ROLLING:
            return [*self._write_following(), *self._do(closing)]
        return self._do(closing)

    def owned(self) -> list[Effect]:
        """Report that the log still belongs to this instance: try the step, or try it again."""
        if not self._ends(CheckOwnership):
            return []
        assert self._retried is not None
        return self._do(self._retried)

    def recovered(self, last_entry_id: int) -> list[Effect]:
        """Report that a ledger was closed by recovery, at this entry."""
        if not self._ends(Recover):
            return []
        if self.state is LogState.OPENING:
            return self._open_next()
        ledger = self._left
        if last_entry_id < ledger.last_entry_id:
            detail = f"ledger {ledger.ledger_id} was recovered below an acknowledged entry"
            error = FencelogError(ErrorCode.INTERNAL, f"{self.path} has stopped: {detail}")
            return self.lose(error)
        if ledger.is_drained:
            return self._seal()
        return self._do(Settle(ledger.ledger_id, last_entry_id))

    def settled(self) -> list[Effect]:
        """Report that callers are notified of the contents of the failed ledger; the rest waits."""
        if not self._ends(Settle):
            return []
        if self.state is LogState.REPAIRING:
            return self._retry_until_done(CreateLedger())
        if self.state is LogState.ROLLING:
            return [*self._write_following(), *self._seal()]
        return self._seal()

    def closed(self) -> list[Effect]:
        """Report that the ledger was closed by its writer."""
        return self._seal() if self._ends(CloseLedger) else []

    def sealed(self) -> list[Effect]:
        """Report that the list contains the facts of the ledger."""
        if not self._ends(Seal):
            return []
        if self.state is LogState.CLOSING:
            return self.lose(self._draining())
        self._rest()
        return []

    def ended(self, *, tail_offset: int) -> list[Effect]:
        """Report that the list marks the log as terminated."""
        return self._end(tail_offset) if self._ends(EndLog) else []

    def step_failed(self, error: FencelogError, *, now_s: float) -> list[Effect]:
        """Report that the step in progress has failed, and that no other instance has changed the
        list."""
        step, self._step = self._step, None
        ledger = self._live
        if ledger is None:  # opening, or over
            return self.lose(error)
        match step:
            case CreateLedger() if self.state is LogState.ADOPTING:
                self._rest()
                return self._refuse_adoption(error)
            case ListLedger(ledger_id, seals, True) if error.code.effects is Effects.NONE:
                refused = self._refuse_adoption(error)
                return [*refused, *self._do(ListLedger(ledger_id, seals))]
            case CreateLedger() | ListLedger() if self.state is LogState.ROLLING:
                self._rolls.postpone(now_s)
                self._following = None
                self._rest()
                return [self._roll_timer(ledger)]
            case CreateLedger() | Recover():
                pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, RETRY_MAX_S)
                self._retried, self._obstacle = step, error
                return self._do(CheckOwnership(pause_s))
            case Seal(ledger_id, True):  # neither is done
                return self._do(CloseLedger(ledger_id))
            case CloseLedger(ledger_id):
                return self._retry_until_done(Recover(ledger_id))
        return self.lose(error)

    def lose(self, error: FencelogError) -> list[Effect]:
        """End at once, for good: another owner has changed the list, or the log cannot continue
        here."""
        if self.state is LogState.LOST:
            return []
        was_adopting, self._step = _may_adopt(self._step), None
        self.state, self.error = LogState.LOST, error
        self.mode.hold(True)
        self.mode.refusal = error
        effects = [
            SetRollTimer(),
            *self._stop_deadline(),
            RefuseAppends(error, unknown(error.detail)),
        ]
        if self._is_terminating and not self.is_terminated:
            why = f"the log may be terminated, or not: {error.detail}"
            effects.append(Terminated(FencelogError(ErrorCode.METADATA_UNKNOWN, why)))
        if was_adopting:
            why = f"the segments may be in the log, or not: {error.detail}"
            effects += self._refuse_adoption(FencelogError(ErrorCode.METADATA_UNKNOWN, why))
        return [*effects, *self._refuse_adoption(error), Lost(error)]

    # -- internals -------------------------------------------------------------------------------

    @property
    def _live(self) -> CurrentLedger | None:
        return None if self.state is LogState.LOST else self.ledger

    @property
    def _left(self) -> CurrentLedger:
        assert self._ending is not None
        return self._ending

    def _written(self, ledger_id: int) -> CurrentLedger | None:
        ledger = self._live
        return ledger if ledger is not None and ledger.ledger_id == ledger_id else None

    def _roll_timer(self, ledger: CurrentLedger) -> Effect:
        return SetRollTimer(self._rolls.times_of(ledger))

    def _do(self, step: Step) -> list[Effect]:
        self._step = step
        return [step]

    def _retry_until_done(self, step: Step) -> list[Effect]:
        """Try the step until it succeeds, or until the log belongs to another instance."""
        self._pause_s = RETRY_MIN_S
        return self._do(step)

    def _ends(self, step: type[Step]) -> bool:
        """Tell whether this step was in progress, and end it. A log that is LOST has none."""
        if self.state is LogState.LOST:
            return False
        check(isinstance(self._step, step), f"{self.path}: {step.__name__} was not under way")
        self._step = None
        return True

    def _drain(self) -> list[Effect]:
        self.mode.hold(True)
        return self._do(Drain(self._left.ledger_id))

    def _recover(self, ledger: CurrentLedger) -> list[Effect]:
        """Check the ownership, then recover. If another instance has fenced the ledger, the list
        soon shows whether the log still belongs to this one."""
        is_fenced = ledger.failure is not None and ledger.failure.code is ErrorCode.LEDGER_FENCED
        self._pause_s, self._retried = RETRY_MIN_S, Recover(ledger.ledger_id)
        return self._do(CheckOwnership(FENCE_GRACE_S if is_fenced else 0.0))

    def _seal(self) -> list[Effect]:
        ledger_id = self._left.ledger_id
        if self.state is LogState.ADOPTING:
            assert self._following is not None
            return self._do(ListLedger(self._following.ledger_id, ledger_id, adopts=True))
        ends = self.state is LogState.TERMINATING
        return self._do(EndLog(ledger_id) if ends else Seal(ledger_id))

    def _refuse_adoption(self, error: FencelogError) -> list[Effect]:
        had, self._is_adopting = self._is_adopting, False
        return [Adopted(error)] if had else []

    def _write_following(self) -> list[Effect]:
        """Continue in the new ledger: everything in the old one is settled."""
        ledger, self._following = self._following, None
        assert ledger is not None
        self.ledger, self._obstacle = ledger, None
        self.mode.hold(False)
        if not self._is_closing:
            self.mode.refusal = None
        return [*self._stop_deadline(), self._roll_timer(ledger), Write(ledger.ledger_id)]

    def _rest(self) -> None:
        """Leave the current step: no step is in progress any more."""
        self._ending = None
        ledger = self.ledger
        if ledger is not None and ledger.failure is not None:
            self.state = LogState.REPAIRING
        else:
            self.state = LogState.CLOSING if self._is_closing else LogState.SERVING

    def _end(self, tail_offset: int) -> list[Effect]:
        self.state, self.ledger, self.is_terminated = LogState.TERMINATED, None, True
        self.mode.hold(True)
        error = FencelogError(
            ErrorCode.TOPIC_TERMINATED,
            f"the partition is terminated at offset {tail_offset}",
            tail_offset=tail_offset,
        )
        self.mode.refusal = error
        refused = self._refuse_adoption(error)
        ended = (RefuseAppends(error, error), Terminated())
        return [SetRollTimer(), *self._stop_deadline(), *ended, *refused]

    def _start_deadline(self) -> list[Effect]:
        """Start the deadline unless it runs already: a second failure prolongs no caller's wait."""
        had, self._has_deadline = self._has_deadline, True
        return [] if had else [StartDeadline()]

    def _stop_deadline(self) -> list[Effect]:
        had, self._has_deadline = self._has_deadline, False
        return [StopDeadline()] if had else []

    def _unwritable(self) -> FencelogError:
        """Return the error for appends that have waited for the next ledger, or for the log's
        termination, until their deadline."""
        why = "its ledger failed and is being replaced"
        if self._is_terminating:
            why = "it is being terminated"
        elif self.state is LogState.ADOPTING:
            why = "segments are being added to it"
        code, obstacle = ErrorCode.BOOKIE_UNAVAILABLE, self._obstacle
        if obstacle is not None:
            why = f"{why}: {obstacle.detail}"
            code = obstacle.code if obstacle.code in _TELLING else code
        return FencelogError(code, f"the partition cannot be written: {why}")

    def _draining(self) -> FencelogError:
        return FencelogError(ErrorCode.DRAINING, "the partition is being closed")


def _may_adopt(step: Step | None) -> bool:
    """Tell whether a step may put segments into the list although it is not reported."""
    return isinstance(step, ListLedger) and step.adopts


def unknown(why: str) -> FencelogError:
    """Return the error for appends that were handed to a ledger."""
    return FencelogError(
        ErrorCode.APPEND_UNKNOWN,
        f"the append reached bookies, but its outcome is not known: {why}",
    )
