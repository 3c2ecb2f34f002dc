"""Requests that wait for another broker's answer: they end when that broker owns the partition no
more.

A host that went silent answers nothing and refuses nothing; only the end of its session, which
takes its owner nodes away, tells that nobody is there. Without this, a request that was passed on
to it would wait for its time-out, long after somebody else has taken over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fencelog.broker.limits import OWNER_LOST_MS
from fencelog.ledgers.errors import ErrorCode, FencelogError

T = TypeVar("T")


class OwnerLost(FencelogError):
    """The owner that a request was passed on to is not the owner any more, and did not answer.
    What it has done is not known."""

    def __init__(self, url: str) -> None:
        super().__init__(
            ErrorCode.REQUEST_TIMEOUT, f"the owner at {url} is gone; it had not answered"
        )


class Forwards:
    """The requests under way to the owner of one partition."""

    __slots__ = ("_limits",)

    def __init__(self) -> None:
        self._limits: dict[asyncio.Timeout, str] = {}

    async def run(self, url: str, work: Callable[[], Awaitable[T]], *, owner_url: str | None) -> T:
        """The result of ``work()``, which asks the broker at ``url``; ``owner_url`` is who owns the
        partition now. Raises OwnerLost OWNER_LOST_MS after another, or nobody, owns it."""
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

    def owner_is(self, owner_url: str | None) -> None:
        """The partition is owned by this broker now (None: by nobody)."""
        for limit, url in self._limits.items():
            self._set(limit, is_owner=url == owner_url)

    @staticmethod
    def _set(limit: asyncio.Timeout, *, is_owner: bool) -> None:
        if limit.expired():
            return
        if is_owner:
            limit.reschedule(None)
        elif limit.when() is None:
            limit.reschedule(asyncio.get_running_loop().time() + OWNER_LOST_MS / 1000)
