"""A single message's key, event time and headers, as HTTP headers of appends and reads.

Values are taken byte for byte; names are lower-case, as in HTTP.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence

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
IDEMPOTENCY_KEY = b"idempotency-key"
DELIVER_AT = b"fencelog-deliver-at"
"""The HTTP header, and the message's own, with the time at which subscriptions deliver it, in µs
since 1970 UTC."""
CLOUD_EVENT_PREFIX = b"ce-"
"""The prefix of the attributes of a CloudEvent, which are kept as headers of the same name."""
CONTENT_TYPE = b"content-type"
_CONTENT_TYPE_NAME = CONTENT_TYPE.decode()
_SAYS_NOTHING = (b"", b"application/octet-stream", b"application/x-www-form-urlencoded")
"""The media types that say nothing of a body: the last is what curl calls all of them."""

_PREFIX = b"fencelog-"
_PREFIXES = (_PREFIX, CLOUD_EVENT_PREFIX)
_CONTENT_ENCODING = b"content-encoding"
METADATA_HEADERS = frozenset(
    (KEY, KEY_BASE64, EVENT_TIME, DELIVER_AT, CONTENT_TYPE, _CONTENT_ENCODING)
)
"""The headers that describe a message, but for those that are kept by their prefix."""
_INTERNAL = frozenset((b"fencelog-forwarded",))
"""The headers that brokers add."""

_KNOWN = "Fencelog-Key, -Key-Base64, -Event-Time, -Deliver-At and -Header-NAME"

_MAX_TIME_US = 2**63 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
"""The limits of an event time, in microseconds."""

_MAX_TIME_DIGITS = 20
"""The length of a 64-bit number and its sign; the broker checks the range."""

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(rb"|[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?")


def read_metadata(raw_headers: RawHeaders) -> Metadata:
    """Return the metadata in the headers of an append. The broker checks the limits of a message.

    Raises FencelogError: BAD_REQUEST (also for a ``Fencelog-`` header that would be lost),
    UNSUPPORTED_MEDIA_TYPE (the body would not be the message).
    """
    return metadata_of(*scan_headers(raw_headers, METADATA_HEADERS))


def scan_headers(
    raw_headers: RawHeaders, names: frozenset[bytes]
) -> tuple[dict[bytes, bytes], list[tuple[str, bytes]]]:
    """Return the headers of these names, each of which may be given once, and those that a message
    keeps by their prefix: one pass for all that an append has to know.

    Raises FencelogError(BAD_REQUEST).
    """
    given: dict[bytes, bytes] = {}
    kept: list[tuple[str, bytes]] = []
    for name, value in raw_headers:
        if name in names:
            if name in given:
                raise _bad(f"{_shown(name)} is given twice")
            given[name] = value
        elif name.startswith(_PREFIXES):
            if name.startswith(HEADER_PREFIX):
                kept.append((name[len(HEADER_PREFIX) :].decode("latin-1"), value))
            elif name.startswith(CLOUD_EVENT_PREFIX):
                kept.append((name.decode("latin-1"), value))
            elif name not in _INTERNAL:
                raise _bad(f"{_shown(name)} is no header of an append; there are {_KNOWN}")
    return given, kept


def metadata_of(given: Mapping[bytes, bytes], kept: Sequence[tuple[str, bytes]]) -> Metadata:
    """Return the metadata in the headers that ``scan_headers`` found. Raises as
    ``read_metadata``."""
    if _CONTENT_ENCODING in given:
        raise FencelogError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, "Content-Encoding is not supported")
    headers = [*kept]
    if DELIVER_AT in given:
        headers.append(deliver_at_header(given[DELIVER_AT]))
    content_type = given.get(CONTENT_TYPE, b"")
    if content_type not in _SAYS_NOTHING and _CONTENT_TYPE_NAME not in dict(headers):
        headers.append((_CONTENT_TYPE_NAME, content_type))
    key = given.get(KEY) if KEY_BASE64 not in given else _coded_key(given)
    event_time = _event_time(given[EVENT_TIME]) if EVENT_TIME in given else None
    return key, event_time, tuple(headers)


def refuse_metadata(raw_headers: RawHeaders) -> None:
    """Refuse the metadata of one message in the headers of a batch, where it would be lost. Raises
    FencelogError(BAD_REQUEST)."""
    for name, _ in raw_headers:
        if name.startswith(_PREFIXES) and name not in _INTERNAL:
            raise _bad(
                f"{_shown(name)} describes one message; in a batch each message has members of its "
                "own, and ?key= is the key of all of them"
            )


def _coded_key(given: Mapping[bytes, bytes]) -> bytes:
    if KEY in given:
        raise _bad("Fencelog-Key and Fencelog-Key-Base64 cannot both be given")
    try:
        return b64decode(given[KEY_BASE64], validate=True)
    except ValueError as error:
        raise _bad(f"Fencelog-Key-Base64 is not valid: {error}") from None


def _event_time(value: bytes) -> int:
    if (
        value.removeprefix(b"-").isdigit()
        and len(value) <= _MAX_TIME_DIGITS
        and INT64_MIN <= (time := int(value)) <= INT64_MAX
    ):
        return time
    shown = value[:40].decode("latin-1")
    raise _bad(f"Fencelog-Event-Time must be microseconds since 1970, not {shown!r}")


def deliver_at_header(value: bytes) -> tuple[str, bytes]:
    """Return the message's header for a delivery time. Raises FencelogError(BAD_REQUEST)."""
    if value.isdigit() and len(value) < _MAX_TIME_DIGITS and int(value) <= _MAX_TIME_US:
        return DELIVER_AT.decode(), value
    shown = value[:40].decode("latin-1")
    raise _bad(f"Fencelog-Deliver-At must be microseconds since 1970, not {shown!r}")


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


def _shown(name: bytes) -> str:
    return name.decode("latin-1").title()[:80]


def _bad(detail: str) -> FencelogError:
    return FencelogError(ErrorCode.BAD_REQUEST, detail)
