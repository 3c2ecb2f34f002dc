"""A parsed request, which is answered directly or by an ASGI application."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httptools
from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from fencelog.api.http.request_ids import CURRENT, CurrentRequest
from fencelog.api.produce.post import Post
from fencelog.api.routing.link_frames import FORWARDED
from fencelog.api.server.limits import MAX_DIRECT_BODY_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError, copy_of

Headers = list[tuple[bytes, bytes]]


class Cycle(RequestResponseCycle):
    """The way of a request through the ASGI application, and of the answer to its client.

    The pieces of its body wait here as they came, and not in uvicorn's ``body``, where each of them
    would be copied twice more. ``waiting_bytes``: those that the application has not taken yet.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.failure: FencelogError | None = None
        self.waiting_bytes = 0
        self._pieces: list[bytes] = []
        self._ends_by_closing = False

    def add_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.waiting_bytes += len(piece)

    def break_off(self, error: FencelogError) -> None:
        """Fail the reading of a body that will not be complete. The connection ends with the
        answer, which is the application's: it knows whether it has done anything."""
        self.failure = error
        self.keep_alive = False
        self.message_event.set()

    async def send(self, message: ASGISendEvent) -> None:
        if self.scope["http_version"] == "1.0":
            self._leave_out_chunks(message)
        await super().send(message)

    def _leave_out_chunks(self, message: ASGISendEvent) -> None:
        """Have a body without a length end with its connection: HTTP/1.0 has no chunks (RFC 9112,
        6.1)."""
        if message["type"] == "http.response.start":
            names = [name.lower() for name, _ in message.get("headers", ())]
            self._ends_by_closing = b"content-length" not in names
            if self._ends_by_closing:
                self.chunked_encoding = self.keep_alive = False
        elif message["type"] == "http.response.body" and self._ends_by_closing:
            self.expected_content_length = len(message.get("body", b""))

    async def receive(self) -> ASGIReceiveEvent:
        event = await super().receive()
        if event["type"] == "http.request":
            if self.failure is not None:
                raise copy_of(self.failure)
            event["body"] = self._take_body()
        return event

    def _take_body(self) -> bytes:
        pieces, self._pieces, self.waiting_bytes = self._pieces, [], 0
        return b"".join(pieces)  # of a single one that piece itself


@dataclass(slots=True, eq=False)
class HttpRequest:
    """A request of a connection. ``framing``: the headers that say how it is received.

    ``post``: the content of its head, if it is a single post that the connection may append itself;
    its ``body`` is gathered then. ``cycle``: its way through the ASGI application, if it goes that
    way; the cycle takes the body. ``current``: its id, if it brought one. ``refusal``: the error
    that it is answered with, as the last request of its connection. ``is_received``: no part of it
    is missing.
    """

    method: bytes
    url: bytes
    headers: Headers
    framing: dict[bytes, bytes]
    keep_alive: bool
    http_version: str = "1.1"
    post: Post | None = None
    body: bytes = b""
    cycle: Cycle | None = None
    current: CurrentRequest | None = None
    refusal: FencelogError | None = None
    is_received: bool = False

    @property
    def given_header(self) -> Headers:
        """The header that repeats the id which it brought."""
        return [] if self.current is None else self.current.given_header


_NOT_DIRECT = frozenset((b"expect", b"transfer-encoding", b"upgrade", FORWARDED, b"origin"))
"""The headers of posts that are more than a head and a body, may not be forwarded again, or whose
answer a browser needs more for."""


def may_be_direct(request: HttpRequest) -> bool:
    """Tell whether a request, by its head, is a post that its connection may gather and append."""
    if request.method != b"POST" or not request.keep_alive:
        return False
    if request.current is not None and request.current.traceparent:
        return False  # The application records its span.
    length = request.framing.get(b"content-length")
    if length is None or int(length) > MAX_DIRECT_BODY_BYTES:
        return False
    return _NOT_DIRECT.isdisjoint(request.framing)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The two ends of a connection, and what else all its scopes have in common."""

    server: tuple[str, int | None] | None
    client: tuple[str, int] | None
    scheme: str
    state: dict[str, Any] = field(default_factory=dict)

    def scope(self, request: HttpRequest) -> dict[str, Any]:
        """Return the ASGI scope of a request."""
        url = httptools.parse_url(request.url)
        path = url.path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": request.method.decode("ascii"),
            "root_path": "",
            "path": urllib.parse.unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": request.headers,
            "state": self.state.copy(),
            CURRENT: request.current,
        }


def path_of(request: HttpRequest) -> str:
    """Return the path of a request whose URL may be none, for its problem document."""
    try:
        return urllib.parse.unquote(httptools.parse_url(request.url).path.decode("ascii"))
    except (httptools.HttpParserInvalidURLError, AttributeError):
        return "/"


def check_framing(
    framing: Mapping[bytes, bytes], version: str, *, upgrades: bool
) -> FencelogError | None:
    """Return what is wrong with the headers that say how a request is received, or None."""
    host, coding = framing.get(b"host"), framing.get(b"transfer-encoding")
    if version == "1.1" and (host is None or b"," in host):
        return FencelogError(ErrorCode.BAD_REQUEST, "a request of HTTP/1.1 has one Host header")
    if coding is not None and (coding.strip().lower() != b"chunked" or version != "1.1"):
        shown = coding[:80].decode("latin-1")
        return FencelogError(
            ErrorCode.BAD_REQUEST, f"the only Transfer-Encoding is chunked, not {shown!r}"
        )
    if upgrades and (coding is not None or int(framing.get(b"content-length", b"0"))):
        # The parser would take the body for the other protocol.
        return FencelogError(ErrorCode.BAD_REQUEST, "a request with a body cannot ask for Upgrade")
    return None
