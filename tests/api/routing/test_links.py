"""Links over real connections: what their ends do when the other one goes, is slow, or is none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from fencelog.api.http.asgi import Receive, Scope, Send
from fencelog.api.routing import link as link_module
from fencelog.api.routing.link import Links
from fencelog.api.routing.link_answer import Unanswered
from fencelog.api.routing.link_core import Outcome
from fencelog.api.routing.link_frames import (
    KIND,
    PATH,
    UPGRADE,
    LinkFlag,
    LinkOp,
    RequestHead,
    encode_answer_head,
    encode_credit,
    encode_http_request,
)
from fencelog.api.routing.served_link import LinkHost
from fencelog.api.server.serve import bind
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
    encode_reply,
    encode_request,
)
from tests.api.routing.link_peer import LinkPeer, link_peer
from tests.support.fake_broker import FakeBookies, FakeBroker, app_over, serving

SECRET = SharedSecret(b"correct horse battery staple", host=SystemHost())


@dataclass
class Served:
    """A broker whose application a test has replaced by a few paths."""

    url: str = ""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    sent_bytes: int = 0
    host: LinkHost | None = None

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        event = await receive()
        match scope["path"]:
            case "/echo":
                await _answer(send, event["body"])
            case "/flood":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                while self.sent_bytes < 16 * LINK_WINDOW_BYTES and not self.gone.is_set():
                    await send(_part(bytes(1024)))
                    self.sent_bytes += 1024
                await send({"type": "http.response.body", "body": b""})
            case "/wait":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send(_part(b"begun"))
                while (await receive())["type"] != "http.disconnect":
                    pass
                self.gone.set()
            case "/fail":
                raise RuntimeError("a bug")


async def _answer(send: Send, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 201, "headers": [(b"a", b"b")]})
    await send({"type": "http.response.body", "body": body})


def _part(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with _served(None) as found:
        yield found


@contextlib.asynccontextmanager
async def _served(secret: SharedSecret | None) -> AsyncIterator[Served]:
    app = app_over(FakeBroker(), FakeBookies())
    found = Served()
    assert app.host is not None
    found.host = app.host
    app.host.app, app.host.authenticator = found.app, secret
    async with serving(app) as found.url:
        yield found


@pytest.fixture
async def links() -> AsyncIterator[Links]:
    found = Links()
    yield found
    await found.close()


def get(path: bytes, method: str = "GET") -> RequestHead:
    return RequestHead(method, path, b"", [])


async def test_requests_share_one_connection(served: Served, links: Links) -> None:
    async def ask(number: int) -> bytes:
        answer = await links.request(served.url, get(b"/echo", "POST"), b"%d" % number)
        assert (answer.status, answer.headers) == (201, [(b"a", b"b")])
        return await answer.whole()

    answers = await asyncio.gather(*(ask(number) for number in range(200)))
    assert answers == [b"%d" % number for number in range(200)]
    assert len(links._links) == 1


async def test_a_body_larger_than_the_window_comes_whole(served: Served, links: Links) -> None:
    body = bytes(range(256)) * 8192
    answer = await links.request(served.url, get(b"/echo", "POST"), body)
    assert await answer.whole() == body


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
    first, second = (links.append(served.url, (b"", b"")) for _ in range(2))
    with pytest.raises(FencelogError) as refused:
        await second
    assert refused.value.code is ErrorCode.OVERLOADED
    under_way.set_result(AppendResult(0, 7, 1, 0))
    assert (await first).offset == 7


async def test_what_no_frame_can_hold_is_refused(served: Served, links: Links) -> None:
    with pytest.raises(FencelogError) as refused:
        await links.request(served.url, get(b"/echo", "POST"), bytes(13 << 20))
    assert refused.value.code is ErrorCode.PAYLOAD_TOO_LARGE


async def test_a_refused_connection_and_one_that_is_not_made(links: Links) -> None:
    with contextlib.closing(bind("127.0.0.1", 0)) as sock:
        closed = f"http://127.0.0.1:{sock.getsockname()[1]}"
        for url, outcome in ((closed, Outcome.REFUSED), ("http://255.255.255.255:9", None)):
            with pytest.raises(Unanswered) as caught:
                await links.request(url, get(b"/echo"), b"")
            assert caught.value.outcome is (outcome or Outcome.UNSENT)


async def test_an_idle_link_is_closed_and_dialled_again(
    served: Served, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "LINK_PING_MS", 5)
    monkeypatch.setattr(link_module, "LINK_IDLE_MS", 10)
    await (await links.request(served.url, get(b"/echo"), b"")).whole()
    (first,) = links._links.values()
    while links._links:  # noqa: ASYNC110 - a timer closes it, and tells nobody
        await asyncio.sleep(0.01)
    assert first._connection is None
    answer = await links.request(served.url, get(b"/echo", "POST"), b"again")
    assert await answer.whole() == b"again"
    assert links.to(served.url) is not first


async def test_a_silent_broker_is_half_open(links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "LINK_PING_MS", 10)
    pinged = []

    async def silent(peer: LinkPeer) -> None:
        await peer.request()
        while True:
            pinged.append(await peer.request(LinkOp.PING))

    async with link_peer(silent) as url:
        with pytest.raises(Unanswered) as caught:
            await links.request(url, get(b"/echo"), b"")
    assert caught.value.outcome is Outcome.LOST
    assert pinged


async def test_a_busy_broker_that_answers_pings_is_waited_for(
    links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "LINK_PING_MS", 5)

    async def busy(peer: LinkPeer) -> None:
        asked = await peer.request()
        for _ in range(20):
            await peer.request(LinkOp.PING)
            peer.writer.write(encode_reply(LinkOp.PING, 0))
        _write_answer(peer, asked.request_id)
        await peer.request()

    async with link_peer(busy) as url:
        answer = await links.request(url, get(b"/echo"), b"")
        assert await answer.whole() == b"done"


def _write_answer(peer: LinkPeer, request_id: int) -> None:
    head = encode_answer_head(200, [])
    peer.writer.write(encode_reply(LinkOp.REQUEST, request_id, head, LinkFlag.HEAD))
    peer.writer.write(encode_reply(LinkOp.REQUEST, request_id, b"done", LinkFlag.END))


async def test_a_broker_that_ends_answers_what_it_has(links: Links) -> None:
    async def leave(peer: LinkPeer) -> None:
        asked = await peer.request()
        peer.writer.write(encode_reply(LinkOp.LEAVE, 0))
        _write_answer(peer, asked.request_id)
        with contextlib.suppress(ConnectionError):
            while True:
                await peer.request()

    async with link_peer(leave) as url:
        for _ in range(2):  # each on a link of its own
            answer = await links.request(url, get(b"/echo"), b"")
            assert await answer.whole() == b"done"


HEAD = encode_answer_head(200, [])


@pytest.mark.parametrize(
    "answer",
    [
        lambda n: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        lambda n: encode_reply(LinkOp.REQUEST, n, b"x"),  # no head
        lambda n: encode_reply(LinkOp.REQUEST, n, HEAD, LinkFlag.HEAD) * 2,
        lambda n: encode_reply(LinkOp.REQUEST, n, HEAD, LinkFlag.HEAD | LinkFlag.END),
        lambda n: encode_reply(LinkOp.REQUEST, n, b"\xc1", LinkFlag.HEAD),
        lambda n: encode_reply(LinkOp.REQUEST, n + 1, HEAD, LinkFlag.HEAD),
        lambda n: encode_reply(Op.ADD, n),
        lambda n: encode_request(LinkOp.REQUEST, n, HEAD),
        lambda n: (
            encode_reply(LinkOp.REQUEST, n, HEAD, LinkFlag.HEAD)
            + encode_reply(LinkOp.REQUEST, n, bytes(LINK_WINDOW_BYTES))
            + encode_reply(LinkOp.REQUEST, n, b"too much")
        ),
    ],
)
async def test_frames_that_answer_nothing_end_the_link(
    links: Links, answer: Callable[[int], bytes]
) -> None:
    async def garble(peer: LinkPeer) -> None:
        asked = await peer.request()
        peer.writer.write(answer(asked.request_id))
        await peer.request()

    async with link_peer(garble) as url:
        with pytest.raises(Unanswered) as caught:
            await asyncio.wait_for(_never_read(links, url), 5)
    assert caught.value.outcome is Outcome.LOST


async def _never_read(links: Links, url: str) -> None:
    """Wait for the end of an answer without taking any of it."""
    answer = await links.request(url, get(b"/echo"), b"")
    while answer._error is None:  # noqa: ASYNC110 - frames of the peer change it
        await asyncio.sleep(0.01)
    raise answer._error


# -- strangers -----------------------------------------------------------------------------------


async def _knock(served: Served, *, upgrade: bytes = UPGRADE) -> LinkPeer:
    """An HTTP connection whose upgrade was asked for."""
    host, _, port = served.url.removeprefix("http://").rpartition(":")
    peer = LinkPeer(*await asyncio.open_connection(host, int(port)))
    peer.writer.write(
        b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %b\r\n\r\n"
        % (PATH, upgrade)
    )
    return peer


async def _refusal(peer: LinkPeer, *frames: bytes) -> list[Frame]:
    """What comes back before the other end closes the connection."""
    await peer.reader.readuntil(b"\r\n\r\n")
    for frame in frames:
        peer.writer.write(frame)
    answer = await asyncio.wait_for(peer.reader.read(), 5)
    peer.writer.close()
    return FrameReader().feed(answer)


def _hello(url: str, credentials: SharedSecret | None = None) -> bytes:
    return ClientHandshake(url, credentials, features=frozenset(), kind=KIND).hello()


async def test_a_stranger_gets_nothing_where_there_is_a_secret() -> None:
    async with _served(SECRET) as served:
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


async def test_a_broker_that_is_another_one_is_not_asked(served: Served, links: Links) -> None:
    """Its address now belongs to somebody else."""
    assert served.host is not None
    served.host.url = "http://elsewhere:8080"
    with pytest.raises(Unanswered, match="expected broker http://127") as caught:
        await links.request(served.url, get(b"/echo"), b"")
    assert caught.value.outcome is Outcome.UNSENT


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


async def test_something_that_is_no_broker_is_not_asked(links: Links) -> None:
    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(web, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(Unanswered, match="200 OK") as caught:
            await links.request(url, get(b"/echo"), b"")
    assert caught.value.outcome is Outcome.UNSENT
