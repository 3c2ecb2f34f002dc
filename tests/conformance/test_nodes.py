"""Every store: nodes, versions, compare-and-set, parents, ephemerals and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_METADATA_BYTES
from fencelog.ledgers.metadata_store import ANY_VERSION, MetadataStore, Versioned


async def code_of(request: Awaitable[object]) -> ErrorCode:
    with pytest.raises(FencelogError) as caught:
        await request
    return caught.value.code


async def test_a_created_node_reads_back_at_version_0(store: MetadataStore) -> None:
    await store.create("/topic", b"value")
    assert await store.get("/topic") == Versioned(b"value", 0, 0)


async def test_empty_and_binary_values_are_kept(store: MetadataStore) -> None:
    await store.create("/empty", b"")
    await store.create("/binary", bytes(range(256)))
    assert (await store.get("/empty")).value == b""
    assert (await store.get("/binary")).value == bytes(range(256))


async def test_create_makes_missing_parents(store: MetadataStore) -> None:
    await store.create("/a/b/c", b"leaf")
    assert await store.get("/a/b") == Versioned(b"", 0, 0)
    assert await store.children("/a") == ["b"]
    await store.create("/a/b/d", b"")
    assert await store.children("/a/b") == ["c", "d"]


async def test_concurrent_creates_share_their_missing_parents(store: MetadataStore) -> None:
    names = [f"n{i:02}" for i in range(20)]
    await asyncio.gather(*(store.create(f"/deep/er/still/{name}", b"") for name in names))
    assert await store.children("/deep/er/still") == names


async def test_create_refuses_what_is_there(store: MetadataStore) -> None:
    await store.create("/node", b"first")
    assert await code_of(store.create("/node", b"second")) is ErrorCode.METADATA_EXISTS
    assert (await store.get("/node")).value == b"first"


async def test_what_is_not_there_is_not_found(store: MetadataStore) -> None:
    for request in (
        store.get("/none"),
        store.set("/none", b"", 0),
        store.set("/none", b"", ANY_VERSION),
        store.delete("/none"),
        store.children("/none"),
    ):
        assert await code_of(request) is ErrorCode.METADATA_NOT_FOUND


async def test_set_counts_versions_and_refuses_others(store: MetadataStore) -> None:
    await store.create("/node", b"0")
    assert await store.set("/node", b"1", 0) == 1
    assert await store.set("/node", b"2", 1) == 2
    for stale in (0, 1, 3):
        assert await code_of(store.set("/node", b"x", stale)) is ErrorCode.METADATA_CONFLICT
    assert await store.get("/node") == Versioned(b"2", 2, 0)
    assert await store.set("/node", b"3", ANY_VERSION) == 3


async def test_set_of_the_same_value_is_a_new_version(store: MetadataStore) -> None:
    await store.create("/node", b"same")
    assert await store.set("/node", b"same", 0) == 1


async def test_delete_compares_the_version(store: MetadataStore) -> None:
    await store.create("/node", b"")
    await store.set("/node", b"", 0)
    assert await code_of(store.delete("/node", 0)) is ErrorCode.METADATA_CONFLICT
    await store.delete("/node", 1)
    assert await code_of(store.get("/node")) is ErrorCode.METADATA_NOT_FOUND


async def test_delete_refuses_a_node_with_children(store: MetadataStore) -> None:
    await store.create("/parent/child", b"")
    assert await code_of(store.delete("/parent")) is ErrorCode.METADATA_CONFLICT
    await store.delete("/parent/child")
    await store.delete("/parent")
    assert await code_of(store.children("/parent")) is ErrorCode.METADATA_NOT_FOUND


async def test_a_node_created_again_starts_at_version_0(store: MetadataStore) -> None:
    await store.create("/node", b"old")
    await store.set("/node", b"older", 0)
    await store.delete("/node")
    await store.create("/node", b"new")
    assert await store.get("/node") == Versioned(b"new", 0, 0)


async def test_children_are_sorted_and_only_direct_ones(store: MetadataStore) -> None:
    for name in ("b", "a/x", "a-b", "B", "a"):
        if name != "a":
            await store.create(f"/dir/{name}", b"")
    await store.create("/dir2/z", b"")
    assert await store.children("/dir") == ["B", "a", "a-b", "b"]
    assert await store.children("/dir/b") == []


@pytest.mark.parametrize(
    "path", ["", "/", "a", "/a/", "//a", "/a//b", "/a b", "/a/../b", "/.", "/ä", "/a\n", "/a:1"]
)
async def test_invalid_paths_are_refused(store: MetadataStore, path: str) -> None:
    for request in (
        store.create(path, b""),
        store.get(path),
        store.set(path, b"", 0),
        store.delete(path),
        store.children(path),
    ):
        assert await code_of(request) is ErrorCode.BAD_REQUEST
    with pytest.raises(FencelogError, match="no valid metadata path"):
        store.watch_value(path, lambda value: None)
    with pytest.raises(FencelogError, match="no valid metadata path"):
        store.watch_children(path, lambda names: None)


async def test_the_largest_value_is_kept_and_a_larger_one_refused(store: MetadataStore) -> None:
    largest = b"x" * MAX_METADATA_BYTES
    await store.create("/large", largest)
    assert (await store.get("/large")).value == largest
    assert await code_of(store.create("/larger", largest + b"x")) is ErrorCode.BAD_REQUEST
    assert await code_of(store.set("/large", largest + b"x", 0)) is ErrorCode.BAD_REQUEST
    assert (await store.get("/large")).version == 0


async def test_concurrent_increments_all_count(store: MetadataStore) -> None:
    tasks, each = 8, 10
    await store.create("/counter", b"0")

    async def increment() -> int:
        conflicts = 0
        for _ in range(each):
            while True:
                node = await store.get("/counter")
                try:
                    await store.set("/counter", b"%d" % (int(node.value) + 1), node.version)
                    break
                except FencelogError as error:
                    if error.code is not ErrorCode.METADATA_CONFLICT:
                        raise
                    conflicts += 1
        return conflicts

    conflicts = sum(await asyncio.gather(*(increment() for _ in range(tasks))))
    assert await store.get("/counter") == Versioned(b"%d" % (tasks * each), tasks * each, 0)
    assert conflicts > 0


async def test_an_ephemeral_node_names_its_session(store: MetadataStore) -> None:
    assert store.session_id != 0
    await store.create("/there/me", b"here", ephemeral=True)
    assert await store.get("/there/me") == Versioned(b"here", 0, store.session_id)
    assert (await store.get("/there")).ephemeral_owner == 0
    assert await store.set("/there/me", b"still", 0) == 1
    assert (await store.get("/there/me")).ephemeral_owner == store.session_id


async def test_an_ephemeral_node_has_no_children(store: MetadataStore) -> None:
    await store.create("/me", b"", ephemeral=True)
    assert await code_of(store.create("/me/child", b"")) is ErrorCode.METADATA_CONFLICT
    assert await code_of(store.create("/me/x/child", b"")) is ErrorCode.METADATA_CONFLICT


async def test_a_closed_store_refuses_everything(store: MetadataStore) -> None:
    await store.create("/node", b"")
    await store.close()
    for request in (store.get("/node"), store.set("/node", b"", 0), store.create("/new", b"")):
        assert await code_of(request) is ErrorCode.METADATA_UNAVAILABLE
