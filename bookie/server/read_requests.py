"""The requests that are answered with data, unlike those that wait for the journal: the decoding of
their frames, and the bodies of their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from fencelog.bookie.engine.admin import administer
from fencelog.bookie.engine.bookie import Bookie
from fencelog.ledgers.errors import FencelogError, ProtocolError
from fencelog.ledgers.format.availability import Range
from fencelog.ledgers.format.run import Buffer
from fencelog.ledgers.rpc.bookie_port import FenceAnswer
from fencelog.ledgers.rpc.fences import decode_fences, encode_answers
from fencelog.ledgers.rpc.handshake import FEATURE_OF, PLACES
from fencelog.ledgers.rpc.places import encode_places
from fencelog.ledgers.rpc.ranges import decode_ranges
from fencelog.ledgers.rpc.wire import (
    LAC_BODY,
    LIST_ENTRIES_BODY,
    READ_BODY,
    READ_LAC_BODY,
    Flag,
    Frame,
    Op,
    decode_object,
    encode_object,
)

_FENCE = int(Flag.FENCE)  # with a plain number, ``&`` makes no Flag of the result
_PLACES = int(Flag.PLACES)


class Body(NamedTuple):
    """The body of a reply in parts, to be sent one after the other, and the reply's flags."""

    parts: Sequence[Buffer]
    flags: int = 0


Answer = Callable[[], Awaitable[Body]]
"""A function that carries out a request and returns the body of its reply."""


@dataclass(frozen=True, slots=True)
class BookieReadRequest:
    """A request and its effects. ``fences``: the ledgers to be fenced at once. ``waits``: the
    request takes time and next to no other resource."""

    answer: Answer
    fences: Sequence[int] = ()
    waits: bool = False


def read_request_of(bookie: Bookie, frame: Frame, features: Set[str]) -> BookieReadRequest:
    """Decode the request of a frame, on a connection that agreed on ``features``. Raises
    ProtocolError."""
    op, body = frame.op, frame.body
    fence = bool(frame.flags & _FENCE)
    if op == Op.READ and len(body) == READ_BODY.size:
        ledger_id, first, max_entries, max_bytes = READ_BODY.unpack(body)
        if frame.flags & _PLACES and PLACES not in features:
            raise ProtocolError("READ with places, which were not agreed on")
        read_from = _read if fence or not frame.flags & _PLACES else _places_or_read
        read = partial(read_from, bookie, ledger_id, first, max_entries, max_bytes, fence=fence)
        return BookieReadRequest(read, (ledger_id,) if fence else ())
    if op == Op.READ_LAC and len(body) == READ_LAC_BODY.size:
        ledger_id, above, wait_ms, zero = READ_LAC_BODY.unpack(body)
        if zero:
            raise ProtocolError(f"READ_LAC ends with {zero}, not 0")
        read_lac = partial(_read_lac, bookie, ledger_id, above, wait_ms, fence=fence)
        waits = bool(wait_ms) and not fence
        return BookieReadRequest(read_lac, (ledger_id,) if fence else (), waits)
    if FEATURE_OF.get(op) in features:
        if op == Op.LIST_ENTRIES and len(body) == LIST_ENTRIES_BODY.size:
            return BookieReadRequest(
                partial(_list_entries, bookie, *LIST_ENTRIES_BODY.unpack(body))
            )
        if op == Op.READ_RANGES:
            return BookieReadRequest(partial(_read_ranges, bookie, *decode_ranges(body)))
        if op == Op.FENCE:
            ledgers = decode_fences(body)
            fences = [ledger_id for ledger_id, _ in ledgers]
            return BookieReadRequest(partial(_fence, bookie, ledgers), fences)
        if op == Op.ADMIN:
            return BookieReadRequest(partial(_admin, bookie, decode_object(body)))
    raise ProtocolError(f"operation {op} with {len(body)} bytes is not valid here")


async def _read(
    bookie: Bookie, ledger_id: int, first: int, max_entries: int, max_bytes: int, *, fence: bool
) -> Body:
    reply = await bookie.read(
        ledger_id, first, max_entries=max_entries, max_bytes=max_bytes, fence=fence
    )
    return Body((LAC_BODY.pack(reply.lac), reply.run))


async def _places_or_read(
    bookie: Bookie, ledger_id: int, first: int, max_entries: int, max_bytes: int, *, fence: bool
) -> Body:
    found = await bookie.places(ledger_id, first, max_entries=max_entries, max_bytes=max_bytes)
    if found is None:
        return await _read(bookie, ledger_id, first, max_entries, max_bytes, fence=fence)
    return Body((encode_places(*found),), _PLACES)


async def _read_ranges(
    bookie: Bookie, ledger_id: int, ranges: Sequence[Range], max_bytes: int
) -> Body:
    return Body(await bookie.read_ranges(ledger_id, ranges, max_bytes=max_bytes))


async def _read_lac(
    bookie: Bookie, ledger_id: int, above: int, wait_ms: int, *, fence: bool
) -> Body:
    lac = await bookie.read_lac(ledger_id, fence=fence, above=above, wait_ms=wait_ms)
    return Body((LAC_BODY.pack(lac),))


async def _fence(bookie: Bookie, ledgers: Sequence[tuple[int, int]]) -> Body:
    """Read the ends of ledgers that are fenced already, or about to be, by one sync for all."""
    answers: list[FenceAnswer | FencelogError] = []
    for ledger_id, above in ledgers:
        try:
            answers.append(await bookie.fence_and_read(ledger_id, above))
        except FencelogError as error:
            answers.append(error)
    return Body((encode_answers(answers),))


async def _list_entries(bookie: Bookie, ledger_id: int, from_entry: int) -> Body:
    return Body(((await bookie.list_entries(ledger_id, from_entry)).encode(),))


async def _admin(bookie: Bookie, request: dict[str, Any]) -> Body:
    return Body((encode_object(await administer(bookie.admin, request)),))
