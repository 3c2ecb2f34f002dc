"""BP-34's list of entries: its own examples byte by byte, then against plain sets."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ProtocolError
from fencelog.ledgers.format.availability import (
    GROUP_BYTES,
    HEADER_BYTES,
    MAX_ENTRY_ID,
    Availability,
    Range,
    SequenceGroup,
)

GROUP = struct.Struct(">qqii")
MOST = 2**31 - 1

# Dense, so that sequences, gaps and groups of all small sizes come about.
ENTRIES = st.sets(st.integers(0, 60)) | st.builds(
    lambda first, size, period, count: {
        first + period * n + i for n in range(count) for i in range(size)
    },
    st.integers(0, 9),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(1, 8),
)
WANTED = st.lists(st.tuples(st.integers(0, 70), st.integers(0, 9)), max_size=6).map(
    lambda pairs: [(first, first + more) for first, more in pairs]
)


def naive_ranges(entries: Iterable[int]) -> list[Range]:
    """Ascending, as long as can be."""
    ranges: list[Range] = []
    for entry in sorted(entries):
        if ranges and ranges[-1][1] == entry - 1:
            ranges[-1] = (ranges[-1][0], entry)
        else:
            ranges.append((entry, entry))
    return ranges


def of(entries: Iterable[int]) -> Availability:
    return Availability.of(naive_ranges(entries))


def encoded(*groups: tuple[int, int, int, int]) -> bytes:
    header = struct.pack(">II", 0, len(groups)) + bytes(56)
    return header + b"".join(GROUP.pack(*group) for group in groups)


# -- the examples of BP-34 -----------------------------------------------------------------------

FIRST_EXAMPLE = (
    "00000000" "00000001" + "00" * 56
    + "0000000000000001" "000000000000000a" "00000002" "00000003"
)  # fmt: skip
SECOND_EXAMPLE = (
    "00000000" "00000004" + "00" * 56
    + "0000000000000001" "0000000000000006" "00000003" "00000005"
    + "000000000000000b" "000000000000000d" "00000001" "00000002"
    + "0000000000000010" "0000000000000010" "00000003" "00000000"
    + "0000000000000015" "0000000000000015" "00000002" "00000000"
)  # fmt: skip


@pytest.mark.parametrize(
    ("entries", "data"),
    [
        ([1, 2, 4, 5, 7, 8, 10, 11], FIRST_EXAMPLE),
        ([1, 2, 3, 6, 7, 8, 11, 13, 16, 17, 18, 21, 22], SECOND_EXAMPLE),
        ([], "00" * 64),
    ],
)
def test_the_examples_of_bp_34(entries: list[int], data: str) -> None:
    assert of(entries).encode().hex() == data
    decoded = Availability.decode(bytes.fromhex(data))
    assert [n for low, high in decoded.ranges() for n in range(low, high + 1)] == entries
    assert decoded.count == len(entries)


# -- against sets --------------------------------------------------------------------------------


@given(ENTRIES)
def test_what_is_encoded_is_decoded(entries: set[int]) -> None:
    built = of(entries)
    data = built.encode()
    assert Availability.decode(data) == built
    assert list(built.ranges()) == naive_ranges(entries)
    assert built.count == len(entries)
    assert built.span == ((min(entries), max(entries)) if entries else None)
    assert [n for n in range(-2, 80) if n in built] == sorted(entries)
    assert len(data) == HEADER_BYTES + GROUP_BYTES * len(built.groups)
    assert len(built.groups) <= len(naive_ranges(entries))


@given(ENTRIES, st.data())
def test_how_the_ranges_are_cut_does_not_matter(entries: set[int], data: st.DataObject) -> None:
    pieces: list[Range] = []
    for low, high in naive_ranges(entries):
        while low <= high:
            end = data.draw(st.integers(low, high))
            pieces.append((low, end))
            low = end + 1
    assert Availability.of(pieces) == of(entries)


@given(ENTRIES, st.integers(0, 70), st.integers(0, 70))
@example({0, 1, 4, 5, 8, 9}, 2, 7)
@example({0, 1, 4, 5, 8, 9}, 11, 12)
@example({0, 1}, 1, 0)
def test_a_part_of_it(entries: set[int], first: int, last: int) -> None:
    part = {n for n in entries if first <= n <= last}
    assert list(of(entries).ranges(first, last)) == naive_ranges(part)


@given(ENTRIES, WANTED)
def test_what_is_missing(entries: set[int], wanted: list[Range]) -> None:
    expected = [
        missing
        for low, high in wanted
        for missing in naive_ranges(set(range(low, high + 1)) - entries)
    ]
    assert list(of(entries).missing_from(wanted)) == expected


def test_a_ledger_in_perfect_order_takes_one_group() -> None:
    striped = [(n, n + 1) for n in range(0, 30_000, 3)]
    assert Availability.of(striped).groups == (SequenceGroup(0, 29_997, 2, 3),)
    assert Availability.of([(0, 30_000)]).groups == (SequenceGroup(0, 0, 30_001, 0),)


# -- the ends of numbers -------------------------------------------------------------------------


def test_sizes_and_periods_that_do_not_fit_are_cut() -> None:
    """A sequence of more than 2**31 - 1 entries is several; a longer distance is no period."""
    last = MAX_ENTRY_ID
    long = Availability.of([(last - 3 * MOST - 6, last)])
    first = last - 3 * MOST - 6
    assert long.encode() == encoded(
        (first, first + 2 * MOST, MOST, MOST), (first + 3 * MOST, first + 3 * MOST, 7, 0)
    )
    assert list(long.ranges()) == [(first, last)]
    assert long.count == 3 * MOST + 7
    assert Availability.decode(long.encode()) == long
    near = Availability.of([(0, 0), (MOST, MOST)])
    far = Availability.of([(0, 0), (MOST + 1, MOST + 1)])
    assert [group.period for group in near.groups] == [MOST]
    assert [group.period for group in far.groups] == [0, 0]
    assert list(far.ranges()) == [(0, 0), (MOST + 1, MOST + 1)]


def test_a_group_of_2_60_sequences_costs_nothing() -> None:
    hostile = Availability.decode(encoded((5, 5 + 4 * 2**60, 1, 4)))
    assert hostile.count == 2**60 + 1
    assert hostile.span == (5, 5 + 2**62)
    middle = 5 + 4 * 2**59
    assert middle in hostile
    assert middle + 1 not in hostile
    assert list(hostile.ranges(middle - 1, middle + 6)) == [(middle, middle), (middle + 4,) * 2]
    assert list(islice(hostile.missing_from([(middle, MAX_ENTRY_ID)]), 2)) == [
        (middle + 1, middle + 3),
        (middle + 5, middle + 7),
    ]
    dense = Availability.decode(encoded((0, 2**60, 1, 1)))
    assert list(dense.ranges()) == [(0, 2**60)]
    assert list(dense.missing_from([(7, 2**60 + 1)])) == [(2**60 + 1, 2**60 + 1)]


@pytest.mark.parametrize(
    "ranges",
    [[(-1, 0)], [(1, 0)], [(0, 1), (1, 2)], [(5, 6), (0, 1)], [(0, MAX_ENTRY_ID + 1)]],
)
def test_only_ranges_in_order_make_a_list(ranges: list[Range]) -> None:
    with pytest.raises(AssertionError, match="behind"):
        Availability.of(ranges)


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "0 bytes are no header"),
        (bytes(63), "63 bytes are no header"),
        (bytes(65), "65 bytes are not 0 groups"),
        (encoded((1, 1, 1, 0))[:-1], "87 bytes are not 1 groups"),
        (encoded((1, 1, 1, 0)) + bytes(24), "112 bytes are not 1 groups"),
        (struct.pack(">II56x", 0, 2**32 - 1), "64 bytes are not 4294967295 groups"),
        (struct.pack(">II56x", 1, 0), "version 1"),
        (bytes(63) + b"\1", "reserved bytes"),
        (bytes(8) + b"\1" + bytes(55), "reserved bytes"),
        (encoded((-1, 1, 1, 2)), "group 0 begins below 0"),
        (encoded((5, 4, 1, 1)), "group 0 ends before it begins"),
        (encoded((1, 1, 0, 0)), "group 0 has sequences of no entry"),
        (encoded((1, 1, -1, 0)), "group 0 has sequences of no entry"),
        (encoded((1, 1, 1, 1)), "group 0 has a period and but one sequence"),
        (encoded((1, 3, 2, 1)), "group 0 has sequences that overlap"),
        (encoded((1, 3, 2, 0)), "group 0 has sequences that overlap"),
        (encoded((1, 3, 2, -2)), "group 0 has sequences that overlap"),
        (encoded((1, 6, 2, 3)), "group 0 has a last sequence out of its period"),
        (encoded((MAX_ENTRY_ID,) * 2 + (2, 0)), "group 0 ends behind the last entry id"),
        (encoded((1, 4, 2, 3), (5, 5, 1, 0)), "group 1 begins before the end"),
        (encoded((9, 9, 1, 0), (1, 1, 1, 0)), "group 1 begins before the end"),
        (encoded((MAX_ENTRY_ID,) * 2 + (1, 0), (0, 0, 1, 0)), "group 1 begins before the end"),
    ],
)
def test_senseless_bytes_are_refused_by_name(data: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        Availability.decode(data)


@given(
    st.lists(
        st.tuples(
            st.integers(-1, 40) | st.integers(MAX_ENTRY_ID - 9, MAX_ENTRY_ID),
            st.integers(-1, 40) | st.integers(MAX_ENTRY_ID - 9, MAX_ENTRY_ID),
            st.integers(-1, 9) | st.just(MOST),
            st.integers(-1, 9) | st.just(MOST),
        ),
        max_size=3,
    )
)
@example([(1, 4, 2, 3), (6, 6, 1, 0)])
def test_what_is_not_refused_is_a_set(groups: list[tuple[int, int, int, int]]) -> None:
    """Whatever the numbers: no entry twice, none out of order, none that has no id."""
    with suppress(ProtocolError):
        taken = Availability.decode(encoded(*groups))
        following = 0
        for low, high in islice(taken.ranges(), 200):
            assert following <= low <= high <= MAX_ENTRY_ID
            assert low in taken
            assert high in taken
            following = high + 2
        assert taken.encode() == encoded(*groups)
