"""Merging a few large batches: the same messages as the plain decoder, or left to the merging of
small ones."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import pytest

from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.record_batch import Message, decode_batch, encode_batch
from fencelog.ledgers.record_batch.codecs import CODEC_NONE, CODEC_ZSTD
from fencelog.ledgers.record_batch.format import (
    BODY_START,
    HAS_EVENT_TIME,
    HAS_HEADERS,
    HAS_KEY,
    BatchView,
)
from fencelog.spark_connector.read.columns import arrow_schema
from fencelog.spark_connector.read.decode import StoredBatches, decode
from fencelog.spark_connector.read.merge import InvalidBatchError
from fencelog.spark_connector.read.merge_large import LARGE_BATCH_MESSAGES, merge_large

ALL = HAS_KEY | HAS_EVENT_TIME | HAS_HEADERS
COUNT = LARGE_BATCH_MESSAGES + 7
OFFSETS_END = BODY_START + 4 * (COUNT + 1)

MakeMessage = Callable[[int], Message]


def plain(number: int) -> Message:
    return Message(b"v" * (number % 11))


def full(number: int) -> Message:
    return Message(b"v%d" % number, b"k" * (number % 3), -number)


def batch_of(make: MakeMessage, *, first: int = 0, codec: int = CODEC_NONE) -> bytes:
    return encode_batch([make(number) for number in range(first, first + COUNT)], codec=codec)


def merged(batches: Sequence[bytes], columns: int = ALL) -> BatchView | None:
    return merge_large([memoryview(batch) for batch in batches], [COUNT] * len(batches), columns)


def messages_of(view: BatchView) -> list[Message]:
    columns = (view.values(), view.keys(), view.event_time_list(), view.headers())
    return list(map(Message._make, zip(*columns, strict=True)))


def sealed(batch: bytearray) -> bytes:
    """The batch with the checksum that its contents have now."""
    struct.pack_into("<I", batch, 8, crc32c(batch[12:], crc32c(batch[:8])))
    return bytes(batch)


def with_offset(batch: bytes, index: int, offset: int) -> bytes:
    """The batch of a wrong writer: one offset of its values is another one."""
    wrong = bytearray(batch)
    struct.pack_into("<i", wrong, BODY_START + 4 * index, offset)
    return sealed(wrong)


@pytest.mark.parametrize("codec", [CODEC_NONE, CODEC_ZSTD])
@pytest.mark.parametrize("make", [plain, full])
def test_large_batches_are_what_the_plain_decoder_reads(make: MakeMessage, codec: int) -> None:
    batches = [batch_of(make, codec=codec), batch_of(make, first=5), batch_of(make, first=9)]
    view = merged(batches)
    assert view is not None
    assert messages_of(view) == [message for batch in batches for message in decode_batch(batch)]


def test_columns_that_are_not_wanted_are_left_out() -> None:
    view = merged([batch_of(full), batch_of(lambda n: full(n)._replace(event_time=None))], HAS_KEY)
    assert view is not None
    assert view.columns == HAS_KEY
    assert not view.event_times


@pytest.mark.parametrize(
    "other",
    [
        plain,
        lambda number: full(number)._replace(key=None if number == 3 else b"k"),
        lambda number: full(number)._replace(event_time=None if number == 3 else number),
        lambda number: full(number)._replace(headers=(("n", b"v"),)),
    ],
    ids=["other columns", "a null key", "a null time", "headers"],
)
def test_batches_that_need_more_are_left_to_the_other_merging(other: MakeMessage) -> None:
    assert merged([batch_of(full), batch_of(other)]) is None
    assert merged([batch_of(other), batch_of(full)]) is None


def test_small_batches_are_left_to_the_other_merging() -> None:
    batch = memoryview(encode_batch([plain(number) for number in range(LARGE_BATCH_MESSAGES - 1)]))
    assert merge_large([batch] * 2, [LARGE_BATCH_MESSAGES - 1] * 2, 0) is None


def test_a_batch_with_another_count_or_no_whole_header_is_left_to_it() -> None:
    batch = memoryview(batch_of(plain))
    assert merge_large([batch, batch], [COUNT, COUNT + 1], 0) is None
    assert merge_large([batch, batch[: BODY_START - 8]], [COUNT, COUNT], 0) is None


@pytest.mark.parametrize("place", [0, 2, 4, 8, 12, 16, 24, BODY_START, OFFSETS_END + 20])
def test_a_changed_byte_is_left_to_it(place: int) -> None:
    damaged = bytearray(batch_of(full))
    damaged[place] ^= 1
    assert merged([batch_of(full), bytes(damaged)]) is None


@pytest.mark.parametrize(("index", "offset"), [(0, 1), (COUNT, 10_000), (COUNT, 0)])
def test_offsets_that_do_not_span_the_data_are_left_to_it(index: int, offset: int) -> None:
    assert merged([batch_of(plain), with_offset(batch_of(plain), index, offset)]) is None


@pytest.mark.parametrize(("index", "offset"), [(0, 1), (5, 10_000), (5, -1), (COUNT, 0)])
def test_the_entry_of_a_wrong_writer_is_named(index: int, offset: int) -> None:
    """Offsets that fall in between are Arrow's to find."""
    batches = [batch_of(plain), with_offset(batch_of(plain), index, offset), batch_of(plain)]
    stored = StoredBatches(
        "spark/events",
        0,
        [memoryview(batch) for batch in batches],
        [COUNT] * 3,
        [0, COUNT, 2 * COUNT],
        [0] * 3,
    )
    with pytest.raises(InvalidBatchError) as raised:
        decode(stored, arrow_schema(["value"]), start_offset=0, end_offset=3 * COUNT)
    assert raised.value.index == 1
