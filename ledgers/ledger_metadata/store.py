"""Metadata of ledgers in the metadata store: one node each, ``/ledgers/{id >> 16}/{id & 0xffff}``.

Both parts are hexadecimal, so that no directory has more than 65,536 children and a listing of it
stays below what one ZooKeeper packet may hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, decode_metadata, encode_metadata
from fencelog.ledgers.metastore.instance import catch_up, check_session
from fencelog.ledgers.metastore.port import MetadataStore, Version, Versioned

T = TypeVar("T")

LEDGERS_PATH = "/ledgers"

_ATTEMPTS = 3

_READS_AT_ONCE = 64
"""Metadata nodes read side by side: hides the round trip, and is no burden to the store."""


class LedgerStore:
    """Creates, reads, changes and deletes ledger metadata."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def create(self, metadata: LedgerMetadata) -> Version:
        """Write the metadata of a new ledger; returns its version.

        Safe after a lost reply: what stands there is ours if it carries our token, also where
        somebody else has recovered it since. Raises FencelogError: METADATA_EXISTS (another's),
        METADATA_UNKNOWN, METADATA_UNAVAILABLE.
        """
        path = _path(metadata.ledger_id)
        value = encode_metadata(metadata)

        async def create() -> Version:
            try:
                return await self._store.create(path, value, once=True)
            except FencelogError as error:
                if error.code is not ErrorCode.METADATA_EXISTS:
                    raise
                found, version = await self._existing(metadata.ledger_id)
                if found.token != metadata.token:
                    raise
                # The version that *we* wrote. If another has changed it since, our next
                # compare-and-set has to fail, not to undo that change.
                return version.first

        return await _until_known(create)

    async def get(self, ledger_id: int) -> tuple[LedgerMetadata, Version]:
        """The metadata and its version. Raises FencelogError: LEDGER_NOT_FOUND, CORRUPT, ….

        A value may be a little stale, which a compare-and-set finds out; that there is none is
        believed of no server that may be behind: nothing would find that out.
        """
        node = await self._node(ledger_id)
        metadata = decode_metadata(node.value)
        if metadata.ledger_id != ledger_id:
            raise FencelogError(
                ErrorCode.CORRUPT,
                f"metadata of ledger {ledger_id} is that of ledger {metadata.ledger_id}",
            )
        return metadata, node.version

    async def get_latest(self, ledger_id: int) -> tuple[LedgerMetadata, Version]:
        """The same, and none of it older than this call: for who is about to act on metadata where
        no compare-and-set finds out that it is stale. It costs the store a write."""
        session_id = await catch_up(self._store)
        latest = await self.get(ledger_id)
        check_session(self._store, session_id, f"read ledger {ledger_id}")
        return latest

    async def update(self, metadata: LedgerMetadata, version: Version) -> Version:
        """Compare-and-set; returns the new version.

        Raises FencelogError: METADATA_CONFLICT (another was faster: read again), LEDGER_NOT_FOUND,
        METADATA_UNKNOWN (only the caller can tell, by what it finds when it reads again).
        """
        value = encode_metadata(metadata)
        try:
            return await self._store.set(_path(metadata.ledger_id), value, version)
        except FencelogError as error:
            raise _translated(error, metadata.ledger_id) from error

    async def delete(self, ledger_id: int) -> None:
        """Delete, whatever its version; nothing to do if it is gone.

        Ids are never used again, so a delete of unknown outcome is simply sent again.
        """

        async def delete() -> None:
            while True:
                try:
                    node = await self._node(ledger_id)
                    return await self._store.delete(_path(ledger_id), node.version)
                except FencelogError as error:
                    if error.code in (ErrorCode.METADATA_NOT_FOUND, ErrorCode.LEDGER_NOT_FOUND):
                        return
                    if error.code is not ErrorCode.METADATA_CONFLICT:
                        raise

        await _until_known(delete)

    async def list(self) -> AsyncIterator[int]:
        """Ids of all ledgers, ascending. Ledgers created or deleted meanwhile may be missing or
        there. Raises FencelogError rather than end early.
        """
        for high in await self._numbers(LEDGERS_PATH):
            for low in await self._numbers(f"{LEDGERS_PATH}/{high:x}"):
                yield high << 16 | low

    async def read_all(self) -> AsyncIterator[LedgerMetadata]:
        """Metadata of every ledger that was there when this was called, none older than the call,
        whatever a server is behind; ascending. Ledgers created or deleted meanwhile may be missing
        or there. Raises FencelogError rather than end early: METADATA_UNAVAILABLE,
        METADATA_UNKNOWN, CORRUPT.
        """
        session_id = await catch_up(self._store)
        ledger_ids = [ledger_id async for ledger_id in self.list()]
        for at in range(0, len(ledger_ids), _READS_AT_ONCE):
            chunk = ledger_ids[at : at + _READS_AT_ONCE]
            for metadata in await asyncio.gather(*map(self._get_unless_deleted, chunk)):
                if metadata is not None:
                    yield metadata
        check_session(self._store, session_id, "read all ledgers")

    async def _node(self, ledger_id: int) -> Versioned:
        """Raises LEDGER_NOT_FOUND only where no server that is behind has said so."""
        try:
            return await self._store.get(_path(ledger_id))
        except FencelogError as error:
            if error.code is not ErrorCode.METADATA_NOT_FOUND:
                raise
        session_id = await catch_up(self._store)
        try:
            return await self._store.get(_path(ledger_id))
        except FencelogError as error:
            check_session(self._store, session_id, f"read ledger {ledger_id}")
            raise _translated(error, ledger_id) from error

    async def _get_unless_deleted(self, ledger_id: int) -> LedgerMetadata | None:
        try:
            return (await self.get(ledger_id))[0]
        except FencelogError as error:
            if error.code is ErrorCode.LEDGER_NOT_FOUND:
                return None
            raise

    async def _numbers(self, path: str) -> tuple[int, ...]:
        """The children, which are hexadecimal numbers, ascending; none if there is no such node."""
        try:
            names = await self._store.children(path)
            return tuple(sorted(int(name, 16) for name in names))
        except ValueError as error:
            raise FencelogError(ErrorCode.CORRUPT, f"{path}: {error}") from error
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                return ()
            raise

    async def _existing(self, ledger_id: int) -> tuple[LedgerMetadata, Version]:
        """A ledger that exists. METADATA_UNKNOWN if it cannot be found all the same."""
        try:
            return await self.get(ledger_id)
        except FencelogError as error:
            if error.code is ErrorCode.LEDGER_NOT_FOUND:
                raise FencelogError(
                    ErrorCode.METADATA_UNKNOWN, f"ledger {ledger_id} was there and is not"
                ) from error
            raise


async def _until_known(step: Callable[[], Awaitable[T]]) -> T:
    """Carry out a step that recognises its own work, again while its outcome is unknown.

    Raises METADATA_UNKNOWN where it stays so, also when the store cannot be asked any more.
    """
    unknown: FencelogError | None = None
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return await step()
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_UNKNOWN and attempt < _ATTEMPTS:
                unknown = error
            elif error.code is ErrorCode.METADATA_UNAVAILABLE and unknown is not None:
                raise unknown from error
            else:
                raise
    raise AssertionError("unreachable")


def _path(ledger_id: int) -> str:
    return f"{LEDGERS_PATH}/{ledger_id >> 16:x}/{ledger_id & 0xFFFF:04x}"


def _translated(error: FencelogError, ledger_id: int) -> FencelogError:
    if error.code is ErrorCode.METADATA_NOT_FOUND:
        return FencelogError(ErrorCode.LEDGER_NOT_FOUND, f"ledger {ledger_id} is not there")
    return error
