"""A bookie in the same process as its client: no socket, no copy."""

from __future__ import annotations

from fencelog.bookie.bookie import Bookie
from fencelog.ledgers.bookie_port import AddCallback, ReadReply


class LocalBookieClient:
    """Implements ``ledgers.bookie_port.BookieClient`` by calling a bookie directly."""

    def __init__(self, bookie: Bookie) -> None:
        self._bookie = bookie

    @property
    def bookie_id(self) -> str:
        return self._bookie.bookie_id

    def add(self, run: bytes, *, recovery: bool, on_reply: AddCallback) -> None:
        self._bookie.add(run, recovery=recovery, on_reply=on_reply)

    async def read(
        self,
        ledger_id: int,
        first_entry_id: int,
        *,
        max_entries: int,
        max_bytes: int,
        fence: bool = False,
    ) -> ReadReply:
        return await self._bookie.read(
            ledger_id, first_entry_id, max_entries=max_entries, max_bytes=max_bytes, fence=fence
        )

    async def read_lac(self, ledger_id: int, *, fence: bool = False) -> int:
        return await self._bookie.read_lac(ledger_id, fence=fence)

    async def close(self) -> None:
        """The bookie stays open: it belongs to whoever opened it."""
