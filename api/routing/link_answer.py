"""The answers to what went over a link, as the asking broker receives them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from fencelog.api.http.asgi import READING
from fencelog.api.routing.link_core import Outcome, Window
from fencelog.api.routing.link_frames import (
    AnswerHead,
    Headers,
    LinkFlag,
    decode_answer_head,
    decode_appended,
)
from fencelog.broker.append.conditions import AppendFuture
from fencelog.broker.limits import LINK_WINDOW_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError, code_from_wire
from fencelog.ledgers.rpc.wire import Frame


class Unanswered(Exception):
    """The end of a request without an answer, or without the rest of it; ``outcome`` says what is
    known of the request."""

    def __init__(self, outcome: Outcome, why: str) -> None:
        super().__init__(why)
        self.outcome = outcome


class AppendAnswer:
    """The answer to an append, in a future that gets FencelogErrors, and is then taken out of
    those ``in_flight``. Implements ``Awaited``."""

    __slots__ = ("_future", "_in_flight", "_url")

    def __init__(self, url: str, future: AppendFuture, in_flight: dict[AppendFuture, None]) -> None:
        self._url = url
        self._future = future
        self._in_flight = in_flight

    def answered(self, frame: Frame) -> bool:
        answer = decode_appended(frame, self._url)
        self._in_flight.pop(self._future, None)
        if not self._future.done():
            if isinstance(answer, FencelogError):
                self._future.set_exception(answer)
            else:
                self._future.set_result(answer)
        return True

    def failed(self, outcome: Outcome, why: str) -> None:
        self._in_flight.pop(self._future, None)
        if not self._future.done():
            self._future.set_exception(unanswered("POST", self._url, Unanswered(outcome, why)))


class OwnerUnreachable(FencelogError):
    """The error of a request to an address that refuses connections; nothing was sent."""

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorCode.NO_OWNER, detail)


def unanswered(method: str, url: str, error: Unanswered) -> FencelogError:
    """Return the error of a request that no answer has come for."""
    match error.outcome:
        case Outcome.REFUSED:
            return OwnerUnreachable(f"{url}: {error}")
        case Outcome.UNSENT:
            return FencelogError(
                ErrorCode.NO_OWNER, f"there is no connection to the owner at {url}: {error}"
            )
        case Outcome.LEAVING:
            return FencelogError(ErrorCode.NOT_OWNER, f"{url}: {error}")
        case Outcome.OVERLOADED:
            return FencelogError(ErrorCode.OVERLOADED, f"the owner at {url}: {error}")
        case Outcome.LOST:
            return lost_answer(method, url, error)


def lost_answer(method: str, url: str, error: Exception) -> FencelogError:
    """Return the error of a request that was sent and not answered: it may have taken effect,
    unless it only reads."""
    why = f"the owner at {url} did not answer: {str(error) or type(error).__name__}"
    if method in READING:
        return FencelogError(ErrorCode.READ_UNKNOWN, why)
    return FencelogError(ErrorCode.APPEND_UNKNOWN, why)


class LinkAnswer:
    """An answer. ``read`` its body to the end, or ``close`` it. Implements ``Awaited``."""

    def __init__(self) -> None:
        self._head: AnswerHead | None = None
        self._parts: deque[bytes] = deque()
        self._window = Window()
        self._untaken = 0
        self._is_whole = False
        self._error: Unanswered | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._give_credit: Callable[[int], None] | None = None
        self._cancel: Callable[[], None] | None = None

    def attach(self, give_credit: Callable[[int], None], cancel: Callable[[], None]) -> None:
        """Take the ways to tell the other end that bytes were taken, and that no more are
        wanted."""
        self._give_credit, self._cancel = give_credit, cancel

    @property
    def status(self) -> int:
        return 0 if self._head is None else self._head.status

    @property
    def headers(self) -> Headers:
        return [] if self._head is None else self._head.headers

    # -- for the asking broker -------------------------------------------------------------------

    async def begin(self) -> None:
        """Return when status and headers are there. Raises Unanswered."""
        while self._head is None:
            if self._error is not None:
                raise self._error
            await self._wait()

    async def read(self) -> bytes:
        """Return the next part of the body, b"" after the last one. Raises Unanswered."""
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self._is_whole:
                return b""
            await self._wait()
        part = self._parts.popleft()
        self._untaken += len(part)
        if self._untaken * 2 >= LINK_WINDOW_BYTES and not self._is_over:
            self._window.give(self._untaken)
            if self._give_credit is not None:
                self._give_credit(self._untaken)
            self._untaken = 0
        return part

    async def whole(self) -> bytes:
        """Return all of the body that is still to be read. Raises Unanswered."""
        parts = []
        while part := await self.read():
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        """Cancel the answer, which its reader gives up, if it is not over."""
        if not self._is_over and self._cancel is not None:
            self._cancel()

    # -- for the link ----------------------------------------------------------------------------

    def answered(self, frame: Frame) -> bool:
        is_last = bool(frame.flags & LinkFlag.END)
        if frame.status:
            self._refused(frame, is_last)
        elif frame.flags & LinkFlag.HEAD:
            if self._head is not None or is_last:
                raise ProtocolError("an answer with two heads, or nothing else")
            self._head = decode_answer_head(frame.body)
        elif self._head is None:
            raise ProtocolError("an answer without a head")
        else:
            self._window.take(len(frame.body))
            if frame.body:
                self._parts.append(frame.body)
            self._is_whole = is_last
        self._wake()
        return is_last

    def failed(self, outcome: Outcome, why: str) -> None:
        self._error = Unanswered(outcome, why)
        self._wake()

    def _refused(self, frame: Frame, is_last: bool) -> None:
        """The owner did not begin, or not end."""
        code = code_from_wire(frame.status)
        detail = frame.body.decode("utf-8", "replace")
        if not is_last:
            raise ProtocolError("an answer that goes on after its error")
        never_begun = code is ErrorCode.OVERLOADED and self._head is None
        self._error = Unanswered(Outcome.OVERLOADED if never_begun else Outcome.LOST, detail)

    @property
    def _is_over(self) -> bool:
        return self._is_whole or self._error is not None

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
