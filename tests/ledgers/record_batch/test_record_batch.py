"""Record batches: golden vectors, round trips, every kind of damage, and Arrow without a copy."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.format.entry_header import pack_entry, read_entry_header
from fencelog.ledgers.limits import MAX_HEADERS, MAX_KEY_BYTES, MAX_MESSAGE_BYTES
from fencelog.ledgers.record_batch import (
    CODEC_LZ4,
    CODEC_NONE,
    CODEC_ZSTD,
    Message,
    check_batch,
    decode_batch,
    encode_batch,
    encode_columns,
    encode_values,
    frame_batch,
    open_batch,
    read_frames,
)
from fencelog.ledgers.record_batch.format import BODY_START, HEADER, value_of_one

GOLDEN = Path(__file__).parent / "golden"

SMALL = [Message(b"hello"), Message(b""), Message(b"\xff\x00\r\n")]
FULL = [
    Message(b"first", b"k1", 1_700_000_000_000_001, (("trace", b"abc"), ("größe", b"\x00"))),
    Message(b"second"),
    Message(b"third", b"", -1, ()),
]

texts = st.text(max_size=8)
messages = st.builds(
    Message,
    value=st.binary(max_size=40),
    key=st.none() | st.binary(max_size=10),
    event_time=st.none() | st.integers(-(2**63), 2**63 - 1),
    headers=st.lists(st.tuples(texts, st.binary(max_size=5)), max_size=3).map(tuple),
)


def resealed(batch: bytes) -> bytes:
    """The batch with a checksum that matches its (changed) bytes."""
    checksum = crc32c(batch[12:], crc32c(batch[:8]))
    return batch[:8] + checksum.to_bytes(4, "little") + batch[12:]


def with_buffer_length(batch: bytes, index: int, length: int) -> bytes:
    fields = list(HEADER.unpack_from(batch))
    fields[8 + index] = length
    return resealed(HEADER.pack(*fields) + batch[BODY_START:])


@pytest.mark.parametrize(("name", "rows"), [("small", SMALL), ("full", FULL)])
def test_golden_vectors_hold_for_ever(name: str, rows: list[Message]) -> None:
    golden = bytes.fromhex((GOLDEN / f"record_batch_v1_{name}.hex").read_text())
    assert encode_batch(rows) == golden
    assert decode_batch(golden) == rows


def test_golden_entry_holds_for_ever() -> None:
    golden = bytes.fromhex((GOLDEN / "topic_entry_v1.hex").read_text())
    batch = encode_batch(SMALL)
    assert pack_entry(batch, count=3, first_number=7, publish_time_us=1_700_000_000_000_000) == (
        golden
    )
    header = read_entry_header(golden)
    assert (header.count, header.first_number, header.next_number) == (3, 7, 10)
    assert golden[header.header_bytes :] == batch


@given(st.binary(max_size=60))
def test_one_plain_value_is_packed_as_many_are(value: bytes) -> None:
    assert encode_values([value]) == encode_columns([value])


@given(st.lists(messages, min_size=1, max_size=2), st.sampled_from([0, CODEC_ZSTD]))
def test_the_value_of_one_plain_message_is_read_without_the_rest(
    rows: list[Message], codec: int
) -> None:
    is_plain = len(rows) == 1 and rows[0] == Message(rows[0].value) and not codec
    expected = rows[0].value if is_plain and rows[0].value else None
    assert value_of_one(memoryview(encode_batch(rows, codec=codec))) == expected


@given(st.binary(min_size=1, max_size=20))
def test_the_value_of_one_message_with_a_flipped_bit_is_not_read(value: bytes) -> None:
    data = bytearray(encode_values([value]))
    for place in range(len(data)):
        for bit in range(8):
            data[place] ^= 1 << bit
            assert value_of_one(data) is None
            data[place] ^= 1 << bit


@given(
    st.binary(min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 99), st.binary(min_size=1, max_size=4)), max_size=2),
    st.sampled_from([0, 0, -8, -1, 1, 8]),
    st.booleans(),
)
def test_the_value_of_a_damaged_message_is_not_read(
    value: bytes, changes: list[tuple[int, bytes]], longer: int, is_resealed: bool
) -> None:
    """What is read is what all checks let pass."""
    data = encode_values([value])
    for position, replacement in changes:
        start = position % len(data)
        data = (data[:start] + replacement + data[start + len(replacement) :])[: len(data)]
    data = data[: len(data) + longer] if longer < 0 else data + bytes(longer)
    if is_resealed:
        data = resealed(data)
    found = value_of_one(data)
    if found is not None:
        assert decode_batch(data) == [Message(found)]


@given(st.lists(messages, min_size=1, max_size=20), st.sampled_from([0, CODEC_ZSTD, CODEC_LZ4]))
@example([Message(b"v", b"", 0)], CODEC_NONE)
def test_what_is_written_is_read(rows: list[Message], codec: int) -> None:
    batch = encode_batch(rows, codec=codec)
    assert check_batch(batch).count == len(rows)
    assert check_batch(batch).size == len(batch)
    assert decode_batch(batch) == rows


@given(st.lists(messages, min_size=1, max_size=6), st.data())
def test_every_flipped_bit_is_noticed(rows: list[Message], data: st.DataObject) -> None:
    batch = bytearray(encode_batch(rows))
    batch[data.draw(st.integers(0, len(batch) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(FencelogError):
        check_batch(batch)


@given(st.lists(messages, min_size=1, max_size=6), st.data())
def test_forged_bytes_never_get_past_the_check_unreadable(
    rows: list[Message], data: st.DataObject
) -> None:
    """Damage under a matching checksum: either refused, or every message can be taken out."""
    batch = bytearray(encode_batch(rows))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    forged = resealed(bytes(batch))
    taken = -1
    with suppress(FencelogError):
        taken = check_batch(forged).count
    if taken >= 0:
        assert len(decode_batch(forged)) == taken


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(FencelogError):
        check_batch(data)


@pytest.mark.parametrize("cut", [0, 1, BODY_START - 1, BODY_START, -8, -1])
def test_a_batch_that_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(FencelogError, match="not valid"):
        check_batch(encode_batch(FULL)[:cut])


def test_offsets_that_fall_are_refused() -> None:
    batch = bytearray(encode_values([b"aa", b"bb"]))
    batch[BODY_START + 4 : BODY_START + 8] = (5).to_bytes(4, "little")
    with pytest.raises(FencelogError, match="value: offsets do not rise"):
        check_batch(resealed(bytes(batch)))


def test_offsets_past_the_data_are_refused() -> None:
    batch = bytearray(encode_values([b"aa", b"bb"]))
    batch[BODY_START + 8 : BODY_START + 12] = (8).to_bytes(4, "little")
    with pytest.raises(FencelogError, match="value: offsets do not rise"):
        check_batch(resealed(bytes(batch)))


def test_a_column_that_is_not_announced_is_refused() -> None:
    batch = bytearray(encode_batch(FULL))
    batch[2] &= ~1
    with pytest.raises(FencelogError, match="key: has buffers"):
        check_batch(resealed(bytes(batch)))


def test_a_validity_bitmap_of_the_wrong_size_is_refused() -> None:
    batch = encode_batch(FULL)
    with pytest.raises(FencelogError, match="key: validity of 2 bytes"):
        check_batch(with_buffer_length(batch, 2, 2))


@pytest.mark.parametrize("times", [[], [1, 2]])
def test_event_times_of_more_or_fewer_messages_are_refused(times: list[int]) -> None:
    batch = encode_columns([b"x"], event_times=times)
    with pytest.raises(FencelogError, match=f"event time: {8 * len(times)} bytes for 1 messages"):
        check_batch(batch)


def test_a_header_name_that_begins_within_a_character_is_refused() -> None:
    batch = encode_columns([b"v"], headers=[(("ab", b""), ("é", b""))])
    position = batch.index((2).to_bytes(4, "little") + (4).to_bytes(4, "little"))
    forged = batch[:position] + (3).to_bytes(4, "little") + batch[position + 4 :]
    with pytest.raises(FencelogError, match="begins within a character"):
        check_batch(resealed(forged))


@pytest.mark.parametrize(
    ("batch", "what"),
    [
        (encode_values([b"x" * (MAX_MESSAGE_BYTES + 1)]), "value takes"),
        (encode_columns([b"x"], [b"k" * (MAX_KEY_BYTES + 1)]), "key takes"),
        (encode_columns([b"x"], headers=[[("n", b"")] * (MAX_HEADERS + 1)]), "headers"),
        (encode_columns([b"x"], headers=[[("n", b"v" * 40_000)]]), "header takes"),
        (encode_columns([b"x"], headers=[[("n" * 40_000, b"")]]), "header takes"),
    ],
)
def test_limits_per_message(batch: bytes, what: str) -> None:
    with pytest.raises(FencelogError, match=what) as raised:
        check_batch(batch)
    assert raised.value.code is ErrorCode.PAYLOAD_TOO_LARGE


@pytest.mark.parametrize("codec", [CODEC_ZSTD, CODEC_LZ4])
def test_a_body_that_unpacks_to_more_than_it_says_is_refused(codec: int) -> None:
    batch = encode_values([b"\0" * 100_000], codec=codec)
    fields = list(HEADER.unpack_from(batch))
    fields[6] -= 96
    fields[9] -= 96  # the value data, so that the lengths still add up
    with pytest.raises(FencelogError, match="unpacks to other than"):
        check_batch(resealed(HEADER.pack(*fields) + batch[BODY_START:]))


def test_an_unknown_codec_and_version_are_refused_by_name() -> None:
    batch = encode_values([b"x"])
    with pytest.raises(FencelogError, match="version 9"):
        check_batch(b"\x09" + batch[1:])
    with pytest.raises(FencelogError, match="codec 7"):
        check_batch(resealed(batch[:1] + b"\x07" + batch[2:]))


def test_no_message_is_no_batch() -> None:
    for encode in (encode_batch, encode_values):
        with pytest.raises(FencelogError) as raised:
            encode([])
        assert raised.value.code is ErrorCode.BAD_REQUEST


def test_frames_carry_batches_of_any_size() -> None:
    batches = [encode_values([b"x" * n], codec=n % 3) for n in range(1, 12)]
    data = b"".join(frame_batch(n, 100 + n, batch) for n, batch in enumerate(batches))
    frames = read_frames(data)
    assert [bytes(frame.batch) for frame in frames] == batches
    assert [(frame.base_offset, frame.publish_time_us, frame.count) for frame in frames] == [
        (n, 100 + n, 1) for n in range(len(batches))
    ]
    for cut in (1, 31, 40, len(data) - 1):
        with pytest.raises(FencelogError, match="not valid"):
            read_frames(data[:cut])


def test_arrow_wraps_the_buffers_without_a_copy() -> None:
    import pyarrow as pa

    batch = encode_batch(FULL)
    _, view = open_batch(batch)
    start = pa.py_buffer(batch).address
    offsets, data = pa.py_buffer(view.value_offsets), pa.py_buffer(view.value_data)
    values = pa.Array.from_buffers(pa.binary(), view.count, [None, offsets, data])
    values.validate(full=True)
    assert values.to_pylist() == [row.value for row in FULL]
    key_buffers = [pa.py_buffer(b) for b in (view.key_validity, view.key_offsets, view.key_data)]
    keys = pa.Array.from_buffers(pa.binary(), view.count, key_buffers)
    assert keys.to_pylist() == [row.key for row in FULL]
    time_buffers = [pa.py_buffer(view.event_time_validity), pa.py_buffer(view.event_times)]
    times = pa.Array.from_buffers(pa.int64(), view.count, time_buffers)
    assert times.to_pylist() == [row.event_time for row in FULL]
    for array in (values, keys, times):
        for buffer in array.buffers():
            if buffer is not None:
                assert start < buffer.address < start + len(batch)
                assert buffer.address % 8 == 0


def test_a_codec_is_said_in_the_header_only() -> None:
    plain, packed = (encode_values([b"a" * 1000], codec=c) for c in (CODEC_NONE, CODEC_ZSTD))
    assert len(packed) < len(plain)
    assert check_batch(packed).uncompressed_size == check_batch(plain).uncompressed_size
