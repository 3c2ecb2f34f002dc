"""The adds of the TCP client: each acknowledged by its own answer, each for one incarnation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from fencelog.bookie.server.handshake import ServerHandshake
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import Run, build_run, read_run_header
from fencelog.ledgers.limits import MIB
from fencelog.ledgers.rpc import bookie_link
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_port import AddToken
from fencelog.ledgers.rpc.wire import Flag, Op, encode_reply
from tests.support.network.scripted_server import ScriptedServer
from tests.support.until import until

Outcome = FencelogError | None


def run(first_entry: int) -> Run:
    data = build_run(1, first_entry, [b"x"], lac=-1, length_before=0)
    return Run(read_run_header(data), -1, data)


async def test_an_answer_acknowledges_its_own_add_and_no_other(server: ScriptedServer) -> None:
    """Adds that leave together are answered one by one."""
    server.answer = lambda frame: b""
    client = TcpBookieClient("b1", await server.start())
    outcomes: dict[AddToken, Outcome] = {}

    def note(tokens: Sequence[AddToken], outcome: Outcome) -> None:
        outcomes.update(dict.fromkeys(tokens, outcome))

    tokens = [cast("AddToken", number) for number in range(3)]
    runs = [run(number) for number in range(3)]
    client.add_many(runs, tokens, incarnation=None, on_replies=note)
    await server.received(3)
    assert [frame.body for frame in server.frames] == [each.data for each in runs]
    server.writers[-1].write(encode_reply(Op.ADD, server.frames[1].request_id))
    await until(lambda: bool(outcomes))
    assert outcomes == {tokens[1]: None}
    await client.close()
    lost = {token: outcome for token, outcome in outcomes.items() if outcome is not None}
    assert {token: outcome.code for token, outcome in lost.items()} == dict.fromkeys(
        (tokens[0], tokens[2]), ErrorCode.REQUEST_TIMEOUT
    )


Send = Callable[[TcpBookieClient, "asyncio.Future[Outcome]"], None]

ADDS: dict[str, Send] = {
    "adds": lambda client, done: client.add_many(
        [run(0)],
        [cast("AddToken", 0)],
        incarnation="2",
        on_replies=lambda tokens, outcome: done.set_result(outcome),
    ),
    "add": lambda client, done: client.add(
        run(0).data, recovery=True, incarnation="2", on_reply=done.set_result
    ),
    "LAC": lambda client, done: client.write_lacs(
        [(1, 7)],
        [cast("AddToken", 0)],
        incarnation="2",
        on_replies=lambda tokens, outcome: done.set_result(outcome),
    ),
    "LACs": lambda client, done: client.write_lacs(
        [(1, 7), (2, 7)],
        [cast("AddToken", 0), cast("AddToken", 1)],
        incarnation="2",
        on_replies=lambda tokens, outcome: done.set_result(outcome) if 1 in tokens else None,
    ),
}


@pytest.mark.parametrize("kind", ADDS)
async def test_what_is_written_is_for_one_incarnation(server: ScriptedServer, kind: str) -> None:
    """Before the connection is there, and after."""
    server.handshake = ServerHandshake("b1", "1")
    client = TcpBookieClient("b1", await server.start())
    for _ in range(2):
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        ADDS[kind](client, done)
        outcome = await done
        assert outcome is not None
        assert outcome.code is ErrorCode.WRONG_INCARNATION
    assert server.frames == []
    await client.close()


async def test_the_entries_of_one_incarnation_are_listed(server: ScriptedServer) -> None:
    server.handshake = ServerHandshake("b1", "1")
    client = TcpBookieClient("b1", await server.start())
    with pytest.raises(FencelogError) as caught:
        await client.list_entries(1, incarnation="2")
    assert caught.value.code is ErrorCode.WRONG_INCARNATION
    assert server.frames == []
    await client.close()


async def test_what_waits_in_a_connection_is_bounded(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bookie that does not read: the network takes some of it, and the rest stays here."""
    monkeypatch.setattr(bookie_link, "WRITER_MAX_PENDING_BYTES", 8 * MIB)
    client = TcpBookieClient("b1", await server.start())
    outcomes: list[Outcome] = []
    client.add(run(0).data, recovery=False, incarnation=None, on_reply=outcomes.append)
    await until(lambda: outcomes == [None])
    cast("asyncio.ReadTransport", server.writers[-1].transport).pause_reading()
    outcomes.clear()
    for _ in range(20):
        client.add(bytes(4 * MIB), recovery=False, incarnation=None, on_reply=outcomes.append)
    await asyncio.sleep(0)
    await client.close()
    codes = [outcome.code for outcome in outcomes if outcome is not None]
    sent = codes.count(ErrorCode.REQUEST_TIMEOUT)
    assert 3 <= sent <= 10
    assert codes.count(ErrorCode.OVERLOADED) == 20 - sent


async def test_the_adds_of_a_recovery_are_flagged(server: ScriptedServer) -> None:
    client = TcpBookieClient("b1", await server.start())
    for recovery in (True, False):
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        client.add(run(0).data, recovery=recovery, incarnation="1", on_reply=done.set_result)
        assert await done is None
    assert [frame.flags for frame in server.frames] == [Flag.RECOVERY, Flag.NONE]
    await client.close()
