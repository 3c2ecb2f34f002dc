"""A KeyValueStore in RocksDB.

RocksDB's own write-ahead log is off: items that a crash removes from the memtable are still in the
bookie's journal, since the checkpoint moves only after ``write`` has returned, and ``write``
returns after the memtable became a synced table file. So the store relies on table files and the
manifest alone, both checksummed, and there is no log whose damaged tail would be dropped silently.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path
from typing import Any, cast

from rocksdict import Options, Rdict, ReadOptions, WriteBatch, WriteOptions

_WRITE_BUFFER_BYTES = 32 * 1024 * 1024
_MAX_OPEN_FILES = 256


def rocks_options(*, create: bool) -> Options:
    """Return the options for RocksDB. ``create``: an empty directory becomes a new store."""
    options = Options(raw_mode=True)
    options.create_if_missing(create)
    options.set_paranoid_checks(True)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_open_files(_MAX_OPEN_FILES)
    options.set_keep_log_file_num(2)
    return options


class RocksStore:
    """One RocksDB directory. Reads and writes may come from different threads."""

    def __init__(self, path: Path, *, create: bool) -> None:
        try:
            self._store = Rdict(str(path), options=rocks_options(create=create))
        except Exception as error:  # rocksdict raises bare Exception for whatever RocksDB says
            if os.strerror(ENOSPC) in str(error):
                raise OSError(ENOSPC, str(error), str(path)) from error
            raise OSError(f"{path}: {error}") from error
        self._path = path
        self._write_options = cast(Any, WriteOptions())  # its stubs call attributes methods
        self._write_options.disable_wal = True

    def write(
        self, items: Iterable[tuple[bytes, bytes]], *, delete: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        batch = WriteBatch(raw_mode=True)
        for first, end in delete:
            batch.delete_range(first, end)
        for key, value in items:
            batch.put(key, value)
        try:
            self._store.write(batch, self._write_options)
            self._store.flush(wait=True)
        except Exception as error:  # see __init__
            raise OSError(f"{self._path}: {error}") from error

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._store.get(key)
        except Exception as error:  # see __init__
            raise OSError(f"{self._path}: {error}") from error
        return value

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        cursor: Any = None
        try:
            cursor = self._store.iter(options)
            cursor.seek(first)
            while cursor.valid():
                yield bytes(cursor.key()), bytes(cursor.value())
                cursor.next()
            # An iterator that met damage becomes invalid like one at the end; only this call
            # tells them apart.
            cursor.status()
        except Exception as error:  # see __init__
            raise OSError(f"{self._path}: {error}") from error
        finally:
            # An error's traceback holds this frame, and an iterator would hold the store open and
            # its lock, closed or not.
            del cursor

    def compact(self, first: bytes, end: bytes) -> None:
        """Rewrite the table files of that range without the deleted items: until then each scan has
        to step over them, and they take space."""
        try:
            self._store.compact_range(first, end)
        except Exception as error:  # see __init__
            raise OSError(f"{self._path}: {error}") from error

    def close(self) -> None:
        """Close the store, even if RocksDB reports an error. RocksDB would only write what a failed
        ``write`` left, on which no caller relies, so a second failure here is no further error."""
        with suppress(Exception):  # see __init__
            self._store.close()
