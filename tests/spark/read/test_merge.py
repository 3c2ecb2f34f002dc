"""Merging small batches: the same messages as the plain decoder, and its verdict about damage."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.format.entry_header import SequenceRange, pack_entry, read_entry_header
from fencelog.ledgers.format.run import Entry
from fencelog.ledgers.record_batch import Message, decode_batch, encode_batch, encode_values
from fencelog.ledgers.record_batch.codecs import CODEC_LZ4, CODEC_NONE, CODEC_ZSTD
from fencelog.ledgers.record_batch.format import (
    BODY_START,
    HAS_EVENT_TIME,
    HAS_HEADERS,
    HAS_KEY,
    BatchView,
)
from fencelog.spark_connector.read.merge import SmallBatches, merge_batches

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


def small(batches: Sequence[bytes], *, counts: Sequence[int] | None = None) -> SmallBatches:
    """Entries of these batches, every other one with the sequence range of a producer."""
    told = counts or [max(1, struct.unpack_from("<I", batch, 4)[0]) for batch in batches]
    payloads = [
        pack_entry(
            batch,
            count=count,
            first_number=0,
            publish_time_us=0,
            ranges=[SequenceRange(count, 0)] if number % 2 else (),
        )
        for number, (batch, count) in enumerate(zip(batches, told, strict=True))
    ]
    return SmallBatches(
        [Entry(7, n, -1, 0, memoryview(payload)) for n, payload in enumerate(payloads)],
        np.array([read_entry_header(payload).header_bytes for payload in payloads]),
        np.array(told),
    )


def messages_of(view: BatchView) -> list[Message]:
    columns = (view.values(), view.keys(), view.event_time_list(), view.headers())
    return list(map(Message._make, zip(*columns, strict=True)))


@given(st.lists(encoded, min_size=1, max_size=12))
@settings(max_examples=80)
def test_merged_batches_are_what_the_plain_decoder_reads(batches: list[bytes]) -> None:
    view = merge_batches(small(batches), ALL)
    assert messages_of(view) == [message for batch in batches for message in decode_batch(batch)]


@given(st.lists(encoded, min_size=1, max_size=4), st.data())
@settings(max_examples=120)
def test_a_changed_byte_is_found_and_its_entry_named(
    batches: list[bytes], data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(batches) - 1))
    damaged = bytearray(batches[number])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    counts = [struct.unpack_from("<I", batch, 4)[0] for batch in batches]
    batches[number] = bytes(damaged)
    with pytest.raises(FencelogError, match=f"entry {number} of ledger 7 is not valid") as raised:
        merge_batches(small(batches, counts=counts), ALL)
    assert raised.value.code is ErrorCode.CORRUPT


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
    counts = [struct.unpack_from("<I", batch, 4)[0] for batch in batches]
    batches[number] = bytes(wrong)
    try:
        sent = [message for batch in batches for message in decode_batch(batch)]
        counts[number] = struct.unpack_from("<I", wrong, 4)[0]
    except FencelogError:
        # Whether names are UTF-8 is left to Arrow, as for a batch that is not merged.
        with pytest.raises((FencelogError, UnicodeDecodeError)) as raised:
            merge_batches(small(batches, counts=counts), ALL).headers()
        assert "'utf-8' codec" in str(raised.value) or f"entry {number} of" in str(raised.value)
    else:
        assert messages_of(merge_batches(small(batches, counts=counts), ALL)) == sent


def test_columns_that_are_not_wanted_are_left_out() -> None:
    batch = encode_batch([Message(b"v", b"k", 7, (("n", b"h"),))] * 2)
    view = merge_batches(small([batch, batch]), HAS_KEY)
    assert view.columns == HAS_KEY
    assert messages_of(view) == [Message(b"v", b"k")] * 4
    assert not view.header_list_offsets


def test_a_count_that_differs_from_the_entry_is_refused() -> None:
    with pytest.raises(FencelogError, match=r"entry 1 .*2 messages, its header says 3"):
        merge_batches(small([encode_values([b"a"] * 2)] * 2, counts=[2, 3]), 0)


def test_a_batch_without_a_whole_header_is_refused() -> None:
    batches = [encode_values([b"a"]), bytes(BODY_START - 8)]
    with pytest.raises(FencelogError, match=r"entry 1 .*shorter than its header"):
        merge_batches(small(batches, counts=[1, 1]), 0)
