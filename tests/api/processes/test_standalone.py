"""A standalone service and the file of its metadata: one that fails, and one that is older than
what its bookies have."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from fencelog.api.client import FencelogClient
from fencelog.api.drills.harness.load import read_log
from fencelog.api.processes import standalone as module
from fencelog.api.processes.lifecycle import Running
from fencelog.api.processes.standalone import StandaloneConfig, check_knows_ids, standalone
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.ids import BLOCK, LedgerIds
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.metastore.sqlite import SqliteMetadataStore
from fencelog.ledgers.metastore.sqlite_tree import SqliteTree

CLI = "fencelog.api.cli.main"


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


async def test_metadata_that_is_older_than_the_bookies_is_refused_unless_ids_are_skipped(
    tmp_path: Path,
) -> None:
    """Bookies keep the entry that they have, whatever is in another one of its id."""
    data, older = tmp_path / "data", tmp_path / "older"
    file = data / "metadata.sqlite"
    await life(data, b"1")
    shutil.copy(file, older)
    assert await life(data, b"kept") == [b"1", b"kept"]
    for each in data.glob("metadata.sqlite*"):
        shutil.move(each, tmp_path)
    shutil.copy(older, file)
    with pytest.raises(FencelogError, match="is older than the bookies beside it") as refused:
        await life(data, b"2")
    for each in data.glob("metadata.sqlite*"):
        each.unlink()
    for each in tmp_path.glob("metadata.sqlite*"):
        shutil.move(each, data)
    assert await life(data, b"2") == [b"1", b"kept", b"2"]
    shutil.copy(older, file)
    command = refused.value.detail.partition(": fencelog ")[2].split()
    skipping = await asyncio.create_subprocess_exec(sys.executable, "-m", CLI, *command)
    assert await skipping.wait() == 0
    assert await life(data, b"3") == [b"1", b"3"]


@pytest.fixture
async def store(host: Host) -> MemoryMetadataStore:
    store = MemoryMetadataStore()
    await store.start()
    await create_instance(store, host)
    return store


FILE = Path("metadata.sqlite")


@pytest.mark.parametrize("known", [[], [1], [1, BLOCK], [2**63 - 1]])
async def test_ids_that_were_given_are_in_order_and_those_that_never_can_have_been(
    store: MemoryMetadataStore, known: list[int]
) -> None:
    await LedgerIds(store).next()
    await check_knows_ids(store, FILE, known)


@pytest.mark.parametrize("known", [[BLOCK + 1], [2**63 - 1, 3, 500, 17]])
async def test_an_id_that_was_not_given_yet_is_refused(
    store: MemoryMetadataStore, known: list[int]
) -> None:
    await LedgerIds(store).next()
    with pytest.raises(FencelogError, match=f"ids up to {BLOCK}, they have ledgers up to"):
        await check_knows_ids(store, FILE, known)


async def test_a_store_without_a_counter_has_given_none(store: MemoryMetadataStore) -> None:
    await check_knows_ids(store, FILE, [])
    with pytest.raises(FencelogError, match="ids up to 0, they have ledgers up to 7"):
        await check_knows_ids(store, FILE, [7])
