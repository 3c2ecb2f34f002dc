"""Entry logs on their own: sealing, footers, and going on after a restart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fencelog.bookie.disk.port import Disk
from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.format.records import FILE_HEADER_BYTES, FileHeader, decode_file_header
from fencelog.bookie.storage.entry_log import (
    EntryLogReader,
    StoredRun,
    decode_footer,
    entry_log_ids,
    entry_log_name,
)
from fencelog.bookie.storage.entry_log_writer import EntryLogPlace, EntryLogWriter
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB
from tests.support.bookie_stage import Requests
from tests.support.faulty_disk import FaultyDisk

INCARNATION = b"i" * 16


def writer_in(
    directory: Path, disk: Disk | None = None, *, max_file_bytes: int = 10_000
) -> EntryLogWriter:
    place = EntryLogPlace(disk or PosixDisk(), directory, INCARNATION, salt=lambda: b"s" * 16)
    return EntryLogWriter(place, max_file_bytes=max_file_bytes)


def header_of(path: Path) -> FileHeader:
    header = decode_file_header(path.read_bytes()[:FILE_HEADER_BYTES])
    assert header is not None
    return header


@pytest.fixture
def stored(tmp_path: Path, requests: Requests) -> dict[bytes, StoredRun]:
    """Runs of three ledgers over several files, and where they are."""
    runs = [requests.run(ledger_id, i, 3, size=500) for ledger_id in (1, 2, 3) for i in (0, 3, 6)]
    writer = writer_in(tmp_path)
    found = dict(zip(runs, writer.append(runs), strict=True))
    writer.close()
    return found


def test_runs_are_read_back_from_every_file(stored: dict[bytes, StoredRun], tmp_path: Path) -> None:
    reader = EntryLogReader(PosixDisk(), tmp_path, incarnation=INCARNATION)
    assert len({where.file_id for where in stored.values()}) > 1
    assert [reader.read(where) for where in stored.values()] == list(stored)
    reader.close()


def test_runs_are_read_back_where_few_files_may_be_open(
    stored: dict[bytes, StoredRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.bookie.storage.entry_log._MAX_OPEN_FILES", 1)
    reader = EntryLogReader(PosixDisk(), tmp_path, incarnation=INCARNATION)
    for _ in range(2):
        assert [reader.read(where) for where in stored.values()] == list(stored)
    reader.close()


def test_a_sealed_file_says_how_much_it_holds_of_each_ledger(
    stored: dict[bytes, StoredRun], tmp_path: Path
) -> None:
    disk = PosixDisk()
    *sealed, newest = entry_log_ids(disk, tmp_path)
    for file_id in sealed:
        path = tmp_path / entry_log_name(file_id)
        seed = header_of(path).seed
        expected: dict[int, int] = {}
        for where in stored.values():
            if where.file_id == file_id:
                size = 32 + (where.size + 7) // 8 * 8
                expected[where.ledger_id] = expected.get(where.ledger_id, 0) + size
        file = disk.open(path)
        assert decode_footer(file, seed=seed) == expected
        file.close()
        assert path.stat().st_size <= 10_000 + 16 * len(expected) + 32  # the footer
    file = disk.open(tmp_path / entry_log_name(newest))
    assert decode_footer(file, seed=header_of(tmp_path / entry_log_name(newest)).seed) is None
    file.close()


def test_any_damaged_byte_of_a_footer_makes_it_none(
    stored: dict[bytes, StoredRun], tmp_path: Path
) -> None:
    disk = PosixDisk()
    path = tmp_path / entry_log_name(entry_log_ids(disk, tmp_path)[0])
    whole = path.read_bytes()
    seed = header_of(path).seed
    footer_bytes = 32 + 16 * len({w.ledger_id for w in stored.values() if w.file_id == 1})
    for back in range(1, footer_bytes + 1):
        damaged = bytearray(whole)
        damaged[-back] ^= 1
        path.write_bytes(damaged)
        file = disk.open(path)
        assert decode_footer(file, seed=seed) is None
        file.close()


def test_a_restart_begins_a_new_file(
    stored: dict[bytes, StoredRun], tmp_path: Path, requests: Requests
) -> None:
    newest = entry_log_ids(PosixDisk(), tmp_path)[-1]
    writer = writer_in(tmp_path)
    (where,) = writer.append([requests.run(9, 0)])
    writer.close()
    assert (where.file_id, where.offset) == (newest + 1, FILE_HEADER_BYTES + 32)


def test_a_location_that_holds_another_run_is_corrupt(
    stored: dict[bytes, StoredRun], tmp_path: Path
) -> None:
    reader = EntryLogReader(PosixDisk(), tmp_path, incarnation=INCARNATION)
    (first, second) = list(stored.values())[:2]
    wrong = StoredRun(
        first.ledger_id,
        first.first_entry_id,
        first.last_entry_id,
        second.file_id,
        second.offset,
        second.size,
    )
    with pytest.raises(FencelogError, match="another run") as caught:
        reader.read(wrong)
    assert caught.value.code is ErrorCode.CORRUPT
    reader.close()


def test_a_file_of_another_directory_is_corrupt(
    stored: dict[bytes, StoredRun], tmp_path: Path
) -> None:
    reader = EntryLogReader(PosixDisk(), tmp_path, incarnation=b"x" * 16)
    with pytest.raises(FencelogError, match="header is damaged"):
        reader.read(next(iter(stored.values())))


def test_a_disk_that_fails_costs_no_file_descriptors(
    stored: dict[bytes, StoredRun], tmp_path: Path, faulty_disk: FaultyDisk
) -> None:
    """Readers ask again and again; the journal needs descriptors too."""
    reader = EntryLogReader(faulty_disk, tmp_path, incarnation=INCARNATION)
    where = next(iter(stored.values()))
    before = len(os.listdir("/proc/self/fd"))
    faulty_disk.fails.add("read .entrylog")
    for _ in range(20):
        with pytest.raises(FencelogError) as caught:
            reader.read(where)
        assert caught.value.code is ErrorCode.STORAGE_FAILED
    assert len(os.listdir("/proc/self/fd")) == before
    faulty_disk.fails.clear()
    assert reader.read(where) == next(iter(stored))
    reader.close()


def test_large_runs_are_written_back_one_by_one_and_synced_once(
    tmp_path: Path, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    """A sync of each would have the file system commit the growing file every time."""
    runs = [requests.run(1, first, size=MIB) for first in range(3)] + [requests.run(1, 3)]
    writer = writer_in(tmp_path, faulty_disk, max_file_bytes=10 * MIB)
    writer.append([requests.run(2, 0)])
    faulty_disk.calls.clear()
    writer.append(runs)
    writer.close()
    calls = [call.split()[0] for call in faulty_disk.calls]
    assert calls == ["write", "write_back"] * 3 + ["write", "sync"]


def test_runs_that_end_with_a_full_buffer_are_synced_too(
    tmp_path: Path, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    writer = writer_in(tmp_path, faulty_disk, max_file_bytes=10 * MIB)
    writer.append([requests.run(1, 0, size=MIB)])
    assert faulty_disk.calls[-1].startswith("sync ")
    writer.append([])
    writer.close()
    calls = [call.split()[0] for call in faulty_disk.calls]
    assert calls == ["write", "sync", "write", "write_back", "sync"]


def test_a_file_that_could_not_be_written_back_is_not_synced(
    tmp_path: Path, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    """The sync might succeed without the lost pages."""
    writer = writer_in(tmp_path, faulty_disk, max_file_bytes=10 * MIB)
    faulty_disk.fails_once.add("write_back .entrylog")
    with pytest.raises(OSError, match="made to fail"):
        writer.append([requests.run(1, first, size=MIB) for first in range(3)])
    writer.close()
    assert faulty_disk.calls[-1].startswith("write_back ")
