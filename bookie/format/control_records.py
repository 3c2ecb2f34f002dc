"""Journal records without entries: fences, limbo, explicit LACs, removals.

Each is appended in the same turn of the event loop in which it changes the ledger's state in
memory, so a flush, which writes the current states and records "all before this position", never
writes one without the other.
"""

from __future__ import annotations

import struct

from fencelog.bookie.format.ledger_state import LedgerStates
from fencelog.bookie.format.records import Record, RecordType

_LEDGER = struct.Struct("<Q")
_LEDGER_AND_LAC = struct.Struct("<Qq")


def ledger_body(ledger_id: int) -> bytes:
    """Return the body of FENCE, LIMBO, LIMBO_CLEARED, DELETED and DROPPED."""
    return _LEDGER.pack(ledger_id)


def lac_body(ledger_id: int, lac: int) -> bytes:
    """Return the body of LAC."""
    return _LEDGER_AND_LAC.pack(ledger_id, lac)


def take_back(record: Record, states: LedgerStates) -> None:
    """Apply a record that replay found, hence is durable; records come in the order of the
    journal."""
    if record.type is RecordType.LAC:
        ledger_id, lac = _LEDGER_AND_LAC.unpack(record.body)
        state = states.change(ledger_id)
        state.lac = max(state.lac, lac)
        return
    ledger_id = _LEDGER.unpack(record.body)[0]
    if record.type in (RecordType.DELETED, RecordType.DROPPED):
        deleted = record.type is RecordType.DELETED
        states.remove(ledger_id, deleted=deleted).fence_durable = True
        return
    if record.type is RecordType.LIMBO_CLEARED:
        states.set_limbo(ledger_id, False)
        return
    is_limbo = record.type is RecordType.LIMBO
    state = states.set_limbo(ledger_id, True) if is_limbo else states.change(ledger_id)
    state.fenced = state.fence_durable = True
