"""The tree of the SQLite store as SQL. Synchronous; belongs to one thread.

nodes(path, parent, value, incarnation, number, owner)
    A node's version is (incarnation, number). owner: session id of an ephemeral node, else 0.
incarnations(last)
    One row: the newest incarnation that was assigned.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.paths import (
    ancestors_of,
    below_ephemeral,
    exists,
    has_children,
    not_found,
    parent_of,
    unavailable,
    unknown,
    version_conflict,
)
from fencelog.ledgers.metastore.port import Change, Create, Set, Version, Versioned

FORMAT_VERSION = 2
"""The format of the file: its ``PRAGMA user_version``."""

_SCHEMA = """
CREATE TABLE nodes (
    path TEXT PRIMARY KEY,
    parent TEXT NOT NULL,
    value BLOB NOT NULL,
    incarnation INTEGER NOT NULL,
    number INTEGER NOT NULL,
    owner INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE incarnations (last INTEGER NOT NULL);
INSERT INTO incarnations VALUES (0);
CREATE INDEX children ON nodes (parent, path);
CREATE INDEX ephemerals ON nodes (owner) WHERE owner != 0;
"""

Operation = Callable[["SqliteTree"], Any]


class SqliteTree:
    """An open file, locked against every other opener until ``close``."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._changed: list[str] = []
        self.failure: str | None = None
        """The reason for which it can do nothing any more."""

    @classmethod
    def open(cls, path: Path) -> SqliteTree:
        """Open or create the file, and remove the ephemeral nodes of previous runs.

        Raises FencelogError: DATA_DIRECTORY_IN_USE, UNSUPPORTED_VERSION, METADATA_UNAVAILABLE.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path, timeout=0, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise unavailable(f"open {path}", str(error)) from error
        try:
            _prepare(connection, path)
        except sqlite3.Error as error:
            connection.close()
            if _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise FencelogError(
                    ErrorCode.DATA_DIRECTORY_IN_USE, f"{path} is in use by another process"
                ) from error
            raise unavailable(f"open {path}", str(error)) from error
        except FencelogError:
            connection.close()
            raise
        return cls(connection)

    def close(self) -> None:
        self._connection.close()

    def run(self, operations: Sequence[Operation]) -> tuple[list[Any], list[str]]:
        """Run operations as one transaction; results are values or FencelogErrors, in order.

        The second list names the nodes that changed. An operation that fails leaves no trace; when
        the commit fails, all of them fail. Where the disk is full, each is run alone, so that those
        which need no space succeed. After any other failure the state of the file is unknown, and a
        failed fsync must not be repeated: the tree stays failed.
        """
        if self.failure is not None:
            why = f"it failed before: {self.failure}"
            return [unavailable("metadata file", why) for _ in operations], []
        self._changed = []
        try:
            self._connection.execute("BEGIN")
            results = [self._attempt(operation) for operation in operations]
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            failed = self._fail(error, len(operations))
            if self.failure is None and len(operations) > 1:  # all of them were rolled back
                return self._run_each(operations)
            return failed, []
        except BaseException:
            self._connection.rollback()
            raise
        return results, self._changed

    # -- operations, within a transaction ----------------------------------------------------------

    def create(self, path: str, value: bytes, owner: int) -> Version:
        if self._find(path) is not None:
            raise exists(path)
        known = [(ancestor, self._find(ancestor)) for ancestor in ancestors_of(path)]
        if any(node is not None and node.ephemeral_owner for _, node in known):
            raise below_ephemeral(path)
        for ancestor, node in known:
            if node is None:
                self._insert(ancestor, b"", 0)
        return self._insert(path, value, owner)

    def get(self, path: str) -> Versioned:
        node = self._find(path)
        if node is None:
            raise not_found(path)
        return node

    def set(self, path: str, value: bytes, version: Version) -> Version:
        if version != self.get(path).version:
            raise version_conflict(path, version)
        self._connection.execute(
            "UPDATE nodes SET value = ?, number = number + 1 WHERE path = ?", (value, path)
        )
        self._changed.append(path)
        return Version(version.incarnation, version.number + 1)

    def delete(self, path: str, version: Version) -> None:
        if version != self.get(path).version:
            raise version_conflict(path, version)
        if self._connection.execute("SELECT 1 FROM nodes WHERE parent = ?", (path,)).fetchone():
            raise has_children(path)
        self._connection.execute("DELETE FROM nodes WHERE path = ?", (path,))
        self._changed.append(path)

    def commit(self, changes: Sequence[Change], owner: int) -> list[Version]:
        """Make all changes or none; the nodes that are ``ephemeral`` are this session's."""
        known = len(self._changed)
        self._connection.execute("SAVEPOINT changes")
        try:
            versions = [self._make(change, owner) for change in changes]
        except FencelogError:
            self._connection.execute("ROLLBACK TO changes")
            self._connection.execute("RELEASE changes")
            del self._changed[known:]
            raise
        # Not after another error: where SQLite has rolled everything back there is no savepoint any
        # more, and the complaint about that would hide why.
        self._connection.execute("RELEASE changes")
        return versions

    def children(self, path: str) -> list[str]:
        self.get(path)
        rows = self._connection.execute(
            "SELECT path FROM nodes WHERE parent = ? ORDER BY path", (path,)
        )
        return [child.rpartition("/")[2] for (child,) in rows]

    def end_session(self, owner: int) -> None:
        """End a session; its ephemeral nodes are deleted."""
        rows = self._connection.execute(
            "DELETE FROM nodes WHERE owner = ? RETURNING path", (owner,)
        )
        self._changed += [path for (path,) in rows]

    # -- internals ---------------------------------------------------------------------------------

    def _run_each(self, operations: Sequence[Operation]) -> tuple[list[Any], list[str]]:
        """Run each operation as a transaction of its own. A defect of one is its own result: the
        others may have been made by then."""
        results: list[Any] = []
        changed: list[str] = []
        for operation in operations:
            try:
                (result,), nodes = self.run([operation])
            except Exception as error:
                result, nodes = error, []
            results.append(result)
            changed += nodes
        return results, changed

    def _make(self, change: Change, owner: int) -> Version:
        if isinstance(change, Create):
            return self.create(change.path, change.value, owner if change.ephemeral else 0)
        if isinstance(change, Set):
            return self.set(change.path, change.value, change.version)
        self.delete(change.path, change.version)
        return change.version

    def _attempt(self, operation: Operation) -> Any:
        try:
            return operation(self)
        except FencelogError as error:  # nothing is written, or it was rolled back
            return error

    def _fail(self, error: sqlite3.Error, count: int) -> list[Any]:
        with contextlib.suppress(sqlite3.Error):
            self._connection.rollback()
        if _code(error) == sqlite3.SQLITE_FULL:
            return [unavailable("metadata file", str(error)) for _ in range(count)]
        self.failure = str(error)
        return [unknown("metadata file", str(error)) for _ in range(count)]

    def _find(self, path: str) -> Versioned | None:
        row = self._connection.execute(
            "SELECT value, incarnation, number, owner FROM nodes WHERE path = ?", (path,)
        ).fetchone()
        if row is None:
            return None
        value, incarnation, number, owner = row
        return Versioned(value, Version(incarnation, number), owner)

    def _insert(self, path: str, value: bytes, owner: int) -> Version:
        ((incarnation,),) = self._connection.execute(
            "UPDATE incarnations SET last = last + 1 RETURNING last"
        ).fetchall()
        self._connection.execute(
            "INSERT INTO nodes (path, parent, value, incarnation, number, owner)"
            " VALUES (?, ?, ?, ?, 0, ?)",
            (path, parent_of(path), value, incarnation, owner),
        )
        self._changed.append(path)
        return Version(incarnation, 0)


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's code of an error. Those that Python raises itself, as for a text that is no
    UTF-8, have none: what was read is damaged."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    # Exclusive mode has to be set before the first access: the lock is then taken with it, kept,
    # and the write-ahead log needs no shared-memory file.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0:
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    elif version != FORMAT_VERSION:
        raise FencelogError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{path} has format {version}, this version reads {FORMAT_VERSION}",
        )
    connection.execute("DELETE FROM nodes WHERE owner != 0")
    connection.execute("COMMIT")
