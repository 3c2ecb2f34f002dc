"""Registrations come back after expiry and never fight; a live table of a directory's nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metastore.port import Version, Versioned, Watch
from fencelog.ledgers.metastore.registration import ChildrenValues, Registration
from tests.support.metadata_nodes import overwrite_now, remove_now
from tests.support.until import until

PATH = "/bookies/b1"


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
async def store(cluster: MemoryCluster) -> AsyncIterator[MemoryMetadataStore]:
    store = MemoryMetadataStore(cluster)
    await store.start()
    yield store
    await store.close()


@pytest.fixture
async def other(cluster: MemoryCluster) -> AsyncIterator[MemoryMetadataStore]:
    store = MemoryMetadataStore(cluster)
    await store.start()
    yield store
    await store.close()


def owner(cluster: MemoryCluster) -> int:
    try:
        return cluster.get(PATH).ephemeral_owner
    except FencelogError:
        return 0


async def quiet() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


# -- Registration --------------------------------------------------------------------------------


async def test_it_is_there_from_start_to_close(
    cluster: MemoryCluster, store: MemoryMetadataStore
) -> None:
    registration = await Registration.start(store, PATH, b"address")
    assert cluster.get(PATH).value == b"address"
    assert owner(cluster) == store.session_id
    await registration.close()
    assert cluster.children("/bookies") == []


async def test_it_comes_back_after_every_expiry(
    cluster: MemoryCluster, store: MemoryMetadataStore
) -> None:
    registration = await Registration.start(store, PATH, b"address")
    for _ in range(3):
        store.expire()
        await until(lambda: owner(cluster) == store.session_id)
    await registration.close()


async def test_it_comes_back_after_a_deletion(
    cluster: MemoryCluster, store: MemoryMetadataStore
) -> None:
    registration = await Registration.start(store, PATH, b"address")
    remove_now(cluster, PATH)
    await until(lambda: owner(cluster) == store.session_id)
    await registration.close()


async def test_it_comes_back_after_a_loss_that_the_watch_does_not_see(
    cluster: MemoryCluster, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node goes as soon as it is back: to the watch it was gone all the time."""
    monkeypatch.setattr("fencelog.ledgers.metastore.registration.RETRY_MS", 5)
    registration = await Registration.start(store, PATH, b"address")
    losses = 0

    def lose_again(path: str) -> None:
        nonlocal losses
        if path == PATH and losses < 3 and owner(cluster):
            losses += 1
            remove_now(cluster, PATH)

    await quiet()
    cluster.subscribe(lose_again)
    remove_now(cluster, PATH)
    await until(lambda: owner(cluster) == store.session_id)
    assert losses == 3
    await registration.close()


async def test_an_expiry_while_cut_off_is_made_good_after_it(
    cluster: MemoryCluster, store: MemoryMetadataStore
) -> None:
    registration = await Registration.start(store, PATH, b"address")
    store.disconnect()
    store.expire()
    await quiet()
    assert owner(cluster) == 0
    assert registration.is_registered  # as far as it knows
    store.reconnect()
    await until(lambda: owner(cluster) == store.session_id)
    await until(lambda: registration.is_registered)
    await registration.close()


async def test_it_replaces_what_its_own_previous_session_has_left(
    cluster: MemoryCluster, store: MemoryMetadataStore
) -> None:
    """The server still waits for that session, so its node is there, and goes later."""
    registration = await Registration.start(store, PATH, b"address")
    previous = store.session_id
    store.expire()
    await until(lambda: owner(cluster) == store.session_id)
    remove_now(cluster, PATH)
    cluster.create(PATH, b"address", owner=previous)
    await until(lambda: owner(cluster) == store.session_id)
    await registration.close()


async def test_start_replaces_what_an_earlier_run_left(
    cluster: MemoryCluster, store: MemoryMetadataStore
) -> None:
    cluster.create(PATH, b"old", owner=cluster.new_session())
    registration = await Registration.start(store, PATH, b"new")
    assert cluster.get(PATH).value == b"new"
    assert owner(cluster) == store.session_id
    await registration.close()


async def test_a_lost_reply_of_the_create_is_recognised(
    cluster: MemoryCluster, store: MemoryMetadataStore
) -> None:
    store.lose_replies(1)
    registration = await Registration.start(store, PATH, b"address")
    assert owner(cluster) == store.session_id
    await registration.close()


async def test_a_lost_reply_of_the_removal_is_recognised(
    cluster: MemoryCluster, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create(PATH, b"old", owner=cluster.new_session())
    delete = store.delete

    async def delete_and_lose(path: str, version: Version) -> None:
        store.lose_replies(1)
        await delete(path, version)

    monkeypatch.setattr(store, "delete", delete_and_lose)
    registration = await Registration.start(store, PATH, b"new")
    assert owner(cluster) == store.session_id
    monkeypatch.setattr(store, "delete", delete)
    await registration.close()


async def test_two_processes_with_one_name_do_not_fight(
    cluster: MemoryCluster, store: MemoryMetadataStore, other: MemoryMetadataStore
) -> None:
    older = await Registration.start(store, PATH, b"older")
    newer = await Registration.start(other, PATH, b"newer")
    await quiet()
    assert cluster.get(PATH).value == b"newer"
    assert owner(cluster) == other.session_id
    assert (older.is_registered, newer.is_registered) == (False, True)
    await newer.close()
    await until(lambda: owner(cluster) == store.session_id)
    await until(lambda: older.is_registered)
    await older.close()


async def test_closing_leaves_anothers_node_alone(
    cluster: MemoryCluster, store: MemoryMetadataStore, other: MemoryMetadataStore
) -> None:
    older = await Registration.start(store, PATH, b"older")
    newer = await Registration.start(other, PATH, b"newer")
    await older.close()
    assert cluster.get(PATH).value == b"newer"
    await newer.close()


async def test_it_tries_again_while_the_store_refuses(
    cluster: MemoryCluster, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.ledgers.metastore.registration.RETRY_MS", 5)
    registration = await Registration.start(store, PATH, b"address")
    refusals = 3
    create = store.create

    async def refuse_at_first(path: str, value: bytes, **options: bool) -> Version:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "not now")
        return await create(path, value, **options)

    monkeypatch.setattr(store, "create", refuse_at_first)
    store.expire()
    await until(lambda: owner(cluster) == store.session_id)
    assert refusals == 0
    await registration.close()


async def test_start_and_close_without_the_store(
    cluster: MemoryCluster, store: MemoryMetadataStore
) -> None:
    registration = await Registration.start(store, PATH, b"address")
    store.disconnect()
    await registration.close()
    with pytest.raises(FencelogError) as caught:
        await Registration.start(store, PATH, b"address")
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    store.reconnect()


async def test_an_update_is_written_over_conflicts_lost_replies_and_expiry(
    cluster: MemoryCluster, store: MemoryMetadataStore
) -> None:
    registration = await Registration.start(store, PATH, b"1")
    registration.update(b"2")
    await until(lambda: cluster.get(PATH).value == b"2")
    assert cluster.get(PATH).version.number == 1
    registration.update(b"2")
    await quiet()
    assert cluster.get(PATH).version.number == 1
    store.lose_replies(2)
    registration.update(b"3")
    await until(lambda: cluster.get(PATH).value == b"3")
    remove_now(cluster, PATH)
    registration.update(b"4")
    await until(lambda: owner(cluster) == store.session_id)
    assert cluster.get(PATH).value == b"4"
    await registration.close()


async def test_an_update_that_was_lost_is_written_again(
    cluster: MemoryCluster, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration = await Registration.start(store, PATH, b"1")
    write, lost = store.set, list[str]()

    async def lose_the_first(path: str, value: bytes, version: Version) -> Version:
        if not lost:
            lost.append(path)
            raise FencelogError(ErrorCode.METADATA_UNKNOWN, "it was not made")
        return await write(path, value, version)

    monkeypatch.setattr(store, "set", lose_the_first)
    registration.update(b"2")
    await until(lambda: cluster.get(PATH).value == b"2")
    assert lost == [PATH]
    await registration.close()


# -- ChildrenValues ------------------------------------------------------------------------------


async def test_the_table_follows_the_directory(
    cluster: MemoryCluster, store: MemoryMetadataStore
) -> None:
    cluster.create("/dir/a", b"1")
    changes: list[dict[str, bytes]] = []
    table = ChildrenValues(store, "/dir")
    table.on_change = lambda: changes.append(dict(table.values))
    await table.start()
    assert table.values == {"a": b"1"}
    cluster.create("/dir/b", b"2")
    overwrite_now(cluster, "/dir/a", b"3")
    await until(lambda: table.values == {"a": b"3", "b": b"2"})
    remove_now(cluster, "/dir/a")
    await until(lambda: table.values == {"b": b"2"})
    assert changes[-1] == {"b": b"2"}
    table.close()
    remove_now(cluster, "/dir/b")
    await quiet()
    assert table.values == {"b": b"2"}


async def test_a_child_that_goes_before_it_is_read_is_not_waited_for(
    cluster: MemoryCluster, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("/dir/a", b"1")
    cluster.create("/dir/b", b"2")
    table, watch_value, unread = ChildrenValues(store, "/dir"), store.watch_value, list[str]()

    def never_read_b(path: str, callback: Callable[[Versioned | None], None]) -> Watch:
        if path != "/dir/b":
            return watch_value(path, callback)
        unread.append(path)
        return store.on_session(lambda state: None)  # which tells nothing of a node

    monkeypatch.setattr(store, "watch_value", never_read_b)
    starting = asyncio.create_task(table.start())
    await until(lambda: unread == ["/dir/b"] and table.values == {"a": b"1"})
    assert not starting.done()
    remove_now(cluster, "/dir/b")
    await starting
    assert table.values == {"a": b"1"}
    table.close()


async def test_a_child_is_gone_when_the_list_says_so(
    cluster: MemoryCluster, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own watch is closed then, and may not have been told."""
    cluster.create("/dir/a", b"1")
    watch_value = store.watch_value

    def never_told_of_the_end(path: str, callback: Callable[[Versioned | None], None]) -> Watch:
        return watch_value(path, lambda node: None if node is None else callback(node))

    monkeypatch.setattr(store, "watch_value", never_told_of_the_end)
    table = ChildrenValues(store, "/dir")
    await table.start()
    assert table.values == {"a": b"1"}
    remove_now(cluster, "/dir/a")
    await until(lambda: table.values == {})
    table.close()


async def test_a_table_of_nothing_is_complete(store: MemoryMetadataStore) -> None:
    table = ChildrenValues(store, "/none")
    await table.start()
    assert table.values == {}
    table.close()


async def test_a_table_that_cannot_be_read_is_unavailable(
    store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.ledgers.metastore.registration.METADATA_TIMEOUT_MS", 50)
    store.disconnect()
    with pytest.raises(FencelogError, match="/dir") as caught:
        await ChildrenValues(store, "/dir").start()
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    store.reconnect()
