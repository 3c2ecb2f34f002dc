"""A service for streams, and streaming queries over it in the session's Spark."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.child_process import ChildProcess
from tests.spark.support.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    place = tmp_path_factory.mktemp("streamed")
    command = ["standalone", "--http", "127.0.0.1:0", "--data", str(place / "data")]
    process = await ChildProcess.start("standalone", command, log=place / "log")
    yield process.announcement["http"]
    await process.stop()


@pytest.fixture
async def client(server: str) -> AsyncIterator[FencelogClient]:
    async with FencelogClient(server) as client:
        yield client


@pytest.fixture
def stream(spark: SparkSession, server: str, tmp_path: Path) -> Callable[..., Stream]:
    def open_stream(**options: str) -> Stream:
        given = {"server": server, "startingOffsets": "earliest"} | options
        return Stream(spark, tmp_path, given)

    return open_stream
