"""The Disk port: files, a sorted key-value store, and the threads that wait for them.

Everything a bookie does to its disks goes through here, so that a test can lose what was not
synced, tear what was half written, or fail any single call. Two kinds of things:

* ``IoThread``: runs blocking work in order, away from the event loop. Only I/O threads own threads.
* the blocking calls themselves, to be made on an I/O thread only. They raise ``OSError``.

What the storage relies on (and STORAGE.md explains): after ``sync`` returned, the bytes written
before it are there after any crash; without it any part of them may be, in any order. A file that
was created, renamed or removed is so after a crash only once its directory was synced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview

Done = Callable[[BaseException | None], None]


class IoThread(Protocol):
    """Blocking work, one piece after the other, in the order of the calls."""

    def submit(self, work: Callable[[], None], done: Done) -> None:
        """Run ``work``; then ``done`` on the event loop with what it raised, or None."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` and return its result or raise what it raised. Cancelling the caller does
        not stop work that was handed over."""

    async def close(self) -> None:
        """Wait for all the work handed over, then end."""


class File(Protocol):
    """An open file. Positions are given with every call; there is no cursor."""

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all the buffers, one behind the other, from ``offset`` on."""

    def sync(self) -> None:
        """Make what was written durable, the file's size included. After a failure nothing may be
        concluded about any unsynced byte, ever: never call it again (PROTOCOL.md rule 9)."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file."""

    def size(self) -> int: ...

    def reserve(self, size: int) -> None:
        """Have space for ``size`` bytes, reading as zeros where nothing was written."""

    def drop_cache(self, offset: int, size: int) -> None:
        """A hint: these bytes will not be read soon and need no memory. What is not synced yet
        stays."""

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class KeyValueStore(Protocol):
    """A sorted map of bytes, safe to read on one thread while another writes."""

    def write(
        self, items: Iterable[tuple[bytes, bytes]], *, delete: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        """Delete the keys with ``first <= key < end`` of each range of ``delete``, then put all the
        items; all of it atomically, and durable on return."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Items with ``first <= key < end`` in order, as they were when iteration began.

        Raises OSError where stored bytes cannot be read or do not match their checksum.
        """

    def compact(self, first: bytes, end: bytes) -> None:
        """A hint: much of ``first <= key < end`` was deleted. Safe beside reads and writes."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DiskSpace:
    total_bytes: int
    free_bytes: int
    """What may still be written."""


class Disk(Protocol):
    """A machine's disks."""

    def io_thread(self, name: str) -> IoThread:
        """A new I/O thread with a thread of its own. The caller closes it."""

    def lock(self, path: Path) -> DirectoryLock | None:
        """Take a lock that dies with the process. None: another one holds it."""

    def make_directory(self, path: Path) -> None:
        """Create it and its parents where missing, durably."""

    def names(self, path: Path) -> list[str]:
        """Names in a directory, sorted."""

    def read_file(self, path: Path) -> bytes | None:
        """A whole small file; None if it does not exist."""

    def replace_file(self, path: Path, data: bytes) -> None:
        """Durably put ``data`` in place of what was there: after a crash one or the other."""

    def create(self, path: Path) -> File:
        """A new file to write and read; FileExistsError if there is one. Its directory is not
        synced yet."""

    def open(self, path: Path) -> File:
        """An existing file, to read and sync."""

    def remove(self, path: Path) -> None: ...

    def space(self, path: Path) -> DiskSpace:
        """Of the file system that a directory is in."""

    def rename(self, path: Path, to: Path) -> None:
        """Give a file another name in the same directory, which is not synced yet."""

    def sync_directory(self, path: Path) -> None: ...

    def open_store(self, path: Path, *, create: bool) -> KeyValueStore:
        """Raises OSError if it is damaged, or missing and not to be created."""
