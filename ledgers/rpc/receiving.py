"""The memory that a connection receives into: the rest of a large reply in place, anything else in
one small buffer."""

from __future__ import annotations

from fencelog.ledgers.limits import KIB
from fencelog.ledgers.rpc.wire import Frame, FrameReader, PlacedFrame

SMALL_BYTES = 64 * KIB
"""The size of the buffer for small frames, and the missing rest from which on a reply is large."""


class ReceiveBuffer:
    """The buffers of one client's connection, as ``asyncio.BufferedProtocol`` uses them.

    A large reply is given its memory when it begins: a bookie that answers is trusted with the size
    that it states, as long as a frame may have it.
    """

    def __init__(self, frames: FrameReader) -> None:
        """Create the buffers. ``frames`` cuts whatever is small."""
        self._frames = frames
        self._small = memoryview(bytearray(SMALL_BYTES))
        self._large: PlacedFrame | None = None
        self._rest = self._small

    def space(self) -> memoryview:
        """Return where the next bytes belong, at least one."""
        return self._rest

    def received(self, size: int) -> list[Frame] | list[PlacedFrame]:
        """Take so many bytes, which were put there, and return the frames that are complete now.
        Raises ProtocolError; the stream is then unusable."""
        if self._large is not None:
            self._rest = self._rest[size:]
            if self._rest:
                return []
            complete, self._large, self._rest = self._large, None, self._small
            return [complete]
        frames = self._frames.feed(bytes(self._small[:size]))
        if (begun := self._frames.take_begun(SMALL_BYTES)) is not None:
            self._large, filled = begun
            self._rest = self._large.body[filled:]
        return frames
