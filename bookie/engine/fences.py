"""Fencing: from the request on no regular add is taken, and no reply leaves before the fence is
durable (PROTOCOL.md rule 6). Also limbo, the state of a fenced ledger that may have lost entries.

Fences are kept for ever: closing or deleting a ledger does not stop a writer that has not learned
of it.
"""

from __future__ import annotations

import asyncio

from fencelog.bookie.format.control_records import ledger_body
from fencelog.bookie.format.ledger_state import BookieLedgerState, LedgerStates
from fencelog.bookie.format.records import RecordType
from fencelog.bookie.journal.journal import Journal
from fencelog.ledgers.errors import FencelogError

Fenced = asyncio.Future[FencelogError | None]
"""A future that is done when a fence is durable (None) or its journal record failed (the error)."""


class Fences:
    """The fences of ledgers, set in memory at once and recorded in the journal."""

    def __init__(self, states: LedgerStates, journal: Journal) -> None:
        self._states = states
        self._journal = journal
        self._loop = asyncio.get_running_loop()

    def fence(self, ledger_id: int) -> Fenced | None:
        """Fence a ledger, known or not. Return None if the fence is durable already; else a future
        that is done when it is, and every reply to the request has to wait for that."""
        state = self._states.get(ledger_id)
        if state is not None and state.fence_durable:
            return None
        ledger = state or self._states.change(ledger_id)
        durable: Fenced = self._loop.create_future()

        def report(error: FencelogError | None) -> None:
            _report(ledger, error)
            if not durable.cancelled():
                durable.set_result(error)

        if ledger.fenced:
            # Another request fenced it and its record is still in flight: wait for that.
            self._journal.barrier(report)
        else:
            self._states.change(ledger_id).fenced = True
            self._journal.append(RecordType.FENCE, ledger_body(ledger_id), report)
        return durable

    def put_in_limbo(self, ledger_id: int) -> None:
        """Fence a ledger, known or not, and answer "unknown" for its missing entries.
        ``Journal.barrier`` reports when that is durable."""
        known = self._states.get(ledger_id)
        if known is not None and known.deleted:
            return
        state = self._states.set_limbo(ledger_id, True)
        body = ledger_body(ledger_id)
        self._journal.append(RecordType.LIMBO, body, lambda error: _report(state, error))

    def clear_limbo(self, ledger_id: int) -> None:
        """Treat missing entries of a ledger as never added, from this call on. This takes effect at
        once: if the record is lost, only the knowledge that the ledger was repaired is lost.
        ``Journal.barrier`` reports when it is durable."""
        state = self._states.get(ledger_id)
        if state is not None and state.limbo:
            self._states.set_limbo(ledger_id, False)
            self._journal.append(RecordType.LIMBO_CLEARED, ledger_body(ledger_id), _ignore)

    def remove(self, ledger_id: int, *, deleted: bool) -> None:
        """Release a ledger's entries: the ledger was ``deleted``, or other bookies hold it now.
        ``Journal.barrier`` reports when that is durable. The caller discards cached entries."""
        state = self._states.remove(ledger_id, deleted=deleted)
        kind = RecordType.DELETED if deleted else RecordType.DROPPED
        self._journal.append(kind, ledger_body(ledger_id), lambda error: _report(state, error))


def _report(state: BookieLedgerState, error: FencelogError | None) -> None:
    """Record that a fence is durable. This is no change to be flushed: flushed states are durable
    by then."""
    if error is None:
        state.fence_durable = True


def _ignore(error: FencelogError | None) -> None:
    """Ignore a failure; it is reported through the journal's barrier."""
