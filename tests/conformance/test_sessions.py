"""Memory and ZooKeeper: several processes' sessions on one tree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metadata_memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metadata_store import MetadataStore, SessionState, Versioned

Until = Callable[[Callable[[], bool]], Awaitable[None]]
Pair = tuple[MetadataStore, MetadataStore]

several = pytest.mark.parametrize(
    "new_store",
    ["memory", pytest.param("zookeeper", marks=pytest.mark.zookeeper)],
    indirect=True,
)


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
    await one.create("/node", b"1")
    assert (await other.get("/node")).value == b"1"
    await other.set("/node", b"2", 0)
    with pytest.raises(FencelogError) as caught:
        await one.set("/node", b"3", 0)
    assert caught.value.code is ErrorCode.METADATA_CONFLICT


@several
async def test_ephemerals_go_when_their_session_closes(pair: Pair, until: Until) -> None:
    one, other = pair
    seen: list[Versioned | None] = []
    names: list[list[str]] = []
    await one.create("/dir/me", b"here", ephemeral=True)
    await other.create("/dir/you", b"", ephemeral=True)
    other.watch_value("/dir/me", seen.append)
    other.watch_children("/dir", names.append)
    await until(lambda: bool(seen) and bool(names))
    assert seen == [Versioned(b"here", 0, one.session_id)]
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
    assert (await one.get("/node")).value == b"mine"
    assert await one.set("/node", b"", 0) == 1


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
    await other.create("/node", b"1")
    with pytest.raises(FencelogError) as caught:
        await one.get("/node")
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    assert seen == [None]
    one.reconnect()
    await until(lambda: seen[-1] == Versioned(b"1", 0))
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    one.disconnect()
    one.reconnect()
    await until(lambda: len(states) == 4)
    await one.get("/node")  # as long as reading again takes
    assert seen == [None, Versioned(b"1", 0)]  # what has not changed is not delivered again


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
