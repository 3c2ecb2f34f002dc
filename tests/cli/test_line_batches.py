"""Cutting a byte stream into lines, against the naive definition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.api.streams.line_batches import LineBatch, LineBatcher
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_MESSAGE_BYTES


def cut(chunks: list[bytes], *, max_lines: int = 50_000) -> Iterator[LineBatch]:
    batcher = LineBatcher("a.log", max_lines=max_lines)
    for chunk in chunks:
        yield from batcher.feed(chunk)
    yield from batcher.finish()


def batches_of(chunks: list[bytes], *, max_lines: int = 50_000) -> list[LineBatch]:
    return list(cut(chunks, max_lines=max_lines))


def lines_of(batches: list[LineBatch]) -> list[bytes]:
    return [line for batch in batches for line in batch.lines]


TEXT = st.lists(st.sampled_from([b"\n", b"\r\n", b"a", b"\xff\x00", b"bc\r"])).map(b"".join)


@given(chunks=st.lists(TEXT), max_lines=st.integers(1, 5))
def test_lines_are_what_split_says_wherever_chunks_end(chunks: list[bytes], max_lines: int) -> None:
    batches = batches_of(chunks, max_lines=max_lines)
    expected = b"".join(chunks).split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert lines_of(batches) == expected
    assert all(0 < len(batch.lines) <= max_lines for batch in batches)


@given(chunks=st.lists(TEXT), max_lines=st.integers(1, 5))
def test_batches_are_numbered_without_a_gap(chunks: list[bytes], max_lines: int) -> None:
    next_line = 1
    for batch in batches_of(chunks, max_lines=max_lines):
        assert batch.first_line == next_line
        next_line = batch.last_line + 1


def test_a_batch_leaves_as_soon_as_its_lines_have_ended() -> None:
    batcher = LineBatcher("stdin")
    assert [batch.lines for batch in batcher.feed(b"one\ntw")] == [[b"one"]]
    assert [batch.lines for batch in batcher.feed(b"o\n")] == [[b"two"]]
    assert list(batcher.finish()) == []


def test_the_longest_line_is_allowed() -> None:
    longest = b"x" * MAX_MESSAGE_BYTES
    assert lines_of(batches_of([longest[:100], longest[100:] + b"\nend"])) == [longest, b"end"]


@pytest.mark.parametrize(
    "chunks", [[b"x" * MAX_MESSAGE_BYTES, b"x"], [b"x" * MAX_MESSAGE_BYTES + b"x\n"]]
)
def test_a_line_over_the_limit_is_named_after_the_lines_before_it(chunks: list[bytes]) -> None:
    found: list[LineBatch] = []
    chunks = [b"one\ntwo\n" + chunks[0], *chunks[1:]]
    with pytest.raises(FencelogError, match=r"a\.log, line 3 is longer than") as raised:
        found.extend(cut(chunks))
    assert lines_of(found) == [b"one", b"two"]
    assert raised.value.code is ErrorCode.PAYLOAD_TOO_LARGE
    assert raised.value.extra == {"line": 3}
