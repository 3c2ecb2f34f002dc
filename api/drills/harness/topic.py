"""The frame of drills that append to a topic: clients under full load, an action on the service
meanwhile, and at the end the whole partition, read and compared with the answers to every
client."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fencelog.api.client import FencelogClient
from fencelog.api.client.retry import retry_not_applied
from fencelog.api.drills.harness.account import account
from fencelog.api.drills.harness.consumers import DrillConsumers
from fencelog.api.drills.harness.directory import drill_directory
from fencelog.api.drills.harness.load import RETRY_DELAY_S, ClientLoad, LoadClient, read_log
from fencelog.api.drills.harness.report import DrillReport
from fencelog.api.drills.harness.senders import AnyBroker, OneBroker
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig, running_cluster
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost

PARTITION = 0
CLIENTS_PER_BROKER = 4

ANSWER_TIMEOUT_S = 5.0
"""The time that a client waits for an answer before it goes to another broker."""


@dataclass(frozen=True, slots=True)
class DrillTarget:
    """The target of a drill's appends: brokers, and a topic with one partition. ``timeout_s``: of a
    client, for an answer; ``pause_s``: between two appends of a client."""

    urls: Sequence[str]
    topic: str = "default/drill"
    timeout_s: float = ANSWER_TIMEOUT_S
    pause_s: float = 0


@dataclass(slots=True)
class TopicDrill:
    """A running drill. ``report`` takes its observations; the account is added at the end."""

    target: DrillTarget
    load: ClientLoad
    report: DrillReport
    _client: FencelogClient
    _stack: contextlib.AsyncExitStack

    async def owner_url(self) -> str:
        """Return the URL of the broker that owns the partition. Raises NO_OWNER."""
        ask = partial(owner_url, self._client, self.target.topic, PARTITION)
        return await retry_not_applied(ask)

    async def start_clients(self) -> None:
        """Start CLIENTS_PER_BROKER clients that ask each broker first; half of them number their
        messages."""
        target = self.target
        services = [
            await self._stack.enter_async_context(FencelogClient(url)) for url in target.urls
        ]
        for first in range(CLIENTS_PER_BROKER * len(services)):
            sender = AnyBroker(
                services, target.topic, PARTITION, first=first, timeout_s=target.timeout_s
            )
            is_numbered = first // len(services) % 2 == 0
            producer_id = f"drill-{first}" if is_numbered else None
            self.load.start(
                LoadClient(
                    self.load.next_number(),
                    sender,
                    producer_id=producer_id,
                    pause_s=target.pause_s,
                )
            )

    async def start_consumers(self, stack: contextlib.AsyncExitStack) -> DrillConsumers:
        """Start one consumer for each broker, until ``stack`` is left."""
        target = self.target
        services = [await stack.enter_async_context(FencelogClient(url)) for url in target.urls]
        consumers = DrillConsumers(services, target.topic, timeout_s=target.timeout_s)
        await stack.enter_async_context(consumers.running())
        return consumers

    def client_of(
        self, url: str, *, timeout_s: float = ANSWER_TIMEOUT_S, retry_delay_s: float = RETRY_DELAY_S
    ) -> LoadClient:
        """Return a client that only the broker at ``url`` serves."""
        sender = OneBroker(url, self.target.topic, PARTITION, timeout_s=timeout_s)
        self._stack.push_async_callback(sender.close)
        return LoadClient(self.load.next_number(), sender, retry_delay_s=retry_delay_s)

    def note_longest_wait(self) -> None:
        """Note the longest wait of a client as this drill's metric."""
        self.report.interrupted(self.load.longest_wait_ms)


async def owner_url(client: FencelogClient, topic: str, partition: int) -> str:
    """Return the URL of the broker that owns a partition. Raises NO_OWNER."""
    for owner in await client.owners(topic):
        if owner["partition"] == partition and owner["url"]:
            return str(owner["url"])
    raise FencelogError(ErrorCode.NO_OWNER, f"no broker owns {topic}, partition {partition}")


Script = Callable[[TopicDrill], Awaitable[None]]
"""The action on the service while the clients append."""


async def under_load(
    name: str, target: DrillTarget, script: Script, *, consumers: bool = False
) -> DrillReport:
    """Run a drill on an existing service, with ``consumers`` of a subscription besides. Raises
    FencelogError when it cannot be run."""
    report = DrillReport(name)
    async with contextlib.AsyncExitStack() as stack:
        asking = await stack.enter_async_context(FencelogClient(target.urls))
        await retry_not_applied(lambda: asking.create_topic(target.topic, partitions=1))
        load = ClientLoad()
        drill = TopicDrill(target, load, report, asking, stack)
        consuming = await drill.start_consumers(stack) if consumers else None
        async with load.running():
            await drill.start_clients()
            await script(drill)
        log = await read_log(target.urls, target.topic, PARTITION)
        if consuming is not None:
            await consuming.finish(log)
            consuming.report(log, report)
    report.account = account(load.attempts, log)
    result = report.account
    report.notes.append(
        f"{result.unknown} messages of unknown outcome, {result.unknown_present} of them present"
    )
    if load.resolved:
        report.notes.append(
            f"{load.resolved} appends of unknown outcome were sent again by producers that number "
            "their messages"
        )
    report.notes.append(f"longest wait of a client: {load.longest_wait_ms:,.0f} ms")
    if result.foreign:
        report.notes.append(f"{result.foreign} messages in the log were never sent, or refused")
    return report


@contextlib.asynccontextmanager
async def topic_of_its_own(urls: Sequence[str]) -> AsyncIterator[DrillTarget]:
    """Create a topic in a cluster that others use, too, and delete it at the end. Raises
    FencelogError."""
    target = DrillTarget(urls, f"default/drill-{SystemHost().random_bytes(4).hex()}")
    try:
        yield target
    finally:
        async with FencelogClient(urls) as client:
            with contextlib.suppress(FencelogError):
                await retry_not_applied(lambda: client.delete_topic(target.topic))


ClusterScript = Callable[[Cluster, TopicDrill], Awaitable[None]]


async def on_own_cluster(
    name: str,
    script: ClusterScript,
    config: ClusterConfig,
    *,
    keep: bool = False,
    timeout_s: float = ANSWER_TIMEOUT_S,
    pause_s: float = 0,
    consumers: bool = False,
) -> DrillReport:
    """Run a drill on a cluster of processes of its own; ``config.data_dir`` is replaced. ``keep``
    the data and the logs. Everything else is as for ``under_load``."""
    with drill_directory(keep=keep) as directory:
        config = replace(config, data_dir=directory, http_port=0)
        async with running_cluster(config) as cluster:
            target = DrillTarget(cluster.urls, timeout_s=timeout_s, pause_s=pause_s)
            report = await under_load(
                name, target, lambda drill: script(cluster, drill), consumers=consumers
            )
    if keep:
        report.notes.append(f"data and logs are in {directory}")
    return report


NOWHERE = Path()
"""The ``ClusterConfig.data_dir`` of a cluster whose directory is made later."""
