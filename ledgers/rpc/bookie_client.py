"""The client of a bookie over TCP: its requests and answers as bytes, sent by
``rpc/bookie_link.py``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError, copy_of
from fencelog.ledgers.format.availability import Range
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.format.run import Buffer, Run
from fencelog.ledgers.limits import (
    ADMIN_WAIT_MS,
    BOOKIE_TIMEOUT_MS,
    MAX_FENCES_AT_ONCE,
    MAX_LACS_AT_ONCE,
)
from fencelog.ledgers.rpc.adds import PendingAdds, encode_adds, split_adds
from fencelog.ledgers.rpc.authentication import Credentials
from fencelog.ledgers.rpc.bookie_link import BookieLink, Reply
from fencelog.ledgers.rpc.bookie_port import (
    NO_LAC,
    AddCallback,
    AddsCallback,
    AddToken,
    FenceAnswer,
    LedgerLac,
    ReadReply,
    SingleAdds,
)
from fencelog.ledgers.rpc.fences import decode_answers, encode_fences
from fencelog.ledgers.rpc.handshake import CONTEXTS, FEATURE_OF, error_of
from fencelog.ledgers.rpc.lacs import decode_refusals, encode_lacs
from fencelog.ledgers.rpc.ranges import decode_runs, encode_ranges
from fencelog.ledgers.rpc.wire import (
    LAC_BODY,
    LIST_ENTRIES_BODY,
    READ_BODY,
    READ_LAC_BODY,
    Flag,
    Frame,
    Op,
    PlacedFrame,
    decode_object,
    encode_object,
    with_contexts,
)

_GATHERED_FROM = 4
"""The ledgers being fenced from which on further ones wait ``_GATHER_S`` for each other: a broker
that takes over the partitions of another one has thousands."""

_GATHER_S = 0.005

_MORE = int(Flag.MORE)  # with a plain number, ``&`` makes no Flag of the result
_PLACES = int(Flag.PLACES)

_Fencing = tuple[int, int, "asyncio.Future[FenceAnswer]"]
"""A ledger to be fenced, ``above``, and the future of the answer."""


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
        self._to_fence: list[_Fencing] = []
        self._fencing = 0
        """The ledgers whose fence is not answered yet."""
        self._gathering: asyncio.Handle | None = None

    @property
    def bookie_id(self) -> str:
        return self._link.bookie_id

    def add(
        self, run: bytes, *, recovery: bool, incarnation: str | None, on_reply: AddCallback
    ) -> None:
        flags = Flag.RECOVERY if recovery else Flag.NONE
        self._link.request(Op.ADD, run, flags, self._reporting(on_reply), incarnation)

    def add_many(
        self,
        runs: Sequence[Run],
        tokens: Sequence[AddToken],
        *,
        incarnation: str | None,
        on_replies: AddsCallback,
    ) -> None:
        link = self._link
        if FEATURE_OF[Op.ADD_MANY] not in link.features:
            for run, token in zip(runs, tokens, strict=True):
                self._add_run(run, token, incarnation, on_replies)
            return
        for begin, end in split_adds(runs):
            if end - begin == 1:
                self._add_run(runs[begin], tokens[begin], incarnation, on_replies)
                continue
            these = runs[begin:end]
            follow = CONTEXTS in link.features and any(run.contexts for run in these)
            flags = Flag.CONTEXTS if follow else Flag.NONE
            pending = PendingAdds(tokens[begin:end], on_replies, self.bookie_id)
            body, reply = encode_adds(these, contexts=follow), partial(self._on_added, pending)
            link.request(Op.ADD_MANY, body, flags, reply, incarnation)

    def _add_run(
        self, run: Run, token: AddToken, incarnation: str | None, on_replies: AddsCallback
    ) -> None:
        body, flags = run.data, Flag.NONE
        if run.contexts and CONTEXTS in self._link.features:
            body, flags = with_contexts(run.contexts, body), Flag.CONTEXTS
        reply = self._reporting(partial(on_replies, (token,)))
        self._link.request(Op.ADD, body, flags, reply, incarnation)

    def _on_added(self, pending: PendingAdds, reply: Frame | PlacedFrame | FencelogError) -> None:
        error = self._error_of(reply)
        if error is not None:
            pending.fail(error)
        elif not isinstance(reply, FencelogError):
            pending.take(reply.body, is_last=not reply.flags & _MORE)

    def write_lacs(
        self,
        lacs: Sequence[LedgerLac],
        tokens: Sequence[AddToken],
        *,
        incarnation: str | None,
        on_replies: AddsCallback,
    ) -> None:
        link = self._link
        if len(lacs) == 1 or FEATURE_OF[Op.WRITE_LACS] not in link.features:
            for lac, token in zip(lacs, tokens, strict=True):
                reply = self._reporting(partial(on_replies, (token,)))
                link.request(Op.WRITE_LAC, encode_lacs([lac]), Flag.NONE, reply, incarnation)
            return
        for start in range(0, len(lacs), MAX_LACS_AT_ONCE):
            body = encode_lacs(lacs[start : start + MAX_LACS_AT_ONCE])
            these = tokens[start : start + MAX_LACS_AT_ONCE]
            reply = partial(self._on_lacs_written, these, on_replies)
            link.request(Op.WRITE_LACS, body, Flag.NONE, reply, incarnation)

    def _on_lacs_written(
        self,
        tokens: Sequence[AddToken],
        on_replies: AddsCallback,
        reply: Frame | PlacedFrame | FencelogError,
    ) -> None:
        error, refusals = self._error_of(reply), dict[int, FencelogError]()
        if error is None and not isinstance(reply, FencelogError):
            try:
                refusals = decode_refusals(reply.body, len(tokens), self.bookie_id)
            except ProtocolError as wrong:  # any of them may have been stored
                detail = f"bookie {self.bookie_id}: {wrong.detail}"
                error = FencelogError(ErrorCode.INTERNAL, detail)
        for place, refusal in refusals.items():
            on_replies((tokens[place],), refusal)
        if rest := [token for place, token in enumerate(tokens) if place not in refusals]:
            on_replies(rest, error)

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
        return self._entries_of(answer)

    def _entries_of(self, answer: Frame | PlacedFrame) -> ReadReply:
        """Return the entries in a reply to READ. Raises CORRUPT: it has none."""
        if answer.flags & _PLACES:
            raise self._corrupt("places in a reply to a read that asked for none")
        (lac,) = LAC_BODY.unpack_from(answer.body)
        return ReadReply(lac, answer.body[LAC_BODY.size :])

    async def read_ranges(
        self, ledger_id: int, ranges: Sequence[Range], *, max_bytes: int
    ) -> Sequence[Buffer]:
        body = encode_ranges(ledger_id, ranges, max_bytes=max_bytes)
        answer = await self._ask(Op.READ_RANGES, body)
        try:
            return decode_runs(answer.body)
        except ProtocolError as error:
            raise self._corrupt(error.detail, ledger_id) from error

    async def read_lac(
        self, ledger_id: int, *, fence: bool = False, above: int = NO_LAC, wait_ms: int = 0
    ) -> int:
        body = READ_LAC_BODY.pack(ledger_id, above, wait_ms, 0)
        answer = await self._ask(Op.READ_LAC, body, fence=fence, wait_s=wait_ms / 1000)
        (lac,) = LAC_BODY.unpack(answer.body)
        return int(lac)

    def fence_and_read(self, ledger_id: int, above: int) -> asyncio.Future[FenceAnswer]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[FenceAnswer] = loop.create_future()
        self._to_fence.append((ledger_id, above, answer))
        if len(self._to_fence) == MAX_FENCES_AT_ONCE:
            self._send_fences()
        elif self._gathering is None and self._fencing >= _GATHERED_FROM:
            self._gathering = loop.call_later(_GATHER_S, self._send_fences)
        elif self._gathering is None:
            self._gathering = loop.call_soon(self._send_fences)
        return answer

    def _send_fences(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        fencing, self._to_fence = self._to_fence, []
        if fencing:
            self._fencing += len(fencing)
            body = encode_fences((ledger_id, above) for ledger_id, above, _ in fencing)
            self._link.request(Op.FENCE, body, Flag.NONE, partial(self._on_fenced, fencing))

    def _on_fenced(
        self, fencing: Sequence[_Fencing], reply: Frame | PlacedFrame | FencelogError
    ) -> None:
        self._fencing -= len(fencing)
        answers = self._fence_answers(reply, len(fencing))
        for (ledger_id, _, future), answer in zip(fencing, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, FenceAnswer):
                future.set_result(answer)
            elif answer.code is ErrorCode.UNSUPPORTED_VERSION:
                self._fence_alone(ledger_id, future)
            else:
                future.set_exception(answer)

    def _fence_answers(
        self, reply: Frame | PlacedFrame | FencelogError, count: int
    ) -> Sequence[FenceAnswer | FencelogError]:
        error = self._error_of(reply)
        if not isinstance(reply, FencelogError) and error is None:
            try:
                return decode_answers(reply.body, count, self.bookie_id)
            except ProtocolError as wrong:
                detail = f"bookie {self.bookie_id}: {wrong.detail}"
                error = FencelogError(ErrorCode.CORRUPT, detail)
        assert error is not None
        return [copy_of(error) for _ in range(count)]

    def _fence_alone(self, ledger_id: int, future: asyncio.Future[FenceAnswer]) -> None:
        """Fence a ledger at a bookie that does not know FENCE."""

        def reply(answer: Frame | PlacedFrame | FencelogError) -> None:
            if future.done():
                return
            if (error := self._error_of(answer)) is not None:
                future.set_exception(error)
            elif not isinstance(answer, FencelogError):
                future.set_result(FenceAnswer(*LAC_BODY.unpack(answer.body)))

        body = READ_LAC_BODY.pack(ledger_id, NO_LAC, 0, 0)
        self._link.request(Op.READ_LAC, body, Flag.FENCE, reply)

    async def list_entries(
        self, ledger_id: int, from_entry: int = 0, *, incarnation: str | None = None
    ) -> EntryList:
        body = LIST_ENTRIES_BODY.pack(ledger_id, from_entry)
        answer = await self._ask(Op.LIST_ENTRIES, body, incarnation=incarnation)
        try:
            return EntryList.decode(bytes(answer.body), from_entry)
        except ProtocolError as error:
            raise self._corrupt(error.detail, ledger_id) from error

    def _corrupt(self, what: str, ledger_id: int | None = None) -> FencelogError:
        of_ledger = "" if ledger_id is None else f", ledger {ledger_id}"
        return FencelogError(ErrorCode.CORRUPT, f"bookie {self.bookie_id}{of_ledger}: {what}")

    async def admin(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            body = encode_object(request)
        except ValueError as error:
            raise FencelogError(ErrorCode.BAD_REQUEST, f"no request: {error}") from error
        answer = await self._ask(Op.ADMIN, body, wait_s=ADMIN_WAIT_MS / 1000)
        try:
            return decode_object(bytes(answer.body))
        except ProtocolError as error:  # it was carried out, in part, or not at all
            raise FencelogError(
                ErrorCode.INTERNAL, f"bookie {self.bookie_id}: {error.detail}"
            ) from error

    async def close(self) -> None:
        """Drop the connection; requests in flight fail as lost."""
        self._send_fences()
        await self._link.close()

    async def _ask(
        self,
        op: Op,
        body: bytes,
        *,
        flags: Flag = Flag.NONE,
        fence: bool = False,
        incarnation: str | None = None,
        wait_s: float = 0.0,
    ) -> Frame | PlacedFrame:
        future: asyncio.Future[Frame | PlacedFrame] = asyncio.get_running_loop().create_future()

        def reply(answer: Frame | PlacedFrame | FencelogError) -> None:
            if future.done():
                return
            error = self._error_of(answer)
            if error is not None:
                future.set_exception(error)
            elif not isinstance(answer, FencelogError):
                future.set_result(answer)

        flags |= Flag.FENCE if fence else Flag.NONE
        self._link.request(op, body, flags, reply, incarnation, wait_s)
        return await future

    def _error_of(self, answer: Frame | PlacedFrame | FencelogError) -> FencelogError | None:
        if isinstance(answer, FencelogError):
            return answer
        return error_of(answer, self.bookie_id) if isinstance(answer, Frame) else None
