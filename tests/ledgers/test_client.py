"""The ledger client over a metadata store in memory and scripted bookies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.client import LedgerClient, Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metadata_memory import MemoryMetadataStore


async def client_of(cluster: Any, host: Host, *, key: bytes = b"") -> LedgerClient:
    store = MemoryMetadataStore()
    await store.start()
    return LedgerClient(store, cluster, host=host, key=key)


@given(st.integers(1, 32))
def test_copies_are_acknowledged_by_a_majority(copies: int) -> None:
    replication = Replication.of_copies(copies)
    replication.validate()
    assert replication.ensemble_size == replication.write_quorum == copies
    assert 2 * replication.ack_quorum > copies


def test_an_ack_quorum_of_one_is_refused_where_there_are_more_copies() -> None:
    with pytest.raises(FencelogError, match="would stop recovery"):
        Replication(3, 3, 1).validate()
    Replication(3, 1, 1).validate()


@pytest.mark.parametrize("key", [b"", b"the key of the cluster"])
async def test_a_ledger_lives(cluster: Any, host: Host, key: bytes) -> None:
    client = await client_of(cluster, host, key=key)
    acked: list[int] = []
    writer = await client.create(
        Replication(), on_ack=acked.append, on_failure=cluster.failures.append
    )
    await cluster.write(writer, b"a", b"bc")
    assert acked[-1] == 1
    closed = await writer.close()
    reader = await client.open(writer.ledger_id)
    assert [bytes(entry.payload) for entry in await reader.read(0, 9)] == [b"a", b"bc"]
    assert await client.recover(writer.ledger_id) == closed
    await client.delete(writer.ledger_id)
    with pytest.raises(FencelogError) as caught:
        await client.open(writer.ledger_id)
    assert caught.value.code is ErrorCode.LEDGER_NOT_FOUND
    assert cluster.failures == []


async def test_another_key_opens_nothing(cluster: Any, host: Host) -> None:
    client = await client_of(cluster, host, key=b"right")
    writer = await client.create(
        Replication(), on_ack=lambda _: None, on_failure=cluster.failures.append
    )
    await cluster.write(writer, b"secret to nobody, forged by nobody")
    closed = await writer.close()
    stranger = LedgerClient(MemoryMetadataStore(), cluster, host=host, key=b"wrong")
    with pytest.raises(FencelogError) as caught:
        await stranger.reader(closed).read(0, 0)
    assert caught.value.code is ErrorCode.READ_UNKNOWN


async def test_too_few_bookies_make_no_ledger(make_cluster: Any, host: Host) -> None:
    client = await client_of(make_cluster(2), host)
    with pytest.raises(FencelogError) as caught:
        await client.create(Replication(), on_ack=lambda _: None, on_failure=lambda _: None)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_BOOKIES
    assert "need 3 bookies, 2 are registered" in caught.value.detail


async def test_ids_are_never_given_twice(cluster: Any, host: Host) -> None:
    client = await client_of(cluster, host)
    ids = []
    for _ in range(40):
        writer = await client.create(
            Replication(), on_ack=lambda _: None, on_failure=lambda _: None
        )
        ids.append(writer.ledger_id)
        await writer.close()
        await client.delete(writer.ledger_id)
    assert ids == sorted(set(ids))
