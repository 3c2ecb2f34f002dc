"""uvicorn's HTTP protocol, except that an answer leaves in one piece, and that single posts which
repeat the head of the one before are appended without being parsed (``repeated_posts``).

A connection serves one request at a time either way: what arrives while a repeated post is being
appended waits for its answer.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from fencelog.api.http.asgi import JSON
from fencelog.api.produce.single import Post, receipt
from fencelog.api.server.app import Application
from fencelog.api.server.gathering_transport import GatheringTransport
from fencelog.api.server.repeated_posts import Head, repeatable_head
from fencelog.broker.append.pending import AppendFuture
from fencelog.ledgers.errors import Effects, FencelogError

_ATTEMPTS = 4
"""The heads of a connection that are compared: a client that has not repeated one by then will
not."""

LAST_REQUEST_S = 0.5
"""The time that a connection stays open at the server's end for a request that its client has sent
before it could know; the answer to it ends the connection."""


class HttpProtocol(HttpToolsProtocol):
    """The protocol of one connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._repeated: tuple[Head, Post] | None = None
        self._attempts = _ATTEMPTS if isinstance(self.app, Application) else 0
        self._in_message = False
        self._begun = 0
        self._appending = False
        self._held = b""
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(GatheringTransport(cast("asyncio.Transport", transport)))

    def data_received(self, data: bytes) -> None:
        if self._appending:
            self._held += data
            self.flow.pause_reading()
            return
        if self._repeated is not None and self._is_idle and self._append_again(data):
            return
        if self._attempts and self._is_idle:
            begun = self._begun
            super().data_received(data)
            if self._begun == begun + 1 and not self._in_message:
                self._remember(data)
        else:
            super().data_received(data)

    def on_message_begin(self) -> None:
        self._in_message = True
        self._begun += 1
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self._closing and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        self._in_message = False
        super().on_message_complete()

    def shutdown(self) -> None:
        """Close the connection, as the server does at its end: a request being served is still
        answered, and so is one that is in flight to the server, or its outcome would seem
        unknown."""
        self._closing = True
        if self._is_answering:
            if not self._appending:
                super().shutdown()
        else:
            self.loop.call_later(LAST_REQUEST_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if not self._is_answering and not self.transport.is_closing():
            self.transport.close()

    @property
    def _is_answering(self) -> bool:
        return self._appending or not (self.cycle is None or self.cycle.response_complete)

    @property
    def _is_idle(self) -> bool:
        """True between two requests: the parser holds no part of one, and none waits for its
        answer."""
        return not self._in_message and (self.cycle is None or self.cycle.response_complete)

    # -- repeated posts --------------------------------------------------------------------------

    def _remember(self, data: bytes) -> None:
        """Remember the head of ``data``, which was one whole request, if it is a single post."""
        self._attempts -= 1
        if not self.cycle.keep_alive or self.parser is None or self.parser.should_upgrade():
            return
        post = self.app.single_post(self.scope)
        head = None if post is None else repeatable_head(data, self.headers)
        if post is not None and head is not None:
            self._repeated = head, post
            self._attempts = 0

    def _append_again(self, data: bytes) -> bool:
        """Append ``data`` if it is the remembered post with another body; tell whether it was
        passed to the log."""
        if self._repeated is None:
            return False
        head, post = self._repeated
        body = head.body_of(data)
        future = None if body is None else self.app.append_now(post, body)
        if body is None or future is None:
            return False
        self._unset_keepalive_if_required()
        self._appending = True
        future.add_done_callback(partial(self._appended, data, body, self.loop.time()))
        return True

    def _appended(self, data: bytes, body: bytes, started: float, future: AppendFuture) -> None:
        self._appending = False
        error = future.exception()
        if self.transport.is_closing():
            return
        if error is None:
            self.app.appended_now(body, self.loop.time() - started)
            self._answer(201, JSON, receipt(future.result()))
        elif isinstance(error, FencelogError) and error.code.effects is Effects.NONE:
            # It is certain that nothing was written: the ordinary way knows what to do.
            super().data_received(data)
            if self._closing:
                super().shutdown()
        else:
            self._answer(*self.app.problem_answer(error, str(self.scope["path"])))
        if held := self._held:
            self._held = b""
            self.flow.resume_reading()
            self.data_received(held)

    def _answer(
        self,
        status: int,
        media_type: bytes,
        body: bytes,
        headers: list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        """Write a whole answer, as uvicorn would, and go on as it does."""
        parts = [STATUS_LINE[status]]
        for name, value in (*self.server_state.default_headers, *(headers or ())):
            parts += (name, b": ", value, b"\r\n")
        parts.append(
            b"content-type: %b\r\ncontent-length: %d\r\n%b\r\n"
            % (media_type, len(body), b"connection: close\r\n" if self._closing else b"")
        )
        parts.append(body)
        self.transport.write(b"".join(parts))
        self.server_state.total_requests += 1
        if self._closing:
            self.transport.close()
            return
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )
