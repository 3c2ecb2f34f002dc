"""The bodies of WRITE_LACS: the LACs of many ledgers in one request, the refused ones in the reply.

request    for each LAC        0  u64 ledger
                               8  i64 LAC
reply      for each LAC that   0  u32 its place in the request, ascending
           was refused         4  u16 the wire code of an error
                               6  u16 size of what follows
                               8  UTF-8 text for a person

Those that the reply does not name are durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fencelog.ledgers.errors import FencelogError, ProtocolError, code_from_wire, prefix_bookie
from fencelog.ledgers.format.run import Buffer
from fencelog.ledgers.limits import MAX_LACS_AT_ONCE
from fencelog.ledgers.rpc.bookie_port import LedgerLac
from fencelog.ledgers.rpc.wire import LAC_REFUSAL, MAX_REFUSAL_TEXT_BYTES, WRITE_LAC_BODY


def encode_lacs(lacs: Iterable[LedgerLac]) -> bytes:
    """Return the body of a request."""
    return b"".join([WRITE_LAC_BODY.pack(ledger_id, lac) for ledger_id, lac in lacs])


def decode_lacs(body: Buffer) -> list[LedgerLac]:
    """Read the body of a request. Raises ProtocolError."""
    count, rest = divmod(len(body), WRITE_LAC_BODY.size)
    if rest or not 1 <= count <= MAX_LACS_AT_ONCE:
        raise ProtocolError(f"WRITE_LACS with {len(body)} bytes is not valid")
    return list(WRITE_LAC_BODY.iter_unpack(body))


def encode_refusals(refusals: Mapping[int, FencelogError]) -> bytes:
    """Return the body of a reply; ``refusals`` by the places of the LACs in the request."""
    parts: list[bytes] = []
    for place, error in sorted(refusals.items()):
        text = error.detail.encode("utf-8", "replace")[:MAX_REFUSAL_TEXT_BYTES]
        parts += (LAC_REFUSAL.pack(place, error.code.wire, len(text)), text)
    return b"".join(parts)


def decode_refusals(body: Buffer, count: int, bookie_id: str) -> dict[int, FencelogError]:
    """Read the body of a reply of a bookie to ``count`` LACs. Raises ProtocolError."""
    refusals: dict[int, FencelogError] = {}
    at, following = 0, 0
    while at < len(body):
        if len(body) - at < LAC_REFUSAL.size:
            raise ProtocolError("a reply to WRITE_LACS that is cut short")
        place, status, size = LAC_REFUSAL.unpack_from(body, at)
        at += LAC_REFUSAL.size
        if not following <= place < count or not status or size > len(body) - at:
            raise ProtocolError("a reply to WRITE_LACS whose parts do not fit")
        text, at = bytes(body[at : at + size]).decode("utf-8", "replace"), at + size
        refusals[place] = FencelogError(code_from_wire(status), prefix_bookie(bookie_id, text))
        following = place + 1
    return refusals
