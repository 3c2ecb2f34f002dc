"""The queue of appends: their order, and the offset that the next one gets."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.broker.append.conditions import AppendFuture
from fencelog.broker.append.queue import AppendQueue
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message

MESSAGE = Message(b"x")
GONE = FencelogError(ErrorCode.DRAINING, "the log is being closed")


def queue_from(offset: int) -> AppendQueue:
    return AppendQueue(offset, lambda: 0)


def add(queue: AppendQueue, messages: int) -> list[AppendFuture]:
    futures: list[AppendFuture] = []
    for _ in range(messages):
        futures.append(asyncio.get_running_loop().create_future())
        queue.add_message(MESSAGE, len(MESSAGE.value), futures[-1], None)
    return futures


async def test_the_next_offset_counts_the_group_that_messages_still_join() -> None:
    queue = queue_from(10)
    add(queue, 2)
    assert queue.next_offset == 12
    queue.new_group()
    add(queue, 1)
    assert queue.next_offset == 13


async def test_a_group_is_counted_once_when_offsets_are_counted_again() -> None:
    """Appends before it were given up: what the next one is promised is what it gets."""
    queue = queue_from(10)
    add(queue, 2)
    queue.new_group()
    add(queue, 3)
    queue.recount(4)
    assert queue.next_offset == 9
    add(queue, 1)
    assert queue.next_offset == 10


async def test_nothing_is_counted_of_a_queue_that_was_given_up() -> None:
    queue = queue_from(10)
    futures = add(queue, 2)
    assert queue.give_up(GONE) >= 2 * len(MESSAGE.value)
    queue.recount(7)
    assert queue.next_offset == 7
    for future in futures:
        with pytest.raises(FencelogError, match="the log is being closed"):
            await future
    later = add(queue, 1)
    assert [item.futures for item in queue.items] == [later]
