"""One HTTP exchange on plain ASGI: what the hot endpoints read and answer, without a framework.

The types follow the ASGI specification 3.0. This module does not know topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from fencelog.ledgers.errors import ErrorCode, FencelogError

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Buffer = bytes | bytearray | memoryview
RawHeaders = Iterable[tuple[bytes, bytes]]

JSON = b"application/json"
NDJSON = b"application/x-ndjson"
TEXT = b"text/plain"
BATCH = b"application/vnd.fencelog.batch"
EVENT_STREAM = b"text/event-stream"
EVENT_END = b"\n\n"
OCTETS = b"application/octet-stream"

READING = frozenset(("GET", "HEAD"))
"""The methods that change nothing."""

_MAX_QUERY_FIELDS = 32


class ClientGone(Exception):
    """The client closed its connection, so that no answer can be sent."""


def received(body: bytes, receive: Receive) -> Receive:
    """Return a way to receive a body that was read, and whatever comes after it."""
    whole: list[Event] = [{"type": "http.request", "body": body, "more_body": False}]

    async def take() -> Event:
        return whole.pop() if whole else await receive()

    return take


class Exchange:
    """A request and its way to be answered.

    ``started``: a status was sent; ``status``: that one. ``sends_events``: and an event stream is
    its body; ``is_within_event``: it may have been sent in part up to now, and its last event with
    it. ``may_have_effect``: something may be done that the answer has yet to tell.
    """

    __slots__ = (
        "_receive",
        "_send",
        "is_within_event",
        "may_have_effect",
        "scope",
        "sends_events",
        "started",
        "status",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.started = False
        self.status = 0
        self.sends_events = False
        self.is_within_event = False
        self.may_have_effect = False
        self._receive = receive
        self._send = send

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        return str(self.scope["path"])

    def path_as_sent(self) -> str:
        """Return the path, if it has the parts that were sent: it is decoded as a whole, and a
        slash within a name would begin the next part. Raises FencelogError(INVALID_NAME)."""
        raw: bytes = self.scope.get("raw_path") or b""
        if b"%" in raw and b"%2f" in raw.lower():
            raise FencelogError(ErrorCode.INVALID_NAME, "no name in a path has a slash, %2F")
        return self.path

    @property
    def headers(self) -> RawHeaders:
        """The headers; names are in lower case, as ASGI promises."""
        headers: RawHeaders = self.scope["headers"]
        return headers

    def header(self, name: bytes) -> bytes | None:
        """Return the first header of that (lower-case) name."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def media_type(self) -> bytes:
        """Return the Content-Type without its parameters, in lower case; empty if there is none."""
        return (self.header(b"content-type") or b"").partition(b";")[0].strip().lower()

    def charset(self) -> bytes:
        """Return the charset of the Content-Type in lower case; empty if there is none."""
        for parameter in (self.header(b"content-type") or b"").lower().split(b";")[1:]:
            name, _, value = parameter.partition(b"=")
            if name.strip() == b"charset":
                return value.strip().strip(b'"')
        return b""

    def query(self, allowed: frozenset[str]) -> dict[str, str]:
        """Return the query parameters. Raises FencelogError(BAD_REQUEST) naming one that is unknown
        or given twice."""
        raw: bytes = self.scope["query_string"]
        return parse_query(raw, allowed) if raw else {}

    async def receive(self) -> Event:
        """Return the next part of the body. Raises ClientGone."""
        event = await self._receive()
        if event["type"] == "http.disconnect":
            raise ClientGone
        return event

    async def send(self, event: Event) -> None:
        """Send an event that another application made."""
        self.started = True
        self.status = event.get("status", self.status)
        await self._send(event)

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Send status and headers; the body follows with ``send_body``."""
        self.started = True
        self.status = status
        self.sends_events = (b"content-type", EVENT_STREAM) in headers
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send_body(self, body: bytes, *, more: bool = False) -> None:
        """Send a part of the body. If more follows, the loop has a turn in between: what is sent to
        a client that has gone is dropped at once, and a stream that never waits for anything else
        would keep the loop to itself, so that nothing could end it."""
        self.is_within_event = self.sends_events
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
        if body.endswith(EVENT_END):
            self.is_within_event = False
        if more:
            await asyncio.sleep(0)

    async def respond(
        self, status: int, media_type: bytes, body: bytes, headers: RawHeaders = ()
    ) -> None:
        """Send a whole answer with its length. JSON ends its line, for people at a terminal."""
        if media_type == JSON and not body.endswith(b"\n"):
            body += b"\n"
        length = b"%d" % len(body)
        await self.start(
            status, [(b"content-type", media_type), (b"content-length", length), *headers]
        )
        await self.send_body(b"" if self.scope["method"] == "HEAD" else body)

    async def until_gone(self) -> None:
        """Return when the client has closed its connection, whatever it sends before."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


def parse_query(raw: bytes, allowed: frozenset[str]) -> dict[str, str]:
    """Return parameters by name. Raises FencelogError(BAD_REQUEST)."""
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="surrogateescape",
            max_num_fields=_MAX_QUERY_FIELDS,
        )
    except ValueError as error:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"query cannot be read: {error}") from None
    parameters: dict[str, str] = {}
    for name, value in pairs:
        if name not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"unknown query parameter {name!r}; known here: {known}",
                parameter=name,
            )
        if name in parameters:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"query parameter {name!r} twice", parameter=name
            )
        parameters[name] = value
    return parameters


def parse_flag(name: str, text: str) -> bool:
    """Parse ``true`` or ``false``. Raises FencelogError(BAD_REQUEST) naming the parameter."""
    if text not in ("true", "false"):
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"{name} must be true or false, not {text!r}", parameter=name
        )
    return text == "true"


def parse_number(name: str, text: str, *, low: int, high: int) -> int:
    """Parse a decimal number within bounds. Raises FencelogError(BAD_REQUEST) naming the
    parameter."""
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and low <= int(text) <= high):
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"{name} must be a whole number from {low} to {high}, not {text!r}",
            parameter=name,
        )
    return int(text)
