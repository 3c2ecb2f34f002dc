"""A local cluster of real processes: ZooKeeper, bookies, brokers; started in order, ended in order.

DATA/zookeeper    DATA/bookie-1 …    DATA/log/NAME.log (what each process wrote to stderr)
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fencelog.api.client.tasks import task_group
from fencelog.api.http.addresses import is_loopback, parse_address
from fencelog.api.local_cluster.child_process import ChildProcess
from fencelog.api.local_cluster.zookeeper import TICK_MS, until_ended
from fencelog.api.processes.lifecycle import Running
from fencelog.api.processes.standalone import bookie_directories, initialise_new, locked_directory
from fencelog.ledgers.client import DEFAULT_COPIES
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.open import open_metadata_store
from fencelog.ledgers.metastore.zookeeper_session import SESSION_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class ProcessPlacement:
    """The placement of a process: the address it listens on, and the command that brings it
    there."""

    host: str = "127.0.0.1"
    enter: tuple[str, ...] = ()

    @property
    def consent(self) -> list[str]:
        """Return the option to listen off loopback: on a network that is within this machine."""
        return [] if is_loopback(self.host) else ["--insecure"]


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The configuration of a cluster. ``http_port``: of the first broker, the others take the next
    ones; 0: free ports. ``secret_file``: the secret between bookies and brokers (None: none).
    ``session_ms``: how long ZooKeeper lets a session outlive its process, to a ``tick_ms`` or two.
    ``places``: of processes that do not run on loopback, by name (``zookeeper``, ``bookie-1``,
    ``broker-1``). ``racks``: of bookies, by name. ``autorecovery``: the options of a process that
    heals the cluster (None: none runs). ``record_events``: by brokers, in the timeline.
    ``health``: bookies tell theirs, and their metrics, at a free port."""

    data_dir: Path
    bookies: int = 3
    brokers: int = 2
    http_port: int = 8080
    secret_file: Path | None = None
    session_ms: int = SESSION_TIMEOUT_MS
    tick_ms: int = TICK_MS
    places: Mapping[str, ProcessPlacement] = field(default_factory=dict)
    racks: Mapping[str, str] = field(default_factory=dict)
    autorecovery: tuple[str, ...] | None = None
    record_events: bool = True
    health: bool = False


@dataclass(slots=True)
class Cluster:
    """The running processes. A cluster is made so that any of them can be killed."""

    config: ClusterConfig
    zookeeper: ChildProcess
    bookies: list[ChildProcess] = field(default_factory=list)
    brokers: list[ChildProcess] = field(default_factory=list)
    healers: list[ChildProcess] = field(default_factory=list)
    _http: dict[str, str] = field(default_factory=dict)

    @property
    def metadata(self) -> str:
        url = f"zk://{self.zookeeper.announcement['address']}/fencelog"
        session_ms = self.config.session_ms
        return url if session_ms == SESSION_TIMEOUT_MS else f"{url}?session_timeout_ms={session_ms}"

    @property
    def urls(self) -> list[str]:
        """Return the URLs of all running brokers."""
        return [self.url_of(broker) for broker in self.brokers if broker.is_running]

    @property
    def processes(self) -> list[ChildProcess]:
        return [self.zookeeper, *self.bookies, *self.brokers, *self.healers]

    @staticmethod
    def url_of(broker: ChildProcess) -> str:
        return str(broker.announcement["http"])

    def broker_at(self, url: str) -> ChildProcess:
        """Return the broker process with this URL."""
        return next(broker for broker in self.brokers if self.url_of(broker) == url)

    async def start_bookie(
        self, number: int, *, read_only_at: float = 1.0, repair_cookie: bool = False
    ) -> ChildProcess:
        """Start bookie ``number`` (again), on the data it had; with ``repair_cookie`` also where
        that is gone. A developer's disk may be full to any degree, unless ``read_only_at`` gives
        another share."""
        name = f"bookie-{number}"
        data = ("--data", str(self.config.data_dir / name))
        command = ["bookie", *data, "--listen", f"{self._place(name).host}:0", "--id", name]
        command += ["--read-only-at", str(read_only_at), *["--repair-cookie"] * repair_cookie]
        command += self._place(name).consent
        if self.config.health:
            command += ["--health", f"{self._place(name).host}:0"]
        if (rack := self.config.racks.get(name)) is not None:
            command += ["--rack", rack]
        return await self._start(self.bookies, name, command)

    async def start_broker(self, number: int) -> ChildProcess:
        """Start broker ``number`` (again), at the address it had."""
        name = f"broker-{number}"
        port = self.config.http_port and self.config.http_port + number - 1
        place = self._place(name)
        http = self._http.get(name, f"{place.host}:{port}")
        copies = min(DEFAULT_COPIES, self.config.bookies)
        command = ["broker", "--id", name, "--http", http, "--copies", str(copies)]
        command += [*place.consent, *["--events", "off"] * (not self.config.record_events)]
        broker = await self._start(self.brokers, name, command)
        self._http[name] = self.url_of(broker).removeprefix("http://")
        return broker

    async def start_autorecovery(self, number: int) -> ChildProcess:
        """Start process ``number`` (again) that heals the cluster."""
        name = f"autorecovery-{number}"
        command = ["autorecovery", "--id", name, *(self.config.autorecovery or ())]
        return await self._start(self.healers, name, command)

    async def restart(self, process: ChildProcess) -> ChildProcess:
        """Start a bookie or broker that has ended; returns when it serves. Raises FencelogError."""
        kind, _, number = process.name.rpartition("-")
        if kind == "broker":
            return await self.start_broker(int(number))
        return await self.start_bookie(int(number))

    async def kill_zookeeper(self) -> None:
        """Send SIGKILL to the server, as a crash would; return when it is gone."""
        await self.zookeeper.kill()  # the kernel ends the JVM with its parent
        await until_ended(self.config.data_dir / "zookeeper")

    async def restart_zookeeper(self) -> None:
        """Start a server that has ended, on its data and at its address. Raises FencelogError."""
        _, port = parse_address(self.zookeeper.announcement["address"])
        self.zookeeper = await start_zookeeper(self.config, port=port)

    async def _start(
        self, processes: list[ChildProcess], name: str, command: list[str]
    ) -> ChildProcess:
        command = [*command, "--metadata", self.metadata]
        if self.config.secret_file is not None:
            command += ["--secret-file", str(self.config.secret_file)]
        process = await ChildProcess.start(
            name, command, log=_log_of(self.config, name), enter=self._place(name).enter
        )
        processes[:] = [*(other for other in processes if other.name != name), process]
        processes.sort(key=lambda process: process.name)
        return process

    def _place(self, name: str) -> ProcessPlacement:
        return self.config.places.get(name, ProcessPlacement())


async def start_zookeeper(config: ClusterConfig, *, port: int = 0) -> ChildProcess:
    """Start the cluster's ZooKeeper; port 0 takes a free one. Raises FencelogError."""
    place = config.places.get("zookeeper", ProcessPlacement())
    command = ["zookeeper", "--host", place.host, "--port", str(port)]
    command += ["--tick-ms", str(config.tick_ms), "--data", str(config.data_dir / "zookeeper")]
    log = _log_of(config, "zookeeper")
    return await ChildProcess.start("zookeeper", command, log=log, enter=place.enter)


def _log_of(config: ClusterConfig, name: str) -> Path:
    return config.data_dir / "log" / f"{name}.log"


@contextlib.asynccontextmanager
async def running_cluster(config: ClusterConfig) -> AsyncIterator[Cluster]:
    """Start all processes, and end exactly those that were started.

    Brokers end before bookies, so that their last entries find them, and ZooKeeper last. Raises
    FencelogError naming the process that did not start, DATA_DIRECTORY_IN_USE.
    """
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(locked_directory(config.data_dir))
        cluster = Cluster(config, await start_zookeeper(config))
        stack.push_async_callback(lambda: cluster.zookeeper.stop())
        await _initialise(cluster)
        for processes, start, count in (
            (cluster.bookies, cluster.start_bookie, config.bookies),
            (cluster.healers, cluster.start_autorecovery, int(config.autorecovery is not None)),
            (cluster.brokers, cluster.start_broker, config.brokers),
        ):
            stack.push_async_callback(_stop_all, processes)
            async with task_group() as group:
                for number in range(1, count + 1):
                    group.start_soon(start, number)
        yield cluster


async def _initialise(cluster: Cluster) -> None:
    """Initialise the metadata store, as ``fencelog metadata init`` does elsewhere."""
    host = SystemHost()
    store = open_metadata_store(cluster.metadata, host=host)
    await store.start()
    try:
        await initialise_new(store, bookie_directories(cluster.config.data_dir), host)
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def cluster_service(config: ClusterConfig) -> AsyncIterator[Running]:
    """Run a cluster as a service of its own: ``fencelog cluster``. It goes on when one of its
    processes ends, and reports that on stderr."""
    async with running_cluster(config) as cluster, task_group() as group:
        for process in cluster.processes:
            group.start_soon(_report_end, process)
        processes = [
            {"name": process.name, "pid": process.pid, **process.announcement}
            for process in cluster.processes
        ]
        yield Running(
            {
                "role": "cluster",
                "http": cluster.urls[0],
                "metadata": cluster.metadata,
                "processes": processes,
            }
        )
        group.cancel_scope.cancel()


async def _report_end(process: ChildProcess) -> None:
    code = await process.wait()
    sys.stderr.write(f"{process.name} (pid {process.pid}) ended with {code}\n")


async def _stop_all(processes: list[ChildProcess]) -> None:
    async with task_group() as group:
        for process in processes:
            group.start_soon(process.stop)
