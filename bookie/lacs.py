"""The LAC of ledgers: what adds and idle writers tell of it. It never goes back, not over a restart
either.
"""

from __future__ import annotations

import asyncio
import struct

from fencelog.bookie.journal import Journal
from fencelog.bookie.ledger_state import LedgerState, LedgerStates
from fencelog.bookie.records import RecordType
from fencelog.ledgers.bookie_port import AddCallback
from fencelog.ledgers.errors import ErrorCode, FencelogError

LAC_RECORD = struct.Struct("<Qq")
"""Body of a LAC record: ledger id, LAC."""


class Lacs:
    """Takes explicit LACs."""

    def __init__(self, states: LedgerStates, journal: Journal) -> None:
        self._states = states
        self._journal = journal
        self._loop = asyncio.get_running_loop()

    def write(self, ledger_id: int, lac: int, on_reply: AddCallback) -> None:
        """The contract of ``BookieClient.write_lac``; ``on_reply`` as with an add."""
        try:
            state = self._writable(ledger_id, lac)
        except FencelogError as error:
            self._loop.call_soon(on_reply, error)
            return
        if lac <= state.lac:
            self._journal.barrier(on_reply)
            return
        self._states.change(ledger_id).lac = lac
        self._journal.append(RecordType.LAC, LAC_RECORD.pack(ledger_id, lac), on_reply)

    def _writable(self, ledger_id: int, lac: int) -> LedgerState:
        """Raises FencelogError: BAD_REQUEST, NO_SUCH_LEDGER, LEDGER_FENCED."""
        if lac < 0:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"ledger {ledger_id}: LAC {lac} says nothing"
            )
        state = self._states.get(ledger_id)
        if state is None:
            # An idle writer tells what its adds did not say yet; where none of its entries went,
            # nobody comes to ask for them. Taking it would make the ledger known by a request that
            # proves nothing: no entry, no digest.
            raise FencelogError(
                ErrorCode.NO_SUCH_LEDGER, f"no entry of ledger {ledger_id} is here to be confirmed"
            )
        if state.fenced:
            raise FencelogError(ErrorCode.LEDGER_FENCED, f"ledger {ledger_id} is fenced here")
        return state
