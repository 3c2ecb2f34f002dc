"""The HTTP/1.1 protocol of a connection, on httptools: uvicorn's ASGI cycle for most requests, and
a direct way for single posts.

A single post costs no ASGI scope, no task and no exchange: its head is read once, its body is
gathered here, and it is passed to the log at once where that is open here. A post that this way
cannot serve (another broker's partition, a topic not known yet, a refusal) takes the ASGI way, as
if it had come there first.

A connection serves one request at a time, in the order of arrival; what arrives before an answer
waits for it unread. One on which another broker asks for a link becomes that (``ServedLink``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import Any, cast

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from fencelog.api.http.asgi import JSON
from fencelog.api.http.problems import cut_off
from fencelog.api.http.request_ids import CurrentRequest, serving
from fencelog.api.produce.append_headers import appended_status
from fencelog.api.produce.single import receipt
from fencelog.api.routing.forward import OWNER_HEADER
from fencelog.api.routing.served_link import serve_link
from fencelog.api.server.app import Application
from fencelog.api.server.connections import Connections, header_lines
from fencelog.api.server.gathering_transport import GatheringTransport
from fencelog.api.server.limits import KEEP_ALIVE_S, LAST_REQUEST_S
from fencelog.api.server.request import (
    Cycle,
    Endpoints,
    HttpRequest,
    may_be_direct,
    path_of,
)
from fencelog.api.server.request_reader import RequestReader
from fencelog.broker.append.conditions import AppendFuture, AppendResult
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from fencelog.ledgers.format.request_context import NO_CONTEXTS

_CLOSE = b"connection: close\r\n"

_log = logging.getLogger(__name__)


class HttpProtocol(asyncio.Protocol):
    """The protocol of one connection."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: Connections,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        if not config.loaded:
            config.load()
        self._app: Application = config.loaded_app
        self._all = server_state
        self._app_state = app_state
        self._loop = _loop or asyncio.get_running_loop()
        self.transport: GatheringTransport
        self._flow: FlowControl
        self._reader: RequestReader
        self._endpoints: Endpoints
        # The requests, in order: one is answered at a time.
        self._current: HttpRequest | None = None
        self._following: deque[HttpRequest] = deque()
        self._held: list[bytes] = []
        self._closing = self._has_ended = False
        self._idle_since_s = server_state.now_s
        self._started_us = 0

    # -- the connection --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        given = cast("asyncio.Transport", transport)
        self.transport = GatheringTransport(given)
        self._flow = FlowControl(self.transport)
        # Whether a request is sampled for its trace is decided when its head is read.
        heads = self._app.posts.known_heads if self._app.request_spans is None else None
        self._reader = RequestReader(self, self._all, self._flow, heads)
        scheme = "https" if is_ssl(given) else "http"
        self._endpoints = Endpoints(
            get_local_addr(given), get_remote_addr(given), scheme, self._app_state
        )
        refusal = self._all.admit(self, self._address)
        if refusal is not None:
            self.refuse(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.remove(self, self._address)
        for request in (self._current, self._reader.receiving, *self._following):
            cycle = None if request is None else request.cycle
            if cycle is not None:
                cycle.disconnected = not cycle.response_complete
                cycle.message_event.set()
        self._following.clear()
        self._held.clear()
        self._flow.resume_writing()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._has_ended or self.transport.is_closing():
            return
        if self._is_held:
            self._held.append(data)
            self._flow.pause_reading()
        else:
            self._reader.feed(data)

    def pause_writing(self) -> None:
        self._flow.pause_writing()

    def resume_writing(self) -> None:
        self._flow.resume_writing()
        self._go_on()

    def shutdown(self) -> None:
        """Close the connection, as the server does at its end: a request being served is still
        answered, and so is one that is in flight to the server, or its outcome would seem
        unknown."""
        self._closing = True
        if self._current is not None and self._current.cycle is not None:
            self._current.cycle.keep_alive = False
        elif not self._is_answering:
            self._loop.call_later(LAST_REQUEST_S, self._close_if_idle)

    def close_if_overdue(self, now_s: float) -> None:
        """Close the connection if it has been idle for too long, or if its client is too slow in
        sending a request."""
        if self._is_held or self._flow.read_paused or self._has_ended:
            return  # It is the server's turn.
        if self._reader.is_in_message:
            error = self._reader.overdue(now_s)
            if error is not None:
                self.refuse(error)
        elif now_s - self._idle_since_s > KEEP_ALIVE_S:
            self._close_if_idle()

    def cut_off(self) -> None:
        """End the connection now, since its server has ended. A post under way gets the answer that
        its outcome is unknown; the ASGI application answers for itself when it is cancelled."""
        request = self._current
        if request is None:
            self.transport.close()
        elif request.cycle is None:
            self._closing = True
            self._fail(request, cut_off("POST", path_of(request)))

    def _close_if_idle(self) -> None:
        if not self._is_answering and not self.transport.is_closing():
            self.transport.close()

    @property
    def _address(self) -> str:
        return "" if self._endpoints.client is None else self._endpoints.client[0]

    @property
    def _is_answering(self) -> bool:
        receiving = self._reader.receiving
        return self._current is not None or (receiving is not None and receiving.cycle is None)

    @property
    def _is_held(self) -> bool:
        """True while nothing more is parsed: the answer to a whole request has to leave first."""
        return self._flow.write_paused or (self._current is not None and self._current.is_received)

    @property
    def may_become_link(self) -> bool:
        return self._app.host is not None and self._current is None and not self._closing

    def become_link(self) -> None:
        if (host := self._app.host) is not None:
            every = self._all
            every.connections.discard(cast("Any", self))
            # Links count among the connections of their address, like any other.
            on_lost = partial(every.forget, self._address)
            serve_link(host, self.transport.detach(), every.connections, every.tasks, on_lost)

    def _go_on(self) -> None:
        """Take up the next request, and what has arrived since."""
        while not self._is_held and not self.transport.is_closing():
            if self._current is None and self._following:
                self._start(self._following.popleft())
            elif self._held:
                data = b"".join(self._held)
                self._held.clear()
                self._reader.feed(data)
            else:
                self._flow.resume_reading()
                return

    # -- what was received -----------------------------------------------------------------------

    def take_head(self, request: HttpRequest) -> None:
        refusal = self._app.origins.refusal(request.method, request.framing)
        if refusal is not None:
            self.refuse(refusal)
            return
        if (spans := self._app.request_spans) is not None:
            request.current = spans.sampled(request.current, request.framing)
        if may_be_direct(request):
            request.post = self._app.posts.single_post(request.url, request.headers)
        if request.post is not None:
            return
        try:
            self._make_cycle(request)
        except httptools.HttpParserInvalidURLError:
            self.refuse(FencelogError(ErrorCode.BAD_REQUEST, "the request names no path"))
            return
        self.transport.has_unread = True
        if self._current is not None:
            self._flow.pause_reading()
        self._queue(request)

    def take_request(self, request: HttpRequest) -> None:
        self.transport.has_unread = False
        if request.cycle is not None:
            return  # It was started, or queued, when its head came.
        self._queue(request)

    def _queue(self, request: HttpRequest) -> None:
        """Start a request, or put it behind those that are still to be answered."""
        if self._current is None:
            self._start(request)
        else:
            self._following.append(request)

    # -- answers ---------------------------------------------------------------------------------

    def _start(self, request: HttpRequest) -> None:
        self._current = request
        if request.refusal is not None:
            self._closing = self.transport.has_unread = True
            self._fail(request, request.refusal)
            return
        if request.post is None or request.cycle is not None:
            self._run(request)
            return
        self._started_us = self._app.now_us()
        post, body, may_forward = request.post, request.body, b"prefer" not in request.framing
        contexts = NO_CONTEXTS if request.current is None else request.current.contexts
        try:
            future = self._app.append_now(post, body, may_forward=may_forward, contexts=contexts)
        except Exception as error:  # a bug; the connection goes on with its answer
            self._fail(request, error)
        else:
            if future is not None:
                future.add_done_callback(self._appended)
            else:
                self._run(request)

    def _appended(self, future: AppendFuture) -> None:
        request, error = self._current, future.exception()
        if request is None or self.transport.is_closing():
            return
        if error is None:
            self._answer_post(request, future.result())
            self._finish()
        elif isinstance(error, FencelogError) and error.code.effects is Effects.NONE:
            # It is certain that nothing was written: the ASGI way knows what to do.
            self._run(request)
        else:
            self._fail(request, error)

    def _answer_post(self, request: HttpRequest, result: AppendResult) -> None:
        body = receipt(result)
        owner = [] if result.owner is None else [(OWNER_HEADER, result.owner.encode())]
        if result.duplicate:
            status, headers = appended_status(True)
            self._send(status, JSON, body, [*headers, *owner, *request.given_header])
            return
        last = _CLOSE if self._closing else b""
        if owner:
            last = header_lines(owner) + last
        if request.current is not None:
            last += header_lines(request.given_header)
        self.transport.write_now(self._all.created(body, last))
        if not owner:
            self._app.appended_now(len(request.body), self._started_us, result)

    def _fail(self, request: HttpRequest, error: BaseException) -> None:
        """Answer with a problem."""
        method = request.method.decode("ascii", "replace")
        with serving(request.current or CurrentRequest()):
            problem = self._app.problem_answer(error, method, path_of(request))
        status, media_type, body, headers = problem
        self._send(status, media_type, body, [*headers, *request.given_header])
        self._finish()

    def refuse(self, error: FencelogError) -> None:
        """Answer with an error when all requests before are answered, and end the connection.
        Nothing that arrives from now on is a request."""
        if self._has_ended:
            return
        self._has_ended = True
        self._held.clear()
        broken = self._reader.receiving
        self._reader.end()
        if broken is not None and broken.cycle is not None:
            if broken.cycle.response_started:
                self.transport.close()  # The rest of its answer is missing, or nothing is.
            else:
                broken.cycle.break_off(error)
                broken.is_received = True
            return
        request = HttpRequest(b"", self._reader.url, [], {}, False, refusal=error, is_received=True)
        self._queue(request)

    def _send(
        self,
        status: int,
        media_type: bytes,
        body: bytes,
        headers: list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        last = _CLOSE if self._closing else b""
        self.transport.write_now(self._all.answer(status, media_type, body, headers or (), last))

    def _finish(self) -> None:
        """Go on after the answer to a post has been sent."""
        if self._closing:
            self.transport.close()
        self._answered()

    def _answered(self) -> None:
        self._all.total_requests += 1
        self._current = None
        self._idle_since_s = self._all.now_s
        if self._held or self._following or self._flow.read_paused:
            self._go_on()

    # -- the ASGI way ----------------------------------------------------------------------------

    def _make_cycle(self, request: HttpRequest) -> Cycle:
        cycle = Cycle(
            scope=cast("Any", self._endpoints.scope(request)),
            transport=cast("asyncio.Transport", self.transport),
            flow=self._flow,
            logger=_log,
            access_logger=_log,
            access_log=False,
            default_headers=self._all.default_headers
            + self._app.origins.answer_headers(request.framing.get(b"origin"))
            + request.given_header,
            message_event=asyncio.Event(),
            expect_100_continue=request.framing.get(b"expect", b"").lower() == b"100-continue",
            keep_alive=request.keep_alive,
            on_response=self._answered,
        )
        request.cycle = cycle
        return cycle

    def _run(self, request: HttpRequest) -> None:
        """Start the application on a request."""
        cycle = request.cycle
        if cycle is None:
            cycle = self._make_cycle(request)
            cycle.add_body(request.body)
            cycle.more_body = False
            cycle.message_event.set()
        if self._closing:
            cycle.keep_alive = False
        task = self._loop.create_task(cycle.run_asgi(cast("Any", self._app)))
        self._all.tasks.add(task)
        task.add_done_callback(self._all.tasks.discard)
