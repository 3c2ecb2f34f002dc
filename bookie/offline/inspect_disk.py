"""A disk that is only read: for looking at a bookie's data without changing a byte of it.

What is to be written is not, and nobody is told: so the code of a start (``journal/replay.py``) can
be asked what it would find, and do nothing about it.
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
    """A file that takes no writes."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.read = file.read
        self.size = file.size
        self.drop_cache = file.drop_cache
        self.close = file.close

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Nothing is written."""

    def sync(self) -> None:
        """Nothing was written."""

    def reserve(self, size: int) -> None:
        """Nothing will be written."""


class ReadOnlyStore(RocksStore):
    """A RocksDB directory that is only read, through a directory of links beside it: RocksDB and
    rocksdict put files of their own into what they open, for reading too."""

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
    """Another disk, only read. The lock alone is real."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def io_thread(self, name: str) -> IoThread:
        return self._disk.io_thread(name)

    def lock(self, path: Path) -> DirectoryLock | None:
        return self._disk.lock(path)

    def make_directory(self, path: Path) -> None:
        """Nothing is made."""

    def names(self, path: Path) -> list[str]:
        return self._disk.names(path)

    def read_file(self, path: Path) -> bytes | None:
        return self._disk.read_file(path)

    def replace_file(self, path: Path, data: bytes) -> None:
        """Nothing is replaced."""

    def create(self, path: Path) -> File:
        raise OSError(f"{path}: is not to be made, only to be read")

    def open(self, path: Path) -> File:
        return ReadOnlyFile(self._disk.open(path))

    def remove(self, path: Path) -> None:
        """Nothing is removed."""

    def space(self, path: Path) -> DiskSpace:
        return self._disk.space(path)

    def rename(self, path: Path, to: Path) -> None:
        """Nothing is renamed."""

    def sync_directory(self, path: Path) -> None:
        """Nothing was changed."""

    def open_store(self, path: Path, *, create: bool) -> KeyValueStore:
        return ReadOnlyStore(path)
