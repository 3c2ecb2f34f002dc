"""The base of all I/O threads: waiting for the result of queued work."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from fencelog.bookie.disk.port import Buffer, Done, File

T = TypeVar("T")

Work = tuple[Callable[[], object], Callable[..., None]]
"""The work, and the function that gets its (error, result) on the event loop afterwards."""


def writing(
    file: File, buffers: Sequence[Buffer], offset: int, *, sync: bool
) -> Callable[[], None]:
    """Return the work that writes buffers to a file and, with ``sync``, syncs it afterwards."""

    def work() -> None:
        file.write(buffers, offset)
        if sync:
            file.sync()

    return work


class QueuedIoThread(ABC):
    """An I/O thread whose work is put into a queue by ``_enqueue``."""

    _loop: asyncio.AbstractEventLoop

    def submit(self, work: Callable[[], None], done: Done) -> None:
        self._enqueue(work, lambda error, _result: done(error))

    def write(
        self, file: File, buffers: Sequence[Buffer], offset: int, *, sync: bool, done: Done
    ) -> None:
        self.submit(writing(file, buffers, offset, sync=sync), done)

    async def run(self, work: Callable[[], T]) -> T:
        future: asyncio.Future[T] = self._loop.create_future()

        def done(error: BaseException | None, result: T) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self._enqueue(work, done)
        return await future

    @abstractmethod
    def _enqueue(self, work: Callable[[], object], done: Callable[..., None]) -> None:
        """Queue the work. Raise if the thread is closed."""
