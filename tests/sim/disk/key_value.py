"""The key-value store of a simulated disk: what RocksDB promises, in a sorted dict.

Writes are atomic and durable on return, scans see a snapshot, and stored blocks carry a checksum:
reads that meet a rotten one raise, whether or not the key they want is in it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from errno import EBADF, EIO
from random import Random  # noqa: TID251 - for its type: the streams are the engine's
from typing import Protocol

from tests.sim.engine.process import Process

_BLOCK_KEYS = 4
"""Neighbours that a rotten block takes with it."""


class SortedItems:
    """A sorted map of bytes."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self._values: dict[bytes, bytes] = {}

    def copy(self) -> SortedItems:
        other = SortedItems()
        other.keys, other._values = list(self.keys), dict(self._values)
        return other

    def update(
        self, items: Iterable[tuple[bytes, bytes]], delete: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        for first, end in delete:
            low, high = bisect_left(self.keys, first), bisect_left(self.keys, end)
            for key in self.keys[low:high]:
                del self._values[key]
            del self.keys[low:high]
        for key, value in items:
            if key not in self._values:
                insort(self.keys, key)
            self._values[key] = value

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def between(self, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        keys = self.keys[bisect_left(self.keys, first) : bisect_left(self.keys, end)]
        return [(key, self._values[key]) for key in keys]


class StoreData:
    """The contents of one store on the disk, and the handle that has it open."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.items = SortedItems()
        self.is_open: Callable[[], bool] = lambda: False
        self._rotten: list[tuple[bytes, bytes]] = []

    def rot(self, random: Random, below: int | None) -> str | None:
        keys = self.items.keys
        if not keys:
            return None
        at = random.randrange(len(keys))
        last = keys[min(at + random.randrange(_BLOCK_KEYS), len(keys) - 1)]
        self._rotten.append((keys[at], last))
        return f"{self.name} keys {keys[at].hex()} to {last.hex()}"

    def check(self, first: bytes, end: bytes) -> None:
        """Check blocks. Raises OSError if a damaged block holds anything of ``first <= key <
        end``."""
        if any(first <= bad_last and bad_first < end for bad_first, bad_last in self._rotten):
            raise OSError(EIO, "block checksum mismatch", self.name)


class StoreCalls(Protocol):
    """The hooks of the disk around each call of a store: faults, deaths, time."""

    @property
    def process(self) -> Process: ...

    def check_alive(self, process: Process) -> None: ...

    def before_read(self, name: str) -> None: ...

    def store_write(
        self, name: str, apply: Callable[[], None], failed: Callable[[], None]
    ) -> None: ...


class SimKeyValueStore:
    """An open store. Implements ``bookie.disk.KeyValueStore``.

    A write that failed may be seen by later reads of the same process (RocksDB's memtable has it),
    but is not on the disk; further writes are refused.
    """

    def __init__(self, data: StoreData, calls: StoreCalls, random: Random) -> None:
        self._data = data
        self._calls = calls
        self._random = random
        self._seen = data.items
        self._has_failed = False
        self._process = calls.process
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        return self._process.is_alive and not self._is_closed

    def write(
        self, items: Iterable[tuple[bytes, bytes]], *, delete: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        self._check_open()
        batch = list(items)
        if self._has_failed:
            raise OSError(EIO, "an earlier write has failed", self._data.name)
        self._calls.store_write(
            self._data.name,
            lambda: self._data.items.update(batch, delete),
            lambda: self._failed(batch, delete),
        )

    def get(self, key: bytes) -> bytes | None:
        self._check_open()
        self._calls.before_read(self._data.name)
        self._data.check(key, key + b"\0")
        return self._seen.get(key)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._check_open()
        self._calls.before_read(self._data.name)
        before = first
        for key, value in self._seen.between(first, end):
            self._data.check(before, key + b"\0")
            yield key, value
            before = key
        self._data.check(before, end)

    def compact(self, first: bytes, end: bytes) -> None:
        """Do nothing: deleted items take no space here."""
        self._check_open()

    def close(self) -> None:
        self._is_closed = True

    def _failed(
        self, batch: list[tuple[bytes, bytes]], delete: Sequence[tuple[bytes, bytes]]
    ) -> None:
        self._has_failed = True
        self._seen = self._data.items.copy()
        if self._random.random() < 0.5:
            self._seen.update(batch, delete)

    def _check_open(self) -> None:
        self._calls.check_alive(self._process)
        if self._is_closed:
            raise OSError(EBADF, "the store is closed", self._data.name)
