"""Ledgers that are not closed, and lack copies: when to end their writers.

A writer that appends replaces a lost bookie by itself, with its next entries. One that is idle does
not notice, and one that has died never will: such a ledger is recovered, which fences the writer,
closes the ledger, and lets its last fragment be copied like any other. That is done only after a
time without any sign of the writer, and only where there is a bookie to copy to: on a cluster
without a spare bookie, ending all writers would restore nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fencelog.bookie.repair.copies import PutOff
from fencelog.bookie.replication.store import UnderReplicatedLedger
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.ledger_metadata.model import NO_ENTRY, LedgerMetadata, LedgerState
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.port import Version
from fencelog.ledgers.placement.placement import Placement
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.recovery.recovery import recover_ledger
from fencelog.ledgers.rpc.bookie_port import BookieDirectory


@dataclass(frozen=True, slots=True)
class _Sign:
    """The last sign of a ledger's writer, and when it was first seen."""

    version: Version
    lac: int
    since_s: float


class OpenLedgers:
    """The open ledgers that one worker has come across."""

    def __init__(
        self,
        *,
        ledgers: LedgerStore,
        bookies: BookieDirectory,
        placement: Placement,
        key: bytes,
        grace_ms: int,
    ) -> None:
        self._ledgers = ledgers
        self._bookies = bookies
        self._placement = placement
        self._key = key
        self._grace_s = grace_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._signs: dict[int, _Sign] = {}

    def keep(self, ledger_ids: set[int]) -> None:
        """Forget all other ledgers: they lack nothing any more."""
        self._signs = {i: sign for i, sign in self._signs.items() if i in ledger_ids}

    async def close(
        self,
        metadata: LedgerMetadata,
        version: Version,
        mark: UnderReplicatedLedger,
        leaving: frozenset[str],
    ) -> None:
        """Close a ledger whose writer has given no sign for the grace time. ``leaving``: the
        bookies whose places others have to take. Raises PutOff while it has; NOT_ENOUGH_BOOKIES;
        RECOVERY_INCOMPLETE."""
        ledger_id, now = metadata.ledger_id, self._loop.time()
        sign = self._signs.get(ledger_id)
        lac = await self._lac(metadata)
        if sign is None or sign.version != version or sign.lac < lac:
            known = NO_ENTRY if sign is None else sign.lac
            sign = self._signs[ledger_id] = _Sign(version, max(lac, known), now)
        if now - sign.since_s < self._grace_s:
            raise PutOff(
                "open", f"ledger {ledger_id} is not closed, and its writer or a recovery may go on"
            )
        last = metadata.last_fragment.bookies
        if metadata.state is LedgerState.OPEN:
            self._placement.replace(
                last,
                [index for index, bookie in enumerate(last) if bookie in leaving],
                write_quorum=metadata.write_quorum,
                exclude=set(mark.lacking),
            )
        await recover_ledger(
            ledger_id,
            ledgers=self._ledgers,
            bookies=self._bookies,
            placement=self._placement,
            key=self._key,
        )
        self._signs.pop(ledger_id, None)

    async def _lac(self, metadata: LedgerMetadata) -> int:
        """Return the LAC as far as bookies say; NO_ENTRY if none can be asked."""
        reader = LedgerReader(metadata, bookies=self._bookies, key=self._key)
        try:
            return await reader.read_lac()
        except FencelogError:
            return NO_ENTRY
        finally:
            await reader.close()
