"""A parsed request, which is answered directly or by an ASGI application."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass, field
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from fencelog.api.produce.single import Post

Headers = list[tuple[bytes, bytes]]


@dataclass(slots=True, eq=False)
class HttpRequest:
    """A request of a connection. ``post``: the content of its head, if it is a single post that the
    connection may append itself; its ``body`` is gathered then. ``cycle``: its way through the
    ASGI application, if it goes there; the cycle takes the body.

    ``is_received``: no part of it is missing.
    """

    method: bytes
    url: bytes
    headers: Headers
    keep_alive: bool
    http_version: str = "1.1"
    expects_continue: bool = False
    post: Post | None = None
    body: bytes = b""
    cycle: RequestResponseCycle | None = None
    is_received: bool = False


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
        }
