"""The request of a read: position, bounds, form. Query and headers -> one checked value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from fencelog.api.http.accept import preferred
from fencelog.api.http.asgi import BATCH, EVENT_STREAM, JSON, NDJSON, Exchange, parse_number
from fencelog.api.http.json_render import ValueForm
from fencelog.broker.limits import MAX_READ_MESSAGES, MAX_WAIT_MS
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_READ_BYTES, MIB

PARAMETERS = frozenset(
    ("from", "from_time", "limit", "max_bytes", "wait", "as", "view", "topic_id")
)

MAX_OFFSET = 2**63 - 1
MAX_TIME_US = 2**63 - 1

DEFAULT_JSON_LIMIT = 10_000
"""The messages in an answer of JSON, unless asked otherwise: about 20 ms of the event loop."""

DEFAULT_JSON_BYTES = 1 * MIB

_FORMS = (JSON, NDJSON, BATCH, EVENT_STREAM)


class NamedPosition(Enum):
    """The positions that are not offsets."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Time:
    """The position of the first message published at or after this time, in µs since 1970 UTC."""

    us: int


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The request of a read. ``limit`` is None for an event stream without end. Sizes in bytes.
    ``compacted``: of the view that holds the newest message of every key. ``topic_id``: of the
    topic that is meant, if any will not do."""

    start: int | NamedPosition | Time
    limit: int | None
    max_bytes: int
    wait_ms: int
    value_form: ValueForm
    media_type: bytes
    compacted: bool
    topic_id: str | None


def read_request(exchange: Exchange) -> ReadRequest:
    """Parse the request. Raises FencelogError(BAD_REQUEST) naming the parameter or header."""
    query = exchange.query(PARAMETERS)
    media_type = preferred(exchange.header(b"accept"), _FORMS)
    whole_batches = media_type == BATCH
    limit: int | None = MAX_READ_MESSAGES if whole_batches else DEFAULT_JSON_LIMIT
    if "limit" in query:
        limit = parse_number("limit", query["limit"], low=1, high=MAX_READ_MESSAGES)
    elif media_type == EVENT_STREAM:
        limit = None
    max_bytes = MAX_READ_BYTES if whole_batches else DEFAULT_JSON_BYTES
    if "max_bytes" in query:
        max_bytes = parse_number("max_bytes", query["max_bytes"], low=1, high=MAX_READ_BYTES)
    start = _start(query)
    last_event_id = exchange.header(b"last-event-id")
    if last_event_id:
        last_offset = _last_offset(last_event_id)
        if media_type == EVENT_STREAM:
            start = last_offset + 1
    return ReadRequest(
        start=start,
        limit=limit,
        max_bytes=max_bytes,
        wait_ms=parse_wait_ms(query.get("wait", "0")),
        value_form=value_form(query.get("as", ValueForm.TEXT.value)),
        media_type=media_type,
        compacted=_is_compacted(query.get("view", "log")),
        topic_id=query.get("topic_id"),
    )


def _start(query: dict[str, str]) -> int | NamedPosition | Time:
    if "from_time" in query:
        if "from" in query:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, "from and from_time together", parameter="from_time"
            )
        return Time(parse_number("from_time", query["from_time"], low=0, high=MAX_TIME_US))
    text = query.get("from", NamedPosition.EARLIEST.value)
    if text == NamedPosition.EARLIEST.value:
        return NamedPosition.EARLIEST
    if text == NamedPosition.LATEST.value:
        return NamedPosition.LATEST
    if _is_offset(text):
        return int(text)
    raise FencelogError(
        ErrorCode.BAD_REQUEST,
        f"from must be earliest, latest or an offset, not {text[:40]!r}",
        parameter="from",
    )


def _last_offset(last_event_id: bytes) -> int:
    text = last_event_id.decode("latin-1").strip()
    if not _is_offset(text):
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"Last-Event-ID {text[:40]!r} is no offset of this stream"
        )
    return int(text)


def _is_offset(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= MAX_OFFSET


def _is_compacted(text: str) -> bool:
    if text not in ("log", "compacted"):
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"view must be log or compacted, not {text[:40]!r}",
            parameter="view",
        )
    return text == "compacted"


def parse_wait_ms(text: str) -> int:
    """Return the time of a long poll, given in seconds. Raises FencelogError(BAD_REQUEST)."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds * 1000 <= MAX_WAIT_MS:  # false for NaN too
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"wait must be 0 to {MAX_WAIT_MS // 1000} seconds, not {text[:40]!r}",
            parameter="wait",
        )
    return int(seconds * 1000)


def value_form(text: str) -> ValueForm:
    try:
        return ValueForm(text)
    except ValueError:
        forms = ", ".join(form.value for form in ValueForm)
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"as must be one of {forms}, not {text[:40]!r}", parameter="as"
        ) from None
