"""Open files and locks of a simulated disk. They belong to the process that made them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from errno import EBADF
from random import Random  # noqa: TID251 - for its type: the streams are the engine's
from typing import Protocol

from fencelog.bookie.disk.port import Buffer
from tests.sim.disk.files import FileData
from tests.sim.engine.process import Process


class FileCalls(Protocol):
    """The hooks of the disk around each call of a file: faults, deaths, time."""

    chance: Random

    @property
    def process(self) -> Process: ...

    def check_alive(self, process: Process) -> None: ...

    def before_read(self, name: str) -> None: ...

    def effect(
        self,
        operation: str,
        name: str,
        apply: Callable[[], object],
        *,
        amid: Callable[[], None] | None = None,
        failed: Callable[[], None] | None = None,
        takes_space: bool = False,
    ) -> None: ...


class SimFile:
    """Implements ``bookie.disk.File``."""

    def __init__(self, disk: FileCalls, data: FileData) -> None:
        self._disk = disk
        self._data = data
        self._process = disk.process
        self._is_open = True

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        file = self._checked()
        data = b"".join(buffers)

        def write_some() -> None:
            file.write(offset, data[: self._disk.chance.randint(0, len(data))])

        self._disk.effect(
            "write",
            file.name,
            lambda: file.write(offset, data),
            amid=write_some,
            failed=write_some,
            takes_space=True,
        )

    def sync(self) -> None:
        file = self._checked()
        self._disk.effect(
            "sync", file.name, file.sync, failed=lambda: file.fail_sync(self._disk.chance)
        )

    def write_back(self, offset: int, size: int) -> None:
        file = self._checked()
        self._disk.effect(
            "write_back",
            file.name,
            lambda: None,
            failed=lambda: file.fail_sync(self._disk.chance),
        )

    def read(self, offset: int, size: int) -> bytes:
        file = self._checked()
        self._disk.before_read(file.name)
        return file.cached.read(offset, size)

    def size(self) -> int:
        return self._checked().cached.size

    def reserve(self, size: int) -> None:
        file = self._checked()
        self._disk.effect("write", file.name, lambda: file.reserve(size), takes_space=True)

    def drop_cache(self, offset: int, size: int) -> None:
        self._checked()

    def close(self) -> None:
        self._is_open = False

    def _checked(self) -> FileData:
        if not self._is_open:
            raise OSError(EBADF, "the file is closed", self._data.name)
        self._disk.check_alive(self._process)
        return self._data


class SimLock:
    """Implements ``bookie.disk.DirectoryLock``; ends with the process, however it ends."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._is_released = False

    @property
    def is_held(self) -> bool:
        return self._process.is_alive and not self._is_released

    def release(self) -> None:
        self._is_released = True
