"""A real ZooKeeper with a port for TLS, and another without, on the loop of production."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencelog.api.processes.lifecycle import run_on_uvloop
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.open import certificates_of, open_metadata_store
from fencelog.ledgers.metastore.zookeeper import ZooKeeperMetadataStore
from tests.support.network.certificates import Authority
from tests.support.network.secure_zookeeper import SecureZooKeeper, secure_zookeeper

pytestmark = pytest.mark.zookeeper

DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureZooKeeper]:
    with secure_zookeeper(tmp_path_factory.mktemp("tls")) as server:
        yield server


async def use(url: str) -> None:
    """Write and read over a connection, and set access lists."""
    store = open_metadata_store(url, host=SystemHost())
    assert isinstance(store, ZooKeeperMetadataStore)
    await store.start()
    try:
        version = await store.create("/a", b"x" * 500_000)  # more than a record of TLS
        assert (await store.get("/a")).value == b"x" * 500_000
        if "credentials=" in url:
            assert (await store.protect()).nodes > 0
        await store.delete("/a", version)
    finally:
        await store.close()


async def certificates(url: str) -> list[tuple[str, str]]:
    """Return the roles and names of the certificates of a connection, each of which is valid."""
    store = open_metadata_store(url, host=SystemHost())
    await store.start()
    try:
        found = certificates_of(store)
        assert all(0 < each.ends_us - SystemHost().now_us() < 3 * DAY_US for each in found)
        return [(each.role, each.name) for each in found]
    finally:
        await store.close()


def refusal(work: Coroutine[Any, Any, None]) -> str:
    with pytest.raises(FencelogError) as caught:
        run_on_uvloop(work)
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    return caught.value.detail


def test_a_process_with_a_certificate_uses_a_server_that_asks_for_one(
    server: SecureZooKeeper,
) -> None:
    run_on_uvloop(use(server.url(server.own)))
    run_on_uvloop(use(server.url({**server.own, "credentials": server.users})))


def test_the_certificates_of_a_connection_are_known(server: SecureZooKeeper) -> None:
    assert run_on_uvloop(certificates(server.url(server.own))) == [
        ("own", str(server.certificate)),
        ("authority", str(server.authority.certificate)),
        ("server", f"localhost:{server.secure}"),
    ]


def test_what_is_wrong_is_said(server: SecureZooKeeper, tmp_path: Path, monkeypatch: Any) -> None:
    by_address = server.url(server.own, host="127.0.0.1")
    assert "certificate is not valid for '127.0.0.1'" in refusal(use(by_address))
    stranger = Authority(tmp_path / "stranger")
    other = server.url({**server.own, "ca": stranger.certificate})
    assert "its certificate is not accepted" in refusal(use(other))
    assert "it does not take this process's" in refusal(use(server.url({})))
    said = refusal(use(server.url(server.own, port=server.plain)))
    assert "does it speak TLS on this port?" in said
    monkeypatch.setattr("fencelog.ledgers.metastore.zookeeper_session.START_TIMEOUT_MS", 2_000)
    plain = f"zk://localhost:{server.secure}/fencelog"
    assert "no ZooKeeper answers" in refusal(use(plain))
