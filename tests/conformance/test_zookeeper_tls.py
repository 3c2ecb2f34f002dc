"""A real ZooKeeper with a port for TLS, and another without, on the loop of production."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Coroutine, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fencelog.api.local_cluster.zookeeper import find_java
from fencelog.api.processes.lifecycle import run_on_uvloop
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.open import open_metadata_store
from fencelog.ledgers.metastore.zookeeper import ZooKeeperMetadataStore
from tests.support.network.certificates import Authority

pytestmark = pytest.mark.zookeeper

JARS = ("zookeeper-", "netty-", "slf4j-api-", "metrics-core-", "snappy-java-")
READY_S = 60.0
USER = "ann:her-password-is-long"


class Server:
    """A server that asks for certificates of clients, and what is needed to reach it."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "authority")
        certificate, key = self.authority.sign("server", for_="DNS:localhost")
        pem = folder / "server.pem"
        pem.write_bytes(certificate.read_bytes() + key.read_bytes())
        self.certificate, self.key = self.authority.sign("process", for_="DNS:process")
        self.plain, self.secure = free_ports()
        self.users = folder / "users"
        self.users.write_text(USER)
        self.output = folder / "zookeeper.out"
        config = folder / "zookeeper.cfg"
        config.write_text(
            f"dataDir={folder / 'data'}\n"
            f"clientPort={self.plain}\n"
            f"secureClientPort={self.secure}\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={pem}\n"
            "ssl.keyStore.type=PEM\n"
            f"ssl.trustStore.location={self.authority.certificate}\n"
            "ssl.trustStore.type=PEM\n"
            "admin.enableServer=false\n"
            "tickTime=500\n"
        )
        self._config = str(config)

    def start(self) -> subprocess.Popen[bytes]:
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.submodule_search_locations is not None
        jars = Path(spec.submodule_search_locations[0], "jars")
        path = os.pathsep.join(str(jar) for jar in jars.glob("*.jar") if jar.name.startswith(JARS))
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        java = run_on_uvloop(find_java())
        command = [java, "-Xmx256m", "-XX:+UseSerialGC", "-cp", path, main, self._config]
        with self.output.open("wb") as output:
            return subprocess.Popen(command, stdout=output, stderr=output)

    def url(
        self, files: Mapping[str, Path], *, host: str = "localhost", port: int | None = None
    ) -> str:
        given = {"ca": self.authority.certificate, **files}
        query = "&".join(f"{name}={path}" for name, path in given.items())
        return f"zks://{host}:{port or self.secure}/fencelog?{query}"

    @property
    def own(self) -> dict[str, Path]:
        return {"certificate": self.certificate, "key": self.key}


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(tmp_path_factory.mktemp("tls"))
    process = found.start()
    try:
        give_up = time.monotonic() + READY_S
        while time.monotonic() < give_up and process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", found.secure)) == 0:
                    break
            time.sleep(0.05)
        else:
            pytest.fail(f"it did not start: {found.output.read_text()[-2000:]}", pytrace=False)
        yield found
    finally:
        process.kill()
        process.wait()


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


def refusal(work: Coroutine[Any, Any, None]) -> str:
    with pytest.raises(FencelogError) as caught:
        run_on_uvloop(work)
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    return caught.value.detail


def test_a_process_with_a_certificate_uses_a_server_that_asks_for_one(server: Server) -> None:
    run_on_uvloop(use(server.url(server.own)))
    run_on_uvloop(use(server.url({**server.own, "credentials": server.users})))


def test_what_is_wrong_is_said(server: Server, tmp_path: Path, monkeypatch: Any) -> None:
    by_address = server.url(server.own, host="127.0.0.1")
    assert "certificate is not valid for '127.0.0.1'" in refusal(use(by_address))
    stranger = Authority(tmp_path / "stranger")
    other = server.url({**server.own, "ca": stranger.certificate})
    assert "its certificate is not accepted" in refusal(use(other))
    monkeypatch.setattr("fencelog.ledgers.metastore.zookeeper_session.START_TIMEOUT_MS", 2_000)
    assert "it does not take this process's" in refusal(use(server.url({})))
    said = refusal(use(server.url(server.own, port=server.plain)))
    assert "does it speak TLS on this port?" in said
    plain = f"zk://localhost:{server.secure}/fencelog"
    assert "no ZooKeeper answers" in refusal(use(plain))
