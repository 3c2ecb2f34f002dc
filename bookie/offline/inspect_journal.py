"""The content of a journal, and the result of its replay at a start."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path

from fencelog.bookie.disk.port import Disk
from fencelog.bookie.format.records import FILE_HEADER_BYTES, JOURNAL_MAGIC, Record
from fencelog.bookie.journal.file import JournalPosition, journal_ids, journal_name
from fencelog.bookie.journal.replay import JournalReplay
from fencelog.bookie.offline.inspect_records import Item, describe, places, read_file_header
from fencelog.bookie.storage.shard_directory import ShardDirectory
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.limits import MIB

_CHUNK_BYTES = 8 * MIB


def inspect_journal(
    disk: Disk, shard: ShardDirectory, incarnation: bytes, only: Path | None = None
) -> Iterator[Item]:
    """Yield each file and its records, or those of ``only``; then where replay begins, where it
    ends, and why. ``disk`` is a read-only one. Raises OSError."""
    directory = shard.paths.journal
    for file_id in journal_ids(disk, directory):
        path = directory / journal_name(file_id)
        if only is None or path.name == only.name:
            yield from _inspect_file(disk, path)
    if only is None:
        yield from _inspect_replay(disk, shard, incarnation)


def journal_records(
    disk: Disk, shard: ShardDirectory, incarnation: bytes
) -> Iterator[tuple[JournalPosition, Record | None]]:
    """Yield the records that a start would replay, from the checkpoint on, each with its position;
    last the position of the end, with None.

    With a read-only ``disk`` no file is changed. Raises OSError, FencelogError(CORRUPT) where a
    start would refuse.
    """
    start = shard.read_checkpoint()
    replay = JournalReplay(disk, shard.paths.journal, start=start, incarnation=incarnation)
    at = replay.position
    try:
        while records := replay.next_records(_CHUNK_BYTES):
            for record, end in records:
                same_file = at.file_id == end.file_id
                offset = at.offset if same_file else FILE_HEADER_BYTES
                yield JournalPosition(record.sequence, end.file_id, offset), record
                at = end
        yield replay.position, None
    finally:
        replay.close()


def _inspect_file(disk: Disk, path: Path) -> Iterator[Item]:
    file = disk.open(path)
    try:
        header = read_file_header(file)
        if header is None or header.magic != JOURNAL_MAGIC:
            yield {"file": str(path), "bytes": file.size(), "header": "not valid"}
            return
        yield {
            "file": str(path),
            "bytes": file.size(),
            "id": header.file_id,
            "first record": header.first_sequence,
            "directory": header.incarnation.hex(),
        }
        for place in places(file, file.size(), seed=header.seed):
            if place.record is None:
                gap = place.end - place.offset
                yield {"offset": place.offset, "bytes": gap, "valid": "no, or never written"}
            else:
                durable = {"durable": place.record.durable, "valid": "yes"}
                yield {"offset": place.offset} | describe(place.record) | durable
    finally:
        file.close()


def _inspect_replay(disk: Disk, shard: ShardDirectory, incarnation: bytes) -> Iterator[Item]:
    try:
        start = shard.read_checkpoint()
        yield {"replay begins": start.sequence, "file": start.file_id, "offset": start.offset}
        end = deque(journal_records(disk, shard, incarnation), maxlen=1)[0][0]
        why = "no valid record follows, and nothing says that one had been synced"
        yield {"replay ends": end.sequence, "file": end.file_id, "offset": end.offset, "why": why}
    except FencelogError as error:
        yield {"replay refused": error.detail}
