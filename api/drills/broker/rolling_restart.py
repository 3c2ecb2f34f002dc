"""``fencelog drill rolling-restart``: bookies and brokers are stopped and started again, one by
one, as in an update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from fencelog.api.client.retry import retry_not_applied
from fencelog.api.drills.harness.report import DrillReport
from fencelog.api.drills.harness.senders import ask
from fencelog.api.drills.harness.topic import NOWHERE, TopicDrill, on_own_cluster
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError

BOOKIES = 4
"""The number of bookies, one more than an ensemble: another one can replace a lost one."""

SETTLE_S = 1.0
"""The time of load before each restart and after the last one."""


@dataclass(frozen=True, slots=True)
class RollingRestartConfig:
    """The configuration of the drill. ``settle_s``: between two restarts; ``keep`` the data and the
    logs of the processes."""

    settle_s: float = SETTLE_S
    keep: bool = False


async def rolling_restart_drill(config: RollingRestartConfig) -> DrillReport:
    """Run the drill on a cluster of its own. Raises FencelogError when it cannot be run, or a
    process does not start again."""

    async def script(cluster: Cluster, drill: TopicDrill) -> None:
        await restart_all(cluster, drill, config.settle_s)

    cluster = ClusterConfig(NOWHERE, bookies=BOOKIES)
    return await on_own_cluster("rolling-restart", script, cluster, keep=config.keep)


async def restart_all(cluster: Cluster, drill: TopicDrill, settle_s: float) -> None:
    """Restart bookies and brokers, one at a time. The cluster has BOOKIES bookies."""
    took_s = {}
    for process in (*cluster.bookies, *cluster.brokers):
        await anyio.sleep(settle_s)
        began = anyio.current_time()
        await process.stop()
        await cluster.restart(process)
        await retry_not_applied(lambda: _all_serve(cluster.urls))
        took_s[process.name] = anyio.current_time() - began
    await anyio.sleep(settle_s)
    drill.note_longest_wait()
    told = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in took_s.items())
    drill.report.notes.append(f"from SIGTERM until it served again: {told}")


async def _all_serve(urls: Sequence[str]) -> None:
    """Return when every broker knows all bookies. Raises NOT_ENOUGH_BOOKIES."""
    for url in urls:
        known = len((await ask(url, "GET", "/v1/bookies"))["bookies"])
        if known < BOOKIES:
            raise FencelogError(
                ErrorCode.NOT_ENOUGH_BOOKIES, f"{url} knows {known} of {BOOKIES} bookies"
            )
