"""The drills that need a service and nothing else, neither its processes nor its machines: they run
against a cluster that others use, too.

``load`` appends and accounts. ``unload`` has the owner transfer its partition, again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from fencelog.api.client import topic_path
from fencelog.api.drills.harness.report import DrillReport, milliseconds
from fencelog.api.drills.harness.senders import ask
from fencelog.api.drills.harness.topic import (
    NOWHERE,
    PARTITION,
    Script,
    TopicDrill,
    on_own_cluster,
    topic_of_its_own,
    under_load,
)
from fencelog.api.local_cluster.cluster import ClusterConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError

SETTLE_S = 1.0
"""The time of load before each transfer and after the last one."""


@dataclass(frozen=True, slots=True)
class ServiceDrillConfig:
    """The configuration of a drill. ``urls``: brokers of an existing cluster; none: of a cluster of
    its own. ``seconds`` of load; ``times``: the number of transfers of the partition. ``keep`` the
    data and the logs of a cluster of its own."""

    urls: Sequence[str] = ()
    seconds: float = 10.0
    times: int = 5
    keep: bool = False


async def load_drill(config: ServiceDrillConfig) -> DrillReport:
    """Run the load drill. Raises FencelogError when it cannot be run."""

    async def script(drill: TopicDrill) -> None:
        await drill.load.until(config.seconds)
        drill.note_longest_wait()

    return await _run("load", config, script)


async def unload_drill(config: ServiceDrillConfig) -> DrillReport:
    """Run the unload drill. Raises FencelogError when it cannot be run: BAD_REQUEST where there is
    one broker only."""

    async def script(drill: TopicDrill) -> None:
        brokers = (await ask(drill.target.urls[0], "GET", "/v1/brokers"))["brokers"]
        if len(brokers) < 2:
            raise FencelogError(ErrorCode.BAD_REQUEST, "a single broker has no other to unload to")
        for _ in range(config.times):
            await anyio.sleep(SETTLE_S)
            await _unload(drill)
        await anyio.sleep(SETTLE_S)

    return await _run("unload", config, script)


async def _unload(drill: TopicDrill) -> None:
    path = f"{topic_path(drill.target.topic)}/partitions/{PARTITION}:unload"
    before = await drill.owner_url()
    drill.load.take_silence_ms()
    await ask(drill.target.urls[0], "POST", path)
    after = await drill.owner_url()
    await anyio.sleep(SETTLE_S)
    silence_ms = drill.load.take_silence_ms()
    drill.report.expect(before != after, f"{before} still owns the partition that it gave up")
    drill.report.interrupted(silence_ms)
    drill.report.notes.append(
        f"from {before} to {after}: nothing acknowledged for {milliseconds(silence_ms)} at most"
    )


async def _run(name: str, config: ServiceDrillConfig, script: Script) -> DrillReport:
    if config.urls:
        async with topic_of_its_own(config.urls) as target:
            return await under_load(name, target, script)
    return await on_own_cluster(
        name, lambda _cluster, drill: script(drill), ClusterConfig(NOWHERE), keep=config.keep
    )
