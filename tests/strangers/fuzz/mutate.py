"""Mutations of bytes, drawn from a seeded source of chance."""

from __future__ import annotations

import random  # noqa: TID251 - seeded, so that a failure can be repeated
import re
from collections.abc import Sequence

NUMBERS = (
    b"0", b"-1", b"1e999", b"1.5", b"00", b"127", b"256", b"65536", b"4294967296",
    b"9223372036854775807", b"9223372036854775808", b"18446744073709551616", b"9" * 40, b"9" * 5000,
    b"%C2%B2", b"\xc2\xb2",
)  # fmt: skip
"""Numbers at the edges of what is often expected, and beyond."""

WORDS = (
    b"\r\n", b"\n", b"\r", b"\0", b"\r\n\r\n", b": ", b" ", b"%00", b"%", b"%ff", b"%2e%2e%2f",
    b"/", b"//", b"?", b"&", b"=", b"#", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\\ud800",
    b"{", b"}", b"[", b"]", b'"', b"\\", b",", b"null", b"true", b"NaN", b"Infinity", b"{}", b"[]",
    b"[" * 300,
    b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n",
    b"Connection: close\r\n", b"Upgrade: websocket\r\n", b"Host: \r\n", b"HTTP/1.0", b"HTTP/2.0",
    b"Content-Encoding: gzip\r\n", b"Content-Type: application/json\r\n", b"0\r\n\r\n", b"CONNECT",
    b"Idempotency-Key: a\r\n", b"Producer-Id: p\r\n", b"Producer-Seq: 0\r\n", b"x" * 3000,
)  # fmt: skip
"""Pieces of which the formats are made."""

_NUMBER = re.compile(rb"\d+")


def mutated(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Return bytes with one to four things wrong; ``others``: where pieces may come from."""
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        data = _once(data, others, chance)
    return data


def _once(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    kind = chance.randrange(9)
    at = chance.randrange(len(data) + 1)
    end = min(len(data), at + chance.choice((1, 1, 2, 4, 8, 40)))
    if kind == 0 and at < len(data):
        return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + data[end:]
    if kind == 2:
        return data[:at] + data[at:end] * chance.choice((2, 3, 50)) + data[end:]
    if kind == 3:
        return data[:at] + chance.randbytes(end - at) + data[end:]
    if kind == 4:
        return data[:at] + chance.choice(WORDS) + data[chance.choice((at, end)) :]
    if kind == 5:
        return data[:at]
    if kind == 6:
        other = chance.choice(others)
        return data[:at] + other[chance.randrange(len(other) + 1) :]
    numbers = list(_NUMBER.finditer(data))
    if not numbers:
        return data + chance.choice(WORDS)
    found = chance.choice(numbers)
    return data[: found.start()] + chance.choice(NUMBERS) + data[found.end() :]
