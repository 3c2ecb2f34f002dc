"""Merging small batches: the same messages as the plain decoder, and its verdict about damage."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.record_batch import Message, decode_batch, encode_batch, encode_values
from fencelog.ledgers.record_batch.codecs import CODEC_LZ4, CODEC_NONE, CODEC_ZSTD
from fencelog.ledgers.record_batch.format import (
    BODY_START,
    HAS_EVENT_TIME,
    HAS_HEADERS,
    HAS_KEY,
    BatchView,
)
from fencelog.spark_connector.read.merge import InvalidBatchError, merge_batches

ALL = HAS_KEY | HAS_EVENT_TIME | HAS_HEADERS

messages = st.lists(
    st.builds(
        Message,
        st.binary(max_size=20),
        st.none() | st.binary(max_size=5),
        st.none() | st.integers(-(1 << 60), 1 << 60),
        st.lists(st.tuples(st.text(max_size=4), st.binary(max_size=4)), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)
encoded = st.builds(
    lambda batch, codec: encode_batch(batch, codec=codec),
    messages | messages.map(lambda batch: [Message(message.value) for message in batch]),
    st.sampled_from([CODEC_NONE, CODEC_NONE, CODEC_ZSTD, CODEC_LZ4]),
)


def counts_of(batches: Sequence[bytes]) -> list[int]:
    return [struct.unpack_from("<I", batch, 4)[0] for batch in batches]


def merged(
    batches: Sequence[bytes], columns: int = ALL, *, counts: Sequence[int] | None = None
) -> BatchView:
    """The batches as they lie in replies: each at a multiple of 8 in a larger buffer."""
    views = [memoryview(b"\0" * 8 + batch)[8:] for batch in batches]
    return merge_batches(views, counts_of(batches) if counts is None else counts, columns)


def messages_of(view: BatchView) -> list[Message]:
    columns = (view.values(), view.keys(), view.event_time_list(), view.headers())
    return list(map(Message._make, zip(*columns, strict=True)))


@given(st.lists(encoded, min_size=1, max_size=12))
@settings(max_examples=80)
def test_merged_batches_are_what_the_plain_decoder_reads(batches: list[bytes]) -> None:
    view = merged(batches)
    assert messages_of(view) == [message for batch in batches for message in decode_batch(batch)]


@given(st.lists(encoded, min_size=1, max_size=4), st.data())
@settings(max_examples=120)
def test_a_changed_byte_is_found_and_its_entry_named(
    batches: list[bytes], data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(batches) - 1))
    damaged = bytearray(batches[number])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    counts = counts_of(batches)
    batches[number] = bytes(damaged)
    with pytest.raises(InvalidBatchError) as raised:
        merged(batches, counts=counts)
    assert raised.value.index == number


@given(st.lists(encoded, min_size=1, max_size=4), st.data())
@settings(max_examples=120)
def test_a_batch_of_a_wrong_writer_is_judged_as_by_the_plain_decoder(
    batches: list[bytes], data: st.DataObject
) -> None:
    """The checksum is right, so a header or an offset is wrong."""
    number = data.draw(st.integers(0, len(batches) - 1))
    wrong = bytearray(batches[number])
    place = data.draw(st.integers(0, len(wrong) - 4))
    struct.pack_into("<I", wrong, place, data.draw(st.integers(0, 12) | st.just(0xFFFF_FFFF)))
    struct.pack_into("<I", wrong, 8, crc32c(wrong[12:], crc32c(wrong[:8])))
    counts = counts_of(batches)
    batches[number] = bytes(wrong)
    try:
        sent = [message for batch in batches for message in decode_batch(batch)]
        counts[number] = struct.unpack_from("<I", wrong, 4)[0]
    except FencelogError:
        # Whether names are UTF-8 is left to Arrow, as for a batch that is not merged.
        with pytest.raises((InvalidBatchError, UnicodeDecodeError)) as raised:
            merged(batches, counts=counts).headers()
        if isinstance(raised.value, InvalidBatchError):
            assert raised.value.index == number
    else:
        assert messages_of(merged(batches, counts=counts)) == sent


def test_columns_that_are_not_wanted_are_left_out() -> None:
    batch = encode_batch([Message(b"v", b"k", 7, (("n", b"h"),))] * 2)
    view = merged([batch, batch], HAS_KEY)
    assert view.columns == HAS_KEY
    assert messages_of(view) == [Message(b"v", b"k")] * 4
    assert not view.header_list_offsets


def test_a_count_that_differs_from_the_entry_is_refused() -> None:
    with pytest.raises(InvalidBatchError, match="2 messages, its header says 3"):
        merged([encode_values([b"a"] * 2)] * 2, 0, counts=[2, 3])


def test_a_batch_without_a_whole_header_is_refused() -> None:
    batches = [encode_values([b"a"]), bytes(BODY_START - 8)]
    with pytest.raises(InvalidBatchError, match="shorter than its header"):
        merged(batches, 0, counts=[1, 1])
