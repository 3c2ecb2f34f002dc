"""The requests of operators to a running bookie, in the same process and over TCP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fencelog.bookie.disk.port import DiskSpace
from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.admin import administer, arguments
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.server.local import LocalBookieClient
from fencelog.bookie.server.server import BookieServer
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.rpc.authentication import SharedSecret
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_port import BookieClient
from tests.support.bookie_stage import OpenBookie, Requests, refusal_of


@pytest.fixture
async def bookie(open_bookie: OpenBookie) -> Bookie:
    opened: Bookie = await open_bookie()
    return opened


@pytest.fixture(params=["local", "tcp"])
async def client(request: pytest.FixtureRequest, bookie: Bookie) -> AsyncIterator[BookieClient]:
    if request.param == "local":
        yield LocalBookieClient(bookie)
        return
    server = await BookieServer.start(bookie, "127.0.0.1", 0)
    client = TcpBookieClient(bookie.bookie_id, server.address)
    yield client
    await client.close()
    await server.close()


async def refused(client: BookieClient, request: dict[str, Any], words: str) -> None:
    with pytest.raises(FencelogError, match=words) as caught:
        await client.admin(request)
    assert caught.value.code is ErrorCode.BAD_REQUEST


async def test_status_says_what_the_bookie_is(
    client: BookieClient, bookie: Bookie, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The disk has other users: what is free changes from one look to the next.
    monkeypatch.setattr(PosixDisk, "space", lambda _disk, _path: DiskSpace(100, 40))
    await requests.add(bookie, requests.run(1, 0))
    await requests.add(bookie, requests.run(2, 0))
    await requests.add(bookie, requests.run(3, 0))
    bookie.fence_forgotten(2)
    await bookie.shard(3).remove(3, deleted=True)
    bookie.status_parts["gc"] = lambda: {"runs": 4}
    status = await client.admin({"do": "status"})
    assert status.pop("free_bytes") == 40
    directories = status.pop("directories")
    assert [each.pop("holds") for each in directories] == [["identity", "ledgers"], ["journal"]]
    assert directories[1].pop("path") == directories[0].pop("path") + "/journal"
    assert directories == [{"free_bytes": 40, "total_bytes": 100}] * 2
    assert abs(status.pop("now_us") - SystemHost().now_us()) < 60_000_000
    assert status == {
        "bookie_id": bookie.bookie_id,
        "incarnation": bookie.incarnation,
        "shards": len(bookie.shards),
        "read_only": False,
        "read_only_for": [],
        "read_only_since_us": None,
        "ledgers": 2,
        "ledgers_in_limbo": 1,
        "ledgers_of_others": 0,
        "gc": {"runs": 4},
    }


async def test_an_operator_makes_a_bookie_read_only_and_takes_it_back(
    client: BookieClient, bookie: Bookie, requests: Requests
) -> None:
    told: list[bool] = []
    bookie.on_read_only[lambda: told.append(bookie.is_read_only)] = None
    for on in (True, True, False):
        reply = await client.admin({"do": "read_only", "on": on})
        assert reply == {"read_only": on, "read_only_for": ["operator"] if on else []}
        error = await requests.add(bookie, requests.run(1, len(told)))
        assert (error is not None and error.code is ErrorCode.READ_ONLY) == on
    assert told == [True, False]


async def test_an_operator_does_not_overrule_a_full_disk(
    client: BookieClient, bookie: Bookie, requests: Requests
) -> None:
    bookie.set_read_only("disk", True)
    for on, reasons in ((True, ["disk", "operator"]), (False, ["disk"])):
        reply = await client.admin({"do": "read_only", "on": on})
        assert reply == {"read_only": True, "read_only_for": reasons}
        refused = await requests.add(bookie, requests.run(1, 0))
        assert refusal_of(refused) is ErrorCode.READ_ONLY


async def test_parts_of_a_bookie_add_their_verbs(client: BookieClient, bookie: Bookie) -> None:
    async def gc(given: dict[str, Any]) -> dict[str, Any]:
        arguments(given, {}, {"threshold": float})
        return {"begun": True, **given}

    bookie.admin["gc"] = gc
    assert await client.admin({"do": "gc"}) == {"begun": True}
    assert await client.admin({"do": "gc", "threshold": 0.25}) == {"begun": True, "threshold": 0.25}
    await refused(client, {"do": "gc", "limit": 1}, "'limit'")


async def test_what_is_not_known_is_named(client: BookieClient, bookie: Bookie) -> None:
    await refused(client, {"do": "format"}, "'format'.*read_only, status")
    await refused(client, {}, "None")
    await refused(client, {"do": ["status"]}, r"\['status'\]")
    await refused(client, {"do": "read_only"}, "'on' is missing")
    await refused(client, {"do": "read_only", "on": 1}, "'on' is to be of type bool")
    await refused(client, {"do": "status", "on": True}, "'on' is no argument")
    assert not bookie.is_read_only


@pytest.mark.parametrize(
    ("kind", "fitting", "others"),
    [
        (bool, [True], [0, "x", None]),
        (int, [0, -5], [True, 1.0, "1"]),
        (float, [0.5, 1], [True, "0.5", None]),
        (str, [""], [1, None, []]),
    ],
)
def test_arguments_have_the_type_that_they_are_to_have(
    kind: type, fitting: list[Any], others: list[Any]
) -> None:
    for value in fitting:
        arguments({"x": value}, {"x": kind})
        arguments({"x": value}, {}, {"x": kind})
    for value in others:
        with pytest.raises(FencelogError, match=f"'x' is to be of type {kind.__name__}"):
            arguments({"x": value}, {}, {"x": kind})


async def test_a_verb_does_not_get_its_own_name() -> None:
    async def echo(given: dict[str, Any]) -> dict[str, Any]:
        return given

    request = {"do": "echo", "a": 1}
    assert await administer({"echo": echo}, request) == {"a": 1}
    assert request == {"do": "echo", "a": 1}


async def test_with_a_secret_operators_need_it_too(bookie: Bookie) -> None:
    secret = SharedSecret(b"correct horse battery staple", host=SystemHost())
    server = await BookieServer.start(bookie, "127.0.0.1", 0, authenticator=secret)
    for credentials in (None, secret):
        client = TcpBookieClient(bookie.bookie_id, server.address, credentials=credentials)
        asked = asyncio.gather(
            client.admin({"do": "read_only", "on": True}),
            client.list_entries(1),
            return_exceptions=True,
        )
        codes = [getattr(answer, "code", answer) for answer in await asked]
        assert codes == (
            [{"read_only": True, "read_only_for": ["operator"]}, ErrorCode.NO_SUCH_LEDGER]
            if credentials
            else [ErrorCode.UNAUTHORIZED] * 2
        )
        assert bookie.is_read_only == bool(credentials)
        await client.close()
    await server.close()
