"""The metadata store in one SQLite file: durable, for one process (``fencelog standalone``).

All SQL runs on one thread of its own. Requests that wait during a transaction share the next one,
so that many writers cost one fsync. The write-ahead log has ``synchronous=FULL``: answered writes
survive a power cut. The file is locked as long as it is open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.paths import (
    check_commit,
    check_node,
    check_path,
    unavailable,
)
from fencelog.ledgers.metastore.port import Change, SessionState, Version, Versioned, Watch
from fencelog.ledgers.metastore.sqlite_tree import Operation, SqliteTree
from fencelog.ledgers.metastore.watch import (
    SessionListeners,
    WatchTable,
    names_or_empty,
    value_or_none,
)

_log = logging.getLogger(__name__)

_MAX_TRANSACTION = 256
"""The requests in one transaction, so that one answer never waits for very many writes."""


class SqliteMetadataStore:
    """The single session on a file. Implements ``MetadataStore``; it is always CONNECTED."""

    def __init__(self, path: Path, *, host: Host) -> None:
        self._path = path
        self._session_id = int.from_bytes(host.random_bytes(7), "big") | 1  # never 0
        self._tree: SqliteTree | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: list[tuple[Operation, asyncio.Future[Any]]] = []
        self._transactions: asyncio.Task[None] | None = None
        self._watches = WatchTable(self._value_or_none, self._names_or_empty)
        self._listeners = SessionListeners()
        self.failure: asyncio.Future[FencelogError]
        """The future that gets the error as its *result* when the file has failed: until it is
        opened again nothing can be read or changed. Only a store that was started has it."""

    @property
    def session_id(self) -> int:
        return self._session_id

    async def start(self) -> None:
        """Open the file. Raises FencelogError(DATA_DIRECTORY_IN_USE), and as the port says."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="metadata-sqlite")
        loop = asyncio.get_running_loop()
        self.failure = loop.create_future()
        try:
            self._tree = await loop.run_in_executor(self._thread, SqliteTree.open, self._path)
        except BaseException:
            self._thread.shutdown()
            raise

    async def close(self) -> None:
        await self._watches.close()
        tree, thread = self._tree, self._thread
        if tree is None or thread is None:
            return
        try:
            await self._submit("end session", lambda tree: tree.end_session(self._session_id))
        except FencelogError as error:
            _log.warning("%s was not closed cleanly: %s", self._path, error)
        finally:
            self._tree = None
            if self._transactions is not None:
                await asyncio.wait([self._transactions])
            await asyncio.get_running_loop().run_in_executor(thread, tree.close)
            thread.shutdown()

    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, once: bool = False
    ) -> Version:
        check_node(path, value)
        owner = self._session_id if ephemeral else 0
        version: Version = await self._submit(
            f"create {path}", lambda tree: tree.create(path, value, owner)
        )
        return version

    async def get(self, path: str) -> Versioned:
        check_path(path)
        node: Versioned = await self._submit(f"get {path}", lambda tree: tree.get(path))
        return node

    async def set(self, path: str, value: bytes, version: Version) -> Version:
        check_node(path, value)
        changed: Version = await self._submit(
            f"set {path}", lambda tree: tree.set(path, value, version)
        )
        return changed

    async def delete(self, path: str, version: Version) -> None:
        check_path(path)
        await self._submit(f"delete {path}", lambda tree: tree.delete(path, version))

    async def commit(self, changes: Sequence[Change]) -> list[Version]:
        check_commit(changes)
        versions: list[Version] = await self._submit(
            "commit " + ", ".join(change.path for change in changes),
            lambda tree: tree.commit(changes, self._session_id),
        )
        return versions

    async def children(self, path: str) -> list[str]:
        check_path(path)
        names: list[str] = await self._submit(f"list {path}", lambda tree: tree.children(path))
        return names

    def watch_value(self, path: str, callback: Callable[[Versioned | None], None]) -> Watch:
        check_path(path)
        return self._watches.watch_value(path, callback)

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> Watch:
        check_path(path)
        return self._watches.watch_children(path, callback)

    async def _value_or_none(self, path: str) -> Versioned | None:
        return await value_or_none(self.get(path))

    async def _names_or_empty(self, path: str) -> list[str]:
        return await names_or_empty(self.children(path))

    def on_session(self, callback: Callable[[SessionState], None]) -> Watch:
        return self._listeners.add(callback)

    async def _submit(self, what: str, operation: Operation) -> Any:
        """Run an operation in the next transaction; returns its result or raises its
        FencelogError."""
        if self._tree is None:
            raise unavailable(what, f"{self._path} is not open")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((operation, future))
        if self._transactions is None:
            self._transactions = loop.create_task(self._run_transactions(self._tree))
        return await future

    async def _run_transactions(self, tree: SqliteTree) -> None:
        """Run one transaction after another as long as requests wait."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                batch = self._waiting[:_MAX_TRANSACTION]
                del self._waiting[:_MAX_TRANSACTION]
                operations = [operation for operation, _ in batch]
                changed: list[str] = []
                try:
                    results, changed = await loop.run_in_executor(
                        self._thread, tree.run, operations
                    )
                except Exception as error:  # a defect: waiting callers have to learn of it
                    results = [error] * len(batch)
                self._note_failure(tree)
                for (_, future), result in zip(batch, results, strict=True):
                    _settle(future, result)
                for path in changed:
                    self._watches.node_changed(path)
        finally:
            self._transactions = None

    def _note_failure(self, tree: SqliteTree) -> None:
        if tree.failure is not None and not self.failure.done():
            why = f"the metadata file {self._path} failed: {tree.failure}"
            self.failure.set_result(FencelogError(ErrorCode.STORAGE_FAILED, why))


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.cancelled():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
