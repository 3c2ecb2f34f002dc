"""Every store: watches deliver the value now and, in the end, the newest one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fencelog.ledgers.metastore.port import MetadataStore, Versioned
from tests.support.metadata_nodes import overwrite, remove

Until = Callable[[Callable[[], bool]], Awaitable[None]]


async def test_a_value_watch_sees_create_set_and_delete(store: MetadataStore, until: Until) -> None:
    seen: list[Versioned | None] = []
    watch = store.watch_value("/node", seen.append)
    await until(lambda: seen == [None])
    version = await store.create("/node", b"a")
    await until(lambda: seen[-1] == Versioned(b"a", version))
    changed = await store.set("/node", b"b", version)
    await until(lambda: seen[-1] == Versioned(b"b", changed))
    await store.delete("/node", changed)
    await until(lambda: seen[-1] is None)
    again = await store.create("/node", b"c")
    await until(lambda: seen[-1] == Versioned(b"c", again))
    watch.close()
    assert len(seen) == 5


async def test_a_value_watch_sees_that_a_node_was_created_again(
    store: MetadataStore, until: Until
) -> None:
    """Value and number are the same; only the incarnation tells, also if the gap was missed."""
    seen: list[Versioned | None] = []
    previous = await store.create("/node", b"same")
    watch = store.watch_value("/node", seen.append)
    await until(lambda: seen == [Versioned(b"same", previous)])
    await store.delete("/node", previous)
    again = await store.create("/node", b"same")
    await until(lambda: seen[-1] == Versioned(b"same", again))
    assert again != previous
    watch.close()


async def test_the_newest_of_many_quick_values_arrives(store: MetadataStore, until: Until) -> None:
    seen: list[int] = []
    version = await store.create("/node", b"")
    watch = store.watch_value(
        "/node", lambda node: seen.append(node.version.number if node else -1)
    )
    for _ in range(50):
        version = await store.set("/node", b"", version)
    await until(lambda: bool(seen) and seen[-1] == 50)
    assert seen == sorted(set(seen))
    watch.close()


async def test_a_closed_watch_is_silent(store: MetadataStore, until: Until) -> None:
    closed: list[Versioned | None] = []
    open_: list[Versioned | None] = []
    await store.create("/node", b"")
    first = store.watch_value("/node", closed.append)
    second = store.watch_value("/node", open_.append)
    unread = store.watch_value("/node", closed.append)
    unread.close()
    await until(lambda: len(closed) == 1 and len(open_) == 1)
    first.close()
    await overwrite(store, "/node", b"1")
    await until(lambda: len(open_) == 2)
    assert len(closed) == 1
    second.close()


async def test_a_children_watch_follows_the_directory(store: MetadataStore, until: Until) -> None:
    seen: list[list[str]] = []
    watch = store.watch_children("/dir", seen.append)
    await until(lambda: seen == [[]])
    await store.create("/dir/b", b"")
    await until(lambda: seen[-1] == ["b"])
    await asyncio.gather(*(store.create(f"/dir/a{i}", b"") for i in range(10)))
    await until(lambda: seen[-1] == [*(f"a{i}" for i in range(10)), "b"])
    await remove(store, "/dir/b")
    for i in range(10):
        await remove(store, f"/dir/a{i}")
    await remove(store, "/dir")
    await until(lambda: seen[-1] == [])
    await store.create("/dir/again", b"")
    await until(lambda: seen[-1] == ["again"])
    watch.close()


async def test_a_children_watch_ignores_values(store: MetadataStore, until: Until) -> None:
    seen: list[list[str]] = []
    await store.create("/dir/a", b"")
    watch = store.watch_children("/dir", seen.append)
    await until(lambda: seen == [["a"]])
    await overwrite(store, "/dir/a", b"x")
    await store.create("/dir/b", b"")
    await until(lambda: seen == [["a"], ["a", "b"]])
    watch.close()


async def test_closing_the_store_ends_its_watches(store: MetadataStore) -> None:
    seen: list[object] = []
    store.watch_value("/node", seen.append)
    store.watch_children("/dir", seen.append)
    await store.close()
    count = len(seen)
    await asyncio.sleep(0.05)
    assert len(seen) == count
