"""The state that the connections of one HTTP server share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Protocol, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from fencelog.api.http.asgi import JSON
from fencelog.api.server.gathering_transport import GatheringTransport
from fencelog.api.server.limits import (
    MAX_CONNECTIONS,
    MAX_REFUSED_CONNECTIONS,
    MAX_UNTAKEN_BYTES,
)
from fencelog.broker.limits import ANSWER_STALL_MS, SHARE_OF_ADDRESS
from fencelog.ledgers.errors import ErrorCode, FencelogError

_CREATED = 201


class HttpConnection(Protocol):
    """A connection as its server sees it. ``transport``: None where what the other end takes is
    limited otherwise."""

    @property
    def transport(self) -> GatheringTransport | None: ...

    def close_if_overdue(self, now_s: float) -> None: ...

    def cut_off(self) -> None: ...


class Connections(ServerState):
    """The connections of one server. ``now_s``: the loop's time at the last ``tick``, for limits of
    time that need no better."""

    def __init__(self, max_connections: int = MAX_CONNECTIONS) -> None:
        super().__init__()
        self._max_connections = max_connections
        self._max_of_address = max(1, max_connections // SHARE_OF_ADDRESS)
        self.now_s = asyncio.get_running_loop().time()
        self._created = b""
        self._of_address: Counter[str] = Counter()

    def admit(self, connection: HttpConnection, address: str) -> FencelogError | None:
        """Add a connection; return the error to refuse it with if there are too many. It is aborted
        if too many are being refused."""
        self.connections.add(cast("Any", connection))
        self._of_address[address] += 1
        over = len(self.connections) - self._max_connections
        if over > MAX_REFUSED_CONNECTIONS:
            if connection.transport is not None:
                connection.transport.abort()
        elif over > 0:
            return FencelogError(
                ErrorCode.OVERLOADED, f"this broker has {self._max_connections} connections"
            )
        elif self._of_address[address] > self._max_of_address:
            return FencelogError(
                ErrorCode.OVERLOADED,
                f"{self._max_of_address} connections come from the same address",
            )
        return None

    def remove(self, connection: HttpConnection, address: str) -> None:
        self.connections.discard(cast("Any", connection))
        self.forget(address)

    def forget(self, address: str) -> None:
        """Count one connection from this address less."""
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]

    def tick(self) -> None:
        """Note the time, and close the connections whose time is over. ``default_headers`` are
        those of the new second."""
        self.now_s = asyncio.get_running_loop().time()
        self._created = b"%b%bcontent-type: %b\r\n" % (
            STATUS_LINE[_CREATED],
            header_lines(self.default_headers),
            JSON,
        )
        for connection in self._all():
            connection.close_if_overdue(self.now_s)
        self._end_stalled()

    def _end_stalled(self) -> None:
        """End the connections whose clients take nothing of their answers: those that have for too
        long, and the longest stalled ones while all that waits takes too much memory."""
        transports = [each.transport for each in self._all()]
        waiting = [each for each in transports if each is not None and each.untaken_bytes]
        for each in waiting:
            each.look(self.now_s)
        over = sum(each.untaken_bytes for each in waiting) - MAX_UNTAKEN_BYTES
        for each in sorted(waiting, key=attrgetter("stalled_s"), reverse=True):
            if each.stalled_s > ANSWER_STALL_MS / 1000 or (over > 0 and each.stalled_s):
                over -= each.untaken_bytes
                each.abort()  # closing would wait for the client, too

    def cut_off(self) -> None:
        """End the connections whose requests the closing server could not wait for."""
        for connection in self._all():
            connection.cut_off()

    def _all(self) -> list[HttpConnection]:
        return cast("list[HttpConnection]", list(self.connections))

    def created(self, body: bytes, last: bytes) -> bytes:
        """Return the answer 201 with a JSON body. ``last``: further lines of its head."""
        return b"%bcontent-length: %d\r\n%b\r\n%b" % (self._created, len(body), last, body)

    def answer(
        self,
        status: int,
        media_type: bytes,
        body: bytes,
        headers: Iterable[tuple[bytes, bytes]],
        last: bytes,
    ) -> bytes:
        """Return any whole answer; ``last`` as for ``created``."""
        return b"%b%b%bcontent-type: %b\r\ncontent-length: %d\r\n%b\r\n%b" % (
            STATUS_LINE[status],
            header_lines(self.default_headers),
            header_lines(headers),
            media_type,
            len(body),
            last,
            body,
        )


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])
