"""The load against a real service: it accounts for what it sent, and notices a wrong log."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from fencelog.api.client import FencelogClient
from fencelog.api.drills.harness.account import Attempt
from fencelog.api.local_cluster.child_process import ChildProcess
from tests.processes.k8s.load import PARTITIONS, Load
from tests.support.until import PATIENCE_S, until

pytestmark = pytest.mark.processes

TOPIC = "default/load"


@pytest.fixture(autouse=True)
def patient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that a pause of the machine gives no error: the tests say which ones there are."""
    for limit in ("TIMEOUT_S", "CONNECT_TIMEOUT_S"):
        monkeypatch.setattr(f"tests.processes.k8s.load.{limit}", PATIENCE_S)


async def test_every_message_is_accounted_for(tmp_path: Path) -> None:
    command = ["standalone", "--http", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    service = await ChildProcess.start("standalone", command, log=tmp_path / "log")
    try:
        server = str(service.announcement["http"])
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(FencelogClient([server]))
            await client.create_topic(TOPIC, partitions=PARTITIONS)
            load = Load(server, TOPIC)
            await load.connect(stack)

            await load.begin()
            await until(lambda: load.window.acknowledged >= 10 * len(load.clients))
            report = await load.end()
            assert report["errors"] == {}
            assert {gap["client"] for gap in report["gaps"]} == {
                f"{kind} {partition}"
                for kind in ("client", "http")
                for partition in range(PARTITIONS)
            }
            counts = await load.verify()
            assert counts["is_clean"] is True
            assert counts["acknowledged"] >= 20 * report["acknowledged"] > 0

            # The same clients go on in the next window.
            await load.begin()
            await until(lambda: load.window.acknowledged > 0)
            assert (await load.end())["acknowledged"] > 0
            again = await load.verify()
            assert again["is_clean"] is True
            assert again["acknowledged"] > counts["acknowledged"]

            # A message that is acknowledged and nowhere is found to be lost.
            load.clients[0][0].attempts.append(Attempt(0, 1_000_000, 1, offset=0))
            assert (await load.verify())["lost"] == 1
    finally:
        await service.stop()


async def test_errors_of_a_service_that_is_gone_are_counted() -> None:
    async with AsyncExitStack() as stack:
        load = Load("http://127.0.0.1:9", TOPIC)
        await load.connect(stack)
        await load.begin()
        await asyncio.sleep(0.3)
        await until(lambda: len(load.window.errors) == 2)
        report = await load.end()
    assert report["acknowledged"] == 0
    assert set(report["errors"]) == {"client: no_owner", "http: no_owner"}
    assert min(gap["seconds"] for gap in report["gaps"]) >= 0.3
