"""The watches of all metadata stores: read again whenever something may have changed, and deliver a
new value. The stores only say *when*, so a missed, doubled or early notification does no harm."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Generic, TypeVar

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.paths import parent_of
from fencelog.ledgers.metastore.port import SessionState, Versioned, Watch

T = TypeVar("T")

REFRESHES_AT_ONCE = 1024
"""The watches read at the same time after a lost connection. A broker of 100,000 partitions has
200,000; other requests must not wait behind all of them."""

_log = logging.getLogger(__name__)
_NEVER = object()


class RefreshingWatch(Generic[T]):
    """One watch. It has at most one read in flight; a change meanwhile causes one more after it."""

    __slots__ = ("_callback", "_closed", "_delivered", "_on_close", "_read", "_stale", "_task")

    def __init__(
        self,
        read: Callable[[], Awaitable[T]],
        callback: Callable[[T], None],
        on_close: Callable[[RefreshingWatch[Any], asyncio.Task[Any] | None], None],
    ) -> None:
        self._read = read
        self._callback = callback
        self._on_close = on_close
        self._task: asyncio.Task[T] | None = None
        self._stale = False
        self._closed = False
        self._delivered: object = _NEVER

    def refresh(self) -> asyncio.Task[T] | None:
        """Read the value, which may have changed, and deliver it if it has. Return the read; None
        if it follows one that is in flight, or the watch was closed."""
        if self._closed:
            return None
        self._stale = self._task is not None
        if self._task is not None:
            return None
        self._task = asyncio.get_running_loop().create_task(self._read_once())
        self._task.add_done_callback(self._on_read)
        return self._task

    def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        self._on_close(self, self._task)

    async def _read_once(self) -> T:
        return await self._read()

    def _on_read(self, task: asyncio.Task[T]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if self._closed or task.cancelled():
            return
        if self._stale:
            self.refresh()
        elif isinstance(error, FencelogError):
            # The store refreshes every watch once it is connected again.
            _log.debug("watch could not read: %s", error)
        elif error is not None:
            raise error
        elif task.result() != self._delivered:
            self._delivered = task.result()
            self._callback(task.result())


async def value_or_none(get: Awaitable[Versioned]) -> Versioned | None:
    """Return the value that a value watch delivers: None if there is no node."""
    try:
        return await get
    except FencelogError as error:
        if error.code is ErrorCode.METADATA_NOT_FOUND:
            return None
        raise


async def names_or_empty(children: Awaitable[list[str]]) -> list[str]:
    """Return the names that a watch of children delivers: none if there is no such node."""
    try:
        return await children
    except FencelogError as error:
        if error.code is ErrorCode.METADATA_NOT_FOUND:
            return []
        raise


_Watches = dict[str, dict[RefreshingWatch[Any], None]]
"""Watches by path, in the order in which they were opened."""


class WatchTable:
    """All watches of one store, by path."""

    def __init__(self) -> None:
        self._values: _Watches = {}
        self._children: _Watches = {}
        self._ending: dict[asyncio.Task[Any], None] = {}
        """The reads of watches that were closed."""
        self._due: deque[RefreshingWatch[Any]] = deque()
        """The watches that are still to be refreshed since the connection was lost."""
        self._refreshing = 0

    def watch_value(
        self, path: str, read: Callable[[], Awaitable[T]], callback: Callable[[T], None]
    ) -> RefreshingWatch[T]:
        return self._add(self._values, path, read, callback)

    def watch_children(
        self, path: str, read: Callable[[], Awaitable[T]], callback: Callable[[T], None]
    ) -> RefreshingWatch[T]:
        return self._add(self._children, path, read, callback)

    def refresh(self, path: str) -> None:
        """Refresh the watches of this node, and of its children."""
        for watch in (*self._values.get(path, ()), *self._children.get(path, ())):
            watch.refresh()

    def node_changed(self, path: str) -> None:
        """Refresh the watches of a node that was created, set or deleted."""
        for watch in (
            *self._values.get(path, ()),
            *self._children.get(path, ()),
            *self._children.get(parent_of(path), ()),
        ):
            watch.refresh()

    def refresh_all(self) -> None:
        """Refresh every watch, REFRESHES_AT_ONCE at a time: anything may have changed while the
        connection was lost."""
        self._due = deque(self._all())
        self._refresh_due()

    def _refresh_due(self) -> None:
        while self._due and self._refreshing < REFRESHES_AT_ONCE:
            read = self._due.popleft().refresh()
            if read is not None:
                self._refreshing += 1
                read.add_done_callback(self._on_refreshed)

    def _on_refreshed(self, _read: asyncio.Task[Any]) -> None:
        self._refreshing -= 1
        self._refresh_due()

    async def close(self) -> None:
        """Close every watch and wait until none of them reads any more."""
        for watch in list(self._all()):
            watch.close()
        if self._ending:
            await asyncio.wait(list(self._ending))

    def _all(self) -> Iterator[RefreshingWatch[Any]]:
        for table in (self._values, self._children):
            for watches in table.values():
                yield from watches

    def _add(
        self,
        table: _Watches,
        path: str,
        read: Callable[[], Awaitable[T]],
        callback: Callable[[T], None],
    ) -> RefreshingWatch[T]:
        def forget(watch: RefreshingWatch[Any], reading: asyncio.Task[Any] | None) -> None:
            watches = table.get(path, {})
            watches.pop(watch, None)
            if not watches:
                table.pop(path, None)
            if reading is not None:
                self._ending[reading] = None
                reading.add_done_callback(lambda task: self._ending.pop(task, None))

        watch = RefreshingWatch(read, callback, forget)
        table.setdefault(path, {})[watch] = None
        watch.refresh()
        return watch


class SessionListeners:
    """The listeners for changes of the session's state."""

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[SessionState], None]] = {}

    def add(self, callback: Callable[[SessionState], None]) -> Watch:
        listener = _Listener(self._callbacks)
        self._callbacks[listener] = callback
        return listener

    def notify(self, state: SessionState) -> None:
        """Notify every listener from the event loop, each in its own iteration."""
        loop = asyncio.get_running_loop()
        for listener in list(self._callbacks):
            loop.call_soon(self._call, listener, state)

    def _call(self, listener: object, state: SessionState) -> None:
        callback = self._callbacks.get(listener)
        if callback is not None:
            callback(state)


class _Listener:
    def __init__(self, callbacks: dict[object, Callable[[SessionState], None]]) -> None:
        self._callbacks = callbacks

    def close(self) -> None:
        self._callbacks.pop(self, None)
