"""The state that the connections of one HTTP server share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from fencelog.api.http.asgi import JSON
from fencelog.api.server.limits import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_OF_ADDRESS,
    MAX_UNTAKEN_BYTES,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError

_CREATED = 201


class HttpConnection(Protocol):
    """A connection as its server sees it. ``untaken_bytes``: of answers, that its client has not
    taken yet; ``stalled_s``: the time for which it has taken none of them, at the last look."""

    stalled_s: float

    @property
    def untaken_bytes(self) -> int: ...

    def abort(self) -> None: ...

    def close_if_overdue(self, now_s: float) -> None: ...

    def cut_off(self) -> None: ...


class Connections(ServerState):
    """The connections of one server. ``now_s``: the loop's time at the last ``tick``, for limits of
    time that need no better."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = asyncio.get_running_loop().time()
        self._created = b""
        self._of_address: Counter[str] = Counter()

    def admit(self, connection: HttpConnection, address: str) -> FencelogError | None:
        """Add a connection; return the error to refuse it with if there are too many."""
        self.connections.add(cast("Any", connection))
        self._of_address[address] += 1
        if len(self.connections) > MAX_CONNECTIONS:
            return FencelogError(
                ErrorCode.OVERLOADED, f"this broker has {MAX_CONNECTIONS} connections"
            )
        if self._of_address[address] > MAX_CONNECTIONS_OF_ADDRESS:
            return FencelogError(
                ErrorCode.OVERLOADED,
                f"{MAX_CONNECTIONS_OF_ADDRESS} connections come from the same address",
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
        self._limit_untaken()

    def _limit_untaken(self) -> None:
        """End the connections whose clients have taken nothing for longest, while what waits for
        clients takes too much memory."""
        untaken = {each: size for each in self._all() if (size := each.untaken_bytes)}
        over = sum(untaken.values()) - MAX_UNTAKEN_BYTES
        if over <= 0:
            return
        for each in sorted(untaken, key=lambda each: each.stalled_s, reverse=True):
            if over <= 0 or not each.stalled_s:
                return
            each.abort()
            over -= untaken[each]

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
