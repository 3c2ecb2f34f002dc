"""The files of a shard, made anew."""

from __future__ import annotations

from pathlib import Path

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.format.records import FILE_HEADER_BYTES, decode_file_header
from fencelog.bookie.journal.file import journal_ids, journal_name
from fencelog.bookie.storage.index import Index
from fencelog.bookie.storage.shard_directory import ShardDirectory, ShardPaths


def test_a_new_journal_goes_on_behind_all_that_the_index_has(tmp_path: Path) -> None:
    """A process that dies between index and checkpoint leaves a checkpoint that is older. A start
    would take no record below the mark of the index from the new journal."""
    disk, paths = PosixDisk(), ShardPaths(tmp_path / "journal", tmp_path / "ledgers")
    shard = ShardDirectory(disk, paths)
    shard.make(directory=bytes(16), salt=bytes(16))
    index = Index(disk.open_store(paths.index, create=False))
    index.write([], [], mark=9)
    index.close()
    before = shard.read_checkpoint()
    shard.make_journal(directory=bytes(16), salt=bytes(16))
    begin = shard.read_checkpoint()
    assert begin.sequence == 9
    assert journal_ids(disk, paths.journal) == [begin.file_id]
    assert begin.file_id > before.file_id
    data = (paths.journal / journal_name(begin.file_id)).read_bytes()
    header = decode_file_header(data[:FILE_HEADER_BYTES])
    assert header is not None
    assert header.first_sequence == 9
