"""The I/O thread of a real disk: its order, whatever is done by the kernel's ring and whatever by
the thread."""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from errno import EBADF, EFBIG, ENOSPC
from pathlib import Path
from random import Random  # noqa: TID251 - each test seeds its own

import pytest

from fencelog.bookie.disk import io_uring
from fencelog.bookie.disk.io_uring import Ring
from fencelog.bookie.disk.port import Buffer
from fencelog.bookie.disk.posix import PosixDisk, PosixFile, PosixIoThread
from tests.bookie.disk.test_io_uring import file_size_limit


@pytest.fixture(params=["ring", "thread"])
async def io_thread(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PosixIoThread]:
    """With a ring if there may be one, and without."""
    if request.param == "thread":
        monkeypatch.setattr(Ring, "open", lambda: None)
    thread = PosixDisk().io_thread("test")
    yield thread
    await thread.close()


@pytest.fixture
async def by_ring(tmp_path: Path) -> AsyncIterator[PosixIoThread]:
    """An I/O thread that has a ring."""
    thread = PosixDisk().io_thread("test")
    await write(thread, PosixDisk().create(tmp_path / "first"), b"opens the ring", 0)
    if thread._ring is None:
        await thread.close()
        pytest.skip("this system allows no ring, and has its writes done by threads")
    yield thread
    await thread.close()


async def write(thread: PosixIoThread, file: PosixFile, data: bytes, offset: int) -> None:
    """Write and sync; raise the error."""
    ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    thread.write(file, [data], offset, sync=True, done=ended.set_result)
    if (error := await ended) is not None:
        raise error


async def test_all_is_done_in_the_order_of_the_calls(
    io_thread: PosixIoThread, tmp_path: Path
) -> None:
    random, file = Random(1), PosixDisk().create(tmp_path / "file")
    reports: list[int] = []
    seen: list[bytes] = []
    expected: list[bytes] = []
    for number in range(300):
        data = b"%03d" % number

        def done(error: BaseException | None, number: int = number) -> None:
            assert error is None
            reports.append(number)

        if random.random() < 0.5:
            io_thread.write(file, [data[:1], data[1:]], 0, sync=random.random() < 0.3, done=done)
            expected.append(data)
        else:
            io_thread.submit(lambda: seen.append(file.read(0, 3)), done)
            expected.append(b"")
        if random.random() < 0.1:
            await io_thread.run(lambda: None)
    await io_thread.run(file.close)
    assert reports == list(range(300))
    last, read = b"", []
    for data in expected:
        last = data or last
        if not data:
            read.append(last)
    assert seen == read


async def test_work_waits_for_a_write_in_flight(by_ring: PosixIoThread, tmp_path: Path) -> None:
    file = PosixDisk().create(tmp_path / "file")
    data = b"x" * (8 << 20)
    ends: list[BaseException | None] = []
    by_ring.write(file, [data], 0, sync=True, done=ends.append)
    assert by_ring._ring is not None
    assert by_ring._ring.is_busy
    assert await by_ring.run(file.size) == len(data)
    assert ends == [None]
    file.close()


async def test_it_closes_when_a_write_in_flight_has_ended(tmp_path: Path) -> None:
    thread, file = PosixDisk().io_thread("test"), PosixDisk().create(tmp_path / "file")
    ends: list[BaseException | None] = []
    thread.write(file, [b"x" * (8 << 20)], 0, sync=True, done=ends.append)
    await thread.close()
    assert ends == [None]
    assert file.size() == 8 << 20
    file.close()


async def test_it_closes_when_the_rest_of_a_short_write_is_there(
    by_ring: PosixIoThread, tmp_path: Path
) -> None:
    file, ring = PosixDisk().create(tmp_path / "file"), by_ring._ring
    assert ring is not None
    ends: list[BaseException | None] = []
    with file_size_limit(6_000):
        by_ring.write(file, [b"x" * 10_000], 0, sync=True, done=ends.append)
        closing = asyncio.create_task(by_ring.close())
        # The kernel has ended it; the loop begins to close before it knows.
        assert select.select([ring.descriptor], [], [], 20)[0]
    await asyncio.wait_for(closing, 20)
    assert ends == [None]
    assert file.size() == 10_000
    file.close()


async def test_errors_are_reported_and_nothing_else_is_lost(
    io_thread: PosixIoThread, tmp_path: Path
) -> None:
    full, file = PosixFile(os.open("/dev/full", os.O_WRONLY)), PosixDisk().create(tmp_path / "file")
    with pytest.raises(OSError, match=os.strerror(ENOSPC)):
        await write(io_thread, full, b"lost", 0)
    await write(io_thread, file, b"kept", 0)
    file.close()
    with pytest.raises(OSError, match=os.strerror(EBADF)):
        await write(io_thread, file, b"lost", 0)
    full.close()
    assert (tmp_path / "file").read_bytes() == b"kept"


async def test_the_thread_does_what_a_short_write_has_left(
    by_ring: PosixIoThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, ring = PosixDisk().create(tmp_path / "file"), by_ring._ring
    assert ring is not None
    calls: list[object] = []
    monkeypatch.setattr(PosixFile, "sync", lambda _: calls.append("synced"))
    with file_size_limit(6_000):
        by_ring.write(file, [b"x" * 10_000], 0, sync=True, done=calls.append)
        by_ring.submit(lambda: None, lambda _: calls.append("later"))
        # The kernel has ended it before the limit goes; the loop does not know yet.
        assert select.select([ring.descriptor], [], [], 20)[0]
    await by_ring.run(lambda: None)
    assert calls == ["synced", None, "later"]
    assert file.size() == 10_000
    with file_size_limit(12_000), pytest.raises(OSError, match=os.strerror(EFBIG)):
        await write(by_ring, file, b"x" * 10_000, 10_000)
    file.close()


async def test_what_the_kernel_does_not_take_the_thread_does(
    by_ring: PosixIoThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, ring = PosixDisk().create(tmp_path / "file"), by_ring._ring
    assert ring is not None
    enter = ring._enter
    monkeypatch.setattr(ring, "_enter", lambda *_: -1)
    await write(by_ring, file, b"by the thread", 0)
    assert not ring.is_busy
    monkeypatch.setattr(ring, "_enter", enter)
    await write(by_ring, file, b"by the kernel", 0)
    assert file.read(0, 20) == b"by the kernel"
    file.close()


async def test_a_write_without_its_sync_is_no_success(
    by_ring: PosixIoThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, ring = PosixDisk().create(tmp_path / "file"), by_ring._ring
    assert ring is not None
    monkeypatch.setattr(ring, "_enter", lambda *_: 1)
    with pytest.raises(OSError, match="without its sync"):
        await write(by_ring, file, b"unknown", 0)
    await write(by_ring, file, b"by the thread", 0)
    assert file.read(0, 20) == b"by the thread"
    assert by_ring._ring is None
    assert ring in io_uring._in_flight  # the kernel may have its bytes
    io_uring._in_flight.discard(ring)
    ring.close()


async def test_a_file_with_a_write_of_its_own_is_written_by_it(
    by_ring: PosixIoThread, tmp_path: Path
) -> None:
    calls: list[str] = []

    class Own(PosixFile):
        def write(self, buffers: Sequence[Buffer], offset: int) -> None:
            calls.append("written")

        def sync(self) -> None:
            calls.append("synced")

    file = Own(os.open(tmp_path, os.O_RDONLY))
    await write(by_ring, file, b"x", 0)
    file.close()
    assert calls == ["written", "synced"]


NO_RINGS = """
import asyncio, ctypes, struct, sys
from pathlib import Path
libc = ctypes.CDLL(None)
# Load the call's number; if it is io_uring_setup, EPERM; else allow.
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = struct.pack("H6xQ", len(steps), ctypes.addressof(code))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0

from fencelog.bookie.disk import io_uring
from fencelog.bookie.disk.io_uring import Ring
from fencelog.bookie.disk.port import Buffer
from fencelog.bookie.disk.posix import PosixDisk
assert Ring.open() is None

async def main():
    thread, file = PosixDisk().io_thread("test"), PosixDisk().create(Path(sys.argv[1]))
    ended = asyncio.get_running_loop().create_future()
    thread.write(file, [b"by the ", b"thread"], 0, sync=True, done=ended.set_result)
    assert await ended is None
    await thread.close()

asyncio.run(main())
"""


def test_where_a_filter_forbids_rings_the_thread_writes(tmp_path: Path) -> None:
    """The default profile of container runtimes is such a filter."""
    command = [sys.executable, "-c", NO_RINGS, str(tmp_path / "file")]
    subprocess.run(command, check=True, timeout=60)
    assert (tmp_path / "file").read_bytes() == b"by the thread"


def test_rings_are_in_use_here(tmp_path: Path) -> None:
    """Where the system has rings, writes go through them."""
    if (ring := Ring.open()) is None:
        pytest.skip("this system allows no ring, and has its writes done by threads")
    ring.close()

    async def writes() -> int:
        thread, file = PosixDisk().io_thread("test"), PosixDisk().create(tmp_path / "file")
        await write(thread, file, b"x", 0)
        number = thread._ring._id if thread._ring is not None else 0
        await thread.close()
        return number

    assert asyncio.run(writes()) > 0
