"""Several answers to one request: ``GET /v1/admin/together``, for pages that show them beside each
other.

Each path is served by the application as if it had been asked for alone, all at the same time. A
line is sent for each as soon as its answer is there, so that what is at hand does not wait for what
has to be asked of other processes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

import msgspec

from fencelog.api.http.accept import preferred
from fencelog.api.http.asgi import JSON, NDJSON, Event, Exchange, Receive, Scope
from fencelog.api.http.etags import etag_of
from fencelog.api.http.problems import MEDIA_TYPE, problem_body
from fencelog.api.http.waits import Waits
from fencelog.api.server.limits import ANSWERS_MS, MAX_ANSWER_BYTES, MAX_ANSWERS_TOGETHER
from fencelog.ledgers.errors import ErrorCode, FencelogError

TOGETHER_PATH = "/v1/admin/together"
PATH_PATTERN = "^/v1/[!-~]*$"

Serve = Callable[[Exchange, Scope, Receive], Coroutine[Any, Any, None]]
"""Answers an exchange, with a problem if need be."""

_PATH = re.compile(PATH_PATTERN)
_OF_OUTER = frozenset(
    (b"accept", b"if-none-match", b"prefer", b"content-length", b"content-type", b"expect")
)
"""The headers that are about the request for all answers alone."""

_JSON_FORMS = (JSON, MEDIA_TYPE)


class PartAnswer(msgspec.Struct, frozen=True):
    """The answer to one path: its status and its JSON. ``status`` 304 and no ``body``: ``etag`` is
    among those that the client knows."""

    path: str
    status: int
    etag: str | None
    body: msgspec.Raw | None


class _Asked(NamedTuple):
    paths: list[str]
    known: frozenset[str]


class Together:
    """The endpoint, over an application that ``serve`` is."""

    def __init__(self, serve: Serve, waits: Waits) -> None:
        self._serve = serve
        self._waits = waits

    async def get(self, exchange: Exchange) -> None:
        """Answer 200 with a line for each path, as they come. Raises BAD_REQUEST."""
        preferred(exchange.header(b"accept"), (NDJSON,))
        asked = _asked(exchange.scope["query_string"])
        headers = [(b"content-type", NDJSON), (b"cache-control", b"no-cache")]
        if exchange.method == "HEAD":
            await exchange.start(200, headers)
            await exchange.send_body(b"")
            return
        await exchange.start(200, headers)
        await self._waits.run(exchange, self._answer(exchange, asked))

    async def _answer(self, exchange: Exchange, asked: _Asked) -> None:
        parts = [self._part(exchange, path, asked.known) for path in asked.paths]
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            for done in asyncio.as_completed(tasks):
                line = msgspec.json.encode(await done) + b"\n"
                await exchange.send_body(line, more=True)
            await exchange.send_body(b"")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _part(self, exchange: Exchange, path: str, known: frozenset[str]) -> PartAnswer:
        part = _Part(exchange, path)
        if part.exchange.path == TOGETHER_PATH:
            return part.refused(ErrorCode.BAD_REQUEST, "answers that are asked for together")
        task = asyncio.create_task(self._serve(part.exchange, part.scope, part.receive))
        try:
            await asyncio.wait({task}, timeout=ANSWERS_MS / 1000)
            if not task.done():
                return part.refused(
                    ErrorCode.READ_UNKNOWN, f"no answer within {ANSWERS_MS / 1000:g} s"
                )
            await task
        finally:
            part.exchange.started = True  # What is cancelled has nothing more to say.
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return part.answer(known)


class _Part:
    """A request of its own within another one, and what is answered to it."""

    def __init__(self, outer: Exchange, path: str) -> None:
        place, _, query = path.partition("?")
        headers = [each for each in outer.headers if each[0] not in _OF_OUTER]
        self.scope: Scope = {
            **outer.scope,
            "method": "GET",
            "path": unquote(place),
            "raw_path": quote(place, safe="!$%&'()*+,/:;=@~").encode(),
            "query_string": query.partition("#")[0].encode(),
            "headers": [*headers, (b"accept", JSON)],
        }
        self.exchange = Exchange(self.scope, self.receive, self._send)
        self._path = path
        self._status = 0
        self._media_type = b""
        self._body = bytearray()
        self._is_too_large = False
        self._received = False

    async def receive(self) -> Event:
        """Return the end of a body that is empty, and then nothing more: the client stays as long
        as the request for all answers."""
        if self._received:
            await asyncio.get_running_loop().create_future()
        self._received = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, event: Event) -> None:
        if event["type"] == "http.response.start":
            self._status = event["status"]
            self._media_type = dict(event["headers"]).get(b"content-type", b"")
        elif not self._is_too_large:
            self._body += event.get("body", b"")
            if len(self._body) > MAX_ANSWER_BYTES:
                self._is_too_large = True
                self._body.clear()

    def answer(self, known: frozenset[str]) -> PartAnswer:
        """Return what was answered, without a body that the client knows."""
        if self._is_too_large:
            return self.refused(
                ErrorCode.BAD_REQUEST, f"an answer of more than {MAX_ANSWER_BYTES} bytes; ask alone"
            )
        if not self._status:
            return self.refused(ErrorCode.READ_UNKNOWN, "no answer")
        if self._media_type.partition(b";")[0] not in _JSON_FORMS:
            return self.refused(ErrorCode.NOT_ACCEPTABLE, "no answer in JSON; ask alone")
        body = bytes(self._body).strip()
        etag = etag_of(self._path.encode() + b"\n" + body).decode().strip('"')
        if etag in known:
            return PartAnswer(self._path, 304, etag, None)
        return PartAnswer(self._path, self._status, etag, msgspec.Raw(body))

    def refused(self, code: ErrorCode, detail: str) -> PartAnswer:
        """Return a problem of its own."""
        body = problem_body(FencelogError(code, detail), self.exchange.path)
        return PartAnswer(self._path, code.status, None, msgspec.Raw(body.strip()))


def _asked(raw: bytes) -> _Asked:
    """Parse the query: ``path`` and ``known``, each as often as wanted. Raises BAD_REQUEST."""
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(raw),
            errors="surrogateescape",
            max_num_fields=2 * MAX_ANSWERS_TOGETHER,
        )
    except ValueError as error:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"query cannot be read: {error}") from None
    found: dict[str, list[str]] = {"path": [], "known": []}
    for name, value in pairs:
        if name not in found:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"unknown query parameter {name!r}; known here: known, path",
                parameter=name,
            )
        found[name].append(value)
        if len(found[name]) > MAX_ANSWERS_TOGETHER:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"more than {MAX_ANSWERS_TOGETHER} of them", parameter=name
            )
    for path in found["path"]:
        if not _PATH.fullmatch(path):
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"{path!r} does not begin with /v1/, or is not percent-encoded",
                parameter="path",
            )
    return _Asked(found["path"], frozenset(found["known"]))
