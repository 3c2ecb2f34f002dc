"""The bodies of READ_RANGES: entries of several ranges of one ledger in one request.

    request     0  u64 ledger
                8  u32 max bytes
               12  ranges, ascending and apart from one another:
                    0  u64 first entry
                    8  u32 entries
    reply          runs, ascending, one behind the other

A striped ledger has few entries in a row on each bookie: a request for each row would cost more
than the entries.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from fencelog.ledgers.errors import ProtocolError
from fencelog.ledgers.format.availability import MAX_ENTRY_ID, Range
from fencelog.ledgers.format.run import Buffer, read_run_header
from fencelog.ledgers.limits import MAX_READ_RANGES

_PART = struct.Struct("<QI")
"""The head of a request, and each of its ranges."""


def encode_ranges(ledger_id: int, ranges: Sequence[Range], *, max_bytes: int) -> bytes:
    """Return the body of a request for the entries of these ranges, first and last included."""
    parts = [_PART.pack(first, last - first + 1) for first, last in ranges]
    return b"".join((_PART.pack(ledger_id, max_bytes), *parts))


def decode_ranges(body: Buffer) -> tuple[int, list[Range], int]:
    """Read the body of a request: ledger, ranges, max bytes. Raises ProtocolError."""
    count, rest = divmod(len(body), _PART.size)
    if rest or not 2 <= count <= 1 + MAX_READ_RANGES:
        raise ProtocolError(f"READ_RANGES with {len(body)} bytes is not valid")
    (ledger_id, max_bytes), *parts = _PART.iter_unpack(body)
    ranges: list[Range] = []
    following = 0
    for first, entries in parts:
        last = first + entries - 1
        if first < following or not first <= last <= MAX_ENTRY_ID:
            raise ProtocolError(f"READ_RANGES with a range of {entries} entries from {first} on")
        ranges.append((first, last))
        following = last + 1
    return ledger_id, ranges, max_bytes


def decode_runs(body: Buffer) -> list[memoryview]:
    """Return the runs of a reply, which are not verified. Raises ProtocolError."""
    view, at = memoryview(body), 0
    runs: list[memoryview] = []
    while at < len(view):
        size = read_run_header(view, at).size
        if size > len(view) - at:
            raise ProtocolError("a reply to READ_RANGES whose last run is cut off")
        runs.append(view[at : at + size])
        at += size
    return runs
