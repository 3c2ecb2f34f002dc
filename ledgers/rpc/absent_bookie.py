"""The stand-in that a directory returns for a bookie that it does not know."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Range
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.format.run import Buffer, Run
from fencelog.ledgers.rpc.bookie_port import (
    NO_LAC,
    AddCallback,
    AddsCallback,
    AddToken,
    FenceAnswer,
    LedgerLac,
    ReadReply,
)


class AbsentBookie:
    """A client whose every request is refused unsent, with ``reason``. Implements
    ``BookieClient``."""

    def __init__(self, bookie_id: str, reason: str = "is not registered") -> None:
        self.bookie_id = bookie_id
        self._reason = reason

    def add(
        self, run: bytes, *, recovery: bool, incarnation: str | None, on_reply: AddCallback
    ) -> None:
        asyncio.get_running_loop().call_soon(on_reply, self._refusal())

    def add_many(
        self,
        runs: Sequence[Run],
        tokens: Sequence[AddToken],
        *,
        incarnation: str | None,
        on_replies: AddsCallback,
    ) -> None:
        asyncio.get_running_loop().call_soon(on_replies, tokens, self._refusal())

    def write_lacs(
        self,
        lacs: Sequence[LedgerLac],
        tokens: Sequence[AddToken],
        *,
        incarnation: str | None,
        on_replies: AddsCallback,
    ) -> None:
        asyncio.get_running_loop().call_soon(on_replies, tokens, self._refusal())

    async def read(
        self,
        ledger_id: int,
        first_entry_id: int,
        *,
        max_entries: int,
        max_bytes: int,
        fence: bool = False,
    ) -> ReadReply:
        raise self._refusal()

    async def read_ranges(
        self, ledger_id: int, ranges: Sequence[Range], *, max_bytes: int
    ) -> Sequence[Buffer]:
        raise self._refusal()

    async def read_lac(
        self, ledger_id: int, *, fence: bool = False, above: int = NO_LAC, wait_ms: int = 0
    ) -> int:
        raise self._refusal()

    def fence_and_read(self, ledger_id: int, above: int) -> asyncio.Future[FenceAnswer]:
        refused: asyncio.Future[FenceAnswer] = asyncio.get_running_loop().create_future()
        refused.set_exception(self._refusal())
        return refused

    async def list_entries(
        self, ledger_id: int, from_entry: int = 0, *, incarnation: str | None = None
    ) -> EntryList:
        raise self._refusal()

    async def admin(self, request: Mapping[str, Any]) -> dict[str, Any]:
        raise self._refusal()

    async def close(self) -> None:
        """Close nothing: no connection is open."""

    def _refusal(self) -> FencelogError:
        return FencelogError(
            ErrorCode.BOOKIE_UNAVAILABLE, f"bookie {self.bookie_id} {self._reason}"
        )
