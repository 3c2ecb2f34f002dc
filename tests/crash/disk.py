"""A disk in memory that notes every effect in order: the Disk port."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from errno import EBADF, EEXIST, ENOENT
from pathlib import Path

from fencelog.bookie.disk.port import Buffer, DiskSpace
from tests.crash.effects import (
    Effect,
    Image,
    Link,
    MakeDirectory,
    Rename,
    Reserve,
    StoreWrite,
    Sync,
    SyncDirectory,
    Unlink,
    Write,
)
from tests.crash.loop import TurnIoThread

IO_THREAD_TURNS = {"bookie-sync": 8}
"""Syncing takes longer than writing, so that the journal gets to write ahead."""


class CrashDisk:
    """Implements ``bookie.disk.Disk`` on a copy of an image. ``effects`` is all that was done to
    it. A ``replace_file`` is the steps that it consists of."""

    def __init__(self, image: Image) -> None:
        self.image = image.copy()
        self.effects: list[Effect] = []
        self._locks: dict[Path, CrashLock] = {}

    def effect(self, effect: Effect) -> None:
        self.effects.append(effect)
        self.image.take(effect)

    # -- the port ------------------------------------------------------------------------------

    def io_thread(self, name: str) -> TurnIoThread:
        return TurnIoThread(IO_THREAD_TURNS.get(name, 1))

    def lock(self, path: Path) -> CrashLock | None:
        if path in self._locks and self._locks[path].is_held:
            return None
        if path.name not in self._names(path.parent):
            self._link(path)
        lock = self._locks[path] = CrashLock()
        return lock

    def make_directory(self, path: Path) -> None:
        for missing in reversed((path, *path.parents)):
            if missing not in self.image.directories:
                self.effect(MakeDirectory(missing))

    def names(self, path: Path) -> list[str]:
        below = [p.name for p in self.image.directories if p.parent == path and p != path]
        return sorted([*self._names(path), *below])

    def read_file(self, path: Path) -> bytes | None:
        file = self.image.directories.get(path.parent, {}).get(path.name)
        return None if file is None else self.image.files.get(file, b"")

    def replace_file(self, path: Path, data: bytes) -> None:
        # A leftover of the same name is cut to nothing first: as good as a new file, since its
        # content is synced before the name means anything.
        temporary = path.with_name(f"{path.name}.new")
        file = CrashFile(self, self._link(temporary))
        file.write([data], 0)
        file.sync()
        self.effect(Rename(path.parent, temporary.name, path.name, file.number))
        self.sync_directory(path.parent)

    def create(self, path: Path) -> CrashFile:
        if path.name in self._names(path.parent):
            raise FileExistsError(EEXIST, "the file exists", str(path))
        return CrashFile(self, self._link(path))

    def open(self, path: Path) -> CrashFile:
        return CrashFile(self, self._file(path))

    def remove(self, path: Path) -> None:
        self.effect(Unlink(path.parent, path.name, self._file(path)))

    def space(self, path: Path) -> DiskSpace:
        self._names(path)
        return DiskSpace(1 << 40, 1 << 39)

    def rename(self, path: Path, to: Path) -> None:
        self.effect(Rename(path.parent, path.name, to.name, self._file(path)))

    def sync_directory(self, path: Path) -> None:
        self._names(path)
        self.effect(SyncDirectory(path))

    def open_store(self, path: Path, *, create: bool) -> CrashStore:
        if path not in self.image.stores:
            if not create:
                raise OSError(ENOENT, "there is no store", str(path))
            self._names(path)
            self.effect(StoreWrite(path, ()))
        return CrashStore(self, path)

    def _link(self, path: Path) -> int:
        number = self.image.next_file
        self.effect(Link(path.parent, path.name, number))
        return number

    def _names(self, path: Path) -> Mapping[str, int]:
        names = self.image.directories.get(path)
        if names is None:
            raise FileNotFoundError(ENOENT, "there is no such directory", str(path))
        return names

    def _file(self, path: Path) -> int:
        file = self._names(path.parent).get(path.name)
        if file is None:
            raise FileNotFoundError(ENOENT, "there is no such file", str(path))
        return file


class CrashFile:
    """Implements ``bookie.disk.File``."""

    def __init__(self, disk: CrashDisk, number: int) -> None:
        self._disk = disk
        self.number = number

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._disk.effect(Write(self.number, offset, b"".join(buffers)))

    def sync(self) -> None:
        self._disk.effect(Sync(self.number))

    def write_back(self, offset: int, size: int) -> None:
        """Do nothing: no byte is durable by it."""

    def read(self, offset: int, size: int) -> bytes:
        return self._content[offset : offset + size]

    def size(self) -> int:
        return len(self._content)

    def reserve(self, size: int) -> None:
        self._disk.effect(Reserve(self.number, size))

    def drop_cache(self, offset: int, size: int) -> None:
        """Do nothing: there is no cache."""

    def close(self) -> None:
        """Do nothing: no effect depends on it."""

    @property
    def _content(self) -> bytes:
        return self._disk.image.files.get(self.number, b"")


class CrashStore:
    """Implements ``bookie.disk.KeyValueStore``."""

    def __init__(self, disk: CrashDisk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._is_open = True

    def write(
        self, items: Iterable[tuple[bytes, bytes]], *, delete: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        self._check_open()
        self._disk.effect(StoreWrite(self._path, tuple(items), tuple(delete)))

    def get(self, key: bytes) -> bytes | None:
        self._check_open()
        return self._disk.image.stores[self._path].get(key)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._check_open()
        store = self._disk.image.stores[self._path]
        for key in sorted(key for key in store if first <= key < end):
            yield key, store[key]

    def compact(self, first: bytes, end: bytes) -> None:
        """Changes nothing that is stored."""

    def close(self) -> None:
        self._is_open = False

    def _check_open(self) -> None:
        if not self._is_open:
            raise OSError(EBADF, "the store is closed", str(self._path))


class CrashLock:
    """Implements ``bookie.disk.DirectoryLock``."""

    def __init__(self) -> None:
        self.is_held = True

    def release(self) -> None:
        self.is_held = False
