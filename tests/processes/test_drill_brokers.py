"""The drills of brokers at a small size: one real cluster, broken in one way after the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from fencelog.api.client import FencelogClient
from fencelog.api.drills.broker.drain import drain_owners
from fencelog.api.drills.broker.kill import KillBrokerConfig, kill_owners
from fencelog.api.drills.broker.pause import ANSWER_TIMEOUT_S, pause_owner
from fencelog.api.drills.broker.rolling_restart import BOOKIES, restart_all
from fencelog.api.drills.broker.zookeeper import restart_zookeeper
from fencelog.api.drills.harness.report import DrillReport
from fencelog.api.drills.harness.topic import ClusterScript, DrillTarget, under_load
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig, running_cluster
from fencelog.broker.cluster.events_core import EVENTS_TOPIC
from tests.support.fencelog_cli import fencelog

pytestmark = [
    pytest.mark.processes,
    pytest.mark.zookeeper,
    pytest.mark.asyncio(loop_scope="module"),
]

SESSION_MS = 2000
GENEROUS_MS = 15_000
"""The time for another broker to take over on a busy machine: the test is about what happens, not
how fast."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    config = ClusterConfig(
        tmp_path_factory.mktemp("drills"), bookies=BOOKIES, http_port=0, session_ms=SESSION_MS
    )
    async with running_cluster(config) as running:
        yield running


async def drill(
    cluster: Cluster, name: str, script: ClusterScript, *, consumers: bool = False
) -> DrillReport:
    """The report of a drill on a topic of its own; it has to be clean."""
    target = DrillTarget(cluster.urls, f"default/{name}", timeout_s=ANSWER_TIMEOUT_S)
    report = await under_load(
        name, target, lambda drill: script(cluster, drill), consumers=consumers
    )
    assert report.is_clean, report
    assert report.failover_ms is not None
    return report


async def test_an_owner_that_is_killed(cluster: Cluster) -> None:
    async def script(cluster: Cluster, drill: Any) -> None:
        await kill_owners(cluster, drill, KillBrokerConfig(seconds=1, times=2))

    report = await drill(cluster, "kill-broker", script, consumers=True)
    assert 0 < (report.failover_ms or 0) < GENEROUS_MS
    assert sum("with SIGKILL" in note for note in report.notes) == 2
    assert len(cluster.urls) == 2


async def test_an_owner_that_stands_still_and_wakes(cluster: Cluster) -> None:
    async def script(cluster: Cluster, drill: Any) -> None:
        await pause_owner(cluster, drill, SESSION_MS / 1000)

    report = await drill(cluster, "pause-broker", script, consumers=True)
    assert (report.failover_ms or 0) < SESSION_MS + GENEROUS_MS


@pytest.mark.thorough
async def test_an_owner_that_is_drained(cluster: Cluster) -> None:
    async def script(cluster: Cluster, drill: Any) -> None:
        await drain_owners(cluster, drill, 2)

    report = await drill(cluster, "drain", script)
    assert 0 < (report.failover_ms or 0) < GENEROUS_MS


async def test_zookeeper_that_is_away(cluster: Cluster) -> None:
    async def script(cluster: Cluster, drill: Any) -> None:
        await restart_zookeeper(cluster, drill, 1.0)
        drill.note_longest_wait()

    await drill(cluster, "zookeeper-restart", script)


@pytest.mark.thorough
@pytest.mark.timeout(120)
async def test_a_restart_of_everything(cluster: Cluster) -> None:
    async def script(cluster: Cluster, drill: Any) -> None:
        await restart_all(cluster, drill, 0.1)

    report = await drill(cluster, "rolling-restart", script)
    (times,) = (note for note in report.notes if note.startswith("from SIGTERM"))
    assert times.count("-") == BOOKIES + 2


async def topics(client: FencelogClient) -> list[dict[str, Any]]:
    """The topics, without that of events, which is made when the first one happens."""
    return [each for each in await client.topics() if each["namespace"] != EVENTS_TOPIC.namespace]


async def test_a_cluster_that_is_there_keeps_nothing_of_a_drill(cluster: Cluster) -> None:
    async def run(*arguments: str) -> dict[str, Any]:
        command = (*arguments, "--cluster", ",".join(cluster.urls), "--json")
        done = await asyncio.get_running_loop().run_in_executor(
            None, lambda: fencelog("drill", *command, timeout_s=50)
        )
        assert done.returncode == 0, done
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    async with FencelogClient(cluster.urls) as client:
        before = await topics(client)
        for name, options in (("load", ("--seconds", "1")), ("unload", ("--times", "1"))):
            report = await run(name, *options)
            assert report["drill"] == name
            assert report["acknowledged"] > 0
            for disaster in ("lost", "duplicated", "out_of_order"):
                assert report[disaster] == 0, disaster
            assert report["failover_ms"] > 0
        assert await topics(client) == before
