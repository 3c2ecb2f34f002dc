"""Memory and ZooKeeper: several processes' sessions on one tree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metastore.port import NO_VERSION, MetadataStore, SessionState, Versioned
from tests.support.metadata_nodes import later

Until = Callable[[Callable[[], bool]], Awaitable[None]]
Pair = tuple[MetadataStore, MetadataStore]

several = pytest.mark.parametrize(
    "new_store",
    ["memory", pytest.param("zookeeper", marks=pytest.mark.zookeeper)],
    indirect=True,
)


async def code_of(request: Awaitable[object]) -> ErrorCode:
    with pytest.raises(FencelogError) as caught:
        await request
    return caught.value.code


@pytest.fixture
async def pair(new_store: Callable[[], MetadataStore]) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        stores = []
        for _ in range(2):
            store = new_store()
            await store.start()
            stack.push_async_callback(store.close)
            stores.append(store)
        yield stores[0], stores[1]


@several
async def test_sessions_have_different_names(pair: Pair) -> None:
    assert pair[0].session_id != pair[1].session_id


@several
async def test_each_sees_the_others_writes(pair: Pair) -> None:
    one, other = pair
    version = await one.create("/node", b"1")
    assert await other.get("/node") == Versioned(b"1", version)
    changed = await other.set("/node", b"2", version)
    assert await code_of(one.set("/node", b"3", version)) is ErrorCode.METADATA_CONFLICT
    assert await one.get("/node") == await other.get("/node") == Versioned(b"2", changed)


@several
async def test_the_parents_that_one_makes_have_one_version_for_all(pair: Pair) -> None:
    one, other = pair
    await one.create("/dir/child", b"")
    assert await one.get("/dir") == await other.get("/dir")
    changed = await other.set("/dir", b"value", (await one.get("/dir")).version)
    assert await one.get("/dir") == Versioned(b"value", changed)


@several
async def test_a_sleeper_cannot_change_what_another_created_anew(pair: Pair) -> None:
    """The sleeper read the previous node, and wakes when the new one has the same number and
    value."""
    sleeper, other = pair
    await sleeper.create("/node", b"same")
    read = await sleeper.get("/node")
    await other.delete("/node", read.version)
    version = await other.create("/node", b"same")
    assert version.number == read.version.number
    for request in (
        sleeper.set("/node", b"late", read.version),
        sleeper.delete("/node", read.version),
        sleeper.set("/node", b"late", NO_VERSION),
        sleeper.delete("/node", NO_VERSION),
    ):
        assert await code_of(request) is ErrorCode.METADATA_CONFLICT
    assert await sleeper.get("/node") == await other.get("/node") == Versioned(b"same", version)


@several
async def test_a_node_that_went_with_its_session_leaves_no_versions_behind(pair: Pair) -> None:
    one, other = pair
    version = await one.create("/me", b"one", ephemeral=True)
    changed = await one.set("/me", b"still one", version)
    await one.close()
    for gone in (version, changed):
        assert await code_of(other.set("/me", b"x", gone)) is ErrorCode.METADATA_NOT_FOUND
        assert await code_of(other.delete("/me", gone)) is ErrorCode.METADATA_NOT_FOUND
    again = await other.create("/me", b"other", ephemeral=True)
    newest = await other.set("/me", b"still other", again)
    assert newest.number == changed.number
    for gone in (version, changed):
        assert await code_of(other.set("/me", b"x", gone)) is ErrorCode.METADATA_CONFLICT
        assert await code_of(other.delete("/me", gone)) is ErrorCode.METADATA_CONFLICT
    assert await other.get("/me") == Versioned(b"still other", newest, other.session_id)


@several
async def test_ephemerals_go_when_their_session_closes(pair: Pair, until: Until) -> None:
    one, other = pair
    seen: list[Versioned | None] = []
    names: list[list[str]] = []
    version = await one.create("/dir/me", b"here", ephemeral=True)
    await other.create("/dir/you", b"", ephemeral=True)
    other.watch_value("/dir/me", seen.append)
    other.watch_children("/dir", names.append)
    await until(lambda: bool(seen) and bool(names))
    assert seen == [Versioned(b"here", version, one.session_id)]
    await one.close()
    await until(lambda: seen[-1] is None and names[-1] == ["you"])


@several
async def test_counting_from_two_sessions_misses_nothing(pair: Pair) -> None:
    await pair[0].create("/counter", b"0")

    async def count(store: MetadataStore) -> None:
        done = 0
        while done < 20:
            node = await store.get("/counter")
            try:
                await store.set("/counter", b"%d" % (int(node.value) + 1), node.version)
                done += 1
            except FencelogError as error:
                if error.code is not ErrorCode.METADATA_CONFLICT:
                    raise

    await asyncio.gather(*(count(store) for store in pair * 2))
    assert (await pair[0].get("/counter")).value == b"80"


@pytest.fixture
async def memory() -> AsyncIterator[tuple[MemoryMetadataStore, MemoryMetadataStore]]:
    cluster = MemoryCluster()
    one, other = MemoryMetadataStore(cluster), MemoryMetadataStore(cluster)
    await one.start()
    await other.start()
    yield one, other
    await one.close()
    await other.close()


async def test_a_lost_reply_is_unknown_after_the_effect(
    memory: tuple[MemoryMetadataStore, MemoryMetadataStore],
) -> None:
    one, _ = memory
    one.lose_replies(1)
    with pytest.raises(FencelogError) as caught:
        await one.create("/node", b"mine")
    assert caught.value.code is ErrorCode.METADATA_UNKNOWN
    node = await one.get("/node")
    assert node == Versioned(b"mine", node.version.first)
    assert await one.set("/node", b"", node.version) == later(node.version, 1)


async def test_a_session_that_is_cut_off_catches_up(
    memory: tuple[MemoryMetadataStore, MemoryMetadataStore], until: Until
) -> None:
    one, other = memory
    states: list[SessionState] = []
    seen: list[Versioned | None] = []
    one.on_session(states.append)
    silent = one.on_session(states.append)
    silent.close()
    one.watch_value("/node", seen.append)
    await until(lambda: seen == [None])
    one.disconnect()
    version = await other.create("/node", b"1")
    with pytest.raises(FencelogError) as caught:
        await one.get("/node")
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    assert seen == [None]
    one.reconnect()
    await until(lambda: seen[-1] == Versioned(b"1", version))
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    one.disconnect()
    one.reconnect()
    await until(lambda: len(states) == 4)
    await one.get("/node")  # as long as reading again takes
    assert seen == [None, Versioned(b"1", version)]  # what has not changed is not delivered again


async def test_a_session_that_expires_while_cut_off_learns_it_later(
    memory: tuple[MemoryMetadataStore, MemoryMetadataStore], until: Until
) -> None:
    one, other = memory
    states: list[SessionState] = []
    one.on_session(states.append)
    before = one.session_id
    await one.create("/me", b"", ephemeral=True)
    one.disconnect()
    one.expire()
    with pytest.raises(FencelogError, match="not_found"):
        await other.get("/me")
    one.reconnect()
    await until(lambda: len(states) == 3)
    expected = [SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED]
    assert states == expected
    assert one.session_id != before
