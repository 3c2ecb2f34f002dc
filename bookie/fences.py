"""Fencing: from the request on no regular add is taken, and no reply leaves before the fence is
durable (PROTOCOL.md rule 6).
"""

from __future__ import annotations

import asyncio
import struct

from fencelog.bookie.journal import Journal
from fencelog.bookie.ledger_state import LedgerStates
from fencelog.bookie.records import RecordType
from fencelog.ledgers.errors import FencelogError

FENCE_BODY = struct.Struct("<Q")
"""Body of a FENCE record: the ledger id."""

Fenced = asyncio.Future[FencelogError | None]
"""Done when a fence is durable (None) or its journal record failed (the error)."""


class Fences:
    """Fences ledgers, in memory at once and in the journal."""

    def __init__(self, states: LedgerStates, journal: Journal) -> None:
        self._states = states
        self._journal = journal
        self._loop = asyncio.get_running_loop()

    def fence(self, ledger_id: int) -> Fenced | None:
        """Fence a ledger, known or not. None: the fence is durable already; else it is when the
        future says so, and every reply to the request has to wait for that."""
        state = self._states.get(ledger_id)
        if state is not None and state.fence_durable:
            return None
        durable: Fenced = self._loop.create_future()

        def report(error: FencelogError | None) -> None:
            if error is None:
                self._states.change(ledger_id).fence_durable = True
            if not durable.cancelled():
                durable.set_result(error)

        if state is not None and state.fenced:
            # Another request fenced it and its record is still on the way: wait for that.
            self._journal.barrier(report)
        else:
            self._states.change(ledger_id).fenced = True
            self._journal.append(RecordType.FENCE, FENCE_BODY.pack(ledger_id), report)
        return durable
