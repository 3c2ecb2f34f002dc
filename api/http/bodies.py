"""Request bodies, read within limits: of one body, and of all bodies together. The connection
limits the time that they take."""

from __future__ import annotations

from collections import Counter

from fencelog.api.http.asgi import Exchange
from fencelog.broker.limits import MAX_BROKER_PENDING_BYTES, SHARE_OF_ADDRESS
from fencelog.ledgers.errors import ErrorCode, FencelogError


class BodyReader:
    """Reads bodies, counting the bytes of those that arrive in parts, of all clients together and
    of each address.

    Requests of another broker have no address, and need none: a link brings each body in one piece,
    within its own limit (LINK_MAX_PENDING_BYTES). All others without one count as one address.
    """

    def __init__(self, max_total_bytes: int = MAX_BROKER_PENDING_BYTES) -> None:
        self._max_total_bytes = max_total_bytes
        self._max_of_address = max_total_bytes // SHARE_OF_ADDRESS
        self._of_address: Counter[str] = Counter()
        self.pending_bytes = 0

    async def read(self, exchange: Exchange, max_bytes: int) -> bytes:
        """Read the whole body. One that announces more than ``max_bytes`` is refused unread.

        Raises FencelogError (PAYLOAD_TOO_LARGE, OVERLOADED; nothing was done) and ClientGone.
        """
        announced = exchange.header(b"content-length")
        if announced is not None and int(announced) > max_bytes:
            raise _too_large(f"the body is {int(announced)} bytes", max_bytes)
        event = await exchange.receive()
        body: bytes = event.get("body", b"")
        if event.get("more_body"):
            return await self._rest(exchange, body, max_bytes)
        if len(body) > max_bytes:
            raise _too_large(f"the body is {len(body)} bytes", max_bytes)
        return body

    async def _rest(self, exchange: Exchange, first: bytes, max_bytes: int) -> bytes:
        client = exchange.scope.get("client")
        address: str = client[0] if client else ""
        parts = [first]
        size = len(first)
        self._count(address, size)
        try:
            self._check(address, size, max_bytes)  # now: the rest may never come
            more = True
            while more:
                event = await exchange.receive()
                part: bytes = event.get("body", b"")
                more = event.get("more_body", False)
                parts.append(part)
                size += len(part)
                self._count(address, len(part))
                self._check(address, size, max_bytes)
        finally:
            self._count(address, -size)
            if not self._of_address[address]:
                del self._of_address[address]
        return b"".join(parts)

    def _count(self, address: str, size: int) -> None:
        self.pending_bytes += size
        self._of_address[address] += size

    def _check(self, address: str, size: int, max_bytes: int) -> None:
        if size > max_bytes:
            raise _too_large(f"the body is more than {max_bytes} bytes", max_bytes)
        if self.pending_bytes > self._max_total_bytes:
            raise FencelogError(
                ErrorCode.OVERLOADED,
                f"request bodies of {self.pending_bytes} bytes are being received",
            )
        if self._of_address[address] > self._max_of_address:
            raise FencelogError(
                ErrorCode.OVERLOADED,
                f"request bodies of {self._of_address[address]} bytes come from the same address",
            )


def _too_large(what: str, limit: int) -> FencelogError:
    return FencelogError(
        ErrorCode.PAYLOAD_TOO_LARGE, f"{what}, at most {limit} are taken", limit=limit
    )
