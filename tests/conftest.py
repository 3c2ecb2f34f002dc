"""Fixtures that several packages' tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from hypothesis import settings

from fencelog.api.local_cluster.zookeeper import DevelopmentZooKeeper
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.host import Host, SystemHost

# How long one example takes says how busy the machine is; a test that hangs has its own limit.
settings.register_profile("fencelog", deadline=None)
# A few examples, the same ones wherever it is run: neither those that failed on this machine
# before, nor those that Hypothesis draws where it finds a CI.
settings.register_profile(
    "same-examples",
    settings.get_profile("default"),
    deadline=None,
    database=None,
    max_examples=25,
)
settings.load_profile("fencelog")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is ``thorough`` unless ``-m`` names it, and mark what uses the server, so that
    ``-m "not zookeeper"`` needs no Java."""
    if "thorough" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if "zookeeper" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.zookeeper)


@pytest.fixture
def host() -> Host:
    return SystemHost()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """``host:port`` of a real ZooKeeper that runs for the whole test session.

    Tests share it: each takes a root of its own. Without Java they fail with the reason.
    """
    try:
        server = await DevelopmentZooKeeper.start(tmp_path_factory.mktemp("zookeeper"))
    except FencelogError as error:
        pytest.fail(error.detail, pytrace=False)
    yield server.address
    await server.stop()
