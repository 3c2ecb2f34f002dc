"""A transport whose small writes leave together: an answer in one piece.

uvicorn passes its transport the head of an answer and then the body, and uvloop sends each at once:
two system calls, two packets, and a client that wakes up twice for one small answer.
"""

from __future__ import annotations

import asyncio
import fcntl
import termios
from array import array
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from fencelog.api.server.limits import LINGER_S

_GATHER_BYTES = 64 * 1024
"""The limit of the gathered bytes: above it copying costs more than a system call, and the
transport below has to see the bytes, so that it can tell the writer to pause."""


class GatheringTransport(asyncio.Transport):
    """Joins what is written in one turn of the event loop. Order is kept; closing writes first, and
    lingers."""

    __slots__ = (
        *("_has_ended", "_loop", "_size", "_taken_bytes", "_taken_s", "_transport", "_waiting"),
        *("_written_bytes", "has_unread", "stalled_s"),
    )

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes | bytearray | memoryview[Any]] = []
        self._size = self._written_bytes = self._taken_bytes = 0
        self._taken_s = 0.0
        self._has_ended = False
        self.has_unread = False
        """True while the client is still sending a request."""
        self.stalled_s = 0.0
        """The time for which the client has taken nothing of what waits for it, at the last
        look."""

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        self._size += len(data)
        if self._size > _GATHER_BYTES:
            self._flush()

    def write_now(self, data: bytes) -> None:
        """Write what is whole already, and whatever waits before it."""
        if self._waiting or self._has_ended:
            self._waiting.append(data)
            self._size += len(data)
            self._flush()
        else:
            self._written_bytes += len(data)
            self._transport.write(data)

    def _flush(self) -> None:
        waiting, size = self._waiting, self._size
        self._waiting, self._size = [], 0
        if self.is_closing():
            return  # the connection was lost since, so nothing can be written
        self._written_bytes += size
        if len(waiting) == 1:
            self._transport.write(waiting[0])
        elif waiting:
            self._transport.writelines(waiting)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        for data in list_of_data:
            self.write(data)

    def close(self) -> None:
        """Close after what was written has left. A client that is still sending is read from for
        LINGER_S, or the reset of its connection might reach it before the answer."""
        if self.is_closing():
            return
        self._flush()
        if self.has_unread and self._transport.can_write_eof():
            self._has_ended = True
            self._transport.write_eof()
            self._transport.resume_reading()
            self._loop.call_later(LINGER_S, self._transport.close)
        else:
            self._transport.close()

    @property
    def untaken_bytes(self) -> int:
        """The bytes that wait here for the client to take what was sent before."""
        return self._transport.get_write_buffer_size()

    def look(self, now_s: float) -> None:
        """Look whether the client has taken anything since the last look, or nothing waits."""
        untaken = self.untaken_bytes
        taken = self._written_bytes - untaken - (self._queued_bytes() if untaken else 0)
        if not untaken or taken != self._taken_bytes:
            self._taken_bytes, self._taken_s = taken, now_s
        self.stalled_s = now_s - self._taken_s

    def _queued_bytes(self) -> int:
        """Return the bytes in the kernel's queue, which takes no more from here before much of it
        has left: the client may be slow, and take something all the same."""
        connection = self._transport.get_extra_info("socket")
        size = array("i", [0])
        with suppress(OSError, AttributeError):  # it is closed, or no socket
            fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, size)
        return size[0]

    def abort(self) -> None:
        self._waiting.clear()
        self._transport.abort()

    def detach(self) -> asyncio.Transport:
        """Write what was gathered, and return the transport below, for another protocol."""
        self._flush()
        return self._transport

    # -- passed on ---------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._has_ended or self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
