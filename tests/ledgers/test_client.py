"""The ledger client over a metadata store in memory and scripted bookies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.client import LedgerClient, Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, LedgerState
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metastore.port import Version
from fencelog.ledgers.writer.lent import lent_writer
from fencelog.ledgers.writer.writer import LedgerWriter
from tests.support.scripted_cluster import Cluster, MakeCluster


async def client_of(cluster: Cluster, host: Host, *, key: bytes = b"") -> LedgerClient:
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
    risky = Replication(3, 3, 1, accept_ack_quorum_of_one=True)
    risky.validate()
    assert risky == Replication(3, 3, 1)


@pytest.mark.parametrize("key", [b"", b"the key of the cluster"])
async def test_a_ledger_lives(cluster: Cluster, host: Host, key: bytes) -> None:
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


async def test_another_key_opens_nothing(cluster: Cluster, host: Host) -> None:
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


async def test_too_few_bookies_make_no_ledger(make_cluster: MakeCluster, host: Host) -> None:
    client = await client_of(make_cluster(2), host)
    with pytest.raises(FencelogError) as caught:
        await client.create(Replication(), on_ack=lambda _: None, on_failure=lambda _: None)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_BOOKIES
    assert "need 3 bookies that take adds, there are 2" in caught.value.detail


async def test_ids_are_never_given_twice(cluster: Cluster, host: Host) -> None:
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


# -- deleting ------------------------------------------------------------------------------------


async def open_writer(client: LedgerClient, cluster: Cluster) -> LedgerWriter:
    return await client.create(
        Replication(), on_ack=cluster.acked.append, on_failure=cluster.failures.append
    )


async def assert_gone(client: LedgerClient, ledger_id: int) -> None:
    with pytest.raises(FencelogError) as caught:
        await client.open(ledger_id)
    assert caught.value.code is ErrorCode.LEDGER_NOT_FOUND


async def test_nothing_is_acknowledged_after_a_delete(cluster: Cluster, host: Host) -> None:
    client = await client_of(cluster, host)
    writer = await open_writer(client, cluster)
    await cluster.write(writer, b"a")
    await client.delete(writer.ledger_id)
    await assert_gone(client, writer.ledger_id)
    writer.append(b"b")
    await cluster.until(lambda: bool(cluster.failures))
    assert cluster.failures[0].code is ErrorCode.LEDGER_FENCED
    assert cluster.acked == [0]


async def test_a_writer_cannot_close_what_was_deleted(cluster: Cluster, host: Host) -> None:
    client = await client_of(cluster, host)
    writer = await open_writer(client, cluster)
    await client.delete(writer.ledger_id)
    with pytest.raises(FencelogError) as caught:
        await writer.close()
    assert caught.value.code is ErrorCode.LEDGER_FENCED
    await assert_gone(client, writer.ledger_id)


async def test_what_cannot_be_fenced_is_not_deleted_unless_told_so(
    cluster: Cluster, host: Host
) -> None:
    client = await client_of(cluster, host)
    writer = await open_writer(client, cluster)
    await cluster.write(writer, b"a")
    cluster.bookies["b1"].go_down()
    cluster.bookies["b2"].go_down()
    with pytest.raises(FencelogError) as caught:
        await client.delete(writer.ledger_id)
    assert caught.value.code is ErrorCode.RECOVERY_INCOMPLETE
    assert set(caught.value.extra["missing_bookies"]) == {"b1", "b2"}
    metadata, _ = await client.ledgers.get(writer.ledger_id)
    assert metadata.state is LedgerState.IN_RECOVERY  # it may be deleted, or recovered, later
    await client.delete(writer.ledger_id, unfenced=True)
    await assert_gone(client, writer.ledger_id)
    with pytest.raises(FencelogError):
        await writer.close()


async def test_a_closed_ledger_is_deleted_without_asking_a_bookie(
    cluster: Cluster, host: Host
) -> None:
    client = await client_of(cluster, host)
    writer = await open_writer(client, cluster)
    await cluster.write(writer, b"a")
    await writer.close()
    for bookie in cluster.bookies.values():
        bookie.go_down()
    await client.delete(writer.ledger_id)
    await assert_gone(client, writer.ledger_id)
    assert cluster.bookies["b1"].fenced == set()


async def test_deleting_what_is_not_there_is_done_at_once(cluster: Cluster, host: Host) -> None:
    client = await client_of(cluster, host)
    await client.delete(77)
    await client.delete(77, unfenced=True)
    assert [ledger_id async for ledger_id in client.ledgers.list()] == []
    assert all(bookie.fenced == set() for bookie in cluster.bookies.values())


async def test_nothing_is_deleted_without_the_store(cluster: Cluster, host: Host) -> None:
    store = MemoryMetadataStore()
    await store.start()
    client = LedgerClient(store, cluster, host=host)
    writer = await open_writer(client, cluster)
    store.disconnect()
    for unfenced in (False, True):
        with pytest.raises(FencelogError) as caught:
            await client.delete(writer.ledger_id, unfenced=unfenced)
        assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    store.reconnect()
    assert (await writer.close()).is_closed


async def test_a_ledger_recovered_before_its_creator_knows_of_it_ends_its_writer(
    cluster: Cluster, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply to the create is lost; before it is sent again somebody has closed the ledger."""
    shared = MemoryCluster()
    store, other_store = MemoryMetadataStore(shared), MemoryMetadataStore(shared)
    await store.start()
    await other_store.start()
    other = LedgerClient(other_store, cluster, host=host)
    create = store.create

    async def recovered_meanwhile(path: str, value: bytes, **options: bool) -> Version:
        version = await create(path, value, **options)
        if path.startswith("/ledgers/"):
            await other.recover(1)
            raise FencelogError(ErrorCode.METADATA_UNKNOWN, "the reply was lost")
        return version

    monkeypatch.setattr(store, "create", recovered_meanwhile)
    client = LedgerClient(store, cluster, host=host)
    writer = await open_writer(client, cluster)
    assert writer.ledger_id == 1
    writer.append(b"too late")
    await cluster.until(lambda: bool(cluster.failures))
    assert cluster.failures[0].code is ErrorCode.LEDGER_FENCED
    assert cluster.acked == []
    assert (await other.ledgers.get(1))[0].last_entry_id == -1


async def test_what_was_changed_before_a_creator_knows_of_its_ledger_stays(
    cluster: Cluster, host: Host
) -> None:
    """The answer to the commit that creates it is lost; it was made, as is known otherwise."""
    client = await client_of(cluster, host)
    new = await client.prepare(Replication())
    await client.ledgers.create(new.metadata)
    await client.describe(new.ledger_id, lambda found: {"a": "1"})
    writer = await client.begin(
        new, None, on_ack=cluster.acked.append, on_failure=cluster.failures.append
    )
    assert (await writer.close()).properties == {"a": "1"}
    assert (await client.ledgers.get(new.ledger_id))[0].properties == {"a": "1"}


async def test_incarnations_are_those_at_the_choice(make_cluster: MakeCluster, host: Host) -> None:
    """A bookie that loses its disk while the ledger is created is never sent an entry."""
    cluster = make_cluster(4)
    client = await client_of(cluster, host)
    writer = await open_writer(client, cluster)
    member = writer.metadata.last_fragment.bookies[0]
    cluster.bookies[member].incarnation = "2"
    await cluster.write(writer, b"a")
    assert cluster.bookies[member].entries == {}
    assert member not in writer.metadata.last_fragment.bookies


async def test_properties_are_changed_by_a_decision_on_those_that_are_there(
    cluster: Cluster, host: Host
) -> None:
    client = await client_of(cluster, host)
    writer = await client.create(
        Replication(), on_ack=lambda lac: None, on_failure=cluster.failures.append
    )
    ledger_id = writer.ledger_id
    await cluster.write(writer, b"a")
    changed = await client.describe(ledger_id, lambda found: {**found.properties, "a": "1"})
    assert changed.properties == {"a": "1"}
    assert await client.describe(ledger_id, lambda found: None) == changed
    closed = await client.recover(ledger_id)
    assert (closed.properties, closed.last_entry_id) == ({"a": "1"}, 0)
    with pytest.raises(FencelogError) as caught:
        await client.describe(99, lambda found: {})
    assert caught.value.code is ErrorCode.LEDGER_NOT_FOUND


async def test_two_that_describe_a_ledger_at_once_see_each_other(
    cluster: Cluster, host: Host
) -> None:
    client = await client_of(cluster, host)
    writer = await client.create(
        Replication(), on_ack=lambda lac: None, on_failure=cluster.failures.append
    )

    def counted(found: LedgerMetadata) -> dict[str, str]:
        return {"n": str(int(found.properties.get("n", "0")) + 1)}

    await asyncio.gather(*(client.describe(writer.ledger_id, counted) for _ in range(3)))
    found = await client.describe(writer.ledger_id, lambda found: None)
    assert found.properties == {"n": "3"}
    await writer.abandon()


async def test_a_lent_ledger_is_written_without_the_store_while_a_bookie_is_away(
    make_cluster: MakeCluster, host: Host
) -> None:
    cluster = make_cluster(4)
    client = await client_of(cluster, host)
    writer = await lent(cluster, client, host)
    cluster.bookies[writer.metadata.last_fragment.bookies[0]].go_down()
    await cluster.write(writer, b"a", b"b")
    assert writer.last_add_confirmed == 1
    await writer.abandon()
    assert (await client.recover(writer.ledger_id)).last_entry_id == 1
    assert cluster.failures == []


@pytest.mark.parametrize("away", [0, 1, 3])
async def test_the_recovery_of_a_ledger_whose_lac_was_told_copies_nothing(
    make_cluster: MakeCluster, host: Host, away: int
) -> None:
    """Bookies that do not answer keep nobody waiting: the LAC is a hint, and recovery begins lower
    where none has got it."""
    cluster = make_cluster(3)
    client = await client_of(cluster, host)
    writer = await lent(cluster, client, host)
    await cluster.write(writer, *[b"%d" % number for number in range(50)])
    bookies = list(cluster.bookies.values())
    for bookie in bookies[:away]:
        bookie.go_down()
    await writer.tell_lac()
    await writer.abandon()
    copied: list[str] = []
    for bookie in bookies:
        bookie.fault = lambda request: copied.append(request) if "recovery" in request else None
    assert (await client.recover(writer.ledger_id)).last_entry_id == 49
    assert bool(copied) == (away == 3)
    assert cluster.failures == []


async def lent(cluster: Cluster, client: LedgerClient, host: Host) -> LedgerWriter:
    """The writer of a new ledger, as another process has it."""
    creator = await client.create(
        Replication(), on_ack=lambda lac: None, on_failure=cluster.failures.append
    )
    await creator.abandon()
    return lent_writer(
        creator.metadata,
        creator.incarnations,
        bookies=cluster,
        host=host,
        key=b"",
        on_ack=lambda lac: None,
        on_failure=cluster.failures.append,
    )


async def test_a_client_that_has_warmed_up_waits_for_neither_ids_nor_connections(
    cluster: Cluster, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bookies that hang or refuse do not stop it."""
    store = MemoryMetadataStore()
    await store.start()
    client = LedgerClient(store, cluster, host=host, key=b"")
    asked: list[str] = []

    async def answer(bookie_id: str, request: Mapping[str, Any]) -> dict[str, Any]:
        asked.append(bookie_id)
        if bookie_id == "b1":
            await asyncio.Event().wait()
        if bookie_id == "b2":
            raise FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "it is away")
        return {}

    for bookie_id, bookie in cluster.bookies.items():
        monkeypatch.setattr(bookie, "admin", partial(answer, bookie_id))
    async with asyncio.timeout(10):
        await client.warm_up()
    assert sorted(asked) == sorted(cluster.bookies)
    store.disconnect()
    assert (await client.prepare(Replication())).ledger_id == 1


async def test_warming_up_without_metadata_is_not_an_error(cluster: Cluster, host: Host) -> None:
    store = MemoryMetadataStore()
    await store.start()
    store.disconnect()
    client = LedgerClient(store, cluster, host=host, key=b"")
    await client.warm_up()
