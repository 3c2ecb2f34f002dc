"""The asking end of a link over real connections, when the other one goes, is slow, or is none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from fencelog.api.routing import link as link_module
from fencelog.api.routing.link import Links
from fencelog.api.routing.link_answer import Unanswered
from fencelog.api.routing.link_core import Outcome
from fencelog.api.routing.link_frames import (
    LinkFlag,
    LinkOp,
    encode_answer_head,
)
from fencelog.api.server.serve import bind
from fencelog.broker.limits import LINK_WINDOW_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.rpc.wire import (
    Op,
    encode_reply,
    encode_request,
)
from tests.api.routing.link_peer import LinkPeer, link_peer
from tests.api.routing.link_stage import Served, get
from tests.support.until import until


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
    await until(lambda: not links._links)  # a timer closes it
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
    await until(lambda: answer._error is not None)
    await answer.whole()


async def test_a_broker_that_is_another_one_is_not_asked(served: Served, links: Links) -> None:
    """The address of the expected broker belongs to another one now."""
    assert served.host is not None
    served.host.url = "http://elsewhere:8080"
    with pytest.raises(Unanswered, match="expected broker http://127") as caught:
        await links.request(served.url, get(b"/echo"), b"")
    assert caught.value.outcome is Outcome.UNSENT


@pytest.mark.parametrize(("theirs", "is_asked"), [("", True), ("one", True), ("other", False)])
async def test_a_broker_of_another_cluster_is_not_asked(
    served: Served, theirs: str, is_asked: bool
) -> None:
    """It would append to its own topic of that name. One that does not say so is of an earlier
    version."""
    assert served.host is not None
    served.host.cluster = theirs
    links = Links(cluster="one")
    try:
        if is_asked:
            answer = await links.request(served.url, get(b"/echo", "POST"), b"x")
            assert await answer.whole() == b"x"
        else:
            with pytest.raises(Unanswered, match="of another cluster") as caught:
                await links.request(served.url, get(b"/echo", "POST"), b"x")
            assert caught.value.outcome is Outcome.UNSENT
    finally:
        await links.close()


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
