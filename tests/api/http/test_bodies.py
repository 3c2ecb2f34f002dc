"""Request bodies: what is counted, and that it is forgotten again."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.api.http.asgi import ClientGone, Event, Exchange
from fencelog.api.http.bodies import BodyReader
from fencelog.ledgers.errors import ErrorCode, FencelogError


def exchange(*parts: bytes | None, length: int | None = None) -> Exchange:
    """A request whose body comes in these parts; None is a client that goes, and without an end
    it stalls."""
    waiting = list(parts)

    async def receive() -> Event:
        if not waiting:
            await asyncio.get_running_loop().create_future()
        part = waiting.pop(0)
        if part is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": part != b"" and len(part) < 99}

    async def send(event: Event) -> None:
        raise AssertionError(f"reading a body answered {event}")

    headers = [] if length is None else [(b"content-length", b"%d" % length)]
    return Exchange({"headers": headers}, receive, send)


async def test_parts_are_joined() -> None:
    reader = BodyReader()
    assert await reader.read(exchange(b"ab", b"c", b""), 10) == b"abc"
    assert reader.pending_bytes == 0


async def test_bodies_together_have_a_limit() -> None:
    reader = BodyReader(max_total_bytes=10)
    stalled = asyncio.create_task(reader.read(exchange(b"12345678"), 100))
    await asyncio.sleep(0)
    assert reader.pending_bytes == 8
    with pytest.raises(FencelogError) as caught:
        await reader.read(exchange(b"1", b"23", b""), 100)
    assert caught.value.code is ErrorCode.OVERLOADED
    stalled.cancel()
    await asyncio.wait({stalled})
    assert reader.pending_bytes == 0
    assert await reader.read(exchange(b"1", b"23", b""), 100) == b"123"


@pytest.mark.parametrize("parts", [(b"123456", b""), (b"123", b"456", b""), (b"x" * 99,)])
async def test_a_body_that_grows_past_its_limit(parts: tuple[bytes, ...]) -> None:
    reader = BodyReader()
    with pytest.raises(FencelogError) as caught:
        await reader.read(exchange(*parts), 5)
    assert caught.value.code is ErrorCode.PAYLOAD_TOO_LARGE
    assert reader.pending_bytes == 0


async def test_an_announced_body_is_refused_unread() -> None:
    unread = exchange(None, length=6)  # reading it would find the client gone
    with pytest.raises(FencelogError) as caught:
        await BodyReader().read(unread, 5)
    assert caught.value.extra["limit"] == 5


async def test_a_client_that_goes() -> None:
    reader = BodyReader()
    with pytest.raises(ClientGone):
        await reader.read(exchange(b"ab", None), 10)
    assert reader.pending_bytes == 0
