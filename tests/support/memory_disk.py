"""A disk in memory whose every sync and crash a test decides, and I/O threads that a test steps.

For tests of one journal. The simulator's disk (tests/sim/disk/disk.py) is the one for whole
bookies.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from errno import EIO
from pathlib import Path
from random import Random  # noqa: TID251 - for its type: tests bring their seeds
from typing import Any

from fencelog.bookie.disk.io_thread import QueuedIoThread
from fencelog.bookie.disk.port import DiskSpace

Buffer = bytes | bytearray | memoryview


class MemoryFile:
    """A file: its content as read, and as a crash may leave it: ``durable`` and any part of
    ``unsynced``."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self.content = bytearray()
        self.durable = bytearray()
        self.unsynced: list[tuple[int, bytes]] = []
        self.is_open = True

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._call("write")
        data = b"".join(buffers)
        put(self.content, offset, data)
        self.unsynced.append((offset, data))

    def sync(self) -> None:
        self._call("sync")
        for offset, data in self.unsynced:
            put(self.durable, offset, data)
        self.unsynced.clear()

    def write_back(self, offset: int, size: int) -> None:
        self._call("write_back")

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.content[offset : offset + size])

    def size(self) -> int:
        return len(self.content)

    def reserve(self, size: int) -> None:
        put(self.content, size, b"")
        self.unsynced.append((size, b""))

    def drop_cache(self, offset: int, size: int) -> None:
        pass

    def close(self) -> None:
        self._disk.calls.append("close")
        self.is_open = False

    def _call(self, what: str) -> None:
        if not self.is_open:
            raise AssertionError(f"{what} of a closed file")
        self._disk.calls.append(what)
        if what in self._disk.fails:
            raise OSError(EIO, "made to fail")


def put(content: bytearray, offset: int, data: bytes) -> None:
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


class MemoryDisk:
    """One directory. Names are durable at once."""

    def __init__(self) -> None:
        self.files: dict[str, MemoryFile] = {}
        self.calls: list[str] = []
        self.fails: set[str] = set()

    def names(self, _path: Path) -> list[str]:
        return sorted(self.files)

    def space(self, _path: Path) -> DiskSpace:
        return DiskSpace(1 << 40, 1 << 40)

    def create(self, path: Path) -> MemoryFile:
        file = self.files[path.name] = MemoryFile(self)
        self.calls.append("create")
        return file

    def open(self, path: Path) -> MemoryFile:
        file = self.files[path.name]
        file.is_open = True
        return file

    def remove(self, path: Path) -> None:
        del self.files[path.name]

    def rename(self, path: Path, to: Path) -> None:
        self.files[to.name] = self.files.pop(path.name)

    def sync_directory(self, _path: Path) -> None:
        self.calls.append("sync directory")

    def copy(self) -> MemoryDisk:
        """Return another disk with the same content, all of it durable."""
        return self._with({name: bytes(file.content) for name, file in self.files.items()})

    def after_power_loss(self, random: Random) -> MemoryDisk:
        """Return the disk after a power loss: each write that was not synced is there, is missing,
        or is torn."""
        left = {}
        for name, file in self.files.items():
            content = bytearray(file.durable)
            for offset, data in file.unsynced:
                first, end = sorted(random.choices(range(len(data) + 1), k=2))
                first, end = random.choice(((0, 0), (0, len(data)), (first, end)))
                put(content, offset + first, data[first:end])
            left[name] = bytes(content)
        return self._with(left)

    def _with(self, contents: dict[str, bytes]) -> MemoryDisk:
        other = MemoryDisk()
        for name, content in contents.items():
            file = other.files[name] = MemoryFile(other)
            file.content, file.durable = bytearray(content), bytearray(content)
        return other


class SteppedIoThread(QueuedIoThread):
    """An I/O thread that does its work piece by piece, when ``step`` is called; ``work`` and
    ``report`` are its halves. ``is_stepped = False``: at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[Callable[[], Any], Callable[..., None]]] = deque()
        self._to_report: Callable[[], None] | None = None
        self.is_stepped = True

    @property
    def has_work(self) -> bool:
        return bool(self._queue)

    @property
    def is_busy(self) -> bool:
        return bool(self._queue) or self._to_report is not None

    def _enqueue(self, work: Callable[[], Any], done: Callable[..., None]) -> None:
        self._queue.append((work, done))
        if not self.is_stepped:
            self.step()

    def work(self) -> None:
        """Do the next piece of work, without a report to the event loop yet."""
        work, done = self._queue.popleft()
        error, result = None, None
        try:
            result = work()
        except OSError as raised:
            error = raised
        self._to_report = lambda: done(error, result)

    def report(self) -> None:
        if self._to_report is not None:
            self._loop.call_soon(self._to_report)
            self._to_report = None

    def step(self) -> None:
        self.work()
        self.report()

    async def close(self) -> None:
        """Do nothing: there is no thread to end."""

    def run_free(self) -> None:
        """Do everything at once from now on."""
        self.is_stepped = False
        self.report()
        while self._queue:
            self.step()
