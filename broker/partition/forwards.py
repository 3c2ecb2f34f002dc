"""Requests that wait for another broker's answer: they end when that broker no longer owns the
partition.

A host that went silent neither answers nor refuses a connection; only the end of its session, which
removes its owner nodes, shows that it is dead. Without this, a request that was forwarded to it
would wait for its time-out, long after another broker has taken over.

A broker that gives a partition up is alive, and registered: it passes waiting requests on to the
next owner, which takes seconds on a machine that has much to do. Its answer is waited for.

A single message is forwarded without a task, so it cannot wait as other requests do: those in
flight to one owner share what ends them (``ForwardedAppends``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from fencelog.broker.append.conditions import AppendFuture
from fencelog.broker.limits import OWNER_LOST_MS, OWNER_MOVED_MS
from fencelog.ledgers.errors import ErrorCode, FencelogError

T = TypeVar("T")


class OwnerLost(FencelogError):
    """The error when the owner that a request was forwarded to is not the owner any more, and has
    not answered. The effect of the request is unknown."""

    def __init__(self, url: str) -> None:
        super().__init__(
            ErrorCode.REQUEST_TIMEOUT, f"the owner at {url} is gone; it had not answered"
        )


class _Limit(Protocol):
    """The end of a wait, as ``asyncio.Timeout`` has it."""

    def expired(self) -> bool: ...

    def when(self) -> float | None: ...

    def reschedule(self, when: float | None) -> None: ...


class ForwardedAppends:
    """The single messages in flight to one owner of a partition, at ``url``. ``futures``: theirs,
    which are added when they are sent and taken out when they are answered; they get APPEND_UNKNOWN
    when that broker is not the owner any more, in the order in which they were sent."""

    __slots__ = ("_on_end", "_timer", "futures", "url")

    def __init__(self, url: str, on_end: Callable[[ForwardedAppends], None]) -> None:
        """Create it empty. ``on_end(self)`` is called when it has ended what was in flight."""
        self.url = url
        self.futures: dict[AppendFuture, None] = {}
        self._on_end = on_end
        self._timer: asyncio.TimerHandle | None = None

    def expired(self) -> bool:
        """Return False: what is sent later has its own time."""
        return False

    def when(self) -> float | None:
        """Return the loop's time at which what is in flight ends; None: it does not."""
        return None if self._timer is None else self._timer.when()

    def reschedule(self, when: float | None) -> None:
        """Set that time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if when is not None:
            self._timer = asyncio.get_running_loop().call_at(when, self._end)

    def _end(self) -> None:
        self._timer = None
        futures, self.futures = self.futures, {}
        why = str(OwnerLost(self.url))
        for future in futures:
            if not future.done():
                future.set_exception(FencelogError(ErrorCode.APPEND_UNKNOWN, why))
        self._on_end(self)


class Forwards:
    """The requests in flight to the owner of one partition."""

    __slots__ = ("_appends", "_is_registered", "_limits")

    def __init__(self, is_registered: Callable[[str], bool]) -> None:
        """Create it empty. ``is_registered(url)`` tells whether a broker is registered there."""
        self._is_registered = is_registered
        self._limits: dict[_Limit, str] = {}
        self._appends: dict[str, ForwardedAppends] = {}
        """The single messages in flight, by the URL of the owner that they went to."""

    async def run(self, url: str, work: Callable[[], Awaitable[T]], *, owner_url: str | None) -> T:
        """Return the result of ``work()``, which sends a request to the broker at ``url``;
        ``owner_url`` is the current owner's. Raises OwnerLost some time after another broker, or
        none, owns the partition: OWNER_LOST_MS if the one at ``url`` is not registered any more,
        OWNER_MOVED_MS if it is."""
        try:
            async with asyncio.timeout(None) as limit:
                self._limits[limit] = url
                try:
                    self._set(limit, is_owner=url == owner_url)
                    return await work()
                finally:
                    del self._limits[limit]
        except TimeoutError:
            if limit.expired():
                raise OwnerLost(url) from None
            raise

    def appends(self, owner_url: str) -> ForwardedAppends:
        """Return the single messages in flight to the current owner."""
        found = self._appends.get(owner_url)
        if found is None:
            found = self._appends[owner_url] = ForwardedAppends(owner_url, self._forget)
            self._limits[found] = owner_url
        return found

    def _forget(self, appends: ForwardedAppends) -> None:
        del self._appends[appends.url], self._limits[appends]

    def owner_is(self, owner_url: str | None) -> None:
        """Note that the broker at this URL owns the partition now (None: no broker does)."""
        for appends in list(self._appends.values()):
            if appends.url != owner_url and not appends.futures:
                appends.reschedule(None)
                self._forget(appends)
        for limit, url in self._limits.items():
            self._set(limit, is_owner=url == owner_url)

    def _set(self, limit: _Limit, *, is_owner: bool) -> None:
        if limit.expired():
            return
        if is_owner:
            limit.reschedule(None)
        elif limit.when() is None:
            end_s = asyncio.get_running_loop().time() + OWNER_MOVED_MS / 1000
            limit.reschedule(end_s)
            self._look_later(limit, end_s)

    def _look_later(self, limit: _Limit, end_s: float) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(OWNER_LOST_MS / 1000, self._look, limit, end_s)

    def _look(self, limit: _Limit, end_s: float) -> None:
        """End a request if the broker that it waits for is gone."""
        url = self._limits.get(limit)
        if url is None or limit.expired() or limit.when() != end_s:
            return  # It was answered, or that broker has owned the partition again.
        if self._is_registered(url):
            self._look_later(limit, end_s)
        else:
            limit.reschedule(asyncio.get_running_loop().time())
