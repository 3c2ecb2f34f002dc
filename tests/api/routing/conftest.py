"""Two brokers, of which the first one is asked and the second one owns the partition; links."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from fencelog.api.routing.link import Links
from fencelog.broker.names import TopicName
from tests.api.routing.link_stage import Served, serve_paths
from tests.support.fake_broker import FakeBookies, FakeBroker, Serve, app_over


@pytest.fixture
async def owner(
    fake_broker: FakeBroker,
    fake_bookies: FakeBookies,
    new_broker: Callable[[], FakeBroker],
    serve: Serve,
    http: httpx.AsyncClient,
) -> AsyncIterator[FakeBroker]:
    """A second broker that owns ``ns/t``; the first one knows."""
    other = new_broker()
    other.topics = fake_broker.topics
    async with serve(app_over(other, fake_bookies)) as other.url:
        fake_broker.elsewhere[TopicName("ns", "t"), 0] = other.url
        yield other


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serve_paths() as found:
        yield found


@pytest.fixture
async def links() -> AsyncIterator[Links]:
    found = Links()
    yield found
    await found.close()
