"""The three metadata stores behind one face, so that every test runs against each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.metastore.sqlite import SqliteMetadataStore
from fencelog.ledgers.metastore.zookeeper import ZooKeeperMetadataStore
from tests.support.network.zookeeper_proxy import Proxy
from tests.support.until import until as wait_until

Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture
def until() -> Until:
    return wait_until


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A place in the shared ZooKeeper that no other test uses."""
    return f"/conformance/{tmp_path.parent.name}-{tmp_path.name}"


@pytest.fixture(params=["memory", "sqlite", pytest.param("zookeeper", marks=pytest.mark.zookeeper)])
def new_store(
    request: pytest.FixtureRequest, tmp_path: Path, host: Host, root: str
) -> Callable[[], MetadataStore]:
    """Makes further sessions on the store under test, not started yet."""
    if request.param == "memory":
        cluster = MemoryCluster()
        return lambda: MemoryMetadataStore(cluster)
    if request.param == "sqlite":
        return lambda: SqliteMetadataStore(tmp_path / "metadata.sqlite", host=host)
    address = request.getfixturevalue("zookeeper")
    return lambda: ZooKeeperMetadataStore([address], host=host, root=root)


@pytest.fixture
async def store(new_store: Callable[[], MetadataStore]) -> AsyncIterator[MetadataStore]:
    store = new_store()
    await store.start()
    yield store
    await store.close()


@pytest.fixture
async def proxy(zookeeper: str) -> AsyncIterator[Proxy]:
    proxy = Proxy(zookeeper)
    yield proxy
    await proxy.stop()


@pytest.fixture
async def proxied(proxy: Proxy, host: Host, root: str) -> AsyncIterator[ZooKeeperMetadataStore]:
    """A store whose connection the proxy breaks."""
    store = ZooKeeperMetadataStore([await proxy.start()], host=host, root=root)
    await store.start()
    yield store
    await store.close()
