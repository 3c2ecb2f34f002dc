"""ZooKeeper only: lost connections, lost replies, killed servers and expired sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from fencelog.api.local_cluster.zookeeper import DevelopmentZooKeeper
from fencelog.api.processes.lifecycle import run_on_uvloop
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.open import open_metadata_store
from fencelog.ledgers.metastore.port import SessionState, Versioned
from fencelog.ledgers.metastore.registration import Registration
from fencelog.ledgers.metastore.zookeeper import ZooKeeperMetadataStore
from fencelog.ledgers.metastore.zookeeper_session import START_TIMEOUT_MS
from tests.support.metadata_nodes import later, overwrite, plain, remove
from tests.support.network.zookeeper_proxy import Proxy

pytestmark = pytest.mark.zookeeper

Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture
async def store(zookeeper: str, host: Host, root: str) -> AsyncIterator[ZooKeeperMetadataStore]:
    store = ZooKeeperMetadataStore([zookeeper], host=host, root=root)
    await store.start()
    yield store
    await store.close()


async def expire(store: ZooKeeperMetadataStore, address: str) -> None:
    """Have the server end a session: another client takes it over by id and password, and closes
    it."""
    identity = store._session._identity

    def take_over_and_close() -> None:
        client = KazooClient(address, client_id=(identity.session_id, identity.password))
        client.start()
        client.stop()
        client.close()

    await asyncio.get_running_loop().run_in_executor(None, take_over_and_close)


async def test_nobody_there_is_a_clear_error_in_time(
    unused_tcp_port: int, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert START_TIMEOUT_MS < 10_000
    monkeypatch.setattr("fencelog.ledgers.metastore.zookeeper_session.START_TIMEOUT_MS", 1_000)
    store = open_metadata_store(f"zk://127.0.0.1:{unused_tcp_port}/x", host=host)
    began = time.monotonic()
    with pytest.raises(FencelogError, match=f"127.0.0.1:{unused_tcp_port}") as caught:
        await store.start()
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    assert time.monotonic() - began < 5


async def test_a_write_whose_reply_is_lost_is_unknown_and_reads_back(
    proxied: ZooKeeperMetadataStore, proxy: Proxy, store: ZooKeeperMetadataStore, until: Until
) -> None:
    version = await proxied.create("/node", b"before")
    seen: list[Versioned | None] = []
    store.watch_value("/node", seen.append)

    proxy.holds_answers = True
    write = asyncio.create_task(proxied.set("/node", b"after", version))
    await until(lambda: Versioned(b"after", later(version, 1)) in seen)
    proxy.cut()
    with pytest.raises(FencelogError) as caught:
        await write
    proxy.holds_answers = False

    assert caught.value.code is ErrorCode.METADATA_UNKNOWN
    assert await proxied.get("/node") == Versioned(b"after", later(version, 1))


async def test_a_create_whose_reply_is_lost_is_unknown(
    proxied: ZooKeeperMetadataStore, proxy: Proxy, store: ZooKeeperMetadataStore, until: Until
) -> None:
    seen: list[Versioned | None] = []
    store.watch_value("/node", seen.append)
    await until(lambda: seen == [None])
    proxy.holds_answers = True
    write = asyncio.create_task(proxied.create("/node", b"mine"))
    await until(lambda: plain(seen[-1]) == (b"mine", 0, 0))
    proxy.cut()
    with pytest.raises(FencelogError) as caught:
        await write
    proxy.holds_answers = False
    assert caught.value.code is ErrorCode.METADATA_UNKNOWN
    node = await proxied.get("/node")
    assert node == seen[-1]
    changed = await proxied.set("/node", b"still mine", node.version)
    assert await store.get("/node") == Versioned(b"still mine", changed)


async def test_a_delete_whose_reply_is_lost_is_unknown(
    proxied: ZooKeeperMetadataStore, proxy: Proxy, store: ZooKeeperMetadataStore, until: Until
) -> None:
    version = await proxied.create("/node", b"")
    seen: list[Versioned | None] = []
    store.watch_value("/node", seen.append)
    await until(lambda: bool(seen))
    proxy.holds_answers = True
    write = asyncio.create_task(proxied.delete("/node", version))
    await until(lambda: seen[-1] is None)
    proxy.cut()
    with pytest.raises(FencelogError) as caught:
        await write
    proxy.holds_answers = False
    assert caught.value.code is ErrorCode.METADATA_UNKNOWN
    with pytest.raises(FencelogError) as caught:
        await proxied.get("/node")
    assert caught.value.code is ErrorCode.METADATA_NOT_FOUND


async def test_a_read_outlives_a_lost_connection(
    proxied: ZooKeeperMetadataStore, proxy: Proxy
) -> None:
    await proxied.create("/node", b"value")
    proxy.holds_answers = True
    read = asyncio.create_task(proxied.get("/node"))
    await asyncio.sleep(0.1)
    proxy.cut()
    proxy.holds_answers = False
    assert (await read).value == b"value"


async def test_what_was_never_sent_is_unavailable(
    proxied: ZooKeeperMetadataStore,
    proxy: Proxy,
    store: ZooKeeperMetadataStore,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states: list[SessionState] = []
    proxied.on_session(states.append)
    version = await proxied.create("/node", b"")
    proxy.holds_answers = True
    proxy.cut()
    await until(lambda: states == [SessionState.SUSPENDED])
    monkeypatch.setattr("fencelog.ledgers.metastore.zookeeper_session.METADATA_TIMEOUT_MS", 300)
    for request in (
        proxied.set("/node", b"x", version),
        proxied.delete("/node", version),
        proxied.create("/new", b""),
        proxied.get("/node"),
    ):
        with pytest.raises(FencelogError) as caught:
            await request
        assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    assert await store.get("/node") == Versioned(b"", version)
    proxy.holds_answers = False
    proxy.cut()  # ends the attempt to connect whose answer was held back


async def test_watches_survive_a_lost_connection(
    proxied: ZooKeeperMetadataStore, proxy: Proxy, store: ZooKeeperMetadataStore, until: Until
) -> None:
    values: list[Versioned | None] = []
    names: list[list[str]] = []
    states: list[SessionState] = []
    proxied.on_session(states.append)
    proxied.watch_value("/dir/a", values.append)
    proxied.watch_children("/dir", names.append)
    await until(lambda: values == [None] and names == [[]])

    proxy.holds_answers = True
    proxy.cut()
    version = await store.create("/dir/a", b"1")
    await store.create("/dir/b", b"")
    proxy.cut()
    proxy.holds_answers = False
    await until(lambda: names[-1] == ["a", "b"] and values[-1] == Versioned(b"1", version))
    assert states[0] is SessionState.SUSPENDED
    assert SessionState.EXPIRED not in states

    changed = await overwrite(store, "/dir/a", b"2")
    await remove(store, "/dir/b")
    await until(lambda: names[-1] == ["a"] and values[-1] == Versioned(b"2", changed))


async def test_an_expired_session_loses_its_nodes_and_is_followed_by_another(
    store: ZooKeeperMetadataStore, zookeeper: str, until: Until
) -> None:
    states: list[SessionState] = []
    seen: list[Versioned | None] = []
    store.on_session(states.append)
    await store.create("/me", b"", ephemeral=True)
    store.watch_value("/me", seen.append)
    await until(lambda: bool(seen))
    before = store.session_id

    await expire(store, zookeeper)
    await until(lambda: states[-2:] == [SessionState.EXPIRED, SessionState.CONNECTED])
    assert store.session_id not in (0, before)
    await until(lambda: seen[-1] is None)
    version = await store.create("/me", b"again", ephemeral=True)
    await until(lambda: seen[-1] == Versioned(b"again", version, store.session_id))


async def test_a_registration_comes_back_after_its_session_expired(
    store: ZooKeeperMetadataStore, zookeeper: str, until: Until
) -> None:
    registration = await Registration.start(store, "/bookies/b1", b"address")
    seen: list[Versioned | None] = []
    store.watch_value("/bookies/b1", seen.append)
    await until(lambda: bool(seen))
    before = store.session_id
    await expire(store, zookeeper)
    await until(
        lambda: store.session_id != before and plain(seen[-1]) == (b"address", 0, store.session_id)
    )
    await registration.close()
    await until(lambda: seen[-1] is None)


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[list[DevelopmentZooKeeper]]:
    """One server of the test's own; what the test starts again it adds, for all to be ended."""
    servers = [await DevelopmentZooKeeper.start(tmp_path)]
    yield servers
    for server in servers:
        await server.stop()


async def test_a_server_killed_amid_writes_never_gives_a_false_answer(
    servers: list[DevelopmentZooKeeper], tmp_path: Path, host: Host, root: str, until: Until
) -> None:
    (server,) = servers
    store = ZooKeeperMetadataStore([server.address], host=host, root=root)
    await store.start()
    acknowledged: dict[int, int] = {}
    failures: dict[int, ErrorCode] = {}
    restarted = asyncio.Event()

    async def write_until_it_fails(writer: int) -> None:
        version = await store.create(f"/w{writer}", b"0")
        acknowledged[writer] = 0
        try:
            while not restarted.is_set():
                value = acknowledged[writer] + 1
                version = await store.set(f"/w{writer}", b"%d" % value, version)
                acknowledged[writer] = value
        except FencelogError as error:
            failures[writer] = error.code

    async with asyncio.TaskGroup() as writers:
        for writer in range(10):
            writers.create_task(write_until_it_fails(writer))
        await until(lambda: len(acknowledged) == 10 and min(acknowledged.values()) > 1)
        await server.kill()
        servers.append(await DevelopmentZooKeeper.start(tmp_path, port=server.port))
        restarted.set()

    assert failures
    assert sum(acknowledged.values()) > 10
    assert set(failures.values()) <= {ErrorCode.METADATA_UNKNOWN, ErrorCode.METADATA_UNAVAILABLE}
    for writer, value in acknowledged.items():
        node = await store.get(f"/w{writer}")
        assert int(node.value) == node.version.number
        possible = {value}
        if failures.get(writer) is ErrorCode.METADATA_UNKNOWN:
            possible.add(value + 1)
        assert node.version.number in possible
    await store.close()


async def test_it_runs_on_the_loop_of_the_processes(zookeeper: str, host: Host, root: str) -> None:
    async def use() -> Versioned:
        store = ZooKeeperMetadataStore([zookeeper], host=host, root=root)
        await store.start()
        await store.create("/node", b"value")
        found = await store.get("/node")
        await store.close()
        return found

    found = await asyncio.get_running_loop().run_in_executor(None, lambda: run_on_uvloop(use()))
    assert found.value == b"value"
