"""The spans of a file of records, including the damaged ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fencelog.bookie.disk.port import File
from fencelog.bookie.format.records import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    Fetch,
    FileHeader,
    Record,
    decode_file_header,
    read_record,
)
from fencelog.bookie.journal.replay import windowed
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import read_run_header
from fencelog.ledgers.limits import MIB

Item = dict[str, object]
"""One line of a tool's output: names and values, in their order."""

_MARK = b"FLR"
_MARK_AT = 5


@dataclass(frozen=True, slots=True)
class RecordSpan:
    """A part of a file. ``record`` begins at ``offset``; None: no byte from ``offset`` to ``end``
    is in a record."""

    offset: int
    end: int
    record: Record | None


def places(file: File, end: int, *, seed: int) -> Iterator[RecordSpan]:
    """Yield all records of a file from its header to ``end``, and the gaps between them."""
    fetch = windowed(file)
    at = FILE_HEADER_BYTES
    while at < end:
        record = read_record(fetch, at, seed=seed)
        following = _next_record(fetch, at + 8, end, seed=seed) if record is None else record.end
        yield RecordSpan(at, following, record)
        at = following


def read_file_header(file: File) -> FileHeader | None:
    """Read the header of a file; return None if it is damaged or of another version."""
    try:
        return decode_file_header(file.read(0, FILE_HEADER_BYTES))
    except FencelogError:
        return None


def describe(record: Record) -> Item:
    """Describe a record as an item of output."""
    item: Item = {"record": record.sequence, "type": record.type.name}
    if record.type.is_run:
        run = read_run_header(record.body)
        item |= {"ledger": run.ledger_id, "first": run.first_entry_id, "last": run.last_entry_id}
    else:
        item["ledger"] = int.from_bytes(record.body[:8], "little")
        if len(record.body) > 8:
            item["lac"] = int.from_bytes(record.body[8:16], "little", signed=True)
    return item | {"bytes": len(record.body)}


def _next_record(fetch: Fetch, offset: int, end: int, *, seed: int) -> int:
    """Return the offset of the next valid record; ``end`` if there is none."""
    for position in range(offset, end, MIB):
        data = fetch(position, MIB + RECORD_HEADER_BYTES)
        at = data.find(_MARK)
        while at >= 0:
            candidate = position + at - _MARK_AT
            is_one = candidate % 8 == 0 and offset <= candidate < end
            if is_one and read_record(fetch, candidate, seed=seed) is not None:
                return candidate
            at = data.find(_MARK, at + 1)
    return end
