"""The states of an open log, step by step: what goes in, what must come out.

How it ends, and repairs, is in ``test_log_core_ends.py``; the stories that all this makes together
are in ``tests/scripts/log_*.txt``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencelog.broker.append.mode import AppendMode
from fencelog.broker.ledger_list.ledger_list import MAX_SEGMENTS
from fencelog.broker.log.core import LogCore
from fencelog.broker.log.effects import (
    Acknowledge,
    CheckOwnership,
    CloseLedger,
    CreateLedger,
    Drain,
    LogState,
    Lost,
    Recover,
    RefuseAppends,
    RestoreState,
    Seal,
    SetRollTimer,
    Settle,
    StartDeadline,
    StopDeadline,
    TakeOver,
    Terminated,
    Wake,
    Write,
)
from fencelog.broker.log.roll_core import ROLL_RETRY_S
from fencelog.broker.policy import Policy
from fencelog.ledgers.errors import ErrorCode
from tests.support.log_cores import (
    AWAY,
    FENCED,
    GONE,
    POLICY,
    TAKEN,
    TIMES,
    ack,
    adopting,
    advance,
    closing,
    repairing,
    rolling,
    serving,
    state_of,
    terminated,
    terminating,
)


def test_each_state_can_be_reached() -> None:
    lost = serving()
    lost.lose(TAKEN)
    cores = [
        LogCore("a log", POLICY), serving(), rolling(), repairing(), adopting(), terminating(),
        terminated(), closing(), lost,
    ]  # fmt: skip
    assert [core.state for core in cores] == list(LogState)
    assert [core.state for core in cores if not core.is_serving] == list(LogState)[-2:]


# -- opening ---------------------------------------------------------------------------------------


def test_a_takeover_recovers_restores_creates_and_lists_before_it_serves() -> None:
    core = LogCore("a log", POLICY)
    assert core.open([4, 5], is_terminated=False) == [Recover(4)]
    assert core.recovered(3) == [Recover(5)]
    assert core.recovered(-1) == [RestoreState()]
    assert core.restored() == [CreateLedger()]
    assert core.created(6, opened_at_s=0.0) == [TakeOver(6)]
    assert (core.state, core.mode.may_send) == (LogState.OPENING, False)
    assert advance(core) == []
    assert core.taken_over(tail_offset=4) == [SetRollTimer(TIMES), Write(6)]
    assert (core.state, core.mode.may_send) == (LogState.SERVING, True)


def test_a_terminated_log_gets_no_ledger() -> None:
    core = LogCore("a log", POLICY)
    core.open([], is_terminated=True)
    assert core.restored() == [TakeOver(None)]
    timer, refuse, answer = core.taken_over(tail_offset=7)
    assert (timer, answer) == (SetRollTimer(), Terminated())
    assert isinstance(refuse, RefuseAppends)
    assert core.mode.refusal is refuse.waiting is refuse.handed
    assert refuse.waiting.extra == {"tail_offset": 7}
    assert core.terminate() == core.roll_timer_fired() == core.want_roll() == []
    assert core.apply_policy(POLICY) == advance(core) == ack(core, 0) == []


def test_whatever_fails_while_it_opens_ends_it() -> None:
    core = LogCore("a log", POLICY)
    core.open([4], is_terminated=False)
    assert core.step_failed(AWAY, now_s=0.0)[-1] == Lost(AWAY)
    assert core.recovered(3) == core.restored() == core.taken_over(tail_offset=0) == []
    assert core.state is LogState.LOST


def test_one_that_was_closed_meanwhile_ends_when_it_is_open() -> None:
    core = LogCore("a log", POLICY)
    core.open([], is_terminated=False)
    core.restored()
    core.created(1, opened_at_s=0.0)
    core.close()
    core.taken_over(tail_offset=0)
    assert core.state is LogState.CLOSING
    assert core.mode.refusal is not None
    assert advance(core) == [Drain(1)]


# -- serving and rolling ---------------------------------------------------------------------------


def test_acknowledgements_of_the_present_ledger_count() -> None:
    core = serving()
    assert ack(core, 3) == [Acknowledge(3)]
    assert ack(core, 3, ledger_id=2) == []
    assert advance(core) == []
    assert ack(core, 9) == [Acknowledge(9), Wake()]
    assert ack(core, 9, segments=MAX_SEGMENTS) == [Acknowledge(9)]
    assert advance(core, segments=MAX_SEGMENTS) == []


def test_a_roll_switches_when_the_old_ledger_is_drained() -> None:
    core = rolling()
    assert (core.state, core.mode.may_send) == (LogState.ROLLING, False)
    assert ack(core, 10) == [Acknowledge(10), Wake()]
    assert advance(core) == []  # one step at a time
    assert core.drained() == [SetRollTimer((61.0, 0.0)), Write(2), Seal(1, closes=True)]
    assert core.mode.may_send
    assert ack(core, 9, ledger_id=2) == [Acknowledge(9), Wake()]
    assert (core.sealed(), core.state) == ([], LogState.SERVING)
    assert advance(core) == [CreateLedger()]


@pytest.mark.parametrize("is_created", [False, True])
def test_a_roll_that_cannot_begin_is_postponed(is_created: bool) -> None:
    core = serving()
    ack(core, 9)
    advance(core)
    if is_created:
        core.created(2, opened_at_s=1.0)
    assert core.step_failed(AWAY, now_s=1.0) == [SetRollTimer((60.0, 1.0 + ROLL_RETRY_S))]
    assert (core.state, core.mode.may_send) == (LogState.SERVING, True)
    assert ack(core, 10) == [Acknowledge(10)]
    assert core.roll_timer_fired() == [Wake(), SetRollTimer((60.0, 6.0))]
    assert core.advance(now_s=6.0, segments=1, is_idle=True) == [CreateLedger()]


def test_a_ledger_that_fails_while_a_roll_cannot_begin_is_replaced() -> None:
    core = serving()
    ack(core, 9)
    advance(core)
    assert core.ledger_failed(1, GONE) == [StartDeadline(), Wake()]
    assert state_of(core) is LogState.ROLLING
    core.step_failed(AWAY, now_s=1.0)
    assert state_of(core) is LogState.REPAIRING
    assert advance(core) == [CheckOwnership()]


def test_a_ledger_that_fails_while_it_is_drained_is_recovered_first() -> None:
    core = rolling()
    core.ledger_failed(1, GONE)
    assert core.drained() == [CheckOwnership()]
    assert core.owned() == [Recover(1)]
    assert core.recovered(9) == [Settle(1, 9)]
    assert not core.mode.may_send
    assert core.settled() == [StopDeadline(), SetRollTimer((61.0, 0.0)), Write(2), Seal(1)]
    assert (core.sealed(), core.state) == ([], LogState.SERVING)


def test_a_drained_ledger_that_cannot_be_closed_is_recovered() -> None:
    core = rolling()
    core.drained()
    assert core.step_failed(TAKEN, now_s=1.0) == [CloseLedger(1)]
    assert core.step_failed(FENCED, now_s=1.0) == [Recover(1)]
    assert core.recovered(9) == [Seal(1)]


def test_a_ledger_that_was_changed_meanwhile_is_closed_and_then_sealed() -> None:
    core = rolling()
    core.drained()
    assert core.step_failed(TAKEN, now_s=1.0) == [CloseLedger(1)]
    assert core.closed() == [Seal(1)]
    assert (core.sealed(), core.state) == ([], LogState.SERVING)


def test_a_list_that_cannot_be_told_of_a_closed_ledger_ends_the_log() -> None:
    core = rolling()
    core.drained()
    core.step_failed(TAKEN, now_s=1.0)
    core.closed()
    assert core.step_failed(AWAY, now_s=1.0)[-1] == Lost(AWAY)


def test_a_next_ledger_that_fails_at_once_is_replaced_after_the_roll() -> None:
    core = rolling()
    core.drained()
    assert core.ledger_failed(2, GONE) == [StartDeadline(), Wake()]
    core.sealed()
    assert core.state is LogState.REPAIRING
    assert advance(core) == [CheckOwnership()]
    assert core.owned() == [Recover(2)]


def test_a_roll_may_be_asked_for_once_for_each_ledger() -> None:
    core = serving()
    assert core.want_roll() == [Wake()]
    assert core.want_roll() == []
    assert advance(core) == []  # it is empty
    ack(core, 0)
    assert advance(core) == [CreateLedger()]


def test_a_policy_holds_for_the_present_ledger_too() -> None:
    core = serving()
    ack(core, 0)
    assert core.apply_policy(Policy(roll_entries=1, roll_ms=5_000)) == [
        SetRollTimer((5.0, 0.0)),
        Wake(),
    ]
    assert advance(core) == [CreateLedger()]


# -- lost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [serving, rolling, repairing, terminating, closing, terminated])
def test_lost_is_for_good_in_whatever_state(make: Callable[[], LogCore]) -> None:
    core = make()
    effects = core.lose(TAKEN)
    assert effects[-1] == Lost(TAKEN)
    (refuse,) = [effect for effect in effects if isinstance(effect, RefuseAppends)]
    assert (refuse.waiting, refuse.handed.code) == (TAKEN, ErrorCode.APPEND_UNKNOWN)
    assert (core.state, core.error, core.mode.refusal) == (LogState.LOST, TAKEN, TAKEN)
    assert not core.mode.may_send
    assert core.lose(GONE) == core.close() == core.deadline_passed() == advance(core) == []
    assert ack(core, 9) == core.ledger_failed(1, GONE) == core.roll_timer_fired() == []
    assert core.drained() == core.owned() == core.recovered(9) == core.settled() == []
    assert core.created(2, opened_at_s=1.0) == core.listed() == core.closed() == []
    assert core.sealed() == core.ended(tail_offset=0) == core.step_failed(AWAY, now_s=1.0) == []
    assert core.apply_policy(POLICY) == core.want_roll() == []
    assert core.state is LogState.LOST


def test_a_report_of_what_was_not_asked_for_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="Drain was not under way"):
        serving().drained()


# -- what else holds appends back ------------------------------------------------------------------


def test_a_quota_and_the_state_hold_appends_back_each_by_itself() -> None:
    core = serving()
    assert core.mode.pause(True)
    assert not core.mode.pause(True)
    assert (core.mode.may_send, core.mode.is_held) == (False, False)
    core.ledger_failed(1, GONE)
    assert core.mode.pause(False)
    assert (core.mode.may_send, core.mode.is_held) == (False, True)


def test_a_change_of_who_may_append_holds_all_at_the_gate() -> None:
    mode = AppendMode()
    mode.hold_access()
    assert (mode.checks_every_append, mode.is_access_changing) == (True, True)
    mode.refuse_access(AWAY)
    assert mode.access_refusal is AWAY
    mode.open_access(is_limited=True)
    assert (mode.checks_every_append, mode.is_access_changing) == (True, False)
    assert not mode.access_refusal
    mode.open_access(is_limited=False)
    assert not mode.checks_every_append
