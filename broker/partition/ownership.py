"""The owners of partitions: one ephemeral node for each partition, ``/owners/{topic
id}-{partition}``.

The node is created by the commit that takes the log over, and deleted by the one that closes it.

Ownership is a hint that keeps brokers from contending for a partition and says where to forward
requests. Safety does not rest on it: any number of brokers may believe that they own a partition,
and the takeover of its log (``takeover``) lets one of them acknowledge.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fencelog.broker.ledger_list.codec import decode_ledger_list
from fencelog.broker.ledger_list.store import ledger_list_path
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.port import (
    Change,
    Create,
    Delete,
    MetadataStore,
    Version,
    Versioned,
    Watch,
)

OWNERS_PATH = "/owners"

DEAD_FOR_S = 1.0
"""The time for which the other partitions of a broker that has refused a connection are taken, too,
without a request to it for each: a broker that has died had thousands. A broker that is alive gets
them back as requests for them arrive."""


_FASTER_OR_UNKNOWN = (
    ErrorCode.METADATA_EXISTS,
    ErrorCode.METADATA_NOT_FOUND,
    ErrorCode.METADATA_CONFLICT,
    ErrorCode.METADATA_UNKNOWN,
)
"""The errors of a change of an owner node that another broker, or the end of a session, has
forestalled, or that may have been made."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A broker that owns a partition, and the session and version of its node."""

    broker_id: str
    url: str
    session_id: int
    version: Version


class NotOwner(FencelogError):
    """The refusal because another broker owns the partition; the request belongs at ``url``."""

    def __init__(self, what: str, owner: Owner) -> None:
        super().__init__(
            ErrorCode.NOT_OWNER,
            f"{what} is owned by {owner.broker_id}",
            broker_id=owner.broker_id,
            url=owner.url,
        )
        self.broker_id = owner.broker_id
        self.url = owner.url


class Ownership:
    """The owner nodes of partitions, as this broker reads and changes them."""

    def __init__(self, store: MetadataStore, *, broker_id: str, url: str) -> None:
        self._store = store
        self._broker_id = broker_id
        self._url = url
        self._value = json.dumps({"broker_id": broker_id, "url": url}).encode()
        self._dead: dict[int, float] = {}
        """Sessions that seem to have no process any more, and the time until which they count as
        dead."""

    async def claiming(self, topic_id: str, partition: int) -> tuple[Owner | None, list[Change]]:
        """Return the other broker that owns the partition, or the changes by which this one comes
        to own it: none if it does already.

        A node that was left behind by an earlier session of this broker, by an earlier process at
        its address, or by an owner that was found dead a moment ago is replaced. Raises METADATA_….
        """
        path = _path(topic_id, partition)
        claim = Create(path, self._value, ephemeral=True)
        previous = await self.get(topic_id, partition)
        if previous is None:
            return None, [claim]
        if self.is_ours(previous):
            return None, []
        if not self.is_this_broker(previous) and not self._is_dead(previous.session_id):
            return previous, []
        return None, [Delete(path, previous.version), claim]

    async def claim(self, topic_id: str, partition: int) -> Owner | None:
        """Own the partition if no broker does; return the other owner, None if it is ours now. See
        ``claiming``. Raises METADATA_…."""
        while True:
            other, changes = await self.claiming(topic_id, partition)
            if other is not None or not changes:
                return other
            try:
                await self._store.commit(changes)
                return None
            except FencelogError as error:
                if error.code not in _FASTER_OR_UNKNOWN:
                    raise

    def releasing(self, topic_id: str, partition: int, version: Version) -> Change:
        """Return the change by which this broker gives the partition up; ``version``: that of its
        node."""
        return Delete(_path(topic_id, partition), version)

    async def get(self, topic_id: str, partition: int) -> Owner | None:
        """Return the current owner. Raises METADATA_UNAVAILABLE, CORRUPT."""
        try:
            node = await self._store.get(_path(topic_id, partition))
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                return None
            raise
        return _decode(node)

    async def owners(self, topic_id: str, partitions: int) -> list[dict[str, Any]]:
        """Return ``partition, broker_id, url, epoch`` of every partition that has an owner now.
        Raises METADATA_UNAVAILABLE, CORRUPT."""
        found = []
        for partition in range(partitions):
            owner = await self.get(topic_id, partition)
            if owner is not None:
                epoch = await self._epoch(topic_id, partition)
                place = {"broker_id": owner.broker_id, "url": owner.url, "epoch": epoch}
                found.append({"partition": partition, **place})
        return found

    async def _epoch(self, topic_id: str, partition: int) -> int:
        try:
            node = await self._store.get(ledger_list_path(topic_id, partition))
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                return 0
            raise
        return decode_ledger_list(node.value).epoch

    def is_ours(self, owner: Owner) -> bool:
        """Tell whether the node belongs to this broker's current session."""
        return owner.session_id == self._store.session_id

    def is_this_broker(self, owner: Owner) -> bool:
        """Tell whether the node is this broker's, of its current session or of one before, or
        that of an earlier process at its address: a request sent there would reach this broker
        itself."""
        return owner.broker_id == self._broker_id or owner.url == self._url

    async def release(self, topic_id: str, partition: int) -> None:
        """Give the partition up, if it is ours. Raises METADATA_UNAVAILABLE."""
        owner = await self.get(topic_id, partition)
        if owner is not None and self.is_ours(owner):
            await self._remove(_path(topic_id, partition), owner.version)

    async def remove_dead(self, topic_id: str, partition: int, url: str) -> bool:
        """Remove the node of an owner that does not listen at ``url`` any more, if the node is
        still that owner's; ``claim`` removes the others of that owner for a while. An owner that is
        alive restores its node and receives requests again. Return whether the owner was not known
        to be dead."""
        owner = await self.get(topic_id, partition)
        if owner is not None and owner.url == url and not self.is_ours(owner):
            now = asyncio.get_running_loop().time()
            self._dead = {session: until for session, until in self._dead.items() if until > now}
            is_new = owner.session_id not in self._dead
            self._dead[owner.session_id] = now + DEAD_FOR_S
            await self._remove(_path(topic_id, partition), owner.version)
            return is_new
        return True

    def _is_dead(self, session_id: int) -> bool:
        until = self._dead.get(session_id, 0.0)
        return asyncio.get_running_loop().time() < until

    def watch(
        self, topic_id: str, partition: int, callback: Callable[[Versioned | None], None]
    ) -> Watch:
        """Call back with the owner's node now and after every change, see ``seen``."""
        return self._store.watch_value(_path(topic_id, partition), callback)

    def seen(self, node: Versioned | None) -> Owner | None:
        """Return the owner of a node that a watch has reported; None: no owner can be read."""
        if node is not None:
            with suppress(FencelogError):  # the next claim reports the fault
                return _decode(node)
        return None

    async def _remove(self, path: str, version: Version) -> None:
        try:
            await self._store.delete(path, version)
        except FencelogError as error:
            if error.code not in _FASTER_OR_UNKNOWN:
                raise


def _path(topic_id: str, partition: int) -> str:
    return f"{OWNERS_PATH}/{topic_id}-{partition}"


def _decode(node: Versioned) -> Owner:
    """Decode an owner node. Raises FencelogError(CORRUPT)."""
    try:
        fields = json.loads(node.value)
        return Owner(
            str(fields["broker_id"]), str(fields["url"]), node.ephemeral_owner, node.version
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FencelogError(ErrorCode.CORRUPT, f"owner node is not valid: {error}") from error
