"""Fencing: from the request on no regular add is taken, and no reply leaves before the fence is
durable (PROTOCOL.md rule 6). And limbo, the state of a fenced ledger that may have been forgotten.

Fences are kept for ever: that a ledger was closed or deleted ends no writer that has not heard of
it.
"""

from __future__ import annotations

import asyncio

from fencelog.bookie.format.control_records import ledger_body
from fencelog.bookie.format.ledger_state import BookieLedgerState, LedgerStates
from fencelog.bookie.format.records import RecordType
from fencelog.bookie.journal.journal import Journal
from fencelog.ledgers.errors import FencelogError

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
        ledger = state or self._states.change(ledger_id)
        durable: Fenced = self._loop.create_future()

        def report(error: FencelogError | None) -> None:
            _report(ledger, error)
            if not durable.cancelled():
                durable.set_result(error)

        if ledger.fenced:
            # Another request fenced it and its record is still on the way: wait for that.
            self._journal.barrier(report)
        else:
            self._states.change(ledger_id).fenced = True
            self._journal.append(RecordType.FENCE, ledger_body(ledger_id), report)
        return durable

    def put_in_limbo(self, ledger_id: int) -> None:
        """Fence a ledger, known or not, and answer "unknown" for whatever of it is missing.
        ``Journal.barrier`` tells when that is durable."""
        known = self._states.get(ledger_id)
        if known is not None and known.deleted:
            return
        state = self._states.set_limbo(ledger_id, True)
        body = ledger_body(ledger_id)
        self._journal.append(RecordType.LIMBO, body, lambda error: _report(state, error))

    def clear_limbo(self, ledger_id: int) -> None:
        """What is missing of a ledger was never here, from now on. Holds at once: should the
        record be lost, so is nothing but the knowledge that it was repaired. ``Journal.barrier``
        tells when it is durable."""
        state = self._states.get(ledger_id)
        if state is not None and state.limbo:
            self._states.set_limbo(ledger_id, False)
            self._journal.append(RecordType.LIMBO_CLEARED, ledger_body(ledger_id), _ignore)

    def remove(self, ledger_id: int, *, deleted: bool) -> None:
        """Let go of a ledger's entries: it was ``deleted``, or others hold it now.
        ``Journal.barrier`` tells when that is durable. The caller discards what is cached."""
        state = self._states.remove(ledger_id, deleted=deleted)
        kind = RecordType.DELETED if deleted else RecordType.DROPPED
        self._journal.append(kind, ledger_body(ledger_id), lambda error: _report(state, error))


def _report(state: BookieLedgerState, error: FencelogError | None) -> None:
    """Not a change to be flushed: what is flushed is durable by then."""
    if error is None:
        state.fence_durable = True


def _ignore(error: FencelogError | None) -> None:
    """A failure reaches whoever waits for the journal's barrier."""
