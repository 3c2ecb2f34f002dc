"""Waiting messages: how they become an entry, what each caller is told, and what is refused."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.broker.append.conditions import Repeated, Tracked
from fencelog.broker.append.pending import (
    GROUP_BYTES,
    GROUP_MESSAGES,
    MESSAGE_OVERHEAD_BYTES,
    AppendFuture,
    AppendResult,
    PendingEntry,
    WaitingGroup,
    check_batch_size,
    message_size,
)
from fencelog.broker.append.pending_bytes import PendingBytes
from fencelog.broker.limits import MAX_BROKER_PENDING_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import (
    MAX_RANGES,
    RANGE,
    RANGE_KEY,
    RANGE_NO_PRODUCER,
    RANGE_SEQUENCE,
    SequenceRange,
    header_size,
)
from fencelog.ledgers.limits import (
    MAX_ENTRY_BYTES,
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    MAX_KEY_BYTES,
    MAX_MESSAGE_BYTES,
)
from fencelog.ledgers.record_batch import Message, encode_batch, encode_values


def futures(count: int) -> list[AppendFuture]:
    loop = asyncio.get_running_loop()
    return [loop.create_future() for _ in range(count)]


def entry(waiting: list[AppendFuture], *, is_group: bool) -> PendingEntry:
    return PendingEntry(b"batch", 3, 30, waiting, is_group, publish_time_us=77)


async def test_the_caller_of_a_batch_learns_where_all_of_it_is() -> None:
    (caller,) = waiting = futures(1)
    entry(waiting, is_group=False).succeed(4, 100)
    assert await caller == AppendResult(partition=4, offset=100, count=3, publish_time_us=77)


async def test_each_caller_of_a_group_learns_where_its_message_is() -> None:
    waiting = futures(3)
    waiting[1].cancel()
    entry(waiting, is_group=True).succeed(4, 100)
    assert await waiting[0] == AppendResult(4, 100, 1, 77)
    assert waiting[1].cancelled()
    assert await waiting[2] == AppendResult(4, 102, 1, 77)


async def test_a_caller_who_has_gone_is_told_nothing() -> None:
    (caller,) = waiting = futures(1)
    caller.cancel()
    entry(waiting, is_group=False).succeed(4, 100)
    assert caller.cancelled()


async def test_all_callers_are_told_of_a_failure_each_by_an_error_of_its_own() -> None:
    waiting = futures(3)
    waiting[0].cancel()
    pending = entry(waiting, is_group=True)
    was_given_up = pending.is_given_up
    failure = FencelogError(ErrorCode.APPEND_UNKNOWN, "who knows", bookies=["b1"])
    pending.fail(failure)
    assert (was_given_up, pending.is_given_up) == (False, True)
    told = [future.exception() for future in waiting[1:]]
    assert told[0] is not told[1]
    for error in told:
        assert isinstance(error, FencelogError)
        assert (error.code, error.detail) == (failure.code, failure.detail)
        assert error.extra == failure.extra
    waiting_group = WaitingGroup(futures=futures(1))
    waiting_group.fail(failure)
    assert isinstance(waiting_group.futures[0].exception(), FencelogError)


PLAIN = Message(b"value")


async def test_a_group_of_values_alone_is_encoded_as_such() -> None:
    group = WaitingGroup()
    waiting = futures(2)
    for future in waiting:
        group.add(PLAIN, 10, future)
    built = group.build()
    assert built.batch == encode_values([b"value", b"value"])
    assert (built.count, built.size, built.futures, built.is_group) == (2, 20, waiting, True)


@pytest.mark.parametrize(
    "message",
    [
        Message(b"v", b"key"),
        Message(b"v", None, 5),
        Message(b"v", None, None, (("name", b"text"),)),
    ],
    ids=["key", "event time", "headers"],
)
async def test_a_group_with_more_than_values_keeps_it(message: Message) -> None:
    group = WaitingGroup()
    for each, future in zip((PLAIN, message), futures(2), strict=True):
        group.add(each, 10, future)
    assert group.build().batch == encode_batch([PLAIN, message])


async def test_a_group_is_full_by_bytes_or_by_messages() -> None:
    by_bytes = WaitingGroup()
    full = [by_bytes.is_full]
    for size in (GROUP_BYTES - 1, 1):
        by_bytes.add(PLAIN, size, *futures(1))
        full.append(by_bytes.is_full)
    assert full == [False, False, True]
    assert WaitingGroup(messages=[PLAIN] * GROUP_MESSAGES).is_full


def test_a_broker_begins_with_nothing_waiting() -> None:
    assert (PendingBytes().limit, PendingBytes().total) == (MAX_BROKER_PENDING_BYTES, 0)


def test_a_message_counts_with_all_that_belongs_to_it() -> None:
    assert message_size(PLAIN) == 5 + MESSAGE_OVERHEAD_BYTES
    whole = Message(b"value", b"key", -5, (("n\u00e4me", b"text"), ("", b"")))
    assert message_size(whole) == 5 + 3 + 5 + 4 + MESSAGE_OVERHEAD_BYTES
    largest = Message(
        bytes(MAX_MESSAGE_BYTES),
        bytes(MAX_KEY_BYTES),
        2**63 - 1,
        (("n", bytes(MAX_HEADER_BYTES - 1)), *((("", b""),) * (MAX_HEADERS - 1))),
    )
    assert message_size(largest) == (
        MAX_MESSAGE_BYTES + MAX_KEY_BYTES + MAX_HEADER_BYTES + MESSAGE_OVERHEAD_BYTES
    )


@pytest.mark.parametrize(
    ("message", "code", "what"),
    [
        (
            Message(bytes(MAX_MESSAGE_BYTES + 1), None, None, ()),
            ErrorCode.PAYLOAD_TOO_LARGE,
            "value",
        ),
        (Message(b"", bytes(MAX_KEY_BYTES + 1), None, ()), ErrorCode.PAYLOAD_TOO_LARGE, "key"),
        (Message(b"", None, 2**63, ()), ErrorCode.BAD_REQUEST, "event time"),
        (Message(b"", None, -(2**63) - 1, ()), ErrorCode.BAD_REQUEST, "event time"),
        (Message(b"", None, None, (("\ud800", b""),)), ErrorCode.BAD_REQUEST, "header name"),
        (
            Message(b"", None, None, (("", b""),) * (MAX_HEADERS + 1)),
            ErrorCode.PAYLOAD_TOO_LARGE,
            "65 headers",
        ),
        (
            Message(b"", None, None, (("n", bytes(MAX_HEADER_BYTES)),)),
            ErrorCode.PAYLOAD_TOO_LARGE,
            "headers takes",
        ),
    ],
)
def test_a_message_over_a_limit_is_refused(message: Message, code: ErrorCode, what: str) -> None:
    with pytest.raises(FencelogError, match=what) as caught:
        message_size(message)
    assert caught.value.code is code


async def test_a_group_keeps_whose_its_messages_are() -> None:
    group = WaitingGroup()
    callers = futures(4)
    appends = [Tracked(SequenceRange(1, RANGE_SEQUENCE, bytes(16), 0, n)) for n in range(2)]
    for place, caller in enumerate(callers):
        group.add(Message(b"x"), 1, caller)
        if place in (1, 2):
            group.track(appends[place - 1])
    entry = group.build()
    assert entry.ranges is not None
    assert (group.count, entry.ranges.tracked) == (4, appends)
    assert entry.ranges.found == [
        SequenceRange(1, RANGE_NO_PRODUCER),
        SequenceRange(2, RANGE_SEQUENCE),
        SequenceRange(1, RANGE_NO_PRODUCER),
    ]
    (repeated,) = futures(1)
    appends[1].add_waiter(repeated, appends[1].sequences)
    entry.succeed(4, 100)
    assert repeated.result() == Repeated(4, 102, 1, 0)


@pytest.mark.parametrize("is_built", [True, False])
async def test_who_repeats_an_append_is_told_of_its_failure(is_built: bool) -> None:
    group = WaitingGroup()
    caller, repeated = futures(2)
    tracked = Tracked(SequenceRange(1, RANGE_SEQUENCE))
    group.add(Message(b"x"), 1, caller)
    group.track(tracked)
    tracked.add_waiter(repeated, tracked.sequences)
    failure = FencelogError(ErrorCode.APPEND_UNKNOWN, "who knows")
    (group.build() if is_built else group).fail(failure)
    for future in (caller, repeated):
        error = future.exception()
        assert isinstance(error, FencelogError)
        assert error.code is failure.code


async def test_a_group_is_full_of_ranges_before_its_header_is() -> None:
    group = WaitingGroup()
    while not group.is_full_of_ranges:
        group.add(Message(b"x"), 1, futures(1)[0])
        group.add(Message(b"x"), 1, futures(1)[0])
        group.track(Tracked(SequenceRange(1, RANGE_KEY)))
    group.add(Message(b"x"), 1, futures(1)[0])
    ranges = group.build().ranges
    assert ranges is not None
    assert MAX_RANGES - 2 <= len(ranges.found) <= MAX_RANGES


def test_a_batch_over_the_largest_entry_is_refused() -> None:
    check_batch_size(MAX_ENTRY_BYTES - header_size(0))
    with pytest.raises(FencelogError) as caught:
        check_batch_size(MAX_ENTRY_BYTES - header_size(1) + RANGE.size + 1)
    assert caught.value.code is ErrorCode.PAYLOAD_TOO_LARGE
