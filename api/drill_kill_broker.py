"""The first drill: the owner of a partition is killed under load; every message is accounted for.

A cluster with a real ZooKeeper runs three bookies and two brokers. Clients append at full speed
through both brokers to one partition; its owner gets SIGKILL; the clients go on. At the end the
whole partition is read through the broker that lives and compared with what every client was told.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from fencelog.api.client import FencelogClient
from fencelog.api.cluster import Cluster, ClusterConfig, running_cluster
from fencelog.api.drill_account import DrillReport, account
from fencelog.api.drill_load import GIVE_UP_S, LoadClient, read_log
from fencelog.api.retry import retry_refusals
from fencelog.ledgers.errors import ErrorCode, FencelogError

TOPIC = "default/drill"
PARTITION = 0
CLIENTS_PER_BROKER = 4

KILL_AFTER = 1 / 3
"""The part of the time or of the messages that goes by before the kill."""


@dataclass(frozen=True, slots=True)
class KillBrokerConfig:
    """``seconds`` to append; ``messages``: stop earlier, after so many acknowledged ones;
    ``keep`` the data and the logs of the processes."""

    seconds: float = 15.0
    messages: int | None = None
    keep: bool = False


async def kill_broker_drill(config: KillBrokerConfig) -> DrillReport:
    """Run the drill on a cluster of its own. Raises FencelogError when it cannot be run at all."""
    data_dir = Path(tempfile.mkdtemp(prefix="fencelog-drill-"))
    try:
        async with running_cluster(ClusterConfig(data_dir, http_port=0)) as cluster:
            report = await _run(cluster, config)
    finally:
        if not config.keep:
            shutil.rmtree(data_dir, ignore_errors=True)
    if config.keep:
        report.notes.append(f"data and logs are in {data_dir}")
    return report


@dataclass(slots=True)
class _Progress:
    """What clients and the killer tell each other. Loop times in seconds."""

    config: KillBrokerConfig
    started_at: float
    clients: list[LoadClient] = field(default_factory=list)
    kill_is_due: asyncio.Event = field(default_factory=asyncio.Event)
    killed_at: float | None = None
    recovered_at: float | None = None

    @property
    def acknowledged(self) -> int:
        return sum(client.acknowledged for client in self.clients)

    def on_acknowledged(self, sent_at: float) -> None:
        if self.killed_at is None:
            if self.has_done(KILL_AFTER):
                self.kill_is_due.set()
        elif self.recovered_at is None and sent_at >= self.killed_at:
            self.recovered_at = _now()

    def has_done(self, part: float) -> bool:
        """Whether this part of the time, or of the messages, has gone by."""
        limit = self.config.messages
        late = _now() - self.started_at >= self.config.seconds * part
        return late or (limit is not None and self.acknowledged >= limit * part)

    def is_over(self) -> bool:
        """After the agreed work, but not before it works again, unless it never does."""
        if self.killed_at is None:
            return False
        if self.recovered_at is None:
            return _now() - self.killed_at > GIVE_UP_S
        return self.has_done(1)


async def _run(cluster: Cluster, config: KillBrokerConfig) -> DrillReport:
    urls = cluster.urls
    async with FencelogClient(urls) as client:
        await retry_refusals(lambda: client.create_topic(TOPIC, partitions=1))
    progress = _Progress(config, _now())
    async with contextlib.AsyncExitStack() as stack:
        for number in range(CLIENTS_PER_BROKER * len(urls)):
            first = number % len(urls)
            load = LoadClient(number, [*urls[first:], *urls[:first]], TOPIC, PARTITION)
            stack.push_async_callback(load.close)
            progress.clients.append(load)
        notes = await _load_and_kill(cluster, progress)
    attempts = [attempt for client in progress.clients for attempt in client.attempts]
    log = await read_log(cluster.urls, TOPIC, PARTITION)
    result = account(attempts, log)
    failover_ms = None
    if progress.killed_at is not None and progress.recovered_at is not None:
        failover_ms = round((progress.recovered_at - progress.killed_at) * 1000, 1)
    notes.append(
        f"{result.unknown} messages of unknown outcome, {result.unknown_present} of them present"
    )
    if result.foreign:
        notes.append(f"{result.foreign} messages in the log were never sent, or were refused")
    return DrillReport("kill-broker", result, failover_ms, notes)


async def _load_and_kill(cluster: Cluster, progress: _Progress) -> list[str]:
    """Let all clients append and kill the owner meanwhile; what happened, in words."""
    async with asyncio.TaskGroup() as group:
        for load in progress.clients:
            group.create_task(
                load.run(is_over=progress.is_over, on_acknowledged=progress.on_acknowledged)
            )
        await progress.kill_is_due.wait()
        async with FencelogClient(cluster.urls) as client:
            owner = await owner_url(client, TOPIC, PARTITION)
        victim = cluster.broker_at(owner)
        progress.killed_at = _now()
        await victim.kill()
    return [f"killed {victim.name} (pid {victim.pid}, {owner}) with SIGKILL"]


async def owner_url(client: FencelogClient, topic: str, partition: int) -> str:
    """The URL of the broker that owns a partition. NO_OWNER."""
    for owner in await client.owners(topic):
        if owner["partition"] == partition and owner["url"]:
            return str(owner["url"])
    raise FencelogError(ErrorCode.NO_OWNER, f"nobody owns {topic}, partition {partition}")


def _now() -> float:
    return asyncio.get_running_loop().time()
