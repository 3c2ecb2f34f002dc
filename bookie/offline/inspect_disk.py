"""A read-only disk, for the inspection of a bookie's data without changing a byte of it.

Writes are ignored without an error: so the code of a start (``journal/replay.py``) can report what
it would find, and changes nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rocksdict import AccessType, Rdict

from fencelog.bookie.disk.port import (
    Buffer,
    DirectoryLock,
    Disk,
    DiskSpace,
    File,
    IoThread,
    KeyValueStore,
)
from fencelog.bookie.disk.rocks_store import RocksStore, rocks_options

_TABLE = ".sst"


class ReadOnlyFile:
    """A file that ignores writes."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.read = file.read
        self.size = file.size
        self.drop_cache = file.drop_cache
        self.close = file.close

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Ignore the write."""

    def sync(self) -> None:
        """Do nothing: no byte was written."""

    def write_back(self, offset: int, size: int) -> None:
        """Do nothing: no byte was written."""

    def reserve(self, size: int) -> None:
        """Ignore the reservation: no byte will be written."""


class ReadOnlyStore(RocksStore):
    """A RocksDB directory that is only read, through a directory of links beside it: RocksDB and
    rocksdict create files of their own in a directory that they open, even for reading."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise OSError(f"{path}: is missing")
        self._path = path
        self._links = TemporaryDirectory(prefix="fencelog-index-")
        try:
            for name in sorted(p.name for p in path.iterdir()):
                source, link = path / name, Path(self._links.name, name)
                if name.endswith(_TABLE):
                    link.symlink_to(source.resolve())
                elif source.is_file():
                    shutil.copyfile(source, link)
            self._store = Rdict(
                self._links.name,
                options=rocks_options(create=False),
                access_type=AccessType.read_only(False),
            )
        except Exception as error:  # rocksdict raises bare Exception for whatever RocksDB says
            self._links.cleanup()
            raise OSError(f"{path}: {error}") from error

    def close(self) -> None:
        super().close()
        self._links.cleanup()


class ReadOnlyDisk:
    """Another disk, for reading only. Of its changes, only the lock is real."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def io_thread(self, name: str) -> IoThread:
        return self._disk.io_thread(name)

    def lock(self, path: Path) -> DirectoryLock | None:
        return self._disk.lock(path)

    def make_directory(self, path: Path) -> None:
        """Ignore the call: no directory is made."""

    def names(self, path: Path) -> list[str]:
        return self._disk.names(path)

    def read_file(self, path: Path) -> bytes | None:
        return self._disk.read_file(path)

    def replace_file(self, path: Path, data: bytes) -> None:
        """Ignore the call: no file is replaced."""

    def create(self, path: Path) -> File:
        raise OSError(f"{path}: is not to be made, only to be read")

    def open(self, path: Path) -> File:
        return ReadOnlyFile(self._disk.open(path))

    def remove(self, path: Path) -> None:
        """Ignore the call: no file is removed."""

    def space(self, path: Path) -> DiskSpace:
        return self._disk.space(path)

    def rename(self, path: Path, to: Path) -> None:
        """Ignore the call: no file is renamed."""

    def sync_directory(self, path: Path) -> None:
        """Do nothing: no directory was changed."""

    def open_store(self, path: Path, *, create: bool) -> KeyValueStore:
        return ReadOnlyStore(path)
