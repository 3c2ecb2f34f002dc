"""The add pipeline, step by step: what goes in, what must come out."""

from __future__ import annotations

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.writer.core import (
    LASTING_CODES,
    Acknowledged,
    ChangeEnsemble,
    Effect,
    Failed,
    PendingRun,
    Send,
    WriterCore,
)

TIMEOUT = FencelogError(ErrorCode.REQUEST_TIMEOUT, "no answer")
FENCED = FencelogError(ErrorCode.LEDGER_FENCED, "fenced")


def open_ledger(ensemble: str = "b1 b2 b3", write_quorum: int = 3) -> LedgerMetadata:
    return new_metadata(
        1, ensemble=tuple(ensemble.split()), write_quorum=write_quorum, ack_quorum=2, token="t"
    )


def core_of(metadata: LedgerMetadata | None = None) -> WriterCore:
    return WriterCore(metadata or open_ledger(), lac=-1, length=0)


def push(core: WriterCore, count: int = 1) -> PendingRun:
    effects = core.push(b"", count=count, length=core.length + 10 * count)
    sends = [effect for effect in effects if isinstance(effect, Send)]
    assert len(sends) == len(effects) == core.metadata.write_quorum
    return sends[0].run


def ok(core: WriterCore, run: PendingRun, bookie: str) -> list[Effect]:
    return core.reply(run, core.ensemble.index(bookie), bookie, None)


def test_acknowledged_at_qa_and_only_once() -> None:
    core = core_of()
    run = push(core)
    assert ok(core, run, "b1") == []
    assert ok(core, run, "b2") == [Acknowledged(0, 10)]
    assert ok(core, run, "b3") == []
    assert core.lac == 0


def test_acknowledgements_never_pass_a_hole() -> None:
    core = core_of()
    first, second = push(core, count=3), push(core)
    assert ok(core, second, "b1") == ok(core, second, "b2") == []
    assert core.lac == -1
    assert ok(core, first, "b2") == []
    assert ok(core, first, "b3") == [Acknowledged(3, 10)]


def test_ensemble_change_freezes_then_drops_resends_and_drains() -> None:
    """BK#3005, #4097: an ack of the replaced bookie must not complete a later run."""
    core = core_of()
    first, second = push(core), push(core)
    assert ok(core, second, "b1") == []
    assert ok(core, first, "b1") == []
    assert core.reply(first, 0, "b1", TIMEOUT) == [ChangeEnsemble({0: "b1"}, 0)]
    assert ok(core, first, "b2") == ok(core, first, "b3") == []  # frozen, though Qa is reached
    assert ok(core, second, "b2") == []
    changed = core.metadata.with_ensemble(0, ("b4", "b2", "b3"))
    effects = core.ensemble_changed(changed)
    assert effects == [
        Send(first, 0, "b4"),
        Send(second, 0, "b4"),
        Acknowledged(0, 10),  # by b2 and b3; the second has only b2 left
    ]
    assert core.reply(second, 0, "b1", None) == []  # a late reply of the replaced bookie
    assert core.lac == 0
    assert ok(core, second, "b4") == [Acknowledged(1, 10)]


def test_no_ack_of_a_replaced_bookie_counts_though_a_run_before_has_its_quorum() -> None:
    """BK#3005: all of them are dropped before any run is acknowledged."""
    core = core_of(open_ledger("b1 b2 b3 b4", write_quorum=2))
    first, second, third, fourth = (push(core) for _ in range(4))
    assert ok(core, first, "b1") == []
    assert ok(core, first, "b2") == [Acknowledged(0, 10)]
    assert ok(core, fourth, "b4") == ok(core, fourth, "b1") == []
    fifth = push(core)
    assert core.reply(fifth, 0, "b1", TIMEOUT) == [ChangeEnsemble({0: "b1"}, 1)]
    for run, bookies in ((second, ("b2", "b3")), (third, ("b3", "b4"))):
        for bookie in bookies:
            assert ok(core, run, bookie) == []  # frozen
    sends = [Send(fourth, 0, "b5"), Send(fifth, 0, "b5")]
    effects = core.ensemble_changed(core.metadata.with_ensemble(1, ("b5", "b2", "b3", "b4")))
    assert (effects[:2], core.lac) == (sends, 2)
    ok(core, fourth, "b5")
    assert core.lac == 3


def test_second_failure_during_a_change_is_handled_after_it() -> None:
    core = core_of()
    run = push(core)
    assert core.reply(run, 0, "b1", TIMEOUT) == [ChangeEnsemble({0: "b1"}, 0)]
    assert core.reply(run, 1, "b2", TIMEOUT) == []
    effects = core.ensemble_changed(core.metadata.with_ensemble(0, ("b4", "b2", "b3")))
    assert effects == [Send(run, 0, "b4"), ChangeEnsemble({1: "b2"}, 0)]
    assert ok(core, run, "b4") == ok(core, run, "b3") == []  # still frozen
    effects = core.ensemble_changed(core.metadata.with_ensemble(0, ("b4", "b5", "b3")))
    assert effects == [Send(run, 1, "b5"), Acknowledged(0, 10)]


def test_without_a_replacement_it_goes_on_at_qa() -> None:
    core = core_of()
    run = push(core)
    assert core.reply(run, 2, "b3", TIMEOUT) == [ChangeEnsemble({2: "b3"}, 0)]
    assert ok(core, run, "b1") == ok(core, run, "b2") == []
    assert core.ensemble_unchanged() == [Acknowledged(0, 10)]
    assert core.is_degraded
    later = push(core)
    assert core.reply(later, 2, "b3", TIMEOUT) == []  # known: no new change for each run
    assert core.change_ensemble() == [ChangeEnsemble({2: "b3"}, 1)]  # the shell's timer asks again
    assert core.ensemble_unchanged() == []
    assert ok(core, later, "b3") == []  # it is back
    assert not core.is_degraded


def test_below_qa_the_outcome_is_unknown() -> None:
    core = core_of()
    run = push(core)
    assert core.reply(run, 2, "b3", TIMEOUT) == [ChangeEnsemble({2: "b3"}, 0)]
    assert core.reply(run, 1, "b2", TIMEOUT) == []
    (failed,) = core.ensemble_unchanged()
    assert isinstance(failed, Failed)
    assert failed.error.code is ErrorCode.APPEND_UNKNOWN
    assert failed.error.extra["bookies"] == ["b2", "b3"]
    why = TIMEOUT.detail
    assert failed.error.detail.endswith(f"(bookie b2: {why}; bookie b3: {why})")


def test_fenced_finishes_the_writer_for_good() -> None:
    core = core_of()
    run = push(core)
    assert core.reply(run, 0, "b1", FENCED) == [Failed(FENCED)]
    assert ok(core, run, "b2") == ok(core, run, "b3") == []
    assert core.change_ensemble() == []
    with pytest.raises(AssertionError):
        push(core)


def test_fenced_finishes_the_writer_during_an_ensemble_change_too() -> None:
    core = core_of()
    run = push(core)
    (change,) = core.reply(run, 2, "b3", TIMEOUT)
    assert isinstance(change, ChangeEnsemble)
    assert core.reply(run, 0, "b1", FENCED) == [Failed(FENCED)]
    assert core.ensemble_changed(core.metadata) == []


def test_striped_runs_hold_one_entry() -> None:
    core = core_of(open_ledger("b1 b2 b3 b4", write_quorum=3))
    runs = [push(core) for _ in range(5)]
    assert [run.members for run in runs] == [
        (0, 1, 2), (1, 2, 3), (2, 3, 0), (3, 0, 1), (0, 1, 2),
    ]  # fmt: skip
    with pytest.raises(AssertionError):
        core.push(b"", count=2, length=1)


def test_failure_outside_the_write_set_of_pending_runs() -> None:
    """BK#4261: replacing a bookie that no pending run uses must not leave the queue undrained."""
    core = core_of(open_ledger("b1 b2 b3 b4", write_quorum=3))
    first, second = push(core), push(core)
    ok(core, first, "b1"), ok(core, first, "b2")
    assert core.lac == 0
    assert core.reply(first, 0, "b1", TIMEOUT) == [ChangeEnsemble({0: "b1"}, 1)]
    assert ok(core, second, "b2") == ok(core, second, "b3") == []
    changed = core.metadata.with_ensemble(1, ("b5", "b2", "b3", "b4"))
    assert core.ensemble_changed(changed) == [Acknowledged(1, 10)]


def test_a_member_that_failed_a_lost_run_is_asked_to_be_replaced_once_more() -> None:
    """Between two looks for spares one may have come: only when there is none it is over."""
    core = core_of()
    first = push(core)
    core.reply(first, 1, "b2", TIMEOUT)
    core.reply(first, 2, "b3", TIMEOUT)
    run = push(core)
    ok(core, first, "b1")
    assert core.ensemble_changed(core.metadata.with_ensemble(0, ("b1", "b4", "b3"))) == [
        Send(first, 1, "b4"),
        Send(run, 1, "b4"),
        ChangeEnsemble({2: "b3"}, 0),
    ]
    ok(core, first, "b4")
    assert core.ensemble_unchanged() == [Acknowledged(0, 10)]
    assert core.reply(run, 2, "b3", TIMEOUT) == []
    assert core.reply(run, 1, "b4", TIMEOUT) == [ChangeEnsemble({1: "b4", 2: "b3"}, 1)]
    core.ensemble_unchanged()
    assert core.finished is not None

    core = core_of()
    first, run = push(core), push(core)
    ok(core, first, "b1"), ok(core, first, "b2")
    core.reply(first, 2, "b3", TIMEOUT)
    core.reply(run, 1, "b2", TIMEOUT)
    assert core.ensemble_unchanged() == []
    assert core.reply(run, 2, "b3", TIMEOUT) == [ChangeEnsemble({1: "b2", 2: "b3"}, 1)]
    (failed,) = core.ensemble_unchanged()
    assert isinstance(failed, Failed)
    assert core.ensemble_unchanged() == core.ensemble_changed(core.metadata) == []


def test_a_bookie_chosen_again_for_another_index_starts_from_nothing() -> None:
    core = core_of()
    run = push(core)
    core.reply(run, 0, "b1", TIMEOUT)
    core.ensemble_changed(core.metadata.with_ensemble(0, ("b4", "b2", "b3")))
    core.reply(run, 2, "b3", TIMEOUT)
    assert core.ensemble_changed(core.metadata.with_ensemble(0, ("b4", "b2", "b1"))) == [
        Send(run, 2, "b1")
    ]
    assert core.reply(run, 0, "b1", None) == []  # a second answer to what it was sent at first
    assert core.reply(run, 2, "b3", None) == []
    assert (run.acks, run.failed) == (set(), set())
    assert core.reply(run, 2, "b1", None) == []
    assert ok(core, run, "b4") == [Acknowledged(0, 10)]


def test_a_bookie_chosen_again_for_its_old_index_may_answer_twice() -> None:
    core = core_of()
    run = push(core)
    core.reply(run, 0, "b1", TIMEOUT)
    core.ensemble_changed(core.metadata.with_ensemble(0, ("b4", "b2", "b3")))
    core.reply(run, 0, "b4", TIMEOUT)
    core.ensemble_changed(core.metadata.with_ensemble(0, ("b1", "b2", "b3")))
    assert ok(core, run, "b1") == []  # it has the run, whichever of the two adds this answers
    assert core.reply(run, 0, "b1", TIMEOUT) == [ChangeEnsemble({0: "b1"}, 0)]
    assert (run.acks, run.failed) == ({0}, set())
    assert ok(core, run, "b3") == []
    assert core.ensemble_unchanged() == [Acknowledged(0, 10)]


def test_a_change_that_nobody_asked_for_is_refused() -> None:
    core = core_of()
    with pytest.raises(AssertionError, match="was not requested"):
        core.ensemble_changed(core.metadata)


# -- delayed ensemble change ---------------------------------------------------------------------


def delayed_core(ensemble: str = "b1 b2 b3", write_quorum: int = 3) -> WriterCore:
    return WriterCore(open_ledger(ensemble, write_quorum), lac=-1, length=0, delay_changes=True)


@pytest.mark.parametrize(
    "code", [c for c in ErrorCode if c not in {ErrorCode.LEDGER_FENCED, *LASTING_CODES}]
)
def test_a_delayed_failure_changes_nothing_while_qa_can_be_reached(code: ErrorCode) -> None:
    core = delayed_core()
    for lac in range(3):
        run = push(core)
        assert core.reply(run, 2, "b3", FencelogError(code, "")) == []
        assert ok(core, run, "b1") == []
        assert ok(core, run, "b2") == [Acknowledged(lac, core.length)]
    assert core.failed_members == {2: "b3"}
    assert core.change_ensemble() == []
    ok(core, push(core), "b3")
    assert not core.is_degraded


def test_different_runs_may_lack_different_bookies() -> None:
    core = delayed_core()
    first, second = push(core), push(core)
    assert core.reply(first, 0, "b1", TIMEOUT) == []
    assert core.reply(second, 1, "b2", TIMEOUT) == []
    assert ok(core, second, "b1") == ok(core, second, "b3") == []
    assert ok(core, first, "b2") == []
    assert ok(core, first, "b3") == [Acknowledged(1, 10)]


def test_delayed_failures_are_replaced_together_when_qa_is_out_of_reach() -> None:
    core = delayed_core()
    acked, run = push(core), push(core)
    ok(core, acked, "b1"), ok(core, acked, "b2")
    assert core.reply(acked, 2, "b3", TIMEOUT) == []
    assert core.reply(run, 2, "b3", TIMEOUT) == []
    assert ok(core, run, "b1") == []
    assert core.reply(run, 1, "b2", TIMEOUT) == [ChangeEnsemble({1: "b2", 2: "b3"}, 1)]
    assert core.ensemble_changed(core.metadata.with_ensemble(1, ("b1", "b4", "b5"))) == [
        Send(run, 1, "b4"),
        Send(run, 2, "b5"),
    ]
    assert not core.is_degraded
    assert ok(core, run, "b5") == [Acknowledged(1, 10)]


@pytest.mark.parametrize("code", [ErrorCode.READ_ONLY, ErrorCode.WRONG_INCARNATION])
def test_a_member_that_is_lost_for_good_is_replaced_at_once(code: ErrorCode) -> None:
    core = delayed_core()
    assert code in LASTING_CODES
    run = push(core)
    assert core.reply(run, 1, "b2", TIMEOUT) == []
    later = push(core)
    assert core.reply(later, 1, "b2", FencelogError(code, "")) == [ChangeEnsemble({1: "b2"}, 0)]
    effects = core.ensemble_changed(core.metadata.with_ensemble(0, ("b1", "b4", "b3")))
    assert effects == [Send(run, 1, "b4"), Send(later, 1, "b4")]


def test_a_failure_during_a_change_is_delayed_again_unless_a_run_is_lost() -> None:
    core = delayed_core("b1 b2 b3 b4", write_quorum=3)
    first, second = push(core), push(core)
    gone = FencelogError(ErrorCode.WRONG_INCARNATION, "")
    assert core.reply(first, 0, "b1", gone) == [ChangeEnsemble({0: "b1"}, 0)]
    assert core.reply(first, 1, "b2", TIMEOUT) == []
    changed = core.metadata.with_ensemble(0, ("b5", "b2", "b3", "b4"))
    assert core.ensemble_changed(changed) == [Send(first, 0, "b5")]
    assert core.failed_members == {1: "b2"}
    assert core.reply(first, 0, "b5", gone) == [ChangeEnsemble({0: "b5", 1: "b2"}, 0)]
    assert core.reply(second, 2, "b3", TIMEOUT) == []
    assert core.reply(second, 3, "b4", TIMEOUT) == []
    changed = core.metadata.with_ensemble(0, ("b6", "b7", "b3", "b4"))
    assert core.ensemble_changed(changed) == [
        Send(first, 0, "b6"),
        Send(first, 1, "b7"),
        Send(second, 1, "b7"),
        ChangeEnsemble({2: "b3", 3: "b4"}, 0),
    ]


# -- the end -------------------------------------------------------------------------------------


def test_a_sealed_writer_hears_nothing_more() -> None:
    """A late failure must not begin an ensemble change beside the close."""
    core = core_of()
    run = push(core)
    with pytest.raises(AssertionError, match="before all is acknowledged"):
        core.seal()
    ok(core, run, "b1"), ok(core, run, "b2")
    core.seal()
    assert core.reply(run, 2, "b3", TIMEOUT) == core.reply(run, 2, "b3", FENCED) == []
    assert core.on_lac_reply("b3", FENCED) == []
    assert not core.is_degraded
    with pytest.raises(AssertionError, match="finished writer"):
        push(core)
    assert core.finished is None
    assert core.fail(FENCED) == []
    assert core.finished is FENCED


def test_a_sealed_writer_looks_for_no_spare() -> None:
    core = core_of()
    run = push(core)
    core.reply(run, 2, "b3", TIMEOUT)
    ok(core, run, "b1"), ok(core, run, "b2")
    core.ensemble_unchanged()
    core.seal()
    assert core.change_ensemble() == []


def test_an_idle_writer_learns_from_an_explicit_lac_that_it_is_over() -> None:
    core = core_of()
    assert core.on_lac_reply("b1", None) == core.on_lac_reply("b1", TIMEOUT) == []
    assert core.on_lac_reply("b9", FENCED) == []  # no member any more
    assert core.on_lac_reply("b2", FENCED) == [Failed(FENCED)]
    assert core.on_lac_reply("b3", FENCED) == []
