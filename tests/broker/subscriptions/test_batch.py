"""Stored batches as pulls open them: one, or adjacent ones together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.broker.read.read_fairness import STEP_BYTES
from fencelog.broker.read.stored import StoredBatch
from fencelog.broker.subscriptions.batch import (
    DELIVER_AT,
    FEW_MESSAGES,
    OpenedBatch,
    opened_together,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import CODEC_ZSTD, Message, encode_batch

MESSAGES = st.builds(
    Message,
    st.binary(max_size=9),
    st.none() | st.binary(max_size=5),
    st.none() | st.integers(-5, 5),
    st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=3).map(tuple),
)

DELAYED = Message(b"later", headers=((DELIVER_AT, b"1"),))


def stored(offset: int, messages: Sequence[Message]) -> StoredBatch:
    """Return a batch that was published at a time that tells its offset."""
    batch = memoryview(encode_batch(messages))
    return StoredBatch(offset, len(messages), 1000 + offset, batch)


@given(st.lists(MESSAGES, min_size=1, max_size=20), st.data())
def test_some_messages_of_a_batch_are_decoded_as_all_are(
    messages: list[Message], data: st.DataObject
) -> None:
    batch = OpenedBatch(stored(7, messages))
    first = data.draw(st.integers(0, len(messages) - 1))
    end = data.draw(st.integers(first + 1, len(messages)))
    assert batch.messages(7 + first, 7 + end) == messages[first:end]


def test_a_batch_that_cannot_be_read_is_named() -> None:
    with pytest.raises(FencelogError) as caught:
        OpenedBatch(StoredBatch(7, 1, 1, memoryview(bytes(80))))
    assert caught.value.code is ErrorCode.CORRUPT
    assert "offset 7" in caught.value.detail


@given(
    st.lists(st.lists(MESSAGES, min_size=1, max_size=4), min_size=1, max_size=8),
    st.sets(st.integers(0, 7)),
    st.integers(1, 9),
    st.data(),
)
def test_batches_that_are_opened_together_are_what_they_are_alone(
    contents: list[list[Message]], gaps: set[int], most: int, data: st.DataObject
) -> None:
    batches: list[StoredBatch] = []
    offset = 5
    for number, messages in enumerate(contents):
        offset += number in gaps
        batches.append(stored(offset, messages))
        offset += len(messages)
    groups = list(opened_together(batches, most))
    alone = [OpenedBatch(batch) for batch in batches]
    expected = [
        (offset, batch.messages(offset, offset + 1), batch.published_us(offset))
        for batch in alone
        for offset in range(batch.base_offset, batch.end_offset)
    ]
    assert expected == [
        (offset, group.messages(offset, offset + 1), group.published_us(offset))
        for group in groups
        for offset in range(group.base_offset, group.end_offset)
    ]
    begins = {batch.base_offset: batch for batch in alone}
    for group in groups:
        size = group.end_offset - group.base_offset
        assert size <= most or begins[group.base_offset].end_offset == group.end_offset
        first = data.draw(st.integers(group.base_offset, group.end_offset - 1))
        end = data.draw(st.integers(first + 1, group.end_offset))
        one_by_one = [group.messages(offset, offset + 1)[0] for offset in range(first, end)]
        assert group.messages(first, end) == one_by_one


def test_adjacent_batches_are_one_group_as_far_as_it_may_go() -> None:
    batches = [stored(offset, [Message(b"x")]) for offset in range(7)]
    groups = [(each.base_offset, each.end_offset) for each in opened_together(batches, 3)]
    assert groups == [(0, 3), (3, 6), (6, 7)]
    assert list(opened_together([], 3)) == []


def test_a_group_has_marks_if_one_of_its_batches_has() -> None:
    plain, marked = [Message(b"x")], [DELAYED]
    (group,) = opened_together([stored(0, plain), stored(1, marked), stored(2, plain)], 9)
    assert group.has_marks
    (group,) = opened_together([stored(0, plain), stored(1, plain)], 9)
    assert not group.has_marks


def test_batches_before_a_damaged_one_come_first() -> None:
    good = [stored(offset, [Message(b"x")]) for offset in range(2)]
    opening = opened_together([*good, StoredBatch(2, 1, 1, memoryview(bytes(80)))], 9)
    assert next(opening).end_offset == 2
    with pytest.raises(FencelogError) as caught:
        next(opening)
    assert caught.value.code is ErrorCode.CORRUPT
    assert "offset 2" in caught.value.detail


def test_what_is_large_when_it_is_unpacked_is_opened_alone() -> None:
    """The first alone costs what it must; none of the others is unpacked before its turn."""
    large = encode_batch([Message(bytes(STEP_BYTES))], codec=CODEC_ZSTD)
    assert len(large) < 1000
    batches = [StoredBatch(offset, 1, 1, memoryview(large)) for offset in range(3)]
    small = [stored(3, [Message(b"x")]), stored(4, [Message(b"y")])]
    groups = [(each.base_offset, each.end_offset) for each in opened_together(batches + small, 99)]
    assert groups == [(0, 1), (1, 2), (2, 3), (3, 5)]


def test_batches_of_many_messages_are_opened_alone() -> None:
    many = [Message(b"x")] * (FEW_MESSAGES + 1)
    batches = [stored(0, [Message(b"x")]), stored(1, many), stored(1 + len(many), many)]
    groups = [each.base_offset for each in opened_together(batches, 999)]
    assert groups == [0, 1, 1 + len(many)]
