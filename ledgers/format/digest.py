"""Entry digests: CRC32C against damage, HMAC-SHA256 with the ledger's key against forgery.

The digest covers the entry's header (ledger id, entry id, LAC, length, payload size) and payload,
so an entry that lands under a wrong id is as invalid as one with a flipped bit.
"""

from __future__ import annotations

import hmac
from enum import IntEnum

from crc32c import crc32c

__all__ = ["DigestType", "crc32c", "digest_bytes", "digest_matches", "digest_size"]


class DigestType(IntEnum):
    """The protection of a ledger's entries; fixed at creation, kept in its metadata."""

    CRC32C = 1
    HMAC_SHA256 = 2


_SIZES = {DigestType.CRC32C: 8, DigestType.HMAC_SHA256: 32}


def digest_size(digest_type: DigestType) -> int:
    """Return the size of the digest in an entry (a multiple of 8, so that payloads stay
    aligned)."""
    return _SIZES[digest_type]


def digest_bytes(
    digest_type: DigestType, key: bytes, header: bytes, *payload: bytes | bytearray | memoryview
) -> bytes:
    """Return the digest over header and payload, ``digest_size`` bytes long. ``payload``: its
    pieces, mostly one."""
    if digest_type is DigestType.CRC32C:
        checksum = crc32c(header)
        for piece in payload:
            checksum = crc32c(piece, checksum)
        return checksum.to_bytes(8, "little")
    mac = hmac.new(key, header, "sha256")
    for piece in payload:
        mac.update(piece)
    return mac.digest()


def digest_matches(
    digest_type: DigestType,
    key: bytes,
    header: bytes | memoryview,
    payload: bytes | memoryview,
    digest: bytes | memoryview,
) -> bool:
    """Tell whether ``digest`` is that of header and payload. A MAC is compared in constant time: it
    must not reveal how much of it was right."""
    if digest_type is DigestType.CRC32C:
        return crc32c(payload, crc32c(header)) == int.from_bytes(digest, "little")
    return hmac.compare_digest(digest_bytes(digest_type, key, bytes(header), payload), digest)
