"""The answers to the parts of one request, each by its place in the request.

0  u32 place, ascending
4  u16 0, or the wire code of an error
6  u16 size of what follows
8  UTF-8 text for a person
"""

from __future__ import annotations

from collections.abc import Mapping

from fencelog.ledgers.errors import FencelogError, ProtocolError, code_from_wire, prefix_bookie
from fencelog.ledgers.format.run import Buffer
from fencelog.ledgers.rpc.wire import MAX_ANSWER_TEXT_BYTES, PLACE_ANSWER


def encode_answers(answers: Mapping[int, FencelogError | None]) -> bytes:
    """Return the answers as bytes; ``answers`` by their places."""
    parts: list[bytes] = []
    for place, error in sorted(answers.items()):
        if error is None:
            parts.append(PLACE_ANSWER.pack(place, 0, 0))
        else:
            text = error.detail.encode("utf-8", "replace")[:MAX_ANSWER_TEXT_BYTES]
            parts += (PLACE_ANSWER.pack(place, error.code.wire, len(text)), text)
    return b"".join(parts)


def decode_answers(
    body: Buffer, count: int, bookie_id: str, *, request: str
) -> dict[int, FencelogError | None]:
    """Read answers of a bookie to a request of ``count`` parts, whose name is ``request``. Raises
    ProtocolError."""
    answers: dict[int, FencelogError | None] = {}
    at, following = 0, 0
    while at < len(body):
        if len(body) - at < PLACE_ANSWER.size:
            raise ProtocolError(f"a reply to {request} that is cut short")
        place, status, size = PLACE_ANSWER.unpack_from(body, at)
        at += PLACE_ANSWER.size
        if not following <= place < count or size > len(body) - at or (size and not status):
            raise ProtocolError(f"a reply to {request} whose parts do not fit")
        text, at = bytes(body[at : at + size]).decode("utf-8", "replace"), at + size
        answers[place] = (
            FencelogError(code_from_wire(status), prefix_bookie(bookie_id, text))
            if status
            else None
        )
        following = place + 1
    return answers
