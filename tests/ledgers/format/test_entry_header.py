"""The header of a topic's entry: what is packed is read, and what cannot be one is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import (
    HEADER,
    KIND_CONTROL,
    KIND_MESSAGES,
    MAX_RANGES,
    RANGE_KEY,
    RANGE_NO_PRODUCER,
    RANGE_SEQUENCE,
    VERSION,
    EntryHeader,
    SequenceRange,
    header_size,
    pack_entry,
    pack_header,
    producer_digest,
    read_entry_header,
    read_ranges,
)


@given(
    st.binary(max_size=40),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**63),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([KIND_MESSAGES, KIND_CONTROL]),
)
def test_what_was_packed_is_read(
    batch: bytes, count: int, first: int, publish_time_us: int, kind: int
) -> None:
    payload = pack_entry(
        batch, count=count, first_number=first, publish_time_us=publish_time_us, kind=kind
    )
    header = read_entry_header(payload)
    assert header == EntryHeader(kind, HEADER.size, count, first, publish_time_us)
    assert read_ranges(payload, header) == []
    assert header.next_number == first + count
    assert payload[header.header_bytes :] == batch
    assert read_ranges(payload, header) == []


@pytest.mark.parametrize("ranges", [(), [SequenceRange(3, RANGE_SEQUENCE, b"i" * 16, 7, 4)]])
def test_the_header_of_an_entry_may_be_packed_alone(ranges: Sequence[SequenceRange]) -> None:
    def packed(pack: Callable[..., bytes], *batch: bytes) -> bytes:
        return pack(
            *batch,
            count=3,
            first_number=9,
            publish_time_us=7,
            kind=KIND_MESSAGES,
            ranges=ranges,
            previous_range_entry=4,
        )

    assert packed(pack_header) + b"batch" == packed(pack_entry, b"batch")


def test_sequence_ranges_travel_before_the_batch() -> None:
    ranges = [
        SequenceRange(2, RANGE_SEQUENCE, producer_digest(b"p"), 7, 2**40),
        SequenceRange(1, RANGE_NO_PRODUCER),
        SequenceRange(3, RANGE_KEY, producer_digest(b"k")),
        SequenceRange(1, RANGE_KEY, producer_digest(b"l"), contents=bytes(range(16))),
    ]
    payload = pack_entry(
        b"batch", count=7, first_number=9, publish_time_us=1, ranges=ranges, previous_range_entry=4
    )
    header = read_entry_header(payload)
    assert (header.range_count, header.previous_range_entry) == (4, 4)
    assert read_ranges(payload, header) == ranges
    assert payload[header.header_bytes :] == b"batch"
    assert header.header_bytes == header_size(4)


def test_the_most_ranges_fit_the_header() -> None:
    ranges = [SequenceRange(1, RANGE_KEY)] * MAX_RANGES
    payload = pack_entry(b"", count=MAX_RANGES, first_number=0, publish_time_us=1, ranges=ranges)
    assert len(read_ranges(payload, read_entry_header(payload))) == MAX_RANGES


@pytest.mark.parametrize("rows", [2, 4])
def test_ranges_that_do_not_cover_the_messages_are_corrupt(rows: int) -> None:
    ranges = [SequenceRange(rows, RANGE_KEY)]
    payload = pack_entry(b"", count=3, first_number=0, publish_time_us=1, ranges=ranges)
    with pytest.raises(FencelogError, match="do not cover"):
        read_ranges(payload, read_entry_header(payload))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        bytes(HEADER.size - 1),
        HEADER.pack(VERSION, 4, HEADER.size, 1, 0, 0, 0, 0),
        HEADER.pack(VERSION, KIND_MESSAGES, HEADER.size + 8, 1, 0, 0, 0, 0) + bytes(8),
        HEADER.pack(VERSION, KIND_MESSAGES, HEADER.size - 8, 1, 0, 0, 0, 0),
        HEADER.pack(VERSION, KIND_MESSAGES, HEADER.size + 40, 1, 0, 0, 1, 0),
    ],
    ids=["empty", "cut off", "kind", "too long", "too short", "ranges cut off"],
)
def test_what_cannot_be_a_header_is_corrupt(payload: bytes) -> None:
    with pytest.raises(FencelogError, match="entry header is not valid") as caught:
        read_entry_header(payload)
    assert caught.value.code is ErrorCode.CORRUPT


def test_another_version_is_named() -> None:
    with pytest.raises(FencelogError, match="version 2") as caught:
        read_entry_header(HEADER.pack(2, KIND_MESSAGES, HEADER.size, 1, 0, 0, 0, 0))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
