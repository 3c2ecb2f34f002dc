"""The content of entry logs, for operators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fencelog.bookie.disk.port import Disk, File
from fencelog.bookie.format.records import ENTRY_LOG_MAGIC, FileHeader
from fencelog.bookie.offline.inspect_records import Item, describe, places, read_file_header
from fencelog.bookie.storage.entry_log import (
    decode_footer,
    entry_log_ids,
    entry_log_name,
    records_end,
)
from fencelog.bookie.storage.shard_directory import ShardDirectory


def inspect_entry_logs(
    disk: Disk, shard: ShardDirectory, only: Path | None = None
) -> Iterator[Item]:
    """Yield each entry log, its records and its footer, or those of ``only``. Raises OSError."""
    directory = shard.paths.entry_log
    for file_id in entry_log_ids(disk, directory):
        path = directory / entry_log_name(file_id)
        if only is None or path.name == only.name:
            yield from _inspect_file(disk, path)


def read_entry_log_header(file: File, file_id: int, incarnation: bytes) -> FileHeader | None:
    """Read the header of an entry log; return None if it is damaged, or not that of this file."""
    header = read_file_header(file)
    expected = (ENTRY_LOG_MAGIC, file_id, incarnation)
    if header is None or (header.magic, header.file_id, header.incarnation) != expected:
        return None
    return header


def _inspect_file(disk: Disk, path: Path) -> Iterator[Item]:
    file = disk.open(path)
    try:
        header = read_file_header(file)
        if header is None or header.magic != ENTRY_LOG_MAGIC:
            yield {"file": str(path), "bytes": file.size(), "header": "not valid"}
            return
        footer = decode_footer(file, seed=header.seed)
        yield {
            "file": str(path),
            "bytes": file.size(),
            "id": header.file_id,
            "directory": header.incarnation.hex(),
            "sealed": "no" if footer is None else "yes",
        }
        for place in places(file, records_end(file), seed=header.seed):
            if place.record is None:
                yield {"offset": place.offset, "bytes": place.end - place.offset, "valid": "no"}
            else:
                yield {"offset": place.offset} | describe(place.record) | {"valid": "yes"}
        for ledger_id, size in (footer or {}).items():
            yield {"footer": ledger_id, "bytes of records": size}
    finally:
        file.close()
