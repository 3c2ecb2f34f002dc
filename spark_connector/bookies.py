"""The bookies that a task was told of at planning. Executors know no metadata store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fencelog.ledgers.bookie_client import TcpBookieClient
from fencelog.ledgers.bookie_port import AddCallback, BookieClient, ReadReply
from fencelog.ledgers.errors import ErrorCode, FencelogError


class BookieTable:
    """Implements ``BookieDirectory`` over fixed addresses (``host:port``)."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._addresses = dict(addresses)
        self._clients: dict[str, BookieClient] = {}

    def client(self, bookie_id: str) -> BookieClient:
        client = self._clients.get(bookie_id)
        if client is None:
            address = self._addresses.get(bookie_id)
            client = TcpBookieClient(bookie_id, address) if address else _AbsentBookie(bookie_id)
            self._clients[bookie_id] = client
        return client

    def available(self) -> list[str]:
        return sorted(self._addresses)

    async def close(self) -> None:
        """Close every connection."""
        await asyncio.gather(*(client.close() for client in self._clients.values()))


class _AbsentBookie:
    """A bookie that was not registered when the query was planned."""

    def __init__(self, bookie_id: str) -> None:
        self.bookie_id = bookie_id

    def add(self, run: bytes, *, recovery: bool, on_reply: AddCallback) -> None:
        asyncio.get_running_loop().call_soon(on_reply, self._error())

    async def read(
        self,
        ledger_id: int,
        first_entry_id: int,
        *,
        max_entries: int,
        max_bytes: int,
        fence: bool = False,
    ) -> ReadReply:
        raise self._error()

    async def read_lac(self, ledger_id: int, *, fence: bool = False) -> int:
        raise self._error()

    async def close(self) -> None:
        """Nothing is open."""

    def _error(self) -> FencelogError:
        return FencelogError(
            ErrorCode.BOOKIE_UNAVAILABLE,
            f"bookie {self.bookie_id} was not registered when the query was planned",
        )
