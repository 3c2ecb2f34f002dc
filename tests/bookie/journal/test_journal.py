"""The journal on a real directory: order, groups, files, and what replay makes of damage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from errno import EIO, ENOSPC
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.disk.port import DiskSpace
from fencelog.bookie.disk.posix import PosixDisk, PosixFile
from fencelog.bookie.format.records import (
    FILE_HEADER_BYTES,
    RecordType,
    decode_file_header,
    record_bytes,
)
from fencelog.bookie.journal.file import JournalPosition, journal_name
from fencelog.bookie.journal.journal import Journal
from fencelog.bookie.journal.replay import JournalReplay, windowed
from fencelog.bookie.journal.spare_files import MAX_SPARES, SpareFiles
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from tests.support.bookie_stage import Requests
from tests.support.faulty_disk import FaultyDisk
from tests.support.until import PATIENCE_S

INCARNATION = b"i" * 16
START = JournalPosition(sequence=1, file_id=1, offset=FILE_HEADER_BYTES)


@pytest.fixture
async def journal(tmp_path: Path, faulty_disk: FaultyDisk) -> AsyncIterator[Journal]:
    """File 1 takes about four of the test's records."""
    io_thread, sync_io_thread = faulty_disk.io_thread("journal"), faulty_disk.io_thread("sync")
    journal = Journal(
        disk=faulty_disk,
        io_thread=io_thread,
        sync_io_thread=sync_io_thread,
        host=SystemHost(),
        directory=tmp_path,
        incarnation=INCARNATION,
        max_file_bytes=4096,
        on_failure=lambda _error: None,
    )
    await journal.start(file_id=1, sequence=1)
    yield journal
    await journal.close()
    await io_thread.close()
    await sync_io_thread.close()


def files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


async def append_all(journal: Journal, runs: list[bytes]) -> None:
    answers: list[FencelogError | None] = []
    done = asyncio.Event()
    for run in runs:
        journal.append(RecordType.RUN, run, answers.append)
    journal.barrier(lambda _error: done.set())
    async with asyncio.timeout(PATIENCE_S):
        await done.wait()
    assert answers == [None] * len(runs)


def replay(directory: Path, start: JournalPosition = START) -> tuple[list[bytes], JournalReplay]:
    found = JournalReplay(PosixDisk(), directory, start=start, incarnation=INCARNATION)
    bodies: list[bytes] = []
    try:
        while records := found.next_records(1000):
            bodies += [record.body for record, _end in records]
    finally:
        found.close()
    return bodies, found


async def test_answers_come_in_order_after_the_sync_and_waiting_records_share_one(
    journal: Journal, faulty_disk: FaultyDisk, requests: Requests
) -> None:
    order: list[int] = []
    faulty_disk.waits.add("sync .journal")
    journal.append(RecordType.RUN, requests.run(1, 0), lambda _e: order.append(0))
    # The header's write and sync, the record's write and sync.
    await requests.until(lambda: len(faulty_disk.calls) == 4)
    for number in range(1, 6):
        done = partial(lambda n, _e: order.append(n), number)
        journal.append(RecordType.RUN, requests.run(1, number), done)
    journal.barrier(lambda _e: order.append(99))
    await asyncio.sleep(0.03)
    assert order == []
    faulty_disk.waits.clear()
    await requests.until(lambda: 99 in order)
    assert order == [0, 1, 2, 3, 4, 5, 99]
    syncs = [call for call in faulty_disk.calls if call.startswith("sync")]
    assert len(syncs) == 3


async def test_a_disk_that_does_not_answer_stalls_it(
    journal: Journal, faulty_disk: FaultyDisk, requests: Requests
) -> None:
    assert journal.stalled_s == 0
    await append_all(journal, [requests.run(1, 0)])
    began_s = asyncio.get_running_loop().time()
    await asyncio.sleep(0.5)
    assert journal.stalled_s == 0  # nothing waits for it
    faulty_disk.waits.add("sync .journal")
    answers: list[FencelogError | None] = []
    idle_s = asyncio.get_running_loop().time() - began_s
    journal.append(RecordType.RUN, requests.run(1, 1), answers.append)
    assert journal.stalled_s < idle_s  # the time without work does not count
    await requests.until(lambda: journal.stalled_s > 0.1)
    journal.append(RecordType.RUN, requests.run(1, 2), answers.append)
    assert journal.stalled_s > 0.1  # another record that waits is no progress
    faulty_disk.waits.clear()
    await requests.until(lambda: len(answers) == 2)
    assert journal.stalled_s == 0


async def test_an_answer_that_fails_does_not_keep_the_others_from_theirs(
    journal: Journal, requests: Requests
) -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    answers: list[FencelogError | None] = []

    def fail(_error: FencelogError | None) -> None:
        raise ValueError("the caller's own")

    journal.append(RecordType.RUN, requests.run(1, 0), fail)
    journal.append(RecordType.RUN, requests.run(1, 1), answers.append)
    await requests.until(lambda: answers == [None])
    assert [str(context["exception"]) for context in reported] == ["the caller's own"]


async def test_a_barrier_with_nothing_on_the_way_is_answered_at_once(journal: Journal) -> None:
    answers: list[FencelogError | None] = []
    journal.barrier(answers.append)
    assert answers == []
    await asyncio.sleep(0)
    assert answers == [None]


async def test_files_are_rolled_and_read_back_as_one_sequence(
    journal: Journal, requests: Requests, tmp_path: Path
) -> None:
    runs = [requests.run(1, i, 5) for i in range(0, 200, 5)]
    await append_all(journal, runs)
    assert len(files(tmp_path)) > 3
    assert all(path.stat().st_size <= 4096 for path in files(tmp_path))
    bodies, found = replay(tmp_path)
    assert bodies == runs
    assert found.position == journal.position


async def test_a_spare_is_written_over_and_its_old_records_never_come_back(
    journal: Journal, requests: Requests, tmp_path: Path, faulty_disk: FaultyDisk
) -> None:
    """The old records have the same sizes and sequences as the new ones, and lie where they end."""
    old = [requests.run(1, i, 5) for i in range(0, 20, 5)]
    await append_all(journal, old)
    assert [path.name for path in files(tmp_path)] == [journal_name(1)]
    await journal.close()
    SpareFiles(faulty_disk, tmp_path).keep(tmp_path / journal_name(1), 1)
    await journal.start(file_id=2, sequence=1)
    assert [path.name for path in files(tmp_path)] == [journal_name(2)]
    new = [requests.run(2, i, 5) for i in range(0, 10, 5)]
    await append_all(journal, new)
    start = JournalPosition(sequence=1, file_id=2, offset=FILE_HEADER_BYTES)
    bodies, found = replay(tmp_path, start)
    assert (bodies, found.position) == (new, journal.position)
    whole = files(tmp_path)[0].read_bytes()
    assert old[-1] in whole  # it is still there
    torn = found.position.offset - 8
    files(tmp_path)[0].write_bytes(whole[:torn] + b"torn off" + whole[torn + 8 :])
    assert replay(tmp_path, start)[0] == new[:1]


@pytest.mark.parametrize("has_spare", [False, True])
async def test_a_file_for_which_there_is_no_room_is_not_reserved(
    has_spare: bool,
    journal: Journal,
    requests: Requests,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The records may well fit: a small disk is not full because a whole file does not."""
    if has_spare:
        SpareFiles(PosixDisk(), tmp_path).path(1).write_bytes(b"shorter than now")

    def no_space(file: PosixFile, _size: int) -> None:
        file.write([bytes(2000)], 0)  # some file systems keep what they reserved until it failed
        raise OSError(ENOSPC, "no room")

    monkeypatch.setattr(PosixFile, "reserve", no_space)
    runs = [requests.run(1, i, 5) for i in range(0, 50, 5)]
    await append_all(journal, runs)
    assert replay(tmp_path)[0] == runs
    second = tmp_path / journal_name(2)
    header = decode_file_header(second.read_bytes())
    assert header is not None
    assert header.reserved == 0
    bytes_of_records = sum(record_bytes(len(run)) for run in runs)
    rolled = [path.stat().st_size for path in files(tmp_path)[1:]]
    assert sum(rolled) < bytes_of_records + 64 * len(rolled)


async def test_a_nearly_full_disk_keeps_its_last_space_for_flushes(
    journal: Journal, requests: Requests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file's size is reserved only where several times as much is free."""
    most = journal._max_file_bytes
    free = 3 * most
    monkeypatch.setattr(PosixDisk, "space", lambda *_: DiskSpace(1 << 40, free))
    runs = [requests.run(1, i, 5) for i in range(0, 50, 5)]
    await append_all(journal, runs)
    header = decode_file_header((tmp_path / journal_name(2)).read_bytes())
    assert header is not None
    assert header.reserved == 0
    free = 5 * most
    await append_all(journal, runs)
    header = decode_file_header(files(tmp_path)[-1].read_bytes())
    assert header is not None
    assert header.reserved >= most


async def test_space_that_cannot_be_reserved_for_another_reason_stops_the_journal(
    journal: Journal, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_file: PosixFile, _size: int) -> None:
        raise OSError(EIO, "broken")

    monkeypatch.setattr(PosixFile, "reserve", broken)
    answers: list[FencelogError | None] = []
    for first in range(0, 50, 5):
        journal.append(RecordType.RUN, requests.run(1, first, 5), answers.append)
    with pytest.raises(FencelogError, match="broken"):
        await journal.settle()
    assert answers[0] is None
    assert answers[-1] is not None


async def test_spares_are_bounded_and_other_files_left_alone(
    tmp_path: Path, faulty_disk: FaultyDisk
) -> None:
    spares = SpareFiles(faulty_disk, tmp_path)
    assert spares.oldest() is None
    for file_id in range(1, MAX_SPARES + 3):
        (tmp_path / journal_name(file_id)).write_bytes(b"old")
        spares.keep(tmp_path / journal_name(file_id), file_id)
    assert len(files(tmp_path)) == MAX_SPARES
    oldest = spares.oldest()
    assert oldest is not None
    assert oldest.stem == f"{1:016x}"


async def test_replay_begins_at_a_position_within_a_file(
    journal: Journal, requests: Requests, tmp_path: Path
) -> None:
    runs = [requests.run(1, i, 5) for i in range(0, 60, 5)]
    await append_all(journal, runs[:7])
    middle = journal.position
    await append_all(journal, runs[7:])
    assert replay(tmp_path, middle)[0] == runs[7:]


async def test_damage_before_the_last_group_is_refused_naming_file_and_offset(
    journal: Journal, requests: Requests, tmp_path: Path
) -> None:
    for first in range(0, 60, 5):
        await append_all(journal, [requests.run(1, first, 5)])
    for path in files(tmp_path):
        whole = path.read_bytes()
        path.write_bytes(whole[:200] + bytes([whole[200] ^ 4]) + whole[201:])
        with pytest.raises(FencelogError, match=rf"{path.name} at offset") as caught:
            replay(tmp_path)
        assert caught.value.code is ErrorCode.CORRUPT
        path.write_bytes(whole)


async def test_a_missing_file_is_refused(
    journal: Journal, requests: Requests, tmp_path: Path
) -> None:
    await append_all(journal, [requests.run(1, i, 5) for i in range(0, 100, 5)])
    for file_id in (1, 2):
        path = tmp_path / journal_name(file_id)
        whole = path.read_bytes()
        path.unlink()
        with pytest.raises(FencelogError, match="missing"):
            replay(tmp_path)
        path.write_bytes(whole)


async def test_a_torn_tail_is_left_behind_and_the_next_file_goes_on(
    journal: Journal, requests: Requests, tmp_path: Path, faulty_disk: FaultyDisk
) -> None:
    runs = [requests.run(1, i, 2) for i in range(0, 6, 2)]
    for run in runs:
        await append_all(journal, [run])
    end = journal.position
    path = tmp_path / journal_name(end.file_id)
    data = bytearray(path.read_bytes())
    data[end.offset - 100 : end.offset] = bytes(100)
    path.write_bytes(data)
    bodies, found = replay(tmp_path)
    assert bodies == runs[:-1]
    await journal.start(file_id=found.last_file_id + 1, sequence=found.position.sequence)
    await append_all(journal, [requests.run(1, 50, 2)])
    assert replay(tmp_path)[0] == [*runs[:-1], requests.run(1, 50, 2)]


async def test_a_damaged_header_is_refused(
    journal: Journal, requests: Requests, tmp_path: Path
) -> None:
    await append_all(journal, [requests.run(1, 0, 2)])
    first = tmp_path / journal_name(1)
    first.write_bytes(b"?" + first.read_bytes()[1:])
    with pytest.raises(FencelogError, match="header is damaged"):
        replay(tmp_path)


@pytest.mark.parametrize("call", ["write .spare", "sync .spare"])
async def test_a_file_that_never_came_to_be_is_no_journal_file_but_a_spare(
    journal: Journal, requests: Requests, tmp_path: Path, faulty_disk: FaultyDisk, call: str
) -> None:
    runs = [requests.run(1, i, 20) for i in range(0, 20, 20)]
    await append_all(journal, runs)
    faulty_disk.fails.add(call)
    answers: list[FencelogError | None] = []
    journal.append(RecordType.RUN, requests.run(1, 20, 20), answers.append)
    await requests.until(lambda: len(answers) == 1)
    assert answers[0] is not None
    assert [path.suffix for path in files(tmp_path)] == [".journal", ".spare"]
    bodies, found = replay(tmp_path)
    assert (bodies, found.last_file_id) == (runs, 1)
    faulty_disk.fails.clear()
    io_threads = faulty_disk.io_thread("journal"), faulty_disk.io_thread("sync")
    again = Journal(
        disk=faulty_disk,
        io_thread=io_threads[0],
        sync_io_thread=io_threads[1],
        host=SystemHost(),
        directory=tmp_path,
        incarnation=INCARNATION,
        max_file_bytes=4096,
        on_failure=lambda _error: None,
    )
    await again.start(file_id=2, sequence=found.position.sequence)
    assert [path.name for path in files(tmp_path)] == [journal_name(1), journal_name(2)]
    await append_all(again, runs)
    assert replay(tmp_path)[0] == runs * 2
    await again.close()
    for io_thread in io_threads:
        await io_thread.close()


async def test_a_journal_of_another_directory_is_refused(
    journal: Journal, requests: Requests, tmp_path: Path
) -> None:
    await append_all(journal, [requests.run(1, 0, 2)])
    with pytest.raises(FencelogError, match="another data directory"):
        JournalReplay(PosixDisk(), tmp_path, start=START, incarnation=b"x" * 16)


async def test_after_a_failed_sync_nothing_is_written_and_all_is_answered(
    journal: Journal, faulty_disk: FaultyDisk, requests: Requests
) -> None:
    faulty_disk.fails.add("sync .journal")
    answers: list[FencelogError | None] = []
    for number in range(3):
        journal.append(RecordType.RUN, requests.run(1, number), answers.append)
    await requests.until(lambda: len(answers) == 3)
    calls = len(faulty_disk.calls)
    faulty_disk.fails.clear()
    journal.append(RecordType.RUN, requests.run(1, 3), answers.append)
    journal.barrier(answers.append)
    await asyncio.sleep(0.02)
    assert [error.code if error else None for error in answers] == [ErrorCode.STORAGE_FAILED] * 5
    assert len(faulty_disk.calls) == calls


async def test_a_sync_that_failed_is_not_tried_again(
    journal: Journal, faulty_disk: FaultyDisk, requests: Requests
) -> None:
    """The second one would succeed, without the pages that the first one lost."""
    await append_all(journal, [requests.run(1, 0)])
    faulty_disk.fails_once.add("sync .journal")
    answers: list[FencelogError | None] = []
    journal.append(RecordType.RUN, requests.run(1, 1), answers.append)
    await requests.until(lambda: len(answers) == 1)
    assert [error.code if error else None for error in answers] == [ErrorCode.STORAGE_FAILED]


async def test_no_record_is_answered_from_a_file_whose_name_may_be_lost(
    journal: Journal, faulty_disk: FaultyDisk, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: Path) -> None:
        raise OSError(EIO, "made to fail")

    monkeypatch.setattr(faulty_disk, "sync_directory", fail)
    answers: list[FencelogError | None] = []
    for number in range(6):  # more than one file takes
        journal.append(RecordType.RUN, requests.run(1, number, size=900), answers.append)
    await requests.until(lambda: len(answers) == 6)
    assert answers[-1] is not None
    assert answers[-1].code is ErrorCode.STORAGE_FAILED


async def test_replay_syncs_the_last_file_before_it_gives_a_record_of_it(
    journal: Journal, faulty_disk: FaultyDisk, requests: Requests, tmp_path: Path
) -> None:
    """What a killed process has written may be in the page cache alone: a power loss takes it."""
    await append_all(journal, [requests.run(1, 0)])
    faulty_disk.calls.clear()
    found = JournalReplay(faulty_disk, tmp_path, start=START, incarnation=INCARNATION)
    assert f"sync {journal_name(1)}" in faulty_disk.calls
    assert len(found.next_records(1000)) == 1
    found.close()


@given(
    st.binary(max_size=300),
    st.lists(st.tuples(st.integers(0, 320), st.integers(0, 80)), max_size=20),
)
def test_reading_ahead_gives_what_reading_gives(data: bytes, reads: list[tuple[int, int]]) -> None:
    class Memory:
        def read(self, offset: int, size: int) -> bytes:
            return data[offset : offset + size]

    fetch = windowed(Memory(), window=64)  # type: ignore[arg-type]  # has `read`, the one used
    for offset, size in reads:
        assert fetch(offset, size) == data[offset : offset + size]
