"""The Disk port on a POSIX machine: plain system calls, and one thread each."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

from fencelog.bookie.disk.io_thread import QueuedIoThread, Work, writing
from fencelog.bookie.disk.io_uring import Ring
from fencelog.bookie.disk.port import Buffer, DiskSpace, Done, File, KeyValueStore
from fencelog.bookie.disk.rocks_store import RocksStore
from fencelog.bookie.disk.write_back import write_back
from fencelog.ledgers.errors import check

T = TypeVar("T")

_IOV_MAX = 1024
"""Buffers that Linux takes in one vectored write."""


class PosixIoThread(QueuedIoThread):
    """One daemon thread that takes work from a queue and reports to the event loop on which it was
    created. What is only to be written and synced goes through a ring of the kernel's, where there
    are such rings and nothing else is to be done before it (``disk/io_uring.py``)."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._queued = 0
        """The number of pieces of work that were queued and not reported yet."""
        self._ring: Ring | None = None
        self._has_looked_for_ring = False
        self._held: list[Work | None] = []
        """The work that waits for what is in flight in the ring."""
        self._ended = self._loop.create_future()
        self._closing = False
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._put(None)
        await asyncio.shield(self._ended)
        self._thread.join()
        if (ring := self._ring) is not None:
            self._ring = None
            self._loop.remove_reader(ring.descriptor)
            ring.close()

    def write(
        self, file: File, buffers: Sequence[Buffer], offset: int, *, sync: bool, done: Done
    ) -> None:
        self._check_open()
        by_thread = partial(super().write, file, sync=sync, done=done)
        ring = self._open_ring()
        # A kind of file with a ``write`` of its own is written by that.
        if ring is None or ring.is_busy or self._queued or type(file) is not PosixFile:
            by_thread(buffers, offset)
            return
        data = b"".join(buffers)

        def ended(written: int, error: OSError | None) -> None:
            if is_short := error is None and written < len(data):
                rest = writing(file, [memoryview(data)[written:]], offset + written, sync=sync)
                self._put((rest, lambda error, _result: done(error)))
            held, self._held = self._held, []
            for item in held:
                self._put(item)
            if not is_short:
                done(error)

        try:
            if not ring.submit(file.descriptor, data, offset, sync=sync, ended=ended):
                by_thread([data], offset)
        except OSError as error:
            self._loop.remove_reader(ring.descriptor)
            self._ring = None
            self._loop.call_soon(done, error)

    def _open_ring(self) -> Ring | None:
        """Return the ring, which the first call opens; None if there is none."""
        if not self._has_looked_for_ring:
            self._has_looked_for_ring = True
            if (ring := Ring.open()) is not None:
                self._loop.add_reader(ring.descriptor, ring.reap)
                self._ring = ring
        return self._ring

    def _check_open(self) -> None:
        check(not self._closing, f"I/O thread {self._thread.name} is closed")

    def _enqueue(self, work: Callable[[], object], done: Callable[..., None]) -> None:
        self._check_open()
        self._put((work, done))

    def _put(self, item: Work | None) -> None:
        if self._ring is not None and self._ring.is_busy:
            self._held.append(item)
            return
        if item is not None:
            self._queued += 1
        self._queue.put(item)

    def _report(
        self, done: Callable[..., None], error: BaseException | None, result: object
    ) -> None:
        self._queued -= 1
        done(error, result)

    def _work(self) -> None:
        report = self._loop.call_soon_threadsafe
        # A loop that was closed before the I/O thread, at the interpreter's exit, takes no more
        # reports, and no caller is left to answer.
        with suppress(RuntimeError):
            while (item := self._queue.get()) is not None:
                work, done = item
                try:
                    result = work()
                except BaseException as error:
                    report(self._report, done, error, None)
                else:
                    report(self._report, done, None, result)
                del item, work, done
            report(self._ended.set_result, None)


class PosixFile:
    """An open file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def descriptor(self) -> int:
        return self._descriptor

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        for start in range(0, len(buffers), _IOV_MAX):
            chunk = list(buffers[start : start + _IOV_MAX])
            total = sum(map(len, chunk))
            written = os.pwritev(self._descriptor, chunk, offset)
            if written < total:
                self._write_rest(b"".join(chunk), offset, written)
            offset += total

    def _write_rest(self, data: bytes, offset: int, written: int) -> None:
        view = memoryview(data)
        while written < len(data):
            written += os.pwrite(self._descriptor, view[written:], offset + written)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def write_back(self, offset: int, size: int) -> None:
        write_back(self._descriptor, offset, size)

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        while len(data) < size:
            more = os.pread(self._descriptor, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def reserve(self, size: int) -> None:
        os.posix_fallocate(self._descriptor, 0, size)

    def drop_cache(self, offset: int, size: int) -> None:
        os.posix_fadvise(self._descriptor, offset, size, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        os.close(self._descriptor)


class PosixLock:
    """A lock by ``flock``, which ends with the process, however the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


class PosixDisk:
    """The disks of this machine. It has no state: one object may serve any number of bookies."""

    def io_thread(self, name: str) -> PosixIoThread:
        return PosixIoThread(name)

    def lock(self, path: Path) -> PosixLock | None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return PosixLock(descriptor)

    def make_directory(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        # Existing parents are synced too: a killed process may have made one without syncing it.
        for parent in path.absolute().parents:
            with suppress(PermissionError):  # not writable, hence not just created by us
                self.sync_directory(parent)

    def names(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def read_file(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def replace_file(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + ".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        file = PosixFile(descriptor)
        try:
            file.write([data], 0)
            file.sync()
        finally:
            file.close()
        temporary.replace(path)
        self.sync_directory(path.parent)

    def create(self, path: Path) -> PosixFile:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return PosixFile(os.open(path, flags, 0o644))

    def open(self, path: Path) -> PosixFile:
        return PosixFile(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def remove(self, path: Path) -> None:
        path.unlink()

    def space(self, path: Path) -> DiskSpace:
        status = os.statvfs(path)
        # A share of the blocks is reserved for root: it is neither free nor usable.
        kept = status.f_bfree - status.f_bavail
        return DiskSpace(
            (status.f_blocks - kept) * status.f_frsize, status.f_bavail * status.f_frsize
        )

    def rename(self, path: Path, to: Path) -> None:
        path.rename(to)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def open_store(self, path: Path, *, create: bool) -> KeyValueStore:
        return RocksStore(path, create=create)
