"""Processes that are paused: they are registered, their ports accept connections, and they do not
answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencelog.api.admin.doctor.findings import FindingKind
from fencelog.api.local_cluster.child_process import ChildProcess
from fencelog.api.local_cluster.cluster import ClusterConfig, running_cluster
from tests.api.admin.doctor.provoked import note, provokes
from tests.support.network.http_client import http_client
from tests.support.until import until_found

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

SESSION_MS = 60_000
"""A paused process stays registered for so long: a busy machine has to see that."""


@provokes(FindingKind.BOOKIE_UNREACHABLE, FindingKind.BROKER_UNREACHABLE)
async def test_a_paused_bookie_and_a_paused_broker_are_found(tmp_path: Path) -> None:
    config = ClusterConfig(tmp_path, brokers=2, http_port=0, session_ms=SESSION_MS)
    async with (
        running_cluster(config) as cluster,
        http_client(cluster.urls[1]) as http,
    ):

        async def about(process: ChildProcess) -> dict[str, Any]:
            """The kinds of findings about a process, with their commands."""
            report = (await http.get("/v1/admin/doctor?scan=false")).raise_for_status().json()
            note(report["findings"])
            return {
                each["kind"]: (each["look_first"], each["command"])
                for each in report["findings"]
                if each["subject"] == process.name
            }

        async def is_well(process: ChildProcess) -> bool:
            return not await about(process)

        bookie, broker = cluster.bookies[0], cluster.brokers[0]
        with bookie.stopped():
            assert await until_found(lambda: about(bookie)) == {
                "bookie_unreachable": (
                    f"fencelog bookies status {bookie.name} --metadata URL",
                    f"fencelog bookie --metadata URL --data DIR --id {bookie.name}",
                )
            }
        await until_found(lambda: is_well(bookie))
        with broker.stopped():
            assert (await until_found(lambda: about(broker))).keys() == {"broker_unreachable"}
        await until_found(lambda: is_well(broker))
