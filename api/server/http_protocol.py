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
from typing import Any, cast

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from fencelog.api.http.asgi import JSON
from fencelog.api.http.problems import cut_off
from fencelog.api.produce.append_headers import appended_status
from fencelog.api.produce.single import Post, receipt
from fencelog.api.routing.link_frames import FORWARDED, UPGRADE
from fencelog.api.routing.served_link import serve_link
from fencelog.api.server.app import Application
from fencelog.api.server.connections import Connections
from fencelog.api.server.gathering_transport import GatheringTransport
from fencelog.api.server.limits import KEEP_ALIVE_S, LAST_REQUEST_S, MAX_DIRECT_BODY_BYTES
from fencelog.api.server.request import Endpoints, Headers, HttpRequest
from fencelog.broker.append.conditions import AppendFuture
from fencelog.ledgers.errors import Effects, FencelogError

_FRAMING = frozenset(
    (b"content-length", b"connection", b"expect", b"transfer-encoding", b"upgrade", FORWARDED)
)
"""The headers that say how a request is to be received and passed on."""

_NOT_DIRECT = frozenset((b"expect", b"transfer-encoding", b"upgrade", FORWARDED))
"""The ones of requests that are more than a head and a body, or may not be forwarded again."""

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
        self._parser = httptools.HttpRequestParser(self)
        # A client may send more after ``Connection: close``; it is ignored, not an error.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._transport: GatheringTransport
        self._flow: FlowControl
        self._endpoints: Endpoints
        # The head that is being received.
        self._url = b""
        self._headers: Headers = []
        self._framing: dict[bytes, bytes] = {}
        # The requests, in order: one is answered at a time.
        self._current: HttpRequest | None = None
        self._following: deque[HttpRequest] = deque()
        self._receiving: HttpRequest | None = None
        self._held: list[bytes] = []
        self._closing = False
        self._since_s = server_state.now_s
        self._started_s = 0.0

    # -- the connection --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        given = cast("asyncio.Transport", transport)
        self._all.connections.add(self)  # type: ignore[arg-type]  # names uvicorn's own protocols
        self._transport = GatheringTransport(given)
        self._flow = FlowControl(self._transport)
        scheme = "https" if is_ssl(given) else "http"
        self._endpoints = Endpoints(
            get_local_addr(given), get_remote_addr(given), scheme, self._app_state
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.connections.discard(self)
        for request in (self._current, self._receiving, *self._following):
            cycle = None if request is None else request.cycle
            if cycle is not None:
                cycle.disconnected = not cycle.response_complete
                cycle.message_event.set()
        self._following.clear()
        self._held.clear()
        self._flow.resume_writing()
        if exc is None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self._is_held:
            self._held.append(data)
            self._flow.pause_reading()
        else:
            self._parse(data)

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
        """Close the connection if it has been idle for too long."""
        if now_s - self._since_s > KEEP_ALIVE_S:
            self._close_if_idle()

    def cut_off(self) -> None:
        """End the connection now, since its server has ended. A post under way gets the answer that
        its outcome is unknown; the ASGI application answers for itself when it is cancelled."""
        request = self._current
        if request is None:
            self._transport.close()
        elif request.cycle is None:
            self._closing = True
            path = self._endpoints.scope(request)["path"]
            self._send(*self._app.problem_answer(cut_off("POST", path), path))
            self._finish()

    def _close_if_idle(self) -> None:
        if not self._is_answering and not self._transport.is_closing():
            self._transport.close()

    @property
    def _is_answering(self) -> bool:
        receiving = self._receiving
        return self._current is not None or (receiving is not None and receiving.cycle is None)

    @property
    def _is_held(self) -> bool:
        """True while nothing more is parsed: the answer to a whole request has to leave first."""
        return self._flow.write_paused or (self._current is not None and self._current.is_received)

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Any other one was taken as HTTP/1.1, and the answer to it ends the connection.
            self._make_link()
        except httptools.HttpParserError:
            self._send(400, b"text/plain; charset=utf-8", b"Invalid HTTP request received.")
            self._transport.close()

    def _make_link(self) -> None:
        """Make a link of the connection, if the head that was received asks for one and nothing
        else is under way."""
        host = self._app.host
        if host is not None and self._asks_for_link and self._current is None:
            self._all.connections.discard(self)
            serve_link(host, self._transport.detach(), self._all.connections, self._all.tasks)

    @property
    def _asks_for_link(self) -> bool:
        return self._framing.get(b"upgrade") == UPGRADE and self._parser.should_upgrade()

    def _go_on(self) -> None:
        """Take up the next request, and what has arrived since."""
        while not self._is_held and not self._transport.is_closing():
            if self._current is None and self._following:
                self._start(self._following.popleft())
            elif self._held:
                data = b"".join(self._held)
                self._held.clear()
                self._parse(data)
            else:
                self._flow.resume_reading()
                return

    # -- what the parser finds -------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._since_s = self._all.now_s
        self._url = b""
        self._headers = []
        self._framing = {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in _FRAMING:
            self._framing[name] = value
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        parser, framing = self._parser, self._framing
        if framing and self._asks_for_link and self._current is None:
            return
        method, keep_alive = parser.get_method(), parser.should_keep_alive()
        if method == b"POST" and keep_alive:
            post = self._direct_post()
            if post is not None:
                request = HttpRequest(method, self._url, self._headers, True, post=post)
                self._receiving = request
                return
        version = parser.get_http_version()
        request = HttpRequest(
            method,
            self._url,
            self._headers,
            keep_alive and version != "1.0" and not parser.should_upgrade(),
            version,
            framing.get(b"expect", b"").lower() == b"100-continue",
        )
        self._receiving = request
        self._make_cycle(request)
        if self._current is None:
            self._start(request)
        else:
            self._flow.pause_reading()
            self._following.append(request)

    def on_body(self, body: bytes) -> None:
        request = self._receiving
        if request is None:
            return
        if request.cycle is None:
            request.body = request.body + body if request.body else body
        elif not request.cycle.response_complete:
            request.cycle.body += body
            if len(request.cycle.body) > HIGH_WATER_LIMIT:
                self._flow.pause_reading()
            request.cycle.message_event.set()

    def on_message_complete(self) -> None:
        request, self._receiving = self._receiving, None
        if request is None:
            return
        request.is_received = True
        if request.cycle is not None:
            request.cycle.more_body = False
            request.cycle.message_event.set()
        elif self._current is None:
            self._start(request)
        else:
            self._following.append(request)

    def _direct_post(self) -> Post | None:
        """Return the content of the head that was received, if it is that of a single post that
        may be appended from here."""
        framing = self._framing
        length = framing.get(b"content-length")
        if length is None or int(length) > MAX_DIRECT_BODY_BYTES:
            return None
        if len(framing) > 1 and (
            not _NOT_DIRECT.isdisjoint(framing) or self._parser.get_http_version() != "1.1"
        ):
            return None
        return self._app.single_post(self._url, self._headers)

    # -- answers ---------------------------------------------------------------------------------

    def _start(self, request: HttpRequest) -> None:
        self._current = request
        if request.post is None or request.cycle is not None:
            self._run(request)
            return
        future = self._app.append_now(request.post, request.body)
        if future is None:
            self._run(request)
            return
        self._started_s = self._loop.time()
        future.add_done_callback(self._appended)

    def _appended(self, future: AppendFuture) -> None:
        request, error = self._current, future.exception()
        if request is None or self._transport.is_closing():
            return
        if error is None:
            result = future.result()
            body = receipt(result)
            if result.duplicate:
                status, headers = appended_status(True)
                self._send(status, JSON, body, headers)
            else:
                seconds = self._loop.time() - self._started_s
                self._app.appended_now(request.body, seconds)
                last = _CLOSE if self._closing else b""
                self._transport.write_now(self._all.created(body, last))
            self._finish()
        elif isinstance(error, FencelogError) and error.code.effects is Effects.NONE:
            # It is certain that nothing was written: the ASGI way knows what to do.
            self._run(request)
        else:
            path = self._endpoints.scope(request)["path"]
            self._send(*self._app.problem_answer(error, path))
            self._finish()

    def _send(
        self,
        status: int,
        media_type: bytes,
        body: bytes,
        headers: list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        last = _CLOSE if self._closing else b""
        self._transport.write_now(self._all.answer(status, media_type, body, headers or (), last))

    def _finish(self) -> None:
        """Go on after the answer to a post has been sent."""
        if self._closing:
            self._transport.close()
        self._answered()

    def _answered(self) -> None:
        self._all.total_requests += 1
        self._current = None
        self._since_s = self._all.now_s
        if self._held or self._following or self._flow.read_paused:
            self._go_on()

    # -- the ASGI way ----------------------------------------------------------------------------

    def _make_cycle(self, request: HttpRequest) -> RequestResponseCycle:
        cycle = RequestResponseCycle(
            scope=cast("Any", self._endpoints.scope(request)),
            transport=cast("asyncio.Transport", self._transport),
            flow=self._flow,
            logger=_log,
            access_logger=_log,
            access_log=False,
            default_headers=self._all.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=request.expects_continue,
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
            cycle.body += request.body
            cycle.more_body = False
            cycle.message_event.set()
        if self._closing:
            cycle.keep_alive = False
        task = self._loop.create_task(cycle.run_asgi(cast("Any", self._app)))
        self._all.tasks.add(task)
        task.add_done_callback(self._all.tasks.discard)
