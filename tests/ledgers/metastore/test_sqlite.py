"""The SQLite store: what its watches see, and what it says once its file has failed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.port import Versioned
from fencelog.ledgers.metastore.sqlite import SqliteMetadataStore
from fencelog.ledgers.metastore.sqlite_tree import SqliteTree
from tests.support.until import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


@pytest.fixture
async def store(path: Path, host: Host) -> AsyncIterator[SqliteMetadataStore]:
    store = SqliteMetadataStore(path, host=host)
    await store.start()
    yield store
    await store.close()


async def test_a_watch_delivers_although_the_disk_was_full_when_it_read(
    store: SqliteMetadataStore,
) -> None:
    """Nothing would have it read once more: the session goes on."""
    await store.create("/a", b"1")
    await store._submit(
        "limit", lambda tree: tree._connection.execute("PRAGMA max_page_count = 20")
    )
    seen: list[Versioned | None] = []
    watch = store.watch_value("/a", seen.append)
    with pytest.raises(FencelogError) as caught:  # in the transaction in which the watch reads
        await asyncio.create_task(store.create("/large", bytes(200_000)))
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    await until(lambda: bool(seen))
    assert [node.value for node in seen if node is not None] == [b"1"]
    watch.close()


async def test_a_file_that_failed_is_named_once_and_for_all(
    store: SqliteMetadataStore, path: Path
) -> None:
    def fail(_tree: SqliteTree) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    await store.create("/a", b"")
    assert not store.failure.done()
    for _ in range(2):
        with pytest.raises(FencelogError):
            await store._submit("fail", fail)
    failure = store.failure.result()
    assert failure.code is ErrorCode.STORAGE_FAILED
    assert failure.detail == f"the metadata file {path} failed: disk I/O error"
