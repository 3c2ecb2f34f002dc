"""One partition's owner node as one broker sees it: claimed, watched, restored, released.

The watch decides where requests are forwarded to. It can be late, and the result of ``claim`` can
be older than what the watch has reported before: so when a request was sent to an owner that
answers that it is none, this owner is forgotten (``forget``), and the metadata are read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

from fencelog.broker.partition.forwards import ForwardedAppends, Forwards
from fencelog.broker.partition.ownership import NotOwner, Owner, Ownership
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.metastore.port import Change, Version, Versioned, Watch

T = TypeVar("T")

RECLAIM_RETRY_S = 1.0
"""Pause between attempts to put a lost owner node back."""

log = logging.getLogger(__name__)


class NodeOwner(Protocol):
    """The partition that an owner node belongs to."""

    @property
    def is_serving(self) -> bool:
        """Tell whether the log is open here: its node is restored whenever it vanishes."""

    def owner_seen(self) -> None:
        """Note that the watch has seen another broker own the partition."""

    def lost_to(self, error: NotOwner) -> None:
        """Note that another broker's node has replaced ours: the log does not belong to this broker
        any more."""

    async def check_log(self) -> None:
        """Check whether the open log still belongs to this broker; it ends if not. Raises
        METADATA_…."""


class OwnerNode:
    """The owner node of one partition. ``other``: the broker that owns the partition, None if it is
    this one or none does."""

    __slots__ = (
        "_forwards",
        "_holder",
        "_is_missing",
        "_is_registered",
        "_may_own",
        "_own",
        "_ownership",
        "_partition",
        "_reclaiming",
        "_topic_id",
        "_watch",
        "other",
    )

    def __init__(
        self,
        ownership: Ownership,
        topic_id: str,
        partition: int,
        *,
        holder: NodeOwner,
        is_registered: Callable[[str], bool],
    ) -> None:
        """Create it. ``is_registered(url)`` tells whether a broker is registered there."""
        self.other: Owner | None = None
        self._ownership = ownership
        self._topic_id = topic_id
        self._partition = partition
        self._holder = holder
        self._watch: Watch | None = None
        self._is_missing = False
        """True if this broker's node was absent according to the watch's last event."""
        self._own: Version | None = None
        """The version of this broker's node according to that event; None: there was none."""
        self._may_own = False
        """True from a claim until the release."""
        self._reclaiming: asyncio.Task[None] | None = None
        self._is_registered = is_registered
        self._forwards: Forwards | None = None

    async def check_free(self) -> None:
        """Check that no other broker owns the partition. Raises NotOwner if one does;
        METADATA_UNAVAILABLE."""
        self._check(await self._ownership.get(self._topic_id, self._partition))

    async def find_other(self) -> str | None:
        """Read which other broker owns the partition; return its id. None: no other does, or that
        cannot be told now."""
        try:
            await self.check_free()
        except NotOwner as error:
            return error.broker_id
        except FencelogError:
            pass
        return None

    async def claiming(self) -> Sequence[Change]:
        """Return the changes by which this broker comes to own the partition; it does once they are
        committed, and ``claimed`` is to be called. Raises NotOwner, METADATA_…."""
        other, changes = await self._ownership.claiming(self._topic_id, self._partition)
        if other is not None:
            self._check(other)
        self._may_own = True
        return changes

    def claimed(self) -> None:
        """Note that this broker owns the partition now."""
        self._is_missing = False
        # The watch need not fire: a node that was removed and created again may look the same.
        self._set_other(None)
        self._watch_anew()

    async def claim(self) -> None:
        """Own the partition, if no broker does. Raises NotOwner, METADATA_…."""
        self._is_missing, self._may_own = False, True
        self._check(await self._ownership.claim(self._topic_id, self._partition))
        self._set_other(None)
        self._watch_anew()

    def releasing(self) -> Sequence[Change]:
        """Return the changes by which this broker gives the partition up; none where the node as it
        is now is not known. ``release`` is to follow."""
        if self._own is None or self._is_missing or self._reclaiming is not None:
            return ()
        return (self._ownership.releasing(self._topic_id, self._partition, self._own),)

    async def is_ours_as_far_as_known(self) -> bool:
        """Return False only if another broker's node is certainly there."""
        try:
            owner = await self._ownership.get(self._topic_id, self._partition)
        except FencelogError:
            return True
        return owner is None or self._ownership.is_this_broker(owner)

    def keep(self) -> None:
        """Note that the log is open now: restore the node if it vanished while the log was being
        opened."""
        if self._is_missing:
            self._reclaim_soon()

    async def release(self, *, is_done: bool = False) -> None:
        """Give the partition up, if it is ours; ``is_done``: the changes of ``releasing`` were
        made. Never raises: the session's end does it too."""
        if self._reclaiming is not None:
            self._reclaiming.cancel()
            await asyncio.wait((self._reclaiming,))
        may_own, self._may_own = self._may_own, False
        if may_own and not is_done:
            with suppress(FencelogError):
                await self._ownership.release(self._topic_id, self._partition)

    def close(self) -> None:
        """End the watch. The next request reads the node, and watches it again."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def forget(self, url: str) -> None:
        """Forget the owner at ``url``, which is dead or answers that it is none: the metadata are
        read again at the next request."""
        if self.other is not None and self.other.url == url:
            self._set_other(None)

    async def while_owner(self, url: str, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``work()``, which sends a request to the owner at ``url``. Raises
        OwnerLost when that broker no longer owns the partition and has not answered."""
        return await self._all_forwards().run(url, work, owner_url=self.other_url)

    @property
    def forwarded_appends(self) -> ForwardedAppends | None:
        """The single messages in flight to the other broker that owns the partition, None if none
        is known to."""
        other = self.other
        if other is None:
            return None
        return (self._forwards or self._all_forwards()).appends(other.url)

    def _all_forwards(self) -> Forwards:
        if self._forwards is None:
            self._forwards = Forwards(self._is_registered)
        return self._forwards

    @property
    def other_url(self) -> str | None:
        """The URL of the other broker that owns the partition, as far as is known."""
        return None if self.other is None else self.other.url

    def _set_other(self, owner: Owner | None) -> None:
        self.other = owner
        if self._forwards is not None:
            self._forwards.owner_is(self.other_url)

    def _keep_watch(self) -> None:
        if self._watch is None:
            self._watch = self._ownership.watch(self._topic_id, self._partition, self._on_node)

    def _watch_anew(self) -> None:
        """Have the watch say what is there now. To one that has not seen our node yet it is no news
        that the node has gone with its session."""
        self.close()
        self._keep_watch()

    def _check(self, owner: Owner | None) -> None:
        self._keep_watch()
        if owner is not None and not self._ownership.is_this_broker(owner):
            self._set_other(owner)
            raise NotOwner(str(self._holder), owner)

    def _on_node(self, node: Versioned | None) -> None:
        self._on_owner(self._ownership.seen(node))

    def _on_owner(self, owner: Owner | None) -> None:
        is_this = owner is not None and self._ownership.is_this_broker(owner)
        self._set_other(None if is_this else owner)
        self._own = owner.version if owner is not None and self._ownership.is_ours(owner) else None
        self._is_missing = self._own is None
        if self.other is not None:
            self._holder.owner_seen()
        if self._is_missing and self._holder.is_serving:
            self._reclaim_soon()

    def _reclaim_soon(self) -> None:
        if self._reclaiming is None:
            self._reclaiming = asyncio.get_running_loop().create_task(self._reclaim())

    async def _reclaim(self) -> None:
        """Restore the node of an open log, which vanished because the session expired or another
        broker considered this one dead. The log serves on meanwhile; it ends only if there is
        another owner."""
        try:
            while self._holder.is_serving and self._is_missing:
                try:
                    await self.claim()
                    # Another broker may have had the log meanwhile, and have released its node too.
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
