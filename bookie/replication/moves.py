"""The moves for a better balance, as a worker makes them: after everything else, at a rate of their
own.

A move is repaired like a lost copy, with the difference that nobody needs it. So it is made only as
long as balancing is on; and if it is not possible as it was planned, because a bookie has left or
the metadata has changed, its mark is removed, and what was copied is garbage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fencelog.bookie.disk.rate_limit import Pace
from fencelog.bookie.repair.copier import EntryCopier
from fencelog.bookie.repair.copies import Copies
from fencelog.bookie.replication.repair import LedgerRepair, RepairTools
from fencelog.bookie.replication.settings import AutorecoverySettings
from fencelog.bookie.replication.store import UnderReplicatedLedger
from fencelog.ledgers.errors import ErrorCode, FencelogError

_log = logging.getLogger(__name__)

_NOT_KNOWN = (ErrorCode.METADATA_UNAVAILABLE, ErrorCode.METADATA_UNKNOWN)
"""Errors after which nobody knows whether the move was made: it is looked at again."""


class LedgerMoves:
    """The moves of one worker; ``tools``: those of its repairs, ``key``: that of the ledgers.
    While balancing is not ``is_on``, moves are dropped."""

    def __init__(self, tools: RepairTools, *, key: bytes) -> None:
        self._pace = Pace(None)
        copies = Copies(tools.bookies, key=key, pace=self._pace)
        self._copier = EntryCopier(copies)
        self._tools = replace(tools, copies=copies, copier=self._copier)
        self.is_on = False
        self._moved = 0
        self._dropped = 0

    def set_rate(self, settings: AutorecoverySettings, most_bytes_per_s: int | None) -> None:
        """Take the rate from the settings; never above that of repairs."""
        rate = settings.balance_bytes_per_s
        self.is_on = rate is not None
        limits = [limit for limit in (rate, most_bytes_per_s) if limit is not None]
        self._pace.bytes_per_s = min(limits, default=None)

    async def make(self, mark: UnderReplicatedLedger, *, check: Callable[[], None]) -> None:
        """Make the moves of a marked ledger, or give them up; its mark may be removed then. Raises
        FencelogError where it has to stay: that of ``check``, METADATA_UNAVAILABLE,
        METADATA_UNKNOWN."""
        repair = LedgerRepair(self._tools, mark, attempts=0, check=check)
        try:
            if self.is_on:
                await repair.run()
        except FencelogError as error:
            check()
            if error.code in _NOT_KNOWN:
                raise
            _log.info("ledger %d is not moved: %s", mark.ledger_id, error.detail)
        self._moved += repair.replaced
        self._dropped += max(0, len(mark.moves) - repair.replaced)

    def status(self) -> dict[str, Any]:
        """Return what was moved since the start of the worker."""
        return {
            "moved_fragments": self._moved,
            "moved_bytes": self._copier.copied_bytes,
            "dropped_moves": self._dropped,
        }
