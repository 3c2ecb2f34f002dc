"""The store in ZooKeeper at a server in memory: what it asks for, and what it makes of answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from pathlib import Path
from struct import pack

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore import watch, zookeeper, zookeeper_session
from fencelog.ledgers.metastore.port import Change, Create, Delete, Set, Version, Versioned
from fencelog.ledgers.metastore.zookeeper import ZooKeeperMetadataStore
from fencelog.ledgers.metastore.zookeeper_credentials import NOBODY, ZooKeeperCredentials
from fencelog.ledgers.metastore.zookeeper_incarnations import GUARDS_PATH, with_trailer
from fencelog.ledgers.metastore.zookeeper_wire import CREATORS_ALONE, OPEN_TO_ALL
from tests.support.network.zookeeper_server import (
    CHILDREN,
    EXISTS,
    GET,
    MULTI,
    Node,
    ZooKeeperServer,
)
from tests.support.until import until

ROOT = "/others/fencelog"
USERS = ZooKeeperCredentials(Path("/users"), (b"ann:her password is long",), CREATORS_ALONE)
NO_RESULTS = pack(">iBi", -1, 1, -1)


@pytest.fixture
async def server() -> AsyncIterator[ZooKeeperServer]:
    server = ZooKeeperServer()
    yield server
    await server.close()


async def started(
    server: ZooKeeperServer, address: str, credentials: ZooKeeperCredentials = USERS
) -> ZooKeeperMetadataStore:
    store = ZooKeeperMetadataStore([address], host=SystemHost(), root=ROOT, credentials=credentials)
    await store.start()
    return store


@pytest.fixture
async def address(server: ZooKeeperServer) -> str:
    return await server.start()


@pytest.fixture
async def store(server: ZooKeeperServer, address: str) -> AsyncIterator[ZooKeeperMetadataStore]:
    store = await started(server, address)
    yield store
    await store.close()


async def refusal(request: Awaitable[object]) -> FencelogError:
    with pytest.raises(FencelogError) as caught:
        await request
    return caught.value


def guards(server: ZooKeeperServer) -> int:
    return sum(path.startswith(f"{ROOT}{GUARDS_PATH}/") for path in server.nodes)


# -- what a node is created with -----------------------------------------------------------------


async def test_every_node_is_for_the_users_and_those_above_the_root_are_for_all(
    server: ZooKeeperServer, store: ZooKeeperMetadataStore
) -> None:
    await store.create("/dir/lasting", b"")
    await store.create("/dir/ephemeral", b"", ephemeral=True)
    await store.create("/dir/once", b"", once=True)
    assert guards(server) == 2
    access = {path: node.access for path, node in server.nodes.items()}
    assert access.pop("/others") == OPEN_TO_ALL
    assert {ROOT, f"{ROOT}/dir", f"{ROOT}/dir/once", ROOT + GUARDS_PATH} < access.keys()
    assert {path for path, each in access.items() if each != CREATORS_ALONE} == set()


async def test_guards_end_as_their_nodes_do(
    server: ZooKeeperServer, store: ZooKeeperMetadataStore, address: str
) -> None:
    other = await started(server, address)
    await other.create("/mine", b"", ephemeral=True)
    version = await store.create("/lasting", b"")
    assert guards(server) == 2
    await other.close()
    assert guards(server) == 1
    await store.delete("/lasting", version)
    assert guards(server) == 0


async def test_access_lists_of_a_whole_ensemble_are_left_alone(
    server: ZooKeeperServer, address: str
) -> None:
    await started(server, address, NOBODY)
    before = list(server.kinds)
    rootless = ZooKeeperMetadataStore([address], host=SystemHost(), credentials=USERS)
    openly = ZooKeeperMetadataStore([address], host=SystemHost(), root=ROOT)
    for store, why in ((rootless, "has no root"), (openly, "no credentials=FILE")):
        error = await refusal(store.protect())
        assert error.code is ErrorCode.BAD_REQUEST
        assert why in error.detail
    assert server.kinds == before


# -- changes -------------------------------------------------------------------------------------


async def test_a_change_is_for_one_version(store: ZooKeeperMetadataStore) -> None:
    first = await store.create("/node", b"1")
    second = await store.set("/node", b"2", first)
    assert second == Version(first.incarnation, 1)
    for late in (store.set("/node", b"3", first), store.delete("/node", first)):
        assert (await refusal(late)).code is ErrorCode.METADATA_CONFLICT
    assert await store.get("/node") == Versioned(b"2", second)


async def test_a_change_is_for_one_creation_of_a_node(store: ZooKeeperMetadataStore) -> None:
    """The number of its version is the same."""
    earlier = await store.create("/node", b"1")
    await store.delete("/node", earlier)
    present = await store.create("/node", b"2")
    assert (earlier.number, present.number) == (0, 0)
    for late in (store.set("/node", b"3", earlier), store.delete("/node", earlier)):
        assert (await refusal(late)).code is ErrorCode.METADATA_CONFLICT
    assert await store.get("/node") == Versioned(b"2", present)
    await store.delete("/node", present)
    assert (await refusal(store.set("/node", b"3", present))).code is ErrorCode.METADATA_NOT_FOUND


async def test_an_ephemeral_node_of_another_session_is_another_creation(
    server: ZooKeeperServer, store: ZooKeeperMetadataStore, address: str
) -> None:
    other = await started(server, address)
    earlier = await other.create("/node", b"1", ephemeral=True)
    await other.close()
    present = await store.create("/node", b"2", ephemeral=True)
    assert (await refusal(store.set("/node", b"3", earlier))).code is ErrorCode.METADATA_CONFLICT
    assert await store.get("/node") == Versioned(b"2", present, store.session_id)


async def test_a_refusal_is_that_of_the_change_which_caused_it(
    server: ZooKeeperServer, store: ZooKeeperMetadataStore
) -> None:
    first = await store.create("/a", b"1")
    second = await store.set("/a", b"2", first)
    last = await store.create("/b", b"1")
    before = dict(server.nodes)
    changes: list[Change] = [Create("/new", b""), Set("/a", b"3", second), Delete("/b", last)]
    late: list[Change] = [Create("/new", b""), Set("/a", b"3", first), Delete("/b", last)]
    error = await refusal(store.commit(late))
    assert error.code is ErrorCode.METADATA_CONFLICT
    assert error.detail.startswith("/a is no longer at version 0 of")
    assert server.nodes == before
    versions = await store.commit(changes)
    assert versions[1:] == [Version(first.incarnation, 2), last]


async def test_a_commit_that_takes_more_than_a_packet_is_not_sent(
    server: ZooKeeperServer, store: ZooKeeperMetadataStore
) -> None:
    """Guards and access lists count as well: the server would end the connection."""
    before = list(server.kinds)
    changes = [Create(f"/dir/{number:04}", bytes(50)) for number in range(8000)]
    error = await refusal(store.commit(changes))
    assert error.code is ErrorCode.BAD_REQUEST
    assert "8000 paths" in error.detail
    assert server.kinds == before
    assert len(server.greetings) == 1


async def test_an_answer_that_says_nothing_of_an_operation_leaves_the_commit_unknown(
    server: ZooKeeperServer, store: ZooKeeperMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = await store.create("/node", b"1")
    monkeypatch.setattr(server, "_transaction", lambda session_id, body: NO_RESULTS)
    error = await refusal(store.set("/node", b"2", version))
    assert error.code is ErrorCode.METADATA_UNKNOWN


async def test_a_node_that_the_server_throttles_is_created_again_after_a_pause(
    server: ZooKeeperServer, address: str
) -> None:
    throttled = -127
    server.refuses = {MULTI: throttled}
    began_s = time.monotonic()
    store = await started(server, address)
    assert time.monotonic() - began_s >= zookeeper._ENSURE_RETRY_S
    assert ROOT in server.nodes
    await store.close()


# -- watches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("not_set", [None, GET, EXISTS, CHILDREN])
async def test_a_watch_sees_a_node_that_is_created_later(
    server: ZooKeeperServer,
    store: ZooKeeperMetadataStore,
    monkeypatch: pytest.MonkeyPatch,
    not_set: int | None,
) -> None:
    """Also where the server has not set it at first: the connection stays, so that nothing else
    would have the watches read again."""
    monkeypatch.setattr(zookeeper_session, "_WATCH_RETRY_S", 0.01)
    throttled = -127
    server.refuses = {} if not_set is None else {not_set: throttled}
    values: list[Versioned | None] = []
    names: list[list[str]] = []
    store.watch_value("/dir/a", values.append)
    store.watch_children("/dir", names.append)
    await until(lambda: values == [None] and names == [[]])
    version = await store.create("/dir/a", b"1")
    await until(lambda: values[1:] == [Versioned(b"1", version)] and names[1:] == [["a"]])


@pytest.mark.parametrize("kind", [GET, EXISTS, CHILDREN])
async def test_a_watch_that_is_refused_is_set_when_access_is_granted(
    server: ZooKeeperServer,
    store: ZooKeeperMetadataStore,
    monkeypatch: pytest.MonkeyPatch,
    kind: int,
) -> None:
    """Nothing is reported then, and the connection stays."""
    monkeypatch.setattr(watch, "REFUSED_RETRY_S", 0.01)
    no_auth = -102
    values: list[Versioned | None] = []
    names: list[list[str]] = []
    if kind == GET:
        await store.create("/dir/a", b"1")
    server.refuses = {kind: no_auth}
    store.watch_value("/dir/a", values.append)
    store.watch_children("/dir", names.append)
    await until(lambda: bool(values and names))
    assert server.refuses == {}
    version = await store.create("/dir/b", b"1")
    await until(lambda: "b" in names[-1])
    store.watch_value("/dir/b", values.append)
    await until(lambda: values[-1] == Versioned(b"1", version))
    assert len(server.greetings) == 1


async def test_a_node_that_is_created_between_the_two_requests_of_a_watch_is_there(
    server: ZooKeeperServer, store: ZooKeeperMetadataStore
) -> None:
    def create(kind: int) -> None:
        if kind == EXISTS:
            server.nodes[f"{ROOT}/a"] = Node(with_trailer(b"1", 7), OPEN_TO_ALL)

    server.before = create
    values: list[Versioned | None] = []
    store.watch_value("/a", values.append)
    await until(lambda: bool(values))
    assert values == [Versioned(b"1", Version(7, 0))]


@pytest.mark.parametrize("is_new", [False, True], ids=["the same session", "a new session"])
async def test_what_changes_while_the_connection_is_lost_is_seen_after_it(
    server: ZooKeeperServer, store: ZooKeeperMetadataStore, is_new: bool
) -> None:
    version = await store.create("/dir/a", b"1")
    values: list[Versioned | None] = []
    names: list[list[str]] = []
    store.watch_value("/dir/a", values.append)
    store.watch_children("/dir", names.append)
    await until(lambda: bool(values and names))
    path = f"{ROOT}/dir/a"
    server.nodes[path] = replace(
        server.nodes[path], data=with_trailer(b"2", version.incarnation), version=1
    )
    server.nodes[f"{ROOT}/dir/b"] = Node(b"", OPEN_TO_ALL)
    await asyncio.sleep(0.01)
    assert (len(values), len(names)) == (1, 1)  # nobody has said so
    (server.expire if is_new else server.cut)()
    await until(lambda: len(values) == len(names) == 2)
    assert values[1] == Versioned(b"2", Version(version.incarnation, 1))
    assert names[1] == ["a", "b"]
