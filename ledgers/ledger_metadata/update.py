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
    because of another client's write, or is cancelled. What refuses it for another reason then says
    nothing of the attempt before: METADATA_UNKNOWN, unless a read shows that this one was made.
    """
    unknown: FencelogError | None = None
    pauses = retry_pauses()
    while True:
        wanted = transform(base)
        if wanted is None:
            return base, version
        refusal: FencelogError | None = None
        try:
            return wanted, await ledgers.update(wanted, version)
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_UNKNOWN:
                unknown = error
            elif error.code is not ErrorCode.METADATA_CONFLICT:
                if unknown is None or error.code is ErrorCode.LEDGER_NOT_FOUND:
                    raise
                refusal = None if error.code in NOT_ASKED else error
        base, version = await _read_back(ledgers, base.ledger_id, pauses, unknown)
        if refusal is not None and unknown is not None and transform(base) is not None:
            raise unknown from refusal


async def _read_back(
    ledgers: MetadataAccess,
    ledger_id: int,
    pauses: Iterator[float],
    unknown: FencelogError | None,
) -> tuple[LedgerMetadata, Version]:
    """Read the metadata again; until that succeeds, where an attempt was ``unknown``. Raises that
    where they cannot be read for a reason that does not pass."""
    while True:
        await asyncio.sleep(next(pauses))
        try:
            return await ledgers.get(ledger_id)
        except FencelogError as error:
            if unknown is None or error.code is ErrorCode.LEDGER_NOT_FOUND:
                raise
            if error.code is not ErrorCode.METADATA_UNKNOWN and error.code not in NOT_ASKED:
                raise unknown from error
