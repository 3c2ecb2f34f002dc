"""Request bodies: what is counted, and that it is forgotten again."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.api.http.asgi import ClientGone, Event, Exchange
from fencelog.api.http.bodies import BodyReader
from fencelog.ledgers.errors import ErrorCode, FencelogError


def exchange(
    *parts: bytes | None, length: int | None = None, client: tuple[str, int] | None = None
) -> Exchange:
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
    return Exchange({"headers": headers, "client": client}, receive, send)


async def test_parts_are_joined() -> None:
    reader = BodyReader()
    assert await reader.read(exchange(b"ab", b"c", b""), 10) == b"abc"
    assert reader.pending_bytes == 0


async def test_bodies_together_have_a_limit() -> None:
    reader = BodyReader(max_total_bytes=10)
    stalled = [
        asyncio.create_task(reader.read(exchange(b"1234", client=(f"192.0.2.{i}", 1)), 100))
        for i in (1, 2)
    ]
    await asyncio.sleep(0)
    assert reader.pending_bytes == 8
    with pytest.raises(FencelogError, match="are being received") as caught:
        await reader.read(exchange(b"1", b"23", b""), 100)
    assert caught.value.code is ErrorCode.OVERLOADED
    for task in stalled:
        task.cancel()
    await asyncio.wait(stalled)
    assert reader.pending_bytes == 0
    assert await reader.read(exchange(b"1", b"23", b""), 100) == b"123"


async def test_one_address_cannot_have_the_space_of_all() -> None:
    """Wherever its connections come from; a client that has gone gives it back."""
    reader = BodyReader(max_total_bytes=20)
    stalled = [
        asyncio.create_task(reader.read(exchange(b"12345", client=("192.0.2.1", port)), 100))
        for port in (1001, 1002)
    ]
    await asyncio.sleep(0)
    with pytest.raises(FencelogError, match="from the same address") as caught:
        await reader.read(exchange(b"1", b"2", b"", client=("192.0.2.1", 1003)), 100)
    assert caught.value.code is ErrorCode.OVERLOADED
    others = exchange(b"1234567", b"89", b"", client=("192.0.2.2", 1001))
    assert await reader.read(others, 100) == b"123456789"
    for task in stalled:
        task.cancel()
    await asyncio.wait(stalled)
    again = exchange(b"1", b"2", b"", client=("192.0.2.1", 1003))
    assert await reader.read(again, 100) == b"12"
    assert reader.pending_bytes == 0


@pytest.mark.parametrize(("size", "most"), [(11, 100), (8, 5)])
async def test_a_body_is_refused_with_its_first_piece(size: int, most: int) -> None:
    """The rest may never come, and what is held until then counts."""
    reader = BodyReader(max_total_bytes=20)
    with pytest.raises(FencelogError):
        await reader.read(exchange(b"x" * size), most)
    assert reader.pending_bytes == 0


async def test_those_without_an_address_count_as_one() -> None:
    reader = BodyReader(max_total_bytes=20)
    stalled = asyncio.create_task(reader.read(exchange(b"1234567890"), 100))
    await asyncio.sleep(0)
    with pytest.raises(FencelogError, match="from the same address"):
        await reader.read(exchange(b"1", b"2", b""), 100)
    stalled.cancel()
    await asyncio.wait({stalled})


async def test_a_body_in_one_piece_is_not_counted() -> None:
    reader = BodyReader(max_total_bytes=20)
    stalled = asyncio.create_task(reader.read(exchange(b"1234567890"), 100))
    await asyncio.sleep(0)
    assert len(await reader.read(exchange(b"x" * 99), 100)) == 99
    stalled.cancel()
    await asyncio.wait({stalled})


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
