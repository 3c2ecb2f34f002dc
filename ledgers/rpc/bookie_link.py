"""The link from a client to one bookie: one connection at a time, pipelined requests, one timer.

Requests leave in the order of the calls. A request whose bytes were never passed to the network
fails with BOOKIE_UNAVAILABLE (nothing happened); one that was sent and not answered fails with
REQUEST_TIMEOUT (it may have taken effect). When a request is overdue the connection is dropped as
half-open, so that one silent bookie costs one timeout and not one per request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import NamedTuple

from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.limits import WRITER_MAX_PENDING_BYTES
from fencelog.ledgers.rpc.authentication import Credentials
from fencelog.ledgers.rpc.bookie_connection import BookieConnection, dial
from fencelog.ledgers.rpc.handshake import FEATURE_OF
from fencelog.ledgers.rpc.wire import Flag, Frame, Op, PlacedFrame, is_reply_to, request_header

Reply = Callable[[Frame | PlacedFrame | FencelogError], None]

RECONNECT_DELAY_S = 0.2
"""The time after a failed attempt for which requests are refused at once instead of dialling
again."""


class _Gathering(NamedTuple):
    """The way in which requests of a kind are sent together, because a system call costs more than
    a request: from so many in flight on, each waits so long for others."""

    in_flight: int
    wait_s: float


_OF_READS = _Gathering(16, 0.001)
_OF_RECOVERIES = _Gathering(4, 0.005)
"""The gathering of requests that also wait for the bookie's sync: a broker that takes over the
partitions of another one has thousands of recoveries to make."""

_READS = frozenset({Op.READ, Op.READ_LAC})
_RECOVERY_FLAGS = frozenset({Flag.RECOVERY, Flag.FENCE})

_MORE = int(Flag.MORE)  # with a plain number, ``&`` makes no Flag of the result

_FOR_OPERATORS = frozenset({ErrorCode.UNAUTHORIZED, ErrorCode.UNSUPPORTED_VERSION})


@dataclass(slots=True)
class _Request:
    op: Op
    reply: Reply
    deadline: float
    gathering: _Gathering | None
    """The way in which it waits for others to be sent with it; None: it does not."""
    incarnation: str | None
    """The only incarnation that may receive it, or None."""


class BookieLink:
    """A link that connects at the first request and again after a loss."""

    def __init__(
        self, bookie_id: str, address: str, *, timeout_ms: int, credentials: Credentials | None
    ) -> None:
        self.bookie_id = bookie_id
        self._address = address
        self._credentials = credentials
        self._timeout_s = timeout_ms / 1000
        self._outstanding: dict[int, _Request] = {}
        self._polls: dict[int, _Request] = {}
        self._waiting: list[tuple[int, bytes, bytes]] = []
        self._waiting_bytes = 0
        self._to_send: list[bytes] = []
        self._flushing: asyncio.TimerHandle | None = None
        self._last_request_id = 0
        self._connection: BookieConnection | None = None
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._refuse_until = 0.0
        self._refused = self._unavailable("not connected")
        self._closed = False

    @property
    def features(self) -> Set[str]:
        """The features that the bookie shares; none while there is no connection."""
        return frozenset() if self._connection is None else self._connection.features

    async def connect(self) -> None:
        """Connect, if there is no connection, so that the features are known. A failure is left to
        the next request."""
        if self._transport is None and self._refusal(asyncio.get_running_loop().time()) is None:
            await asyncio.wait([self._dialling()])

    def request(
        self,
        op: Op,
        body: bytes,
        flags: int,
        reply: Reply,
        incarnation: str | None = None,
        wait_s: float = 0.0,
    ) -> None:
        """Send a request, now or once connected, and call ``reply`` once, later: with the frame
        that answers it, or the error that explains its absence; for each frame flagged MORE once
        before. ``wait_s``: how long the bookie may take on purpose."""
        loop = asyncio.get_running_loop()
        refusal = self._refusal(loop.time()) or self._unfit(op, incarnation)
        if refusal is not None:
            loop.call_soon(reply, refusal)
            return
        self._last_request_id = request_id = (self._last_request_id + 1) & 0xFFFFFFFF
        header = request_header(op, request_id, len(body), flags)
        deadline = loop.time() + self._timeout_s
        request = _Request(op, reply, deadline + wait_s, _gathering(op, flags), incarnation)
        (self._polls if wait_s else self._outstanding)[request_id] = request
        if self._timer is None:
            self._timer = loop.call_at(deadline, self._check_deadlines)
        if self._transport is not None:
            self._send(request, header, body)
            return
        self._waiting.append((request_id, header, body))
        self._waiting_bytes += len(body)
        self._dialling()

    def _refusal(self, now: float) -> FencelogError | None:
        """Return the reason why a request cannot even be sent now, which makes it certain that
        nothing happened."""
        transport = self._transport
        if self._closed or (transport is None and now < self._refuse_until):
            return self._refused
        unsent = self._waiting_bytes if transport is None else transport.get_write_buffer_size()
        if unsent > WRITER_MAX_PENDING_BYTES:
            return FencelogError(
                ErrorCode.OVERLOADED, f"bookie {self.bookie_id} does not keep up with its writer"
            )
        return None

    def _unfit(self, op: Op, incarnation: str | None) -> FencelogError | None:
        """Return the reason why a request is not meant for the bookie at the other end. A bookie
        has one incarnation as long as its process lives, so the contents of its HELLO hold for the
        connection."""
        connection = self._connection
        if connection is None:
            return None
        if incarnation not in (None, connection.incarnation):
            return FencelogError(
                ErrorCode.WRONG_INCARNATION,
                f"bookie {self.bookie_id} is incarnation {connection.incarnation}, the ledger's "
                f"member was {incarnation or 'not known'}",
            )
        feature = FEATURE_OF.get(op)
        if feature is not None and feature not in connection.features:
            return FencelogError(
                ErrorCode.UNSUPPORTED_VERSION, f"bookie {self.bookie_id} lacks {feature}"
            )
        return None

    async def close(self) -> None:
        """Drop the connection; requests in flight fail as lost."""
        self._closed = True
        self._refused = self._unavailable("the client was closed")
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        self._lost("the client was closed")

    # -- replies ---------------------------------------------------------------------------------

    def _on_frame(self, frame: Frame | PlacedFrame) -> None:
        table, request_id = self._outstanding, frame.request_id
        if request_id not in table:
            table = self._polls
        request = table.get(request_id)
        if request is None or self._transport is None or not is_reply_to(request.op, frame):
            raise ProtocolError(f"unexpected frame from bookie {self.bookie_id}")
        if not frame.flags & _MORE:
            del table[request_id]
        request.reply(frame)

    def _check_deadlines(self) -> None:
        """Fail overdue requests. Requests without a wait all have the same timeout, so the oldest
        is the first to be overdue; those with a wait are few. The next check is at most one timeout
        away: no request that is made before it can be overdue before it."""
        loop = asyncio.get_running_loop()
        self._timer = None
        deadlines = [poll.deadline for poll in self._polls.values()]
        if self._outstanding:
            deadlines.append(next(iter(self._outstanding.values())).deadline)
        if not deadlines:
            return
        now, earliest = loop.time(), min(deadlines)
        if earliest <= now:
            self._lost(f"no answer for {self._timeout_s:g} s")
        else:
            self._timer = loop.call_at(min(earliest, now + self._timeout_s), self._check_deadlines)

    # -- connection ------------------------------------------------------------------------------

    def _dialling(self) -> asyncio.Task[None]:
        """Return the attempt to connect, which begins unless there is one."""
        if self._connecting is None:
            loop = asyncio.get_running_loop()
            self._connecting = loop.create_task(self._connect(), name=f"dial {self.bookie_id}")
        return self._connecting

    async def _connect(self) -> None:
        try:
            connection = await dial(
                self.bookie_id,
                self._address,
                self._credentials,
                on_frame=self._on_frame,
                on_lost=self._on_lost,
            )
        except Exception as error:  # any error that an address may cause; nothing was sent
            self._refuse_until = asyncio.get_running_loop().time() + RECONNECT_DELAY_S
            self._refused = self._not_connected(error)
            self._lost(f"cannot connect to {self._address}")
            return
        finally:
            self._connecting = None
        self._connection, self._transport = connection, connection.transport
        for request_id, header, body in self._take_waiting():
            table = self._outstanding if request_id in self._outstanding else self._polls
            request = table.get(request_id)
            if request is None or self._transport is None:
                continue
            if (unfit := self._unfit(request.op, request.incarnation)) is not None:
                del table[request_id]
                request.reply(unfit)
            else:
                self._send(request, header, body)

    def _send(self, request: _Request, header: bytes, body: bytes) -> None:
        """Send a request; one that may wait, when many requests are in flight, together with those
        that follow soon."""
        self._to_send += (header, body)
        gathering = request.gathering
        if gathering is None or len(self._outstanding) < gathering.in_flight:
            self._flush()
        elif self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_later(gathering.wait_s, self._flush)

    def _flush(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        to_send, self._to_send = self._to_send, []
        if to_send and self._transport is not None:
            self._transport.writelines(to_send)

    def _take_waiting(self) -> list[tuple[int, bytes, bytes]]:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return waiting

    def _on_lost(self, connection: BookieConnection, reason: str) -> None:
        if connection is self._connection:
            self._lost(reason)

    def _lost(self, reason: str) -> None:
        """Answer all requests in flight after the loss of the connection, each with what is
        known."""
        connection, self._connection, self._transport = self._connection, None, None
        self._to_send = []
        if connection is not None:
            connection.abort()
        outstanding = self._outstanding | self._polls
        self._outstanding, self._polls = {}, {}
        unsent = {request_id for request_id, _, _ in self._take_waiting()}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        sent_error = FencelogError(
            ErrorCode.REQUEST_TIMEOUT, f"bookie {self.bookie_id} did not answer: {reason}"
        )
        for request_id, request in outstanding.items():
            request.reply(self._refused if request_id in unsent else sent_error)

    def _not_connected(self, error: Exception) -> FencelogError:
        """Return the reason why requests cannot be sent. A refusal that only an operator can lift
        is returned unchanged."""
        if isinstance(error, FencelogError) and error.code in _FOR_OPERATORS:
            return error
        return self._unavailable(f"cannot connect to {self._address}: {error}")

    def _unavailable(self, reason: str) -> FencelogError:
        return FencelogError(
            ErrorCode.BOOKIE_UNAVAILABLE, f"bookie {self.bookie_id} is not there: {reason}"
        )


def _gathering(op: Op, flags: int) -> _Gathering | None:
    if flags in _RECOVERY_FLAGS:
        return _OF_RECOVERIES
    return _OF_READS if op in _READS else None
