"""The conclusions of a recoverer from answers: the figures of seed 000, coverage, the start."""

from __future__ import annotations

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError, recovery_incomplete
from fencelog.ledgers.format.run import build_run, verify_entries
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.recovery.rules import (
    AcceptedLoss,
    Copy,
    EntryRound,
    FenceRound,
    Told,
    Verdict,
)

TIMEOUT = FencelogError(ErrorCode.REQUEST_TIMEOUT, "no answer")
NO_ENTRY = FencelogError(ErrorCode.NO_SUCH_ENTRY, "not here")
DELETED = FencelogError(ErrorCode.NO_SUCH_LEDGER, "was deleted")
LIMBO = FencelogError(ErrorCode.LEDGER_IN_LIMBO, "may have been forgotten")


def ledger(
    ensemble: str = "b1 b2 b3", write_quorum: int = 3, ack_quorum: int = 2
) -> LedgerMetadata:
    return new_metadata(
        1,
        ensemble=tuple(ensemble.split()),
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        token="t",
    )


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        ([NO_ENTRY, None], Verdict.POSITIVE),  # figure 7
        ([NO_ENTRY, NO_ENTRY], Verdict.NEGATIVE),  # figure 8
        ([TIMEOUT, TIMEOUT, TIMEOUT], Verdict.UNKNOWN),  # figure 9
        ([TIMEOUT, NO_ENTRY], Verdict.WAITING),  # figure 10
        ([TIMEOUT, NO_ENTRY, None], Verdict.POSITIVE),  # figure 10a
        ([TIMEOUT, NO_ENTRY, NO_ENTRY], Verdict.NEGATIVE),  # figure 10b
        ([TIMEOUT, NO_ENTRY, TIMEOUT], Verdict.UNKNOWN),  # figure 10c
    ],
)
def test_figures_of_seed_000(answers: list[FencelogError | None], verdict: Verdict) -> None:
    entry = EntryRound(ledger(), 0)
    for bookie, answer in zip(entry.bookies, answers, strict=False):
        entry.answer(bookie, answer)
    assert entry.verdict is verdict


def test_fence_round_names_who_is_missing() -> None:
    fence = FenceRound(ledger())
    fence.answer(0, 4)
    verdicts: list[Verdict] = []
    for bookie in (1, 2):
        fence.error(bookie, TIMEOUT)
        verdicts.append(fence.verdict)
    assert verdicts == [Verdict.WAITING, Verdict.UNKNOWN]
    assert fence.incomplete().extra["missing_bookies"] == ["b2", "b3"]


def test_reading_never_starts_below_the_last_fragment() -> None:
    """BK#2615: the first entry of a fragment was LAC + 1 when it was made."""
    fence = FenceRound(ledger().with_ensemble(8, ("b1", "b4", "b3")))
    fence.answer(0, 3)
    fence.answer(1, -1)
    assert (fence.verdict, fence.start_lac) == (Verdict.POSITIVE, 7)


@pytest.mark.parametrize(
    ("write_quorum", "ack_quorum", "needed"),
    [(2, 1, 2), (2, 2, 1), (3, 1, 3), (3, 2, 2), (3, 3, 1), (4, 2, 3), (4, 3, 2), (4, 4, 1)],
)
def test_negatives_needed_as_in_the_table_of_seed_000(
    write_quorum: int, ack_quorum: int, needed: int
) -> None:
    ensemble = " ".join(f"b{n}" for n in range(write_quorum))
    entry = EntryRound(ledger(ensemble, write_quorum, ack_quorum), 0)
    for count, bookie in enumerate(entry.bookies):
        assert entry.verdict is (Verdict.NEGATIVE if count >= needed else Verdict.WAITING)
        entry.answer(bookie, NO_ENTRY)
    assert entry.verdict is Verdict.NEGATIVE


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.BOOKIE_UNAVAILABLE,
        ErrorCode.CORRUPT,
        ErrorCode.LEDGER_IN_LIMBO,
        ErrorCode.OVERLOADED,
        ErrorCode.STORAGE_FAILED,
        ErrorCode.BAD_FRAME,
    ],
)
def test_whatever_is_no_explicit_no_is_unknown_and_names_the_bookies(code: ErrorCode) -> None:
    entry = EntryRound(ledger(), 4)
    entry.answer("b2", FencelogError(code, "doubt"))
    entry.answer("b3", NO_ENTRY)
    before = entry.verdict
    entry.answer("b1", FencelogError(code, "doubt"))
    assert (before, entry.verdict) == (Verdict.WAITING, Verdict.UNKNOWN)
    error = entry.incomplete()
    assert (error.code, error.extra["missing_bookies"]) == (
        ErrorCode.RECOVERY_INCOMPLETE,
        ["b1", "b2"],
    )


def test_the_write_set_is_that_of_the_fragment_that_holds_the_entry() -> None:
    metadata = ledger("b1 b2 b3", 2).with_ensemble(5, ("b4", "b2", "b3"))
    assert EntryRound(metadata, 3).bookies == ("b1", "b2")
    assert EntryRound(metadata, 6).bookies == ("b4", "b2")


def test_a_length_that_nobody_has_names_all_who_should() -> None:
    entry = EntryRound(ledger(), 4)
    entry.answer("b1", TIMEOUT)
    was_over = entry.is_over
    entry.answer("b2", NO_ENTRY)
    entry.answer("b3", NO_ENTRY)
    assert (was_over, entry.is_over) == (False, True)
    assert entry.length_unknown().extra["missing_bookies"] == ["b1", "b2", "b3"]


def test_with_striping_each_write_set_has_to_be_fenced() -> None:
    """E=4 Qw=2 Qa=2: one of each pair of neighbours."""
    fence = FenceRound(ledger("b1 b2 b3 b4", 2))
    fence.answer(0, 5)
    fence.error(1, TIMEOUT)
    assert fence.verdict is Verdict.WAITING
    fence.answer(2, 7)
    assert (fence.verdict, fence.start_lac) == (Verdict.POSITIVE, 7)


def test_with_striping_two_neighbours_that_fail_are_too_many() -> None:
    fence = FenceRound(ledger("b1 b2 b3 b4", 2))
    fence.error(1, TIMEOUT)
    fence.answer(0, -1)
    fence.error(2, NO_ENTRY)  # no answer to a fencing read is a negative one
    assert fence.verdict is Verdict.UNKNOWN
    assert fence.incomplete().extra["missing_bookies"] == ["b2", "b3"]


def test_an_incomplete_recovery_gives_its_reasons() -> None:
    assert recovery_incomplete(7, "is stuck", {}).detail == "ledger 7 is stuck"
    assert recovery_incomplete(7, "is stuck", {"b1": TIMEOUT}).detail == (
        "ledger 7 is stuck (bookie b1: no answer)"
    )


@pytest.mark.parametrize(
    ("answers", "verdict", "given_up"),
    [
        ([LIMBO, LIMBO], Verdict.WAITING, None),  # the third may have a copy
        ([LIMBO, LIMBO, None], Verdict.POSITIVE, None),
        ([LIMBO, LIMBO, TIMEOUT], Verdict.UNKNOWN, None),
        ([LIMBO, LIMBO, LIMBO], Verdict.NEGATIVE, ("b1", "b2", "b3")),
        ([NO_ENTRY, LIMBO, LIMBO], Verdict.NEGATIVE, ("b2", "b3")),
        ([NO_ENTRY, LIMBO, NO_ENTRY], Verdict.NEGATIVE, ("b2",)),
        ([NO_ENTRY, NO_ENTRY], Verdict.NEGATIVE, None),
        ([NO_ENTRY, NO_ENTRY, TIMEOUT], Verdict.NEGATIVE, None),
        ([DELETED, DELETED], Verdict.WAITING, None),
        ([NO_ENTRY, DELETED], Verdict.WAITING, None),
        ([NO_ENTRY, DELETED, None], Verdict.POSITIVE, None),
        ([NO_ENTRY, DELETED, TIMEOUT], Verdict.UNKNOWN, None),
        ([NO_ENTRY, DELETED, LIMBO], Verdict.NEGATIVE, ("b2", "b3")),
        ([DELETED, DELETED, DELETED], Verdict.NEGATIVE, ("b1", "b2", "b3")),
    ],
)
def test_who_accepts_a_loss_hears_all_others_first_and_learns_what_it_was(
    answers: list[FencelogError | None], verdict: Verdict, given_up: tuple[str, ...] | None
) -> None:
    accepted = AcceptedLoss()
    entry = EntryRound(ledger(), 0, accepted)
    for bookie, answer in zip(entry.bookies, answers, strict=False):
        entry.answer(bookie, answer)
    assert entry.verdict is verdict
    entry.give_up()
    assert accepted.entries == ({0: given_up} if given_up else {})


def test_a_deleted_ledger_was_not_empty() -> None:
    """Of two bookies that have no copy one has deleted it: the third may have the only one, of an
    entry that was acknowledged."""
    entry = EntryRound(ledger(), 0)
    entry.answer("b1", NO_ENTRY)
    entry.answer("b2", DELETED)
    before = entry.verdict
    entry.answer("b3", TIMEOUT)
    assert (before, entry.verdict) == (Verdict.WAITING, Verdict.UNKNOWN)
    extra = entry.incomplete().extra
    assert (extra["missing_bookies"], extra["bookies_without_ledger"]) == (["b2", "b3"], ["b2"])


def test_with_consent_a_bookie_that_has_deleted_it_is_fenced() -> None:
    without, accepted = FenceRound(ledger()), AcceptedLoss()
    fence = FenceRound(ledger(), accepted)
    for index in (0, 1):
        without.error(index, DELETED)
        fence.error(index, DELETED)
    assert (without.verdict, fence.verdict) == (Verdict.UNKNOWN, Verdict.POSITIVE)
    assert accepted == AcceptedLoss({"b1", "b2"}, deleted={"b1", "b2"})


def test_who_deleted_it_is_told_apart_from_who_is_in_limbo() -> None:
    accepted = AcceptedLoss()
    entry = EntryRound(ledger(), 0, accepted)
    for bookie, answer in zip(entry.bookies, (LIMBO, DELETED, NO_ENTRY), strict=True):
        entry.answer(bookie, answer)
    entry.give_up()
    assert accepted == AcceptedLoss(entries={0: ("b1", "b2")}, deleted={"b2"})


def test_without_consent_limbo_is_unknown_to_reads_and_fences() -> None:
    entry, fence = EntryRound(ledger(), 0), FenceRound(ledger())
    for index, bookie in enumerate(entry.bookies):
        entry.answer(bookie, LIMBO)
        fence.error(index, LIMBO)
    assert (entry.verdict, fence.verdict) == (Verdict.UNKNOWN, Verdict.UNKNOWN)
    entry.give_up()
    extra = {"ledger_id": 1, "missing_bookies": ["b1", "b2", "b3"]}
    extra["bookies_in_limbo"] = ["b1", "b2", "b3"]
    assert fence.incomplete().extra == extra
    assert entry.incomplete().extra == {**extra, "entry_id": 0}


def test_with_consent_a_bookie_in_limbo_is_fenced_and_others_are_as_ever() -> None:
    fence = FenceRound(ledger(), AcceptedLoss())
    fence.error(0, LIMBO)
    fence.error(1, TIMEOUT)
    assert fence.verdict is Verdict.WAITING
    fence.error(2, LIMBO)
    assert (fence.verdict, fence.start_lac) == (Verdict.POSITIVE, -1)
    assert fence.accepted == AcceptedLoss({"b1", "b3"})
    assert fence.failed == {1: TIMEOUT}


def test_what_a_bookie_has_told_holds_for_these_entries_alone() -> None:
    """It may lack an entry, and have the one after it: a failed member that has come back."""
    run = build_run(1, 4, [b"4", b"5"], lac=3, length_before=4)
    told = Told(Copy(run, verify_entries(run)), 6)
    whole, part = told.about(4, "b1"), told.about(5, "b1")
    assert whole == told.copy
    assert isinstance(part, Copy)
    assert [entry.entry_id for entry in part.entries] == [5]
    assert part.run == build_run(1, 5, [b"5"], lac=3, length_before=5)
    denied = told.about(6, "b1")
    assert isinstance(denied, FencelogError)
    assert denied.code is ErrorCode.NO_SUCH_ENTRY
    assert told.about(3, "b1") is None
    assert told.about(7, "b1") is None
    assert Told().about(0, "b1") is None
    assert Told(None, 2).about(3, "b1") is None


def test_a_fence_notes_what_each_bookie_has_told() -> None:
    fence = FenceRound(ledger())
    fence.answer(0, 3, Told(None, 5))
    fence.answer(2, 4)
    assert fence.told == {"b1": Told(None, 5)}
    assert fence.start_lac == 4
    assert fence.asks_for_entries
    assert not FenceRound(ledger(write_quorum=2)).asks_for_entries
