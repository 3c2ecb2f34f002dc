"""The digest of a batch's messages, whatever the batch's compression is."""

from __future__ import annotations

from dataclasses import fields
from hashlib import blake2b
from itertools import accumulate
from struct import Struct

from fencelog.ledgers.record_batch.format import (
    HAS_EVENT_TIME,
    HAS_HEADERS,
    HAS_KEY,
    BatchView,
    Buffer,
    Headers,
    Message,
    pack_ints,
    read_batch,
)

CONTENTS_BYTES = 16
_DATA = Struct("<IiiI")
"""Two offsets around one item, after their length in bytes and before the item's."""
_TIME = Struct("<IIq")
_NO_KEY, _NO_TIME, _NO_HEADERS = bytes(3 * 4), bytes(2 * 4), bytes(5 * 4)
"""The lengths of buffers that are left out."""
_BUFFERS = [field.name for field in fields(BatchView) if field.name not in ("count", "columns")]


def contents_digest(batch: Buffer) -> bytes:
    """Return the digest of the messages, to compare the contents of appends. Raises
    FencelogError(BAD_REQUEST) if they are no batch."""
    _, view = read_batch(batch)
    digest = blake2b(b"%d,%d" % (view.count, view.columns), digest_size=CONTENTS_BYTES)
    for name in _BUFFERS:
        buffer: memoryview = getattr(view, name)
        digest.update(len(buffer).to_bytes(4, "little"))
        digest.update(buffer)
    return digest.digest()


def message_digest(message: Message) -> bytes:
    """Return ``contents_digest`` of a batch of this message alone, without encoding it."""
    value, key, event_time, headers = message
    columns = 0
    parts = [b"", _DATA.pack(8, 0, len(value), len(value)), value, _NO_KEY, _NO_TIME, _NO_HEADERS]
    if key is not None:
        columns |= HAS_KEY
        parts[3] = b"%b%b%b" % (bytes(4), _DATA.pack(8, 0, len(key), len(key)), key)
    if event_time is not None:
        columns |= HAS_EVENT_TIME
        parts[4] = _TIME.pack(0, 8, event_time)
    if headers:
        columns |= HAS_HEADERS
        parts[5] = _headers(headers)
    parts[0] = b"1,%d" % columns
    return blake2b(b"".join(parts), digest_size=CONTENTS_BYTES).digest()


def _headers(headers: Headers) -> bytes:
    names = [name.encode() for name, _ in headers]
    values = [value for _, value in headers]
    buffers = [pack_ints("i", (0, len(headers))), *_column(names), *_column(values)]
    return b"".join([len(buffer).to_bytes(4, "little") + buffer for buffer in buffers])


def _column(items: list[bytes]) -> tuple[bytes, bytes]:
    return pack_ints("i", accumulate(map(len, items), initial=0)), b"".join(items)
