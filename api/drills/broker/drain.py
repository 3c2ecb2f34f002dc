"""``fencelog drill drain``: the owner transfers its partitions under load, after SIGTERM, which
ends it, and on a request over HTTP, after which it continues and owns nothing.

The drill measures the time until another broker acknowledges as the owner: clients that only the
other brokers may serve ask them all the while.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio

from fencelog.api.client.tasks import task_group
from fencelog.api.drills.harness.load import end_of
from fencelog.api.drills.harness.report import DrillReport, milliseconds
from fencelog.api.drills.harness.senders import ask
from fencelog.api.drills.harness.topic import NOWHERE, TopicDrill, on_own_cluster
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig

SETTLE_S = 1.0
"""The time of load before each drain and after the last one."""

PAUSE_S = 0.02
"""The pause of a client between two appends: if all CPUs were busy with appends, the drill would
measure how long a process waits for a CPU."""

PROBE_DELAY_S = 0.005
"""The pause between two attempts of such a client: the precision of what this drill measures."""


@dataclass(frozen=True, slots=True)
class DrainConfig:
    """The configuration of the drill. ``times``: the number of drains; ``keep`` the data and the
    logs of the processes."""

    times: int = 2
    keep: bool = False


async def drain_drill(config: DrainConfig) -> DrillReport:
    """Run the drill on a cluster of its own. Raises FencelogError when it cannot be run, or a
    broker does not start again."""

    async def script(cluster: Cluster, drill: TopicDrill) -> None:
        await drain_owners(cluster, drill, config.times)

    return await on_own_cluster(
        "drain",
        script,
        ClusterConfig(NOWHERE),
        keep=config.keep,
        pause_s=PAUSE_S,
        consumers=True,
    )


async def drain_owners(cluster: Cluster, drill: TopicDrill, times: int) -> None:
    """Drain one owner after the other, by signal and by request in turn, and start it again."""
    for number in range(times):
        await anyio.sleep(SETTLE_S)
        owner = await drill.owner_url()
        broker = cluster.broker_at(owner)
        if number % 2 == 0:
            await _transfer(drill, owner, broker.stop, f"SIGTERM for {broker.name}")
        else:
            path = f"/v1/brokers/{broker.name}:drain"
            await _transfer(drill, owner, partial(ask, owner, "POST", path), f"POST {path}")
            await broker.stop()
        await cluster.restart(broker)
    await anyio.sleep(SETTLE_S)


async def _transfer(
    drill: TopicDrill, owner: str, drain: Callable[[], Coroutine[Any, Any, object]], what: str
) -> None:
    """Have the owner give the partition up with ``drain``, and measure the time until another
    broker acknowledges; note ``what`` was done."""
    others = [url for url in drill.target.urls if url != owner]
    interruption = drill.load.interrupt(by_anybody=False)
    for url in others:
        probe = drill.client_of(url, retry_delay_s=PROBE_DELAY_S)
        drill.load.start_special(probe, interruption.ends)
    async with task_group() as group:
        group.start_soon(drain)
        failover_ms = await end_of(interruption)
    drill.report.interrupted(failover_ms)
    drill.report.notes.append(
        f"{what}: another broker acknowledged the first append after {milliseconds(failover_ms)}"
    )
