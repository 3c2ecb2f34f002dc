"""Metadata of ledgers in the metadata store: one node each, ``/ledgers/HI/LO``."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.ledger_nodes import (
    MARKS_PATH,
    has_node,
    ledger_path,
    list_ledgers,
    read_ledgers,
)
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, decode_metadata, encode_metadata
from fencelog.ledgers.metastore.instance import catch_up, check_session
from fencelog.ledgers.metastore.port import Create, MetadataStore, Set, Version, Versioned
from fencelog.ledgers.metastore.until_known import until_known

LEDGERS_PATH = "/ledgers"


class LedgerStore:
    """The store of ledger metadata: creates, reads, changes and deletes it."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def create(self, metadata: LedgerMetadata) -> Version:
        """Write the metadata of a new ledger; returns its version.

        Safe after a lost reply: the node is our own if it carries our token, even if another client
        has recovered the ledger since. Raises FencelogError: METADATA_EXISTS (not our own),
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
                version = await self.first_version(metadata)
                if version is None:
                    raise
                return version

        return await until_known(create)

    async def first_version(self, metadata: LedgerMetadata) -> Version | None:
        """Return the version with which the caller has created this ledger, which exists; None: it
        is another client's.

        It is the version that the caller wrote: if another client has changed the metadata since,
        the caller's next compare-and-set has to fail instead of undoing that change. Raises
        METADATA_UNKNOWN if the ledger cannot be found all the same, METADATA_UNAVAILABLE.
        """
        found, version = await self._existing(metadata.ledger_id)
        return version.first if found.token == metadata.token else None

    async def get(self, ledger_id: int) -> tuple[LedgerMetadata, Version]:
        """Return the metadata and its version. Raises FencelogError: LEDGER_NOT_FOUND, CORRUPT, ….

        A value may be slightly stale, which a compare-and-set detects. The absence of a node is not
        accepted from a server that may lag behind, because nothing would detect that error.
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
        """Return the same, not older than this call, for callers that act on metadata without a
        compare-and-set that would detect a stale value. It costs the store a write."""
        session_id = await catch_up(self._store)
        latest = await self.get(ledger_id)
        check_session(self._store, session_id, f"read ledger {ledger_id}")
        return latest

    async def is_marked(self, ledger_id: int) -> bool:
        """Tell whether a ledger is marked as lacking copies, or as one to be looked after."""
        return await has_node(self._store, MARKS_PATH, ledger_id)

    async def update(self, metadata: LedgerMetadata, version: Version) -> Version:
        """Replace the metadata by compare-and-set; returns the new version.

        Raises FencelogError: METADATA_CONFLICT (another client was faster: read again),
        LEDGER_NOT_FOUND, METADATA_UNKNOWN (only the caller can find out, by reading again).
        """
        value = encode_metadata(metadata)
        try:
            return await self._store.set(_path(metadata.ledger_id), value, version)
        except FencelogError as error:
            raise _translated(error, metadata.ledger_id) from error

    async def delete(self, ledger_id: int) -> None:
        """Delete the node, whatever its version; a missing node is no error.

        Ids are never used again, so a delete of unknown outcome is sent again.
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

        await until_known(delete)

    async def list(self) -> AsyncIterator[int]:
        """Yield the ids of all ledgers, as ``list_ledgers`` does."""
        async for ledger_id in list_ledgers(self._store, LEDGERS_PATH):
            yield ledger_id

    async def read_all(self) -> AsyncIterator[LedgerMetadata]:
        """Yield the metadata of every ledger, as ``read_ledgers`` does."""
        async for metadata in read_ledgers(self._store, LEDGERS_PATH, self._get_unless_deleted):
            yield metadata

    async def _node(self, ledger_id: int) -> Versioned:
        """Return the node. Raises LEDGER_NOT_FOUND only when a server that does not lag behind has
        said so."""
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

    async def _existing(self, ledger_id: int) -> tuple[LedgerMetadata, Version]:
        """Return a ledger that exists. Raises METADATA_UNKNOWN if it cannot be found all the
        same."""
        try:
            return await self.get(ledger_id)
        except FencelogError as error:
            if error.code is ErrorCode.LEDGER_NOT_FOUND:
                raise FencelogError(
                    ErrorCode.METADATA_UNKNOWN, f"ledger {ledger_id} was there and is not"
                ) from error
            raise


def creation_of(metadata: LedgerMetadata) -> Create:
    """Return the change that creates a ledger, to be committed together with others."""
    return Create(_path(metadata.ledger_id), encode_metadata(metadata), once=True)


def replacement_of(metadata: LedgerMetadata, version: Version) -> Set:
    """Return the change that replaces the metadata of a ledger in this version."""
    return Set(_path(metadata.ledger_id), encode_metadata(metadata), version)


def _path(ledger_id: int) -> str:
    return ledger_path(LEDGERS_PATH, ledger_id)


def _translated(error: FencelogError, ledger_id: int) -> FencelogError:
    if error.code is ErrorCode.METADATA_NOT_FOUND:
        return FencelogError(ErrorCode.LEDGER_NOT_FOUND, f"ledger {ledger_id} is not there")
    return error
