"""A bookie in the same process as its client: no socket, no copy."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from fencelog.bookie.engine.admin import administer
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.server.followed_adds import followed
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


class LocalBookieClient:
    """An implementation of ``ledgers.bookie_port.BookieClient`` that calls a bookie directly."""

    def __init__(self, bookie: Bookie) -> None:
        self._bookie = bookie

    @property
    def bookie_id(self) -> str:
        return self._bookie.bookie_id

    @property
    def incarnation(self) -> str:
        return self._bookie.incarnation

    def add(
        self, run: bytes, *, recovery: bool, incarnation: str | None, on_reply: AddCallback
    ) -> None:
        if (stranger := self._stranger(incarnation)) is None:
            self._bookie.add(run, recovery=recovery, on_reply=on_reply)
        else:
            asyncio.get_running_loop().call_soon(on_reply, stranger)

    def add_many(
        self,
        runs: Sequence[Run],
        tokens: Sequence[AddToken],
        *,
        incarnation: str | None,
        on_replies: AddsCallback,
    ) -> None:
        if (stranger := self._stranger(incarnation)) is None:
            tokens, on_replies = followed(self._bookie, runs, tokens, on_replies)
            self._bookie.add_many(runs, tokens, on_replies=on_replies)
        else:
            asyncio.get_running_loop().call_soon(on_replies, tokens, stranger)

    def write_lacs(
        self,
        lacs: Sequence[LedgerLac],
        tokens: Sequence[AddToken],
        *,
        incarnation: str | None,
        on_replies: AddsCallback,
    ) -> None:
        if (stranger := self._stranger(incarnation)) is None:
            self._bookie.write_lacs(lacs, tokens, on_replies=on_replies)
        else:
            asyncio.get_running_loop().call_soon(on_replies, tokens, stranger)

    def _stranger(self, incarnation: str | None) -> FencelogError | None:
        if incarnation in (None, self.incarnation):
            return None
        return FencelogError(
            ErrorCode.WRONG_INCARNATION,
            f"bookie {self.bookie_id} is incarnation {self.incarnation}, the ledger's "
            f"member was {incarnation or 'not known'}",
        )

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

    async def read_ranges(
        self, ledger_id: int, ranges: Sequence[Range], *, max_bytes: int
    ) -> Sequence[Buffer]:
        return await self._bookie.read_ranges(ledger_id, ranges, max_bytes=max_bytes)

    async def read_lac(
        self, ledger_id: int, *, fence: bool = False, above: int = NO_LAC, wait_ms: int = 0
    ) -> int:
        return await self._bookie.read_lac(ledger_id, fence=fence, above=above, wait_ms=wait_ms)

    def fence_and_read(self, ledger_id: int, above: int) -> asyncio.Future[FenceAnswer]:
        return asyncio.get_running_loop().create_task(self._bookie.fence_and_read(ledger_id, above))

    async def list_entries(
        self, ledger_id: int, from_entry: int = 0, *, incarnation: str | None = None
    ) -> EntryList:
        if (stranger := self._stranger(incarnation)) is not None:
            raise stranger
        return await self._bookie.list_entries(ledger_id, from_entry)

    async def admin(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return await administer(self._bookie.admin, request)

    async def close(self) -> None:
        """Do nothing: the bookie stays open, and its owner closes it."""
