"""The bodies of FENCE: what was written is read, and nothing else is accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.limits import FENCE_READ_BYTES, MAX_FENCES_AT_ONCE
from fencelog.ledgers.rpc.bookie_port import FenceAnswer
from fencelog.ledgers.rpc.fences import (
    decode_answers,
    decode_fences,
    encode_answers,
    encode_fences,
)
from fencelog.ledgers.rpc.wire import FENCE_ANSWER, FENCE_BODY

ENTRY_IDS = st.integers(-1, 2**63 - 1)
ANSWERS = st.builds(
    FenceAnswer, ENTRY_IDS, st.binary(max_size=50), st.none() | st.integers(0, 2**63 - 1)
)


@given(
    st.lists(
        st.tuples(st.integers(0, 2**64 - 1), ENTRY_IDS), min_size=1, max_size=MAX_FENCES_AT_ONCE
    )
)
def test_a_request_is_read_as_it_was_written(ledgers: list[tuple[int, int]]) -> None:
    assert decode_fences(encode_fences(ledgers)) == ledgers


@given(st.lists(ANSWERS, min_size=1, max_size=5))
def test_answers_are_read_as_they_were_written(answers: list[FenceAnswer]) -> None:
    assert decode_answers(encode_answers(answers), len(answers), "b1") == answers


def test_an_error_among_answers_is_that_ledgers_alone() -> None:
    answer = FenceAnswer(3, b"run", 7)
    limbo = FencelogError(ErrorCode.LEDGER_IN_LIMBO, "of ledger 2 entries may be lost")
    body = encode_answers([answer, limbo, answer])
    before, error, after = decode_answers(body, 3, "b1")
    assert before == after == answer
    assert isinstance(error, FencelogError)
    assert error.code is ErrorCode.LEDGER_IN_LIMBO
    assert error.detail == "bookie b1: of ledger 2 entries may be lost"


@pytest.mark.parametrize(
    "body",
    [b"", bytes(FENCE_BODY.size - 1), bytes(FENCE_BODY.size * (MAX_FENCES_AT_ONCE + 1))],
    ids=["no ledger", "a part of one", "too many"],
)
def test_a_request_that_no_client_sends(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_fences(body)


ONE = FENCE_ANSWER.pack(4, 5, 3, 0, 0) + b"run"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        ONE,
        ONE * 3,
        ONE + ONE[:-1],
        ONE + ONE[:10],
        ONE + FENCE_ANSWER.pack(4, 5, 3, 0, 1) + b"run",
        ONE + FENCE_ANSWER.pack(-2, 5, 3, 0, 0) + b"run",
        ONE + FENCE_ANSWER.pack(4, -2, 3, 0, 0) + b"run",
        ONE + FENCE_ANSWER.pack(4, 5, FENCE_READ_BYTES + 1, 0, 0) + bytes(FENCE_READ_BYTES + 1),
    ],
)
def test_a_reply_that_no_bookie_sends(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_answers(body, 2, "b1")
