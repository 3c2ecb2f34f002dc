"""``fencelog drill pause-broker``: the owner is stopped for longer than its session, and continued.

SIGSTOP is what a frozen machine looks like from outside: connections stay open and no answer comes.
Another broker takes over when the session has expired. The continued broker still considers itself
the owner, and clients of it alone have their appends in its sockets: it may acknowledge none that
was sent after the takeover.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from fencelog.api.drills.harness.load import LoadClient, end_of
from fencelog.api.drills.harness.report import DrillReport, milliseconds
from fencelog.api.drills.harness.topic import NOWHERE, TopicDrill, on_own_cluster
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig
from fencelog.ledgers.metastore.zookeeper_session import SESSION_TIMEOUT_MS

BEFORE_S = 2.0
AFTER_S = 2.0
"""The time of load before the stop, and after the owner is continued."""

ANSWER_TIMEOUT_S = 0.5
"""The answer time-out of a client; a longer wait for a stopped broker is a longer failover."""

ZOMBIE_TIMEOUT_S = 60.0
"""The answer time-out of a client of the stopped broker, which waits for the answer, however
late."""

CLIENTS = 2
"""The clients of the stopped broker alone: so many before, and so many more after the takeover."""


@dataclass(frozen=True, slots=True)
class PauseBrokerConfig:
    """The configuration of the drill. ``times``: the number of stops; ``session_ms``: of the
    brokers at ZooKeeper; ``keep`` the data and the logs of the processes."""

    times: int = 1
    session_ms: int = SESSION_TIMEOUT_MS
    keep: bool = False


@dataclass(slots=True)
class _Zombie:
    """The observations of the stopped broker's clients. Loop times."""

    taken_over_at: float = float("inf")
    clients: list[LoadClient] = field(default_factory=list)
    acknowledged_late: int = 0

    def on_acknowledged(self, sent_at: float) -> None:
        """Count an acknowledgement of an append that was sent since the takeover. One that was sent
        before and had reached its bookies may be acknowledged late: it is in the log."""
        self.acknowledged_late += sent_at >= self.taken_over_at


async def pause_broker_drill(config: PauseBrokerConfig) -> DrillReport:
    """Run the drill on a cluster of its own. Raises FencelogError when it cannot be run."""

    async def script(cluster: Cluster, drill: TopicDrill) -> None:
        for _ in range(config.times):
            await pause_owner(cluster, drill, config.session_ms / 1000)

    return await on_own_cluster(
        "pause-broker",
        script,
        ClusterConfig(NOWHERE, session_ms=config.session_ms),
        keep=config.keep,
        timeout_s=ANSWER_TIMEOUT_S,
        consumers=True,
    )


async def pause_owner(cluster: Cluster, drill: TopicDrill, session_s: float) -> None:
    """Stop the owner until another broker has taken over, and half a session more."""
    owner = await drill.owner_url()
    victim, zombie = cluster.broker_at(owner), _Zombie()

    def ask_the_victim() -> None:
        for _ in range(CLIENTS):
            client = drill.client_of(owner, timeout_s=ZOMBIE_TIMEOUT_S)
            zombie.clients.append(client)
            drill.load.start_special(client, zombie.on_acknowledged)

    ask_the_victim()
    await anyio.sleep(BEFORE_S)
    interruption = drill.load.interrupt()
    with victim.stopped():
        failover_ms = await end_of(interruption)
        zombie.taken_over_at = anyio.current_time()
        ask_the_victim()
        await anyio.sleep(session_s / 2)
    stopped_s = anyio.current_time() - interruption.began_at
    await anyio.sleep(AFTER_S)
    drill.report.interrupted(failover_ms)
    drill.report.expect(victim.is_running, f"{victim.name} ended after it went on")
    _judge(drill.report, zombie)
    drill.report.notes.append(
        f"stopped {victim.name} (pid {victim.pid}) for {stopped_s:.1f} s, its session is "
        f"{session_s:g} s; first acknowledged append: {milliseconds(failover_ms)}"
    )


def _judge(report: DrillReport, zombie: _Zombie) -> None:
    asked = zombie.clients
    refused = sum(client.refused for client in asked)
    unknown = sum(attempt.offset is None for client in asked for attempt in client.attempts)
    report.expect(
        zombie.acknowledged_late == 0,
        f"the broker that woke acknowledged {zombie.acknowledged_late} appends that were sent to "
        "it after the takeover",
    )
    report.expect(refused + unknown > 0, "no request reached the broker that was resumed")
    report.notes.append(
        f"the broker that woke refused {refused} appends, and could not say of {unknown}"
    )
