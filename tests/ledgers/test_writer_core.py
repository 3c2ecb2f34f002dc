"""The add pipeline, step by step: what goes in, what must come out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metadata import LedgerMetadata, new_metadata
from fencelog.ledgers.writer_core import (
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


def test_fenced_finishes_the_writer_for_good() -> None:
    core = core_of()
    run = push(core)
    assert core.reply(run, 0, "b1", FENCED) == [Failed(FENCED)]
    assert ok(core, run, "b2") == ok(core, run, "b3") == []
    assert core.change_ensemble() == []
    with pytest.raises(AssertionError):
        push(core)


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


@given(st.data())
def test_lac_is_always_backed_by_qa_members_of_the_committed_ensemble(data: st.DataObject) -> None:
    """Whatever order replies, failures and changes come in: acked means Qa copies, in order."""
    core = core_of()
    spare = iter(f"s{n}" for n in range(100))
    sends: list[Send] = []
    stored: dict[int, set[str]] = {}
    acked = -1

    def take(effects: list[Effect]) -> None:
        nonlocal acked
        for effect in effects:
            if isinstance(effect, Send):
                sends.append(effect)
            elif isinstance(effect, Acknowledged):
                assert effect.lac > acked
                acked = effect.lac

    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(["push", "ok", "ok", "ok", "fail", "change", "no"]))
        if action == "push":
            take(core.push(b"", count=1, length=0))
        elif action in ("ok", "fail") and sends:
            send = sends.pop(data.draw(st.integers(0, len(sends) - 1)))
            if action == "ok":
                stored.setdefault(send.run.first_entry_id, set()).add(send.bookie_id)
            take(
                core.reply(
                    send.run, send.index, send.bookie_id, None if action == "ok" else TIMEOUT
                )
            )
        elif action in ("change", "no") and core.changing:
            if action == "no":
                take(core.ensemble_unchanged())
            else:
                members = list(core.ensemble)
                for index in core.failed_members:
                    members[index] = next(spare)
                take(
                    core.ensemble_changed(core.metadata.with_ensemble(core.lac + 1, tuple(members)))
                )
        if core.finished is not None:
            break
        assert core.lac == acked
        for entry_id in range(acked + 1):
            members_now = set(core.metadata.fragment_of(entry_id).bookies)
            assert len(stored.get(entry_id, set()) & members_now) >= 2, entry_id
