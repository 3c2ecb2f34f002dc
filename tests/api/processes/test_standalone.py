"""A standalone service and the file of its metadata: one that fails while it runs."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from fencelog.api.processes import standalone as module
from fencelog.api.processes.lifecycle import Running
from fencelog.api.processes.standalone import StandaloneConfig, standalone
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.sqlite import SqliteMetadataStore
from fencelog.ledgers.metastore.sqlite_tree import SqliteTree


def one_bookie(path: Path) -> AbstractAsyncContextManager[Running]:
    return standalone(StandaloneConfig(path, "127.0.0.1:0", bookies=1, record_events=False))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[SqliteMetadataStore]:
    """Return where the store of a service is to be found."""
    stores: list[SqliteMetadataStore] = []

    def made(path: Path, *, host: Host) -> SqliteMetadataStore:
        stores.append(SqliteMetadataStore(path, host=host))
        return stores[-1]

    monkeypatch.setattr(module, "SqliteMetadataStore", made)
    return stores


async def fail(store: SqliteMetadataStore) -> None:
    """Have the file of a store fail. Raises FencelogError(METADATA_UNKNOWN)."""

    def refuse(_tree: SqliteTree) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    await store._submit("fail", refuse)


FAILED = r"^storage_failed: the metadata file .*/metadata\.sqlite failed: disk I/O error$"


async def test_it_ends_when_the_file_of_its_metadata_fails(
    tmp_path: Path, opened: list[SqliteMetadataStore]
) -> None:
    """It could change nothing any more, and would say that it is ready."""

    async def serve() -> None:
        async with one_bookie(tmp_path) as running, asyncio.timeout(30):
            with pytest.raises(FencelogError, match="metadata_unknown"):
                await fail(opened[0])
            await running.wait_failed()

    with pytest.raises(FencelogError, match=FAILED):
        await serve()


async def test_it_names_the_file_that_fails_while_it_starts(
    tmp_path: Path, opened: list[SqliteMetadataStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(store: SqliteMetadataStore, _bookies: list[Path], _host: Host) -> None:
        await fail(store)

    monkeypatch.setattr(module, "initialise_new", failing)
    with pytest.raises(FencelogError, match=FAILED):
        async with one_bookie(tmp_path):
            pass
