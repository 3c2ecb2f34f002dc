"""The load generator against a small server of the test's own that answers what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fencelog.api.bench.harness.load import closed_loop, connected, encode_request, repeated
from fencelog.ledgers.errors import FencelogError

CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nX-Number: 7\r\n\r\nok"


@asynccontextmanager
async def serving(
    *chunks: bytes, seen: list[bytes] | None = None, hang_up: bool = False
) -> AsyncIterator[str]:
    """Answers every request with the same chunks, each in a segment of its own."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                body = await reader.readexactly(size)
                if seen is not None:
                    seen.append(head + body)
                for chunk in chunks:
                    writer.write(chunk)
                    await writer.drain()
                    await asyncio.sleep(0)
                if hang_up:
                    return
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"
    finally:
        server.close()
        await server.wait_closed()


async def test_an_answer_without_content_is_whole_at_the_end_of_its_head() -> None:
    async with serving(b"HTTP/1.1 204 No Content\r\n\r\n") as url, connected(url) as connection:
        for _ in range(2):
            answer = await connection.request(encode_request("DELETE", url, "/"))
            assert (answer.status, answer.body) == (204, b"")


async def test_an_answer_to_head_has_no_body_whatever_its_length_says() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
    async with serving(head) as url, connected(url) as connection:
        for _ in range(2):
            answer = await connection.request(encode_request("HEAD", url, "/"))
            assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize(
    "chunks",
    [
        [CREATED],
        [CREATED[:-1], CREATED[-1:]],
        [CREATED[:30], CREATED[30:]],
        [bytes([byte]) for byte in CREATED],
    ],
    ids=["whole", "body cut", "head cut", "single bytes"],
)
async def test_an_answer_is_read_however_it_is_cut(chunks: list[bytes]) -> None:
    async with serving(*chunks) as url, connected(url) as connection:
        for _ in range(2):
            response = await connection.request(encode_request("POST", url, "/", body=b"x"))
            assert (response.status, response.body) == (201, b"ok")
            assert response.header("X-Number") == "7"
            assert response.header("absent") == ""


async def test_a_closed_loop_counts_exactly_what_was_answered() -> None:
    seen: list[bytes] = []
    async with serving(CREATED, seen=seen) as url:
        request = encode_request("POST", url, "/p", body=b"body", headers={"Content-Type": "a/b"})
        load = await closed_loop([url], repeated(request, 3), seconds=0.05)

    assert load.requests == len(seen) == len(load.latencies_s) >= 3
    assert set(seen) == {request}
    assert load.latencies_s == sorted(load.latencies_s)
    assert load.per_s == pytest.approx(load.requests / load.elapsed_s)


async def test_a_closed_loop_ends_at_the_first_refusal() -> None:
    refusal = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"
    async with serving(refusal) as url:
        with pytest.raises(FencelogError, match="answered 503: busy"):
            await closed_loop([url], repeated(encode_request("POST", url, "/"), 2), seconds=5)


@pytest.mark.parametrize("part", [b"", CREATED[:-1]], ids=["no answer", "half an answer"])
async def test_a_lost_connection_is_an_error(part: bytes) -> None:
    async with serving(part, hang_up=True) as url:
        with pytest.raises(FencelogError, match="connection was lost"):
            await closed_loop([url], repeated(encode_request("POST", url, "/"), 1), seconds=5)


async def test_an_answer_without_its_length_is_an_error() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving(chunked) as url, connected(url) as connection:
        with pytest.raises(FencelogError, match="no Content-Length"):
            await connection.request(encode_request("GET", url, "/"))


@pytest.mark.parametrize("chunks", [(b"",), (CREATED,)], ids=["lost", "answered"])
async def test_who_waits_no_more_gets_neither_an_answer_nor_an_error(chunks: list[bytes]) -> None:
    troubles: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))
    async with serving(*chunks, hang_up=True) as url, connected(url) as connection:
        waiting = asyncio.create_task(connection.request(encode_request("POST", url, "/")))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
        await asyncio.sleep(0.1)
    assert troubles == []
