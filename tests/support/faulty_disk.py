"""A real disk that fails or waits as a test demands."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from errno import EIO
from pathlib import Path
from threading import Event

from fencelog.bookie.disk.port import Buffer, KeyValueStore
from fencelog.bookie.disk.posix import PosixDisk, PosixFile


class FaultyFile(PosixFile):
    """A file whose disk may fail or wait."""

    def __init__(self, descriptor: int, disk: FaultyDisk, name: str) -> None:
        super().__init__(descriptor)
        self._disk = disk
        self.name = name

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._disk.on_call("write", self.name)
        super().write(buffers, offset)

    def sync(self) -> None:
        self._disk.on_call("sync", self.name)
        super().sync()

    def write_back(self, offset: int, size: int) -> None:
        self._disk.on_call("write_back", self.name)
        super().write_back(offset, size)

    def read(self, offset: int, size: int) -> bytes:
        self._disk.on_call("read", self.name)
        return super().read(offset, size)


class FaultyStore:
    """A store whose disk may fail or wait."""

    def __init__(self, store: KeyValueStore, disk: FaultyDisk) -> None:
        self._store = store
        self._disk = disk

    def write(
        self, items: Iterable[tuple[bytes, bytes]], *, delete: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        self._disk.on_call("write", "index")
        self._store.write(items, delete=delete)

    def get(self, key: bytes) -> bytes | None:
        return self._store.get(key)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._disk.on_call("read", "index")
        return self._store.scan(first, end)

    def compact(self, first: bytes, end: bytes) -> None:
        self._store.compact(first, end)

    def close(self) -> None:
        self._store.close()


class FaultyDisk(PosixDisk):
    """A disk that fails or delays the calls that a test names, as ``"sync .journal"`` or ``"write
    index"``; or fails permanently after ``calls_left`` more calls, as for a process that dies
    there. Of ``fails_once``, the next call alone fails."""

    def __init__(self) -> None:
        self.fails: set[str] = set()
        self.fails_once: set[str] = set()
        self.waits: set[str] = set()
        self.calls: list[str] = []
        self.calls_left: int | None = None
        self._opened: dict[str, FaultyFile] = {}
        self._go = Event()

    def on_call(self, what: str, name: str) -> None:
        self.calls.append(f"{what} {name}")
        call = f"{what} {Path(name).suffix or name}"
        while call in self.waits:
            self._go.wait(0.005)
        if self.calls_left is not None:
            self.calls_left = max(self.calls_left - 1, -1)
        fails_now = call in self.fails_once
        self.fails_once.discard(call)
        if fails_now or call in self.fails or self.calls_left == -1:
            raise OSError(EIO, "made to fail", name)

    def create(self, path: Path) -> FaultyFile:
        return self._open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def open(self, path: Path) -> FaultyFile:
        return self._open(path, os.O_RDWR)

    def _open(self, path: Path, flags: int) -> FaultyFile:
        file = FaultyFile(os.open(path, flags, 0o644), self, path.name)
        self._opened[path.name] = file
        return file

    def rename(self, path: Path, to: Path) -> None:
        super().rename(path, to)
        if (file := self._opened.pop(path.name, None)) is not None:
            self._opened[to.name] = file
            file.name = to.name

    def replace_file(self, path: Path, data: bytes) -> None:
        self.on_call("replace", path.name)
        super().replace_file(path, data)

    def remove(self, path: Path) -> None:
        self.on_call("remove", path.name)
        super().remove(path)

    def open_store(self, path: Path, *, create: bool) -> KeyValueStore:
        return FaultyStore(super().open_store(path, create=create), self)
