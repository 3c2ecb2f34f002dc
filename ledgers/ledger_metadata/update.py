"""The one loop by which ledger metadata is changed: compare-and-set, read back, try again.

Every change of a ledger (recovery begun, ensemble change, close) is a function from the current
value to the wanted one, applied until it succeeds. A lost reply is resolved by reading back: the
function is called again and returns "nothing to do" when its change is there (Pravega#4721 lost
data because it mistook its own retried write for that of another client).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.metastore.port import NOT_ASKED, Version

RETRY_MIN_S, RETRY_MAX_S = 0.01, 0.25
"""Pauses before the third and later attempts, doubling. The second attempt follows at once: there
is rarely more than one conflict or one lost reply."""

Transform = Callable[[LedgerMetadata], LedgerMetadata | None]


class MetadataAccess(Protocol):
    """The part of ``LedgerStore`` that the loop needs."""

    async def get(self, ledger_id: int) -> tuple[LedgerMetadata, Version]: ...

    async def update(self, metadata: LedgerMetadata, version: Version) -> Version: ...


def retry_pauses() -> Iterator[float]:
    """Yield the seconds to wait before each further attempt, without end."""
    yield 0.0
    pause_s = RETRY_MIN_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, RETRY_MAX_S)


async def update_metadata(
    ledgers: MetadataAccess, base: LedgerMetadata, version: Version, transform: Transform
) -> tuple[LedgerMetadata, Version]:
    """Bring metadata to ``transform(metadata)``; returns the stored metadata and its version.

    ``transform`` returns None when there is nothing (more) to do and raises to stop. Raises
    METADATA_UNAVAILABLE and METADATA_UNAUTHORIZED only while it is certain that this call has
    changed nothing: once an outcome is unknown, the write may take effect even after a read that
    does not show it, so the loop continues until a compare-and-set of its own succeeds, is refused
    because of another client's write, or is cancelled.
    """
    unresolved, pauses = False, retry_pauses()
    while True:
        wanted = transform(base)
        if wanted is None:
            return base, version
        try:
            return wanted, await ledgers.update(wanted, version)
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_UNKNOWN:
                unresolved = True
            elif error.code is not ErrorCode.METADATA_CONFLICT and not (
                unresolved and error.code in NOT_ASKED
            ):
                raise
        base, version = await _read_back(ledgers, base.ledger_id, pauses, insist=unresolved)


async def _read_back(
    ledgers: MetadataAccess, ledger_id: int, pauses: Iterator[float], *, insist: bool
) -> tuple[LedgerMetadata, Version]:
    while True:
        await asyncio.sleep(next(pauses))
        try:
            return await ledgers.get(ledger_id)
        except FencelogError as error:
            lost = error.code is ErrorCode.METADATA_UNKNOWN or error.code in NOT_ASKED
            if not (insist and lost):
                raise
