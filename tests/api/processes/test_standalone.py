"""A standalone service and the file of its metadata: one that fails, and one that is older than
what its bookies have."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from fencelog.api.client import FencelogClient
from fencelog.api.drills.harness.load import read_log
from fencelog.api.processes import standalone as module
from fencelog.api.processes.lifecycle import Running
from fencelog.api.processes.standalone import StandaloneConfig, skip_known_ids, standalone
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.ids import BLOCK, LedgerIds, last_given_id
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
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


async def life(path: Path, value: bytes) -> list[bytes]:
    """Run a service, append one message, and return all that are there."""
    async with one_bookie(path) as running:
        url = running.announcement["http"]
        async with FencelogClient(url) as client:
            await client.create_topic("t/t", ensemble_size=1, write_quorum=1, ack_quorum=1)
            await client.append("t/t", value)
        return await read_log([url], "t/t", 0)


async def test_messages_are_not_taken_for_those_that_older_metadata_has_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Bookies keep the entry that they have, whatever is in another one of its id."""
    data, older = tmp_path / "data", tmp_path / "older"
    await life(data, b"1")
    shutil.copy(data / "metadata.sqlite", older)
    assert await life(data, b"lost") == [b"1", b"lost"]
    assert caplog.messages == []
    for file in data.glob("metadata.sqlite*"):
        file.unlink()
    shutil.copy(older, data / "metadata.sqlite")
    await life(data, b"2")
    (said,) = [line for line in caplog.messages if "the metadata is older" in line]
    assert "bring the newest metadata.sqlite back" in said
    assert await life(data, b"3") == [b"1", b"2", b"3"]
    assert len([line for line in caplog.messages if "the metadata is older" in line]) == 1


@pytest.fixture
async def store(host: Host) -> MemoryMetadataStore:
    store = MemoryMetadataStore()
    await store.start()
    await create_instance(store, host)
    return store


@pytest.mark.parametrize("known", [[], [1], [1, BLOCK]])
async def test_ids_of_a_block_that_was_begun_change_nothing(
    store: MemoryMetadataStore, known: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    await LedgerIds(store).next()
    await skip_known_ids(store, known)
    assert (await last_given_id(store), caplog.messages) == (BLOCK, [])


async def test_no_id_is_given_that_a_bookie_knows(store: MemoryMetadataStore) -> None:
    """Nor, by a client that has fenced what there never was, are ids used up."""
    await LedgerIds(store).next()
    await skip_known_ids(store, [2**63 - 1, 3, 500, 17])
    assert 500 < await LedgerIds(store).next() < 2**32


async def test_no_counter_is_needed_for_it(store: MemoryMetadataStore) -> None:
    await skip_known_ids(store, [])
    assert await last_given_id(store) == 0
    await skip_known_ids(store, [7])
    assert await LedgerIds(store).next() > 7
