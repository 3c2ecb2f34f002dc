"""The digest of a batch's messages, whatever the batch's compression is."""

from __future__ import annotations

from dataclasses import fields
from hashlib import blake2b

from fencelog.ledgers.record_batch.format import BatchView, Buffer, read_batch

CONTENTS_BYTES = 16
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
