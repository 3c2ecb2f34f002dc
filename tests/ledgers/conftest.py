"""A scripted cluster of three bookies, and one of any size."""

from __future__ import annotations

import pytest

from tests.support.scripted_cluster import Cluster, MakeCluster


@pytest.fixture
def make_cluster() -> MakeCluster:
    return Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3)
