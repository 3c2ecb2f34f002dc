"""The bodies of ADD_MANY: runs of any ledgers in one request, and the answers to them.

request    for each run           u32 size of its contexts, contexts     if flagged CONTEXTS
                                  the run
reply   0  u32 number of runs that this reply answers
        4  nothing: they are all runs of the request, and all are durable; or the answer to each
           of them (rpc/answers.py)

A request has as many replies as the bookie has occasions to answer: a run that has to wait does not
hold back the others. Each run is answered once. All replies but the last are flagged MORE.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError, prefix_bookie
from fencelog.ledgers.format.request_context import NO_CONTEXTS, decode_contexts
from fencelog.ledgers.format.run import Buffer, Run, read_run, read_run_header
from fencelog.ledgers.limits import MAX_ADDS_AT_ONCE, MAX_ADDS_BYTES
from fencelog.ledgers.rpc.answers import decode_answers, encode_answers
from fencelog.ledgers.rpc.bookie_port import AddsCallback, AddToken
from fencelog.ledgers.rpc.wire import CONTEXTS_SIZE, with_contexts

_COUNT = struct.Struct("<I")


def split_adds(runs: Sequence[Run]) -> Iterator[tuple[int, int]]:
    """Cut runs into requests: yields first and end of each. A run beyond MAX_ADDS_BYTES is a
    request of its own."""
    begin = size = 0
    for place, run in enumerate(runs):
        size += len(run.data)
        if place > begin and (size > MAX_ADDS_BYTES or place - begin == MAX_ADDS_AT_ONCE):
            yield begin, place
            begin, size = place, len(run.data)
    if runs:
        yield begin, len(runs)


def encode_adds(runs: Sequence[Run], *, contexts: bool) -> bytes:
    """Return the body of a request, with the contexts of the runs if it is flagged so."""
    if contexts:
        return b"".join([with_contexts(run.contexts, run.data) for run in runs])
    return b"".join([run.data for run in runs])


def decode_adds(body: bytes, *, contexts: bool) -> list[Run]:
    """Read the body of a request; its runs are verified. Raises ProtocolError."""
    runs: list[Run] = []
    at, end = 0, len(body)
    while at < end or not runs:
        if len(runs) == MAX_ADDS_AT_ONCE:
            raise ProtocolError(f"ADD_MANY with more than {MAX_ADDS_AT_ONCE} runs")
        these = NO_CONTEXTS
        if contexts:
            if end - at < CONTEXTS_SIZE.size:
                raise ProtocolError("ADD_MANY that is cut short")
            (size,) = CONTEXTS_SIZE.unpack_from(body, at)
            at += CONTEXTS_SIZE.size
            if size > end - at:
                raise ProtocolError(f"contexts of {size} bytes in {end - at}")
            these, at = decode_contexts(body[at : at + size]), at + size
        size = read_run_header(body, at).size
        run = read_run(body[at : at + size])
        runs.append(run._replace(contexts=these) if these else run)
        at += size
    return runs


def encode_added(places: Sequence[int], error: FencelogError | None, count: int) -> bytes:
    """Return the body of a reply that answers the runs at these places, of a request of ``count``,
    each with the same."""
    if error is None and len(places) == count:
        return _COUNT.pack(count)
    return _COUNT.pack(len(places)) + encode_answers(dict.fromkeys(places, error))


class PendingAdds:
    """The runs of a request at the client, until each is answered. ``on_replies`` gets their tokens
    with their outcomes, each token once."""

    __slots__ = ("_answered", "_bookie_id", "_on_replies", "_tokens")

    def __init__(
        self, tokens: Sequence[AddToken], on_replies: AddsCallback, bookie_id: str
    ) -> None:
        self._tokens = tokens
        self._on_replies = on_replies
        self._bookie_id = bookie_id
        self._answered: set[int] = set()
        """The places of those that are answered, while some are and others are not."""

    def take(self, body: Buffer, *, is_last: bool) -> None:
        """Take the body of a reply. After one that does not fit, whatever was not answered before
        may have been stored."""
        count = len(self._tokens)
        (number,) = _COUNT.unpack_from(body)
        if number == count and len(body) == _COUNT.size and is_last and not self._answered:
            self._answer_rest(None)
            return
        try:
            answers = self._answers(body, number, is_last=is_last)
        except ProtocolError as wrong:
            detail = prefix_bookie(self._bookie_id, wrong.detail)
            self._answer_rest(FencelogError(ErrorCode.INTERNAL, detail))
            return
        self._answered |= answers.keys()
        durable = [self._tokens[place] for place, error in answers.items() if error is None]
        if durable:
            self._on_replies(durable, None)
        for place, error in answers.items():
            if error is not None:
                self._on_replies((self._tokens[place],), error)

    def fail(self, error: FencelogError) -> None:
        """Answer all that were not answered, with ``error``."""
        self._answer_rest(error)

    def _answers(
        self, body: Buffer, number: int, *, is_last: bool
    ) -> dict[int, FencelogError | None]:
        """Read the answers of a reply to a part of the runs. Raises ProtocolError."""
        count = len(self._tokens)
        answers = decode_answers(body[_COUNT.size :], count, self._bookie_id, request="ADD_MANY")
        is_end = len(self._answered) + len(answers) == count
        if not answers or len(answers) != number or is_end != is_last:
            raise ProtocolError(f"a reply to ADD_MANY for {number} runs that does not fit")
        if not self._answered.isdisjoint(answers):
            raise ProtocolError("a reply to ADD_MANY that answers a run again")
        return answers

    def _answer_rest(self, error: FencelogError | None) -> None:
        """Answer all that were not answered: then the request is over."""
        tokens, self._tokens = self._tokens, ()
        if self._answered:
            tokens = [token for place, token in enumerate(tokens) if place not in self._answered]
        if tokens:
            self._on_replies(tokens, error)
