"""The answer to "which entries do you have?": what leaves comes in, and nothing else does."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ProtocolError
from fencelog.ledgers.format.availability import MAX_ENTRY_ID, Availability, Range
from fencelog.ledgers.format.entry_list import MAX_LIST_BYTES, MIN_LIST_BYTES, EntryList
from fencelog.ledgers.limits import MAX_LISTED_RUNS, MAX_READ_BYTES


def body(following: int, *ranges: Range, flags: int = 0, zero: int = 0) -> bytes:
    return struct.pack("<QII", following, flags, zero) + Availability.of(ranges).encode()


@given(
    st.integers(0, 30), st.sets(st.integers(0, 50)), st.none() | st.integers(1, 60), st.booleans()
)
def test_what_is_encoded_is_decoded(
    first: int, entries: set[int], following: int | None, in_limbo: bool
) -> None:
    part = sorted(n for n in entries if first <= n and (following is None or n < following))
    entry_list = EntryList(Availability.of((n, n) for n in part), following, in_limbo)
    data = entry_list.encode()
    if following is not None and following <= first:
        with pytest.raises(ProtocolError, match="goes on at"):
            EntryList.decode(data, first)
    else:
        assert EntryList.decode(data, first) == entry_list


def test_golden_list() -> None:
    golden = "07000000000000000100000000000000" + Availability.of([(2, 6)]).encode().hex()
    assert EntryList(Availability.of([(2, 6)]), 7, in_limbo=True).encode().hex() == golden
    assert EntryList(Availability()).encode().hex() == "ff" * 8 + "00" * 72


def test_the_largest_answer_is_no_larger_than_one_to_a_read() -> None:
    """Whatever the runs are, each makes at most one group."""
    gaps = [(n * (n + 3) // 2, n * (n + 3) // 2) for n in range(MAX_LISTED_RUNS * 2)]
    entry_list = EntryList(Availability.of(gaps))
    assert len(entry_list.availability.groups) == MAX_LISTED_RUNS  # in twos at the worst
    assert len(entry_list.encode()) == MAX_LIST_BYTES < MAX_READ_BYTES
    assert len(EntryList(Availability()).encode()) == MIN_LIST_BYTES


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "0 bytes are no reply"),
        (bytes(MIN_LIST_BYTES - 1), "79 bytes are no reply"),
        (body(9, (5, 5), flags=2), "mean nothing"),
        (body(9, (5, 5), zero=1), "mean nothing"),
        (body(5), "from 5 goes on at 5"),
        (body(0), "from 5 goes on at 0"),
        (body(MAX_ENTRY_ID + 1), "from 5 goes on at"),
        (body(9, (4, 6)), r"5\.\.8 has those of 4\.\.6"),
        (body(9, (6, 9)), r"5\.\.8 has those of 6\.\.9"),
        (body(9, (6, 7)) + b"x", "not 1 groups"),
    ],
)
def test_a_senseless_answer_is_refused_by_name(data: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        EntryList.decode(data, 5)
