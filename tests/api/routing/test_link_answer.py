"""What an answer says of its request when it ends before it is whole."""

from __future__ import annotations

import pytest

from fencelog.api.routing.link_answer import LinkAnswer, Unanswered
from fencelog.api.routing.link_core import Outcome
from fencelog.api.routing.link_frames import LinkFlag, LinkOp, encode_answer_head
from fencelog.ledgers.errors import ErrorCode
from fencelog.ledgers.rpc.wire import REPLY_BIT, Frame

REPLY = LinkOp.REQUEST | REPLY_BIT
HEAD = Frame(REPLY, LinkFlag.HEAD, 0, 1, encode_answer_head(200, []))


def refusal(code: ErrorCode) -> Frame:
    return Frame(REPLY, LinkFlag.END, code.wire, 1, b"no")


async def outcome_of(*frames: Frame) -> Outcome:
    """Return the outcome of a request that gets these frames, and no more."""
    answer = LinkAnswer()
    for frame in frames:
        answer.answered(frame)
    with pytest.raises(Unanswered) as caught:
        await answer.whole()
    return caught.value.outcome


async def test_only_a_request_that_was_not_begun_certainly_did_nothing() -> None:
    overloaded, internal = refusal(ErrorCode.OVERLOADED), refusal(ErrorCode.INTERNAL)
    assert await outcome_of(overloaded) is Outcome.OVERLOADED
    assert await outcome_of(internal) is Outcome.LOST
    assert await outcome_of(HEAD, overloaded) is Outcome.LOST
