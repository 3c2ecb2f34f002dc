"""SQLite only: durability, the lock, what is left by previous runs, and failing disks."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.port import NO_VERSION, Version, Versioned
from fencelog.ledgers.metastore.sqlite import SqliteMetadataStore
from fencelog.ledgers.metastore.sqlite_tree import SqliteTree
from tests.support.metadata_nodes import later, remove


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "metadata.sqlite"


async def opened(path: Path, host: Host) -> SqliteMetadataStore:
    store = SqliteMetadataStore(path, host=host)
    await store.start()
    return store


async def test_nodes_are_there_after_reopening_and_ephemerals_are_not(
    path: Path, host: Host
) -> None:
    first = await opened(path, host)
    version = await first.create("/kept", b"1")
    changed = await first.set("/kept", b"2", version)
    await first.create("/dir/gone", b"", ephemeral=True)
    await first.close()
    second = await opened(path, host)
    assert await second.get("/kept") == Versioned(b"2", changed)
    assert changed == later(version, 1)
    assert await second.children("/dir") == []
    assert second.session_id != first.session_id
    await second.close()


async def test_incarnations_are_unique_across_openings(path: Path, host: Host) -> None:
    """The incarnations of deleted nodes count too, and of ephemeral ones that went with their
    session."""
    previous: list[Version] = []
    for _ in range(3):
        store = await opened(path, host)
        for is_ephemeral in (True, False):
            version = await store.create("/node", b"", ephemeral=is_ephemeral)
            for stale in previous:
                with pytest.raises(FencelogError) as caught:
                    await store.set("/node", b"x", stale)
                assert caught.value.code is ErrorCode.METADATA_CONFLICT
            previous.append(version)
            await remove(store, "/node")
        previous.append(await store.create("/node", b"", ephemeral=True))
        await store.close()
    assert len(set(previous)) == 9


async def test_what_was_answered_survives_a_kill(path: Path, host: Host) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from fencelog.ledgers.host import SystemHost\n"
        "from fencelog.ledgers.metastore.sqlite import SqliteMetadataStore\n"
        "async def main():\n"
        "    store = SqliteMetadataStore(Path(sys.argv[1]), host=SystemHost())\n"
        "    await store.start()\n"
        "    await store.create('/me', b'', ephemeral=True)\n"
        "    await asyncio.gather(*(store.create(f'/n/{i}', b'x') for i in range(100)))\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False)  # noqa: ASYNC221 - no other task runs
    assert ended.returncode == -9
    store = await opened(path, host)
    assert len(await store.children("/n")) == 100
    with pytest.raises(FencelogError, match="not_found"):
        await store.get("/me")
    await store.close()


async def test_a_second_opener_is_refused_until_the_first_closes(path: Path, host: Host) -> None:
    first = await opened(path, host)
    with pytest.raises(FencelogError, match=r"metadata\.sqlite") as caught:
        await opened(path, host)
    assert caught.value.code is ErrorCode.DATA_DIRECTORY_IN_USE
    await first.create("/still", b"works")
    await first.close()
    second = await opened(path, host)
    assert (await second.get("/still")).value == b"works"
    await second.close()


def test_ephemerals_that_go_with_the_session_are_noticed(path: Path) -> None:
    tree = SqliteTree.open(path)
    _, changed = tree.run(
        [lambda tree: tree.create("/a/b", b"", 7), lambda tree: tree.end_session(7)]
    )
    assert changed == ["/a", "/a/b", "/a/b"]
    tree.close()


@pytest.mark.parametrize("number", [1, 99])
async def test_another_format_is_refused(path: Path, host: Host, number: int) -> None:
    store = await opened(path, host)
    await store.close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {number}")
    connection.close()
    with pytest.raises(FencelogError, match=f"format {number}") as caught:
        await opened(path, host)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.fixture(params=[b"this is no database" * 100, None])
def damaged(request: pytest.FixtureRequest, path: Path) -> Path:
    path.parent.mkdir()
    if request.param is None:
        path.mkdir()
    else:
        path.write_bytes(request.param)
    return path


async def test_a_file_that_cannot_be_opened_is_named(damaged: Path, host: Host) -> None:
    with pytest.raises(FencelogError, match=r"metadata\.sqlite") as caught:
        await opened(damaged, host)
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE


async def test_one_bad_request_does_not_fail_those_beside_it(path: Path, host: Host) -> None:
    store = await opened(path, host)
    await store.create("/there", b"")
    results = await asyncio.gather(
        store.create("/a", b"1"),
        store.create("/there", b"2"),
        store.set("/none", b"", NO_VERSION),
        store.create("/b", b"3"),
        return_exceptions=True,
    )
    found = [r.code if isinstance(r, FencelogError) else r for r in results]
    assert found == [
        (await store.get("/a")).version,
        ErrorCode.METADATA_EXISTS,
        ErrorCode.METADATA_NOT_FOUND,
        (await store.get("/b")).version,
    ]
    assert await store.children("/a") == []
    await store.close()


class FailingCommits:
    """A connection whose commits fail with one SQLite error code."""

    def __init__(self, connection: sqlite3.Connection, code: int) -> None:
        self._connection = connection
        self.code: int | None = code

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if sql == "COMMIT" and self.code is not None:
            error = sqlite3.OperationalError("the disk says no")
            error.sqlite_errorcode = self.code
            raise error
        return self._connection.execute(sql, *arguments)

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()


def test_a_full_disk_is_unavailable_and_passes(path: Path) -> None:
    tree = SqliteTree.open(path)
    failing = FailingCommits(tree._connection, sqlite3.SQLITE_FULL)
    tree._connection = cast("sqlite3.Connection", failing)
    results, changed = tree.run([lambda tree: tree.create("/a", b"", 0)] * 2)
    assert [error.code for error in results] == [ErrorCode.METADATA_UNAVAILABLE] * 2
    assert changed == []
    failing.code = None
    (version,), changed = tree.run([lambda tree: tree.create("/a", b"", 0)])
    assert changed == ["/a"]
    assert tree.get("/a") == Versioned(b"", version)
    tree.close()


def test_a_failed_commit_is_unknown_and_never_tried_again(path: Path) -> None:
    tree = SqliteTree.open(path)
    failing = FailingCommits(tree._connection, sqlite3.SQLITE_IOERR)
    tree._connection = cast("sqlite3.Connection", failing)
    (error,), _ = tree.run([lambda tree: tree.create("/a", b"", 0)])
    assert error.code is ErrorCode.METADATA_UNKNOWN
    failing.code = None
    (error,), _ = tree.run([lambda tree: tree.create("/b", b"", 0)])
    assert error.code is ErrorCode.METADATA_UNAVAILABLE
    tree.close()
