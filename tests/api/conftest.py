"""A service over a broker in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx
import pytest
import pytest_asyncio

from fencelog.api.admin import ask_brokers, bookie_table
from fencelog.api.processes.standalone import StandaloneConfig, standalone
from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicConfig
from tests.support.fake_broker import FakeBookies, FakeBroker, Serve, app_over, serving
from tests.support.network.http_client import http_client
from tests.support.until import PATIENCE_S


@pytest.fixture(autouse=True)
def long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every broker and bookie that is asked the time to answer on a busy machine; a test of
    one that does not answer sets its own limit."""
    for asking in (ask_brokers, bookie_table):
        monkeypatch.setattr(asking, "ADMIN_ANSWER_S", PATIENCE_S)
    monkeypatch.setattr(ask_brokers, "STATS_WAIT_S", PATIENCE_S)


@pytest.fixture
def fake_broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def fake_bookies() -> FakeBookies:
    return FakeBookies()


@pytest.fixture
async def service(fake_broker: FakeBroker, fake_bookies: FakeBookies) -> AsyncIterator[str]:
    """The URL of a service over the fake broker."""
    async with serving(app_over(fake_broker, fake_bookies)) as url:
        yield url


@pytest.fixture
def serve() -> Serve:
    return serving


@pytest.fixture
def new_broker() -> Callable[[], FakeBroker]:
    return FakeBroker


@pytest.fixture
async def http(service: str, fake_broker: FakeBroker) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service, with the topic ``ns/t`` (one partition) in it."""
    await fake_broker.topics.create(TopicName("ns", "t"), TopicConfig())
    async with http_client(service) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Return the URL of a whole service in this process, which owns every partition."""
    config = StandaloneConfig(tmp_path_factory.mktemp("service"), "127.0.0.1:0")
    async with standalone(config) as service:
        yield service.announcement["http"]
