"""One service for all command line tests, and a topic of its own for each."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from fencelog.api.local_cluster.child_process import ChildProcess
from tests.support.network.http_client import TIMEOUT_S, plain_http


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts processes."""
    for item in items:
        if "service" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.processes)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The URL of a standalone service."""
    place = tmp_path_factory.mktemp("service")
    command = ["standalone", "--http", "127.0.0.1:0", "--data", str(place / "data")]
    process = await ChildProcess.start("standalone", command, log=place / "log")
    yield str(process.announcement["http"])
    await process.stop()


@pytest.fixture
def topic(service: str, request: pytest.FixtureRequest) -> str:
    """A new topic of one partition, named after the test; a process would take half a second."""
    name = f"cli/{request.node.name.replace('[', '-').rstrip(']')}"[:100]
    url = f"{service}/v1/topics/{name}"
    httpx.put(url, trust_env=False, verify=plain_http(), timeout=TIMEOUT_S).raise_for_status()
    return name
