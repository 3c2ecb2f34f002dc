"""The directory of brokers over a metadata store in memory."""

from __future__ import annotations

import pytest

from fencelog.broker.cluster.broker_directory import LOADS_PATH, BrokerDirectory
from fencelog.broker.config import BrokerConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metastore.registration import BROKERS_PATH


async def test_a_broker_that_has_started_is_in_its_own_table_at_once() -> None:
    cluster = MemoryCluster()
    for broker_id in ("b1", "b2"):
        store = MemoryMetadataStore(cluster)
        await store.start()
        config = BrokerConfig(broker_id, f"http://{broker_id}")
        directory = BrokerDirectory(store, host=SystemHost(), config=config)
        await directory.start()
        listed = {each["broker_id"]: each for each in directory.all()}
        assert listed.keys() == {"b1", broker_id}
        assert listed[broker_id]["partitions"] == 0  # its load is known too
        assert directory.is_registered(broker_id)


async def test_a_broker_that_cannot_start_is_registered_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = MemoryCluster()
    store, other = MemoryMetadataStore(cluster), MemoryMetadataStore(cluster)
    for each in (store, other):
        await each.start()
    directory = BrokerDirectory(store, host=SystemHost(), config=BrokerConfig("b1", "http://b1"))

    async def unavailable() -> None:
        raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "no answer")

    monkeypatch.setattr(directory._loads, "start", unavailable)
    with pytest.raises(FencelogError, match="no answer"):
        await directory.start()
    assert await other.children(BROKERS_PATH) == []
    assert await other.children(LOADS_PATH) == []
