"""The bodies of READ_RANGES: what was written is read, and nothing else is accepted."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ProtocolError
from fencelog.ledgers.format.run import build_run
from fencelog.ledgers.limits import MAX_READ_RANGES
from fencelog.ledgers.rpc.ranges import decode_ranges, decode_runs, encode_ranges

PART = struct.Struct("<QI")
HEAD = PART.pack(7, 1000)


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 2**31), min_size=2, max_size=40, unique=True).map(sorted),
)
def test_a_request_is_read_as_it_was_written(ledger: int, size: int, ids: list[int]) -> None:
    ranges = [(first, following - 1) for first, following in list(pairwise(ids))[::2]]
    body = encode_ranges(ledger, ranges, max_bytes=size)
    assert decode_ranges(body) == (ledger, ranges, size)
    assert decode_ranges(memoryview(body)) == (ledger, ranges, size)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        HEAD,
        HEAD + PART.pack(1, 1)[:-1],
        HEAD + PART.pack(1, 0),
        HEAD + PART.pack(2**63, 1),
        HEAD + PART.pack(2**63 - 2, 3),
        HEAD + PART.pack(5, 2) + PART.pack(6, 1),
        HEAD + PART.pack(5, 2) + PART.pack(1, 1),
        HEAD + b"".join(PART.pack(2 * n, 1) for n in range(MAX_READ_RANGES + 1)),
    ],
)
def test_a_request_that_no_client_sends(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_ranges(body)


def run(first: int, count: int = 1) -> bytes:
    return build_run(7, first, [b"payload"] * count, lac=-1, length_before=0)


def test_runs_are_read_one_behind_the_other() -> None:
    runs = [run(1), run(4, 3), run(9)]
    assert decode_runs(b"".join(runs)) == runs
    assert decode_runs(memoryview(runs[0])) == runs[:1]


@pytest.mark.parametrize(
    "body", [run(1)[:-1], run(1) + run(2)[:40], run(1) + b"x", bytes(64)], ids=len
)
def test_a_reply_that_no_bookie_sends(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_runs(body)
