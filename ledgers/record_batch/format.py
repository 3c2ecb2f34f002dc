"""Record batches: the content of a topic's entries, laid out as Arrow columns.

A writer packs its messages once; the broker checks the bytes in bulk and stores them unchanged; a
reader wraps the buffers with Arrow, or slices messages out of them. Version 1, little-endian:

     0  u8  version = 1
     1  u8  codec of the body: 0 none, 1 zstd, 2 lz4 frame
     2  u16 columns present: 1 key, 2 event time, 4 headers  (the value column always is)
     4  u32 messages                          (1 .. MAX_BATCH_MESSAGES)
     8  u32 CRC32C of bytes 0..8 and 12..end
    12  u32 bytes of the body as stored
    16  u32 bytes of the body uncompressed
    20  u32 0
    24  u32 length[12] of the buffers below, unpadded; 0 = absent
    72  the body: the buffers in this order, each zero-padded to a multiple of 8
          0 value offsets i32[count + 1]         1 value data
          2 key validity bitmap                  3 key offsets i32[count + 1]   4 key data
          5 event time validity bitmap           6 event time i64[count], µs
          7 header list offsets i32[count + 1]   8 header name offsets i32[n + 1]
          9 header name data (UTF-8)            10 header value offsets i32[n + 1]
         11 header value data

A column that is present with an absent validity bitmap has no nulls (as in Arrow). Nothing here
loops over messages in Python, except the lists that ``BatchView`` makes for the edges.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.limits import MAX_BATCH_MESSAGES, MAX_ENTRY_BYTES
from fencelog.ledgers.record_batch.codecs import CODEC_NONE, compress, decompress

VERSION = 1
HEADER = struct.Struct("<BBHIIIII12I")
BODY_START = HEADER.size
HAS_KEY, HAS_EVENT_TIME, HAS_HEADERS = 1, 2, 4
_ALL_COLUMNS = HAS_KEY | HAS_EVENT_TIME | HAS_HEADERS
_BUFFERS = 12
_ABSENT = (0,) * _BUFFERS
_PAIR = struct.Struct("<ii")
_FIVE = struct.Struct("<5I")
_SIZES_OF_ONE = struct.Struct("<6I")
"""The checksum, and what ``_FIVE`` packs behind it."""
_NO_OTHER_COLUMN = bytes(4 * (_BUFFERS - 2))
_START_OF_ONE = struct.pack("<BBHI", VERSION, CODEC_NONE, 0, 1)
"""The header of a batch of one plain value, before its checksum."""
_START_OF_ONE_CRC = crc32c(_START_OF_ONE)
_PADDING = tuple(bytes(n) for n in range(8))

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, bytes]]


class Message(NamedTuple):
    """One message, for the edges of the system. ``event_time`` in µs since 1970 UTC."""

    value: bytes
    key: bytes | None = None
    event_time: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """The header of a batch. Sizes in bytes; ``size`` is the whole batch as stored."""

    count: int
    codec: int
    columns: int
    size: int
    uncompressed_size: int


@dataclass(frozen=True, slots=True)
class BatchView:
    """The buffers of a batch as views without a copy (of the decompressed body, if need be).

    Absent buffers are empty. Each begins at a multiple of 8 from the batch's own beginning.
    """

    count: int
    columns: int
    value_offsets: memoryview
    value_data: memoryview
    key_validity: memoryview
    key_offsets: memoryview
    key_data: memoryview
    event_time_validity: memoryview
    event_times: memoryview
    header_list_offsets: memoryview
    header_name_offsets: memoryview
    header_name_data: memoryview
    header_value_offsets: memoryview
    header_value_data: memoryview

    def values(self) -> list[bytes]:
        return _slices(self.value_offsets, self.value_data)

    def keys(self) -> list[bytes | None]:
        if not self.columns & HAS_KEY:
            return [None] * self.count
        keys = _slices(self.key_offsets, self.key_data)
        return _with_nulls(keys, self.key_validity)

    def event_time_list(self) -> list[int | None]:
        """Return the event times in µs since 1970 UTC."""
        if not self.columns & HAS_EVENT_TIME:
            return [None] * self.count
        return _with_nulls(unpack_ints("q", self.event_times), self.event_time_validity)

    def headers(self) -> list[tuple[tuple[str, bytes], ...]]:
        if not self.columns & HAS_HEADERS:
            return [()] * self.count
        names = [str(n, "utf-8") for n in _slices(self.header_name_offsets, self.header_name_data)]
        values = _slices(self.header_value_offsets, self.header_value_data)
        pairs = list(zip(names, values, strict=True))
        bounds = unpack_ints("i", self.header_list_offsets)
        return [tuple(pairs[start:end]) for start, end in pairwise(bounds)]


def pack_ints(typecode: str, values: Iterable[int]) -> bytes:
    """Pack integers as little-endian ``i`` (32 bit) or ``q`` (64 bit). Raises
    FencelogError(BAD_REQUEST)."""
    try:
        packed = array(typecode, values)
    except OverflowError as error:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"batch column out of range: {error}") from None
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_ints(typecode: str, buffer: Buffer) -> list[int]:
    """Unpack integers: the inverse of ``pack_ints``."""
    return int_array(typecode, buffer).tolist()


def int_array(typecode: str, buffer: Buffer) -> array[int]:
    """Unpack integers into an array, which needs no object for each of them until it is read."""
    values = array(typecode)
    values.frombytes(buffer)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _slices(offsets: memoryview, data: memoryview) -> list[bytes]:
    whole = bytes(data)
    return [whole[start:end] for start, end in pairwise(unpack_ints("i", offsets))]


def _with_nulls(items: Sequence[Any], validity: memoryview) -> list[Any]:
    if not validity:
        return list(items)
    bits = format(int.from_bytes(validity, "little"), f"0{len(items)}b")[::-1]
    return [item if bit == "1" else None for item, bit in zip(items, bits, strict=False)]


# -- encoding ------------------------------------------------------------------------------------


def encode_values(values: Sequence[bytes], *, codec: int = CODEC_NONE) -> bytes:
    """Return a batch of plain values: no keys, event times or headers."""
    if len(values) == 1 and codec == CODEC_NONE and len(values[0]) <= MAX_ENTRY_BYTES - 16:
        return _encode_one(values[0])
    return assemble_batch(len(values), 0, _binary_column(values), codec)


def _encode_one(value: bytes) -> bytes:
    """Return a batch of one plain value. Where there are many topics nearly all are of this
    kind."""
    size = len(value)
    body = b"".join((_PAIR.pack(0, size), value, _PADDING[-size & 7]))
    sizes = _sizes_of_one(size)
    checksum = crc32c(body, crc32c(sizes, _START_OF_ONE_CRC))
    return b"".join((_START_OF_ONE, checksum.to_bytes(4, "little"), sizes, body))


def _sizes_of_one(size: int) -> bytes:
    """Return the header of a batch of one plain value of so many bytes, behind its checksum."""
    body_size = _PAIR.size + size + (-size & 7)
    return _FIVE.pack(body_size, body_size, 0, _PAIR.size, size) + _NO_OTHER_COLUMN


def encode_columns(
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None = None,
    event_times: Sequence[int | None] | None = None,
    headers: Sequence[Headers] | None = None,
    *,
    codec: int = CODEC_NONE,
) -> bytes:
    """Return a batch from columns of equal length. Event times in µs since 1970 UTC.

    Raises FencelogError(BAD_REQUEST) for a count or a value outside the format. ``check_batch``
    checks the limits per message.
    """
    columns = 0
    buffers: list[bytes] = [*_binary_column(values), *[b""] * 10]
    if keys is not None:
        columns |= HAS_KEY
        buffers[2] = _validity(keys)
        buffers[3:5] = _binary_column([key or b"" for key in keys])
    if event_times is not None:
        columns |= HAS_EVENT_TIME
        buffers[5] = _validity(event_times)
        buffers[6] = pack_ints("q", [time or 0 for time in event_times])
    if headers is not None:
        columns |= HAS_HEADERS
        pairs = list(chain.from_iterable(headers))
        buffers[7] = pack_ints("i", accumulate(map(len, headers), initial=0))
        buffers[8:10] = _binary_column([name.encode() for name, _ in pairs])
        buffers[10:12] = _binary_column([value for _, value in pairs])
    return assemble_batch(len(values), columns, buffers, codec)


def encode_batch(messages: Sequence[Message], *, codec: int = CODEC_NONE) -> bytes:
    """Return a batch of messages; columns that no message uses are left out."""
    if not messages:
        raise FencelogError(ErrorCode.BAD_REQUEST, "a batch holds at least one message")
    values, keys, times, headers = zip(*messages, strict=True)
    return encode_columns(
        values,
        keys if any(key is not None for key in keys) else None,
        times if any(time is not None for time in times) else None,
        headers if any(headers) else None,
        codec=codec,
    )


def _binary_column(values: Sequence[bytes]) -> tuple[bytes, bytes]:
    return pack_ints("i", accumulate(map(len, values), initial=0)), b"".join(values)


def _validity(items: Sequence[object]) -> bytes:
    """Return Arrow's bitmap, least significant bit first; empty if there is no null."""
    if None not in items:
        return b""
    bits = "".join(["0" if item is None else "1" for item in reversed(items)])
    return int(bits, 2).to_bytes((len(items) + 7) // 8, "little")


def assemble_batch(count: int, columns: int, buffers: Sequence[Buffer], codec: int) -> bytes:
    """Return a batch. ``buffers``: from the first on; those after them are absent."""
    return b"".join(batch_pieces(count, columns, [(buffer,) for buffer in buffers], codec))


def batch_pieces(
    count: int, columns: int, buffers: Sequence[Sequence[Buffer]], codec: int
) -> list[Buffer]:
    """Return a batch as pieces that are to be joined. ``buffers``: the pieces of each, from the
    first buffer on."""
    if not 1 <= count <= MAX_BATCH_MESSAGES:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"a batch holds 1 to {MAX_BATCH_MESSAGES} messages, not {count}"
        )
    lengths = [*(sum(map(len, buffer)) for buffer in buffers), *_ABSENT[len(buffers) :]]
    parts: list[Buffer] = []
    for buffer, length in zip(buffers, lengths, strict=False):
        if length:
            parts += *buffer, _PADDING[-length & 7]
    size = sum(map(len, parts))
    if size > MAX_ENTRY_BYTES:
        raise FencelogError(ErrorCode.PAYLOAD_TOO_LARGE, f"a batch of {size} bytes")
    if codec != CODEC_NONE:
        parts = [compress(codec, b"".join(parts))]
    sizes = (sum(map(len, parts)), size, 0, *lengths)
    head = HEADER.pack(VERSION, codec, columns, count, 0, *sizes)
    start, end = head[:8], head[12:]
    checksum = crc32c(end, crc32c(start))
    for part in parts:  # one after the other, so that they are copied once
        checksum = crc32c(part, checksum)
    return [start, checksum.to_bytes(4, "little"), end, *parts]


# -- decoding ------------------------------------------------------------------------------------


def batch_size(data: Buffer, offset: int = 0) -> int:
    """Return the size of the batch at ``offset`` in bytes, by its header. Raises
    FencelogError(BAD_REQUEST)."""
    if len(data) - offset < BODY_START:
        raise _invalid(f"{len(data) - offset} bytes are shorter than its header")
    (stored,) = struct.unpack_from("<I", data, offset + 12)
    return BODY_START + int(stored)


def batch_count(data: Buffer) -> int:
    """Return the number of messages by the header alone."""
    return int(struct.unpack_from("<I", data, 4)[0])


def unpacked_size(data: Buffer) -> int:
    """Return the bytes of the body uncompressed, by the header alone; 0 for what has none."""
    return int(struct.unpack_from("<I", data, 16)[0]) if len(data) >= BODY_START else 0


def has_keys(data: Buffer) -> bool:
    """Tell by the header alone whether the batch has a column of keys."""
    return len(data) >= BODY_START and bool(struct.unpack_from("<H", data, 2)[0] & HAS_KEY)


def value_of_one(data: Buffer) -> bytes | None:
    """Return the value of a batch of one plain value, verified; None for any other batch, and for
    one that is not valid: ``read_batch`` says what is wrong with it."""
    if len(data) <= BODY_START + _PAIR.size or data[:8] != _START_OF_ONE:
        return None
    checksum, body_size, _, _, _, size = _SIZES_OF_ONE.unpack_from(data, 8)
    start = BODY_START + _PAIR.size
    if (
        len(data) != BODY_START + body_size
        or body_size != _PAIR.size + size + (-size & 7)
        or data[12:start] != _sizes_of_one(size) + _PAIR.pack(0, size)
        or crc32c(memoryview(data)[12:], _START_OF_ONE_CRC) != checksum
    ):
        return None
    return bytes(data[start : start + size])


def read_batch(data: Buffer) -> tuple[BatchInfo, BatchView]:
    """Read a batch: header, checksum and buffer lengths are checked; offset columns are not (see
    ``check_batch``).

    Raises FencelogError(BAD_REQUEST) naming what is wrong.
    """
    view = memoryview(data)
    info, lengths = read_header(view)
    body = body_of(view, info)
    starts = accumulate([(length + 7) & ~7 for length in lengths], initial=0)
    buffers = [body[s : s + length] for s, length in zip(starts, lengths, strict=False)]
    return info, BatchView(info.count, info.columns, *buffers)


def read_header(view: memoryview) -> tuple[BatchInfo, Sequence[int]]:
    """Read the header of a whole batch, with the checks of ``read_batch``: what it says, and the
    unpadded lengths of the buffers. Raises as ``read_batch`` does."""
    if batch_size(view) != len(view):
        raise _invalid(f"{len(view)} bytes, its header says {batch_size(view)}")
    version, codec, columns, count, checksum, stored, size, zero, *lengths = HEADER.unpack_from(
        view
    )
    if version != VERSION:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"record batch version {version} is not known")
    if crc32c(view[12:], crc32c(view[:8])) != checksum:
        raise _invalid("checksum mismatch")
    if not 1 <= count <= MAX_BATCH_MESSAGES or columns & ~_ALL_COLUMNS or zero:
        raise _invalid(f"{count} messages, columns {columns:#x}")
    padded = sum([(length + 7) & ~7 for length in lengths])
    if size > MAX_ENTRY_BYTES or padded != size or (codec == CODEC_NONE and stored != size):
        raise _invalid(f"body of {stored} and {size} bytes for buffers of {lengths}")
    return BatchInfo(count, codec, columns, len(view), size), lengths


def body_of(view: memoryview, info: BatchInfo) -> memoryview:
    """Return the buffers of a batch whose header was read, uncompressed. Raises FencelogError."""
    body = view[BODY_START:]
    if info.codec == CODEC_NONE:
        return body
    return memoryview(decompress(info.codec, body, info.uncompressed_size))


def _invalid(what: str) -> FencelogError:
    return FencelogError(ErrorCode.BAD_REQUEST, f"record batch is not valid: {what}")
