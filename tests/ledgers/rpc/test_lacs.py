"""The LACs of many ledgers in one request: each answered by itself, also by an older bookie."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.server.handshake import ServerHandshake
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.limits import MAX_LACS_AT_ONCE
from fencelog.ledgers.rpc.answers import encode_answers
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_port import AddToken, LedgerLac
from fencelog.ledgers.rpc.handshake import FEATURES
from fencelog.ledgers.rpc.lacs import decode_lacs, decode_refusals, encode_lacs
from fencelog.ledgers.rpc.wire import (
    MAX_ANSWER_TEXT_BYTES,
    PLACE_ANSWER,
    Frame,
    Op,
    encode_error,
    encode_reply,
)
from tests.support.network.scripted_server import ScriptedServer

FENCED = FencelogError(ErrorCode.LEDGER_FENCED, "ledger 7 is fenced here")
FULL = FencelogError(ErrorCode.READ_ONLY, "the bookie is read-only")

LACS = st.lists(
    st.tuples(st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=20
)


# -- bytes -----------------------------------------------------------------------------------------


@given(LACS)
def test_a_request_is_read_as_it_was_written(lacs: list[LedgerLac]) -> None:
    assert decode_lacs(encode_lacs(lacs)) == lacs


def test_golden_bodies() -> None:
    assert encode_lacs([(1, 2), (3, -1)]).hex() == (
        "0100000000000000" "0200000000000000" "0300000000000000" "ffffffffffffffff"
    )  # fmt: skip
    refusals = {5: FencelogError(ErrorCode.LEDGER_FENCED, "x")}
    assert encode_answers(refusals).hex() == "050000000c00010078"
    assert encode_answers({}) == b""


@pytest.mark.parametrize("size", [0, 1, 15, 17, 16 * (MAX_LACS_AT_ONCE + 1)])
def test_what_is_no_list_of_lacs_is_no_request(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"{size} bytes"):
        decode_lacs(bytes(size))
    assert len(decode_lacs(bytes(16 * MAX_LACS_AT_ONCE))) == MAX_LACS_AT_ONCE


def test_a_reply_is_read_as_it_was_written() -> None:
    body = encode_answers({3: FULL, 0: FENCED})
    refusals = decode_refusals(body, 4, "b1")
    assert {place: (error.code, error.detail) for place, error in refusals.items()} == {
        0: (ErrorCode.LEDGER_FENCED, "bookie b1: ledger 7 is fenced here"),
        3: (ErrorCode.READ_ONLY, "bookie b1: the bookie is read-only"),
    }


def test_a_text_is_cut_and_not_the_reply() -> None:
    long = FencelogError(ErrorCode.INTERNAL, "x" * 100_000)
    refusals = decode_refusals(encode_answers({0: long, 1: FENCED}), 2, "b1")
    assert len(refusals[0].detail) <= MAX_ANSWER_TEXT_BYTES + len("bookie b1: ")
    assert refusals[1].code is ErrorCode.LEDGER_FENCED


WRONG_REPLIES = {
    "cut short": encode_answers({0: FENCED})[:-1],
    "cut in a head": encode_answers({0: FENCED})[:7],
    "of another request": encode_answers({2: FENCED}),
    "twice": encode_answers({0: FENCED}) * 2,
    "not ascending": encode_answers({1: FENCED}) + encode_answers({0: FENCED}),
    "refused as stored": PLACE_ANSWER.pack(0, 0, 0),
}


@pytest.mark.parametrize("body", WRONG_REPLIES.values(), ids=WRONG_REPLIES)
def test_a_reply_that_does_not_fit_is_none(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_refusals(body, 2, "b1")


@given(st.binary(max_size=60), st.integers(1, 5))
def test_whatever_is_read_from_a_reply_is_of_the_request(body: bytes, count: int) -> None:
    try:
        refusals = decode_refusals(body, count, "b1")
    except ProtocolError:
        return
    assert set(refusals) <= set(range(count))


# -- the client ------------------------------------------------------------------------------------


class Outcomes:
    """The outcome of each LAC of one call, whose tokens are letters."""

    def __init__(self, client: TcpBookieClient, count: int) -> None:
        self.found: dict[AddToken, FencelogError | None] = {}
        self._count = count
        self._all = asyncio.Event()
        lacs = [(ledger_id, 10 * ledger_id) for ledger_id in range(count)]
        tokens = [f"token {ledger_id}" for ledger_id in range(count)]
        client.write_lacs(lacs, tokens, incarnation="1", on_replies=self._note)
        assert not self.found  # never from within the call

    def _note(self, tokens: Sequence[AddToken], error: FencelogError | None) -> None:
        assert not self.found.keys() & set(tokens)
        self.found |= dict.fromkeys(tokens, error)
        if len(self.found) == self._count:
            self._all.set()

    async def codes(self) -> list[ErrorCode | None]:
        async with asyncio.timeout(10):
            await self._all.wait()
        found = [self.found[f"token {ledger_id}"] for ledger_id in range(self._count)]
        return [None if error is None else error.code for error in found]


async def connected(server: ScriptedServer, *, features: frozenset[str]) -> TcpBookieClient:
    """Return a client that has agreed on its features with the bookie."""
    server.handshake = ServerHandshake("b1", "1", features=features)
    client = TcpBookieClient("b1", await server.start())
    assert await Outcomes(client, 1).codes() == [None]
    server.frames.clear()
    return client


def refuse_second(frame: Frame) -> bytes:
    return encode_reply(frame.op, frame.request_id, encode_answers({1: FENCED}))


async def test_the_lacs_of_a_call_are_one_request_and_each_has_its_answer(
    server: ScriptedServer,
) -> None:
    client = await connected(server, features=FEATURES)
    server.answer = refuse_second
    assert await Outcomes(client, 3).codes() == [None, ErrorCode.LEDGER_FENCED, None]
    assert [frame.op for frame in server.frames] == [Op.WRITE_LACS]
    assert decode_lacs(server.frames[0].body) == [(0, 0), (1, 10), (2, 20)]
    await client.close()


async def test_a_request_has_a_limit_of_lacs(server: ScriptedServer) -> None:
    client = await connected(server, features=FEATURES)
    server.answer = refuse_second
    expected: list[ErrorCode | None] = [None] * (MAX_LACS_AT_ONCE + 2)
    expected[1] = expected[MAX_LACS_AT_ONCE + 1] = ErrorCode.LEDGER_FENCED
    assert await Outcomes(client, MAX_LACS_AT_ONCE + 2).codes() == expected
    assert [len(decode_lacs(frame.body)) for frame in server.frames] == [MAX_LACS_AT_ONCE, 2]
    await client.close()


async def test_an_older_bookie_gets_each_lac_by_itself(server: ScriptedServer) -> None:
    """It would end the connection upon a request that it does not know."""
    client = await connected(server, features=FEATURES - {"write_lacs"})

    def answer(frame: Frame) -> bytes:
        if decode_lacs(frame.body)[0][0] == 1:
            return encode_error(frame.op, frame.request_id, FENCED.code, FENCED.detail)
        return encode_reply(frame.op, frame.request_id)

    server.answer = answer
    assert await Outcomes(client, 3).codes() == [None, ErrorCode.LEDGER_FENCED, None]
    assert [frame.op for frame in server.frames] == [Op.WRITE_LAC] * 3
    assert [decode_lacs(frame.body) for frame in server.frames] == [[(0, 0)], [(1, 10)], [(2, 20)]]
    await client.close()


async def test_lacs_that_wait_for_the_connection_suit_any_bookie(server: ScriptedServer) -> None:
    """What it knows is not known yet."""
    server.handshake = ServerHandshake("b1", "1")
    client = TcpBookieClient("b1", await server.start())
    assert await Outcomes(client, 2).codes() == [None, None]
    assert [frame.op for frame in server.frames] == [Op.WRITE_LAC] * 2
    await client.close()


async def test_a_refusal_of_the_request_is_the_answer_to_every_lac(server: ScriptedServer) -> None:
    client = await connected(server, features=FEATURES)
    server.answer = lambda frame: encode_error(frame.op, frame.request_id, FULL.code, "full")
    assert await Outcomes(client, 2).codes() == [ErrorCode.READ_ONLY] * 2
    await client.close()


async def test_after_an_answer_that_does_not_fit_all_of_them_may_be_stored(
    server: ScriptedServer,
) -> None:
    client = await connected(server, features=FEATURES)
    body = encode_answers({0: FENCED}) + b"x"
    server.answer = lambda frame: encode_reply(frame.op, frame.request_id, body)
    outcomes = Outcomes(client, 2)
    assert await outcomes.codes() == [ErrorCode.INTERNAL] * 2
    assert all(error and error.code.effects is Effects.MAYBE for error in outcomes.found.values())
    await client.close()


async def test_lacs_without_an_answer_may_be_stored(server: ScriptedServer) -> None:
    client = await connected(server, features=FEATURES)
    server.answer = lambda frame: b""
    outcomes = Outcomes(client, 2)
    await server.received(1)
    await client.close()
    assert await outcomes.codes() == [ErrorCode.REQUEST_TIMEOUT] * 2
