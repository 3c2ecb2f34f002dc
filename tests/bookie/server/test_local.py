"""Many adds, or LACs, at once, by each way to a bookie: every token is answered once, with its
outcome."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial

import pytest

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.server.handshake import ServerHandshake
from fencelog.bookie.server.local import LocalBookieClient
from fencelog.bookie.server.server import BookieServer
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.request_context import RequestContext
from fencelog.ledgers.format.run import Run, read_run
from fencelog.ledgers.rpc import handshake
from fencelog.ledgers.rpc.absent_bookie import AbsentBookie
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_port import AddToken, BookieClient, LedgerLac
from tests.support.bookie_stage import Answers, OpenBookie, Requests, refusal_of


@pytest.fixture(params=["embedded", "tcp"])
async def client(
    request: pytest.FixtureRequest, open_bookie: OpenBookie
) -> AsyncIterator[tuple[BookieClient, Bookie]]:
    bookie = await open_bookie()
    if request.param == "embedded":
        yield LocalBookieClient(bookie), bookie
        return
    server = await BookieServer.start(bookie, "127.0.0.1", 0)
    tcp = TcpBookieClient(bookie.bookie_id, server.address)
    yield tcp, bookie
    await tcp.close()
    await server.close()


async def outcomes(
    client: BookieClient, runs: list[Run], incarnation: str | None
) -> dict[AddToken, ErrorCode | None]:
    """Add them all, the tokens being their places, and return each one's outcome."""
    answers: dict[AddToken, ErrorCode | None] = {}
    done = asyncio.Event()

    def on_replies(tokens: Sequence[AddToken], error: FencelogError | None) -> None:
        assert not any(token in answers for token in tokens)
        answers.update(dict.fromkeys(tokens, refusal_of(error)))
        if len(answers) == len(runs):
            done.set()

    client.add_many(runs, range(len(runs)), incarnation=incarnation, on_replies=on_replies)
    assert not answers  # never from within the call
    async with asyncio.timeout(20):
        await done.wait()
    return answers


async def test_the_requests_of_an_add_are_named_in_the_log(
    client: tuple[BookieClient, Bookie], requests: Requests, caplog: pytest.LogCaptureFixture
) -> None:
    port, bookie = client
    incarnation = bookie.incarnation
    await outcomes(port, [read_run(requests.run(9, 0))], incarnation)  # it is connected now
    caplog.set_level(logging.DEBUG, "fencelog.bookie.server")
    contexts = RequestContext("one"), RequestContext("two")
    bookie.fence(2)
    runs = [
        read_run(requests.run(1, 0)),
        read_run(requests.run(1, 1))._replace(contexts=contexts),
        read_run(requests.run(2, 0))._replace(contexts=contexts[:1]),
    ]
    assert await outcomes(port, runs, incarnation) == {
        **dict.fromkeys((0, 1)),
        2: ErrorCode.LEDGER_FENCED,
    }
    named = [
        (line.levelname, line.request_id, line.ledger_id, line.entry_id, line.bookie_id)  # type: ignore[attr-defined]  # fields of the call
        for line in caplog.records
    ]
    name = bookie.bookie_id
    assert sorted(named) == [
        ("DEBUG", "one", 1, 1, name),
        ("DEBUG", "two", 1, 1, name),
        ("WARNING", "one", 2, 0, name),
    ]


async def test_an_older_bookie_gets_adds_without_their_requests(
    open_bookie: OpenBookie, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would end the connection upon a flag that it does not know."""
    known = frozenset(handshake.FEATURES - {handshake.CONTEXTS})
    monkeypatch.setattr(
        "fencelog.bookie.server.connection.ServerHandshake",
        partial(ServerHandshake, features=known),
    )
    bookie = await open_bookie()
    server = await BookieServer.start(bookie, "127.0.0.1", 0)
    tcp = TcpBookieClient(bookie.bookie_id, server.address)
    context = (RequestContext("one"),)
    for entry in range(2):
        run = read_run(requests.run(1, entry))._replace(contexts=context)
        assert await outcomes(tcp, [run], bookie.incarnation) == {0: None}
    await tcp.close()
    await server.close()


async def test_each_of_many_adds_ends_by_itself(
    client: tuple[BookieClient, Bookie], requests: Requests
) -> None:
    port, bookie = client
    await bookie.read_lac(2, fence=True)
    places = [(1, 0), (2, 0), (3, 0), (1, 1), (3, 1), (2, 1), (1, 2)]
    runs = [read_run(requests.run(ledger_id, first)) for ledger_id, first in places]
    answers = await outcomes(port, runs, bookie.incarnation)
    fenced = ErrorCode.LEDGER_FENCED
    assert answers == {0: None, 1: fenced, 2: None, 3: None, 4: None, 5: fenced, 6: None}
    assert await requests.read(bookie, 1, 0) == requests.run(1, 0, 3)
    assert await requests.read(bookie, 3, 0) == requests.run(3, 0, 2)


async def test_many_adds_for_another_incarnation_are_all_refused(
    client: tuple[BookieClient, Bookie], requests: Requests
) -> None:
    port, bookie = client
    runs = [read_run(requests.run(1, first)) for first in range(3)]
    answers = await outcomes(port, runs, "another")
    assert Counter(answers.values()) == {ErrorCode.WRONG_INCARNATION: 3}
    with pytest.raises(FencelogError) as caught:
        await bookie.read(1, 0, max_entries=1, max_bytes=1 << 20)
    assert caught.value.code is ErrorCode.NO_SUCH_LEDGER


async def test_many_adds_to_an_absent_bookie_are_certainly_not_sent(requests: Requests) -> None:
    runs = [read_run(requests.run(1, first)) for first in range(3)]
    answers = await outcomes(AbsentBookie("b1"), runs, None)
    assert Counter(answers.values()) == {ErrorCode.BOOKIE_UNAVAILABLE: 3}


# -- LACs ------------------------------------------------------------------------------------------


async def lac_outcomes(
    client: BookieClient, lacs: Sequence[LedgerLac], incarnation: str | None
) -> list[ErrorCode | None]:
    answers = Answers(len(lacs))
    client.write_lacs(lacs, range(len(lacs)), incarnation=incarnation, on_replies=answers.take)
    return [refusal_of(error) for error in await answers.all()]


async def test_each_of_many_lacs_ends_by_itself(
    client: tuple[BookieClient, Bookie], requests: Requests
) -> None:
    port, bookie = client
    for ledger_id in range(1, 5):
        await requests.add(bookie, requests.run(ledger_id, 0, 5))
    assert await lac_outcomes(port, [(4, 1)], bookie.incarnation) == [None]  # it is connected now
    bookie.fence(2)
    lacs = [(1, 4), (2, 4), (9, 4), (3, 2), (4, 3), (3, -1)]
    assert await lac_outcomes(port, lacs, bookie.incarnation) == [
        None,
        ErrorCode.LEDGER_FENCED,
        ErrorCode.NO_SUCH_LEDGER,
        None,
        None,
        ErrorCode.BAD_REQUEST,
    ]
    assert [await bookie.read_lac(ledger_id) for ledger_id in range(1, 5)] == [4, -1, 2, 3]
    assert await lac_outcomes(port, [(1, -1), (2, 4)], bookie.incarnation) == [
        ErrorCode.BAD_REQUEST,
        ErrorCode.LEDGER_FENCED,
    ]


async def test_many_lacs_for_another_incarnation_are_all_refused(
    client: tuple[BookieClient, Bookie], requests: Requests
) -> None:
    port, bookie = client
    await requests.add(bookie, requests.run(1, 0, 5))
    lacs = [(1, 0), (1, 1), (1, 2)]
    for _ in range(2):  # connected, or not
        found = await lac_outcomes(port, lacs, "another")
        assert found == [ErrorCode.WRONG_INCARNATION] * 3
    assert await bookie.read_lac(1) == -1
    assert await lac_outcomes(AbsentBookie("b1"), lacs, None) == [ErrorCode.BOOKIE_UNAVAILABLE] * 3


async def test_a_bookie_that_stops_says_so_to_many_lacs(
    client: tuple[BookieClient, Bookie], requests: Requests
) -> None:
    port, bookie = client
    await requests.add(bookie, requests.run(1, 0, 5))
    assert await lac_outcomes(port, [(1, 0)], bookie.incarnation) == [None]
    for shard in bookie.shards:
        shard.refuse(FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "it stops"))
    found = await lac_outcomes(port, [(1, 1), (2, 1)], bookie.incarnation)
    assert found == [ErrorCode.BOOKIE_UNAVAILABLE] * 2
