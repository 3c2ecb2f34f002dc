"""The body of a request on its way to the application."""

from __future__ import annotations

import asyncio
import logging
import tracemalloc
from unittest.mock import Mock

import pytest

from fencelog.api.server.request import Cycle
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import KIB

PIECE = bytes(64 * KIB)
PIECES = 32


@pytest.fixture
def cycle() -> Cycle:
    log = logging.getLogger(__name__)
    return Cycle(
        scope={},
        transport=Mock(),
        flow=Mock(),
        logger=log,
        access_logger=log,
        access_log=False,
        default_headers=[],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=True,
        on_response=Mock(),
    )


async def received(cycle: Cycle) -> tuple[bytes, bool]:
    cycle.message_event.set()
    event = await cycle.receive()
    assert event["type"] == "http.request"
    return event["body"], event["more_body"]


async def test_each_piece_is_received_once_in_order(cycle: Cycle) -> None:
    cycle.add_body(b"one")
    cycle.add_body(b"two")
    assert cycle.waiting_bytes == 6
    assert await received(cycle) == (b"onetwo", True)
    assert cycle.waiting_bytes == 0
    cycle.add_body(b"three")
    cycle.more_body = False
    assert await received(cycle) == (b"three", False)
    assert await received(cycle) == (b"", False)


async def test_the_pieces_of_a_body_are_copied_once(cycle: Cycle) -> None:
    tracemalloc.start()
    try:
        for _ in range(PIECES):
            cycle.add_body(PIECE)
        body, _ = await received(cycle)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(body) == PIECES * len(PIECE)
    assert most < 1.5 * len(body)


async def test_a_body_that_came_as_one_piece_is_not_copied(cycle: Cycle) -> None:
    cycle.add_body(PIECE)
    assert (await received(cycle))[0] is PIECE


async def test_a_body_that_is_broken_off_is_an_error(cycle: Cycle) -> None:
    cycle.add_body(b"the beginning")
    cycle.break_off(FencelogError(ErrorCode.REQUEST_TOO_SLOW, "no more came"))
    with pytest.raises(FencelogError, match="no more came"):
        await received(cycle)
