"""A request for another broker's partition: passed on once, and what happens when that fails."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Awaitable, Callable

import httpx
import pytest

from fencelog.api.routing.forward import Forwarder
from fencelog.api.routing.link import Links
from fencelog.api.routing.link_answer import LinkAnswer, Unanswered
from fencelog.api.routing.link_core import Outcome
from fencelog.api.routing.link_frames import LinkFlag, LinkOp, RequestHead, encode_answer_head
from fencelog.api.routing.peers import LinkPeers
from fencelog.api.server.serve import bind
from fencelog.broker.limits import LINK_WINDOW_BYTES
from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.format.request_context import RequestContext
from fencelog.ledgers.rpc.wire import encode_reply
from tests.api.routing.link_peer import Behave, LinkPeer, link_peer
from tests.support.fake_broker import FakeBookies, FakeBroker, Serve, app_over
from tests.support.until import until

URL = "/v1/topics/ns/t/messages"
READ = "/v1/topics/ns/t/partitions/0/messages"
T = TopicName("ns", "t")
EVENT = b'event: message\nid: 6\ndata: {"offset":6}\n\n'


async def test_appends_and_reads_pass_through(
    http: httpx.AsyncClient, owner: FakeBroker, fake_broker: FakeBroker
) -> None:
    headers = {"Fencelog-Key": "k", "Fencelog-Event-Time": "7"}
    answer = await http.post(URL, content=b"\xff\x00", headers=headers)
    assert (answer.status_code, answer.json()["offset"]) == (201, 0)
    assert answer.headers["fencelog-owner"] == owner.url
    batch = await http.post(f"{URL}:batch", content=b"a\nb", headers={"content-type": "text/plain"})
    assert batch.json()["appended"] == [{"partition": 0, "offset": 1, "count": 2}]
    assert not fake_broker.logs
    assert owner.logs[T, 0].tail_offset == 3
    one = await http.get(f"{READ}/0")
    assert (one.content, one.headers["fencelog-key"]) == (b"\xff\x00", "k")
    page = await http.get(READ, params={"from": 1})
    assert [m["text"] for m in page.json()["messages"]] == ["a", "b"]
    assert page.headers["next-offset"] == "3"


async def test_a_client_that_prefers_it_is_sent_to_the_owner(
    http: httpx.AsyncClient, owner: FakeBroker, fake_broker: FakeBroker
) -> None:
    for query in ("", "?key=a%20b"):
        preferring = {"Prefer": "respond-async, redirect"}
        answer = await http.post(f"{URL}{query}", content=b"x", headers=preferring)
        assert (answer.status_code, answer.headers["preference-applied"]) == (307, "redirect")
        assert answer.headers["fencelog-owner"] == owner.url
        there = answer.headers["location"]
        assert there.startswith(f"{owner.url}{URL}?")
        assert query[1:] in there
        assert not owner.logs or owner.logs[T, 0].tail_offset == (1 if query else 0)
        assert (await http.post(there, content=b"x", headers=preferring)).status_code == 201
    assert owner.logs[T, 0].tail_offset == 2
    assert not fake_broker.logs


async def test_problems_pass_through(http: httpx.AsyncClient, owner: FakeBroker) -> None:
    answer = await http.post(
        f"{URL}:batch", content=b"{", headers={"content-type": "application/x-ndjson"}
    )
    assert (answer.status_code, answer.json()["line"]) == (400, 1)
    beyond = await http.get(READ, params={"from": 9})
    assert (beyond.status_code, beyond.json()["tail_offset"]) == (416, 0)


async def test_the_id_of_a_request_goes_to_the_owner(
    http: httpx.AsyncClient, owner: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """As an append over the link, and as a request over it; the log of the owner names both."""
    named = {"X-Request-Id": "mine"}
    assert (await http.post(URL, content=b"x")).headers.get("x-request-id") is None
    for path, headers in ((URL, {}), (f"{URL}:batch", {"content-type": "text/plain"})):
        answer = await http.post(path, content=b"a", headers={**headers, **named})
        assert answer.status_code == 201
        assert answer.headers.get_list("x-request-id") == ["mine"]
    log = owner.logs[T, 0]
    assert log.followed.count((RequestContext("mine"),)) == 2
    log.failure = FencelogError(ErrorCode.APPEND_UNKNOWN, "lost")
    caplog.set_level(logging.INFO, "fencelog.api.produce")
    answer = await http.post(URL, content=b"x", headers=named)
    assert answer.json()["request_id"] == answer.headers["x-request-id"] == "mine"
    assert [line.request_id for line in caplog.records if line.name.endswith("single")] == ["mine"]  # type: ignore[attr-defined]  # a field of the call


async def test_a_problem_of_the_owner_names_the_request_as_both_logs_do(
    http: httpx.AsyncClient, owner: FakeBroker
) -> None:
    answer = await http.get(READ, params={"from": 9})
    assert answer.status_code == 416
    made = answer.json()["request_id"]
    assert answer.headers.get_list("x-request-id") == [made]
    answer = await http.get(READ, params={"from": 9}, headers={"X-Request-Id": "mine"})
    assert answer.headers.get_list("x-request-id") == [answer.json()["request_id"]] == ["mine"]
    unusable = await http.get(READ, params={"from": 9}, headers={"X-Request-Id": "a b"})
    assert unusable.headers.get_list("x-request-id") == [unusable.json()["request_id"]] != ["a b"]


async def test_event_streams_pass_through_live(http: httpx.AsyncClient, owner: FakeBroker) -> None:
    headers = {"accept": "text/event-stream"}
    async with http.stream("GET", READ, headers=headers) as answer:
        await http.post(URL, content=b"live")
        async for line in answer.aiter_lines():
            if line.startswith("data: ") and "text" in line:
                assert json.loads(line[6:])["text"] == "live"
                break
    await owner.logs[T, 0].readers_are(0)


async def test_a_batch_is_spread_over_brokers(
    http: httpx.AsyncClient, owner: FakeBroker, fake_broker: FakeBroker
) -> None:
    many = TopicName("ns", "many")
    await fake_broker.topics.create(many, TopicConfig(partitions=2))
    fake_broker.elsewhere[many, 1] = owner.url
    keys = [f"k{n}" for n in range(10)]
    body = "\n".join(json.dumps({"text": key, "key": key}) for key in keys)
    answer = await http.post(
        "/v1/topics/ns/many/messages:batch",
        content=body,
        headers={"content-type": "application/x-ndjson"},
    )
    assert answer.status_code == 201
    there = sum(crc32c(key.encode()) % 2 for key in keys)
    assert [p["count"] for p in answer.json()["appended"]] == [10 - there, there]
    assert owner.logs[many, 1].tail_offset == there
    assert fake_broker.logs[many, 0].tail_offset == 10 - there


async def test_a_forwarded_request_is_not_forwarded_again(
    http: httpx.AsyncClient, owner: FakeBroker, fake_broker: FakeBroker
) -> None:
    answer = await http.post(URL, content=b"x", headers={"Fencelog-Forwarded": "1"})
    assert (answer.status_code, answer.json()["code"]) == (421, "not_owner")
    assert answer.json()["side_effects"] == "none"


async def test_brokers_that_name_each_other_give_up(
    http: httpx.AsyncClient, owner: FakeBroker, service: str
) -> None:
    owner.elsewhere[T, 0] = service
    answer = await http.post(URL, content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (503, "no_owner")
    assert answer.headers["retry-after"] == "1"


async def test_a_dead_owner_is_reported_and_taken_over_from(
    http: httpx.AsyncClient, fake_broker: FakeBroker
) -> None:
    sock = bind("127.0.0.1", 0)  # bound, not listening: connections are refused
    with contextlib.closing(sock):
        dead = f"http://127.0.0.1:{sock.getsockname()[1]}"
        fake_broker.elsewhere[T, 0] = dead
        answer = await http.post(URL, content=b"x")
    assert answer.status_code == 201
    assert fake_broker.reported == [dead]
    assert fake_broker.logs[T, 0].tail_offset == 1


async def test_an_owner_that_only_cannot_be_reached_from_here_is_not_reported_dead(
    http: httpx.AsyncClient, fake_broker: FakeBroker
) -> None:
    """No route, or no file descriptor left: the others, and the owner itself, may be well."""
    fake_broker.elsewhere[T, 0] = "http://255.255.255.255:9"
    answer = await http.post(URL, content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (503, "no_owner")
    assert fake_broker.reported == []


async def hang_up(peer: LinkPeer) -> None:
    await peer.frame()


def half_an_answer(*parts: bytes) -> Callable[[LinkPeer], Awaitable[None]]:
    """Answer with the beginning of an event stream, and hang up."""

    async def answer(peer: LinkPeer) -> None:
        asked = await peer.request()
        head = encode_answer_head(200, [(b"content-type", b"text/event-stream")])
        peer.writer.write(encode_reply(LinkOp.REQUEST, asked.request_id, head, LinkFlag.HEAD))
        for part in parts:
            peer.writer.write(encode_reply(LinkOp.REQUEST, asked.request_id, part))
        await peer.writer.drain()

    return answer


async def no_json(peer: LinkPeer) -> None:
    asked = await peer.request()
    head = encode_reply(
        LinkOp.REQUEST, asked.request_id, encode_answer_head(200, []), LinkFlag.HEAD
    )
    peer.writer.write(head + encode_reply(LinkOp.REQUEST, asked.request_id, b"no", LinkFlag.END))
    await peer.writer.drain()
    await peer.frame()


async def test_an_append_whose_owner_is_lost_is_of_unknown_outcome(
    http: httpx.AsyncClient, fake_broker: FakeBroker
) -> None:
    for url, body in ((URL, b"x"), (f"{URL}:batch", b"a\n")):
        async with link_peer(hang_up) as lost:
            fake_broker.elsewhere[T, 0] = lost
            answer = await http.post(url, content=body, headers={"content-type": "text/plain"})
        assert (answer.status_code, answer.json()["code"]) == (504, "append_unknown")
        assert answer.json()["side_effects"] == "maybe"
    assert not fake_broker.reported
    assert not fake_broker.logs


async def test_a_read_whose_owner_is_lost_can_be_asked_again(
    http: httpx.AsyncClient, fake_broker: FakeBroker
) -> None:
    async with link_peer(hang_up) as lost:
        fake_broker.elsewhere[T, 0] = lost
        answer = await http.get(READ)
    assert (answer.status_code, answer.json()["code"]) == (503, "read_unknown")
    assert answer.json()["retryable"] is True


async def test_a_change_whose_answer_breaks_off_is_of_unknown_outcome(links: Links) -> None:
    """No other owner is looked for: the lost one may have made the change."""
    async with link_peer(hang_up) as lost:
        with pytest.raises(FencelogError) as caught:
            await Forwarder(links).ask("POST", lost, "/", b"", b"", lost=ErrorCode.STATE_UNKNOWN)
    assert caught.value.code is ErrorCode.STATE_UNKNOWN


@pytest.mark.parametrize(
    ("method", "code"),
    [("GET", ErrorCode.READ_UNKNOWN), ("POST", ErrorCode.REQUEST_TIMEOUT)],
)
@pytest.mark.parametrize("behave", [hang_up, half_an_answer(b"{"), no_json])
async def test_a_broker_that_only_shows_something_has_done_nothing(
    links: Links, method: str, code: ErrorCode, behave: Behave
) -> None:
    async with link_peer(behave) as lost:
        with pytest.raises(FencelogError) as caught:
            await LinkPeers(links).ask(method, lost, "/v1/brokers/b?limit=0")
    assert caught.value.code is code


async def test_an_event_stream_whose_owner_is_lost_ends_with_a_problem(
    http: httpx.AsyncClient, fake_broker: FakeBroker
) -> None:
    async with link_peer(half_an_answer(EVENT)) as lost:
        fake_broker.elsewhere[T, 0] = lost
        answer = await http.get(READ, headers={"accept": "text/event-stream"})
    assert "event: problem" in answer.text
    assert "read_unknown" in answer.text


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("cut", range(15, len(EVENT), 7))
async def test_a_part_of_an_event_stays_one(
    http: httpx.AsyncClient, fake_broker: FakeBroker, cut: int, last: bool
) -> None:
    """A client drops a part of an event at the end of a stream. With a problem behind it, it would
    take message 6 for delivered, and resume after it."""
    parts = (b": begins\n\n", EVENT[:cut]) if last else (b": begins\n\n" + EVENT[:cut],)
    seen: list[bytes] = []

    async def read() -> None:
        async with http.stream("GET", READ, headers={"accept": "text/event-stream"}) as answer:
            async for part in answer.aiter_raw():
                seen.append(part)  # noqa: PERF401 - what has come before the error counts

    async with link_peer(half_an_answer(*parts)) as lost:
        fake_broker.elsewhere[T, 0] = lost
        with pytest.raises(httpx.RemoteProtocolError):
            await read()
    assert b"".join(seen) == b"".join(parts)


async def test_an_owner_that_drains_adds_nothing_to_a_part_of_an_event(
    http: httpx.AsyncClient,
    links: Links,
    fake_broker: FakeBroker,
    fake_bookies: FakeBookies,
    serve: Serve,
) -> None:
    """Its piece is larger than the window of the link, and the other end does not read."""
    for _ in range(2 * LINK_WINDOW_BYTES // 60_000):
        assert (await http.post(URL, content=b"x" * 60_000)).status_code == 201
    app, seen = app_over(fake_broker, fake_bookies), list[bytes]()

    async def read(answer: LinkAnswer) -> None:
        while part := await answer.read():
            seen.append(part)

    async with serve(app) as url:
        head = RequestHead("GET", READ.encode(), b"", [(b"accept", b"text/event-stream")])
        answer = await links.request(url, head, b"")
        await until(lambda: sum(map(len, answer._parts)) >= LINK_WINDOW_BYTES)
        app.drain()
        with pytest.raises(Unanswered) as caught:
            await read(answer)
    assert caught.value.outcome is Outcome.LOST
    text = b"".join(seen)
    assert len(text) == LINK_WINDOW_BYTES
    assert b"event: problem" not in text
