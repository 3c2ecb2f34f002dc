"""The end of a log's ledgers, and of the log itself: repaired, terminated, closed."""

from __future__ import annotations

import pytest

from fencelog.broker.log.effects import (
    Acknowledge,
    CheckOwnership,
    CloseLedger,
    CreateLedger,
    Drain,
    EndLog,
    ListLedger,
    LogState,
    Lost,
    Recover,
    RefuseAppends,
    Seal,
    SetRollTimer,
    Settle,
    StartDeadline,
    StopDeadline,
    Terminated,
    Wake,
    Write,
)
from fencelog.broker.log.steps_core import FENCE_GRACE_S
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.log_cores import (
    AWAY,
    FENCED,
    GONE,
    ack,
    advance,
    closing,
    refusal_of,
    repairing,
    rolling,
    serving,
    terminated,
    terminating,
)

# -- repairing -------------------------------------------------------------------------------------


def test_a_failed_ledger_is_recovered_and_replaced() -> None:
    core = serving()
    assert core.ledger_failed(2, GONE) == []
    assert core.ledger_failed(1, GONE) == [StartDeadline(), Wake()]
    assert (core.state, core.mode.may_send) == (LogState.REPAIRING, False)
    assert ack(core, 0) == []  # nothing is told before recovery has said what there is
    assert advance(core, is_idle=False) == [CheckOwnership()]
    assert core.owned() == [Recover(1)]
    assert core.recovered(4) == [Settle(1, 4)]
    assert core.settled() == [CreateLedger()]
    assert core.created(2, opened_at_s=3.0) == [ListLedger(2, seals=1)]
    assert core.listed() == [StopDeadline(), SetRollTimer((63.0, 0.0)), Write(2)]
    assert (core.state, core.mode.may_send) == (LogState.SERVING, True)


def test_who_fenced_it_gets_a_moment_to_write_the_list() -> None:
    core = serving()
    core.ledger_failed(1, FENCED)
    assert advance(core) == [CheckOwnership(FENCE_GRACE_S)]


def test_steps_of_a_repair_are_tried_again_after_longer_and_longer_pauses() -> None:
    core = repairing()
    core.owned()
    pauses = []
    for _ in range(6):
        (check,) = core.step_failed(AWAY, now_s=1.0)
        assert isinstance(check, CheckOwnership)
        pauses.append(check.after_s)
        assert core.owned() == [Recover(1)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
    core.recovered(0)
    core.settled()
    assert core.step_failed(AWAY, now_s=1.0) == [CheckOwnership(0.1)]
    assert core.owned() == [CreateLedger()]


def test_a_list_that_cannot_be_written_ends_the_repair_and_the_log() -> None:
    core = repairing()
    core.owned()
    core.recovered(0)
    core.settled()
    core.created(2, opened_at_s=1.0)
    assert core.step_failed(AWAY, now_s=1.0)[-1] == Lost(AWAY)


def test_a_recovery_below_an_acknowledged_entry_ends_the_log() -> None:
    core = serving()
    ack(core, 4)
    core.ledger_failed(1, GONE)
    advance(core)
    core.owned()
    lost = core.recovered(3)[-1]
    assert isinstance(lost, Lost)
    assert lost.error.code is ErrorCode.INTERNAL
    assert "below an acknowledged entry" in lost.error.detail


def test_callers_are_told_when_a_repair_takes_too_long() -> None:
    core = repairing()
    (refuse,) = core.deadline_passed()
    assert isinstance(refuse, RefuseAppends)
    codes = (refuse.waiting.code, refuse.handed.code)
    assert codes == (ErrorCode.BOOKIE_UNAVAILABLE, ErrorCode.APPEND_UNKNOWN)
    assert refusal_of(core) is refuse.waiting
    core.owned()
    core.recovered(0)
    core.settled()
    core.created(2, opened_at_s=1.0)
    assert StopDeadline() in core.listed()
    assert refusal_of(core) is None
    assert core.deadline_passed() == []


@pytest.mark.parametrize(
    ("obstacle", "told"),
    [
        (ErrorCode.OUT_OF_SPACE, ErrorCode.OUT_OF_SPACE),
        (ErrorCode.NOT_ENOUGH_BOOKIES, ErrorCode.NOT_ENOUGH_BOOKIES),
        (ErrorCode.METADATA_UNKNOWN, ErrorCode.BOOKIE_UNAVAILABLE),
    ],
)
def test_callers_are_told_what_prevents_a_repair(obstacle: ErrorCode, told: ErrorCode) -> None:
    core = repairing()
    core.owned()
    core.recovered(0)
    core.settled()
    core.step_failed(FencelogError(obstacle, "three disks are full"), now_s=1.0)
    (refuse,) = core.deadline_passed()
    assert isinstance(refuse, RefuseAppends)
    assert refuse.waiting.code is told
    assert "is being replaced: three disks are full" in refuse.waiting.detail
    assert refuse.handed.code is ErrorCode.APPEND_UNKNOWN
    core.owned()
    core.created(2, opened_at_s=1.0)
    core.listed()
    core.ledger_failed(2, GONE)
    (refuse,) = core.deadline_passed()
    assert isinstance(refuse, RefuseAppends)
    assert "full" not in refuse.waiting.detail


# -- terminating -----------------------------------------------------------------------------------


def test_a_log_ends_when_its_last_ledger_is_settled_and_the_list_says_so() -> None:
    core = terminating()
    assert (core.state, core.mode.may_send) == (LogState.TERMINATING, False)
    assert core.drained() == [CloseLedger(1)]
    assert core.closed() == [EndLog(1)]
    timer, stop, refuse, answer = core.ended(tail_offset=3)
    assert (timer, stop, answer) == (SetRollTimer(), StopDeadline(), Terminated())
    assert isinstance(refuse, RefuseAppends)
    assert refuse.handed.code is ErrorCode.TOPIC_TERMINATED
    assert core.state is LogState.TERMINATED
    assert core.is_serving


def test_a_ledger_that_fails_under_a_termination_is_recovered_and_not_followed() -> None:
    core = terminating()
    assert core.ledger_failed(1, GONE) == [Wake()]
    assert core.drained() == [CheckOwnership()]
    core.owned()
    assert core.recovered(4) == [Settle(1, 4)]
    assert core.settled() == [EndLog(1)]


def test_a_termination_waits_for_a_roll_and_for_a_repair() -> None:
    core = rolling()
    assert core.terminate() == [Wake()]
    core.drained()
    core.sealed()
    assert advance(core) == [StartDeadline(), Drain(2)]
    core = repairing()
    core.terminate()
    (refuse,) = core.deadline_passed()
    assert isinstance(refuse, RefuseAppends)
    assert "being terminated" in refuse.waiting.detail
    core.owned()
    core.recovered(0)
    core.settled()
    core.created(2, opened_at_s=1.0)
    core.listed()
    assert advance(core) == [StartDeadline(), Drain(2)]


def test_a_list_that_cannot_say_so_ends_the_instance() -> None:
    core = terminating()
    core.drained()
    core.closed()
    *_, answer, lost = core.step_failed(AWAY, now_s=1.0)
    assert isinstance(answer, Terminated)
    assert answer.error is not None
    assert answer.error.code is ErrorCode.METADATA_UNKNOWN
    assert lost == Lost(AWAY)
    with pytest.raises(FencelogError, match="one is left"):
        core.terminate()


# -- closing ---------------------------------------------------------------------------------------


def test_a_closing_log_finishes_what_it_has_and_seals_its_ledger() -> None:
    core = closing()
    assert (core.state, core.mode.may_send) == (LogState.CLOSING, True)
    assert core.mode.refusal is not None
    assert core.mode.refusal.code is ErrorCode.DRAINING
    assert advance(core, is_idle=False) == []
    assert ack(core, 0) == [Acknowledge(0), Wake()]  # it may be the last one
    assert ack(core, 9) == [Acknowledge(9), Wake()]
    assert advance(core, is_idle=False) == []  # no roll any more
    assert advance(core) == [Drain(1)]
    assert core.drained() == [Seal(1, closes=True)]
    lost = core.sealed()[-1]
    assert isinstance(lost, Lost)
    assert lost.error.code is ErrorCode.DRAINING
    with pytest.raises(FencelogError, match="being closed"):
        core.terminate()


def test_a_closing_log_whose_ledger_fails_repairs_it_first() -> None:
    core = closing()
    core.ledger_failed(1, GONE)
    assert core.state is LogState.REPAIRING
    assert advance(core, is_idle=False) == [CheckOwnership()]
    core.deadline_passed()
    core.owned()
    core.recovered(0)
    core.settled()
    core.created(2, opened_at_s=1.0)
    core.listed()
    assert (core.state, core.mode.may_send) == (LogState.CLOSING, True)
    assert core.mode.refusal is not None
    assert core.mode.refusal.code is ErrorCode.DRAINING


def test_an_idle_one_whose_ledger_fails_recovers_it_and_makes_no_other() -> None:
    core = closing()
    advance(core)
    core.ledger_failed(1, GONE)
    assert core.state is LogState.CLOSING
    core.drained()
    core.owned()
    core.recovered(-1)
    assert core.settled() == [Seal(1)]


def test_a_closing_log_is_not_terminated() -> None:
    with pytest.raises(FencelogError, match="being closed"):
        closing().terminate()


def test_a_roll_and_a_repair_go_on_while_the_log_is_being_closed() -> None:
    for core in (rolling(), repairing()):
        before = core.state
        core.close()
        assert core.state is before
        assert not core.is_serving


def test_a_terminated_log_is_closed_at_once() -> None:
    core = terminated()
    assert core.close() == [Wake()]
    assert core.mode.refusal is not None
    assert core.mode.refusal.code is ErrorCode.TOPIC_TERMINATED
    assert isinstance(advance(core)[-1], Lost)
    assert core.terminate() == []
