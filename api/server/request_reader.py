"""The receiving half of a connection: from bytes to requests, by httptools, within limits."""

from __future__ import annotations

import logging
from typing import Protocol

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl

from fencelog.api.http.request_ids import REQUEST_ID, framed_request
from fencelog.api.http.request_spans import TRACEPARENT_HEADER
from fencelog.api.produce.known_heads import (
    HEAD_END,
    MAX_KNOWN_HEAD_BYTES,
    HeadForm,
    KnownHead,
    KnownHeads,
)
from fencelog.api.produce.post import Post
from fencelog.api.routing.link_frames import FORWARDED, UPGRADE
from fencelog.api.server.connections import Connections
from fencelog.api.server.limits import (
    BODY_S,
    BODY_STALL_S,
    HEAD_S,
    MAX_DIRECT_BODY_BYTES,
    MAX_HEAD_BYTES,
)
from fencelog.api.server.origins_core import ORIGIN_HEADERS
from fencelog.api.server.request import Headers, HttpRequest, check_framing
from fencelog.ledgers.errors import ErrorCode, FencelogError

_FRAMING = frozenset(
    (
        b"host",
        b"content-length",
        b"connection",
        b"expect",
        b"prefer",
        b"transfer-encoding",
        b"upgrade",
        FORWARDED,
        REQUEST_ID,
        TRACEPARENT_HEADER,
        *ORIGIN_HEADERS,
    )
)
"""The headers that say how a request is to be received and passed on, and whether it may be; and
its id and trace."""

MAX_FORMS = 4
"""The forms of heads that a connection remembers: posts with and without a key, for example."""

_HEAD_TOO_LARGE = FencelogError(
    ErrorCode.HEAD_TOO_LARGE, f"the head is larger than {MAX_HEAD_BYTES} bytes"
)

_log = logging.getLogger(__name__)


class Receiver(Protocol):
    """The taker of what is received."""

    def take_head(self, request: HttpRequest) -> None:
        """Take a request whose head is complete: it gets a ``post`` or a ``cycle`` now."""

    def take_request(self, request: HttpRequest) -> None:
        """Take a request that is complete."""

    @property
    def may_become_link(self) -> bool:
        """Tell whether another broker may have a link here now."""

    def become_link(self) -> None:
        """Make a link of the connection: the head that was received last has asked for it."""

    def refuse(self, error: FencelogError) -> None:
        """Note that nothing that arrives from now on is a request."""


class RequestReader:
    """The reader of one connection. ``receiving``: the request whose body arrives.

    ``is_in_message``: a part of a request has arrived, but not all of it.
    """

    def __init__(
        self,
        receiver: Receiver,
        connections: Connections,
        flow: FlowControl,
        heads: KnownHeads | None = None,
    ) -> None:
        self.receiving: HttpRequest | None = None
        self.is_in_message = False
        self._receiver = receiver
        self._connections = connections
        self._flow = flow
        self._heads = heads
        self._head = b""
        """The head at the beginning of what is being parsed, if it may become known."""
        self._forms: list[HeadForm] = []
        """The forms of heads that came here, the last one first."""
        self._learnt_forms = 0
        self._parser = httptools.HttpRequestParser(self)
        # A client may send more after ``Connection: close``; it is ignored, not an error.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._is_in_head = self._had_body = self._has_ended = self._is_link = False
        self._url = b""
        self._headers: Headers = []
        self._framing: dict[bytes, bytes] = {}
        self._piece_bytes = self._silent_bytes = 0
        # The bytes among the silent ones that came with the end of the request before.
        self._shared_bytes = 0
        self._ended_another = False
        self._begun_s = self._grown_s = connections.now_s

    @property
    def url(self) -> bytes:
        """The URL of the head that was received last, as far as it was."""
        return self._url

    def end(self) -> None:
        """Ignore everything from now on."""
        self._has_ended = True
        self.receiving = None

    def feed(self, data: bytes) -> None:
        """Parse what has arrived."""
        heads = self._heads
        if heads is not None and not self.is_in_message and self._take_known(heads, data):
            return
        self._piece_bytes = len(data)
        self._ended_another = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Any other one was taken as HTTP/1.1, and the answer to it ends the connection.
            if self._is_link:
                self._receiver.become_link()
                return
        except httptools.HttpParserError as error:
            if isinstance(error, httptools.HttpParserCallbackError):
                _log.error("a callback of the parser failed", exc_info=error)
            detail = f"this is no request of HTTP/1.1: {error}"
            self._receiver.refuse(FencelogError(ErrorCode.BAD_REQUEST, detail))
            return
        if self.is_in_message:
            self._count_piece(len(data))

    def _take_known(self, heads: KnownHeads, data: bytes) -> bool:
        """Take what has arrived, if it is one whole post whose head is known; return whether it is.
        The parser, which is between two requests, need not see it."""
        self._head = b""
        end = data.find(HEAD_END, 0, MAX_KNOWN_HEAD_BYTES) + len(HEAD_END)
        head, body_bytes = data[:end], len(data) - end
        if self._has_ended or end < len(HEAD_END) or not data.startswith(b"POST "):
            return False
        if not body_bytes:
            return False  # it comes later, as many clients send it: the parser is needed anyway
        found = heads.find(head)
        known = found or self._read_by_form(heads, head)
        if known is None or body_bytes != known.body_bytes or body_bytes > MAX_DIRECT_BODY_BYTES:
            self._head = head if known is None else b""
            return False
        if found is None:
            heads.note(head, known)
        self._url = known.url
        request = HttpRequest(b"POST", known.url, known.headers, known.framing, True)
        request.post = known.post
        request.body = data[end:]
        request.is_received = True
        self._receiver.take_request(request)
        return True

    def _read_by_form(self, heads: KnownHeads, head: bytes) -> KnownHead | None:
        """Read a head that has one of the forms that this connection has had lately."""
        forms = self._forms
        for form in forms:
            known = heads.read(head, form)
            if known is not None:
                if form is not forms[0]:
                    forms.remove(form)
                    forms.insert(0, form)
                return known
        return None

    def overdue(self, now_s: float) -> FencelogError | None:
        """Return the error for a request that arrives too slowly."""
        if self._is_in_head:
            if now_s - self._begun_s > HEAD_S:
                return _too_slow(f"the head did not arrive within {HEAD_S} s")
        elif now_s - self._begun_s > BODY_S:
            return _too_slow(f"the body did not arrive within {BODY_S} s")
        elif now_s - self._grown_s > BODY_STALL_S:
            return _too_slow(f"no more of the body came for {BODY_STALL_S} s")
        return None

    def _count_piece(self, size: int) -> None:
        """Count what has arrived of an incomplete request. The parser keeps headers, and trailers
        of a chunked body, until they are whole."""
        if self._had_body:
            self._silent_bytes = self._shared_bytes = 0
        else:
            self._silent_bytes += size
            if self._ended_another:
                self._shared_bytes = size
        self._had_body = False
        self._grown_s = self._connections.now_s
        if self._silent_bytes - self._shared_bytes > MAX_HEAD_BYTES:
            self._receiver.refuse(_HEAD_TOO_LARGE)

    # -- called by the parser --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._begun_s = self._connections.now_s
        self.is_in_message = self._is_in_head = True
        self._silent_bytes = self._shared_bytes = 0
        self._had_body = False
        self._url = b""
        self._headers = []
        self._framing = {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head:
            return  # A trailer, which nothing here uses.
        name = name.lower()
        if name in _FRAMING:
            given = self._framing.get(name)
            self._framing[name] = value if given is None else b"%b, %b" % (given, value)
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        if self._has_ended:
            return
        parser, version = self._parser, self._parser.get_http_version()
        upgrades = parser.should_upgrade()  # Also true of each CONNECT.
        refusal = check_framing(self._framing, version, upgrades=upgrades)
        is_large = self._silent_bytes + self._piece_bytes > MAX_HEAD_BYTES
        if is_large and self._head_bytes() > MAX_HEAD_BYTES:
            refusal = _HEAD_TOO_LARGE
        if refusal is not None:
            self._receiver.refuse(refusal)
            return
        self._is_link = (
            upgrades and self._framing.get(b"upgrade") == UPGRADE and self._receiver.may_become_link
        )
        if self._is_link:
            return
        keep_alive = (
            not upgrades
            and parser.should_keep_alive()
            and version != "1.0"
            and b"upgrade" not in self._framing
        )
        if not keep_alive:
            self._heads = None  # What follows is no request.
        request = self.receiving = HttpRequest(
            parser.get_method(), self._url, self._headers, self._framing, keep_alive, version
        )
        if REQUEST_ID in self._framing:
            request.current = framed_request(self._framing)
        self._receiver.take_head(request)
        head, self._head = self._head, b""
        heads, post, has_id = self._heads, request.post, request.current is not None
        if head and heads is not None and post is not None and not has_id:
            self._learn(heads, head, request, post)

    def _learn(self, heads: KnownHeads, head: bytes, request: HttpRequest, post: Post) -> None:
        """Have the head of a post known; and its form, unless the forms of this connection change
        too often to be worth it."""
        may_learn = self._learnt_forms < 2 * MAX_FORMS
        form = heads.learn(
            head, request.url, request.headers, request.framing, post, with_form=may_learn
        )
        if form is not None and form not in self._forms:
            self._learnt_forms += 1
            self._forms = [form, *self._forms[: MAX_FORMS - 1]]

    def on_body(self, body: bytes) -> None:
        self._had_body = True
        request = self.receiving
        if request is None:
            return
        cycle = request.cycle
        if cycle is None:
            request.body = request.body + body if request.body else body
        elif not cycle.response_complete:
            cycle.add_body(body)
            if cycle.waiting_bytes > HIGH_WATER_LIMIT:
                self._flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        self.is_in_message = False
        self._ended_another = True
        request, self.receiving = self.receiving, None
        if request is None:
            return
        request.is_received = True
        if request.cycle is not None:
            request.cycle.more_body = False
            request.cycle.message_event.set()
        self._receiver.take_request(request)

    def _head_bytes(self) -> int:
        return len(self._url) + sum(len(name) + len(value) for name, value in self._headers)


def _too_slow(detail: str) -> FencelogError:
    return FencelogError(ErrorCode.REQUEST_TOO_SLOW, detail)
