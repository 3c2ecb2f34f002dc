"""Runs of many ledgers in one request: each answered once, by itself, also by an older bookie."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.server.handshake import ServerHandshake
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.format.request_context import RequestContext
from fencelog.ledgers.format.run import Run, build_run, read_run
from fencelog.ledgers.limits import KIB, MAX_ADDS_AT_ONCE, MAX_ADDS_BYTES
from fencelog.ledgers.rpc.adds import (
    PendingAdds,
    decode_adds,
    encode_added,
    encode_adds,
    split_adds,
)
from fencelog.ledgers.rpc.answers import encode_answers
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_port import AddToken
from fencelog.ledgers.rpc.handshake import CONTEXTS, FEATURES
from fencelog.ledgers.rpc.wire import Flag, Frame, Op, encode_error, encode_reply
from tests.support.network.scripted_server import ScriptedServer
from tests.support.until import until

FENCED = FencelogError(ErrorCode.LEDGER_FENCED, "ledger 7 is fenced here")
FULL = FencelogError(ErrorCode.READ_ONLY, "the bookie is read-only")
TRACED = (RequestContext("order-7"),)


def run(ledger_id: int, size: int = 10) -> Run:
    return read_run(build_run(ledger_id, 0, [b"x" * size], lac=-1, length_before=0))


# -- bytes -----------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=9), st.booleans())
def test_a_request_is_read_as_it_was_written(ledgers: list[int], contexts: bool) -> None:
    runs = [run(ledger_id, size) for size, ledger_id in enumerate(ledgers)]
    if contexts:
        runs[0] = runs[0]._replace(contexts=TRACED)
    assert decode_adds(encode_adds(runs, contexts=contexts), contexts=contexts) == runs


def test_golden_bodies() -> None:
    runs = [run(1), run(2)._replace(contexts=TRACED)]
    assert encode_adds(runs, contexts=False) == runs[0].data + runs[1].data
    with_contexts = bytes.fromhex("0100000090"), bytes.fromhex("0b0000009192")
    assert encode_adds(runs, contexts=True) == (
        with_contexts[0] + runs[0].data + with_contexts[1] + b"\xa7order-7\xa0" + runs[1].data
    )
    assert encode_added([0, 1, 2], None, 3).hex() == "03000000"
    assert encode_added([2, 0], None, 3).hex() == "02000000" + "00000000000000000200000000000000"
    fenced = FencelogError(ErrorCode.LEDGER_FENCED, "x")
    assert encode_added([1], fenced, 3).hex() == "01000000" + "010000000c00010078"


WRONG_REQUESTS = {
    "nothing": b"",
    "cut short": run(1).data + run(2).data[:-1],
    "cut in a header": run(1).data + run(2).data[:7],
    "garbled": run(1).data + run(2).data[:-1] + b"\xff",
    "too many": run(1).data * (MAX_ADDS_AT_ONCE + 1),
}


@pytest.mark.parametrize("body", WRONG_REQUESTS.values(), ids=WRONG_REQUESTS)
def test_what_is_no_list_of_runs_is_no_request(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_adds(body, contexts=False)
    assert len(decode_adds(run(1).data * MAX_ADDS_AT_ONCE, contexts=False)) == MAX_ADDS_AT_ONCE


@pytest.mark.parametrize("body", [b"\x01", b"\x09\x00\x00\x00\x90", b"\x01\x00\x00\x00\xc1"])
def test_contexts_that_do_not_fit_are_no_request(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_adds(body, contexts=True)


SIZES = st.lists(st.sampled_from([10, 30 * KIB, 70 * KIB, 300 * KIB]), min_size=1, max_size=30)


@given(SIZES)
def test_requests_are_limited_and_hold_all_runs_in_order(sizes: list[int]) -> None:
    runs = [run(number, size) for number, size in enumerate(sizes)]
    cuts = list(split_adds(runs))
    assert [run for begin, end in cuts for run in runs[begin:end]] == runs
    for begin, end in cuts:
        size = sum(len(run.data) for run in runs[begin:end])
        assert end - begin == 1 or (end - begin > 1 and size <= MAX_ADDS_BYTES)
    for (begin, end), (_, following) in pairwise(cuts):
        assert following > end  # no request is empty, and each is as large as it may be
        assert sum(len(run.data) for run in runs[begin : end + 1]) > MAX_ADDS_BYTES


def test_no_run_is_no_request() -> None:
    assert list(split_adds([])) == []


def test_so_many_small_runs_are_several_requests() -> None:
    cuts = list(split_adds([run(1, 1)] * (2 * MAX_ADDS_AT_ONCE + 1)))
    assert [end - begin for begin, end in cuts] == [MAX_ADDS_AT_ONCE, MAX_ADDS_AT_ONCE, 1]


# -- answers ---------------------------------------------------------------------------------------


class Told:
    """What the callback of adds was told, each token once."""

    def __init__(self) -> None:
        self.found: dict[AddToken, ErrorCode | None] = {}
        self.errors: list[FencelogError] = []

    def __call__(self, tokens: Sequence[AddToken], error: FencelogError | None) -> None:
        assert tokens
        assert not self.found.keys() & set(tokens)
        self.found |= dict.fromkeys(tokens, None if error is None else error.code)
        if error is not None:
            self.errors.append(error)


def pending(count: int = 3) -> tuple[PendingAdds, Told]:
    told = Told()
    return PendingAdds("abcdefgh"[:count], told, "b1"), told


def test_one_reply_answers_all() -> None:
    adds, told = pending()
    adds.take(encode_added([0, 1, 2], None, 3), is_last=True)
    assert told.found == {"a": None, "b": None, "c": None}


def test_one_reply_refuses_all() -> None:
    adds, told = pending()
    adds.take(encode_added([0, 1, 2], FENCED, 3), is_last=True)
    assert told.found == dict.fromkeys("abc", ErrorCode.LEDGER_FENCED)


def test_each_reply_answers_its_runs() -> None:
    adds, told = pending()
    adds.take(encode_added([1], FENCED, 3), is_last=False)
    assert told.found == {"b": ErrorCode.LEDGER_FENCED}
    assert told.errors[0].detail == "bookie b1: ledger 7 is fenced here"
    adds.take(encode_added([2, 0], None, 3), is_last=True)
    assert told.found == {"a": None, "b": ErrorCode.LEDGER_FENCED, "c": None}


def test_those_that_were_not_answered_fail_with_the_request() -> None:
    adds, told = pending()
    adds.take(encode_added([1], None, 3), is_last=False)
    adds.fail(FULL)
    assert told.found == {"a": ErrorCode.READ_ONLY, "b": None, "c": ErrorCode.READ_ONLY}
    adds.fail(FENCED)
    assert len(told.found) == 3


ALL_OF_THREE = encode_added([0, 1, 2], None, 3)
MISFITS: dict[str, tuple[bytes, bool]] = {
    "all, but more follow": (ALL_OF_THREE, False),
    "fewer, but no more follow": (encode_added([1], None, 3), True),
    "of another request": (encode_added([0, 1], None, 2), True),
    "a place that was not asked": (encode_added([3], None, 4), False),
    "a number without places": (bytes.fromhex("02000000"), False),
    "none": (bytes(4), False),
    "another number": (bytes.fromhex("02000000") + encode_answers({0: None}), False),
    "cut short": (encode_added([0], FENCED, 3)[:-1], False),
    "a text of a durable run": (bytes.fromhex("01000000000000000000010078"), False),
}


@pytest.mark.parametrize(("body", "is_last"), MISFITS.values(), ids=MISFITS)
def test_after_a_reply_that_does_not_fit_all_of_them_may_be_stored(
    body: bytes, is_last: bool
) -> None:
    adds, told = pending()
    adds.take(body, is_last=is_last)
    assert told.found == dict.fromkeys("abc", ErrorCode.INTERNAL)
    assert told.errors[0].code.effects is Effects.MAYBE
    adds.take(ALL_OF_THREE, is_last=True)  # nothing that follows is believed
    adds.fail(FULL)
    assert told.found == dict.fromkeys("abc", ErrorCode.INTERNAL)


@pytest.mark.parametrize("again", [encode_added([1], None, 3), ALL_OF_THREE])
def test_a_run_that_is_answered_again_ends_the_others(again: bytes) -> None:
    adds, told = pending()
    adds.take(encode_added([1], FENCED, 3), is_last=False)
    adds.take(again, is_last=again is ALL_OF_THREE)
    outcomes = {"a": ErrorCode.INTERNAL, "b": ErrorCode.LEDGER_FENCED, "c": ErrorCode.INTERNAL}
    assert told.found == outcomes


REPLIES = st.one_of(
    st.builds(
        encode_added,
        st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True),
        st.sampled_from([None, FENCED]),
        st.integers(1, 4),
    ),
    st.binary(min_size=4, max_size=40),
)


@given(st.integers(1, 4), st.lists(st.tuples(REPLIES, st.booleans()), max_size=6))
def test_whatever_a_bookie_replies_each_run_has_one_answer(
    count: int, replies: list[tuple[bytes, bool]]
) -> None:
    adds, told = pending(count)
    durable: set[str] = set()
    for body, is_last in replies:
        before = set(told.found)
        adds.take(body, is_last=is_last)
        durable |= {token for token in told.found.keys() - before if told.found[token] is None}
        if is_last:
            assert len(told.found) == count
    adds.fail(FULL)
    assert set(told.found) == set("abcdefgh"[:count])
    assert {token for token, code in told.found.items() if code is None} == durable


# -- the client ------------------------------------------------------------------------------------


class Adds:
    """One call of ``add_many``, and its outcomes."""

    def __init__(
        self, client: TcpBookieClient, runs: Sequence[Run], incarnation: str = "1"
    ) -> None:
        self.told = Told()
        self._count = len(runs)
        self._all = asyncio.Event()
        client.add_many(runs, range(len(runs)), incarnation=incarnation, on_replies=self._note)
        assert not self.told.found  # never from within the call

    def _note(self, tokens: Sequence[AddToken], error: FencelogError | None) -> None:
        self.told(tokens, error)
        if len(self.told.found) == self._count:
            self._all.set()

    async def codes(self) -> list[ErrorCode | None]:
        async with asyncio.timeout(10):
            await self._all.wait()
        return [self.told.found[place] for place in range(self._count)]


async def connected(
    server: ScriptedServer, *, features: frozenset[str] = FEATURES
) -> TcpBookieClient:
    """Return a client that has agreed on its features with the bookie."""
    server.handshake = ServerHandshake("b1", "1", features=features)
    client = TcpBookieClient("b1", await server.start())
    assert await Adds(client, [run(1)]).codes() == [None]
    server.frames.clear()
    return client


def parts(frame: Frame) -> bytes:
    """Refuse the second run, then store the others."""
    refused = encode_reply(frame.op, frame.request_id, encode_added([1], FENCED, 3), Flag.MORE)
    return refused + encode_reply(frame.op, frame.request_id, encode_added([0, 2], None, 3))


async def test_the_runs_of_a_call_are_one_request_and_each_has_its_answer(
    server: ScriptedServer,
) -> None:
    client = await connected(server)
    server.answer = parts
    runs = [run(1), run(7), run(3)]
    assert await Adds(client, runs).codes() == [None, ErrorCode.LEDGER_FENCED, None]
    assert [(frame.op, frame.flags) for frame in server.frames] == [(Op.ADD_MANY, Flag.NONE)]
    assert decode_adds(server.frames[0].body, contexts=False) == runs
    await client.close()


async def test_the_runs_of_a_call_are_for_one_incarnation(server: ScriptedServer) -> None:
    client = await connected(server)
    adds = Adds(client, [run(1), run(2)], incarnation="2")
    assert await adds.codes() == [ErrorCode.WRONG_INCARNATION] * 2
    assert server.frames == []
    await client.close()


async def test_one_run_is_an_add(server: ScriptedServer) -> None:
    client = await connected(server)
    assert await Adds(client, [run(1)]).codes() == [None]
    assert [frame.op for frame in server.frames] == [Op.ADD]
    await client.close()


async def test_large_runs_are_requests_of_their_own_in_the_order_of_all(
    server: ScriptedServer,
) -> None:
    client = await connected(server)
    runs = [run(1), run(1), run(1, MAX_ADDS_BYTES), run(1), run(2)]

    def answer(frame: Frame) -> bytes:
        body = encode_added([0, 1], None, 2) if frame.op == Op.ADD_MANY else b""
        return encode_reply(frame.op, frame.request_id, body)

    server.answer = answer
    assert await Adds(client, runs).codes() == [None] * 5
    assert [frame.op for frame in server.frames] == [Op.ADD_MANY, Op.ADD, Op.ADD_MANY]
    assert b"".join(frame.body for frame in server.frames) == b"".join(run.data for run in runs)
    await client.close()


@pytest.mark.parametrize("are_known", [True, False])
async def test_contexts_go_with_their_runs_where_the_bookie_takes_them(
    server: ScriptedServer, are_known: bool
) -> None:
    features = FEATURES if are_known else FEATURES - {CONTEXTS}
    client = await connected(server, features=features)
    server.answer = parts
    runs = [run(1), run(7)._replace(contexts=TRACED), run(3)]
    await Adds(client, runs).codes()
    assert [frame.flags for frame in server.frames] == [Flag.CONTEXTS if are_known else Flag.NONE]
    received = decode_adds(server.frames[0].body, contexts=are_known)
    assert received == (runs if are_known else [each._replace(contexts=()) for each in runs])
    await client.close()


async def test_an_older_bookie_gets_each_run_by_itself(server: ScriptedServer) -> None:
    """It would end the connection upon a request that it does not know."""
    client = await connected(server, features=FEATURES - {"add_many"})
    runs = [run(1), run(7), run(3)]

    def answer(frame: Frame) -> bytes:
        if frame.body == runs[1].data:
            return encode_error(frame.op, frame.request_id, FENCED.code, FENCED.detail)
        return encode_reply(frame.op, frame.request_id)

    server.answer = answer
    assert await Adds(client, runs).codes() == [None, ErrorCode.LEDGER_FENCED, None]
    assert [frame.op for frame in server.frames] == [Op.ADD] * 3
    assert [frame.body for frame in server.frames] == [each.data for each in runs]
    await client.close()


async def test_runs_that_wait_for_the_connection_suit_any_bookie(server: ScriptedServer) -> None:
    """What it knows is not known yet."""
    server.handshake = ServerHandshake("b1", "1")
    client = TcpBookieClient("b1", await server.start())
    assert await Adds(client, [run(1), run(2)]).codes() == [None, None]
    assert [frame.op for frame in server.frames] == [Op.ADD] * 2
    await client.close()


async def test_a_refusal_of_the_request_is_the_answer_to_every_run(server: ScriptedServer) -> None:
    client = await connected(server)
    server.answer = lambda frame: encode_error(frame.op, frame.request_id, FULL.code, "full")
    assert await Adds(client, [run(1), run(2)]).codes() == [ErrorCode.READ_ONLY] * 2
    await client.close()


async def test_runs_without_an_answer_may_be_stored_and_others_keep_theirs(
    server: ScriptedServer,
) -> None:
    client = await connected(server)
    server.answer = lambda frame: parts(frame)[:-1]
    adds = Adds(client, [run(1), run(7), run(3)])
    await server.received(1)
    await until(lambda: bool(adds.told.found))
    await client.close()
    assert await adds.codes() == [
        *(ErrorCode.REQUEST_TIMEOUT, ErrorCode.LEDGER_FENCED, ErrorCode.REQUEST_TIMEOUT)
    ]


async def test_no_other_request_has_several_replies(server: ScriptedServer) -> None:
    client = await connected(server)
    server.answer = lambda frame: encode_reply(frame.op, frame.request_id, b"", Flag.MORE)
    assert await Adds(client, [run(1)]).codes() == [ErrorCode.REQUEST_TIMEOUT]
    await client.close()


async def test_an_error_is_the_last_reply(server: ScriptedServer) -> None:
    client = await connected(server)

    def answer(frame: Frame) -> bytes:
        error = bytearray(encode_error(frame.op, frame.request_id, FULL.code, "full"))
        error[5] = Flag.MORE
        return bytes(error)

    server.answer = answer
    assert await Adds(client, [run(1), run(2)]).codes() == [ErrorCode.REQUEST_TIMEOUT] * 2
    await client.close()
