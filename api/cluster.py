"""A local cluster of real processes: ZooKeeper, bookies, brokers; started in order, ended in order.

DATA/zookeeper    DATA/bookie-1 …    DATA/log/NAME.log (what each process wrote to stderr)
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from fencelog.api.child_process import ChildProcess
from fencelog.api.lifecycle import Running
from fencelog.api.standalone import bookie_directories, initialise_new, locked_directory
from fencelog.ledgers.client import DEFAULT_COPIES
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metadata_open import open_metadata_store


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """``http_port``: of the first broker, the others take the next ones; 0: free ports.
    ``secret_file``: what bookies and brokers ask of each other (None: nothing)."""

    data_dir: Path
    bookies: int = 3
    brokers: int = 2
    http_port: int = 8080
    secret_file: Path | None = None


@dataclass(slots=True)
class Cluster:
    """The running processes. Killing one of them is what a cluster is for."""

    config: ClusterConfig
    zookeeper: ChildProcess
    bookies: list[ChildProcess] = field(default_factory=list)
    brokers: list[ChildProcess] = field(default_factory=list)

    @property
    def metadata(self) -> str:
        return f"zk://{self.zookeeper.announcement['address']}/fencelog"

    @property
    def urls(self) -> list[str]:
        """Of all brokers that run."""
        return [self.url_of(broker) for broker in self.brokers if broker.is_running]

    @property
    def processes(self) -> list[ChildProcess]:
        return [self.zookeeper, *self.bookies, *self.brokers]

    @staticmethod
    def url_of(broker: ChildProcess) -> str:
        return str(broker.announcement["http"])

    def broker_at(self, url: str) -> ChildProcess:
        """The broker process with this URL."""
        return next(broker for broker in self.brokers if self.url_of(broker) == url)

    async def start_bookie(self, number: int, *, read_only_at: float = 1.0) -> ChildProcess:
        """Start bookie ``number`` (again), on the data it had. A developer's disk may be as full as
        he likes, unless ``read_only_at`` says another share."""
        name = f"bookie-{number}"
        data = ("--data", str(self.config.data_dir / name))
        command = ["bookie", *data, "--listen", "127.0.0.1:0", "--id", name]
        command += ["--read-only-at", str(read_only_at)]
        return await self._start(self.bookies, name, command)

    async def start_broker(self, number: int) -> ChildProcess:
        """Start broker ``number`` (again)."""
        port = self.config.http_port and self.config.http_port + number - 1
        copies = min(DEFAULT_COPIES, self.config.bookies)
        command = ["broker", "--http", f"127.0.0.1:{port}", "--copies", str(copies)]
        return await self._start(self.brokers, f"broker-{number}", command)

    async def _start(
        self, processes: list[ChildProcess], name: str, command: list[str]
    ) -> ChildProcess:
        log = self.config.data_dir / "log" / f"{name}.log"
        command = [*command, "--metadata", self.metadata]
        if self.config.secret_file is not None:
            command += ["--secret-file", str(self.config.secret_file)]
        process = await ChildProcess.start(name, command, log=log)
        processes.append(process)
        return process


@contextlib.asynccontextmanager
async def running_cluster(config: ClusterConfig) -> AsyncIterator[Cluster]:
    """Start all processes, and end exactly those that were started.

    Brokers end before bookies, so that their last entries find them, and ZooKeeper last. Raises
    FencelogError naming the process that did not start, DATA_DIRECTORY_IN_USE.
    """
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(locked_directory(config.data_dir))
        zookeeper = await ChildProcess.start(
            "zookeeper",
            ["zookeeper", "--port", "0", "--data", str(config.data_dir / "zookeeper")],
            log=config.data_dir / "log" / "zookeeper.log",
        )
        stack.push_async_callback(zookeeper.stop)
        cluster = Cluster(config, zookeeper)
        await _initialise(cluster)
        for processes, start, count in (
            (cluster.bookies, cluster.start_bookie, config.bookies),
            (cluster.brokers, cluster.start_broker, config.brokers),
        ):
            stack.push_async_callback(_stop_all, processes)
            starts = [start(number) for number in range(1, count + 1)]
            for outcome in await asyncio.gather(*starts, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
            processes.sort(key=lambda process: process.name)
        yield cluster


async def _initialise(cluster: Cluster) -> None:
    """What ``fencelog metadata init`` is for elsewhere."""
    host = SystemHost()
    store = open_metadata_store(cluster.metadata, host=host)
    await store.start()
    try:
        await initialise_new(store, bookie_directories(cluster.config.data_dir), host)
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def cluster_service(config: ClusterConfig) -> AsyncIterator[Running]:
    """A cluster as a service of its own: ``fencelog cluster``. It goes on when one of its
    processes ends, and says so on stderr."""
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running_cluster(config))
        watching = [asyncio.create_task(_report_end(process)) for process in cluster.processes]
        stack.push_async_callback(_cancel, watching)
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


async def _report_end(process: ChildProcess) -> None:
    code = await process.wait()
    sys.stderr.write(f"{process.name} (pid {process.pid}) ended with {code}\n")


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _stop_all(processes: list[ChildProcess]) -> None:
    async with asyncio.TaskGroup() as group:
        for process in processes:
            group.create_task(process.stop())
