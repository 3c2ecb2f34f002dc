"""Every store: changes that are made together, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.limits import MAX_COMMIT_BYTES, MAX_METADATA_BYTES
from fencelog.ledgers.metastore.port import (
    NO_VERSION,
    Change,
    Create,
    Delete,
    MetadataStore,
    Set,
    Version,
    Versioned,
)
from fencelog.ledgers.metastore.zookeeper import ZooKeeperMetadataStore
from tests.support.metadata_nodes import later, plain
from tests.support.network.zookeeper_proxy import Proxy

Until = Callable[[Callable[[], bool]], Awaitable[None]]


async def code_of(request: Awaitable[object]) -> ErrorCode:
    with pytest.raises(FencelogError) as caught:
        await request
    return caught.value.code


async def test_all_changes_are_made_and_their_versions_are_good_at_once(
    store: MetadataStore,
) -> None:
    kept, gone = await store.create("/kept", b"0"), await store.create("/gone", b"")
    versions = await store.commit(
        [
            Set("/kept", b"1", kept),
            Create("/made/below/parents", b"2"),
            Create("/once/only", b"3", once=True),
            Delete("/gone", gone),
        ]
    )
    assert versions[0] == later(kept, 1)
    assert versions[3] == gone
    assert await store.get("/kept") == Versioned(b"1", versions[0])
    assert await store.get("/made/below/parents") == Versioned(b"2", versions[1])
    assert await store.get("/once/only") == Versioned(b"3", versions[2])
    assert await code_of(store.get("/gone")) is ErrorCode.METADATA_NOT_FOUND
    again = await store.commit(
        [Set("/once/only", b"4", versions[2]), Set("/kept", b"5", versions[0])]
    )
    assert await store.get("/once/only") == Versioned(b"4", again[0])
    assert await store.get("/kept") == Versioned(b"5", later(kept, 2))


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (lambda parent, _: Create("/parent", b""), ErrorCode.METADATA_EXISTS),
        (lambda parent, _: Create("/mine/below", b""), ErrorCode.METADATA_CONFLICT),
        (lambda parent, _: Set("/parent", b"x", later(parent, 1)), ErrorCode.METADATA_CONFLICT),
        (lambda parent, _: Set("/parent", b"x", NO_VERSION), ErrorCode.METADATA_CONFLICT),
        (lambda parent, _: Set("/none", b"x", parent), ErrorCode.METADATA_NOT_FOUND),
        (lambda parent, _: Delete("/parent", parent), ErrorCode.METADATA_CONFLICT),
        (lambda _, child: Delete("/parent/child", later(child, 1)), ErrorCode.METADATA_CONFLICT),
        (lambda _, child: Delete("/none", child), ErrorCode.METADATA_NOT_FOUND),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 4])
async def test_one_refusal_leaves_everything_as_it_was(
    store: MetadataStore,
    refused: Callable[[Version, Version], Change],
    code: ErrorCode,
    place: int,
) -> None:
    parent, child = await store.create("/parent", b"p"), await store.create("/parent/child", b"c")
    await store.create("/mine", b"", ephemeral=True)
    other = await store.create("/other", b"o")
    ephemeral = await store.create("/ephemeral", b"e", ephemeral=True)
    changes: list[Change] = [
        Set("/other", b"changed", other),
        Create("/new/below", b""),
        Delete("/ephemeral", ephemeral),
        Create("/ephemeral", b"again"),
    ]
    changes.insert(place, refused(parent, child))
    assert await code_of(store.commit(changes)) is code
    assert await store.get("/parent") == Versioned(b"p", parent)
    assert await store.get("/parent/child") == Versioned(b"c", child)
    assert await store.children("/parent") == ["child"]
    assert await store.get("/other") == Versioned(b"o", other)
    assert await store.get("/ephemeral") == Versioned(b"e", ephemeral, store.session_id)
    assert await code_of(store.get("/new/below")) is ErrorCode.METADATA_NOT_FOUND
    changes.pop(place)
    await store.commit(changes)
    assert plain(await store.get("/ephemeral")) == (b"again", 0, 0)


async def test_the_error_is_that_of_the_first_change_that_is_refused(store: MetadataStore) -> None:
    version = await store.create("/node", b"")
    refused: list[tuple[list[Change], str]] = [
        ([Set("/node", b"x", NO_VERSION), Create("/node", b"")], "/node is no longer"),
        ([Create("/node", b""), Set("/node", b"x", NO_VERSION)], "/node is there already"),
        ([Set("/node", b"x", version), Set("/none", b"x", version)], "/none is not there"),
    ]
    for changes, path in refused:
        with pytest.raises(FencelogError, match=path):
            await store.commit(changes)


async def test_a_node_is_replaced_in_one_step(
    store: MetadataStore, new_store: Callable[[], MetadataStore], until: Until
) -> None:
    previous = await store.create("/owner", b"before")
    seen: list[Versioned | None] = []
    watch = store.watch_value("/owner", seen.append)
    await until(lambda: len(seen) == 1)
    changes: list[Change] = [Delete("/owner", previous), Create("/owner", b"after", ephemeral=True)]
    _, version = await store.commit(changes)
    assert version not in (previous, later(previous, 1))
    await until(lambda: seen[-1] == Versioned(b"after", version, store.session_id))
    assert None not in seen
    watch.close()
    # The previous version is good for nothing.
    assert await code_of(store.commit(changes)) is ErrorCode.METADATA_CONFLICT
    assert await code_of(store.set("/owner", b"", later(version, 1))) is ErrorCode.METADATA_CONFLICT
    await store.close()
    store = new_store()
    await store.start()
    assert await code_of(store.get("/owner")) is ErrorCode.METADATA_NOT_FOUND
    await store.close()


async def test_what_no_store_may_hold_is_refused_with_all_the_rest(store: MetadataStore) -> None:
    version = await store.create("/node", b"")
    invalid: list[Change] = [
        Create("relative", b""),
        Create("/large", bytes(MAX_METADATA_BYTES + 1)),
        Set("/node", bytes(MAX_METADATA_BYTES + 1), version),
        Delete("/bad path", version),
    ]
    for bad in invalid:
        assert await code_of(store.commit([Create("/first", b""), bad])) is ErrorCode.BAD_REQUEST
    assert await code_of(store.get("/first")) is ErrorCode.METADATA_NOT_FOUND


async def test_the_largest_commit_is_made_and_a_larger_one_refused(store: MetadataStore) -> None:
    """Before it is sent: ZooKeeper would end the connection, with all that is in flight."""
    paths = "/ledgers/1", "/logs/1"
    half = (MAX_COMMIT_BYTES - sum(map(len, paths))) // 2
    versions = await store.commit([Create(path, bytes(half), once=True) for path in paths])
    larger = [
        Set(path, bytes(size), version)
        for path, size, version in zip(paths, (half, half + 2), versions, strict=True)
    ]
    with pytest.raises(FencelogError, match=rf"2 paths .* {MAX_COMMIT_BYTES} are") as refused:
        await store.commit(larger)
    assert refused.value.code is ErrorCode.BAD_REQUEST
    assert [(await store.get(path)).version for path in paths] == versions


@pytest.mark.zookeeper
async def test_a_commit_whose_reply_is_lost_is_unknown_and_made_as_a_whole(
    proxied: ZooKeeperMetadataStore,
    proxy: Proxy,
    until: Until,
    zookeeper: str,
    host: Host,
    root: str,
) -> None:
    version = await proxied.create("/list", b"before")
    other = ZooKeeperMetadataStore([zookeeper], host=host, root=root)
    await other.start()
    seen: list[Versioned | None] = []
    other.watch_value("/list", seen.append)
    proxy.holds_answers = True
    changes: list[Change] = [Set("/list", b"after", version), Create("/ledger", b"new", once=True)]
    commit = asyncio.create_task(proxied.commit(changes))
    await until(lambda: Versioned(b"after", later(version, 1)) in seen)
    await other.close()
    proxy.cut()
    assert await code_of(commit) is ErrorCode.METADATA_UNKNOWN
    proxy.holds_answers = False
    assert await proxied.get("/list") == Versioned(b"after", later(version, 1))
    assert plain(await proxied.get("/ledger")) == (b"new", 0, 0)
    assert await code_of(proxied.commit(changes)) is ErrorCode.METADATA_CONFLICT
