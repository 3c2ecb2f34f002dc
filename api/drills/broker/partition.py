"""``fencelog drill partition``: the owner is cut off, from one side after the other, and healed.

A broker that is cut off from ZooKeeper for longer than its session is replaced while it may still
reach its bookies, its clients or both: fencing keeps it from acknowledging.
"""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from fencelog.api.drills.harness.load import end_of
from fencelog.api.drills.harness.network import Cable, Network, hub
from fencelog.api.drills.harness.report import DrillReport, milliseconds
from fencelog.api.drills.harness.topic import NOWHERE, TopicDrill, on_own_cluster
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig, ProcessPlacement
from fencelog.ledgers.metastore.zookeeper_session import SESSION_TIMEOUT_MS

BROKERS = 2
BOOKIES = 3

CUTS = (
    (Cable.METADATA,),
    (Cable.STORAGE,),
    (Cable.METADATA, Cable.STORAGE),
    (Cable.CLIENTS,),
    (Cable.METADATA, Cable.STORAGE, Cable.CLIENTS),
)

BEFORE_S = 2.0
"""The time of load before each cut."""

ANSWER_TIMEOUT_S = 0.5
"""The answer time-out of a client; a longer wait for a broker that is cut off is a longer
failover."""


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """The configuration of the drill. ``session_ms``: of the brokers at ZooKeeper; ``keep`` the
    data and the logs."""

    session_ms: int = SESSION_TIMEOUT_MS
    keep: bool = False


async def partition_drill(config: PartitionConfig) -> DrillReport:
    """Run the drill on a cluster of its own; the process has to be in a network namespace of its
    own. Raises FencelogError when it cannot be run."""
    network = Network()
    places = {f"broker-{number}": network.connect(number) for number in range(1, BROKERS + 1)}
    places["zookeeper"] = ProcessPlacement(hub(Cable.METADATA))
    places |= {
        f"bookie-{number}": ProcessPlacement(hub(Cable.STORAGE)) for number in range(1, BOOKIES + 1)
    }

    async def script(cluster: Cluster, drill: TopicDrill) -> None:
        for cables in CUTS:
            await anyio.sleep(BEFORE_S)
            await _cut_and_heal(cluster, drill, network, cables, 1.5 * config.session_ms / 1000)

    cluster = ClusterConfig(NOWHERE, BOOKIES, BROKERS, session_ms=config.session_ms, places=places)
    return await on_own_cluster(
        "partition", script, cluster, keep=config.keep, timeout_s=ANSWER_TIMEOUT_S
    )


async def _cut_and_heal(
    cluster: Cluster,
    drill: TopicDrill,
    network: Network,
    cables: tuple[Cable, ...],
    cut_s: float,
) -> None:
    owner = cluster.broker_at(await drill.owner_url())
    number = int(owner.name.rpartition("-")[2])
    before = drill.load.acknowledged
    drill.load.take_silence_ms()
    network.cut(number, cables)
    await anyio.sleep(cut_s)
    meanwhile = drill.load.acknowledged - before
    network.heal(number, cables)
    back_ms = await end_of(drill.load.interrupt())
    silence_ms = drill.load.take_silence_ms()
    drill.report.interrupted(None if back_ms is None else silence_ms)
    sides = " and ".join(cable.name.lower() for cable in cables)
    drill.report.notes.append(
        f"{owner.name} cut off from {sides} for {cut_s:g} s: {meanwhile:,} messages acknowledged "
        f"meanwhile, none for {milliseconds(silence_ms)} at most, {milliseconds(back_ms)} after it "
        "was healed"
    )
