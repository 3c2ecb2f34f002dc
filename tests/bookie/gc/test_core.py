"""The decisions of garbage collection, compared with a naive definition."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.gc.core import (
    LogFile,
    Reason,
    choose_ledgers,
    dead_files,
    id_ranges,
    is_over_replicated,
    next_round,
    sparse_files,
)
from fencelog.ledgers.ledger_metadata.model import Fragment, new_metadata

IDS = st.integers(0, 30)

OPEN = new_metadata(7, ensemble=("b1", "b2"), write_quorum=2, ack_quorum=2, token="t")
CLOSED = OPEN.closed(last_entry_id=9, length=90)


def test_over_replicated_is_what_is_closed_and_names_us_nowhere() -> None:
    assert is_over_replicated(CLOSED, "b3")
    assert not is_over_replicated(CLOSED, "b1")
    assert not is_over_replicated(OPEN, "b3")
    assert not is_over_replicated(OPEN.in_recovery(), "b3")
    earlier = replace(CLOSED, fragments=(Fragment(0, ("b3", "b2")), Fragment(4, ("b1", "b2"))))
    assert not is_over_replicated(earlier, "b3"), "an older fragment names it"


@given(
    st.dictionaries(IDS, st.booleans()),
    st.dictionaries(IDS, st.booleans()),
    st.dictionaries(st.tuples(IDS, st.sampled_from(Reason)), st.integers(0, 100)),
    st.integers(0, 100),
    st.integers(0, 50),
    st.integers(0, 31),
    st.booleans(),
)
def test_ledgers_are_chosen_as_one_by_one(
    local: dict[int, bool],
    listed: dict[int, bool],
    since_ms: dict[tuple[int, Reason], int],
    now_ms: int,
    grace_ms: int,
    last_given_id: int,
    grace_of_deleted: bool,
) -> None:
    choice = choose_ledgers(
        local,
        listed,
        last_given_id=last_given_id,
        since_ms=since_ms,
        now_ms=now_ms,
        grace_ms=grace_ms,
        grace_of_deleted=grace_of_deleted,
    )
    for ledger_id in range(31):
        here, there = ledger_id in local, ledger_id in listed
        was_given = ledger_id <= last_given_id
        gone, is_gone = (ledger_id, Reason.DELETED), here and not there and was_given
        assert (gone in choice.since_ms) == is_gone
        if is_gone:
            since = since_ms.get(gone, now_ms)
            assert choice.since_ms[gone] == since
            its_grace_ms = grace_ms if grace_of_deleted else 0
            assert (ledger_id in choice.deleted) == (now_ms - since >= its_grace_ms)
        else:
            assert ledger_id not in choice.deleted
        assert (ledger_id in choice.ahead) == (here and not there and not was_given)
        over = here and local[ledger_id] and there and listed[ledger_id]
        copied = (ledger_id, Reason.OVER_REPLICATED)
        assert (copied in choice.since_ms) == over
        if over:
            since = since_ms.get(copied, now_ms)
            assert choice.since_ms[copied] == since
            assert (ledger_id in choice.over_replicated) == (now_ms - since >= grace_ms)
        else:
            assert ledger_id not in choice.over_replicated
    assert list(choice.deleted) == sorted(choice.deleted)
    assert list(choice.over_replicated) == sorted(choice.over_replicated)


def test_the_grace_time_begins_when_it_is_first_seen_and_anew_after_a_change() -> None:
    choose = partial(choose_ledgers, {1: True}, last_given_id=1, grace_ms=5)
    first = choose({1: True}, since_ms={}, now_ms=10)
    assert first.over_replicated == ()
    named = choose({1: False}, since_ms=first.since_ms, now_ms=20)
    assert named.since_ms == {}
    again = choose({1: True}, since_ms=named.since_ms, now_ms=30)
    assert again.over_replicated == ()
    late = choose({1: True}, since_ms=again.since_ms, now_ms=35)
    assert late.over_replicated == (1,)


def test_a_deleted_ledger_has_a_grace_time_which_a_restore_ends() -> None:
    choose = partial(choose_ledgers, {1: True}, last_given_id=1, grace_ms=5)
    first = choose({}, since_ms={}, now_ms=10)
    assert first.deleted == ()
    assert choose({}, since_ms=first.since_ms, now_ms=15).deleted == (1,)
    restored = choose({1: False}, since_ms=first.since_ms, now_ms=15)
    assert restored.since_ms == {}
    again = choose({}, since_ms=restored.since_ms, now_ms=16)
    assert again.deleted == ()
    moved = choose({1: True}, since_ms={}, now_ms=10)
    assert choose({}, since_ms=moved.since_ms, now_ms=20).deleted == (), "each reason has its own"


def test_without_the_grace_time_only_what_is_deleted_goes_at_once() -> None:
    choice = choose_ledgers(
        {1: True, 2: True},
        {2: True},
        last_given_id=2,
        since_ms={},
        now_ms=10,
        grace_ms=5,
        grace_of_deleted=False,
    )
    assert (choice.deleted, choice.over_replicated) == ((1,), ())


@st.composite
def log_files(draw: st.DrawFn) -> list[LogFile]:
    ids = draw(st.lists(IDS, unique=True))
    files = []
    for file_id in ids:
        records = draw(st.integers(0, 100))
        live = draw(st.integers(0, 120))
        files.append(LogFile(file_id, records + 64, records, live))
    return files


@given(log_files(), st.floats(0, 1))
def test_no_file_with_a_live_byte_goes_and_the_emptiest_are_compacted_first(
    files: list[LogFile], below: float
) -> None:
    dead, sparse = dead_files(files), sparse_files(files, below)
    for file in files:
        assert (file in dead) == (file.live_bytes == 0)
        fewer = file.record_bytes > 0 and file.live_bytes / file.record_bytes < below
        assert (file in sparse) == (file.live_bytes > 0 and fewer)
    shares = [file.share for file in sparse]
    assert shares == sorted(shares)


@given(log_files(), st.integers(0, 400), st.integers(0, 50), st.integers(1, 200))
def test_a_round_leaves_the_spare_space_and_takes_all_that_fit(
    files: list[LogFile], free: int, spare: int, most: int
) -> None:
    chosen = next_round(files, free_bytes=free, spare_bytes=spare, most_bytes=most)
    assert [file for file in files if file in chosen] == list(chosen), "in their order"
    total = sum(file.live_bytes for file in chosen)
    if chosen:
        assert total + spare <= free
        assert total <= most or len(chosen) == 1
    fitting = [file for file in files if file.live_bytes + spare <= free]
    assert bool(chosen) == bool(fitting), "one that fits is never left for one that does not"
    if chosen:
        assert chosen[0] == fitting[0]


@given(st.sets(IDS, min_size=1), st.sets(IDS), st.integers(1, 40))
def test_ranges_hold_what_was_removed_and_nothing_that_was_kept(
    removed: set[int], kept: set[int], most: int
) -> None:
    kept -= removed
    ranges = id_ranges(removed, kept, most)
    assert len(ranges) <= most
    inside = {i for i in range(31) if any(first <= i <= last for first, last in ranges)}
    assert removed <= inside
    assert len(ranges) == 1 or not kept & inside
    assert all(first in removed and last in removed for first, last in ranges)


@pytest.mark.parametrize(("records", "live", "share"), [(0, 0, 1.0), (10, 5, 0.5), (10, 10, 1.0)])
def test_the_share_of_a_file_without_records_is_no_reason_to_compact_it(
    records: int, live: int, share: float
) -> None:
    assert LogFile(1, 64 + records, records, live).share == share
