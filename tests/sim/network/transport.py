"""One end of a simulated connection, and the stream of bytes from one end to the other.

A stream keeps its order and loses nothing: lost packets show as delay. It carries at most a window
of bytes that the receiver has not read; the rest waits with the sender, as in TCP.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any
from zlib import crc32

from tests.sim.engine.process import Process

if TYPE_CHECKING:
    from tests.sim.network.network import Network, SimServer

_MAX_SEGMENT_BYTES = 1 << 16
_CUT = 0.3
"""The probability that a write is cut at a random place."""

_WHOLE_BYTES = 8
"""The size up to which a write is never cut: messages of the metadata store
(``metadata/wire.py``)."""

_MAX_READ_BYTES = 1 << 18
_HIGH_WATER_BYTES = 1 << 16
_BUFFERS = (bytes, bytearray, memoryview)


class Mark(Enum):
    """The events that a stream carries besides bytes, in order with them."""

    ACCEPT = 1
    END = 2
    RESET = 3


class Stream:
    """One direction of a connection, from kernel to kernel."""

    def __init__(self, network: Network, number: int, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.sender: SimTransport
        self.receiver: SimTransport
        self._network = network
        self._at = network.at
        self._mark = network.trace.mark
        self._number = number
        self.capacity = network.choose_window()
        """How many bytes more may be sent now."""
        self._segments: deque[tuple[int, bytes | Mark]] = deque()
        self._timetable = 0
        self._is_cut = False

    def send(self, item: bytes | Mark) -> None:
        network = self._network
        if type(item) is bytes:
            if self._is_cut:
                return
            size = len(item)
            self.capacity -= size
            self._mark((self._number, size, crc32(item)))
        due_us = network.loop.now_us + network.delay_us(self.source, self.target)
        segments = self._segments
        segments.append((due_us, item))
        if len(segments) == 1:
            self._timetable += 1
            self._at(due_us, self._arrive, self._timetable)

    def _schedule(self) -> None:
        self._timetable += 1
        self._at(self._segments[0][0], self._arrive, self._timetable)

    def _arrive(self, timetable: int) -> None:
        """Deliver what is due, unless a newer timetable holds or the way is blocked."""
        segments = self._segments
        if timetable != self._timetable or not segments:
            return
        network = self._network
        if network.is_impeded and network.holds(self.source, self.target, self.hurry):
            self._timetable += 1
            return
        now_us = network.loop.now_us
        while segments and segments[0][0] <= now_us:
            self.receiver.take(segments.popleft()[1])
            segments = self._segments
        if segments and timetable == self._timetable:
            self._schedule()

    def hurry(self) -> None:
        """Retransmit: what is on its way gets new times, as the network is now."""
        now_us, delay_us = self._network.loop.now_us, self._network.delay_us
        self._segments = deque(
            (now_us + delay_us(self.source, self.target), item) for _, item in self._segments
        )
        if self._segments:
            self._schedule()

    def cut(self, share: float) -> None:
        """Cut the data in flight: only a part arrives, and no byte after it. It may end
        anywhere."""
        self._is_cut = True
        left = int(share * sum(len(item) for _, item in self._segments if isinstance(item, bytes)))
        segments, self._segments = self._segments, deque()
        for due_us, item in segments:
            if not isinstance(item, bytes):
                self._segments.append((due_us, item))
            elif left > 0:
                self._segments.append((due_us, item[:left]))
                left -= len(item)

    def was_read(self, size: int) -> None:
        """The receiver took bytes; the sender learns it now or, if it waits for it or cannot be
        told, by an acknowledgement."""
        if self.sender.buffer or (
            self._network.is_impeded and self._network.is_blocked(self.target, self.source)
        ):
            self._network.carry(self.target, self.source, self._acknowledged, size)
        else:
            self.capacity += size

    def _acknowledged(self, size: int) -> None:
        self.capacity += size
        self.sender.has_capacity()


def _put(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    """Put the data where the protocol wants them."""
    size = len(data)
    while len(space := memoryview(protocol.get_buffer(size))) < size:
        taken = len(space)
        space[:] = data[:taken]
        protocol.buffer_updated(taken)
        data = data[taken:]
        size -= taken
    space[:size] = data
    protocol.buffer_updated(size)


class SimTransport(asyncio.Transport):
    """The transport that a protocol gets; also what the kernel knows of the connection's end."""

    def __init__(
        self, network: Network, process: Process, names: tuple[Any, Any], outgoing: Stream
    ) -> None:
        super().__init__({"sockname": names[0], "peername": names[1]})
        self.process = process
        self.server: SimServer | None = None
        self.incoming: Stream
        self._network = network
        self._outgoing = outgoing
        self._protocol: Any = None
        self.buffer: deque[bytes] = deque()
        """What the peer does not take yet."""
        self._buffered = 0
        self._received: deque[bytes] = deque()
        self._at_end = False
        self._is_open = True
        self._is_closing = False
        self._is_reading = True
        self._read_pending = False
        self._write_pending = False
        self._is_full = False
        self._high = _HIGH_WATER_BYTES
        self._low = _HIGH_WATER_BYTES // 4

    # -- from the program ------------------------------------------------------------------------

    def start(self, protocol: Any) -> None:
        """Give the connection to its protocol."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._expect_read()

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if type(data) is not bytes:
            if not isinstance(data, _BUFFERS):
                raise TypeError(f"bytes are expected, not {type(data).__name__}")
            data = bytes(data)
        if self._is_closing or not data:
            return
        buffer, size = self.buffer, len(data)
        if not buffer and size <= _WHOLE_BYTES and size <= self._outgoing.capacity:
            self._outgoing.send(data)
            return
        buffer.append(data)
        self._buffered += size
        if len(buffer) == 1:
            self._send()
        if self._buffered > self._high and not self._is_full:
            self._is_full = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if not self.buffer:
                self._shut(None)

    def abort(self) -> None:
        self._is_closing = True
        self._drop_buffer()
        self._shut(None)

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            self._expect_read()

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be at least low ({low}), and that at least 0")
        self._high, self._low = high, low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self._buffered

    # -- in the process --------------------------------------------------------------------------

    def _read(self) -> None:
        """Hand over what came, and the end of it."""
        self._read_pending = False
        if self._is_closing or not self._is_reading or self._protocol is None:
            return
        received = self._received
        if received:
            data = received.popleft() if len(received) == 1 else self._take_received()
            if received or self._at_end:
                self._expect_read()
            self.incoming.was_read(len(data))
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                _put(self._protocol, data)
            else:
                self._protocol.data_received(data)
        elif self._at_end:
            self._at_end = False
            if not self._protocol.eof_received():
                self.close()

    def _take_received(self) -> bytes:
        data = b"".join(self._received)
        self._received.clear()
        if len(data) > _MAX_READ_BYTES:
            self._received.append(data[_MAX_READ_BYTES:])
        return data[:_MAX_READ_BYTES]

    def _send(self) -> None:
        """Give the kernel what its window has room for, cut where chance says."""
        chance, stream, buffer = self._network.chance, self._outgoing, self.buffer
        while buffer and (capacity := stream.capacity) > 0:
            data = buffer.popleft()
            size = len(data)
            if size > _WHOLE_BYTES:
                size = min(size, capacity, _MAX_SEGMENT_BYTES)
                if size > _WHOLE_BYTES and chance.random() < _CUT:
                    size = chance.randrange(1, size)
            elif size > capacity:
                size = capacity
            if size < len(data):
                buffer.appendleft(data[size:])
                data = data[:size]
            self._buffered -= size
            stream.send(data)

    def _write_ready(self) -> None:
        self._write_pending = False
        self._send()
        if self._is_full and self._buffered <= self._low:
            self._is_full = False
            self._protocol.resume_writing()
        if self._is_closing and not self.buffer:
            self._shut(None)

    def _shut(self, error: Exception | None) -> None:
        """The program's side is closed: tell the peer, and the protocol in its turn."""
        if self._is_open:
            self.leave()
            self._network.deliver(self.process, self._end, error)

    def _end(self, error: Exception | None) -> None:
        if self.server is not None:
            self.server.detach(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    # -- in the kernel ---------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._is_open

    def take(self, item: bytes | Mark) -> None:
        """Take what arrived."""
        if type(item) is bytes:
            if self._is_open:
                self._received.append(item)
                if not self._read_pending and self._is_reading and self._protocol is not None:
                    self._read_pending = True
                    self._network.deliver(self.process, self._read)
            else:
                self._refuse()
        elif item is Mark.RESET:
            self.lose()
        elif item is Mark.END:
            if self._is_open:
                self._at_end = True
                self._expect_read()
        elif self._is_open:
            self._network.deliver(self.process, self._accept)
        else:
            self._refuse()

    def _refuse(self) -> None:
        """Answer data for a closed end with a reset."""
        self._network.carry(self.incoming.target, self.incoming.source, self.reset_peer)

    def _accept(self) -> None:
        if self.server is not None and self._is_open:
            self.server.accept(self)

    def _expect_read(self) -> None:
        """Tell the process that there is something to read."""
        if (
            not self._read_pending
            and (self._received or self._at_end)
            and self._is_reading
            and self._protocol is not None
        ):
            self._read_pending = True
            self._network.deliver(self.process, self._read)

    def has_capacity(self) -> None:
        """Tell the process that there is space to write."""
        if self.buffer and not self._write_pending:
            self._write_pending = True
            self._network.deliver(self.process, self._write_ready)

    def leave(self) -> None:
        """The kernel closes this end: what is on its way arrives, then the end of the stream or,
        where something was left unread, a reset."""
        if self._is_open:
            is_unread = bool(self._received)
            self.vanish()
            if is_unread:
                self.cut()
            self._outgoing.send(Mark.RESET if is_unread else Mark.END)

    def vanish(self) -> None:
        """End this side without a word to the peer."""
        self._is_open = False
        self._is_closing = True
        self._received.clear()
        self._drop_buffer()
        self._network.forget(self)

    def lose(self) -> None:
        """The connection is reset."""
        if self._is_open:
            self.vanish()
            error = ConnectionResetError("connection reset by peer")
            self._network.deliver(self.process, self._end, error)

    def reset_peer(self) -> None:
        self.incoming.sender.lose()

    def cut(self) -> None:
        """Cut what this end sent: only a part arrives."""
        self._outgoing.cut(self._network.chance.random())

    def _drop_buffer(self) -> None:
        self.buffer.clear()
        self._buffered = 0


Factory = Callable[[], asyncio.BaseProtocol]
