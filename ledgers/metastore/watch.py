"""The watches of all metadata stores: read again whenever something may have changed, and deliver a
new value. The stores only say *when*, so a missed, doubled or early notification does no harm."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.paths import parent_of
from fencelog.ledgers.metastore.port import SessionState, Versioned, Watch

T = TypeVar("T")

REFRESHES_AT_ONCE = 1024
"""The watches read at the same time after a lost connection. A broker of 100,000 partitions has
200,000; other requests must not wait behind all of them."""

REFUSED_RETRY_S = 1.0
REFUSED_RETRY_MAX_S = 60.0
"""The time after which a watch is read again whose node's access list refuses it; it doubles up to
the second one. Nothing reports that access was granted; who grants it looks for an effect within a
minute, and a store whose nodes are all closed is asked no more often than that."""

_log = logging.getLogger(__name__)
_NEVER = object()


class RefreshingWatch(Generic[T]):
    """One watch. It has at most one read in flight; a change meanwhile causes one more after it."""

    __slots__ = ("_callback", "_closed", "_delivered", "_of", "_path", "_stale", "_task")

    def __init__(self, of: _Watches[T], path: str, callback: Callable[[T], None]) -> None:
        self._of = of
        self._path = path
        self._callback = callback
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
        if not self._closed:
            self._closed = True
            if self._task is not None:
                self._task.cancel()
            self._of.forget(self._path, self, self._task)

    async def _read_once(self) -> T:
        return await self._of.read(self._path)

    def _on_read(self, task: asyncio.Task[T]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if self._closed or task.cancelled():
            return
        if self._stale:
            self.refresh()
        elif isinstance(error, FencelogError):
            # A store without a connection refreshes every watch once it has one.
            _log.debug("watch could not read: %s", error)
            if error.code is ErrorCode.METADATA_UNAUTHORIZED:
                self._of.refused(self)
        elif error is not None:
            raise error
        else:
            self._of.admitted(self)
            if task.result() != self._delivered:
                self._delivered = task.result()
                self._callback(task.result())


class _Retry(NamedTuple):
    """The next read of a watch that was refused."""

    delay_s: float
    timer: asyncio.TimerHandle


class _Watches(Generic[T]):
    """The watches of values, or those of children, by path, in the order in which they were opened.
    ``read`` reads a path; ``retry`` is called with a watch that was refused when it is to be read
    again. A broker has two watches for each of a hundred thousand partitions: nearly all are alone
    at their path, and none has a function of its own."""

    def __init__(
        self, read: Callable[[str], Awaitable[T]], retry: Callable[[RefreshingWatch[T]], None]
    ) -> None:
        self.read = read
        self._retry = retry
        self._retries: dict[RefreshingWatch[T], _Retry] = {}
        self.ending: dict[asyncio.Task[Any], None] = {}
        """The reads of watches that were closed."""
        self._by_path: dict[str, tuple[RefreshingWatch[T], ...]] = {}

    def add(self, path: str, callback: Callable[[T], None]) -> RefreshingWatch[T]:
        watch = RefreshingWatch(self, path, callback)
        self._by_path[path] = (*self.at(path), watch)
        watch.refresh()
        return watch

    def at(self, path: str) -> tuple[RefreshingWatch[T], ...]:
        return self._by_path.get(path, ())

    def all(self) -> Iterator[RefreshingWatch[T]]:
        for watches in self._by_path.values():
            yield from watches

    def refused(self, watch: RefreshingWatch[T]) -> None:
        """Read a watch again later: the access list of its node refuses it, and no server tells
        when it does no more."""
        before = self._retries.get(watch)
        delay_s = REFUSED_RETRY_S
        if before is not None:
            before.timer.cancel()
            delay_s = min(2 * before.delay_s, REFUSED_RETRY_MAX_S)
        timer = asyncio.get_running_loop().call_later(delay_s, self._retry, watch)
        self._retries[watch] = _Retry(delay_s, timer)

    def admitted(self, watch: RefreshingWatch[T]) -> None:
        """Note that a watch was set, or is closed."""
        retry = self._retries.pop(watch, None)
        if retry is not None:
            retry.timer.cancel()

    def forget(
        self, path: str, watch: RefreshingWatch[T], reading: asyncio.Task[Any] | None
    ) -> None:
        """Forget a watch that was closed while it read, or not."""
        self.admitted(watch)
        left = tuple(each for each in self.at(path) if each is not watch)
        if left:
            self._by_path[path] = left
        else:
            self._by_path.pop(path, None)
        if reading is not None:
            self.ending[reading] = None
            reading.add_done_callback(lambda task: self.ending.pop(task, None))


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


class WatchTable:
    """All watches of one store, by path. ``read_value`` and ``read_children`` read what a watch
    delivers."""

    def __init__(
        self,
        read_value: Callable[[str], Awaitable[Versioned | None]],
        read_children: Callable[[str], Awaitable[list[str]]],
    ) -> None:
        self._values = _Watches(read_value, self._refresh_later)
        self._children = _Watches(read_children, self._refresh_later)
        self._due: deque[RefreshingWatch[Any]] = deque()
        """The watches that are still to be refreshed since the connection was lost, or they were
        refused."""
        self._refreshing = 0

    def watch_value(
        self, path: str, callback: Callable[[Versioned | None], None]
    ) -> RefreshingWatch[Versioned | None]:
        return self._values.add(path, callback)

    def watch_children(
        self, path: str, callback: Callable[[list[str]], None]
    ) -> RefreshingWatch[list[str]]:
        return self._children.add(path, callback)

    def refresh(self, path: str) -> None:
        """Refresh the watches of this node, and of its children."""
        for watch in self._at(path):
            watch.refresh()

    def node_changed(self, path: str) -> None:
        """Refresh the watches of a node that was created, set or deleted."""
        for watch in (*self._at(path), *self._children.at(parent_of(path))):
            watch.refresh()

    def refresh_all(self) -> None:
        """Refresh every watch, REFRESHES_AT_ONCE at a time: anything may have changed while the
        connection was lost."""
        self._due = deque(self._all())
        self._refresh_due()

    def _refresh_later(self, watch: RefreshingWatch[Any]) -> None:
        """Refresh one watch when there are not too many others."""
        self._due.append(watch)
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
        ending = [*self._values.ending, *self._children.ending]
        if ending:
            await asyncio.wait(ending)

    def _at(self, path: str) -> tuple[RefreshingWatch[Any], ...]:
        return (*self._values.at(path), *self._children.at(path))

    def _all(self) -> Iterator[RefreshingWatch[Any]]:
        yield from self._values.all()
        yield from self._children.all()


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
