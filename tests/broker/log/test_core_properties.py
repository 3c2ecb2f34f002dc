"""The states of an open log under every order of news, outcomes and requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.broker.log.core import LogCore
from fencelog.broker.log.effects import (
    Acknowledge,
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
    Wake,
    Write,
)
from fencelog.broker.policy import Policy
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError

FAILURES = [
    FencelogError(ErrorCode.APPEND_UNKNOWN, "bookies are gone"),
    FencelogError(ErrorCode.LEDGER_FENCED, "fenced"),
]
AWAY = FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "one is left")
LOST = FencelogError(ErrorCode.NO_OWNER, "taken over")
WRITING = {LogState.SERVING, LogState.ROLLING, LogState.ADOPTING, LogState.CLOSING}
"""States in which appends may be handed to a ledger."""
LIVING = {*WRITING, LogState.REPAIRING, LogState.TERMINATING}
MAY_FOLLOW = {
    LogState.OPENING: {*LIVING, LogState.TERMINATED},
    LogState.SERVING: {*LIVING},
    LogState.ROLLING: {*LIVING},
    LogState.REPAIRING: {*LIVING},
    LogState.ADOPTING: {*LIVING},
    LogState.TERMINATING: {LogState.TERMINATED},
    LogState.TERMINATED: set(),
    LogState.CLOSING: {LogState.REPAIRING, LogState.TERMINATING},
    LogState.LOST: set(),
}
"""Besides LOST, which follows all, and the state itself."""


class Story:
    """One instance, its ledgers, and what has to hold after every input."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.core = LogCore("a log", Policy(roll_entries=2, roll_ms=1_000))
        self.now_s = 0.0
        self.made = 0
        self.step: Step | None = None
        self.before: Step | None = None
        """The step before that one."""
        self.listed: set[int] = set()
        self.unsealed: list[int] = []
        self.settled: set[int] = set()
        self.failed: set[int] = set()
        self.acknowledged: dict[int, int] = {}
        self.has_deadline = self.is_over = self.is_closing = self.is_adopting = False
        previous = data.draw(st.integers(0, 2), label="ledgers before")
        ends = data.draw(st.integers(0, 9), label="terminated before, if 9") == 9
        self.take(self.core.open(range(100, 100 + previous), is_terminated=ends))

    # -- what comes out --------------------------------------------------------------------------

    def take(self, effects: list[Effect]) -> None:
        state = self.core.state
        for effect in effects:
            assert not self.is_over, effect
            match effect:
                case Acknowledge(last_entry_id):
                    assert state in LIVING
                    ledger = self.core.ledger
                    assert ledger is not None
                    assert ledger.ledger_id not in self.failed
                    assert last_entry_id > self.acknowledged.get(ledger.ledger_id, -1)
                    self.acknowledged[ledger.ledger_id] = last_entry_id
                case Write(ledger_id):
                    assert state in WRITING
                    assert ledger_id in self.listed
                    assert self.settled >= {*self.listed} - {ledger_id}
                case RefuseAppends(waiting, handed):
                    assert waiting.code.effects is Effects.NONE
                    if state is not LogState.TERMINATED:
                        assert handed.code.effects is Effects.MAYBE
                case StartDeadline():
                    assert not self.has_deadline
                    self.has_deadline = True
                case StopDeadline():
                    assert self.has_deadline
                    self.has_deadline = False
                case Terminated(error):
                    assert (error is None) == (state is LogState.TERMINATED)
                case Adopted(error):
                    assert self.is_adopting
                    self.is_adopting = False
                    joined = isinstance(self.before, ListLedger) and self.before.adopts
                    assert error is not None or joined
                case Lost():
                    assert not self.is_adopting
                    assert effect is effects[-1]
                    self.is_over, self.step = True, None
                case SetRollTimer() | Wake():
                    pass
                case _:
                    self.begin(effect)
        self.check()

    def begin(self, step: Step) -> None:
        assert self.step is None, "one step at a time"
        assert self.core.state in {*LIVING, LogState.OPENING} - {LogState.SERVING}
        is_opening = self.core.state is LogState.OPENING
        if isinstance(step, Recover) and not is_opening:
            assert isinstance(self.before, CheckOwnership | CloseLedger)
        if isinstance(step, Settle):
            assert isinstance(self.before, Recover)
        if isinstance(step, Seal | EndLog):
            assert step.ledger_id in self.settled
        if isinstance(step, ListLedger) and step.adopts:
            assert self.is_adopting
            assert step.seals in self.settled
        self.step = step

    def check(self) -> None:
        core, mode = self.core, self.core.mode
        if mode.may_send:
            assert core.state in WRITING
            assert core.ledger is not None
            assert core.ledger.ledger_id not in self.failed
            assert not isinstance(self.step, Drain)
        if core.state is LogState.SERVING:
            assert mode.refusal is None
            assert not mode.is_held
        if core.state in (LogState.TERMINATED, LogState.LOST, LogState.CLOSING):
            assert mode.refusal is not None
        if self.is_closing:
            assert mode.refusal is not None or core.state is LogState.OPENING
        assert (core.state is LogState.LOST) == self.is_over == (core.error is not None)
        assert len(self.unsealed) <= 2
        if core.state in (LogState.SERVING, LogState.TERMINATED, LogState.LOST):
            assert self.step is None

    # -- what goes in ----------------------------------------------------------------------------

    def give(self, report: Callable[[], list[Effect]]) -> None:
        state = self.core.state
        self.take(report())
        now = self.core.state
        assert now is state or now is LogState.LOST or now in MAY_FOLLOW[state], (state, now)

    def report(self) -> None:
        """The step under way has an outcome."""
        step, core = self.step, self.core
        assert step is not None
        self.before, self.step = step, None
        match step:
            case Recover(ledger_id):
                last = self.acknowledged.get(ledger_id, -1)
                last += self.data.draw(st.integers(0, 2), label="found")
                self.give(lambda: core.recovered(last))
            case RestoreState():
                self.give(core.restored)
            case CreateLedger():
                self.made += 1
                self.give(lambda: core.created(self.made, opened_at_s=self.now_s))
            case TakeOver(ledger_id):
                if ledger_id is not None:
                    self.put_on_list(ledger_id)
                self.give(lambda: core.taken_over(tail_offset=0))
            case ListLedger(ledger_id, seals):
                if seals is not None:
                    assert seals in self.settled
                    self.unsealed.remove(seals)
                self.put_on_list(ledger_id)
                self.give(core.listed)
            case Drain(ledger_id):
                if ledger_id not in self.failed:
                    self.settled.add(ledger_id)
                self.give(core.drained)
            case CloseLedger():
                self.give(core.closed)
            case CheckOwnership():
                self.give(core.owned)
            case Settle(ledger_id, _):
                self.settled.add(ledger_id)
                self.give(core.settled)
            case Seal(ledger_id, _):
                self.unsealed.remove(ledger_id)
                self.give(core.sealed)
            case EndLog(ledger_id):
                self.unsealed.remove(ledger_id)
                self.give(lambda: core.ended(tail_offset=0))

    def put_on_list(self, ledger_id: int) -> None:
        self.listed.add(ledger_id)
        self.unsealed.append(ledger_id)

    def acknowledge(self) -> None:
        """Acknowledge an entry of any ledger there ever was."""
        ledger_id = self.data.draw(st.integers(1, self.made), label="ledger")
        last = self.acknowledged.get(ledger_id, -1) + 1
        segments = len(self.listed)
        self.give(
            lambda: self.core.acknowledged(
                ledger_id, last, size=last, now_s=self.now_s, segments=segments
            )
        )

    def fail_ledger(self) -> None:
        ledger_id = self.data.draw(st.integers(1, self.made), label="ledger")
        if ledger_id not in self.failed:
            ledger = self.core.ledger
            if ledger is not None and ledger.ledger_id == ledger_id:
                self.failed.add(ledger_id)  # news of others is kept until they are written
            error = self.data.draw(st.sampled_from(FAILURES))
            self.give(lambda: self.core.ledger_failed(ledger_id, error))

    def advance(self) -> None:
        is_idle = self.data.draw(st.booleans(), label="idle")
        segments = len(self.listed)
        self.give(lambda: self.core.advance(now_s=self.now_s, segments=segments, is_idle=is_idle))

    def close(self) -> None:
        self.is_closing = True
        self.give(self.core.close)

    def terminate(self) -> None:
        core = self.core
        if core.is_serving or core.is_terminated:
            self.give(core.terminate)
        else:
            with pytest.raises(FencelogError):
                core.terminate()

    def adopt(self) -> None:
        core = self.core
        if core.state is LogState.OPENING:
            return  # nobody has the log yet
        if core.is_serving and not core.is_terminated:
            if not self.is_adopting:
                self.is_adopting = True
                self.give(core.adopt)
            return
        with pytest.raises(FencelogError):
            core.adopt()

    def run(self) -> None:
        """A few of the disturbances take part in each story, so that it gets somewhere."""
        core = self.core
        disturbances: list[Callable[[], None]] = [
            self.fail_if_any,
            self.fail_step,
            self.pass_time,
            lambda: self.give(core.deadline_passed),
            lambda: self.give(core.roll_timer_fired),
            lambda: self.give(core.want_roll),
            lambda: self.give(lambda: core.apply_policy(Policy(roll_entries=2))),
            self.pause,
            self.terminate,
            self.close,
            self.adopt,
            self.adopt,
            lambda: self.give(lambda: core.lose(LOST)),
        ]
        some = st.lists(st.sampled_from(disturbances), max_size=3)
        inputs = [
            *[self.report_or_advance] * 6,
            *[self.acknowledge_if_any] * 3,
            *self.data.draw(some, label="disturbances"),
        ]
        numbers = st.lists(st.integers(0, len(inputs) - 1), min_size=20, max_size=60)
        for number in self.data.draw(numbers, label="inputs"):
            inputs[number]()
            self.check()

    def pause(self) -> None:
        self.core.mode.pause(self.data.draw(st.booleans()))

    def fail_step(self) -> None:
        if self.step is not None and not isinstance(self.step, Drain | Settle):
            self.before, self.step = self.step, None
            self.give(lambda: self.core.step_failed(AWAY, now_s=self.now_s))

    def report_or_advance(self) -> None:
        self.advance() if self.step is None else self.report()

    def acknowledge_if_any(self) -> None:
        if self.made:
            self.acknowledge()

    def fail_if_any(self) -> None:
        if self.made:
            self.fail_ledger()

    def pass_time(self) -> None:
        self.now_s += 10.0


@given(st.data())
def test_no_order_of_events_leaves_the_states(data: st.DataObject) -> None:
    Story(data).run()
