"""Entries read from the files of bookies on this machine: the same ones, and the same errors, as
over the socket, whatever has become of the file."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from threading import Event

import pytest

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.bookie.server.server import BookieServer
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import Entry, build_run
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.limits import KIB
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.rpc.places import PlacedRuns
from fencelog.spark_connector.read import local_files
from fencelog.spark_connector.read.bookies import BookieTable
from fencelog.spark_connector.read.local_files import MAX_FAILURES, LocalFiles
from fencelog.spark_connector.read.verified_run import VerifiedRun, verified_runs
from tests.support.bookie_stage import Requests

LEDGER, ENTRIES, SIZE = 3, 40, 100 * KIB


def payload(entry_id: int) -> bytes:
    return f"entry {entry_id}|".encode().ljust(SIZE, b".")


class Machine:
    """Bookies that have a ledger in their entry logs, and a task beside them."""

    def __init__(self, path: Path, stack: AsyncExitStack) -> None:
        self._path = path
        self._stack = stack
        self.bookies: dict[str, Bookie] = {}
        self.addresses: dict[str, str] = {}
        self.files = LocalFiles()
        self.table = BookieTable({})

    async def start(self, *bookie_ids: str) -> None:
        self.addresses = {bookie_id: await self._serve(bookie_id) for bookie_id in bookie_ids}
        self.table = BookieTable(self.addresses, files=self.files)
        self._stack.push_async_callback(self.table.close)

    async def _serve(self, bookie_id: str) -> str:
        config = BookieConfig(self._path / bookie_id, bookie_id=bookie_id)
        bookie = await Bookie.open(config, disk=PosixDisk(), host=SystemHost())
        for first in range(0, ENTRIES, 8):
            payloads = [payload(first + n) for n in range(8)]
            run = build_run(LEDGER, first, payloads, lac=first - 1, length_before=first * SIZE)
            assert await Requests.add(bookie, run) is None
        await bookie.close()
        bookie = await Bookie.open(config, disk=PosixDisk(), host=SystemHost())
        self._stack.push_async_callback(bookie.close)
        server = await BookieServer.start(bookie, "127.0.0.1", 0)
        self._stack.push_async_callback(server.close)
        self.bookies[bookie_id] = bookie
        return server.address

    def local_and_other_reads(self) -> tuple[int, int]:
        """Return how many reads the bookies answered with places, and with bytes."""
        counts = [bookie.metrics for bookie in self.bookies.values()]
        by_bytes = sum(each.disk_reads + each.read_cache_hits for each in counts)
        return sum(each.placed_reads for each in counts), by_bytes

    def file(self, bookie_id: str) -> Path:
        (file,) = (self._path / bookie_id / "entrylog").iterdir()
        return file

    def reader(self) -> LedgerReader:
        return LedgerReader(self.metadata, bookies=self.table, verify=verified_runs)

    @property
    def metadata(self) -> LedgerMetadata:
        ensemble = tuple(self.bookies)
        return new_metadata(
            LEDGER, ensemble=ensemble, write_quorum=len(ensemble), ack_quorum=1, token="t"
        ).closed(last_entry_id=ENTRIES - 1, length=ENTRIES * SIZE)

    async def read(self, first: int = 0, last: int = ENTRIES - 1) -> list[Sequence[Entry]]:
        """Read a range; return what each read gave, which is what was written."""
        reader, found = self.reader(), list[Sequence[Entry]]()
        expected = first
        while expected <= last:
            entries = await reader.read(expected, last)
            for entry in entries:
                assert (entry.ledger_id, entry.entry_id) == (LEDGER, expected)
                assert entry.payload == payload(expected)
                expected += 1
            found.append(entries)
        assert expected == last + 1
        return found


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    async with AsyncExitStack() as stack:
        yield Machine(tmp_path, stack)


async def test_the_bytes_come_from_the_file(machine: Machine) -> None:
    await machine.start("b1")
    first, *_ = await machine.read()
    assert isinstance(first, VerifiedRun)
    assert machine.local_and_other_reads() == (1, 0)


async def test_a_range_may_begin_and_end_within_stored_runs(machine: Machine) -> None:
    await machine.start("b1")
    await machine.read(3, 12)
    assert machine.local_and_other_reads() == (1, 0)
    await machine.read(7, 7)  # too small for a file
    assert machine.local_and_other_reads() == (1, 1)


async def test_no_descriptor_keeps_a_removed_file(machine: Machine) -> None:
    await machine.start("b1")
    await machine.read()
    names = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if _is_open(n)]
    # Those of the bookie itself, which closes them when it removes the file.
    assert names.count(str(machine.file("b1"))) == 1


def _is_open(descriptor: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{descriptor}")


def removed(file: Path) -> None:
    """The bookie still has it open, as while its garbage is collected."""
    file.unlink()


def moved_elsewhere(file: Path) -> None:
    file.parent.rename(file.parent.with_name("elsewhere"))


def of_another_bookie(file: Path) -> None:
    """At the same path, as in another container, with the same file's number."""
    content = bytearray(file.read_bytes())
    content[30] ^= 1
    content[100_000] ^= 1
    file.unlink()
    file.write_bytes(content)


def cut_short(file: Path) -> None:
    """An older copy of the data, as of a snapshot."""
    content = file.read_bytes()[: 512 * KIB]
    file.unlink()
    file.write_bytes(content)


def with_other_runs(file: Path) -> None:
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content[:64] + bytes(len(content) - 64))


def a_link(file: Path) -> None:
    other = file.with_suffix(".other")
    file.rename(other)
    file.symlink_to(other)


def a_pipe(file: Path) -> None:
    """Opening it would wait for its writer."""
    file.unlink()
    os.mkfifo(file)


def a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


NOT_HERE = (moved_elsewhere, of_another_bookie, with_other_runs, a_link, a_pipe, a_directory)
"""After these the bookie is asked for no more places."""


@pytest.mark.parametrize("happens", [removed, cut_short, *NOT_HERE], ids=lambda each: each.__name__)
async def test_a_file_that_cannot_be_read_is_read_by_its_bookie(
    machine: Machine, happens: Callable[[Path], None]
) -> None:
    await machine.start("b1")
    bookie = machine.bookies["b1"]
    await bookie.read(LEDGER, 0, max_entries=1, max_bytes=1)  # it has the file open
    happens(machine.file("b1"))
    await machine.read()
    assert machine.local_and_other_reads()[1] > 1
    assert machine.files.may_have("b1") == (happens not in NOT_HERE)
    for _ in range(MAX_FAILURES):
        await machine.read()
    assert bookie.metrics.placed_reads == (1 if happens in NOT_HERE else MAX_FAILURES)


async def test_a_file_that_may_not_be_opened_is_read_by_its_bookie(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.start("b1")

    of_all = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_NOFOLLOW:  # the task's, not the bookie's
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return of_all(path, flags, mode)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        await machine.read()
    assert machine.local_and_other_reads() == (1, 1)
    assert not machine.files.may_have("b1")


async def test_one_success_forgives_earlier_failures(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.start("b1")
    name = "fencelog.spark_connector.read.local_files._read"

    def fail(wanted: PlacedRuns) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    for _ in range(MAX_FAILURES):
        with monkeypatch.context() as patched:
            patched.setattr(name, fail)
            await machine.reader().read(0, ENTRIES - 1)
        await machine.reader().read(0, ENTRIES - 1)
    assert machine.local_and_other_reads() == (2 * MAX_FAILURES, MAX_FAILURES)
    assert machine.files.may_have("b1")


def damage(file: Path, entry_id: int) -> None:
    """Change a byte of an entry's payload."""
    content = bytearray(file.read_bytes())
    at = content.index(f"entry {entry_id}|".encode()) + 1000
    descriptor = os.open(file, os.O_WRONLY)
    os.pwrite(descriptor, bytes([content[at] ^ 1]), at)
    os.close(descriptor)


async def test_damage_is_found_and_another_copy_is_read(machine: Machine) -> None:
    """Each has another entry damaged: the first of a read, and one in the midst of it."""
    await machine.start("b1", "b2", "b3")
    for bookie_id, entry_id in (("b1", 0), ("b2", 12), ("b3", 39)):
        damage(machine.file(bookie_id), entry_id)
    await machine.read()
    local, by_bytes = machine.local_and_other_reads()
    assert (local > 3, by_bytes) == (True, 0)


async def test_damage_everywhere_is_the_error_that_it_is_over_the_socket(
    machine: Machine,
) -> None:
    await machine.start("b1", "b2")
    for bookie_id in ("b1", "b2"):
        damage(machine.file(bookie_id), 12)
    assert [entry.entry_id for entry in await machine.reader().read(0, 39)] == [*range(8)]
    codes, details = list[ErrorCode](), list[str]()
    tables = (machine.table, BookieTable(machine.addresses))
    for table in tables:
        reader = LedgerReader(machine.metadata, bookies=table, verify=verified_runs)
        with pytest.raises(FencelogError) as caught:
            await reader.read(8, 39)
        codes.append(caught.value.code)
        details.append(caught.value.detail)
    assert codes == [ErrorCode.READ_UNKNOWN] * 2
    for bookie_id, said in (("b1", "entry 12"), ("b2", "entry 12")):
        assert f"bookie {bookie_id}: {said} of ledger 3 does not match its digest" in details[0]
        assert bookie_id in details[1]
    await tables[1].close()


async def test_without_the_option_no_bookie_is_asked_for_places(machine: Machine) -> None:
    await machine.start("b1")
    machine.table = BookieTable(machine.addresses)
    await machine.read()
    assert machine.bookies["b1"].metrics.placed_reads == 0
    await machine.table.close()


async def test_reads_of_a_disk_that_does_not_answer_are_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, answers = LocalFiles(), Event()
    wanted = PlacedRuns(b"/none", bytes(64), [(64, 100)])

    def stuck(wanted: PlacedRuns) -> bytes:
        answers.wait()
        return b""

    monkeypatch.setattr(local_files, "_read", stuck)
    for _ in range(MAX_FAILURES):
        assert files.may_have("b1")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(files.read("b1", wanted), 0.05)
    assert not files.may_have("b1")
    assert files.may_have("b2")
    monkeypatch.undo()
    assert await asyncio.wait_for(files.read("b2", wanted), 20) is None  # a thread is left for it
    answers.set()
    files.close()


async def test_a_file_that_is_too_short_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read of some files, as under /proc, has an effect; they have no size."""
    path = tmp_path / "short"
    path.write_bytes(bytes(163))

    def refuse(*_: object) -> int:
        raise AssertionError("it was opened")

    monkeypatch.setattr(os, "open", refuse)
    files = LocalFiles()
    assert await files.read("b1", PlacedRuns(bytes(path), bytes(64), [(64, 100)])) is None
    assert files.may_have("b1")
    files.close()
