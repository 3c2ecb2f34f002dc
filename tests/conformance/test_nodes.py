"""Every store: nodes, versions, compare-and-set, parents, ephemerals and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_METADATA_BYTES
from fencelog.ledgers.metastore.port import NO_VERSION, MetadataStore, Version, Versioned
from tests.support.metadata_nodes import later, overwrite, plain, remove


async def code_of(request: Awaitable[object]) -> ErrorCode:
    with pytest.raises(FencelogError) as caught:
        await request
    return caught.value.code


async def test_a_created_node_reads_back_at_version_0(store: MetadataStore) -> None:
    version = await store.create("/topic", b"value")
    assert await store.get("/topic") == Versioned(b"value", version, 0)
    assert version.number == 0
    assert version == version.first


async def test_the_version_of_a_creation_is_good_for_a_change_at_once(store: MetadataStore) -> None:
    version = await store.create("/set", b"0")
    changed = await store.set("/set", b"1", version)
    assert await store.get("/set") == Versioned(b"1", changed, 0)
    assert changed.first == version
    version = await store.create("/deleted", b"")
    await store.delete("/deleted", version)
    assert await code_of(store.get("/deleted")) is ErrorCode.METADATA_NOT_FOUND


async def test_empty_and_binary_values_are_kept(store: MetadataStore) -> None:
    await store.create("/empty", b"")
    await store.create("/binary", bytes(range(256)))
    assert (await store.get("/empty")).value == b""
    assert (await store.get("/binary")).value == bytes(range(256))


async def test_create_makes_missing_parents(store: MetadataStore) -> None:
    await store.create("/a/b/c", b"leaf")
    assert plain(await store.get("/a/b")) == (b"", 0, 0)
    assert await store.children("/a") == ["b"]
    await store.create("/a/b/d", b"")
    assert await store.children("/a/b") == ["c", "d"]


async def test_parents_are_changed_and_deleted_like_other_nodes(store: MetadataStore) -> None:
    await store.create("/a/b/c", b"leaf")
    version = (await store.get("/a/b")).version
    changed = await store.set("/a/b", b"value", version)
    assert await store.get("/a/b") == Versioned(b"value", changed, 0)
    assert changed == later(version, 1)
    await remove(store, "/a/b/c")
    for stale in (version, later(changed, 1), NO_VERSION):
        assert await code_of(store.delete("/a/b", stale)) is ErrorCode.METADATA_CONFLICT
    await store.delete("/a/b", changed)
    await remove(store, "/a")
    assert await code_of(store.get("/a")) is ErrorCode.METADATA_NOT_FOUND


async def test_concurrent_creates_share_their_missing_parents(store: MetadataStore) -> None:
    names = [f"n{i:02}" for i in range(20)]
    await asyncio.gather(*(store.create(f"/deep/er/still/{name}", b"") for name in names))
    assert await store.children("/deep/er/still") == names


async def test_create_refuses_what_is_there(store: MetadataStore) -> None:
    await store.create("/node", b"first")
    assert await code_of(store.create("/node", b"second")) is ErrorCode.METADATA_EXISTS
    assert (await store.get("/node")).value == b"first"


async def test_what_is_not_there_is_not_found(store: MetadataStore) -> None:
    version = await store.create("/gone", b"")
    await store.delete("/gone", version)
    for path in ("/none", "/gone", "/none/below"):
        for request in (
            store.get(path),
            store.set(path, b"", version),
            store.set(path, b"", NO_VERSION),
            store.delete(path, version),
            store.delete(path, NO_VERSION),
            store.children(path),
        ):
            assert await code_of(request) is ErrorCode.METADATA_NOT_FOUND


async def test_set_counts_versions_and_refuses_others(store: MetadataStore) -> None:
    first = await store.create("/node", b"0")
    assert await store.set("/node", b"1", first) == later(first, 1)
    assert await store.set("/node", b"2", later(first, 1)) == later(first, 2)
    for stale in (first, later(first, 1), later(first, 3), NO_VERSION):
        assert await code_of(store.set("/node", b"x", stale)) is ErrorCode.METADATA_CONFLICT
    assert await store.get("/node") == Versioned(b"2", later(first, 2), 0)


async def test_set_of_the_same_value_is_a_new_version(store: MetadataStore) -> None:
    first = await store.create("/node", b"same")
    assert await store.set("/node", b"same", first) == later(first, 1)
    assert await store.get("/node") == Versioned(b"same", later(first, 1), 0)


async def test_delete_compares_the_version(store: MetadataStore) -> None:
    first = await store.create("/node", b"")
    changed = await store.set("/node", b"", first)
    for stale in (first, later(changed, 1), NO_VERSION):
        assert await code_of(store.delete("/node", stale)) is ErrorCode.METADATA_CONFLICT
    assert await store.get("/node") == Versioned(b"", changed, 0)
    await store.delete("/node", changed)
    assert await code_of(store.get("/node")) is ErrorCode.METADATA_NOT_FOUND


async def test_delete_refuses_a_node_with_children(store: MetadataStore) -> None:
    version = await store.create("/parent", b"kept")
    await store.create("/parent/child", b"")
    assert await code_of(store.delete("/parent", version)) is ErrorCode.METADATA_CONFLICT
    assert await store.get("/parent") == Versioned(b"kept", version, 0)
    await remove(store, "/parent/child")
    await store.delete("/parent", version)
    assert await code_of(store.children("/parent")) is ErrorCode.METADATA_NOT_FOUND


async def expect_stale(store: MetadataStore, path: str, *versions: Version) -> None:
    """Check that the node cannot be changed with any of these, also where the number is the
    same."""
    node = await store.get(path)
    for stale in versions:
        assert stale != node.version
        for request in (store.set(path, b"x", stale), store.delete(path, stale)):
            assert await code_of(request) is ErrorCode.METADATA_CONFLICT
    assert await store.get(path) == node


@pytest.mark.parametrize("ephemeral", [False, True])
async def test_a_node_created_again_has_none_of_the_formers_versions(
    store: MetadataStore, ephemeral: bool
) -> None:
    owner = store.session_id if ephemeral else 0
    previous = [await store.create("/node", b"old", ephemeral=ephemeral)]
    for _ in range(3):
        previous.append(await store.set("/node", b"older", previous[-1]))
    await store.delete("/node", previous[-1])

    version = await store.create("/node", b"0", ephemeral=ephemeral)
    for number in range(5):
        await expect_stale(store, "/node", *previous)
        assert await store.get("/node") == Versioned(b"%d" % number, version, owner)
        assert version.number == number
        version = await store.set("/node", b"%d" % (number + 1), version)

    await store.delete("/node", version)
    for gone in (*previous, version):
        assert await code_of(store.set("/node", b"", gone)) is ErrorCode.METADATA_NOT_FOUND
        assert await code_of(store.delete("/node", gone)) is ErrorCode.METADATA_NOT_FOUND


async def test_every_creation_of_a_node_is_told_from_every_other(store: MetadataStore) -> None:
    previous: list[Version] = []
    for _ in range(10):
        version = await store.create("/node", b"same")
        await expect_stale(store, "/node", *previous)
        previous.append(version)
        await store.delete("/node", version)
    assert len(set(previous)) == 10


async def test_a_node_that_comes_back_as_a_mere_parent_has_none_of_its_versions(
    store: MetadataStore,
) -> None:
    previous = await store.create("/dir", b"value")
    changed = await store.set("/dir", b"", previous)
    await store.delete("/dir", changed)
    await store.create("/dir/child", b"")
    await expect_stale(store, "/dir", previous, changed)
    await remove(store, "/dir/child")
    await expect_stale(store, "/dir", previous, changed)


@pytest.mark.parametrize("ephemeral", [False, True])
async def test_a_node_that_is_created_only_once_is_like_any_other(
    store: MetadataStore, ephemeral: bool
) -> None:
    version = await store.create("/deep/node", b"0", ephemeral=ephemeral, once=True)
    owner = store.session_id if ephemeral else 0
    assert await store.get("/deep/node") == Versioned(b"0", version, owner)
    again = store.create("/deep/node", b"x", ephemeral=ephemeral, once=True)
    assert await code_of(again) is ErrorCode.METADATA_EXISTS
    changed = await store.set("/deep/node", b"", version)
    changed = await store.set("/deep/node", b"2", changed)
    assert changed == later(version, 2)
    await expect_stale(store, "/deep/node", version, later(version, 1), NO_VERSION)
    assert await store.get("/deep/node") == Versioned(b"2", changed, owner)
    await store.delete("/deep/node", changed)
    assert await store.children("/deep") == []
    assert await code_of(store.set("/deep/node", b"", changed)) is ErrorCode.METADATA_NOT_FOUND


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
        store.set(path, b"", NO_VERSION),
        store.delete(path, NO_VERSION),
        store.children(path),
    ):
        assert await code_of(request) is ErrorCode.BAD_REQUEST
    with pytest.raises(FencelogError, match="no valid metadata path"):
        store.watch_value(path, lambda value: None)
    with pytest.raises(FencelogError, match="no valid metadata path"):
        store.watch_children(path, lambda names: None)


async def test_the_largest_value_is_kept_and_a_larger_one_refused(store: MetadataStore) -> None:
    largest = b"x" * MAX_METADATA_BYTES
    version = await store.create("/large", largest)
    assert (await store.get("/large")).value == largest
    assert await code_of(store.create("/larger", largest + b"x")) is ErrorCode.BAD_REQUEST
    assert await code_of(store.set("/large", largest + b"x", version)) is ErrorCode.BAD_REQUEST
    assert (await store.get("/large")).version == version
    assert (await overwrite(store, "/large", largest[::-1])).number == 1


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
    assert plain(await store.get("/counter")) == (b"%d" % (tasks * each), tasks * each, 0)
    assert conflicts > 0


async def test_an_ephemeral_node_names_its_session(store: MetadataStore) -> None:
    assert store.session_id != 0
    version = await store.create("/there/me", b"here", ephemeral=True)
    assert await store.get("/there/me") == Versioned(b"here", version, store.session_id)
    assert (await store.get("/there")).ephemeral_owner == 0
    assert await store.set("/there/me", b"still", version) == later(version, 1)
    expected = Versioned(b"still", later(version, 1), store.session_id)
    assert await store.get("/there/me") == expected


async def test_an_ephemeral_node_has_no_children(store: MetadataStore) -> None:
    await store.create("/me", b"", ephemeral=True)
    assert await code_of(store.create("/me/child", b"")) is ErrorCode.METADATA_CONFLICT
    assert await code_of(store.create("/me/x/child", b"")) is ErrorCode.METADATA_CONFLICT


async def test_a_closed_store_refuses_everything(store: MetadataStore) -> None:
    version = await store.create("/node", b"")
    await store.close()
    for request in (
        store.get("/node"),
        store.set("/node", b"", version),
        store.delete("/node", version),
        store.create("/new", b""),
    ):
        assert await code_of(request) is ErrorCode.METADATA_UNAVAILABLE
