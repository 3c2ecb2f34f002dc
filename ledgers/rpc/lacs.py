"""The bodies of WRITE_LACS: the LACs of many ledgers in one request, the refused ones in the reply.

request    for each LAC        0  u64 ledger
                               8  i64 LAC
reply      the answers to those that were refused (rpc/answers.py)

Those that the reply does not name are durable.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencelog.ledgers.errors import FencelogError, ProtocolError
from fencelog.ledgers.format.run import Buffer
from fencelog.ledgers.limits import MAX_LACS_AT_ONCE
from fencelog.ledgers.rpc.answers import decode_answers
from fencelog.ledgers.rpc.bookie_port import LedgerLac
from fencelog.ledgers.rpc.wire import WRITE_LAC_BODY


def encode_lacs(lacs: Iterable[LedgerLac]) -> bytes:
    """Return the body of a request."""
    return b"".join([WRITE_LAC_BODY.pack(ledger_id, lac) for ledger_id, lac in lacs])


def decode_lacs(body: Buffer) -> list[LedgerLac]:
    """Read the body of a request. Raises ProtocolError."""
    count, rest = divmod(len(body), WRITE_LAC_BODY.size)
    if rest or not 1 <= count <= MAX_LACS_AT_ONCE:
        raise ProtocolError(f"WRITE_LACS with {len(body)} bytes is not valid")
    return list(WRITE_LAC_BODY.iter_unpack(body))


def decode_refusals(body: Buffer, count: int, bookie_id: str) -> dict[int, FencelogError]:
    """Read the body of a reply of a bookie to ``count`` LACs. Raises ProtocolError."""
    refusals: dict[int, FencelogError] = {}
    for place, error in decode_answers(body, count, bookie_id, request="WRITE_LACS").items():
        if error is None:
            raise ProtocolError("a reply to WRITE_LACS that names a LAC without an error")
        refusals[place] = error
    return refusals
