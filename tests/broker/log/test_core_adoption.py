"""The states of an open log while segments that were written elsewhere join it."""

from __future__ import annotations

import pytest

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
    SetRollTimer,
    Settle,
    StartDeadline,
    StopDeadline,
    Terminated,
    Wake,
    Write,
)
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from tests.support.log_cores import (
    AWAY,
    FENCED,
    GONE,
    TAKEN,
    ack,
    adopting,
    advance,
    closing,
    refusal_of,
    repairing,
    rolling,
    serving,
    state_of,
    terminated,
)

TOO_LONG = FencelogError(ErrorCode.LIMIT_REACHED, "too many ledgers")
WRITTEN_NEXT = [StopDeadline(), SetRollTimer((61.0, 0.0)), Write(2)]


def refusal(effects: list[Effect]) -> FencelogError:
    """Return the error of the only answer among these effects."""
    (answer,) = (effect for effect in effects if isinstance(effect, Adopted))
    assert answer.error is not None
    return answer.error


def test_segments_join_between_two_ledgers_in_one_change() -> None:
    core = adopting()
    assert (state_of(core), core.mode.may_send) == (LogState.ADOPTING, False)
    assert core.drained() == [CloseLedger(1)]
    assert core.closed() == [ListLedger(2, seals=1, adopts=True)]
    assert core.listed() == [*WRITTEN_NEXT, Adopted()]
    assert (state_of(core), core.mode.may_send) == (LogState.SERVING, True)
    assert advance(core) == []
    core.adopt()
    assert advance(core) == [CreateLedger()]


def test_a_second_adoption_waits_for_the_answer_to_the_first() -> None:
    with pytest.raises(AssertionError, match="already"):
        adopting().adopt()


def test_where_no_ledger_can_be_created_the_log_goes_on_without_the_segments() -> None:
    core = serving()
    assert core.adopt() == [Wake()]
    advance(core)
    assert core.step_failed(AWAY, now_s=1.0) == [Adopted(AWAY)]
    assert (state_of(core), core.mode.may_send) == (LogState.SERVING, True)


def test_a_list_that_cannot_take_the_segments_takes_the_next_ledger() -> None:
    core = adopting()
    core.drained()
    core.closed()
    assert core.step_failed(TOO_LONG, now_s=1.0) == [Adopted(TOO_LONG), ListLedger(2, seals=1)]
    assert core.listed() == WRITTEN_NEXT
    assert state_of(core) is LogState.SERVING


def test_a_change_of_unknown_outcome_is_not_denied() -> None:
    core = adopting()
    core.drained()
    core.closed()
    unknown = FencelogError(ErrorCode.METADATA_UNKNOWN, "closed while it was changed")
    assert refusal(core.step_failed(unknown, now_s=1.0)).code.effects is Effects.MAYBE
    assert state_of(core) is LogState.LOST
    core = adopting()
    core.drained()
    core.closed()
    assert refusal(core.lose(TAKEN)).code is ErrorCode.METADATA_UNKNOWN


def test_segments_of_a_log_that_is_lost_before_the_change_are_not_in_it() -> None:
    core = adopting()
    effects = core.lose(TAKEN)
    assert refusal(effects) is TAKEN
    assert effects[-1] == Lost(TAKEN)


def test_a_ledger_that_fails_meanwhile_is_recovered_first() -> None:
    core = adopting()
    core.ledger_failed(1, GONE)
    assert core.drained() == [CheckOwnership()]
    assert core.owned() == [Recover(1)]
    assert core.recovered(4) == [Settle(1, 4)]
    assert core.settled() == [ListLedger(2, seals=1, adopts=True)]


def test_a_ledger_that_its_writer_cannot_close_is_closed_by_recovery() -> None:
    core = adopting()
    core.drained()
    assert core.step_failed(FENCED, now_s=1.0) == [Recover(1)]
    assert core.recovered(-1) == [ListLedger(2, seals=1, adopts=True)]


def test_a_failed_ledger_is_replaced_and_a_roll_finished_before_segments_join() -> None:
    core = repairing()
    core.adopt()
    core.owned()
    core.recovered(-1)
    core.settled()
    core.created(2, opened_at_s=1.0)
    core.listed()
    assert advance(core) == [CreateLedger()]
    core = rolling()
    core.adopt()
    core.drained()
    core.sealed()
    assert advance(core) == [CreateLedger()]
    assert state_of(core) is LogState.ADOPTING


def test_callers_do_not_wait_for_the_store_for_ever() -> None:
    core = adopting()
    (refused,) = core.deadline_passed()
    assert isinstance(refused, RefuseAppends)
    assert "segments are being added" in refused.waiting.detail
    core.drained()
    core.closed()
    core.listed()
    assert refusal_of(core) is None


def test_a_log_that_ends_adopts_nothing() -> None:
    with pytest.raises(FencelogError) as raised:
        terminated().adopt()
    assert raised.value.code is ErrorCode.TOPIC_TERMINATED
    with pytest.raises(FencelogError) as raised:
        closing().adopt()
    assert raised.value.code is ErrorCode.DRAINING
    lost = serving()
    lost.lose(TAKEN)
    with pytest.raises(FencelogError) as raised:
        lost.adopt()
    assert raised.value.code is TAKEN.code


def test_termination_and_closing_come_first() -> None:
    core = serving()
    core.adopt()
    core.terminate()
    assert advance(core) == [StartDeadline(), Drain(1)]
    core.drained()
    assert core.closed() == [EndLog(1)]
    effects = core.ended(tail_offset=7)
    assert refusal(effects).code is ErrorCode.TOPIC_TERMINATED
    assert Terminated() in effects
    core = serving()
    core.adopt()
    assert refusal(core.close()).code is ErrorCode.DRAINING


def test_an_adoption_under_way_is_finished_before_the_log_closes() -> None:
    core = adopting()
    assert core.close() == [Wake()]
    core.drained()
    core.closed()
    assert Adopted() in core.listed()
    assert state_of(core) is LogState.CLOSING
    assert advance(core) == [Drain(2)]


def test_what_the_old_ledger_acknowledges_meanwhile_is_told() -> None:
    core = adopting()
    assert Wake() in ack(core, 3)
