"""The tree of the SQLite store: a full disk (SQLite itself refuses pages beyond a limit, and rolls
back as it does then), and a damaged file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.port import Create, Versioned
from fencelog.ledgers.metastore.sqlite_tree import SqliteTree
from tests.support.metadata_nodes import later

TOO_LARGE = bytes(200_000)
"""A value for which there is no space."""


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[SqliteTree]:
    """Yield a tree with the node ``/a`` and space for small changes only."""
    tree = SqliteTree.open(tmp_path / "metadata.sqlite")
    tree.run([lambda tree: tree.create("/a", b"old", 0)])
    (pages,) = tree._connection.execute("PRAGMA page_count").fetchone()
    tree._connection.execute(f"PRAGMA max_page_count = {pages + 10}")
    yield tree
    tree.close()


def code(result: object) -> ErrorCode | None:
    return result.code if isinstance(result, FencelogError) else None


def test_a_disk_that_is_full_amid_several_changes_passes(tree: SqliteTree) -> None:
    """SQLite has rolled back the savepoint with everything else."""
    changes = [Create("/b", b""), Create("/c", TOO_LARGE)]
    (refused,), changed = tree.run([lambda tree: tree.commit(changes, 0)])
    assert code(refused) is ErrorCode.METADATA_UNAVAILABLE
    assert changed == []
    (versions,), changed = tree.run([lambda tree: tree.commit([Create("/b", b"")], 0)])
    assert changed == ["/b"]
    assert tree.get("/b").version == versions[0]


def test_changes_before_one_that_is_refused_are_taken_back(tree: SqliteTree) -> None:
    changes = [Create("/b", b""), Create("/a", b"")]
    (refused, found), changed = tree.run(
        [lambda tree: tree.commit(changes, 0), lambda tree: tree.get("/b")]
    )
    assert code(refused) is ErrorCode.METADATA_EXISTS
    assert code(found) is ErrorCode.METADATA_NOT_FOUND
    assert changed == []


def test_each_commit_is_synced(tree: SqliteTree) -> None:
    """``NORMAL``, with a write-ahead log, would sync now and then: a power cut takes the rest."""
    (journal_mode,) = tree._connection.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = tree._connection.execute("PRAGMA synchronous").fetchone()
    assert (journal_mode, synchronous) == ("wal", 2)


def test_a_full_disk_fails_only_what_needs_space(tree: SqliteTree) -> None:
    """What had been run beside it was rolled back, and takes effect once."""
    results, changed = tree.run(
        [
            lambda tree: tree.get("/a"),
            lambda tree: tree.create("/before", b"", 0),
            lambda tree: tree.create("/large", TOO_LARGE, 0),
            lambda tree: tree.set("/before", b"new", tree.get("/before").version),
            lambda tree: tree.create("/a", b"", 0),
        ]
    )
    assert [code(result) for result in results] == [
        None,
        None,
        ErrorCode.METADATA_UNAVAILABLE,
        None,
        ErrorCode.METADATA_EXISTS,
    ]
    assert results[0].value == b"old"
    assert tree.get("/before") == Versioned(b"new", results[3])
    assert results[3] == later(results[1], 1)
    assert changed == ["/before", "/before"]


def test_a_defect_of_one_operation_is_the_result_of_that_one(tree: SqliteTree) -> None:
    """Others have taken effect by then, and those that watch have to hear of it."""

    def broken(_tree: SqliteTree) -> None:
        raise ZeroDivisionError

    results, changed = tree.run(
        [
            lambda tree: tree.create("/large", TOO_LARGE, 0),
            lambda tree: tree.create("/before", b"", 0),
            broken,
            lambda tree: tree.create("/after", b"", 0),
        ]
    )
    assert code(results[0]) is ErrorCode.METADATA_UNAVAILABLE
    assert isinstance(results[2], ZeroDivisionError)
    assert changed == ["/before", "/after"]


def test_a_name_that_is_no_text_is_damage(tree: SqliteTree) -> None:
    """It is found by Python, whose errors have no code of SQLite."""
    tree.run([lambda tree: tree.create("/a/b", b"", 0)])
    tree._connection.execute("UPDATE nodes SET path = CAST(x'ee' AS TEXT) WHERE path = '/a/b'")
    (error,), _ = tree.run([lambda tree: tree.children("/a")])
    assert code(error) is ErrorCode.METADATA_UNKNOWN
    (error,), _ = tree.run([lambda tree: tree.create("/c", b"", 0)])
    assert code(error) is ErrorCode.METADATA_UNAVAILABLE
    assert "UTF-8" in str(error)
