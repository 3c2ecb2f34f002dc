"""A chain in the metadata store: read, and changed by one compare-and-set at a time.

Every change carries a fresh random token. A reply that was lost is resolved by sending the same
change again and, on a conflict, reading back: our token there means that it had landed. So a
listed ledger is never taken for an unlisted one (Pravega#4721 lost a log that way). Anything else
means that another owner has changed the chain: this instance has lost it, for good.

Several parts of a log change its chain (rolls, the state log, trims, compaction): ``change`` lets
one at a time, and goes on to the end of one whose caller has gone away, since the next must know
what became of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from fencelog.broker.ledger_list.codec import decode_chain, encode_chain
from fencelog.broker.ledger_list.ledger_list import Chain
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.instance import catch_up, check_session
from fencelog.ledgers.metastore.port import NO_VERSION, MetadataStore, Version

RETRY_S = 0.25
"""Pause before an unanswered change is sent again."""

_TRANSIENT = (ErrorCode.METADATA_UNAVAILABLE, ErrorCode.METADATA_UNKNOWN)


class ChainLost(FencelogError):
    """Somebody else has changed the chain. ``chain`` is what stands there now, None if nothing."""

    def __init__(self, path: str, chain: Chain | None) -> None:
        gone = chain is None or chain.deleted
        super().__init__(
            ErrorCode.TOPIC_NOT_FOUND if gone else ErrorCode.NO_OWNER,
            f"{path} was deleted" if gone else f"{path} was taken over by another broker",
        )
        self.chain = chain


def chain_path(topic_id: str, partition: int) -> str:
    return f"/logs/{topic_id}/{partition}"


class ChainNode:
    """One instance's hold on a chain; ``chain`` is the last value it read or wrote.

    ``lost`` is set, and ``on_lost`` called once, when another instance has changed the chain:
    every later change raises it again.
    """

    def __init__(self, store: MetadataStore, path: str, *, host: Host) -> None:
        self._store = store
        self.path = path
        self._host = host
        self._version = NO_VERSION
        self._turn = asyncio.Lock()
        self._changing: asyncio.Task[None] | None = None
        self.chain = Chain()
        self.lost: ChainLost | None = None
        self._closed = False
        self.on_lost: Callable[[ChainLost], None] = lambda lost: None

    async def load(self) -> None:
        """Read the chain. Raises METADATA_NOT_FOUND, METADATA_UNAVAILABLE, CORRUPT."""
        node = await self._store.get(self.path)
        self.chain, self._version = decode_chain(node.value), node.version

    async def create(self) -> bool:
        """Make the node with an empty chain. False: it is there, and still to be loaded."""
        try:
            self._version = await self._store.create(self.path, encode_chain(Chain()))
        except FencelogError as error:
            if error.code is not ErrorCode.METADATA_EXISTS:
                raise
            return False
        self.chain = Chain()
        return True

    async def delete(self) -> None:
        """Remove the node, as it was read or written here last; nothing to do if it is gone.
        Raises METADATA_CONFLICT if it was changed meanwhile, METADATA_…."""
        try:
            await self._store.delete(self.path, self._version)
        except FencelogError as error:
            if error.code is not ErrorCode.METADATA_NOT_FOUND:
                raise

    async def check_unchanged(self) -> None:
        """Raises ChainLost if another instance had changed the chain when this was called, whatever
        a server of the store is behind: that costs a write. Waits out a store that cannot be
        reached."""
        async with self._turn:
            if self._changing is not None:
                await asyncio.wait((self._changing,))
            self.check_held()
            found = await self._read_latest()
            if found is None or found.token != self.chain.token:
                lost = ChainLost(self.path, found)
                self._lose(lost)
                raise lost

    async def change(self, next_of: Callable[[Chain], Chain]) -> None:
        """Replace the chain by ``next_of`` it and return once that stands there.

        Raises ChainLost; BAD_REQUEST if it is too large, NO_OWNER if this hold has ended (nothing
        was written); METADATA_UNKNOWN if it ends meanwhile; what ``next_of`` raises. Goes on trying
        while the store does not answer, since a change of unknown outcome must be resolved before
        the next. A caller that is cancelled leaves it under way.
        """
        async with self._turn:
            if self._changing is not None:
                await asyncio.wait((self._changing,))  # its caller has gone away
            self.check_held()
            chain = replace(next_of(self.chain), token=self._host.random_bytes(16).hex())
            value = encode_chain(chain)
            changing = self._changing = asyncio.get_running_loop().create_task(
                self._commit(chain, value)
            )
            changing.add_done_callback(_retrieve)
            await asyncio.wait((changing,))
            if changing.cancelled():
                raise FencelogError(
                    ErrorCode.METADATA_UNKNOWN,
                    f"{self.path} was closed while it was changed: the change may be made, or not",
                )
            changing.result()

    def check_held(self) -> None:
        """Raises ChainLost, or NO_OWNER, if this instance may not change the chain any more."""
        if self.lost is not None:
            raise ChainLost(self.path, self.lost.chain)
        if self._closed:
            raise FencelogError(ErrorCode.NO_OWNER, f"{self.path} was closed here")

    async def close(self) -> None:
        """Change nothing any more. Ends a change that is still under way: the next owner finds out
        what became of it."""
        self._closed = True
        if self._changing is not None:
            self._changing.cancel()
            await asyncio.wait((self._changing,))

    async def _commit(self, chain: Chain, value: bytes) -> None:
        try:
            self._version = await self._set(value, chain.token)
        except ChainLost as lost:
            self._lose(lost)
            raise
        self.chain = chain

    def _lose(self, lost: ChainLost) -> None:
        if self.lost is None:
            self.lost = lost
            self.on_lost(lost)

    async def _set(self, value: bytes, token: str) -> Version:
        while True:
            try:
                return await self._store.set(self.path, value, self._version)
            except FencelogError as error:
                if error.code is ErrorCode.METADATA_CONFLICT:
                    found, version = await self._read_back()
                    if found is not None and found.token == token:
                        return version
                    raise ChainLost(self.path, found) from error
                if error.code is ErrorCode.METADATA_NOT_FOUND:
                    raise ChainLost(self.path, None) from error
                if error.code not in _TRANSIENT:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _read_latest(self) -> Chain | None:
        while True:
            try:
                session_id = await catch_up(self._store)
                found, _ = await self._read_back()
                check_session(self._store, session_id, f"read {self.path}")
                return found
            except FencelogError as error:
                if error.code not in _TRANSIENT:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _read_back(self) -> tuple[Chain | None, Version]:
        while True:
            try:
                node = await self._store.get(self.path)
                return decode_chain(node.value), node.version
            except FencelogError as error:
                if error.code is ErrorCode.METADATA_NOT_FOUND:
                    return None, NO_VERSION
                if error.code not in _TRANSIENT:
                    raise
            await asyncio.sleep(RETRY_S)


def _retrieve(change: asyncio.Task[None]) -> None:
    """Its error is the caller's, who may have gone away."""
    if not change.cancelled():
        change.exception()
