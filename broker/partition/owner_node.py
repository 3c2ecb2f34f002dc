"""One partition's owner node as one broker sees it: claimed, watched, put back, given up.

What the watch says decides where requests go. It can be late, and what ``claim`` has found can be
older than what the watch has said before: so whoever is sent to an owner that says that it is none
has it forgotten (``forget``), and the metadata are asked anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from fencelog.broker.partition.forwards import Forwards
from fencelog.broker.partition.ownership import NotOwner, Owner, Ownership
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.metastore.port import Watch

T = TypeVar("T")

RECLAIM_RETRY_S = 1.0
"""Pause between attempts to put a lost owner node back."""

log = logging.getLogger(__name__)


class NodeOwner(Protocol):
    """Whose node it is."""

    @property
    def is_serving(self) -> bool:
        """Whether the log is open here: its node is put back whenever it goes."""

    def owner_seen(self) -> None:
        """The watch has seen that another broker owns the partition."""

    def lost_to(self, error: NotOwner) -> None:
        """Another broker's node stands where ours was: the log is not ours any more."""

    async def check_log(self) -> None:
        """Look whether the open log is still this broker's; it ends if not. Raises METADATA_…."""


class OwnerNode:
    """``other``: the broker that owns the partition, None if it is this one or nobody."""

    __slots__ = (
        "_forwards",
        "_holder",
        "_is_missing",
        "_ownership",
        "_partition",
        "_reclaiming",
        "_topic_id",
        "_watch",
        "other",
    )

    def __init__(
        self, ownership: Ownership, topic_id: str, partition: int, *, holder: NodeOwner
    ) -> None:
        self.other: Owner | None = None
        self._ownership = ownership
        self._topic_id = topic_id
        self._partition = partition
        self._holder = holder
        self._watch: Watch | None = None
        self._is_missing = False
        """Whether the watch's last news was that our node is not there."""
        self._reclaiming: asyncio.Task[None] | None = None
        self._forwards: Forwards | None = None

    async def check_free(self) -> None:
        """Raises NotOwner if another broker owns the partition; METADATA_UNAVAILABLE."""
        self._check(await self._ownership.get(self._topic_id, self._partition))

    async def claim(self) -> None:
        """Own the partition, if nobody does. Raises NotOwner, METADATA_…."""
        self._is_missing = False
        self._check(await self._ownership.claim(self._topic_id, self._partition))
        # The watch need not tell: a node that went and came back may look as it has looked before.
        self._set_other(None)

    async def is_ours_as_far_as_known(self) -> bool:
        """False only if another broker's node stands there for certain."""
        try:
            owner = await self._ownership.get(self._topic_id, self._partition)
        except FencelogError:
            return True
        return owner is None or self._ownership.is_this_broker(owner)

    def keep(self) -> None:
        """The log is open now: put the node back if it went while the log was being opened."""
        if self._is_missing:
            self._reclaim_soon()

    async def release(self) -> None:
        """Give the partition up, if it is ours. Never raises: the session's end does it too."""
        if self._reclaiming is not None:
            self._reclaiming.cancel()
            await asyncio.wait((self._reclaiming,))
        if self._watch is not None:
            with suppress(FencelogError):
                await self._ownership.release(self._topic_id, self._partition)

    def close(self) -> None:
        """End the watch."""
        if self._watch is not None:
            self._watch.close()

    def forget(self, url: str) -> None:
        """The owner at ``url`` is dead, or says that it is none: ask again at the next request."""
        if self.other is not None and self.other.url == url:
            self._set_other(None)

    async def while_owner(self, url: str, work: Callable[[], Awaitable[T]]) -> T:
        """The result of ``work()``, which asks the owner at ``url``. Raises OwnerLost when that one
        owns the partition no more and has not answered."""
        if self._forwards is None:
            self._forwards = Forwards()
        return await self._forwards.run(url, work, owner_url=self._other_url)

    @property
    def _other_url(self) -> str | None:
        return None if self.other is None else self.other.url

    def _set_other(self, owner: Owner | None) -> None:
        self.other = owner
        if self._forwards is not None:
            self._forwards.owner_is(self._other_url)

    def _check(self, owner: Owner | None) -> None:
        if self._watch is None:
            self._watch = self._ownership.watch(self._topic_id, self._partition, self._on_owner)
        if owner is not None and not self._ownership.is_this_broker(owner):
            self._set_other(owner)
            raise NotOwner(str(self._holder), owner)

    def _on_owner(self, owner: Owner | None) -> None:
        is_this = owner is not None and self._ownership.is_this_broker(owner)
        self._set_other(None if is_this else owner)
        self._is_missing = owner is None or not self._ownership.is_ours(owner)
        if self.other is not None:
            self._holder.owner_seen()
        if self._is_missing and self._holder.is_serving:
            self._reclaim_soon()

    def _reclaim_soon(self) -> None:
        if self._reclaiming is None:
            self._reclaiming = asyncio.get_running_loop().create_task(self._reclaim())

    async def _reclaim(self) -> None:
        """The node of an open log is gone (the session expired, or somebody took us for dead): put
        it back. The log serves on meanwhile; it ends only if another owner stands there."""
        try:
            while self._holder.is_serving and self._is_missing:
                try:
                    await self.claim()
                    # Another broker may have had the log meanwhile, and have given up its node too.
                    await self._holder.check_log()
                except NotOwner as error:
                    log.info("%s", error.detail)
                    self._holder.lost_to(error)
                except FencelogError as error:
                    self._is_missing = True
                    log.warning("%s: owner node not restored yet: %s", self._holder, error)
                    await asyncio.sleep(RECLAIM_RETRY_S)
        finally:
            self._reclaiming = None
