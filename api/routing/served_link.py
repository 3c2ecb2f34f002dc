"""The serving end of a link: requests of another broker, run by this one's application.

Each request runs in a task of its own and answers under its own credit: an answer that is not read
holds LINK_WINDOW_BYTES and stops no other. What is answered in one turn of the event loop leaves in
one write."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, MutableSet
from dataclasses import dataclass
from functools import partial
from typing import Any

from fencelog.api.http.asgi import AsgiApp, Event, Scope
from fencelog.api.routing.link_core import Window
from fencelog.api.routing.link_frames import (
    KIND,
    UPGRADE,
    LinkFlag,
    LinkOp,
    decode_credit,
    decode_http_request,
    encode_answer_head,
    encode_append_error,
    encode_appended,
)
from fencelog.api.routing.link_scope import scope_of
from fencelog.bookie.server.handshake import ServerHandshake
from fencelog.broker.append.conditions import AppendFuture
from fencelog.broker.limits import LINK_CHUNK_BYTES, LINK_MAX_PENDING_BYTES, LINK_MAX_REQUESTS
from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.limits import CONNECT_TIMEOUT_MS
from fencelog.ledgers.rpc.authentication import Authenticator
from fencelog.ledgers.rpc.bookie_connection import as_stream
from fencelog.ledgers.rpc.wire import Frame, FrameReader, encode_error, encode_reply

LAST_REQUEST_S = 0.5
"""The time that a link stays open at the server's end for what the other broker has sent before it
could know."""

FRAME_STALL_S = 20
"""The time within which more of a frame has to arrive, as more of a request's body has."""

_OUT_BYTES = 4 * LINK_CHUNK_BYTES
"""The bytes that wait for the network before answers wait for it."""

_TOO_MANY = "there are too many requests on this link"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class LinkHost:
    """The serving end of all links to this broker. ``url``: the name of this broker among brokers;
    ``append``: takes the body of an APPEND, raises FencelogError with nothing done;
    ``authenticator``: None lets every broker in; ``cluster``: this broker's, if others are to know.
    """

    app: AsgiApp
    append: Callable[[bytes], AppendFuture]
    url: str
    broker_id: str
    authenticator: Authenticator | None = None
    cluster: str = ""


class ServedLink(asyncio.Protocol):
    """A connection of another broker, after ``Upgrade``.

    ``connections`` and ``tasks``: those of the server, which waits for them at its end.
    """

    transport = None

    def __init__(
        self,
        host: LinkHost,
        connections: MutableSet[Any],
        tasks: MutableSet[asyncio.Task[None]],
        on_lost: Callable[[], None],
    ) -> None:
        self.host = host
        self._on_lost = on_lost
        self._connections = connections
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader()
        self._handshake = ServerHandshake(
            host.url,
            host.broker_id,
            host.authenticator,
            features=frozenset(),
            kind=KIND,
            cluster=host.cluster,
        )
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._streams: dict[int, _Stream] = {}
        self._pending_bytes = 0
        self._appending = 0
        self._out: list[bytes] = []
        self.is_slow = False
        """The network takes no more for now."""
        self._heard_s, self._has_heard = 0.0, False

    # -- transport -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = as_stream(transport)
        stream.set_write_buffer_limits(high=_OUT_BYTES)
        if (connection := stream.get_extra_info("socket")) is not None:
            # A failed machine sends nothing: only keepalive detects the failure.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._connections.add(self)
        self._deadline = self._loop.call_later(CONNECT_TIMEOUT_MS / 1000, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._connections.discard(self)
        self._on_lost()
        if self._deadline is not None:
            self._deadline.cancel()
        self._out.clear()
        for stream in list(self._streams.values()):
            stream.leave()

    def data_received(self, data: bytes) -> None:
        self._has_heard = True
        try:
            for frame in self._frames.feed(data):
                self._handle(frame)
        except ProtocolError as error:
            # No further byte of the peer can be trusted, not even where a frame ends.
            _log.warning("a link of another broker is closed: %s", error.detail)
            self.abort()

    def pause_writing(self) -> None:
        self.is_slow = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.is_slow = False
        if self._transport is not None:
            self._transport.resume_reading()
        for stream in self._streams.values():
            stream.wake()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def shutdown(self) -> None:
        """Ask the other broker to send nothing more. It closes the link when it has all answers."""
        self.send(encode_reply(LinkOp.LEAVE, 0))
        self._loop.call_later(LAST_REQUEST_S, self._close_if_idle)

    def close_if_overdue(self, now_s: float) -> None:
        """End the link if nothing more of a frame has come for too long. The other broker closes an
        idle one."""
        if self._has_heard or self.is_slow or not self._frames.held_bytes:
            self._has_heard, self._heard_s = False, now_s
        elif now_s - self._heard_s > FRAME_STALL_S:
            self.abort()

    def cut_off(self) -> None:
        """End the link now, since the server has ended."""
        self.abort()

    def _close_if_idle(self) -> None:
        if self._transport is not None and not (self._streams or self._appending):
            self._write_out()  # the last answer may have been queued in this turn of the loop
            self._transport.close()

    # -- frames ----------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Queue a frame; all that is queued in this turn of the loop is sent in one write."""
        if self._transport is None:
            return
        if not self._out:
            self._loop.call_soon(self._write_out)
        self._out.append(frame)

    def _write_out(self) -> None:
        if self._transport is not None and self._out:
            out, self._out = self._out, []
            self._transport.writelines(out)

    def _handle(self, frame: Frame) -> None:
        """Take one frame. Raises ProtocolError."""
        op = frame.op
        if not self._handshake.is_accepted:
            self._take_handshake_step(frame)
        elif op == LinkOp.REQUEST:
            self._request(frame)
        elif op == LinkOp.APPEND:
            self._append(frame)
        elif op == LinkOp.CREDIT:
            size = decode_credit(frame)
            if (stream := self._streams.get(frame.request_id)) is not None:
                stream.window.give(size)
                stream.wake()
        elif op == LinkOp.CANCEL:
            if (stream := self._streams.get(frame.request_id)) is not None:
                stream.leave()
        elif op == LinkOp.PING:
            self.send(encode_reply(LinkOp.PING, 0))
        else:
            raise ProtocolError(f"operation {op} is not valid on a link")

    def _take_handshake_step(self, frame: Frame) -> None:
        if answer := self._handshake.answer(frame):
            self.send(answer)
        if self._handshake.is_refused:
            self._loop.call_soon(self._hang_up)
        elif self._handshake.is_accepted:
            self._frames.accept_large_frames()
            if self._deadline is not None:
                self._deadline.cancel()

    def _hang_up(self) -> None:
        """Close the connection after all that is queued."""
        if self._transport is not None:
            self._transport.close()

    def _request(self, frame: Frame) -> None:
        """Begin to serve a request. Raises ProtocolError."""
        request_id = frame.request_id
        if request_id in self._streams:
            raise ProtocolError(f"request {request_id} twice")
        head, body = decode_http_request(frame.body)
        if self._is_full or self._pending_bytes > 2 * LINK_MAX_PENDING_BYTES:
            self.end(request_id, ErrorCode.OVERLOADED, _TOO_MANY)
            return
        stream = _Stream(self, request_id, body)
        self._streams[request_id] = stream
        self._pending_bytes += stream.size
        task = self._loop.create_task(stream.run(scope_of(head)), name=f"link {head.method}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def _is_full(self) -> bool:
        return len(self._streams) + self._appending >= LINK_MAX_REQUESTS

    def _append(self, frame: Frame) -> None:
        """Append a message, without a task. Raises ProtocolError."""
        request_id = frame.request_id
        try:
            if self._is_full:
                raise FencelogError(ErrorCode.OVERLOADED, _TOO_MANY)
            future = self.host.append(frame.body)
        except ProtocolError:
            raise
        except FencelogError as error:
            self.send(encode_append_error(request_id, error))
        except Exception:  # a bug; the other requests on this link have their answers all the same
            _log.exception("an append of another broker failed")
            bug = FencelogError(ErrorCode.INTERNAL, "an unexpected error, logged there")
            self.send(encode_append_error(request_id, bug))
        else:
            self._appending += 1
            future.add_done_callback(partial(self._appended, request_id))

    def _appended(self, request_id: int, future: AppendFuture) -> None:
        self._appending -= 1
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or not isinstance(error, FencelogError | None):
            _log.error("an append of another broker failed", exc_info=error)
            error = FencelogError(ErrorCode.INTERNAL, "an unexpected error, logged there")
        if error is None:
            self.send(encode_appended(request_id, future.result()))
        else:
            self.send(encode_append_error(request_id, error))

    def end(self, request_id: int, code: ErrorCode, detail: str) -> None:
        """End an answer that does not come, or not to its end."""
        error = encode_error(LinkOp.REQUEST, request_id, code, detail)
        self.send(error[:5] + bytes((LinkFlag.END,)) + error[6:])

    def ended(self, stream: _Stream, request_id: int) -> None:
        """Forget an answer whose last frame was sent; the id may be used again."""
        if self._streams.pop(request_id, None) is not None:
            self._pending_bytes -= stream.size


def serve_link(
    host: LinkHost,
    transport: asyncio.Transport,
    connections: MutableSet[Any],
    tasks: MutableSet[asyncio.Task[None]],
    on_lost: Callable[[], None] = lambda: None,
) -> None:
    """Make a link of a connection on which HTTP has asked for that. The other broker sends nothing
    before it has the answer. ``on_lost`` is called when the connection is over."""
    transport.write(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %b\r\n\r\n" % UPGRADE
    )
    link = ServedLink(host, connections, tasks, on_lost)
    transport.set_protocol(link)
    link.connection_made(transport)


class _Stream:
    """One request and its answer: ASGI's ``receive`` and ``send`` over a link."""

    def __init__(self, link: ServedLink, request_id: int, body: bytes) -> None:
        self.size = len(body)
        self.window = Window()
        self._link = link
        self._id = request_id
        self._body: bytes | None = body
        self._gone = asyncio.Event()
        self._may_send = asyncio.Event()
        self._is_over = False

    async def run(self, scope: Scope) -> None:
        try:
            await self._link.host.app(scope, self.receive, self.send)
        finally:
            if not self._is_over:
                self._is_over = True
                self._link.end(self._id, ErrorCode.INTERNAL, "the answer was not finished")
                self._link.ended(self, self._id)

    def leave(self) -> None:
        """Note that the caller has gone."""
        self._gone.set()
        self._may_send.set()

    def wake(self) -> None:
        """Note that there may be capacity to send."""
        self._may_send.set()

    async def receive(self) -> Event:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: Event) -> None:
        if self._is_over or self._gone.is_set():
            return
        if event["type"] == "http.response.start":
            head = encode_answer_head(event["status"], list(event.get("headers", ())))
            self._link.send(encode_reply(LinkOp.REQUEST, self._id, head, LinkFlag.HEAD))
            return
        body = memoryview(event.get("body", b""))
        is_last = not event.get("more_body", False)
        while body or is_last:
            part = body[: await self._capacity(len(body))]
            if self._gone.is_set():
                return
            body = body[len(part) :]
            self.window.take(len(part))
            flags = LinkFlag.END if is_last and not body else LinkFlag.NONE
            self._link.send(encode_reply(LinkOp.REQUEST, self._id, bytes(part), flags))
            if flags:
                self._is_over = True
                self._link.ended(self, self._id)
                return

    async def _capacity(self, wanted: int) -> int:
        """Return how many bytes may be sent now, when there are any."""
        while (
            wanted and not self._gone.is_set() and (self._link.is_slow or not self.window.capacity)
        ):
            self._may_send.clear()
            await self._may_send.wait()
        return min(wanted, self.window.capacity, LINK_CHUNK_BYTES)
