"""The requests and answers of a link as its ends know them, without I/O.

The asking end keeps each request in one of two places: *waiting*, none of its bytes was passed to
the network; *in flight*, all of them were. When the connection is lost, what waits was certainly
not received and what is in flight may have been. A request moves from the one to the other when
``flush`` gives out its bytes, and never back.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from fencelog.api.routing.link_frames import LinkFlag, LinkOp, frame_of
from fencelog.broker.limits import LINK_MAX_PENDING_BYTES, LINK_MAX_REQUESTS, LINK_WINDOW_BYTES
from fencelog.ledgers.errors import ProtocolError
from fencelog.ledgers.rpc.wire import REPLY_BIT, Frame, encode_request

_MAX_ID = 0xFFFFFFFF


class Outcome(Enum):
    """The knowledge about a request that gets no answer."""

    REFUSED = "the address refuses connections; nothing was sent"
    UNSENT = "nothing was sent"
    LEAVING = "the broker is ending; nothing was sent"
    OVERLOADED = "the broker has too many requests; nothing was done"
    LOST = "it was sent, and may have been carried out"


class Awaited(Protocol):
    """One request, as its link sees it."""

    def answered(self, frame: Frame) -> bool:
        """Take a frame of the answer; returns whether it is the last one. Raises
        ProtocolError."""

    def failed(self, outcome: Outcome, why: str) -> None:
        """Learn that there will be no further frame."""


class _Gone:
    """The receiver of an answer whose caller has gone."""

    def answered(self, frame: Frame) -> bool:
        return bool(frame.flags & LinkFlag.END)

    def failed(self, outcome: Outcome, why: str) -> None:
        """Drop the answer."""


_GONE = _Gone()


class _Entry:
    """A request and its place."""

    __slots__ = ("asked", "op", "parts", "size")

    def __init__(self, asked: Awaited, op: LinkOp, parts: tuple[bytes, ...], size: int) -> None:
        self.asked = asked
        self.op = op
        self.parts = parts
        self.size = size


class LinkCore:
    """The requests of the asking end."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Entry] = {}
        self._in_flight: dict[int, _Entry] = {}
        self._control: list[bytes] = []
        self._pending_bytes = 0
        self._last_id = 0

    @property
    def is_idle(self) -> bool:
        """True if no request is in flight."""
        return not self._waiting and not self._in_flight

    @property
    def has_waiting(self) -> bool:
        """True if there is a request whose bytes were not given out."""
        return bool(self._waiting)

    def refusal(self) -> str | None:
        """Return the limit that excludes one more request, if there is one."""
        if len(self._waiting) + len(self._in_flight) >= LINK_MAX_REQUESTS:
            return f"{LINK_MAX_REQUESTS} requests are in flight"
        if self._pending_bytes > LINK_MAX_PENDING_BYTES:
            return f"requests of {self._pending_bytes} bytes are in flight"
        return None

    def ask(self, asked: Awaited, op: LinkOp, parts: tuple[bytes, ...]) -> int:
        """Add a request; returns its id."""
        request_id = self._next_id()
        size = sum(len(part) for part in parts)
        self._waiting[request_id] = _Entry(asked, op, frame_of(op, request_id, parts), size)
        self._pending_bytes += size
        return request_id

    def control(self, frame: bytes) -> None:
        """Add a frame that no answer belongs to; it is of no use on another connection."""
        self._control.append(frame)

    def flush(self) -> list[bytes]:
        """Return all bytes to be sent, in order; from now on they count as sent."""
        out, self._control = self._control, []
        for entry in self._waiting.values():
            out += entry.parts
            entry.parts = ()
        self._in_flight |= self._waiting
        self._waiting = {}
        return out

    def give_up(self, request_id: int) -> None:
        """Forget a request whose caller has gone. One that was sent is cancelled; the rest
        of its answer is still to come."""
        unsent = self._waiting.pop(request_id, None)
        if unsent is not None:
            self._pending_bytes -= unsent.size
            return
        entry = self._in_flight.get(request_id)
        if entry is not None and entry.asked is not _GONE:
            entry.asked = _GONE
            self.control(encode_request(LinkOp.CANCEL, request_id, b""))

    def take(self, frame: Frame) -> None:
        """Pass a frame to the request that it answers. Raises ProtocolError."""
        entry = self._in_flight.get(frame.request_id)
        if entry is None or frame.op != entry.op | REPLY_BIT:
            raise ProtocolError(f"a frame of operation {frame.op} answers no request")
        if entry.asked.answered(frame):
            del self._in_flight[frame.request_id]
            self._pending_bytes -= entry.size

    def lose(self, why: str) -> None:
        """End all requests that were sent: their connection is lost. What waits may be sent on
        another one."""
        lost, self._in_flight = self._in_flight, {}
        self._control = []
        for entry in lost.values():
            self._pending_bytes -= entry.size
            entry.asked.failed(Outcome.LOST, why)

    def refuse(self, outcome: Outcome, why: str) -> None:
        """End all requests that wait: there is no connection to send them on."""
        unsent, self._waiting = self._waiting, {}
        for entry in unsent.values():
            self._pending_bytes -= entry.size
            entry.asked.failed(outcome, why)

    def _next_id(self) -> int:
        """Return an id that no request in flight has: streams may live for billions of others."""
        while True:
            self._last_id = (self._last_id + 1) & _MAX_ID
            if self._last_id not in self._in_flight and self._last_id not in self._waiting:
                return self._last_id


class Window:
    """The bytes of one answer that may be sent before more are taken at the other end."""

    __slots__ = ("capacity",)

    def __init__(self) -> None:
        self.capacity = LINK_WINDOW_BYTES

    def take(self, size: int) -> None:
        """Count bytes that were sent, or received. Raises ProtocolError if there is no capacity for
        them."""
        if size > self.capacity:
            raise ProtocolError(f"{size} bytes of an answer where {self.capacity} may be sent")
        self.capacity -= size

    def give(self, size: int) -> None:
        """Count bytes that were taken. Raises ProtocolError if so many were never sent."""
        if self.capacity + size > LINK_WINDOW_BYTES:
            raise ProtocolError(f"a credit of {size} bytes that were not sent")
        self.capacity += size
