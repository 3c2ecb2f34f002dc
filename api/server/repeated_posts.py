"""Single posts whose head repeats the previous one: appended without being parsed again.

A producer on a kept-alive connection sends the same head each time, but for the digits of its
Content-Length. Where every other byte is equal, parsing it would have the same result. This module
remembers the meaning of the first request and passes the bodies of the next ones straight to the
log; any other request, and any that cannot be appended here at once, goes the ordinary way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fencelog.api.http.asgi import RawHeaders
from fencelog.api.produce.append_headers import TERM_HEADERS
from fencelog.ledgers.limits import MAX_MESSAGE_BYTES

_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})\r\n", re.IGNORECASE)
_END_OF_HEAD = b"\r\n\r\n"
_MAX_HEAD_BYTES = 4096

NOT_REPEATED = TERM_HEADERS | {
    b"expect",
    b"transfer-encoding",
    b"upgrade",
    b"content-encoding",
    b"fencelog-forwarded",
}
"""The headers of requests that are more than a head and a body, that this broker may not forward,
or that are conditional: a request that repeats such a head repeats an append, and is answered in
another way."""


@dataclass(frozen=True, slots=True)
class Head:
    """A request's head, cut at the digits of its Content-Length."""

    before: bytes
    after: bytes

    def body_of(self, data: bytes) -> bytes | None:
        """Return the body, if ``data`` is exactly one request with this head; else None."""
        before = len(self.before)
        if not data.startswith(self.before):
            return None
        end = data.find(b"\r", before, before + 10)
        digits = data[before:end]
        start = end + len(self.after)
        if end < 0 or not digits.isdigit() or not data.startswith(self.after, end):
            return None
        size = int(digits)
        if len(data) - start != size or size > MAX_MESSAGE_BYTES:
            return None
        return data[start:]


def repeatable_head(data: bytes, headers: RawHeaders) -> Head | None:
    """Return the head of ``data``, one whole request with these (parsed) headers, if a request that
    repeats it may be treated as the same; else None."""
    end = data.find(_END_OF_HEAD, 0, _MAX_HEAD_BYTES) + len(_END_OF_HEAD)
    found = _CONTENT_LENGTH.search(data, 0, end)
    names = [name for name, _ in headers]
    if found is None or names.count(b"content-length") != 1 or not NOT_REPEATED.isdisjoint(names):
        return None
    head = Head(data[: found.start(1)], data[found.end(1) : end])
    return head if head.body_of(data) is not None else None
