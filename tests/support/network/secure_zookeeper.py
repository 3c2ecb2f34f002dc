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
from fencelog.ledgers.metastore.zookeeper_tls import tls_context
from tests.support.network.certificates import Authority

JARS = ("zookeeper-", "netty-", "slf4j-api-", "metrics-core-", "snappy-java-")
READY_S = 60.0
STARTS = 3
"""The times that it is started: something else may take one of its ports before it does."""

USER = "ann:her-password-is-long"


class SecureZooKeeper:
    """A server that asks for certificates of clients, and what is needed to reach it."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "authority")
        certificate, key = self.authority.sign("server", for_="DNS:localhost")
        pem = folder / "server.pem"
        pem.write_bytes(certificate.read_bytes() + key.read_bytes())
        self.certificate, self.key = self.authority.sign("process", for_="DNS:process")
        self.plain = self.secure = 0
        self.users = folder / "users"
        self.users.write_text(USER)
        self.output = folder / "zookeeper.out"
        self._config = folder / "zookeeper.cfg"
        self._settings = (
            f"dataDir={folder / 'data'}\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={pem}\n"
            "ssl.keyStore.type=PEM\n"
            f"ssl.trustStore.location={self.authority.certificate}\n"
            "ssl.trustStore.type=PEM\n"
            "admin.enableServer=false\n"
            "tickTime=500\n"
        )

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process, on other ports each time."""
        self.plain, self.secure = free_ports()
        ports = f"clientPort={self.plain}\nsecureClientPort={self.secure}\n"
        self._config.write_text(self._settings + ports)
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.submodule_search_locations is not None
        jars = Path(spec.submodule_search_locations[0], "jars")
        path = os.pathsep.join(str(jar) for jar in jars.glob("*.jar") if jar.name.startswith(JARS))
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        java = run_on_uvloop(find_java())
        command = [java, "-Xmx256m", "-XX:+UseSerialGC", "-cp", path, main, str(self._config)]
        with self.output.open("wb") as output:
            return subprocess.Popen(command, stdout=output, stderr=output)

    def is_ready(self) -> bool:
        """Tell whether it answers a client with a certificate. The first handshakes of a JVM take
        seconds on a loaded machine; a port that accepts does not say that they are over."""
        context = tls_context(
            ca=self.authority.certificate, certificate=self.certificate, key=self.key
        )
        try:
            with (
                socket.create_connection(("127.0.0.1", self.secure), READY_S) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as connection,
            ):
                connection.sendall(b"srvr")
                return connection.recv(100).startswith(b"Zookeeper version")
        except OSError:
            return False

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
    process, starts = found.start(), 1
    try:
        give_up = time.monotonic() + READY_S
        while not found.is_ready():
            if process.poll() is not None and starts < STARTS:
                process, starts = found.start(), starts + 1
            elif process.poll() is not None or time.monotonic() > give_up:
                raise AssertionError(f"it did not start: {found.output.read_text()[-2000:]}")
            time.sleep(0.05)
        yield found
    finally:
        process.kill()
        process.wait()
