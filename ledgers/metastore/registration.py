"""The registration of processes: ephemeral nodes, and live tables of them.

``/bookies/{bookie_id}`` and ``/brokers/{broker_id}`` are hints for finding each other, never proof
of anything: a process may be dead and still be listed, or be alive and not listed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import METADATA_TIMEOUT_MS
from fencelog.ledgers.metastore.paths import unavailable
from fencelog.ledgers.metastore.port import MetadataStore, Version, Versioned, Watch

BOOKIES_PATH = "/bookies"
BROKERS_PATH = "/brokers"

RETRY_MS = 500
"""The time between attempts to register again, until the metadata store accepts it and the watch
sees it."""

_log = logging.getLogger(__name__)


class Registration:
    """An ephemeral node kept in place until closed, over session expiry and deletion by other
    processes.

    ``start`` takes the path over from its holder, usually an earlier run of the same process whose
    session has not expired yet. A registration that is replaced later stands by until the path is
    free, so two processes with one name cannot fight for it.
    """

    def __init__(self, store: MetadataStore, path: str, value: bytes) -> None:
        self._store = store
        self._path = path
        self._value = value
        self._own_sessions: set[int] = set()
        self._changed = asyncio.Event()
        self._is_seen = True
        """The state that the watch last saw: whether there was a node."""
        self._watch: Watch | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_registered = False
        """True if the node was this process's own when it was last seen. While the store cannot be
        reached this stays as it was."""

    @classmethod
    async def start(cls, store: MetadataStore, path: str, value: bytes) -> Registration:
        """Register now. Raises FencelogError(METADATA_UNAVAILABLE, METADATA_UNKNOWN)."""
        registration = cls(store, path, value)
        await registration._register(take_over=True)
        registration._watch = store.watch_value(path, registration._on_value)
        registration._task = asyncio.create_task(registration._keep())
        return registration

    def update(self, value: bytes) -> None:
        """Write another value soon, and repeat it until the node has it."""
        if value != self._value:
            self._value = value
            self._changed.set()

    async def close(self) -> None:
        """Remove the node, if it is our own and the store can be reached; the end of its session
        removes it too."""
        if self._watch is not None:
            self._watch.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        try:
            node = await self._store.get(self._path)
            if node.ephemeral_owner == self._store.session_id:
                await self._store.delete(self._path, node.version)
        except FencelogError as error:
            _log.info("%s was not removed: %s", self._path, error)

    def _on_value(self, node: Versioned | None) -> None:
        self._is_seen = node is not None
        self.is_registered = node is not None and node.ephemeral_owner == self._store.session_id
        if not self.is_registered:
            self._changed.set()

    async def _keep(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                if not await self._register(take_over=False):
                    _log.error("%s now belongs to another process; standing by", self._path)
                if self._is_seen:
                    continue
                # A node that disappears before the watch has seen it is no change to the watch.
            except FencelogError as error:
                _log.warning("%s could not be registered again: %s", self._path, error)
            await asyncio.sleep(RETRY_MS / 1000)
            self._changed.set()

    async def _register(self, *, take_over: bool) -> bool:
        """Create the node, and tell whether it is our own now."""
        while True:
            session_id = self._store.session_id
            try:
                await self._store.create(self._path, self._value, ephemeral=True)
            except FencelogError as error:
                if error.code not in (ErrorCode.METADATA_EXISTS, ErrorCode.METADATA_UNKNOWN):
                    raise
                node = await self._current()
                if node is None:
                    continue
                if node.ephemeral_owner not in (session_id, self._store.session_id):
                    if not take_over and node.ephemeral_owner not in self._own_sessions:
                        return False
                    await self._remove(node.version)
                    continue
                if node.value != self._value and not await self._rewrite(node.version):
                    continue
            self._own_sessions.update((session_id, self._store.session_id))
            self.is_registered = True
            return True

    async def _current(self) -> Versioned | None:
        try:
            return await self._store.get(self._path)
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                return None
            raise

    async def _rewrite(self, version: Version) -> bool:
        """Write our value, and tell whether the node has it now; if not, read the node again."""
        try:
            await self._store.set(self._path, self._value, version)
        except FencelogError as error:
            gone = (ErrorCode.METADATA_NOT_FOUND, ErrorCode.METADATA_CONFLICT)
            if error.code not in (*gone, ErrorCode.METADATA_UNKNOWN):
                raise
            return False
        return True

    async def _remove(self, version: Version) -> None:
        try:
            await self._store.delete(self._path, version)
        except FencelogError as error:
            gone = (ErrorCode.METADATA_NOT_FOUND, ErrorCode.METADATA_CONFLICT)
            if error.code not in (*gone, ErrorCode.METADATA_UNKNOWN):
                raise


class ChildrenValues:
    """A live table of the values of a node's children, by name.

    ``on_change`` is called on the event loop after every change. While the store cannot be
    reached the table stays as it was.
    """

    def __init__(
        self, store: MetadataStore, path: str, *, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._store = store
        self._path = path
        self.on_change = on_change
        self.values: dict[str, bytes] = {}
        self._watch: Watch | None = None
        self._children: dict[str, Watch] = {}
        self._awaited: set[str] = set()
        self._listed = False
        self._complete = asyncio.Event()

    async def start(self) -> None:
        """Return when the table is complete. Raises FencelogError(METADATA_UNAVAILABLE)."""
        self._watch = self._store.watch_children(self._path, self._on_children)
        try:
            async with asyncio.timeout(METADATA_TIMEOUT_MS / 1000):
                await self._complete.wait()
        except TimeoutError:
            self.close()
            raise unavailable(f"list {self._path}", "no answer in time") from None

    def close(self) -> None:
        """End the watches; the table stays as it is."""
        if self._watch is not None:
            self._watch.close()
        for watch in self._children.values():
            watch.close()
        self._children.clear()

    def _on_children(self, names: list[str]) -> None:
        self._listed = True
        for name in sorted(self._children.keys() - set(names)):
            self._children.pop(name).close()
            self._awaited.discard(name)
            self._put(name, None)
        for name in names:
            if name not in self._children:
                self._awaited.add(name)
                self._children[name] = self._store.watch_value(
                    f"{self._path}/{name}", partial(self._on_value, name)
                )
        self._check_complete()

    def _on_value(self, name: str, node: Versioned | None) -> None:
        self._awaited.discard(name)
        self._put(name, None if node is None else node.value)
        self._check_complete()

    def _put(self, name: str, value: bytes | None) -> None:
        if self.values.get(name) == value:
            return
        if value is None:
            del self.values[name]
        else:
            self.values[name] = value
        self.on_change()

    def _check_complete(self) -> None:
        if self._listed and not self._awaited:
            self._complete.set()
