"""The bodies of FENCE: many ledgers in one request, an answer for each of them in the reply.

request    for each ledger    0  u64 ledger
8  i64 above: the entry to read from, if the LAC is lower
reply      for each ledger,   0  i64 LAC
in the same order  8  i64 an entry that is certainly not here; -1: none is named
16  u32 size of what follows
20  u16 status: 0, or an error's wire code
22  u16 0
24  a run, or nothing; of an error, UTF-8 text for a person
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fencelog.ledgers.errors import FencelogError, ProtocolError, code_from_wire, prefix_bookie
from fencelog.ledgers.format.run import Buffer
from fencelog.ledgers.limits import FENCE_READ_BYTES, MAX_FENCES_AT_ONCE
from fencelog.ledgers.rpc.bookie_port import NO_LAC, FenceAnswer
from fencelog.ledgers.rpc.wire import FENCE_ANSWER, FENCE_BODY

_NONE = -1
_TEXT_BYTES = 1024


def encode_fences(ledgers: Iterable[tuple[int, int]]) -> bytes:
    """Return the body of a request for these ledgers, each with its ``above``."""
    return b"".join([FENCE_BODY.pack(ledger_id, above) for ledger_id, above in ledgers])


def decode_fences(body: Buffer) -> list[tuple[int, int]]:
    """Read the body of a request. Raises ProtocolError."""
    count, rest = divmod(len(body), FENCE_BODY.size)
    if rest or not 1 <= count <= MAX_FENCES_AT_ONCE:
        raise ProtocolError(f"FENCE with {len(body)} bytes is not valid")
    return list(FENCE_BODY.iter_unpack(body))


def encode_answers(answers: Iterable[FenceAnswer | FencelogError]) -> bytes:
    """Return the body of a reply."""
    parts: list[bytes] = []
    for answer in answers:
        if isinstance(answer, FenceAnswer):
            absent = _NONE if answer.absent is None else answer.absent
            parts += (FENCE_ANSWER.pack(answer.lac, absent, len(answer.run), 0, 0), answer.run)
        else:
            text = answer.detail.encode("utf-8", "replace")[:_TEXT_BYTES]
            parts += (FENCE_ANSWER.pack(NO_LAC, _NONE, len(text), answer.code.wire, 0), text)
    return b"".join(parts)


def decode_answers(
    body: Buffer, count: int, bookie_id: str
) -> Sequence[FenceAnswer | FencelogError]:
    """Read the body of a reply of a bookie about ``count`` ledgers. Runs are not verified. Raises
    ProtocolError."""
    answers: list[FenceAnswer | FencelogError] = []
    at = 0
    while at < len(body):
        if len(answers) == count or len(body) - at < FENCE_ANSWER.size:
            raise ProtocolError("a reply to FENCE with more than was asked for")
        lac, absent, size, status, zero = FENCE_ANSWER.unpack_from(body, at)
        at += FENCE_ANSWER.size
        if zero or size > min(len(body) - at, FENCE_READ_BYTES) or min(lac, absent) < _NONE:
            raise ProtocolError("a reply to FENCE whose parts do not fit")
        data, at = bytes(body[at : at + size]), at + size
        if status:
            detail = prefix_bookie(bookie_id, data.decode("utf-8", "replace"))
            answers.append(FencelogError(code_from_wire(status), detail))
        else:
            answers.append(FenceAnswer(lac, data, None if absent == _NONE else absent))
    if len(answers) != count:
        raise ProtocolError(f"a reply to FENCE about {len(answers)} ledgers, not {count}")
    return answers
