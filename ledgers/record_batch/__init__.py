"""Record batches, the public face: format, checks and frames under one name.

``format`` holds the layout and the codec, ``check`` the checks before a batch is trusted,
``frames`` the frames of an HTTP answer with many batches, ``codecs`` the compression, ``contents``
the digest of the messages.

Imports of its package: ``errors``, ``format``, ``limits``.
"""

from __future__ import annotations

from fencelog.ledgers.record_batch.check import check_batch, decode_batch, open_batch
from fencelog.ledgers.record_batch.codecs import CODEC_LZ4, CODEC_NONE, CODEC_ZSTD
from fencelog.ledgers.record_batch.contents import (
    CONTENTS_BYTES,
    contents_digest,
    message_digest,
)
from fencelog.ledgers.record_batch.format import (
    HAS_EVENT_TIME,
    HAS_HEADERS,
    HAS_KEY,
    BatchInfo,
    BatchView,
    Message,
    batch_count,
    batch_size,
    encode_batch,
    encode_columns,
    encode_values,
    has_keys,
    read_batch,
)
from fencelog.ledgers.record_batch.frames import FramedBatch, frame_batch, frame_parts, read_frames

__all__ = [
    "CODEC_LZ4",
    "CODEC_NONE",
    "CODEC_ZSTD",
    "CONTENTS_BYTES",
    "HAS_EVENT_TIME",
    "HAS_HEADERS",
    "HAS_KEY",
    "BatchInfo",
    "BatchView",
    "FramedBatch",
    "Message",
    "batch_count",
    "batch_size",
    "check_batch",
    "contents_digest",
    "decode_batch",
    "encode_batch",
    "encode_columns",
    "encode_values",
    "frame_batch",
    "frame_parts",
    "has_keys",
    "message_digest",
    "open_batch",
    "read_batch",
    "read_frames",
]
