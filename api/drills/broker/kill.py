"""``fencelog drill kill-broker``: the owner of a partition gets SIGKILL under load.

Its port refuses connections from then on, so another broker takes over at the next request: no
session has to expire first.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencelog.api.drills.harness.load import end_of
from fencelog.api.drills.harness.report import DrillReport, milliseconds
from fencelog.api.drills.harness.topic import NOWHERE, TopicDrill, on_own_cluster
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig


@dataclass(frozen=True, slots=True)
class KillBrokerConfig:
    """The configuration of the drill. ``seconds`` to append; ``messages``: stop earlier, after so
    many acknowledged ones; ``times``: the number of kills, one owner after the other; ``keep`` the
    data and the logs."""

    seconds: float = 15.0
    messages: int | None = None
    times: int = 1
    keep: bool = False


async def kill_broker_drill(config: KillBrokerConfig) -> DrillReport:
    """Run the drill on a cluster of its own. Raises FencelogError when it cannot be run at all."""

    async def script(cluster: Cluster, drill: TopicDrill) -> None:
        await kill_owners(cluster, drill, config)

    return await on_own_cluster(
        "kill-broker", script, ClusterConfig(NOWHERE), keep=config.keep, consumers=True
    )


async def kill_owners(cluster: Cluster, drill: TopicDrill, config: KillBrokerConfig) -> None:
    """Let clients append for as long as ``config`` says, and kill the owner at intervals."""

    async def until(part: float) -> None:
        messages = None if config.messages is None else int(config.messages * part)
        await drill.load.until(config.seconds * part, messages)

    for kill in range(1, config.times + 1):
        await until(kill / (config.times + 2))
        owner = await drill.owner_url()
        victim = cluster.broker_at(owner)
        interruption = drill.load.interrupt()
        await victim.kill()
        failover_ms = await end_of(interruption)
        drill.report.interrupted(failover_ms)
        drill.report.notes.append(
            f"killed {victim.name} (pid {victim.pid}, {owner}) with SIGKILL; "
            f"first acknowledged append: {milliseconds(failover_ms)}"
        )
        await cluster.restart(victim)
    await until(1)
