"""A writer of a ledger that another process has created, and will close by recovery.

It has no access to the metadata store: its ensemble stays as it is, so it continues as long as an
ack quorum of every write set answers.
"""

from __future__ import annotations

from collections.abc import Mapping

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.metastore.port import NO_VERSION, Version
from fencelog.ledgers.placement.placement import Placement
from fencelog.ledgers.rpc.bookie_port import BookieDirectory
from fencelog.ledgers.writer.options import WriterOptions
from fencelog.ledgers.writer.outbox import Outbox
from fencelog.ledgers.writer.writer import LedgerWriter, OnAcknowledged, OnFailure


def lent_writer(
    metadata: LedgerMetadata,
    incarnations: Mapping[str, str],
    *,
    bookies: BookieDirectory,
    host: Host,
    key: bytes,
    on_ack: OnAcknowledged,
    on_failure: OnFailure,
) -> LedgerWriter:
    """Return the writer of an open ledger, for one process only. ``incarnations``: those of its
    ensemble, as its creator saw them. It is to be abandoned, never closed."""
    return LedgerWriter(
        metadata,
        NO_VERSION,
        ledgers=_NoMetadata(),
        bookies=bookies,
        outbox=Outbox(bookies),
        placement=Placement(bookies, host=host),
        incarnations=incarnations,
        key=key,
        on_ack=on_ack,
        on_failure=on_failure,
        options=WriterOptions(),
    )


class _NoMetadata:
    """Implements ``MetadataAccess`` where there is none."""

    async def get(self, ledger_id: int) -> tuple[LedgerMetadata, Version]:
        raise _unavailable(ledger_id)

    async def update(self, metadata: LedgerMetadata, version: Version) -> Version:
        raise _unavailable(metadata.ledger_id)


def _unavailable(ledger_id: int) -> FencelogError:
    return FencelogError(
        ErrorCode.METADATA_UNAVAILABLE,
        f"the metadata of ledger {ledger_id} belong to another process",
    )
