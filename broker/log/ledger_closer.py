"""How a log's present ledger ends: drained and closed, or failed and recovered. Either way all that
is in it is acknowledged then, in order, and the ledger list can be told what it holds.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from fencelog.broker.append.pipeline import AppendPipeline
from fencelog.broker.ledger_list.ledger_list import Sealed
from fencelog.broker.ledger_list.ledger_steps import LedgerSteps
from fencelog.broker.ledger_list.open_ledger import OpenLedger
from fencelog.broker.ledger_list.store import LedgerListStore
from fencelog.broker.read.log_reader import LogReader
from fencelog.ledgers.errors import ErrorCode
from fencelog.ledgers.host import Host

FENCE_GRACE_S = 0.25
"""Who fenced our ledger is most likely taking over: give it time to write the ledger list."""

log = logging.getLogger(__name__)


class LedgerCloser:
    """Steps of one log's task."""

    def __init__(
        self,
        node: LedgerListStore,
        steps: LedgerSteps,
        pipeline: AppendPipeline,
        reader: LogReader,
        *,
        host: Host,
    ) -> None:
        self._node = node
        self._steps = steps
        self._pipeline = pipeline
        self._reader = reader
        self._host = host

    async def drain(self, ledger: OpenLedger, wakeup: asyncio.Event) -> None:
        """Hold what comes until nothing is outstanding in the ledger, or it has failed."""
        self._pipeline.sends_blocked = True
        while ledger.failure is None and not self._pipeline.is_drained:
            wakeup.clear()
            await wakeup.wait()

    def facts_of(self, ledger: OpenLedger) -> Sealed:
        """What the ledger list will record of the present ledger, in which everything is settled;
        its size is known when it is closed."""
        return Sealed(
            entries=ledger.entries,
            messages=self._pipeline.messages_in_ledger,
            size=0,
            last_publish_us=self._pipeline.settled_publish_us,
            sealed_us=self._host.now_us(),
            has_producers=self._pipeline.has_producers,
        )

    async def close(self, ledger: OpenLedger, facts: Sealed) -> Sealed:
        """Close a ledger that is drained."""
        metadata = await self._steps.close(ledger)
        self._reader.seal(metadata, messages=facts.messages)
        return replace(facts, size=metadata.length)

    async def resolve(self, failed: OpenLedger) -> Sealed:
        """Recover a ledger that failed; acknowledge what is in it, take back what is not.

        If somebody else has fenced it, the ledger list says in a moment whether the log is still
        ours.
        """
        log.warning("%s: ledger %d: %s", self._node.path, failed.ledger_id, failed.failure)
        if failed.failure is not None and failed.failure.code is ErrorCode.LEDGER_FENCED:
            await asyncio.sleep(FENCE_GRACE_S)
        await self._steps.check_still_ours()
        metadata = await self._steps.recover(failed)
        failed.last_confirmed = metadata.last_entry_id
        self._pipeline.resolve(metadata.last_entry_id)
        self._reader.confirm(metadata.last_entry_id)
        self._reader.seal(metadata, messages=self._pipeline.messages_in_ledger)
        return replace(self.facts_of(failed), size=metadata.length)
