"""A real ZooKeeper with a port for TLS, which asks for certificates, and another without."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from fencelog.api.local_cluster.zookeeper import find_java
from fencelog.api.processes.lifecycle import run_on_uvloop
from tests.support.network.certificates import Authority

JARS = ("zookeeper-", "netty-", "slf4j-api-", "metrics-core-", "snappy-java-")
READY_S = 60.0
USER = "ann:her-password-is-long"


class SecureZooKeeper:
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


@contextmanager
def secure_zookeeper(folder: Path) -> Iterator[SecureZooKeeper]:
    """Run a server in a folder."""
    folder.mkdir(exist_ok=True)
    found = SecureZooKeeper(folder)
    process = found.start()
    try:
        give_up = time.monotonic() + READY_S
        while time.monotonic() < give_up and process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", found.secure)) == 0:
                    break
            time.sleep(0.05)
        else:
            raise AssertionError(f"it did not start: {found.output.read_text()[-2000:]}")
        yield found
    finally:
        process.kill()
        process.wait()
