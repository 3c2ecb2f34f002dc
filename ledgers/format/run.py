"""Runs: consecutive entries of one ledger, the unit of the wire, the journal, cache and entry log.

A writer packs waiting entries into one run; a bookie receives, journals and stores the run
unchanged, without a loop over its entries. All integers little-endian; every entry starts at a
multiple of 8 within the run, so that a reader can wrap Arrow buffers in the payload without a copy.

    run     0  u64 ledger id
            8  u64 first entry id
           16  u32 entry count            (1 .. MAX_RUN_ENTRIES)
           20  u32 size of the run in bytes, this header included
           24  u32 CRC32C of bytes 0..24 and 32..size
           28  u32 0
           32  u32 start[count]           offset of each entry in the run; zero-padded to 8
            …  entries, each zero-padded to 8

    entry   0  u64 ledger id
            8  u64 entry id
           16  i64 LAC when it was sent   (-1: none)
           24  u64 length: payload bytes of the ledger up to and including this entry
           32  u32 payload size
           36  u8  digest type, then 3 zero bytes
           40  digest (8 bytes CRC32C, 32 bytes HMAC-SHA256) over bytes 0..40 and the payload
            …  payload

The run's checksum guards transport and storage; the entry's digest goes from writer to reader.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.format.digest import (
    DigestType,
    crc32c,
    digest_bytes,
    digest_matches,
    digest_size,
)
from fencelog.ledgers.format.request_context import NO_CONTEXTS, Contexts
from fencelog.ledgers.limits import KIB, MAX_RUN_BYTES, MAX_RUN_ENTRIES

RUN_HEADER = struct.Struct("<QQIIII")
ENTRY_HEADER = struct.Struct("<QQqQIB3x")
_RUN_HEADER_START = struct.Struct("<QQII")
"""A run's header before its checksum."""
_ONE_START = (RUN_HEADER.size + 8).to_bytes(8, "little")
"""The index of a run of one entry, padded."""
_COUNT_AND_SIZE = struct.Struct("<II")
_FEW_PARTS = 16
"""The number of parts up to which a checksum over one after the other costs less than a copy."""
_LARGE_PART_BYTES = 1 * KIB
"""The mean size of parts from which on that holds for any number of them."""
_ENTRY_WITH_CRC = struct.Struct("<QQqQIB3xQ")
"""An entry's header and its CRC32C."""
_PADDING = tuple(bytes(n) for n in range(8))

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Pieces:
    """The payload of a large entry whose bytes lie in several places; they are joined once, in the
    run. Nothing may change them before that."""

    parts: tuple[Buffer, ...]
    size: int

    @classmethod
    def of(cls, *parts: Buffer) -> Pieces:
        return cls(parts, sum(map(len, parts)))

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)


Payload = bytes | Pieces


class Entry(NamedTuple):
    """One verified entry. ``length``: payload bytes of the ledger up to and including this
    entry."""

    ledger_id: int
    entry_id: int
    lac: int
    length: int
    payload: memoryview


class RunHeader(NamedTuple):
    """The facts that a bookie needs of a run, read without looking at its entries."""

    ledger_id: int
    first_entry_id: int
    entries: int
    size: int

    @property
    def last_entry_id(self) -> int:
        return self.first_entry_id + self.entries - 1


class Run(NamedTuple):
    """A run, together with what its bytes say, so that they are read once for all bookies of a
    process. ``lac``: the one that its last entry carries. ``contexts``: the requests that it was
    appended for, as far as they can be followed."""

    header: RunHeader
    lac: int
    data: bytes
    contexts: Contexts = NO_CONTEXTS


def _u32_array(data: Any) -> array[int]:
    values = array("I")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _u32_bytes(values: Sequence[int]) -> bytes:
    packed = array("I", values)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _assemble(ledger_id: int, first_entry_id: int, sizes: Sequence[int], parts: list[Any]) -> bytes:
    """Join entry parts (each entry's bytes already padded, ``sizes`` with padding) into a run."""
    *starts, end = accumulate(sizes, initial=_entries_start(len(sizes)))
    return _join(ledger_id, first_entry_id, starts, end, parts)


def _join(
    ledger_id: int, first_entry_id: int, starts: Sequence[int], size: int, parts: list[Any]
) -> bytes:
    """Join header, index and the entries' bytes into a run of ``size`` bytes."""
    index = _u32_bytes(starts)
    index += _PADDING[-len(index) & 7]
    head = _RUN_HEADER_START.pack(ledger_id, first_entry_id, len(starts), size)
    if len(parts) > _FEW_PARTS and size < len(parts) * _LARGE_PART_BYTES:
        parts = [b"".join(parts)]
    checksum = crc32c(index, crc32c(head))
    for part in parts:
        checksum = crc32c(part, checksum)
    return b"".join((head, checksum.to_bytes(8, "little"), index, *parts))


def _entries_start(count: int) -> int:
    """Return the offset of the first entry in a run of so many."""
    return RUN_HEADER.size + ((count * 4 + 7) & ~7)


def build_run(
    ledger_id: int,
    first_entry_id: int,
    payloads: Sequence[Payload],
    *,
    lac: int,
    length_before: int,
    digest_type: DigestType = DigestType.CRC32C,
    key: bytes = b"",
) -> bytes:
    """Pack payloads as entries ``first_entry_id, +1, …`` of one ledger.

    ``length_before`` is the ledger's length before the first of them. The caller stays within
    MAX_RUN_ENTRIES and MAX_RUN_BYTES.
    """
    if len(payloads) == 1 and digest_type is DigestType.CRC32C:
        return _build_one(ledger_id, first_entry_id, payloads[0], lac, length_before)
    parts: list[Any] = []
    sizes: list[int] = []
    length = length_before
    entry_id = first_entry_id
    pack = ENTRY_HEADER.pack
    overhead = ENTRY_HEADER.size + digest_size(digest_type)
    for payload in payloads:
        size = len(payload)
        length += size
        header = pack(ledger_id, entry_id, lac, length, size, digest_type)
        pieces = _pieces_of(payload)
        digest = digest_bytes(digest_type, key, header, *pieces)
        pad = -size & 7
        parts += (header, digest, *pieces, _PADDING[pad])
        sizes.append(overhead + size + pad)
        entry_id += 1
    return _assemble(ledger_id, first_entry_id, sizes, parts)


def _build_one(
    ledger_id: int, entry_id: int, payload: Payload, lac: int, length_before: int
) -> bytes:
    """Pack a run of one entry. Where there are many ledgers nearly all runs are of this kind."""
    size = len(payload)
    header = ENTRY_HEADER.pack(
        ledger_id, entry_id, lac, length_before + size, size, DigestType.CRC32C
    )
    if isinstance(payload, Pieces):
        digest = digest_bytes(DigestType.CRC32C, b"", header, *payload.parts)
        parts = [header, digest, *payload.parts, _PADDING[-size & 7]]
        run_bytes = _entries_start(1) + sum(map(len, parts))
        return _join(ledger_id, entry_id, (_entries_start(1),), run_bytes, parts)
    digest = crc32c(payload, crc32c(header)).to_bytes(8, "little")  # as digest_bytes does
    body = b"".join((_ONE_START, header, digest, payload, _PADDING[-size & 7]))
    head = _RUN_HEADER_START.pack(ledger_id, entry_id, 1, RUN_HEADER.size + len(body))
    return b"".join((head, crc32c(body, crc32c(head)).to_bytes(8, "little"), body))


def _pieces_of(payload: Payload) -> tuple[Buffer, ...]:
    return payload.parts if isinstance(payload, Pieces) else (payload,)


def read_run_header(run: Buffer, offset: int = 0) -> RunHeader:
    """Return the header of a run at ``offset``; bounds are checked, the checksum is not.

    Raises ProtocolError if it cannot be a run.
    """
    if len(run) - offset < RUN_HEADER.size:
        raise ProtocolError(f"run of {len(run) - offset} bytes is shorter than its header")
    ledger_id, first, count, size, _crc, zero = RUN_HEADER.unpack_from(run, offset)
    start = RUN_HEADER.size + ((count * 4 + 7) & ~7)  # _entries_start, without a call
    if not 1 <= count <= MAX_RUN_ENTRIES or zero or not start < size <= MAX_RUN_BYTES:
        raise ProtocolError(f"run header with {count} entries and {size} bytes is not valid")
    return RunHeader(ledger_id, first, count, size)


def verify_run(run: Buffer) -> RunHeader:
    """Check size, checksum and index of a whole run; after this its entries can be located.

    Raises ProtocolError. Entry digests are not checked here: only a holder of the key can.
    """
    header = check_index(run)
    view = memoryview(run)
    (expected,) = struct.unpack_from("<I", view, 24)
    if crc32c(view[RUN_HEADER.size :], crc32c(view[:24])) != expected:
        raise ProtocolError(f"run checksum mismatch (ledger {header.ledger_id})")
    return header


def check_index(run: Buffer) -> RunHeader:
    """Check size and index of a whole run, not its checksum: enough for a reader that checks the
    digest of every entry, and keeps nothing else of the run. Raises ProtocolError."""
    header = read_run_header(run)
    view = memoryview(run)
    if header.size != len(run):
        raise ProtocolError(f"run says {header.size} bytes and has {len(run)}")
    starts = run_starts(view, header).tolist()
    if (
        starts[0] != _entries_start(header.entries)
        or starts[-1] + ENTRY_HEADER.size + 8 > header.size
        or (len(starts) > 1 and (starts != sorted(starts) or len(set(starts)) != len(starts)))
    ):
        raise ProtocolError(f"run index is not valid (ledger {header.ledger_id})")
    return header


def run_of(run: bytes) -> Run:
    """Return a run that this process has built or verified, with what it says."""
    header = read_run_header(run)
    return Run(header, run_lac(run, header), run)


def read_run(run: bytes) -> Run:
    """Return a run that came from outside, verified. Raises ProtocolError."""
    header = verify_run(run)
    return Run(header, run_lac(run, header), run)


def run_starts(run: Buffer, header: RunHeader) -> array[int]:
    """Return the offsets of the entries in the run, in entry order."""
    end = RUN_HEADER.size + header.entries * 4
    return _u32_array(memoryview(run)[RUN_HEADER.size : end])


def run_lac(run: Buffer, header: RunHeader) -> int:
    """Return the LAC that the last entry of the run carries: the writer's LAC when it sent the
    run."""
    (start,) = struct.unpack_from("<I", run, RUN_HEADER.size + (header.entries - 1) * 4)
    (lac,) = struct.unpack_from("<q", run, start + 16)
    return int(lac)


def run_length(run: Buffer, header: RunHeader) -> int:
    """Return the ledger's length in bytes up to and including the last entry of the run."""
    (start,) = struct.unpack_from("<I", run, RUN_HEADER.size + (header.entries - 1) * 4)
    (length,) = struct.unpack_from("<Q", run, start + 24)
    return int(length)


def slice_run(run: Buffer, first_entry_id: int, last_entry_id: int) -> bytes:
    """Return the part of a run from ``first_entry_id`` to ``last_entry_id`` (inclusive, clamped) as
    a run.

    Entries keep their bytes and digests. Returns the run itself when nothing is cut off.
    """
    header = read_run_header(run)
    low = max(first_entry_id, header.first_entry_id) - header.first_entry_id
    high = min(last_entry_id, header.last_entry_id) - header.first_entry_id
    if low > high:
        raise ValueError(f"run holds no entry of {first_entry_id}..{last_entry_id}")
    if low == 0 and high == header.entries - 1:
        return bytes(run)
    starts = run_starts(run, header)
    begin = starts[low]
    end = starts[high + 1] if high + 1 < header.entries else header.size
    position = _entries_start(high + 1 - low)
    moved = position - begin
    index = [start + moved for start in starts[low : high + 1]]
    body = memoryview(run)[begin:end]
    return _join(header.ledger_id, header.first_entry_id + low, index, end + moved, [body])


def merge_runs(runs: Sequence[Buffer]) -> bytes:
    """Join adjacent runs of one ledger (each begins right after the previous one ends) into one.

    The caller stays within MAX_RUN_ENTRIES and MAX_RUN_BYTES.
    """
    numbers = [_COUNT_AND_SIZE.unpack_from(run, 16) for run in runs]
    position = _entries_start(sum([count for count, _ in numbers]))
    starts: list[int] = []
    parts: list[Any] = []
    for run, (count, size) in zip(runs, numbers, strict=True):
        begin = _entries_start(count)
        if count == 1:
            starts.append(position)
        else:
            index = _u32_array(memoryview(run)[RUN_HEADER.size : RUN_HEADER.size + count * 4])
            moved = position - begin
            starts += [start + moved for start in index]
        parts.append(memoryview(run)[begin:size])
        position += size - begin
    ledger_id, first_entry_id, *_ = RUN_HEADER.unpack_from(runs[0])
    return _join(ledger_id, first_entry_id, starts, position, parts)


def verify_entries(
    run: Buffer, *, digest_type: DigestType = DigestType.CRC32C, key: bytes = b""
) -> list[Entry]:
    """Return the entries of a run, each with its digest, ids and size verified.

    Payloads are views into ``run``. Raises FencelogError(CORRUPT) naming the entry: what a reader
    may conclude is "unknown", never "not there" (PROTOCOL.md rule 7).
    """
    header = read_run_header(run)
    view = memoryview(run)
    entries: list[Entry] = []
    overhead = ENTRY_HEADER.size + digest_size(digest_type)
    unpack = ENTRY_HEADER.unpack_from
    for entry_id, start in enumerate(run_starts(view, header), header.first_entry_id):
        try:
            ledger, number, lac, length, size, kind = unpack(view, start)
        except struct.error:
            raise _corrupt(header.ledger_id, entry_id, "is cut off") from None
        payload_start = start + overhead
        if (
            ledger != header.ledger_id
            or number != entry_id
            or kind != digest_type
            or payload_start + size > header.size
        ):
            raise _corrupt(header.ledger_id, entry_id, "has a header that is not its own")
        head_end = start + ENTRY_HEADER.size
        payload = view[payload_start : payload_start + size]
        digest = view[head_end:payload_start]
        if not digest_matches(digest_type, key, view[start:head_end], payload, digest):
            raise _corrupt(header.ledger_id, entry_id, "does not match its digest")
        entries.append(Entry(ledger, number, lac, length, payload))
    return entries


def verify_digests(
    run: Buffer, *, digest_type: DigestType = DigestType.CRC32C, key: bytes = b""
) -> None:
    """Verify every entry of a run as ``verify_entries`` does, three times as fast. Raises
    FencelogError(CORRUPT)."""
    if digest_type is not DigestType.CRC32C:
        verify_entries(run, digest_type=digest_type, key=key)
        return
    header = read_run_header(run)
    view = memoryview(run)
    ledger_id, end = header.ledger_id, min(header.size, len(view))
    head_size, overhead = ENTRY_HEADER.size, _ENTRY_WITH_CRC.size
    unpack = _ENTRY_WITH_CRC.unpack_from
    for entry_id, start in enumerate(run_starts(view, header), header.first_entry_id):
        payload_start = start + overhead
        if payload_start > end:
            raise _corrupt(ledger_id, entry_id, "is cut off")
        ledger, number, _, _, size, kind, digest = unpack(view, start)
        payload_end = payload_start + size
        if ledger != ledger_id or number != entry_id or kind != digest_type or payload_end > end:
            raise _corrupt(ledger_id, entry_id, "has a header that is not its own")
        head = crc32c(view[start : start + head_size])
        if crc32c(view[payload_start:payload_end], head) != digest:
            raise _corrupt(ledger_id, entry_id, "does not match its digest")


def _corrupt(ledger_id: int, entry_id: int, what: str) -> FencelogError:
    return FencelogError(
        ErrorCode.CORRUPT,
        f"entry {entry_id} of ledger {ledger_id} {what}",
        ledger_id=ledger_id,
        entry_id=entry_id,
    )
