"""ZooKeeper only: guards, which tell the creations of a path apart, and what nodes hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest
from kazoo.client import KazooClient

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.port import NO_VERSION, SessionState, Version, Versioned
from fencelog.ledgers.metastore.zookeeper import ZooKeeperMetadataStore
from fencelog.ledgers.metastore.zookeeper_incarnations import GUARDS_PATH, decode_node, with_trailer
from fencelog.ledgers.metastore.zookeeper_wire import RolledBackError, ServerError, Stat
from tests.support.metadata_nodes import later, overwrite, plain, remove
from tests.support.network.zookeeper_proxy import Proxy

pytestmark = pytest.mark.zookeeper

Until = Callable[[Callable[[], bool]], Awaitable[None]]
Plain = Callable[[Callable[[KazooClient], Any]], Awaitable[Any]]


@pytest.fixture
async def store(zookeeper: str, host: Host, root: str) -> AsyncIterator[ZooKeeperMetadataStore]:
    store = ZooKeeperMetadataStore([zookeeper], host=host, root=root)
    await store.start()
    yield store
    await store.close()


@pytest.fixture
def by_hand(zookeeper: str) -> Plain:
    """Does something with a client that knows nothing of guards."""

    def run(request: Callable[[KazooClient], Any]) -> Any:
        client = KazooClient(zookeeper)
        client.start()
        try:
            return request(client)
        finally:
            client.stop()
            client.close()

    async def call(request: Callable[[KazooClient], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, run, request)

    return call


async def code_of(request: Awaitable[object]) -> ErrorCode:
    with pytest.raises(FencelogError) as caught:
        await request
    return caught.value.code


async def guards(store: ZooKeeperMetadataStore) -> list[str]:
    return await store.children(GUARDS_PATH)


def guard_of(*versions: Version) -> list[str]:
    return sorted(f"{version.incarnation:032x}" for version in versions)


# -- guards --------------------------------------------------------------------------------------


async def test_a_guard_comes_and_goes_with_its_node(store: ZooKeeperMetadataStore) -> None:
    assert await guards(store) == []
    one = await store.create("/dir/one", b"")
    two = await store.create("/dir/two", b"")
    assert await guards(store) == guard_of(one, two)
    changed = await store.set("/dir/one", b"1", one)
    changed = await store.set("/dir/one", b"2", changed)
    assert await guards(store) == guard_of(one, two)
    await store.delete("/dir/one", changed)
    assert await guards(store) == guard_of(two)
    again = await store.create("/dir/one", b"")
    assert await guards(store) == guard_of(again, two)
    await store.delete("/dir/one", again)
    await store.delete("/dir/two", two)
    await remove(store, "/dir")
    assert await guards(store) == []


async def test_what_is_refused_leaves_every_guard_as_it_was(store: ZooKeeperMetadataStore) -> None:
    parent = await store.create("/parent", b"")
    child = await store.create("/parent/child", b"")
    me = await store.create("/me", b"", ephemeral=True)
    expected = guard_of(parent, child, me)
    conflict, not_found = ErrorCode.METADATA_CONFLICT, ErrorCode.METADATA_NOT_FOUND
    for request, code in (
        (store.create("/parent", b"x"), ErrorCode.METADATA_EXISTS),
        (store.create("/me/below", b"x"), conflict),
        (store.create("/me/far/below", b"x"), conflict),
        (store.delete("/parent", parent), conflict),
        (store.delete("/parent/child", later(child, 1)), conflict),
        (store.delete("/parent/child", NO_VERSION), conflict),
        (store.set("/parent/child", b"x", later(child, 1)), conflict),
        (store.delete("/none", child), not_found),
        (store.set("/none", b"x", child), not_found),
    ):
        assert await code_of(request) is code
        assert await guards(store) == expected
    for path, version in (("/parent", parent), ("/parent/child", child)):
        assert await store.get(path) == Versioned(b"", version)


async def test_neither_parents_nor_nodes_that_are_created_once_have_a_guard(
    store: ZooKeeperMetadataStore,
) -> None:
    await store.create("/ledgers/0/0001", b"1", once=True)
    await store.create("/ledgers/0/0002", b"2", once=True, ephemeral=True)
    assert await guards(store) == []
    await overwrite(store, "/ledgers/0/0001", b"3")
    await overwrite(store, "/ledgers/0", b"not empty any more")
    assert plain(await store.get("/ledgers/0")) == (b"not empty any more", 1, 0)
    await remove(store, "/ledgers/0/0001")
    await remove(store, "/ledgers/0/0002")
    await remove(store, "/ledgers/0")
    assert await guards(store) == []


async def test_guards_of_ephemeral_nodes_go_when_their_session_closes(
    store: ZooKeeperMetadataStore, zookeeper: str, host: Host, root: str
) -> None:
    other = ZooKeeperMetadataStore([zookeeper], host=host, root=root)
    await other.start()
    mine = await store.create("/dir/mine", b"", ephemeral=True)
    kept = await other.create("/dir/kept", b"")
    theirs = await other.create("/dir/theirs", b"", ephemeral=True)
    assert await guards(store) == guard_of(mine, kept, theirs)
    await other.close()
    assert await store.children("/dir") == ["kept", "mine"]
    assert await guards(store) == guard_of(mine, kept)


async def test_guards_of_ephemeral_nodes_go_when_their_session_expires(
    store: ZooKeeperMetadataStore, zookeeper: str, until: Until
) -> None:
    states: list[SessionState] = []
    store.on_session(states.append)
    await store.create("/me", b"", ephemeral=True)
    identity = store._session._identity

    def take_over_and_close() -> None:
        client = KazooClient(zookeeper, client_id=(identity.session_id, identity.password))
        client.start()
        client.stop()
        client.close()

    await asyncio.get_running_loop().run_in_executor(None, take_over_and_close)
    await until(lambda: states[-2:] == [SessionState.EXPIRED, SessionState.CONNECTED])
    assert await guards(store) == []
    again = await store.create("/me", b"", ephemeral=True)
    assert await guards(store) == guard_of(again)


async def test_a_node_without_its_guard_cannot_be_changed_by_anybody(
    store: ZooKeeperMetadataStore, by_hand: Plain, root: str
) -> None:
    """The node stands for one of the same path, number and value that was created later."""
    version = await store.create("/node", b"")
    await by_hand(lambda client: client.delete(f"{root}{GUARDS_PATH}/{guard_of(version)[0]}"))
    assert await code_of(store.set("/node", b"x", version)) is ErrorCode.METADATA_CONFLICT
    assert await code_of(store.delete("/node", version)) is ErrorCode.METADATA_CONFLICT
    assert await store.get("/node") == Versioned(b"", version)


async def test_the_place_of_the_guards_is_made_again(
    store: ZooKeeperMetadataStore, by_hand: Plain, root: str
) -> None:
    await by_hand(lambda client: client.delete(f"{root}{GUARDS_PATH}"))
    version = await store.create("/deep/node", b"")
    assert await guards(store) == guard_of(version)


# -- lost replies --------------------------------------------------------------------------------


async def test_lost_replies_leave_a_node_and_its_guard_or_neither(
    proxied: ZooKeeperMetadataStore, proxy: Proxy, store: ZooKeeperMetadataStore, until: Until
) -> None:
    seen: list[Versioned | None] = []
    store.watch_value("/node", seen.append)
    await until(lambda: seen == [None])

    async def lose(write: Coroutine[Any, Any, object], landed: Callable[[], bool]) -> None:
        proxy.holds_answers = True
        task = asyncio.create_task(write)
        await until(landed)
        proxy.cut()
        assert await code_of(task) is ErrorCode.METADATA_UNKNOWN
        proxy.holds_answers = False

    await lose(proxied.create("/node", b"1"), lambda: seen[-1] is not None)
    node = await proxied.get("/node")
    assert plain(node) == (b"1", 0, 0)
    assert await guards(proxied) == guard_of(node.version)
    assert await code_of(proxied.create("/node", b"1")) is ErrorCode.METADATA_EXISTS

    changed = later(node.version, 1)
    write = proxied.set("/node", b"2", node.version)
    await lose(write, lambda: seen[-1] == Versioned(b"2", changed))
    assert await proxied.get("/node") == Versioned(b"2", changed)
    again = proxied.set("/node", b"2", node.version)
    assert await code_of(again) is ErrorCode.METADATA_CONFLICT

    await lose(proxied.delete("/node", changed), lambda: seen[-1] is None)
    assert await guards(proxied) == []
    assert await code_of(proxied.get("/node")) is ErrorCode.METADATA_NOT_FOUND
    assert await code_of(proxied.delete("/node", changed)) is ErrorCode.METADATA_NOT_FOUND


@pytest.mark.parametrize("code", [-112, -118, -102])  # session expired, session moved, no rights
async def test_a_transaction_that_is_refused_for_other_reasons_changed_nothing(
    store: ZooKeeperMetadataStore,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
) -> None:
    """The server answers these as the result of one of the operations."""
    version = await store.create("/node", b"")

    async def refuse(what: str, request: object) -> list[ServerError]:
        return [RolledBackError(), ServerError(code)]

    monkeypatch.setattr(store._session, "write", refuse)
    for request in (
        store.create("/other", b""),
        store.set("/node", b"", version),
        store.delete("/node", version),
    ):
        assert await code_of(request) is ErrorCode.METADATA_UNAVAILABLE


# -- what nodes hold -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_once", [False, True])
@pytest.mark.parametrize("value", [b"", b"{}", b"\n@", b"\n@" + b"f" * 32, bytes(range(256))])
async def test_every_value_comes_back_whatever_it_ends_with(
    store: ZooKeeperMetadataStore, by_hand: Plain, root: str, value: bytes, is_once: bool
) -> None:
    version = await store.create("/node", value, once=is_once)
    assert await store.get("/node") == Versioned(value, version)
    changed = await store.set("/node", value, version)
    assert await store.get("/node") == Versioned(value, changed)
    data, _ = await by_hand(lambda client: client.get(f"{root}/node"))
    assert data == with_trailer(value, version.incarnation)
    assert data == value + b"\n@%032x" % version.incarnation


NO_TRAILERS = [
    b"{}",
    b"a value of more than 34 bytes, in which no incarnation is",
    b"\n@",
    b"value\n@" + b"0" * 31,
    b"value\n@" + b"0" * 33,
    b"value\n@" + b"g" * 32,
    b"value\n@" + b" " * 31 + b"1",
    b"value\n@-" + b"1" * 31,
    b"value\n@0x" + b"1" * 30,
    b"value\n@1_1" + b"1" * 29,
    b"value\n@" + b"F" * 32,
    b"value\n@" + b"f" * 32 + b"\n",
]


@pytest.mark.parametrize("data", NO_TRAILERS)
def test_data_without_a_trailer_is_no_node_of_ours(data: bytes) -> None:
    with pytest.raises(FencelogError, match="/node was not written by") as caught:
        decode_node("/node", data, Stat(3, 0))
    assert caught.value.code is ErrorCode.CORRUPT


async def test_what_a_plain_client_wrote_is_corrupt_and_left_alone(
    store: ZooKeeperMetadataStore, by_hand: Plain, root: str
) -> None:
    await store.create("/dir/ours", b"")
    await by_hand(lambda client: client.create(f"{root}/dir/strange", b"{}"))
    assert await store.children("/dir") == ["ours", "strange"]
    assert await code_of(store.get("/dir/strange")) is ErrorCode.CORRUPT
    seen: list[Versioned | None] = []
    watch = store.watch_value("/dir/strange", seen.append)
    await store.get("/dir/ours")
    assert seen == []
    for request in (
        store.set("/dir/strange", b"", NO_VERSION),
        store.delete("/dir/strange", NO_VERSION),
    ):
        assert await code_of(request) is ErrorCode.METADATA_CONFLICT
    assert (await by_hand(lambda client: client.get(f"{root}/dir/strange")))[0] == b"{}"
    watch.close()


async def test_a_node_that_a_plain_client_overwrote_is_corrupt(
    store: ZooKeeperMetadataStore, by_hand: Plain, root: str
) -> None:
    version = await store.create("/node", b"ours")
    await by_hand(lambda client: client.set(f"{root}/node", b"theirs"))
    assert await code_of(store.get("/node")) is ErrorCode.CORRUPT
    assert await code_of(store.set("/node", b"ours", version)) is ErrorCode.METADATA_CONFLICT
    assert await code_of(store.get("/node")) is ErrorCode.CORRUPT
