"""The frames of record batches in HTTP answers (``application/vnd.fencelog.batch``).

An answer is a sequence of frames, little-endian:

     0  u32 bytes of the frame after this header (a multiple of 8)
     4  u32 messages
     8  u64 offset of the first message
    16  i64 publish time, µs since 1970 UTC
    24  u64 0
    32  the batch as stored, zero-padded to a multiple of 8
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch.format import Buffer, batch_count, batch_size

FRAME = struct.Struct("<IIQqQ")
_PADDING = tuple(bytes(n) for n in range(8))


@dataclass(frozen=True, slots=True)
class FramedBatch:
    """One frame; ``batch`` is a view into the bytes read. Publish time in µs since 1970 UTC."""

    base_offset: int
    publish_time_us: int
    count: int
    batch: memoryview


def frame_parts(
    base_offset: int, publish_time_us: int, count: int, batch: Buffer
) -> tuple[bytes, Buffer, bytes]:
    """Return header, batch and padding, for one ``join`` over many frames without copying batches
    twice."""
    padding = _PADDING[-len(batch) & 7]
    header = FRAME.pack(len(batch) + len(padding), count, base_offset, publish_time_us, 0)
    return header, batch, padding


def frame_batch(base_offset: int, publish_time_us: int, batch: Buffer) -> bytes:
    """Return one frame."""
    return b"".join(frame_parts(base_offset, publish_time_us, batch_count(batch), batch))


def read_frames(data: Buffer) -> list[FramedBatch]:
    """Return all frames of an answer. Raises FencelogError(BAD_REQUEST) if it is cut off or
    damaged."""
    view = memoryview(data)
    frames: list[FramedBatch] = []
    position = 0
    while position < len(view):
        start = position + FRAME.size
        if start > len(view):
            raise _invalid(f"a header is cut off at byte {position}")
        size, count, base_offset, publish_time_us, zero = FRAME.unpack_from(view, position)
        end = start + size
        if end > len(view) or zero or size % 8:
            raise _invalid(f"the frame at byte {position} is cut off or damaged")
        batch = view[start:end]
        stored = batch_size(batch)
        if stored > size or batch_count(batch) != count:
            raise _invalid(f"the frame at byte {position} does not hold its batch")
        frames.append(FramedBatch(base_offset, publish_time_us, count, batch[:stored]))
        position = end
    return frames


def _invalid(what: str) -> FencelogError:
    return FencelogError(ErrorCode.BAD_REQUEST, f"record batch frames are not valid: {what}")
