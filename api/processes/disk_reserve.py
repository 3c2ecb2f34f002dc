"""Disk space that is set aside for the moment when a disk is full.

A full disk takes no metadata either, and without it no topic can be deleted, no log trimmed, and no
service started. So a file holds some space, and is removed when the rest is nearly used up: what is
deleted then gives space back, and the file is made again when there is enough.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.ledgers.limits import (
    DISK_RESERVE_SHARE,
    DISK_WATCH_MS,
    MAX_DISK_RESERVE_FILE_BYTES,
)

_log = logging.getLogger(__name__)


class DiskReserve:
    """The file ``reserve`` in a directory. All calls block."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "reserve"
        self._directory = directory

    def check(self) -> None:
        """Remove the file if less than half its size is free besides it; make it if there is space
        for three of its size. Never raises: without it the service still runs."""
        try:
            status = os.statvfs(self._directory)
            total_bytes = status.f_blocks * status.f_frsize
            free_bytes = status.f_bavail * status.f_frsize
            size = min(total_bytes // DISK_RESERVE_SHARE, MAX_DISK_RESERVE_FILE_BYTES)
            if free_bytes < size // 2:
                self._release(free_bytes)
            elif free_bytes >= 3 * size and not self._is_whole(size):
                self._make(size)
        except OSError as error:
            _log.warning("%s: %s", self._path, error)

    def _release(self, free_bytes: int) -> None:
        try:
            self._path.unlink()
        except FileNotFoundError:
            return
        _log.warning(
            "%s was removed: only %d bytes of its disk are free. Delete topics, trim them or make "
            "space; appends are taken again when there is enough",
            self._path,
            free_bytes,
        )

    def _is_whole(self, size: int) -> bool:
        """Tell whether the file is there in full: a process may have died while it made it."""
        return self._path.exists() and self._path.stat().st_size >= size

    def _make(self, size: int) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError:
            self._path.unlink()
            raise
        finally:
            os.close(descriptor)


@contextlib.asynccontextmanager
async def kept_reserve(directory: Path) -> AsyncIterator[None]:
    """Keep a reserve in the directory: check it now and every DISK_WATCH_MS."""
    reserve = DiskReserve(directory)
    io_thread = PosixDisk().io_thread("disk-reserve")

    async def keep() -> None:
        while True:
            await asyncio.sleep(DISK_WATCH_MS / 1000)
            await io_thread.run(reserve.check)

    try:
        await io_thread.run(reserve.check)
        task = asyncio.create_task(keep(), name="disk reserve")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
    finally:
        await io_thread.close()
