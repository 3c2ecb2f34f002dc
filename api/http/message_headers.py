"""A single message's key, event time and headers, as HTTP headers of appends and reads.

Values are taken byte for byte; names are lower-case, as in HTTP.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence

from fencelog.api.http.asgi import RawHeaders
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message

Metadata = tuple[bytes | None, int | None, tuple[tuple[str, bytes], ...]]
"""The key, the event time in µs since 1970 UTC, and the headers."""

KEY = b"fencelog-key"
KEY_BASE64 = b"fencelog-key-base64"
EVENT_TIME = b"fencelog-event-time"
HEADER_PREFIX = b"fencelog-header-"
HEADERS_OMITTED = b"fencelog-headers-omitted"
DELIVER_AT = b"fencelog-deliver-at"
"""The HTTP header, and the message's own, with the time at which subscriptions deliver it, in µs
since 1970 UTC."""
_PREFIX = b"fencelog-"

_MAX_TIME_DIGITS = 20
"""The length of a 64-bit number and its sign; the broker checks the range."""

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(rb"|[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?")


def read_metadata(raw_headers: RawHeaders) -> Metadata:
    """Return the metadata in the headers of an append. The broker checks the limits of a message.

    Raises FencelogError: BAD_REQUEST, UNSUPPORTED_MEDIA_TYPE (the body would not be the message).
    """
    key: bytes | None = None
    event_time: int | None = None
    headers: list[tuple[str, bytes]] = []
    for name, value in raw_headers:
        if not name.startswith(_PREFIX):
            if name == b"content-encoding":
                raise FencelogError(
                    ErrorCode.UNSUPPORTED_MEDIA_TYPE, "Content-Encoding is not supported"
                )
        elif name == KEY:
            if key is not None:
                raise FencelogError(ErrorCode.BAD_REQUEST, "Fencelog-Key is given twice")
            key = value
        elif name == EVENT_TIME:
            event_time = _event_time(value)
        elif name == DELIVER_AT:
            headers.append(deliver_at_header(value))
        elif name.startswith(HEADER_PREFIX):
            headers.append((name[len(HEADER_PREFIX) :].decode("latin-1"), value))
    return key, event_time, tuple(headers)


def _event_time(value: bytes) -> int:
    if value.removeprefix(b"-").isdigit() and len(value) <= _MAX_TIME_DIGITS:
        return int(value)
    shown = value[:40].decode("latin-1")
    raise FencelogError(
        ErrorCode.BAD_REQUEST,
        f"Fencelog-Event-Time must be microseconds since 1970, not {shown!r}",
    )


def deliver_at_header(value: bytes) -> tuple[str, bytes]:
    """Return the message's header for a delivery time. Raises FencelogError(BAD_REQUEST)."""
    if value.isdigit() and len(value) < _MAX_TIME_DIGITS:
        return DELIVER_AT.decode(), value
    shown = value[:40].decode("latin-1")
    raise FencelogError(
        ErrorCode.BAD_REQUEST,
        f"Fencelog-Deliver-At must be microseconds since 1970, not {shown!r}",
    )


def message_headers(message: Message) -> list[tuple[bytes, bytes]]:
    """Return the key, event time and headers, as far as HTTP can carry them.

    A key that it cannot carry is sent as ``Fencelog-Key-Base64``; the number of other headers left
    out is reported, and the JSON forms show them.
    """
    shown: list[tuple[bytes, bytes]] = []
    if message.key is not None:
        if _VALUE.fullmatch(message.key):
            shown.append((KEY, message.key))
        else:
            shown.append((KEY_BASE64, b64encode(message.key)))
    if message.event_time is not None:
        shown.append((EVENT_TIME, b"%d" % message.event_time))
    carried = _carried_headers(message.headers)
    shown += carried
    if len(carried) < len(message.headers):
        omitted = len(message.headers) - len(carried)
        shown.append((HEADERS_OMITTED, b"%d" % omitted))
    return shown


def _carried_headers(headers: Sequence[tuple[str, bytes]]) -> list[tuple[bytes, bytes]]:
    return [
        (HEADER_PREFIX + name.encode(), value)
        for name, value in headers
        if _NAME.fullmatch(name) and _VALUE.fullmatch(value)
    ]
