"""The header of a topic's entry: what is packed is read, and what cannot be one is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.entry_header import (
    HEADER,
    KIND_CONTROL,
    KIND_MESSAGES,
    VERSION,
    EntryHeader,
    pack_entry,
    read_entry_header,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError


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
    assert header.next_number == first + count
    assert payload[header.header_bytes :] == batch


def test_a_longer_header_of_this_version_is_skipped() -> None:
    payload = HEADER.pack(VERSION, KIND_MESSAGES, 48, 1, 2, 3, 1, 0) + bytes(16) + b"batch"
    assert payload[read_entry_header(payload).header_bytes :] == b"batch"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        bytes(HEADER.size - 1),
        HEADER.pack(VERSION, 2, HEADER.size, 1, 0, 0, 0, 0),
        HEADER.pack(VERSION, KIND_MESSAGES, HEADER.size + 4, 1, 0, 0, 0, 0) + bytes(8),
        HEADER.pack(VERSION, KIND_MESSAGES, HEADER.size - 8, 1, 0, 0, 0, 0),
        HEADER.pack(VERSION, KIND_MESSAGES, HEADER.size + 8, 1, 0, 0, 0, 0),
        HEADER.pack(VERSION, KIND_MESSAGES, HEADER.size, 1, 0, 0, 0, 1),
    ],
    ids=["empty", "cut off", "kind", "not of eights", "too short", "too long", "not zero"],
)
def test_what_cannot_be_a_header_is_corrupt(payload: bytes) -> None:
    with pytest.raises(FencelogError, match="entry header is not valid") as caught:
        read_entry_header(payload)
    assert caught.value.code is ErrorCode.CORRUPT


def test_another_version_is_named() -> None:
    with pytest.raises(FencelogError, match="version 2") as caught:
        read_entry_header(HEADER.pack(2, KIND_MESSAGES, HEADER.size, 1, 0, 0, 0, 0))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
