"""The served end of a link: slow readers, requests that end early, strangers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencelog.api.routing.link import Links
from fencelog.api.routing.link_answer import Unanswered
from fencelog.api.routing.link_core import Outcome
from fencelog.api.routing.link_frames import (
    KIND,
    PATH,
    UPGRADE,
    LinkOp,
    encode_credit,
    encode_http_request,
)
from fencelog.api.routing.served_link import ServedLink
from fencelog.broker.append.conditions import AppendFuture, AppendResult
from fencelog.broker.limits import LINK_WINDOW_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.rpc.authentication import SharedSecret
from fencelog.ledgers.rpc.handshake import ClientHandshake
from fencelog.ledgers.rpc.wire import (
    REPLY_BIT,
    Frame,
    FrameReader,
    Op,
    encode_request,
)
from tests.api.routing.link_peer import LinkPeer
from tests.api.routing.link_stage import Served, get, serve_paths
from tests.support.until import until

SECRET = SharedSecret(b"correct horse battery staple", host=SystemHost())


async def test_a_slow_reader_holds_one_window_and_stops_nobody(
    served: Served, links: Links
) -> None:
    slow = await links.request(served.url, get(b"/flood"), b"")
    for number in range(50):
        answer = await links.request(served.url, get(b"/echo", "POST"), b"%d" % number)
        assert await answer.whole() == b"%d" % number
    assert served.sent_bytes <= LINK_WINDOW_BYTES
    assert len(await slow.whole()) == 16 * LINK_WINDOW_BYTES


async def test_an_answer_that_nobody_reads_any_more_is_cancelled(
    served: Served, links: Links
) -> None:
    answer = await links.request(served.url, get(b"/wait"), b"")
    assert await answer.read() == b"begun"
    answer.close()
    await asyncio.wait_for(served.gone.wait(), 5)
    again = await links.request(served.url, get(b"/echo"), b"")
    assert await again.whole() == b""


async def test_the_end_of_the_asking_broker_is_seen(served: Served, links: Links) -> None:
    await links.request(served.url, get(b"/wait"), b"")
    assert not served.gone.is_set()
    await links.close()
    assert await asyncio.wait_for(served.gone.wait(), 5)


async def test_an_application_that_fails_leaves_the_outcome_unknown(
    served: Served, links: Links
) -> None:
    with pytest.raises(Unanswered) as caught:
        await links.request(served.url, get(b"/fail"), b"")
    assert caught.value.outcome is Outcome.LOST


async def test_too_many_requests_are_refused_with_nothing_done(
    served: Served, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.api.routing.served_link.LINK_MAX_REQUESTS", 1)
    waiting = await links.request(served.url, get(b"/wait"), b"")
    with pytest.raises(Unanswered) as caught:
        await links.request(served.url, get(b"/echo"), b"")
    assert caught.value.outcome is Outcome.OVERLOADED
    waiting.close()
    monkeypatch.setattr("fencelog.api.routing.link_core.LINK_MAX_REQUESTS", 0)
    with pytest.raises(FencelogError) as refused:
        await links.request(served.url, get(b"/echo"), b"")
    assert refused.value.code is ErrorCode.OVERLOADED


async def test_appends_count_among_the_requests_of_a_link(
    served: Served, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.api.routing.served_link.LINK_MAX_REQUESTS", 1)
    assert served.host is not None
    under_way: AppendFuture = asyncio.get_running_loop().create_future()
    served.host.append = lambda _: under_way
    first, second = (links.append(served.url, (b"", b""), {}) for _ in range(2))
    with pytest.raises(FencelogError) as refused:
        await second
    assert refused.value.code is ErrorCode.OVERLOADED
    under_way.set_result(AppendResult(0, 7, 1, 0))
    assert (await first).offset == 7


async def test_a_bug_in_one_append_is_told_to_that_one_alone(served: Served, links: Links) -> None:
    assert served.host is not None
    under_way: AppendFuture = asyncio.get_running_loop().create_future()

    def append(frame: bytes) -> AppendFuture:
        if frame.endswith(b"bug"):
            raise RuntimeError("a bug")
        return under_way

    served.host.append = append
    in_flight: dict[AppendFuture, None] = {}
    well, bug = (links.append(served.url, (b"", body), in_flight) for body in (b"well", b"bug"))
    with pytest.raises(FencelogError) as caught:
        await bug
    assert caught.value.code is ErrorCode.INTERNAL
    assert list(in_flight) == [well]
    under_way.set_result(AppendResult(0, 7, 1, 0))
    assert (await well).offset == 7
    assert not in_flight


async def test_an_answer_of_the_turn_in_which_the_link_is_closed_is_sent(
    served: Served, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert served.host is not None
    under_way: AppendFuture = asyncio.get_running_loop().create_future()
    served.host.append = lambda _: under_way
    appended = ServedLink._appended

    def and_close(self: ServedLink, request_id: int, future: AppendFuture) -> None:
        appended(self, request_id, future)
        self._close_if_idle()

    monkeypatch.setattr(ServedLink, "_appended", and_close)
    answer = links.append(served.url, (b"", b""), {})
    await asyncio.sleep(0.05)
    under_way.set_result(AppendResult(0, 7, 1, 0))
    assert (await answer).offset == 7


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[ServedLink]:
    """Return the served links, as they are made."""
    found: list[ServedLink] = []
    connection_made = ServedLink.connection_made

    def noted(self: ServedLink, transport: asyncio.BaseTransport) -> None:
        found.append(self)
        connection_made(self, transport)

    monkeypatch.setattr(ServedLink, "connection_made", noted)
    return found


async def test_a_link_that_is_to_end_is_kept_for_the_appends_on_it(
    served: Served, links: Links, made: list[ServedLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.api.routing.served_link.LAST_REQUEST_S", 0.01)
    assert served.host is not None
    under_way: AppendFuture = asyncio.get_running_loop().create_future()
    served.host.append = lambda _: under_way
    answer = links.append(served.url, (b"", b""), {})
    await until(lambda: bool(made) and made[0]._appending == 1)
    made[0].shutdown()
    await asyncio.sleep(0.05)
    under_way.set_result(AppendResult(0, 7, 1, 0))
    assert (await answer).offset == 7


async def test_a_link_on_which_the_rest_of_a_frame_is_missing_ends(
    served: Served, links: Links, made: list[ServedLink]
) -> None:
    await (await links.request(served.url, get(b"/echo"), b"")).whole()
    (link,) = made
    now_s = asyncio.get_running_loop().time()
    link.close_if_overdue(now_s + 10_000)  # idle, with nothing unfinished
    request = encode_http_request(get(b"/echo", "POST"), b"x" * 1000)
    frame = encode_request(LinkOp.REQUEST, 99, b"".join(request))
    for place in range(0, 400, 100):  # slow, and never silent for too long
        link.data_received(frame[place : place + 100])
        for later_s in (0, 19):
            now_s += later_s
            link.close_if_overdue(now_s)
    assert link._transport is not None
    assert not link._transport.is_closing()
    link.close_if_overdue(now_s + 2)
    await until(lambda: link._transport is None)


# -- strangers -----------------------------------------------------------------------------------


async def _knock(served: Served, *, upgrade: bytes = UPGRADE) -> LinkPeer:
    """Open an HTTP connection and ask for the upgrade."""
    host, _, port = served.url.removeprefix("http://").rpartition(":")
    peer = LinkPeer(*await asyncio.open_connection(host, int(port)))
    peer.writer.write(
        b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: %b\r\n\r\n"
        % (PATH, upgrade)
    )
    return peer


async def _refusal(peer: LinkPeer, *frames: bytes) -> list[Frame]:
    """Send frames, and return those that come back before the other end closes."""
    await peer.reader.readuntil(b"\r\n\r\n")
    for frame in frames:
        peer.writer.write(frame)
    answer = await asyncio.wait_for(peer.reader.read(), 5)
    peer.writer.close()
    return FrameReader().feed(answer)


def _hello(url: str, credentials: SharedSecret | None = None) -> bytes:
    return ClientHandshake(url, credentials, features=frozenset(), kind=KIND).hello()


async def test_a_stranger_gets_nothing_where_there_is_a_secret() -> None:
    async with serve_paths(SECRET) as served:
        (frame,) = await _refusal(await _knock(served), _hello(served.url))
        assert frame.status == ErrorCode.UNAUTHORIZED.wire
        other = SharedSecret(b"another secret of a stranger", host=SystemHost())
        for secret in (None, other):
            links = Links(secret)
            with pytest.raises(Unanswered) as caught:
                await links.request(served.url, get(b"/echo"), b"")
            assert caught.value.outcome is Outcome.UNSENT
            await links.close()
        links = Links(SECRET)
        answer = await links.request(served.url, get(b"/echo"), b"")
        assert answer.status == 201
        await links.close()


REQUEST = b"".join(encode_http_request(get(b"/wait"), b""))


@pytest.mark.parametrize(
    "frames",
    [
        [encode_request(LinkOp.REQUEST, 1, REQUEST)],
        [b"GET / HTTP/1.1\r\n\r\n"],
        ["hello", encode_request(LinkOp.REQUEST, 1, b"\1")],
        ["hello", encode_request(LinkOp.REQUEST, 1, REQUEST), encode_credit(1, 1 << 30)],
        ["hello", encode_request(LinkOp.REQUEST, 1, REQUEST) * 2],
        ["hello", encode_request(LinkOp.CREDIT, 1, b"")],
        ["hello", encode_request(Op.ADD, 1, b"")],
        ["hello", b"\xff\xff\xff\xff\x10\0\0\0\1\0\0\0"],
    ],
)
async def test_garbled_frames_end_the_link(served: Served, frames: list[Any]) -> None:
    sent = [_hello(served.url) if frame == "hello" else frame for frame in frames]
    answers = await _refusal(await _knock(served), *sent)
    assert [frame.op for frame in answers if frame.op != LinkOp.REQUEST | REPLY_BIT] in (
        [],
        [Op.HELLO | REPLY_BIT],
    )


async def test_an_unknown_version_is_answered_as_plain_http(served: Served) -> None:
    peer = await _knock(served, upgrade=b"fencelog-link/9")
    assert not (await peer.reader.readline()).startswith(b"HTTP/1.1 101")
    peer.writer.close()
