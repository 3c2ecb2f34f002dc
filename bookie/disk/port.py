"""The Disk port: files, a sorted key-value store, and the threads that wait for them.

All disk access of a bookie goes through this port, so that a test can lose unsynced bytes, tear a
partial write, or fail any single call. It has two parts:

* ``IoThread``: runs blocking work in order, off the event loop. Only I/O threads own threads.
* the blocking calls themselves, to be made on an I/O thread only. They raise ``OSError``.

The storage relies on this (STORAGE.md explains it): after ``sync`` has returned, the bytes written
before it survive any crash; without it, any part of them may survive, in any order. The creation,
renaming or removal of a file survives a crash only once its directory was synced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview

Done = Callable[[BaseException | None], None]


class IoThread(Protocol):
    """A thread that does blocking work, one call after the other, in the order of the calls."""

    def submit(self, work: Callable[[], None], done: Done) -> None:
        """Run ``work``; then call ``done`` on the event loop with the exception it raised, or
        None."""

    def write(
        self, file: File, buffers: Sequence[Buffer], offset: int, *, sync: bool, done: Done
    ) -> None:
        """Write buffers to a file as ``File.write`` does, and with ``sync`` sync it afterwards;
        then call ``done`` as ``submit`` does. It may be done without a thread."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` and return its result or raise what it raised. Cancelling the caller does
        not stop work that was submitted."""

    async def close(self) -> None:
        """Wait for all the submitted work, then end."""


class File(Protocol):
    """An open file. Every call gives its position; there is no file cursor."""

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all the buffers, one after the other, from ``offset`` on."""

    def sync(self) -> None:
        """Make all written bytes durable, the file's size included. After a failure nothing may be
        concluded about any unsynced byte: never call it again (PROTOCOL.md rule 9)."""

    def write_back(self, offset: int, size: int) -> None:
        """Have the disk take these written bytes, and wait until it has: a later ``sync`` has less
        to do. Nothing is durable by it. A failure is one of ``sync``: never call either again."""

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes; fewer only at the end of the file."""

    def size(self) -> int: ...

    def reserve(self, size: int) -> None:
        """Reserve space for ``size`` bytes, reading as zeros where nothing was written."""

    def drop_cache(self, offset: int, size: int) -> None:
        """Hint that these bytes will not be read soon and need no memory. Bytes that are not synced
        yet stay."""

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
        """Yield the items with ``first <= key < end`` in order, as they were when iteration began.

        Raises OSError where stored bytes cannot be read or do not match their checksum.
        """

    def compact(self, first: bytes, end: bytes) -> None:
        """Hint that much of ``first <= key < end`` was deleted. It is safe during reads and
        writes."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DiskSpace:
    total_bytes: int
    free_bytes: int
    """The number of bytes that may still be written."""


@dataclass(frozen=True, slots=True)
class DirectorySpace:
    """A directory of a bookie, the kinds of data that it ``holds``, and the space of its disk."""

    path: Path
    holds: tuple[str, ...]
    space: DiskSpace

    @property
    def has_ledgers(self) -> bool:
        return "ledgers" in self.holds

    @property
    def is_filled(self) -> bool:
        """Tell whether adds fill it: it does not hold the identity alone."""
        return self.has_ledgers or "journal" in self.holds

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-compatible values."""
        return {
            "path": str(self.path),
            "holds": list(self.holds),
            "total_bytes": self.space.total_bytes,
            "free_bytes": self.space.free_bytes,
        }


class Disk(Protocol):
    """A machine's disks."""

    def io_thread(self, name: str) -> IoThread:
        """Start a new I/O thread with a thread of its own. The caller closes it."""

    def lock(self, path: Path) -> DirectoryLock | None:
        """Take a lock that ends with the process. Return None if another process holds it."""

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents where missing, durably."""

    def names(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""

    def read_file(self, path: Path) -> bytes | None:
        """Return the content of a small file; None if the file does not exist."""

    def replace_file(self, path: Path, data: bytes) -> None:
        """Replace the content of a file durably: after a crash the file has the old content or
        ``data``."""

    def create(self, path: Path) -> File:
        """Create a file to write and read; raise FileExistsError if it exists. Its directory is not
        synced yet."""

    def open(self, path: Path) -> File:
        """Open an existing file, to read and sync."""

    def remove(self, path: Path) -> None: ...

    def space(self, path: Path) -> DiskSpace:
        """Return the space of the file system that a directory is in."""

    def rename(self, path: Path, to: Path) -> None:
        """Rename a file within its directory, which is not synced yet."""

    def sync_directory(self, path: Path) -> None: ...

    def open_store(self, path: Path, *, create: bool) -> KeyValueStore:
        """Open a key-value store. Raises OSError if it is damaged, or if it is missing and
        ``create`` is False."""
