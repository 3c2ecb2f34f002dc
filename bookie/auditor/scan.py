"""The scan of all ledger metadata, which a single unreadable node does not end."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.ledger_nodes import read_ledgers
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.ledger_metadata.store import LEDGERS_PATH, LedgerStore
from fencelog.ledgers.metastore.port import MetadataStore


async def scan_ledgers(
    store: MetadataStore, *, unreadable: list[int] | None = None, newest_first: bool = False
) -> AsyncGenerator[LedgerMetadata, None]:
    """Yield the metadata of every ledger that existed at the time of the call, none older than the
    call; ascending by id, or descending (``newest_first``). The ids of nodes that are no metadata
    go to ``unreadable``. Raises FencelogError instead of ending early: METADATA_UNAVAILABLE,
    METADATA_UNKNOWN."""
    ledgers = LedgerStore(store)

    async def read(ledger_id: int) -> LedgerMetadata | None:
        try:
            return (await ledgers.get(ledger_id))[0]
        except FencelogError as error:
            if error.code is ErrorCode.CORRUPT and unreadable is not None:
                unreadable.append(ledger_id)
            elif error.code is not ErrorCode.LEDGER_NOT_FOUND:
                raise
            return None

    async for metadata in read_ledgers(store, LEDGERS_PATH, read, newest_first=newest_first):
        yield metadata


def bookies_of(metadata: LedgerMetadata) -> set[str]:
    """Return all bookies that any fragment names."""
    return {bookie for fragment in metadata.fragments for bookie in fragment.bookies}
