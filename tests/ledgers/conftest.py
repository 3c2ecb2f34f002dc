"""A scripted cluster of three bookies, and one of any size; and the time of those who use them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from tests.support.scripted_cluster import Cluster, MakeCluster
from tests.support.virtual_time import VirtualTimeLoop

_SCRIPTED = ("test_client.py", "reader", "writer")
"""The modules and folders whose tests have neither sockets nor threads: virtual time would not wait
for those."""


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests over scripted bookies in virtual time: a time-out runs out when nothing else is
    left to happen, and not because a machine is slow."""
    if item.path.name in _SCRIPTED or item.path.parent.name in _SCRIPTED:
        return {"virtual time": VirtualTimeLoop}
    return {"real time": asyncio.new_event_loop}


@pytest.fixture
def make_cluster() -> MakeCluster:
    return Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3)
