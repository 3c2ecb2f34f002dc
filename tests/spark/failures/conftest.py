"""One real cluster whose processes the tests kill, and a source of data that fails on purpose."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig, running_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SESSION_MS = 2000
"""The time until a killed broker's partitions are taken over."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    config = ClusterConfig(
        tmp_path_factory.mktemp("broken"), bookies=4, http_port=0, session_ms=SESSION_MS
    )
    async with running_cluster(config) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def client(cluster: Cluster) -> AsyncIterator[FencelogClient]:
    async with FencelogClient(cluster.urls) as client:
        yield client


@pytest.fixture
def server(cluster: Cluster) -> str:
    """All brokers that run, as the option ``server``."""
    return ",".join(cluster.urls)


@pytest.fixture(scope="session")
def failing(spark: SparkSession) -> str:
    """The format whose first attempt fails."""
    from tests.spark.support.failing import FORMAT, FailingDataSource

    spark.dataSource.register(FailingDataSource)
    return FORMAT
