"""The asking end's knowledge of its requests."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fencelog.api.routing.link_core import LinkCore, Outcome, Window
from fencelog.api.routing.link_frames import LinkFlag, LinkOp
from fencelog.broker.limits import LINK_MAX_PENDING_BYTES, LINK_MAX_REQUESTS, LINK_WINDOW_BYTES
from fencelog.ledgers.errors import ProtocolError
from fencelog.ledgers.rpc.wire import REPLY_BIT, Frame, FrameReader, encode_request

REPLY = LinkOp.REQUEST | REPLY_BIT


@dataclass
class Noted:
    """A request that notes what it is told."""

    frames: list[Frame] = field(default_factory=list)
    outcome: Outcome | None = None

    def answered(self, frame: Frame) -> bool:
        self.frames.append(frame)
        return bool(frame.flags & LinkFlag.END)

    def failed(self, outcome: Outcome, why: str) -> None:
        self.outcome = outcome


def reply(request_id: int, flags: int = LinkFlag.END) -> Frame:
    return Frame(REPLY, flags, 0, request_id, b"")


def sent(core: LinkCore) -> list[Frame]:
    return FrameReader().feed(b"".join(core.flush()))


def test_requests_leave_in_order_and_are_answered_by_their_ids() -> None:
    core, one, other = LinkCore(), Noted(), Noted()
    first = core.ask(one, LinkOp.REQUEST, (b"a", b"bc"))
    second = core.ask(other, LinkOp.REQUEST, (b"d",))
    assert bool(core.has_waiting)
    frames = sent(core)
    assert [(f.op, f.request_id, f.body) for f in frames] == [
        (LinkOp.REQUEST, first, b"abc"),
        (LinkOp.REQUEST, second, b"d"),
    ]
    assert bool(core.has_waiting) is False
    assert core.flush() == []
    core.take(reply(second, LinkFlag.HEAD))
    core.take(reply(first))
    core.take(reply(second))
    assert [len(noted.frames) for noted in (one, other)] == [1, 2]
    assert bool(core.is_idle)


def test_what_was_given_out_is_lost_with_its_connection_and_what_was_not_is_kept() -> None:
    core, one, other = LinkCore(), Noted(), Noted()
    core.ask(one, LinkOp.REQUEST, (b"a",))
    core.flush()
    core.ask(other, LinkOp.REQUEST, (b"b",))
    core.control(b"of the old connection")
    core.lose("reset")
    assert (one.outcome, other.outcome) == (Outcome.LOST, None)
    assert [frame.body for frame in sent(core)] == [b"b"]
    core.lose("reset")
    assert other.outcome is Outcome.LOST
    assert bool(core.is_idle)


def test_what_waits_is_refused_where_there_is_no_connection() -> None:
    core, one, other = LinkCore(), Noted(), Noted()
    core.ask(one, LinkOp.REQUEST, (b"a",))
    core.flush()
    core.ask(other, LinkOp.REQUEST, (b"b",))
    core.refuse(Outcome.REFUSED, "nobody listens")
    assert (one.outcome, other.outcome) == (None, Outcome.REFUSED)
    assert bool(core.is_idle) is False


def test_a_request_given_up_before_it_was_sent_leaves_nothing() -> None:
    core, noted = LinkCore(), Noted()
    core.give_up(core.ask(noted, LinkOp.REQUEST, (b"a",)))
    assert bool(core.is_idle)
    assert core.flush() == []


def test_a_request_given_up_later_is_cancelled_once_and_its_answer_let_go() -> None:
    core, noted = LinkCore(), Noted()
    request_id = core.ask(noted, LinkOp.REQUEST, (b"a",))
    core.flush()
    core.give_up(request_id)
    core.give_up(request_id)
    assert core.flush() == [encode_request(LinkOp.CANCEL, request_id, b"")]
    core.take(reply(request_id, LinkFlag.HEAD))
    assert bool(core.is_idle) is False
    core.take(reply(request_id))
    assert bool(core.is_idle)
    assert noted.frames == []
    core.give_up(request_id)
    assert core.flush() == []


def test_nobody_is_told_of_a_request_that_nobody_waits_for() -> None:
    core, noted = LinkCore(), Noted()
    request_id = core.ask(noted, LinkOp.REQUEST, (b"a",))
    core.flush()
    core.give_up(request_id)
    core.lose("reset")
    assert noted.outcome is None
    assert bool(core.is_idle)


def test_a_frame_that_answers_nothing_ends_the_connection() -> None:
    core = LinkCore()
    request_id = core.ask(Noted(), LinkOp.REQUEST, (b"a",))
    with pytest.raises(ProtocolError):
        core.take(reply(request_id))  # not sent yet
    core.flush()
    for frame in (reply(request_id + 1), Frame(LinkOp.PING | REPLY_BIT, 0, 0, request_id, b"")):
        with pytest.raises(ProtocolError):
            core.take(frame)


def test_an_id_in_use_is_not_used_again() -> None:
    core = LinkCore()
    stream = core.ask(Noted(), LinkOp.REQUEST, ())
    core.flush()
    core._last_id = 0xFFFFFFFF
    assert core.ask(Noted(), LinkOp.REQUEST, ()) == 0
    assert core.ask(Noted(), LinkOp.REQUEST, ()) == stream + 1


def test_limits_of_requests_and_of_bytes() -> None:
    core = LinkCore()
    for _ in range(LINK_MAX_REQUESTS):
        assert core.refusal() is None
        last = core.ask(Noted(), LinkOp.REQUEST, ())
    assert "requests are in flight" in str(core.refusal())
    core.give_up(last)
    assert core.refusal() is None
    core = LinkCore()
    request_id = core.ask(Noted(), LinkOp.REQUEST, (bytes(LINK_MAX_PENDING_BYTES), b"1"))
    assert "bytes are in flight" in str(core.refusal())
    core.flush()
    core.take(reply(request_id))
    assert core.refusal() is None


def test_a_window_has_room_for_what_was_taken() -> None:
    window = Window()
    window.take(LINK_WINDOW_BYTES)
    with pytest.raises(ProtocolError):
        window.take(1)
    window.give(10)
    assert window.capacity == 10
    with pytest.raises(ProtocolError):
        window.give(LINK_WINDOW_BYTES)
