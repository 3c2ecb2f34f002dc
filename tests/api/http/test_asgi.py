"""An answer in parts leaves the loop to others between them."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.api.http.asgi import ClientGone, Event, Exchange
from fencelog.api.http.waits import Waits

PARTS_AFTER_THE_END = 3


async def test_a_stream_that_waits_for_nothing_ends_with_its_client() -> None:
    """What is sent to a client that has gone is dropped without a wait, as a server does it."""
    gone = asyncio.Event()
    sent = sent_after = 0

    async def receive() -> Event:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(event: Event) -> None:
        nonlocal sent, sent_after
        sent += 1
        sent_after += gone.is_set()
        assert sent < 1_000_000, "nothing has ended the stream"

    exchange = Exchange({"method": "GET"}, receive, send)

    async def stream() -> None:
        while True:
            await exchange.send_body(b"part", more=True)

    asyncio.get_running_loop().call_later(0.001, gone.set)
    with pytest.raises(ClientGone):
        await Waits().run(exchange, stream())
    assert sent_after <= PARTS_AFTER_THE_END


async def test_the_last_part_of_an_answer_leaves_without_a_turn_of_the_loop() -> None:
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1

    async def receive() -> Event:
        raise AssertionError("nothing is received")

    async def send(event: Event) -> None:
        assert turns == 0

    asyncio.get_running_loop().call_soon(count)
    await Exchange({"method": "GET"}, receive, send).respond(200, b"text/plain", b"whole")
    assert turns == 0
