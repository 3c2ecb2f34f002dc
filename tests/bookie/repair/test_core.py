"""The entries that a bookie should hold and the bookies that it may ask: compared with rule 1,
entry by entry."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.repair.core import (
    FIRST_PAUSE_S,
    LAST_PAUSE_S,
    CopyRange,
    LimboStatus,
    MissingReason,
    batches,
    by_source,
    copy_ranges,
    limbo_status,
    missing_copy_ranges,
    missing_reason,
    pause_s,
    still_missing,
    wanted_ranges,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Availability
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.limits import MAX_READ_RANGES, MAX_RUN_ENTRIES
from fencelog.ledgers.quorum import write_set

NO, GONE, LIMBO, TIMEOUT, BAD = (
    FencelogError(code, "as it is")
    for code in (
        ErrorCode.NO_SUCH_ENTRY,
        ErrorCode.NO_SUCH_LEDGER,
        ErrorCode.LEDGER_IN_LIMBO,
        ErrorCode.REQUEST_TIMEOUT,
        ErrorCode.CORRUPT,
    )
)


def ledger(
    ensemble: str = "b1 b2 b3", write_quorum: int = 3, *, last: int = 9, ledger_id: int = 6
) -> LedgerMetadata:
    metadata = new_metadata(
        ledger_id,
        ensemble=tuple(ensemble.split()),
        write_quorum=write_quorum,
        ack_quorum=1,
        token="t",
    )
    return metadata.closed(last_entry_id=last, length=0)


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    """Any shape, up to three fragments, closed anywhere, also before the last fragment."""
    size = draw(st.integers(1, 6))
    copies = draw(st.integers(1, size))
    names = [f"b{n}" for n in range(8)]
    metadata = new_metadata(
        draw(st.integers(1, 9)),
        ensemble=tuple(draw(st.permutations(names))[:size]),
        write_quorum=copies,
        ack_quorum=1,
        token="t",
    )
    for first in sorted(draw(st.sets(st.integers(1, 40), max_size=2))):
        metadata = metadata.with_ensemble(first, tuple(draw(st.permutations(names))[:size]))
    return metadata.closed(last_entry_id=draw(st.integers(-1, 50)), length=0)


def holders(metadata: LedgerMetadata, entry_id: int) -> set[str]:
    """Rule 1, word by word."""
    ensemble = metadata.fragment_of(entry_id).bookies
    members = write_set(
        entry_id, ensemble_size=metadata.ensemble_size, write_quorum=metadata.write_quorum
    )
    return {ensemble[index] for index in members}


def entries(ranges: list[tuple[int, int]]) -> list[int]:
    return [entry_id for first, last in ranges for entry_id in range(first, last + 1)]


@given(ledgers(), st.integers(0, 30), st.integers(0, 60))
def test_a_bookie_is_to_hold_what_rule_1_gives_it(
    metadata: LedgerMetadata, first: int, last: int
) -> None:
    found = list(wanted_ranges(metadata, "b0", first, last))
    assert entries(found) == [
        entry_id
        for entry_id in range(first, min(last, metadata.last_entry_id) + 1)
        if "b0" in holders(metadata, entry_id)
    ]
    if metadata.ensemble_size == metadata.write_quorum:
        assert len(found) <= len(metadata.fragments)


@given(ledgers(), st.sets(st.integers(0, 50)))
def test_what_is_missing_is_asked_of_the_others_of_its_write_set(
    metadata: LedgerMetadata, held: set[int]
) -> None:
    wanted = list(wanted_ranges(metadata, "b0", 0, 99))
    availability = Availability.of((entry_id, entry_id) for entry_id in sorted(held))
    found = list(missing_copy_ranges(metadata, "b0", wanted, availability))
    assert entries([(copy_range.first, copy_range.last) for copy_range in found]) == [
        entry_id for entry_id in entries(wanted) if entry_id not in held
    ]
    for copy_range in found:
        for entry_id in range(copy_range.first, copy_range.last + 1):
            assert {*copy_range.sources, "b0"} == holders(metadata, entry_id)
        assert "b0" not in copy_range.sources


def test_who_holds_nothing_of_an_entry_asks_its_whole_write_set() -> None:
    """A stored run may hold entries that a previous ensemble was given."""
    assert list(copy_ranges(ledger(), "b7", (3, 5))) == [CopyRange(3, 5, ("b1", "b2", "b3"))]


def test_pieces_end_with_a_run_and_with_a_fragment_and_sources_take_turns() -> None:
    metadata = new_metadata(
        7, ensemble=("b1", "b2", "b3"), write_quorum=3, ack_quorum=2, token="t"
    ).with_ensemble(5000, ("b1", "b4", "b3"))
    assert list(copy_ranges(metadata, "b1", (10, 5001))) == [
        CopyRange(10, 10 + MAX_RUN_ENTRIES - 1, ("b3", "b2")),
        CopyRange(10 + MAX_RUN_ENTRIES, 4999, ("b3", "b2")),
        CopyRange(5000, 5001, ("b3", "b4")),
    ]


def test_sources_that_are_spread_take_turns_from_one_range_to_the_next() -> None:
    metadata = ledger("b1 b2 b3", last=3 * MAX_RUN_ENTRIES - 1)
    parts = copy_ranges(metadata, "b7", (0, metadata.last_entry_id), spread=True)
    assert [part.sources[0] for part in parts] == ["b1", "b2", "b3"]


def test_entries_of_an_open_ledger_are_wanted_up_to_where_the_caller_knows_them() -> None:
    metadata = new_metadata(
        7, ensemble=("b1", "b2", "b3"), write_quorum=3, ack_quorum=2, token="t"
    ).with_ensemble(5, ("b1", "b4", "b3"))
    assert list(wanted_ranges(metadata, "b2", 0, 4)) == [(0, 4)]
    assert list(wanted_ranges(metadata, "b1", 3, 7)) == [(3, 4), (5, 7)]


def test_a_single_copy_has_no_source() -> None:
    assert list(copy_ranges(ledger("b1", 1), "b1", (0, 1))) == [CopyRange(0, 1, ())]


def test_a_striped_ledger_of_any_length_is_begun_at_once() -> None:
    metadata = ledger("b1 b2 b3 b4", 2, last=2**60)
    assert list(islice(wanted_ranges(metadata, "b1", 0, 2**62), 3)) == [(0, 0), (3, 4), (7, 8)]
    assert list(islice(wanted_ranges(metadata, "b2", 2**59, 2**62), 2)) == [
        (2**59, 2**59 + 1),
        (2**59 + 4, 2**59 + 5),
    ]


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        ({}, MissingReason.LOST),
        ({"b2": NO, "b3": GONE}, MissingReason.LOST),
        ({"b2": NO, "b3": LIMBO}, MissingReason.IN_LIMBO),
        ({"b2": LIMBO, "b3": LIMBO}, MissingReason.IN_LIMBO),
        ({"b2": LIMBO, "b3": TIMEOUT}, MissingReason.UNREACHED),
        ({"b2": NO, "b3": BAD}, MissingReason.UNREACHED),
    ],
)
def test_lost_is_said_only_when_all_have_said_no(
    failed: dict[str, FencelogError], reason: MissingReason
) -> None:
    assert missing_reason(failed) is reason


def test_where_a_ledger_stands() -> None:
    open_ledger = new_metadata(
        1, ensemble=("b1", "b2", "b3"), write_quorum=3, ack_quorum=2, token="t"
    )
    assert limbo_status(open_ledger, "b1") is LimboStatus.UNCLOSED
    assert limbo_status(open_ledger.in_recovery(), "b3") is LimboStatus.UNCLOSED
    assert limbo_status(open_ledger, "b4") is LimboStatus.NOT_MEMBER
    assert limbo_status(ledger(), "b3") is LimboStatus.CLOSED
    assert limbo_status(ledger(), "b4") is LimboStatus.NOT_MEMBER


def test_pauses_grow_to_an_end() -> None:
    assert [pause_s(n) for n in (1, 2, 3)] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pause_s(10_000) == LAST_PAUSE_S


def parts(*ranges: tuple[int, int], sources: tuple[str, ...] = ("a", "b")) -> list[CopyRange]:
    return [CopyRange(first, last, sources) for first, last in ranges]


RANGES = st.lists(st.integers(0, 300), min_size=2, max_size=40, unique=True).map(
    lambda ids: list(zip(sorted(ids)[::2], sorted(ids)[1::2], strict=False))
)


@given(RANGES, st.integers(1, 60))
def test_batches_have_all_ranges_in_order_and_no_more_entries_than_asked(
    ranges: list[tuple[int, int]], most: int
) -> None:
    found = list(batches(iter(parts(*ranges)), most))
    assert [part for batch in found for part in batch] == parts(*ranges)
    for batch in found:
        assert len(batch) == 1 or sum(part.last - part.first + 1 for part in batch) <= most


def test_a_batch_is_one_request() -> None:
    ranges = [(2 * n, 2 * n) for n in range(MAX_READ_RANGES + 1)]
    assert [len(batch) for batch in batches(parts(*ranges), 10**6)] == [MAX_READ_RANGES, 1]
    assert list(batches([], 1)) == []


@given(RANGES, RANGES)
def test_what_is_still_missing_is_what_none_of_the_runs_has(
    wanted: list[tuple[int, int]], got: list[tuple[int, int]]
) -> None:
    missing = still_missing(parts(*wanted), got)
    assert entries([(part.first, part.last) for part in missing]) == sorted(
        set(entries(wanted)) - set(entries(got))
    )
    for part in missing:
        assert part.first <= part.last
        assert part.sources == ("a", "b")


def test_entries_in_a_row_come_from_one_source_that_does_not_rest() -> None:
    wanted = [
        *parts((4, 4), sources=("a", "b")),
        *parts((5, 5), sources=("b", "a")),
        *parts((6, 6), sources=("c", "b")),
        *parts((8, 9), sources=("b", "a")),
    ]
    assert by_source(wanted, resting=()) == {"a": [(4, 5)], "c": [(6, 6)], "b": [(8, 9)]}
    assert by_source(wanted, resting={"a"}) == {"b": [(4, 6), (8, 9)]}
    assert by_source(wanted, resting={"a", "b"}) == {"c": [(6, 6)]}
    assert by_source(wanted, resting=(), turn=1) == {"b": [(4, 6)], "a": [(8, 9)]}


@given(ledgers(), st.integers(0, 3))
def test_a_bookie_is_asked_only_for_what_it_may_have(metadata: LedgerMetadata, turn: int) -> None:
    last = min(metadata.last_entry_id, 60) if metadata.is_closed else 60
    wanted = list(copy_ranges(metadata, "new", (0, last), spread=True))
    asked = by_source(wanted, resting=(), turn=turn)
    for bookie, ranges in asked.items():
        assert all(bookie in holders(metadata, entry_id) for entry_id in entries(ranges))
        assert all(before[1] < following[0] for before, following in pairwise(ranges))
    assert sorted(n for ranges in asked.values() for n in entries(ranges)) == list(range(last + 1))
