"""A real bookie on a temporary directory, and ways to talk to it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from errno import EIO
from pathlib import Path
from threading import Event

import pytest

from fencelog.bookie.disk.port import Buffer, KeyValueStore
from fencelog.bookie.disk.posix import PosixDisk, PosixFile
from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import build_run
from fencelog.ledgers.host import SystemHost

OpenBookie = Callable[..., Awaitable[Bookie]]


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
    """Fails or delays the calls that a test names, as ``"sync .journal"`` or ``"write index"``; or
    is gone for good after ``calls_left`` more calls, as for a process that dies there."""

    def __init__(self) -> None:
        self.fails: set[str] = set()
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
        if call in self.fails or self.calls_left == -1:
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


class Requests:
    """Plain calls for tests: build runs, add them and wait for the answer."""

    @staticmethod
    def run(ledger_id: int, first: int, count: int = 1, *, lac: int = -1, size: int = 100) -> bytes:
        """Entries whose payload says which ledger and entry they are."""
        payloads = [f"{ledger_id}/{first + i}|".encode().ljust(size, b".") for i in range(count)]
        return build_run(ledger_id, first, payloads, lac=lac, length_before=first * size)

    @staticmethod
    async def add(bookie: Bookie, run: bytes, *, recovery: bool = False) -> FencelogError | None:
        answer: asyncio.Future[FencelogError | None] = asyncio.get_running_loop().create_future()
        bookie.add(run, recovery=recovery, on_reply=answer.set_result)
        async with asyncio.timeout(20):
            return await answer

    @staticmethod
    async def write_lac(bookie: Bookie, ledger_id: int, lac: int) -> FencelogError | None:
        answer: asyncio.Future[FencelogError | None] = asyncio.get_running_loop().create_future()
        bookie.write_lac(ledger_id, lac, on_reply=answer.set_result)
        async with asyncio.timeout(20):
            return await answer

    @staticmethod
    async def until(condition: Callable[[], bool]) -> None:
        """Let the loop and the lanes run until something is so; fail after some seconds."""
        for _ in range(5000):
            if condition():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("it did not come about")

    @staticmethod
    async def read(bookie: Bookie, ledger_id: int, first: int, max_entries: int = 4096) -> bytes:
        reply = await bookie.read(ledger_id, first, max_entries=max_entries, max_bytes=1 << 22)
        return reply.run


@pytest.fixture
def faulty_disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def requests() -> Requests:
    return Requests()


@pytest.fixture
async def open_bookie(tmp_path: Path) -> AsyncIterator[OpenBookie]:
    """Opens bookies on ``tmp_path / "data"`` (or ``data_dir``); closes those still open."""
    opened: list[Bookie] = []
    disks: list[object] = []

    async def open_one(**settings: object) -> Bookie:
        disk = settings.pop("disk", None) or PosixDisk()
        disks.append(disk)
        settings.setdefault("data_dir", tmp_path / "data")
        cookies = settings.pop("cookies", None)
        config = BookieConfig(**settings)  # type: ignore[arg-type]  # settings of one test
        bookie = await Bookie.open(
            config,
            disk=disk,  # type: ignore[arg-type]
            host=SystemHost(),
            cookies=cookies,  # type: ignore[arg-type]
        )
        opened.append(bookie)
        return bookie

    yield open_one
    for disk in disks:
        if isinstance(disk, FaultyDisk):
            disk.waits.clear()  # a test that failed while its disk waited must not hang as well
    for bookie in opened:
        await bookie.close()
