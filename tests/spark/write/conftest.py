"""A service that Spark writes to, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.child_process import ChildProcess


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    place = tmp_path_factory.mktemp("written")
    command = ["standalone", "--http", "127.0.0.1:0", "--data", str(place / "data")]
    process = await ChildProcess.start("standalone", command, log=place / "log")
    yield process.announcement["http"]
    await process.stop()


@pytest.fixture
async def client(server: str) -> AsyncIterator[FencelogClient]:
    async with FencelogClient(server) as client:
        yield client
