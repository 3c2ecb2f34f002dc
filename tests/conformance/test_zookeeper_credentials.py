"""ZooKeeper only: who may do what, and what of a cluster at work is protected, opened, changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore import watch
from fencelog.ledgers.metastore.open import open_metadata_store
from fencelog.ledgers.metastore.port import Versioned
from fencelog.ledgers.metastore.zookeeper import ZooKeeperMetadataStore
from fencelog.ledgers.metastore.zookeeper_protection import SetAccess
from tests.support.metadata_nodes import overwrite, remove
from tests.support.network.zookeeper_proxy import Proxy

pytestmark = pytest.mark.zookeeper

Until = Callable[[Callable[[], bool]], Awaitable[None]]

ALL, OLD, NEW = "world:anyone", "ann:the-old-password", "ann:the-new-password"


class Cluster:
    """The stores of one cluster, by the lines of their credentials."""

    def __init__(self, address: str, host: Host, root: str, path: Path) -> None:
        self.address, self.root = address, root
        self._host, self._path = host, path

    @asynccontextmanager
    async def store(self, *lines: str, address: str = "") -> AsyncIterator[ZooKeeperMetadataStore]:
        url = f"zk://{address or self.address}{self.root}"
        if lines:
            self._path.write_text("\n".join(lines))
            url += f"?credentials={self._path}"
        store = open_metadata_store(url, host=self._host)
        assert isinstance(store, ZooKeeperMetadataStore)
        await store.start()
        try:
            yield store
        finally:
            await store.close()

    async def by_hand(self, request: Callable[[KazooClient], Any]) -> Any:
        """Do something with a client that proves nothing."""

        def run() -> Any:
            client = KazooClient(self.address)
            client.start()
            try:
                return request(client)
            finally:
                client.stop()
                client.close()

        return await asyncio.get_running_loop().run_in_executor(None, run)

    async def open_nodes(self) -> list[str]:
        """The nodes below the root, the guards among them, that strangers may read."""

        def walk(client: KazooClient) -> list[str]:
            found, pending = [], [self.root]
            while pending:
                node = pending.pop()
                try:
                    names = client.get_children(node)
                except (NoAuthError, NoNodeError):
                    continue
                found.append(node)
                pending += [f"{node}/{name}" for name in names]
            return found

        found: list[str] = await self.by_hand(walk)
        return found


@pytest.fixture
def cluster(zookeeper: str, host: Host, root: str, tmp_path: Path) -> Cluster:
    return Cluster(zookeeper, host, root, tmp_path / "credentials")


async def refusal(request: Awaitable[object]) -> str:
    with pytest.raises(FencelogError) as caught:
        await request
    assert caught.value.code is ErrorCode.METADATA_UNAUTHORIZED
    return caught.value.detail


async def test_what_is_created_with_credentials_is_for_nobody_else(cluster: Cluster) -> None:
    async with cluster.store(OLD) as store:
        await store.create("/a/b", b"value")
        await store.create("/mine", b"", ephemeral=True)
        assert await cluster.open_nodes() == []
        for others in ((), (NEW,), (ALL, NEW)):
            said = await refusal(cluster.store(*others).__aenter__())
            assert ("the node is for others than the users in" in said) == bool(others)
        assert (await store.get("/a/b")).value == b"value"


async def test_nodes_above_the_root_stay_open(cluster: Cluster) -> None:
    cluster.root += "/below/it"
    async with cluster.store(OLD):
        above = await cluster.by_hand(lambda zk: zk.get_children(cluster.root.rpartition("/")[0]))
        assert above == ["it"]


async def test_a_cluster_is_protected_while_it_is_used_and_opened_again(
    cluster: Cluster, until: Until
) -> None:
    """The steps of the runbook, each with a process of the step before beside one of the next."""
    async with cluster.store() as first, cluster.store(ALL, OLD) as second:
        await first.create("/a/b", b"1")
        await second.create("/a/c", b"1")
        await first.create("/mine", b"", ephemeral=True)
        await overwrite(first, "/a/c", b"2")
        nodes = len(await cluster.open_nodes())
        assert nodes == 9  # the root, the parent of guards, /a, three nodes with a guard each
    async with cluster.store(ALL, OLD) as second, cluster.store(OLD) as third:
        seen: list[Versioned | None] = []
        second.watch_value("/a/b", seen.append)
        await third.create("/a/d", b"1")
        await until(lambda: len(seen) == 1)
        result = await third.protect()
        assert result == SetAccess(nodes=9, changed=7)
        assert await cluster.open_nodes() == []
        await overwrite(third, "/a/b", b"2")
        await until(lambda: seen[-1] is not None and seen[-1].value == b"2")
        await remove(second, "/a/d")
        assert await second.protect() == SetAccess(nodes=7, changed=7)
        assert len(await cluster.open_nodes()) == 7
        assert await third.protect() == SetAccess(nodes=7, changed=7)
        assert await third.protect() == SetAccess(nodes=7, changed=0)
        assert await third.protect(is_open=True) == SetAccess(nodes=7, changed=7)
    async with cluster.store() as last:
        assert (await last.get("/a/b")).value == b"2"
        await remove(last, "/a/c")


async def test_watches_that_were_refused_are_set_when_the_nodes_are_opened(
    cluster: Cluster, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the same connection, which nobody tells of the access lists."""
    monkeypatch.setattr(watch, "REFUSED_RETRY_S", 0.05)
    async with cluster.store() as stranger, cluster.store(ALL, OLD) as owner:
        await owner.create("/a/b", b"1")
        async with cluster.store(OLD) as protector:
            await protector.protect()
            seen: list[Versioned | None] = []
            names: list[list[str]] = []
            stranger.watch_value("/a/b", seen.append)
            stranger.watch_children("/a", names.append)
            assert "refused" in await refusal(stranger.get("/a/b"))
            session_id = stranger.session_id
            assert (seen, names) == ([], [])
            await protector.protect(is_open=True)
        await until(lambda: bool(seen and names))
        assert names == [["b"]]
        await overwrite(owner, "/a/b", b"2")
        await owner.create("/a/c", b"1")
        await until(lambda: seen[-1] is not None and seen[-1].value == b"2")
        await until(lambda: names[-1] == ["b", "c"])
        assert stranger.session_id == session_id


async def test_a_password_is_changed_while_the_cluster_is_used(cluster: Cluster) -> None:
    async with cluster.store(OLD) as first, cluster.store(OLD, NEW) as second:
        await first.create("/a/b", b"1")
        await second.create("/a/c", b"1")
        await overwrite(first, "/a/c", b"2")
    async with cluster.store(OLD, NEW) as second:
        await second.protect()
        async with cluster.store(NEW) as third:
            await third.create("/a/d", b"1")
            await overwrite(third, "/a/b", b"2")
            await overwrite(second, "/a/d", b"2")
    async with cluster.store(NEW) as third:
        assert (await third.protect()).changed > 0
        assert "for others" in await refusal(cluster.store(OLD).__aenter__())
        for path in ("/a/b", "/a/c", "/a/d"):
            assert (await third.get(path)).value == b"2"


async def test_every_connection_is_authenticated(
    cluster: Cluster, proxy: Proxy, until: Until
) -> None:
    async with cluster.store(OLD, address=await proxy.start()) as store:
        await store.create("/a", b"1")
        seen: list[Versioned | None] = []
        store.watch_value("/a", seen.append)
        await until(lambda: len(seen) == 1)
        for times in (2, 3):
            proxy.cut()
            await overwrite(store, "/a", b"again")
            await until(lambda: len(seen) >= times)  # noqa: B023 - it is over before the next one
        await store.create("/b", b"")
        assert await cluster.open_nodes() == []


async def test_nothing_is_protected_without_a_root_or_without_credentials(
    cluster: Cluster,
) -> None:
    async with cluster.store() as store:
        with pytest.raises(FencelogError, match="whom should the nodes be for"):
            await store.protect()
    store = ZooKeeperMetadataStore([cluster.address], host=cluster._host)
    with pytest.raises(FencelogError, match="nodes of others might be taken"):
        await store.protect(is_open=True)
