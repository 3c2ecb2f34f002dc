"""The client of a bookie over TCP: its requests and answers as bytes, sent by
``rpc/bookie_link.py``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.format.run import Buffer
from fencelog.ledgers.limits import ADMIN_WAIT_MS, BOOKIE_TIMEOUT_MS
from fencelog.ledgers.rpc.authentication import Credentials
from fencelog.ledgers.rpc.bookie_link import BookieLink, Reply
from fencelog.ledgers.rpc.bookie_port import (
    NO_LAC,
    AddCallback,
    ReadReply,
    SingleAdds,
)
from fencelog.ledgers.rpc.handshake import error_of
from fencelog.ledgers.rpc.wire import (
    LAC_BODY,
    LIST_ENTRIES_BODY,
    READ_BODY,
    READ_LAC_BODY,
    WRITE_LAC_BODY,
    Flag,
    Frame,
    Op,
    PlacedFrame,
    decode_object,
    encode_object,
)


class TcpBookieClient(SingleAdds):
    """A client that connects at the first request and again after a loss. Implements
    ``BookieClient``."""

    def __init__(
        self,
        bookie_id: str,
        address: str,
        *,
        timeout_ms: int = BOOKIE_TIMEOUT_MS,
        credentials: Credentials | None = None,
    ) -> None:
        self._link = BookieLink(bookie_id, address, timeout_ms=timeout_ms, credentials=credentials)

    @property
    def bookie_id(self) -> str:
        return self._link.bookie_id

    def add(
        self, run: bytes, *, recovery: bool, incarnation: str | None, on_reply: AddCallback
    ) -> None:
        flags = Flag.RECOVERY if recovery else Flag.NONE
        self._link.request(Op.ADD, run, flags, self._reporting(on_reply), incarnation)

    def write_lac(
        self, ledger_id: int, lac: int, *, incarnation: str | None, on_reply: AddCallback
    ) -> None:
        body = WRITE_LAC_BODY.pack(ledger_id, lac)
        self._link.request(Op.WRITE_LAC, body, Flag.NONE, self._reporting(on_reply), incarnation)

    def _reporting(self, on_reply: AddCallback) -> Reply:
        def reply(answer: Frame | PlacedFrame | FencelogError) -> None:
            on_reply(self._error_of(answer))

        return reply

    async def read(
        self,
        ledger_id: int,
        first_entry_id: int,
        *,
        max_entries: int,
        max_bytes: int,
        fence: bool = False,
    ) -> ReadReply:
        body = READ_BODY.pack(ledger_id, first_entry_id, max_entries, max_bytes)
        answer = await self._ask(Op.READ, body, fence=fence)
        (lac,) = LAC_BODY.unpack_from(answer)
        return ReadReply(lac, answer[LAC_BODY.size :])

    async def read_lac(
        self, ledger_id: int, *, fence: bool = False, above: int = NO_LAC, wait_ms: int = 0
    ) -> int:
        body = READ_LAC_BODY.pack(ledger_id, above, wait_ms, 0)
        answer = await self._ask(Op.READ_LAC, body, fence=fence, wait_s=wait_ms / 1000)
        (lac,) = LAC_BODY.unpack(answer)
        return int(lac)

    async def list_entries(
        self, ledger_id: int, from_entry: int = 0, *, incarnation: str | None = None
    ) -> EntryList:
        body = LIST_ENTRIES_BODY.pack(ledger_id, from_entry)
        answer = await self._ask(Op.LIST_ENTRIES, body, incarnation=incarnation)
        try:
            return EntryList.decode(bytes(answer), from_entry)
        except ProtocolError as error:
            raise FencelogError(
                ErrorCode.CORRUPT, f"bookie {self.bookie_id}, ledger {ledger_id}: {error.detail}"
            ) from error

    async def admin(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            body = encode_object(request)
        except ValueError as error:
            raise FencelogError(ErrorCode.BAD_REQUEST, f"no request: {error}") from error
        answer = await self._ask(Op.ADMIN, body, wait_s=ADMIN_WAIT_MS / 1000)
        try:
            return decode_object(bytes(answer))
        except ProtocolError as error:  # it was carried out, in part, or not at all
            raise FencelogError(
                ErrorCode.INTERNAL, f"bookie {self.bookie_id}: {error.detail}"
            ) from error

    async def close(self) -> None:
        """Drop the connection; requests in flight fail as lost."""
        await self._link.close()

    async def _ask(
        self,
        op: Op,
        body: bytes,
        *,
        fence: bool = False,
        incarnation: str | None = None,
        wait_s: float = 0.0,
    ) -> Buffer:
        future: asyncio.Future[Buffer] = asyncio.get_running_loop().create_future()

        def reply(answer: Frame | PlacedFrame | FencelogError) -> None:
            if future.done():
                return
            error = self._error_of(answer)
            if error is not None:
                future.set_exception(error)
            elif not isinstance(answer, FencelogError):
                future.set_result(answer.body)

        flags = Flag.FENCE if fence else Flag.NONE
        self._link.request(op, body, flags, reply, incarnation, wait_s)
        return await future

    def _error_of(self, answer: Frame | PlacedFrame | FencelogError) -> FencelogError | None:
        if isinstance(answer, FencelogError):
            return answer
        return error_of(answer, self.bookie_id) if isinstance(answer, Frame) else None
