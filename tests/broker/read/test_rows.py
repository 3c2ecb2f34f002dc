"""Rows of stored batches: all of them, in order, in steps."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.broker.read.read_fairness import STEP_BYTES
from fencelog.broker.read.rows import Row, end_of_rows, rows_in_steps
from fencelog.broker.read.stored import CompactedBatch, ReadResult, StoredBatch
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import CODEC_ZSTD, Message, encode_batch

PLAIN = st.builds(
    Message, st.binary(max_size=3), key=st.none(), event_time=st.none(), headers=st.just(())
)
KEYED = st.builds(
    Message, st.just(b"v"), key=st.just(b"k"), event_time=st.none(), headers=st.just(())
)
CONTENTS = st.lists(st.lists(PLAIN | KEYED, min_size=1, max_size=7), max_size=9)


def stored(offset: int, messages: list[Message]) -> StoredBatch:
    """Return a batch that was published at a time that tells its offset."""
    batch = memoryview(encode_batch(messages))
    return StoredBatch(offset, len(messages), 1000 + offset, batch)


@given(CONTENTS, st.sets(st.integers(0, 8)), st.integers(0, 40), st.integers(0, 40))
def test_rows_are_those_of_all_batches_within_the_range(
    contents: list[list[Message]], gaps: set[int], start: int, end: int
) -> None:
    batches: list[StoredBatch] = []
    expected: list[Row] = []
    offset = 0
    for number, messages in enumerate(contents):
        offset += number in gaps
        batches.append(stored(offset, messages))
        for message in messages:
            if start <= offset < end:
                expected.append((offset, batches[-1].publish_time_us, message))
            offset += 1
    batches = [batch for batch in batches if batch.end_offset > start]
    for step in (1, 3, 10):
        steps = list(rows_in_steps(batches, start=start, end=end, step=step))
        assert [row for rows in steps for row in rows] == expected
        assert all(1 <= len(rows) <= step for rows in steps)
        assert all(b[0] == a[0] + 1 for rows in steps for a, b in pairwise(rows))


@pytest.mark.parametrize(
    ("start", "limit", "end"),
    [(0, 1, 1), (0, 2, 2), (1, 2, 4), (0, 4, 8), (5, 1, 8), (0, 5, 12), (9, 1, 12), (0, 99, 12)],
)
def test_a_read_goes_on_behind_the_last_message_that_it_answers(
    start: int, limit: int, end: int
) -> None:
    """The second batch has gaps, and what follows it has been read too."""
    view = CompactedBatch(3, 3, 0, memoryview(b""), array("q", [3, 7, 9]), array("q", [0] * 3))
    read = ReadResult([stored(0, [Message(b"a"), Message(b"b")]), view], 12, 20)
    assert end_of_rows(read, start=start, limit=limit) == end


def test_single_messages_are_read_in_few_steps() -> None:
    batches = [stored(offset, [Message(b"x")]) for offset in range(25)]
    steps = list(rows_in_steps(batches, start=0, end=25, step=10))
    assert [len(rows) for rows in steps] == [10, 10, 5]


def test_rows_before_a_damaged_batch_come_first() -> None:
    good = [stored(offset, [Message(b"x")]) for offset in range(2)]
    steps = rows_in_steps([*good, StoredBatch(2, 1, 1, memoryview(bytes(80)))], start=0, end=9)
    assert [offset for offset, _, _ in next(steps)] == [0, 1]
    with pytest.raises(FencelogError) as caught:
        next(steps)
    assert caught.value.code is ErrorCode.CORRUPT


def test_what_is_large_when_it_is_unpacked_is_a_step_of_its_own() -> None:
    large = encode_batch([Message(bytes(STEP_BYTES))], codec=CODEC_ZSTD)
    assert len(large) < 1000
    batches = [StoredBatch(offset, 1, 1, memoryview(large)) for offset in range(3)]
    batches += [stored(offset, [Message(b"x")]) for offset in range(3, 5)]
    steps = list(rows_in_steps(batches, start=0, end=5))
    assert [len(rows) for rows in steps] == [1, 1, 1, 2]
