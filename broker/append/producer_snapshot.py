"""The step before ledgers are deleted: the producers that they name must be in the state log."""

from __future__ import annotations

from fencelog.broker.append.producer_table import ProducerTable
from fencelog.broker.ledger_list.state_log import StateLog


class ProducerSnapshot:
    """Ensures that a takeover can rebuild the table of producers, from the state log and the
    entries after the offset up to which that is complete. An entry that was deleted before its
    producers were persisted would let a repeated append in twice."""

    def __init__(self, producers: ProducerTable, state_log: StateLog) -> None:
        self._producers = producers
        self._state_log = state_log
        self._persisted_offset = 0

    async def ensure_persisted(self, offset: int) -> None:
        """Return when no entry below ``offset`` is needed for that. Raises STATE_UNKNOWN."""
        end = self._producers.end_offset
        if offset <= self._persisted_offset or end <= self._persisted_offset:
            return
        recorded = [self._state_log.recorded(event) for event in self._producers.changes()]
        if recorded:
            await self._state_log.settled(recorded[-1])
        self._persisted_offset = end
