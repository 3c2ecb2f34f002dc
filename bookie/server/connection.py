"""One client of a bookie's server: it turns frames into requests to the bookie, and sends answers.

All frames of one ``data_received`` are handled in one pass, in order; adds that follow one another
are one request to the bookie, whatever ledgers they belong to. Adds are answered as the journal
syncs them; reads run concurrently, a limited number at a time, and may overtake.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.server.add_answers import AddAnswers
from fencelog.bookie.server.followed_adds import followed
from fencelog.bookie.server.handshake import ServerHandshake
from fencelog.bookie.server.lac_answers import LacAnswers
from fencelog.bookie.server.read_requests import Answer, read_request_of
from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.format.run import Buffer, Run, read_run, verify_run
from fencelog.ledgers.limits import (
    BOOKIE_CONNECTION_OUT_BYTES,
    CONNECT_TIMEOUT_MS,
    KIB,
    MAX_READ_BYTES,
)
from fencelog.ledgers.rpc.adds import decode_adds
from fencelog.ledgers.rpc.authentication import Authenticator
from fencelog.ledgers.rpc.bookie_connection import as_stream
from fencelog.ledgers.rpc.bookie_port import AddCallback, LedgerLac
from fencelog.ledgers.rpc.handshake import CONTEXTS, FEATURE_OF
from fencelog.ledgers.rpc.lacs import decode_lacs
from fencelog.ledgers.rpc.wire import (
    WRITE_LAC_BODY,
    Flag,
    Frame,
    FrameReader,
    Op,
    encode_error,
    encode_reply,
    reply_header,
    split_contexts,
)

_MAX_READS = BOOKIE_CONNECTION_OUT_BYTES // MAX_READ_BYTES
"""Limit for reads in progress on one connection: as many as the answers that it may have
waiting."""

_LAC_BYTES = 1 * KIB
"""Size for which an explicit LAC counts while it waits for the journal: the memory it takes, not
the length of its message."""

_FLAGS: Mapping[int, int] = {  # numbers: the complement of a Flag has only bits that have names
    Op.ADD: int(Flag.RECOVERY),
    Op.READ: int(Flag.FENCE | Flag.PLACES),
    Op.READ_LAC: int(Flag.FENCE),
    Op.ADD_MANY: int(Flag.CONTEXTS),
}
"""The flags that a request may carry: a flag without meaning here was meant to change something."""


_JOINED_BYTES = 32 * KIB
"""The size up to which answers are joined to be sent: a copy of so much costs less than a list of
many parts."""

_AddToken = tuple[int, int]
"""The request id of an add, and the size of its run."""


class ConnectionOwner(Protocol):
    """The server, as its connections use it."""

    @property
    def bookie(self) -> Bookie: ...

    @property
    def authenticator(self) -> Authenticator | None: ...

    @property
    def is_paused(self) -> bool:
        """Tell whether to stop reading from all connections."""

    def opened(self, connection: Connection) -> bool:
        """Register a connection; return whether one more is allowed."""

    def closed(self, connection: Connection) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work in a task that the server owns."""

    def add_in_flight(self, size: int) -> None:
        """Count bytes of adds and explicit LACs received (or, negative, answered)."""


class Connection(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, server: ConnectionOwner) -> None:
        self._server = server
        self._bookie = server.bookie
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._handshake = ServerHandshake(
            self._bookie.bookie_id,
            self._bookie.incarnation,
            server.authenticator,
            features=self._bookie.features,
        )
        self._handshake_done = self._takes_contexts = False
        self._hello_deadline: asyncio.TimerHandle | None = None
        self._runs: list[Run] = []
        self._tokens: list[_AddToken] = []
        self._out: list[Buffer] = []
        self._reads: deque[tuple[int, int, Answer]] = deque()
        self._reading = 0
        self._long_polls: dict[asyncio.Task[None], None] = {}
        self._slow_peer = False
        self._paused = False

    # -- transport ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = as_stream(transport)
        stream.set_write_buffer_limits(high=BOOKIE_CONNECTION_OUT_BYTES)
        if (link := stream.get_extra_info("socket")) is not None:
            # A failed machine sends nothing, and an idle client is sent nothing: only keepalive
            # detects the failure.
            link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not self._server.opened(self):
            stream.abort()
            return
        self._hello_deadline = self._loop.call_later(CONNECT_TIMEOUT_MS / 1000, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.closed(self)
        if self._hello_deadline is not None:
            self._hello_deadline.cancel()
        self._out.clear()
        self._reads.clear()
        for task in self._long_polls:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                if frame.op == Op.ADD and not frame.flags and self._handshake_done:
                    self._runs.append(read_run(frame.body))
                    self._tokens.append((frame.request_id, len(frame.body)))
                elif frame.op == Op.ADD and frame.flags == Flag.CONTEXTS and self._takes_contexts:
                    contexts, run = split_contexts(frame.body)
                    self._runs.append(read_run(run)._replace(contexts=contexts))
                    self._tokens.append((frame.request_id, len(run)))
                else:
                    self._add_many()
                    self._handle(frame)
        except ProtocolError:
            # No further byte of the peer can be trusted, not even where a frame ends.
            self.abort()
        self._add_many()

    def pause_writing(self) -> None:
        self._slow_peer = True
        self.update_reading()

    def resume_writing(self) -> None:
        self._slow_peer = False
        self.update_reading()
        self._start_reads()

    def update_reading(self) -> None:
        """Pause or resume reading from the socket: it is read only while no limit is exceeded."""
        pause = self._server.is_paused or self._slow_peer or bool(self._reads)
        if pause != self._paused and self._transport is not None:
            self._paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- requests ----------------------------------------------------------------------------

    def _handle(self, frame: Frame) -> None:
        """Carry out one request. Raises ProtocolError."""
        op = frame.op
        if not self._handshake_done:
            self._take_handshake_step(frame)
        elif frame.flags & ~_FLAGS.get(op, 0):
            raise ProtocolError(f"operation {op} with flags {frame.flags:#x} is not valid")
        elif op == Op.ADD:
            self._add_for_recovery(frame)
        elif op == Op.ADD_MANY and FEATURE_OF[op] in self._handshake.features:
            self._add_runs(frame)
        elif op == Op.WRITE_LAC and len(frame.body) == WRITE_LAC_BODY.size:
            on_reply = self._when_stored(frame, _LAC_BYTES)
            self._bookie.write_lacs(
                decode_lacs(frame.body), (0,), on_replies=lambda _, error: on_reply(error)
            )
        elif op == Op.WRITE_LACS and FEATURE_OF[op] in self._handshake.features:
            self._write_lacs(frame.request_id, decode_lacs(frame.body))
        else:
            self._ask(frame)

    def _take_handshake_step(self, frame: Frame) -> None:
        """Take one more step of the handshake. Raises ProtocolError."""
        handshake = self._handshake
        if answer := handshake.answer(frame):
            self._send(answer)
        if handshake.is_refused:
            self._loop.call_soon(self._hang_up)
        elif handshake.is_accepted:
            self._handshake_done = True
            self._takes_contexts = CONTEXTS in handshake.features
            self._frames.accept_large_frames()
            if self._hello_deadline is not None:
                self._hello_deadline.cancel()
            self.update_reading()  # the other connections may be paused already

    def _hang_up(self) -> None:
        """Close the connection when all queued answers were sent."""
        if self._transport is not None:
            self._transport.close()

    def _add_many(self) -> None:
        """Hand the adds that were received to the bookie."""
        if not self._runs:
            return
        runs, self._runs = self._runs, []
        tokens, self._tokens = self._tokens, []
        self._server.add_in_flight(_bytes_of(tokens))
        names, on_replies = followed(self._bookie, runs, tokens, self._added)
        self._bookie.add_many(runs, names, on_replies=on_replies)

    def _added(self, tokens: Sequence[_AddToken], error: FencelogError | None) -> None:
        self._server.add_in_flight(-_bytes_of(tokens))
        if error is None:
            self._send(b"".join([encode_reply(Op.ADD, request_id) for request_id, _ in tokens]))
        else:
            for request_id, _ in tokens:
                self._send(encode_error(Op.ADD, request_id, error.code, error.detail))

    def _add_runs(self, frame: Frame) -> None:
        """Hand the adds of one request to the bookie. Raises ProtocolError."""
        if frame.flags and not self._takes_contexts:
            raise ProtocolError("ADD_MANY with contexts, which were not agreed on")
        runs = decode_adds(frame.body, contexts=bool(frame.flags))
        sizes = [run.header.size for run in runs]
        self._server.add_in_flight(sum(sizes))
        answers = AddAnswers(sizes, partial(self._runs_added, frame.request_id))
        places, on_replies = followed(self._bookie, runs, range(len(runs)), answers.take)
        self._bookie.add_many(runs, places, on_replies=on_replies)

    def _runs_added(self, request_id: int, size: int, body: bytes, flags: Flag) -> None:
        self._server.add_in_flight(-size)
        self._send(encode_reply(Op.ADD_MANY, request_id, body, flags))

    def _add_for_recovery(self, frame: Frame) -> None:
        run = frame.body
        verify_run(run)
        self._bookie.add(run, recovery=True, on_reply=self._when_stored(frame, len(run)))

    def _when_stored(self, frame: Frame, size: int) -> AddCallback:
        """Return the callback that answers a request that waits for the journal; it counts as in
        flight until then."""
        self._server.add_in_flight(size)
        return partial(self._stored, frame.op, frame.request_id, size)

    def _stored(self, op: int, request_id: int, size: int, error: FencelogError | None) -> None:
        self._server.add_in_flight(-size)
        if error is None:
            self._send(encode_reply(op, request_id))
        else:
            self._send(encode_error(op, request_id, error.code, error.detail))

    def _write_lacs(self, request_id: int, lacs: Sequence[LedgerLac]) -> None:
        size = _LAC_BYTES * len(lacs)
        self._server.add_in_flight(size)
        answers = LacAnswers(len(lacs), partial(self._lacs_written, request_id, size))
        self._bookie.write_lacs(lacs, range(len(lacs)), on_replies=answers.take)

    def _lacs_written(self, request_id: int, size: int, refusals: bytes) -> None:
        self._server.add_in_flight(-size)
        self._send(encode_reply(Op.WRITE_LACS, request_id, refusals))

    # -- reads -------------------------------------------------------------------------------

    def _ask(self, frame: Frame) -> None:
        """Answer a read request when its turn comes. Raises ProtocolError."""
        read_request = read_request_of(self._bookie, frame, self._handshake.features)
        for ledger_id in read_request.fences:
            # In the order of the requests, although the answer may have to wait.
            self._bookie.fence(ledger_id)
        if read_request.waits:
            self._wait(frame, read_request.answer)
        else:
            self._queue_read(frame, read_request.answer)

    def _wait(self, frame: Frame, answer: Answer) -> None:
        """Carry out a long poll, which takes time and next to no other resource: outside the queue
        of reads, until the connection ends."""
        task = self._server.spawn(self._answer(frame.op, frame.request_id, answer))
        self._long_polls[task] = None
        task.add_done_callback(self._long_polls.pop)

    def _queue_read(self, frame: Frame, answer: Answer) -> None:
        self._reads.append((frame.op, frame.request_id, answer))
        self._start_reads()

    def _start_reads(self) -> None:
        while self._reads and self._reading < _MAX_READS and not self._slow_peer:
            self._reading += 1
            self._server.spawn(self._answer_read(*self._reads.popleft()))
        self.update_reading()

    async def _answer_read(self, op: int, request_id: int, answer: Answer) -> None:
        try:
            await self._answer(op, request_id, answer)
        finally:
            self._reading -= 1
            self._start_reads()

    async def _answer(self, op: int, request_id: int, answer: Answer) -> None:
        try:
            parts, flags = await answer()
            self._send(reply_header(op, request_id, sum(map(len, parts)), flags), *parts)
        except FencelogError as error:
            self._send(encode_error(op, request_id, error.code, error.detail))
        except Exception as error:  # a bug; to the peer it is "unknown", at once
            self._send(encode_error(op, request_id, ErrorCode.INTERNAL, repr(error)))

    # -- answers -----------------------------------------------------------------------------

    def _send(self, *frame: Buffer) -> None:
        """Queue an answer; all answers queued in this turn of the loop are sent in one write."""
        if self._transport is None:
            return
        if not self._out:
            self._loop.call_soon(self._write_out)
        self._out += frame

    def _write_out(self) -> None:
        if self._transport is None or not self._out:
            return
        out, self._out = self._out, []
        if len(out) == 1:
            self._transport.write(out[0])
        elif sum(map(len, out)) < _JOINED_BYTES:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)


def _bytes_of(tokens: Sequence[_AddToken]) -> int:
    return sum([size for _, size in tokens])
