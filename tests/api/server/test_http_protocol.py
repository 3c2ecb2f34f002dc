"""Single posts that the connection appends itself, and the order of all answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from fencelog.api.produce.post import Post
from fencelog.api.produce.single import Produce
from fencelog.broker.append.conditions import (
    AppendConditions,
    AppendFuture,
    AppendResult,
    Repeated,
)
from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicConfig
from fencelog.broker.subscriptions.batch import DELIVER_AT
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message, decode_batch
from tests.support.broker_stage import SteppingHost
from tests.support.fake_broker import FakeBookies, FakeBroker, Serve, app_over
from tests.support.until import until

PATH = "/v1/topics/ns/t/messages"
T = TopicName("ns", "t")


def post(body: bytes, *headers: str, path: str = PATH) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "Accept: */*", "", ""]).encode() + body


class Connection:
    """A client that decides which bytes leave together."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        async with asyncio.timeout(5):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")[:-2]
            headers = dict(line.lower().split(": ", 1) for line in lines[1:])
            body = await self.reader.readexactly(int(headers["content-length"]))
        return int(lines[0].split()[1]), headers, json.loads(body)

    async def exchange(self, data: bytes) -> tuple[int, dict[str, str], Any]:
        await self.send(data)
        return await self.answer()


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies that connections passed to a log themselves."""
    taken: list[bytes] = []
    append_now = Produce.append_now

    def watched(self: Produce, post: Post, body: bytes, **how: Any) -> AppendFuture | None:
        future = append_now(self, post, body, **how)
        if future is not None:
            taken.append(body)
        return future

    monkeypatch.setattr(Produce, "append_now", watched)
    return taken


@pytest.fixture
async def connection(
    direct: list[bytes], service: str, http: httpx.AsyncClient
) -> AsyncIterator[Connection]:
    address = urlsplit(service)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    yield Connection(reader, writer)
    writer.close()


def bodies(fake_broker: FakeBroker) -> list[tuple[bytes, bytes | None]]:
    log = fake_broker.logs[T, 0]
    return [
        (message.value, message.key)
        for entry in log.entries
        for message in decode_batch(bytes(entry.batch))
    ]


async def test_bodies_of_any_size_arrive_in_order(
    connection: Connection, fake_broker: FakeBroker, direct: list[bytes]
) -> None:
    values = [b"x" * n for n in (3, 0, 1, 99, 1000, 9, 10_000)]
    for offset, value in enumerate(values):
        status, headers, document = await connection.exchange(post(value))
        assert (status, document["offset"]) == (201, offset)
        assert headers["content-type"] == "application/json"
        assert "date" in headers
    assert [value for value, _ in bodies(fake_broker)] == values
    assert direct == values[1:], "the first one opens the partition"


async def test_another_head_is_another_request(
    connection: Connection, fake_broker: FakeBroker, direct: list[bytes]
) -> None:
    await connection.exchange(post(b"1", "Fencelog-Key: a"))
    await connection.exchange(post(b"2", "Fencelog-Key: a"))
    await connection.exchange(post(b"3", "Fencelog-Key: b"))
    await connection.exchange(post(b"4", path=PATH + "?key=c"))
    status, _, _ = await connection.exchange(post(b"5", path="/v1/topics/ns/none/messages"))
    assert status == 404
    await connection.exchange(post(b"6", "Fencelog-Key: a"))
    expected = [(b"1", b"a"), (b"2", b"a"), (b"3", b"b"), (b"4", b"c"), (b"6", b"a")]
    assert bodies(fake_broker) == expected
    assert direct == [b"2", b"3", b"4", b"6"]


@pytest.mark.parametrize("cut", [1, 30, 60, 90, -3])
async def test_a_request_may_come_in_pieces(
    connection: Connection, fake_broker: FakeBroker, direct: list[bytes], cut: int
) -> None:
    await connection.exchange(post(b"first"))
    request = post(b"in pieces")
    await connection.send(request[:cut])
    await asyncio.sleep(0.02)
    assert (await connection.exchange(request[cut:]))[2]["offset"] == 1
    assert (await connection.exchange(post(b"again")))[2]["offset"] == 2
    assert [value for value, _ in bodies(fake_broker)] == [b"first", b"in pieces", b"again"]
    assert direct == [b"in pieces", b"again"]


async def test_requests_in_one_piece_are_answered_in_order(
    connection: Connection, fake_broker: FakeBroker
) -> None:
    await connection.exchange(post(b"0"))
    await connection.send(
        post(b"1") + post(b"2") + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    assert [(await connection.answer())[2].get("offset") for _ in range(3)] == [1, 2, None]


async def test_what_comes_before_the_answer_waits_for_it(
    connection: Connection, fake_broker: FakeBroker, direct: list[bytes]
) -> None:
    await connection.exchange(post(b"0"))
    log = fake_broker.logs[T, 0]
    log.answers_after = asyncio.Event()
    await connection.send(post(b"1"))
    await until(lambda: len(log.entries) >= 2)
    for chunk in (post(b"2"), post(b"3")[:50], post(b"3")[50:]):
        await connection.send(chunk)
        await asyncio.sleep(0.01)
    assert len(log.entries) == 2
    log.answers_after.set()
    assert [(await connection.answer())[2]["offset"] for _ in range(3)] == [1, 2, 3]
    assert len(direct) >= 1


async def test_a_delay_counts_from_each_message(
    connection: Connection, fake_broker: FakeBroker, direct: list[bytes]
) -> None:
    """A head that is remembered keeps no time of the request that it was read from."""
    fake_broker.host = host = SteppingHost()
    host.clock_us = 1_000_000
    request = post(b"x", path=PATH + "?delay_ms=5000")
    await connection.exchange(request)
    host.clock_us = 60_000_000
    await connection.exchange(request)
    assert len(direct) == 1
    due = [
        dict(message.headers)[DELIVER_AT]
        for entry in fake_broker.logs[T, 0].entries
        for message in decode_batch(bytes(entry.batch))
    ]
    assert due == [b"6000000", b"65000000"]


async def test_a_definite_failure_goes_the_ordinary_way(
    connection: Connection, fake_broker: FakeBroker, direct: list[bytes]
) -> None:
    await connection.exchange(post(b"0"))
    log = fake_broker.logs[T, 0]
    log.failure = FencelogError(ErrorCode.OVERLOADED, "too much")
    status, headers, document = await connection.exchange(post(b"1"))
    assert (status, document["code"], document["side_effects"]) == (503, "overloaded", "none")
    assert headers["retry-after"] == "1"
    log.failure = None
    assert (await connection.exchange(post(b"2")))[2]["offset"] == 1
    assert len(direct) == 2


async def test_an_unknown_outcome_is_told_and_never_tried_again(
    connection: Connection,
    fake_broker: FakeBroker,
    direct: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await connection.exchange(post(b"0"))
    log = fake_broker.logs[T, 0]
    log.failure = FencelogError(ErrorCode.APPEND_UNKNOWN, "who knows")
    attempts: list[Message] = []
    append = log.append_message

    def counted(
        message: Message, conditions: AppendConditions | None
    ) -> asyncio.Future[AppendResult]:
        attempts.append(message)
        return append(message)

    monkeypatch.setattr(log, "append_message", counted)
    status, headers, document = await connection.exchange(post(b"1"))
    assert (status, document["code"], document["side_effects"]) == (504, "append_unknown", "maybe")
    assert document["instance"] == PATH
    assert headers["content-type"] == "application/problem+json"
    assert len(attempts) == 1


async def test_a_bug_is_answered_and_the_connection_goes_on(
    connection: Connection, fake_broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await connection.exchange(post(b"0"))
    log = fake_broker.logs[T, 0]
    append = log.append_message

    def buggy(message: Message, conditions: AppendConditions | None) -> AppendFuture:
        if message.value == b"bug":
            raise RuntimeError("a bug")
        return append(message, conditions)

    monkeypatch.setattr(log, "append_message", buggy)
    await connection.send(post(b"bug") + post(b"1"))
    status, _, document = await connection.answer()
    assert (status, document["code"], document["side_effects"]) == (500, "internal", "maybe")
    assert (await connection.answer())[2]["offset"] == 1


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**64])
async def test_an_event_time_of_a_numbered_post_is_checked_first(
    connection: Connection, value: int
) -> None:
    """Its number goes with a digest of all that it says."""
    numbered = ("Producer-Id: p", "Producer-Seq: 0", f"Fencelog-Event-Time: {value}")
    status, _, document = await connection.exchange(post(b"x", *numbered))
    assert (status, document["code"], document["side_effects"]) == (400, "bad_request", "none")
    numbered = (*numbered[:2], f"Fencelog-Event-Time: {2**63 - 1}")
    assert (await connection.exchange(post(b"x", *numbered)))[2]["offset"] == 0


async def test_a_partition_that_moved_away_is_not_appended_here(
    connection: Connection, fake_broker: FakeBroker, direct: list[bytes]
) -> None:
    await connection.exchange(post(b"0"))
    fake_broker.elsewhere[T, 0] = "http://127.0.0.1:9"
    status, _, document = await connection.exchange(post(b"1"))
    assert fake_broker.reported == ["http://127.0.0.1:9"]
    assert (status, document["offset"]) == (201, 1)
    assert direct == [b"1"]  # offered to the broker that is gone


async def test_a_partition_that_is_not_there_any_more_is_a_definite_failure(
    connection: Connection, fake_broker: FakeBroker
) -> None:
    """The topic was made anew with fewer partitions."""
    many = TopicName("ns", "many")
    await fake_broker.topics.create(many, TopicConfig(partitions=3))
    request = post(b"x", path="/v1/topics/ns/many/messages?partition=2")
    assert (await connection.exchange(request))[0] == 201
    await fake_broker.topics.delete(many)
    await fake_broker.topics.create(many, TopicConfig(partitions=1))
    status, _, document = await connection.exchange(request)
    assert (status, document["side_effects"]) == (404, "none")


async def test_a_refused_post_is_refused_again(connection: Connection, direct: list[bytes]) -> None:
    for _ in range(2):
        status, _, _ = await connection.exchange(post(b"x", "Content-Encoding: gzip"))
        assert status == 415
    assert direct == []


async def test_a_closing_server_answers_what_is_under_way(
    fake_broker: FakeBroker, fake_bookies: FakeBookies, serve: Serve
) -> None:
    await fake_broker.topics.create(T, TopicConfig())
    async with asyncio.timeout(10):
        async with serve(app_over(fake_broker, fake_bookies)) as url:
            address = urlsplit(url)
            client = Connection(*await asyncio.open_connection(address.hostname, address.port))
            await client.exchange(post(b"0"))
            log = fake_broker.logs[T, 0]
            log.answers_after = asyncio.Event()
            await client.send(post(b"1"))
            await until(lambda: len(log.entries) >= 2)
            asyncio.get_running_loop().call_later(0.3, log.answers_after.set)
        status, headers, document = await client.answer()
    assert (status, document["offset"], headers["connection"]) == (201, 1, "close")
    assert await client.reader.read() == b""
    client.writer.close()


async def test_a_duplicate_is_answered_as_one(
    connection: Connection, fake_broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await connection.exchange(post(b"0"))
    seen: list[AppendConditions | None] = []

    def repeated(_: Message, conditions: AppendConditions | None) -> AppendFuture:
        seen.append(conditions)
        future: AppendFuture = asyncio.get_running_loop().create_future()
        future.set_result(Repeated(0, 7, 1, 9))
        return future

    monkeypatch.setattr(fake_broker.logs[T, 0], "append_message", repeated)
    request = post(b"1", "Producer-Id: p", "Producer-Seq: 3", "If-Offset: 7", "Fencing-Token: f")
    status, headers, document = await connection.exchange(request)
    assert (status, headers["duplicate"]) == (200, "true")
    assert document == {"partition": 0, "offset": 7, "publish_time": 9}
    [conditions] = seen
    assert conditions is not None
    assert conditions.sequences is not None
    assert (conditions.sequences.sequence, conditions.if_offset, conditions.fencing_token) == (
        3,
        7,
        "f",
    )


async def test_an_upgrade_that_is_not_known_is_taken_as_http(connection: Connection) -> None:
    """A client like curl asks for HTTP/2 like this; the answer ends the connection."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    await connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + upgrade)
    status, headers, _ = await connection.answer()
    assert (status, headers["connection"]) == (200, "close")
    assert await connection.reader.read() == b""


@pytest.mark.parametrize("coding", ["Content-Length: 2", "Transfer-Encoding: chunked"])
async def test_an_upgrade_with_a_body_is_refused(
    connection: Connection, fake_broker: FakeBroker, coding: str
) -> None:
    """The parser takes the body for the other protocol: an empty message would be stored."""
    upgrade = f"Connection: Upgrade\r\nUpgrade: h2c\r\n{coding}"
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\n{upgrade}"
    status, _, document = await connection.exchange(head.encode() + b"\r\n\r\n2\r\nab\r\n0\r\n\r\n")
    assert (status, document["code"]) == (400, "bad_request")
    assert fake_broker.logs == {}
