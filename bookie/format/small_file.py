"""Small files that are replaced as a whole: identity, cookies, checkpoint.

 0  4s  magic
 4  u16 version 1
 6  u16 0
 8  u32 size of the body
12  u32 CRC32C of bytes 0..12 and the body
16  body: a JSON object that a person can read
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import crc32c

_HEAD_BYTES = 12
_BODY_AT = 16
_VERSION = 1


def encode_small_file(magic: bytes, fields: dict[str, Any]) -> bytes:
    body = json.dumps(fields, sort_keys=True).encode() + b"\n"
    head = magic + _VERSION.to_bytes(2, "little") + bytes(2) + len(body).to_bytes(4, "little")
    return head + crc32c(body, crc32c(head)).to_bytes(4, "little") + body


def decode_small_file(path: Path, magic: bytes, data: bytes) -> dict[str, Any]:
    """Return the fields of a small file. Raises FencelogError(CORRUPT, UNSUPPORTED_VERSION)."""
    head, body = data[:_HEAD_BYTES], data[_BODY_AT:]
    checksum = int.from_bytes(data[_HEAD_BYTES:_BODY_AT], "little")
    whole = len(data) > _BODY_AT and int.from_bytes(head[8:12], "little") == len(body)
    if not whole or head[:4] != magic or crc32c(body, crc32c(head)) != checksum:
        raise FencelogError(ErrorCode.CORRUPT, f"{path} is damaged", path=str(path))
    if int.from_bytes(head[4:6], "little") != _VERSION:
        raise FencelogError(ErrorCode.UNSUPPORTED_VERSION, f"{path} has an unknown version")
    fields: dict[str, Any] = json.loads(body)
    return fields
