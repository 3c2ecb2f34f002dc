"""``fencelog drill zookeeper-restart``: ZooKeeper is killed, and started again on its data.

Open partitions do not need it: appends go on while it is down, for longer than a session. Its
sessions are in its data, so brokers and bookies resume those they had.
"""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from fencelog.api.client import FencelogClient
from fencelog.api.client.retry import retry_not_applied
from fencelog.api.drills.harness.report import DrillReport
from fencelog.api.drills.harness.topic import NOWHERE, TopicDrill, on_own_cluster, topic_of_its_own
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig
from fencelog.ledgers.metastore.zookeeper_session import SESSION_TIMEOUT_MS

BEFORE_S = 2.0
"""The time of load before ZooKeeper is killed."""


@dataclass(frozen=True, slots=True)
class ZooKeeperRestartConfig:
    """The configuration of the drill. ``times``: the number of restarts; ``down_s``: how long
    ZooKeeper is away; ``session_ms``: of brokers and bookies; ``keep`` the data and the logs of the
    processes."""

    times: int = 1
    down_s: float = 8.0
    session_ms: int = SESSION_TIMEOUT_MS
    keep: bool = False


async def zookeeper_restart_drill(config: ZooKeeperRestartConfig) -> DrillReport:
    """Run the drill on a cluster of its own. Raises FencelogError when it cannot be run, or
    metadata does not become available again."""

    async def script(cluster: Cluster, drill: TopicDrill) -> None:
        for _ in range(config.times):
            await restart_zookeeper(cluster, drill, config.down_s)
            await anyio.sleep(config.session_ms / 1000)  # a lost session has been noticed by then
        drill.note_longest_wait()

    cluster = ClusterConfig(NOWHERE, session_ms=config.session_ms)
    return await on_own_cluster("zookeeper-restart", script, cluster, keep=config.keep)


async def restart_zookeeper(cluster: Cluster, drill: TopicDrill, down_s: float) -> None:
    """Kill ZooKeeper, start it again ``down_s`` later, and wait until metadata can be written."""
    await anyio.sleep(BEFORE_S)
    await cluster.kill_zookeeper()
    before = drill.load.acknowledged
    await anyio.sleep(down_s)
    meanwhile = drill.load.acknowledged - before
    started_at = anyio.current_time()
    await cluster.restart_zookeeper()
    async with topic_of_its_own(drill.target.urls) as other, FencelogClient(other.urls) as client:
        await retry_not_applied(lambda: client.create_topic(other.topic, partitions=1))
        back_s = anyio.current_time() - started_at
    drill.report.expect(meanwhile > 0, "nothing was acknowledged while ZooKeeper was away")
    drill.report.notes.append(
        f"{meanwhile:,} messages acknowledged in {down_s:g} s without ZooKeeper; a topic was "
        f"created {back_s:.1f} s after it was started again"
    )
