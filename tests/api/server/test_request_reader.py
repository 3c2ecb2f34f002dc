"""The requests that a connection takes, their time limits, and the refusal of others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from fencelog.api.http.bodies import BodyReader
from fencelog.api.server.limits import MAX_HEAD_BYTES
from fencelog.ledgers.limits import MAX_ADMIN_BYTES
from tests.support.fake_broker import FakeBroker

PATH = "/v1/topics/ns/t/messages"
LIMITS = "fencelog.api.server.request_reader"
ADMINISTRATION = "/v1/topics/ns/other"


class Client:
    """A client that sends any bytes at all."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        async with asyncio.timeout(10):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")[:-2]
            headers = dict(line.lower().split(": ", 1) for line in lines[1:])
            body = await self.reader.readexactly(int(headers["content-length"]))
        return int(lines[0].split()[1]), headers, json.loads(body)

    async def refused(self, status: int, code: str) -> dict[str, Any]:
        """Check that the next answer is this problem, and the last one."""
        found, headers, document = await self.answer()
        assert (found, document["code"], document["side_effects"]) == (status, code, "none")
        assert headers["content-type"] == "application/problem+json"
        assert headers["connection"] == "close"
        async with asyncio.timeout(10):
            assert await self.reader.read() == b""
        return dict(document)


@pytest.fixture
async def client(service: str, http: httpx.AsyncClient) -> AsyncIterator[Client]:
    assert (await http.post(PATH, content=b"opens the partition")).status_code == 201
    address = urlsplit(service)
    client = Client(*await asyncio.open_connection(address.hostname, address.port))
    yield client
    client.writer.close()


def head(*lines: str, method: str = "POST", path: str = PATH) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


WHOLE = head("Host: localhost", "Content-Length: 1") + b"x"


def appended(fake_broker: FakeBroker) -> int:
    return sum(log.tail_offset for log in fake_broker.logs.values()) - 1


@pytest.mark.parametrize(
    "request_",
    [
        head("Content-Length: 1") + b"x",
        head("Host: a", "Host: b", "Content-Length: 1") + b"x",
        head("Host: localhost", "Transfer-Encoding: gzip, chunked") + b"1\r\nx\r\n0\r\n\r\n",
        head("Host: localhost", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked")
        + b"0\r\n\r\n",
        head("Host: localhost", "Transfer-Encoding: chunked", "Content-Length: 1")
        + b"1\r\nx\r\n0\r\n\r\n",
        head("Host: localhost", "Content-Length: 1", "Content-Length: 1") + b"x",
        head("Host: localhost", "Content-Length: +1") + b"x",
        head("Host: localhost", "Bad Name: 1", "Content-Length: 1") + b"x",
        head("Host: localhost", method="CONNECT", path="x:80"),
        b"\x00\xff garbage\r\n\r\n",
    ],
)
async def test_requests_that_may_mean_two_things_are_refused(
    client: Client, fake_broker: FakeBroker, request_: bytes
) -> None:
    client.writer.write(WHOLE + request_ + WHOLE)
    assert (await client.answer())[0] == 201
    await client.refused(400, "bad_request")
    assert appended(fake_broker) == 1


async def test_a_host_is_not_needed_in_http_1_0(client: Client) -> None:
    client.writer.write(
        WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Host: localhost\r\n", b"")
    )
    status, headers, _ = await client.answer()
    assert (status, headers["connection"]) == (201, "close")
    assert await client.reader.read() == b""


@pytest.mark.parametrize("size", [10, 600_000])
async def test_an_answer_in_http_1_0_has_no_chunks(client: Client, size: int) -> None:
    """It would be sent while it is rendered; the end of the connection is its end."""
    content = head("Host: localhost", f"Content-Length: {size}") + b"a" * size
    client.writer.write(content)
    assert (await client.answer())[0] == 201
    path = b"/v1/topics/ns/t/partitions/0/messages?from=1"
    client.writer.write(b"GET %b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" % path)
    lines, _, body = (await client.reader.read()).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in lines.lower()
    assert [m["text"] for m in json.loads(body)["messages"]] == ["a" * size]


async def test_a_chunked_post_is_one_message(client: Client, fake_broker: FakeBroker) -> None:
    chunked = head("Host: localhost", "Transfer-Encoding: Chunked") + b"1\r\na\r\n2\r\nbc\r\n0\r\n"
    client.writer.write(chunked + b"Fencelog-Key: of a trailer\r\n\r\n" + WHOLE)
    assert [(await client.answer())[2]["offset"] for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("lines", [1, 50])
async def test_heads_have_a_limit(client: Client, pieces: int, lines: int) -> None:
    line = "X: " + "x" * (MAX_HEAD_BYTES // lines)
    data = head("Host: localhost", "Content-Length: 1", *[line] * lines) + b"x"
    size = len(data) // pieces + 1
    client.writer.write(WHOLE)
    for start in range(0, len(data), size):
        client.writer.write(data[start : start + size])
        await asyncio.sleep(0.02)
    assert (await client.answer())[0] == 201
    await client.refused(431, "head_too_large")


async def test_a_head_without_end_is_not_kept(client: Client) -> None:
    client.writer.write(b"GET / HTTP/1.1\r\nX: " + b"x" * 2 * MAX_HEAD_BYTES)
    await client.refused(431, "head_too_large")


async def test_trailers_without_end_are_not_kept(client: Client) -> None:
    client.writer.write(
        head("Host: localhost", "Transfer-Encoding: chunked") + b"1\r\na\r\n0\r\nX: "
    )
    for _ in range(3):
        await asyncio.sleep(0.05)
        client.writer.write(b"x" * MAX_HEAD_BYTES)
    await client.refused(431, "head_too_large")


async def test_requests_before_a_head_do_not_count_as_its_part(client: Client) -> None:
    """A pipeline larger than the limit of a head, which arrives cut within a head."""
    count = 1 + 2 * MAX_HEAD_BYTES // len(WHOLE)
    client.writer.write(WHOLE * count + WHOLE[:20])
    assert [(await client.answer())[0] for _ in range(count)] == [201] * count
    client.writer.write(WHOLE[20:])
    assert (await client.answer())[0] == 201


async def test_the_body_of_a_connect_is_no_request(client: Client, fake_broker: FakeBroker) -> None:
    client.writer.write(head("Host: localhost", f"Content-Length: {len(WHOLE)}", method="CONNECT"))
    await asyncio.sleep(0.05)
    client.writer.write(WHOLE)
    await client.refused(400, "bad_request")
    assert appended(fake_broker) == 0


async def test_a_large_head_in_the_limit_is_taken(client: Client) -> None:
    line = "X: " + "x" * (MAX_HEAD_BYTES - 200)
    body = b"x" * 1000
    client.writer.write(head("Host: localhost", "Content-Length: 1000", line) + body)
    assert (await client.answer())[0] == 201


@pytest.mark.parametrize("sent", [b"POST", WHOLE[:20], WHOLE[:-3]])
async def test_a_head_has_to_arrive(
    client: Client, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(f"{LIMITS}.HEAD_S", 0)
    client.writer.write(sent)
    assert "head" in (await client.refused(408, "request_too_slow"))["detail"]


@pytest.mark.parametrize("limit", ["BODY_S", "BODY_STALL_S"])
@pytest.mark.parametrize(
    ("path", "size"),
    [(PATH, 3), (PATH, 1_000_000), (ADMINISTRATION, 3), (ADMINISTRATION, MAX_ADMIN_BYTES)],
)
async def test_a_body_has_to_arrive(
    client: Client,
    fake_broker: FakeBroker,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    path: str,
    size: int,
) -> None:
    """The limit holds whether the connection or an endpoint reads the body."""
    monkeypatch.setattr(f"{LIMITS}.{limit}", 0)
    method = "POST" if path == PATH else "PUT"
    head_ = head("Host: localhost", f"Content-Length: {size}", "Content-Type: application/json",
                 method=method, path=path)  # fmt: skip
    client.writer.write(head_ + b"{}")
    assert "body" in (await client.refused(408, "request_too_slow"))["detail"]
    assert appended(fake_broker) == 0


async def test_bytes_in_vain_do_not_hide_the_answer(client: Client) -> None:
    """A body that is too large is refused by its length, and its client reads why."""
    client.writer.write(head("Host: localhost", f"Content-Length: {10**9}"))
    answer = asyncio.create_task(client.refused(413, "payload_too_large"))
    for _ in range(20):
        client.writer.write(b"x" * 100_000)
        await asyncio.sleep(0.01)
    await answer


async def test_slow_answers_are_no_slow_requests(
    client: Client, fake_broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("HEAD_S", "BODY_S", "BODY_STALL_S"):
        monkeypatch.setattr(f"{LIMITS}.{limit}", 0)
    monkeypatch.setattr("fencelog.api.server.http_protocol.KEEP_ALIVE_S", 0)
    log = next(iter(fake_broker.logs.values()))
    log.answers_after = asyncio.Event()
    client.writer.write(WHOLE + WHOLE)
    await asyncio.sleep(2.2)
    log.answers_after.set()
    assert [(await client.answer())[2]["offset"] for _ in range(2)] == [1, 2]
    async with asyncio.timeout(10):
        assert await client.reader.read() == b"", "it is idle now"


async def test_the_room_for_all_bodies_is_given_back(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[BodyReader] = []
    make = BodyReader.__init__

    def noted(self: BodyReader, max_total_bytes: int = 1) -> None:
        make(self, max_total_bytes)
        readers.append(self)

    monkeypatch.setattr(BodyReader, "__init__", noted)
    monkeypatch.setattr(f"{LIMITS}.BODY_STALL_S", 0)
    client.writer.write(head("Host: localhost", "Content-Length: 900000") + b"x")
    await client.refused(408, "request_too_slow")
    assert all(reader.pending_bytes == 0 for reader in readers)
