"""The recovery core, step by step: read ahead, use in order, rewrite, find the length, end."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import build_run, verify_entries
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.limits import MAX_RUN_ENTRIES, MIB
from fencelog.ledgers.recovery.machine import (
    Abort,
    Close,
    ReadCopy,
    RecoveryCore,
    RecoveryEffect,
)
from fencelog.ledgers.recovery.rules import AcceptedLoss, Copy, Told
from fencelog.ledgers.writer.core import ChangeEnsemble, Send

TIMEOUT = FencelogError(ErrorCode.REQUEST_TIMEOUT, "no answer")
NO_ENTRY = FencelogError(ErrorCode.NO_SUCH_ENTRY, "not here")
LIMBO = FencelogError(ErrorCode.LEDGER_IN_LIMBO, "may have been forgotten")


def ledger(ensemble: str = "b1 b2 b3", write_quorum: int = 3) -> LedgerMetadata:
    return new_metadata(
        1, ensemble=tuple(ensemble.split()), write_quorum=write_quorum, ack_quorum=2, token="t"
    )


STRIPED = ledger("b1 b2 b3 b4 b5")


def copy(first: int, count: int = 1, *, size: int = 10, before: int | None = None) -> Copy:
    """Entries of ``size`` bytes each."""
    length = first * size if before is None else before
    run = build_run(1, first, [b"x" * size] * count, lac=first - 1, length_before=length)
    return Copy(run, verify_entries(run))


def end_at(last: int, metadata: LedgerMetadata | None = None, *, of_run: int = 1) -> Close:
    """The end of a ledger whose entries have ten bytes each; the last came in a run of so many."""
    entry = copy(last + 1 - of_run, of_run).entries[-1]
    return Close((metadata or ledger()).fragments, last, entry.length, entry)


EMPTY = Close(ledger().fragments, -1, 0, None)


def reads(effects: Iterable[RecoveryEffect]) -> list[tuple[int, str]]:
    return [(e.entry_id, e.bookie_id) for e in effects if isinstance(e, ReadCopy)]


def sends(effects: Iterable[RecoveryEffect]) -> list[Send]:
    return [e for e in effects if isinstance(e, Send)]


def acknowledge(core: RecoveryCore, sent: Iterable[Send]) -> list[RecoveryEffect]:
    return [
        effect
        for send in sent
        for effect in core.write_reply(send.run, send.member, send.bookie_id, None)
    ]


def negatives(core: RecoveryCore, entry_id: int, *bookies: str) -> list[RecoveryEffect]:
    return [e for bookie in bookies for e in core.read_answer(entry_id, bookie, NO_ENTRY)]


def test_an_empty_ledger_is_closed_after_two_negatives() -> None:
    core = RecoveryCore(ledger(), start_lac=-1)
    effects = core.start()
    assert reads(effects) == [(0, "b1"), (0, "b2"), (0, "b3")]
    assert all(isinstance(e, ReadCopy) and e.fence for e in effects)
    assert core.read_answer(0, "b3", NO_ENTRY) == []
    assert core.is_reading(0)
    assert core.read_answer(0, "b1", NO_ENTRY) == [EMPTY]
    assert not core.is_reading(0)
    assert core.read_answer(0, "b2", copy(0)) == []  # too late


def test_the_next_batch_is_read_while_one_is_rewritten_and_no_further() -> None:
    core = RecoveryCore(ledger(), start_lac=-1)
    core.start()
    first = core.read_answer(0, "b2", copy(0, 5))
    assert [send.bookie_id for send in sends(first)] == ["b1", "b2", "b3"]
    assert sorted(reads(first)) == [(5, "b1"), (5, "b2"), (5, "b3")]
    assert {e.max_entries for e in first if isinstance(e, ReadCopy)} == {MAX_RUN_ENTRIES}
    second = core.read_answer(5, "b1", copy(5, 5))
    assert len(sends(second)) == 3
    assert reads(second) == []  # two batches are in hand
    third = acknowledge(core, sends(first)[:2])
    assert sorted(reads(third)) == [(10, "b1"), (10, "b2"), (10, "b3")]
    assert negatives(core, 10, "b1", "b2") == []  # the rest is not durable yet
    assert acknowledge(core, sends(second)[:2]) == [end_at(9, of_run=5)]


def test_only_the_first_copy_is_used() -> None:
    core = RecoveryCore(ledger(), start_lac=-1)
    core.start()
    core.read_answer(0, "b2", copy(0, 2))
    assert core.read_answer(0, "b1", copy(0, 5)) == []
    assert core.writer.last_add_pushed == 1


def test_stripes_are_read_ahead_within_the_window_and_used_in_order() -> None:
    core = RecoveryCore(STRIPED, start_lac=-1)
    effects = core.start()
    assert [entry for entry, _ in reads(effects)] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert reads(effects)[9:] == [(3, "b4"), (3, "b5"), (3, "b1")]
    assert core.read_answer(2, "b3", copy(2)) == []
    assert core.read_answer(1, "b2", copy(1)) == []
    used = core.read_answer(0, "b1", copy(0))
    assert [send.run.first_entry_id for send in sends(used)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert reads(used)[0] == (4, "b5")  # they are smaller than expected
    assert reads(acknowledge(core, sends(used)[:2]))[0] == (5, "b1")


def test_small_entries_widen_the_window_and_large_ones_narrow_it() -> None:
    widths = []
    for size in (10, MIB * 3):
        core = RecoveryCore(STRIPED, start_lac=-1)
        core.start()
        for entry_id in range(20):
            used = core.read_answer(entry_id, f"b{entry_id % 5 + 1}", copy(entry_id, size=size))
            acknowledge(core, sends(used))
        widths.append(core._next_read - core.writer.lac - 1)
        assert core.finished is None
    assert widths == [32, 1]


def test_an_entry_beyond_the_end_is_never_recovered_past_a_hole() -> None:
    """BookKeeper's testRecoveryOnEntryGap: 2 exists, 1 does not; the ledger ends at 0."""
    core = RecoveryCore(STRIPED, start_lac=-1)
    core.start()
    core.read_answer(2, "b3", copy(2))
    core.read_answer(3, "b4", TIMEOUT)
    negatives(core, 1, "b2", "b3")
    assert core.finished is None
    used = core.read_answer(0, "b1", copy(0))
    assert [send.run.first_entry_id for send in sends(used)] == [0, 0, 0]
    assert reads(used) == []
    assert not core.is_reading(3)
    assert acknowledge(core, sends(used)[:2]) == [end_at(0, STRIPED)]


def test_doubt_beyond_the_end_is_of_no_concern_doubt_at_it_aborts() -> None:
    core = RecoveryCore(STRIPED, start_lac=-1)
    core.start()
    for bookie in ("b2", "b3", "b4"):
        assert core.read_answer(1, bookie, TIMEOUT) == []  # 0 may be the end
    (abort,) = core.read_answer(0, "b1", copy(0))[-1:]
    assert isinstance(abort, Abort)
    assert abort.error.extra["missing_bookies"] == ["b2", "b3", "b4"]


def test_the_length_is_taken_from_the_first_entry_found() -> None:
    core = RecoveryCore(ledger(), start_lac=6)
    core.start()
    used = core.read_answer(7, "b1", copy(7))
    acknowledge(core, sends(used)[:2])
    assert negatives(core, 8, "b1", "b2") == [end_at(7)]


def test_the_entry_at_the_start_is_read_only_for_the_length_of_an_empty_tail() -> None:
    metadata = ledger().with_ensemble(7, ("b4", "b5", "b6"))
    core = RecoveryCore(metadata, start_lac=6)
    core.start()
    asked = negatives(core, 7, "b4", "b5")
    assert asked == [ReadCopy(6, bookie, 1, fence=False) for bookie in ("b1", "b2", "b3")]
    assert core.is_reading(6)
    assert core.read_answer(6, "b1", NO_ENTRY) == []
    assert core.read_answer(6, "b3", TIMEOUT) == []  # nothing is concluded from it
    assert core.read_answer(6, "b2", copy(6)) == [end_at(6, metadata)]


def test_a_bookie_that_has_just_answered_is_asked_alone_for_the_entry_at_the_start() -> None:
    core = RecoveryCore(ledger(), start_lac=6)
    core.start()
    assert core.read_answer(7, "b1", TIMEOUT) == []
    assert negatives(core, 7, "b3", "b2") == [ReadCopy(6, "b2", 1, fence=False)]
    asked = core.read_answer(6, "b2", TIMEOUT)
    assert asked == [ReadCopy(6, bookie, 1, fence=False) for bookie in ("b1", "b3")]
    assert core.read_answer(6, "b1", copy(6)) == [end_at(6)]


def test_without_a_copy_of_the_entry_at_the_start_nothing_is_closed() -> None:
    core = RecoveryCore(ledger(), start_lac=6)
    core.start()
    assert reads(negatives(core, 7, "b1", "b2")) == [(6, "b2")]
    assert reads(negatives(core, 6, "b2")) == [(6, "b1"), (6, "b3")]
    assert negatives(core, 6, "b1") == []
    assert core.is_reading(6)  # it was acknowledged: noes prove nothing, the third may have it
    (abort,) = core.read_answer(6, "b3", TIMEOUT)
    assert not core.is_reading(6)
    assert isinstance(abort, Abort)
    assert abort.error.extra["missing_bookies"] == ["b1", "b2", "b3"]


def test_entries_that_do_not_continue_the_length_are_not_recovered() -> None:
    core = RecoveryCore(ledger(), start_lac=-1)
    core.start()
    (abort,) = core.read_answer(0, "b1", copy(0, before=5))
    assert isinstance(abort, Abort)
    assert "entry 0 does not continue its length 0" in abort.error.detail


def test_members_that_fail_are_replaced_in_memory() -> None:
    core = RecoveryCore(ledger(), start_lac=-1)
    core.start()
    used = core.read_answer(0, "b1", copy(0, 3))
    run = sends(used)[0].run
    (change,) = core.write_reply(run, 1, "b2", TIMEOUT)
    assert change == ChangeEnsemble({1: "b2"}, 0)
    again = core.ensemble_chosen(change, ("b1", "b9", "b3"), 7)
    assert [(send.member, send.bookie_id) for send in sends(again)] == [(1, "b9")]
    acknowledge(core, [*sends(used)[2:], *sends(again)])
    (close,) = negatives(core, 3, "b1", "b2")
    assert isinstance(close, Close)
    (fragment,) = close.fragments
    assert (fragment.bookies, fragment.since_us) == (("b1", "b9", "b3"), 7)
    assert core.writer.metadata.state is ledger().state


def test_without_a_replacement_two_copies_are_enough_and_one_is_not() -> None:
    core = RecoveryCore(ledger(), start_lac=-1)
    core.start()
    used = core.read_answer(0, "b1", copy(0))
    run = sends(used)[0].run
    (change,) = core.write_reply(run, 0, "b1", TIMEOUT)
    assert isinstance(change, ChangeEnsemble)
    assert core.ensemble_chosen(change, None) == []
    effects = core.write_reply(run, 1, "b2", TIMEOUT)
    (change,) = effects
    assert isinstance(change, ChangeEnsemble)
    (abort,) = core.ensemble_chosen(change, None)
    assert isinstance(abort, Abort)
    assert abort.error.extra["missing_bookies"] == ["b1", "b2"]
    assert core.ensemble_chosen(change, ("b7", "b8", "b3")) == []
    assert core.write_reply(run, 2, "b3", None) == []


def test_without_room_for_another_fragment_the_ensemble_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fencelog.ledgers.ledger_metadata.model.MAX_FRAGMENTS", 0)
    core = RecoveryCore(ledger(), start_lac=-1)
    core.start()
    used = sends(core.read_answer(0, "b1", copy(0)))
    (change,) = core.write_reply(used[0].run, 0, "b1", TIMEOUT)
    assert isinstance(change, ChangeEnsemble)
    assert core.ensemble_chosen(change, ("b9", "b2", "b3")) == []
    acknowledge(core, used[1:])
    assert negatives(core, 1, "b1", "b2") == [end_at(0)]


def limbo(core: RecoveryCore, entry_id: int, *bookies: str) -> list[RecoveryEffect]:
    return [e for bookie in bookies for e in core.read_answer(entry_id, bookie, LIMBO)]


def test_a_write_set_in_limbo_aborts_and_with_consent_is_the_end() -> None:
    core = RecoveryCore(ledger(), start_lac=-1)
    core.start()
    (abort,) = limbo(core, 0, "b1", "b2", "b3")
    assert isinstance(abort, Abort)
    assert abort.error.extra["bookies_in_limbo"] == ["b1", "b2", "b3"]
    accepted = AcceptedLoss()
    core = RecoveryCore(ledger(), start_lac=-1, accepted=accepted)
    core.start()
    assert limbo(core, 0, "b1", "b2") == []
    assert limbo(core, 0, "b3") == [EMPTY]
    assert accepted.entries == {0: ("b1", "b2", "b3")}


def test_with_consent_the_end_is_after_the_last_copy_that_is_found() -> None:
    accepted = AcceptedLoss()
    core = RecoveryCore(ledger(), start_lac=3, accepted=accepted)
    core.start()
    used = core.read_answer(4, "b2", copy(4, 2))
    acknowledge(core, sends(used)[:2])
    assert limbo(core, 6, "b1", "b2", "b3") == [end_at(5, of_run=2)]
    assert accepted.entries == {6: ("b1", "b2", "b3")}


def test_with_consent_acknowledged_entries_are_given_up_down_to_one_that_is_there() -> None:
    accepted = AcceptedLoss()
    core = RecoveryCore(ledger(), start_lac=6, accepted=accepted)
    core.start()
    assert reads(limbo(core, 7, "b1", "b2", "b3")) == [(6, "b1"), (6, "b2"), (6, "b3")]
    assert limbo(core, 6, "b1", "b2") == []
    assert core.is_reading(6)
    assert sorted(reads(negatives(core, 6, "b3"))) == [(5, "b1"), (5, "b2"), (5, "b3")]
    assert not core.is_reading(6)
    assert core.is_reading(5)
    limbo(core, 5, "b1", "b2", "b3")
    assert core.read_answer(4, "b3", copy(4)) == [end_at(4)]
    assert accepted.entries == {
        5: ("b1", "b2", "b3"),
        6: ("b1", "b2"),
        7: ("b1", "b2", "b3"),
    }


def test_with_consent_a_ledger_of_which_nothing_is_left_is_closed_empty() -> None:
    core = RecoveryCore(ledger(), start_lac=1, accepted=AcceptedLoss())
    core.start()
    limbo(core, 2, "b1", "b2", "b3")
    limbo(core, 1, "b1", "b2", "b3")
    assert limbo(core, 0, "b1", "b2", "b3") == [EMPTY]


def test_what_was_deleted_is_told_apart_from_what_was_never_there() -> None:
    """The entry at the start may be one of an older fragment, whose bookies nobody has fenced."""
    core = RecoveryCore(ledger(), start_lac=1, accepted=AcceptedLoss())
    core.start()
    asked = limbo(core, 2, "b1", "b2", "b3")
    assert [ask.fence for ask in asked if isinstance(ask, ReadCopy)] == [True] * 3
    core = RecoveryCore(ledger(), start_lac=1)
    core.start()
    asked = negatives(core, 2, "b1", "b2")
    assert [ask.fence for ask in asked if isinstance(ask, ReadCopy)] == [False]


@pytest.mark.parametrize("last", [TIMEOUT, NO_ENTRY])
def test_consent_covers_nothing_but_limbo(last: FencelogError) -> None:
    """An acknowledged entry that somebody unheard may have, or that nobody ever forgot."""
    core = RecoveryCore(ledger(), start_lac=6, accepted=AcceptedLoss())
    core.start()
    negatives(core, 7, "b1", "b2")
    negatives(core, 6, "b2", "b1")
    (abort,) = core.read_answer(6, "b3", last)
    assert isinstance(abort, Abort)


# -- what came with the fences -------------------------------------------------------------------


def test_an_idle_ledger_is_closed_without_a_read() -> None:
    told = {"b1": Told(copy(4), 5), "b3": Told(copy(4), 5)}
    core = RecoveryCore(ledger(), start_lac=4, told=told)
    assert core.start() == [end_at(4)]
    assert core.finished == end_at(4)


def test_an_empty_ledger_is_closed_without_a_read() -> None:
    core = RecoveryCore(ledger(), start_lac=-1, told={"b1": Told(None, 0), "b2": Told(None, 0)})
    assert core.start() == [EMPTY]


def test_only_what_was_not_told_is_read() -> None:
    """b1 denies the entry, b2 has told of a lower one, and b3 nothing at all."""
    told = {"b1": Told(copy(4), 5), "b2": Told(copy(3), 4)}
    core = RecoveryCore(ledger(), start_lac=4, told=told)
    assert sorted(reads(core.start())) == [(5, "b2"), (5, "b3")]
    assert core.read_answer(5, "b2", TIMEOUT) == []
    assert core.read_answer(5, "b3", NO_ENTRY) == [end_at(4)]


def test_one_negative_that_was_told_ends_no_ledger() -> None:
    core = RecoveryCore(ledger(), start_lac=4, told={"b1": Told(copy(4), 5)})
    assert sorted(reads(core.start())) == [(5, "b2"), (5, "b3")]
    assert core.read_answer(5, "b2", TIMEOUT) == []
    (abort,) = core.read_answer(5, "b3", LIMBO)
    assert isinstance(abort, Abort)


def test_the_longest_copy_that_was_told_is_written_again() -> None:
    told = {"b1": Told(copy(4, 2), 6), "b2": Told(copy(4, 4), 8)}
    core = RecoveryCore(ledger(), start_lac=4, told=told)
    sent = sends(core.start())
    assert [(send.run.first_entry_id, send.run.last_entry_id) for send in sent] == [(5, 7)] * 3
    # Of entry 8 only b2 has told; b1 had denied entry 6, which says nothing here.
    asked = reads(acknowledge(core, sent[:2]))
    assert asked == []
    assert core.finished is None
    assert core.is_reading(8)
    (end,) = core.read_answer(8, "b3", NO_ENTRY)
    assert isinstance(end, Close)
    assert (end.last_entry_id, end.length) == (7, 80)


def test_copies_that_were_told_are_written_again_batch_by_batch() -> None:
    told = {"b1": Told(copy(5), 6), "b2": Told(copy(6), 7), "b3": Told(None, 7)}
    core = RecoveryCore(ledger(), start_lac=4, told=told)
    effects = core.start()
    first = sends(effects)
    assert {send.run.first_entry_id for send in first} == {5, 6}
    rest = acknowledge(core, first)
    assert core.finished == end_at(6)
    assert reads(rest) == []


def test_the_length_is_read_where_no_copy_was_told() -> None:
    """From the bookie that has just answered, at first."""
    core = RecoveryCore(ledger(), start_lac=4, told={"b2": Told(None, 5), "b3": Told(None, 5)})
    assert reads(core.start()) == [(4, "b2")]
    assert sorted(reads(core.read_answer(4, "b2", TIMEOUT))) == [(4, "b1"), (4, "b3")]
    assert core.read_answer(4, "b1", copy(4)) == [end_at(4)]


def test_a_denial_of_the_entry_at_the_lac_is_not_asked_for_again() -> None:
    told = {"b1": Told(None, 4), "b2": Told(None, 5)}
    core = RecoveryCore(ledger(), start_lac=4, told=told)
    assert sorted(reads(core.start())) == [(5, "b1"), (5, "b3")]
    assert sorted(reads(core.read_answer(5, "b1", NO_ENTRY))) == [(4, "b2"), (4, "b3")]
    assert core.read_answer(4, "b2", TIMEOUT) == []
    (abort,) = core.read_answer(4, "b3", TIMEOUT)
    assert isinstance(abort, Abort)


def test_an_entry_at_the_lac_that_all_have_denied_closes_nothing() -> None:
    told = {name: Told(None, 4) for name in ("b1", "b2", "b3")}
    core = RecoveryCore(ledger(), start_lac=4, told=told)
    core.start()
    effects = negatives(core, 5, "b1", "b2")
    assert isinstance(effects[-1], Abort)
