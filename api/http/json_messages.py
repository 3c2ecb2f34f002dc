"""Message objects as JSON -> columns of messages, in bulk.

A message object has exactly one of ``text``, ``json``, ``base64``, and optionally ``key`` or
``key_base64``, ``event_time`` and ``deliver_at`` (µs), ``headers`` or ``headers_base64``. Decoding
runs in C, over a whole body at once; this module does what remains for each message.
``batch_bodies`` finds out which message of a body was at fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, NamedTuple, cast

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from fencelog.api.http.message_headers import INT64_MAX, INT64_MIN
from fencelog.ledgers.errors import ErrorCode
from fencelog.ledgers.limits import MAX_HEADER_BYTES, MAX_HEADERS, MAX_KEY_BYTES, MAX_MESSAGE_BYTES

Headers = tuple[tuple[str, bytes], ...]

DELIVER_AT = "fencelog-deliver-at"
"""The header of a message that subscriptions deliver later; µs since 1970 UTC."""


class Columns(NamedTuple):
    """Messages as columns of equal length; a column that no message uses is None."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None] | None = None
    event_times: Sequence[int | None] | None = None
    headers: Sequence[Headers] | None = None

    def take(self, rows: Sequence[int]) -> Columns:
        """Return the messages at these positions."""
        return Columns(
            [self.values[row] for row in rows],
            None if self.keys is None else [self.keys[row] for row in rows],
            None if self.event_times is None else [self.event_times[row] for row in rows],
            None if self.headers is None else [self.headers[row] for row in rows],
        )


KeyBytes = Annotated[bytes, Meta(description="A key that is no UTF-8, instead of `key`")]
HeaderPairs = Annotated[
    list[tuple[str, bytes]],
    Meta(description="Headers with repeated names or other bytes, instead of `headers`"),
]
Int64 = Annotated[int, Meta(extra_json_schema={"minimum": INT64_MIN, "maximum": INT64_MAX})]
Time = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": INT64_MAX})]
TextValue = Annotated[str, Meta(description="The value as UTF-8 text")]
JsonValue = Annotated[Raw, Meta(description="The value as any JSON")]
BinaryValue = Annotated[bytes, Meta(description="The value's bytes")]


class MessageFields(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    key: str | None = None
    key_base64: KeyBytes | None = None
    event_time: Int64 | None = None
    deliver_at: Time | None = None
    headers: dict[str, str] | None = None
    headers_base64: HeaderPairs | None = None


class TextMessage(MessageFields, forbid_unknown_fields=True, gc=False, kw_only=True):
    """The form of nearly every message; decoding with it proves that ``text`` is the only value."""

    text: str


class AnyMessage(MessageFields, forbid_unknown_fields=True, gc=False, kw_only=True):
    """A message to append, with exactly one of ``text``, ``json`` and ``base64``. Times in µs."""

    text: TextValue | UnsetType = UNSET
    json: JsonValue | UnsetType = UNSET
    base64: BinaryValue | UnsetType = UNSET


Messages = Sequence[TextMessage | AnyMessage]

_EXTRAS = attrgetter("key", "key_base64", "event_time", "deliver_at", "headers", "headers_base64")
_NO_EXTRAS = (None, None, None, None, None, None)


class InvalidMessage(Exception):
    """The error of a message that is not acceptable; the caller knows which one."""

    def __init__(
        self, why: str, field: str | None = None, code: ErrorCode = ErrorCode.BAD_REQUEST
    ) -> None:
        super().__init__(why)
        self.why = why
        self.field = field
        self.code = code


def columns_of(messages: Messages) -> Columns:
    """Turn messages into columns. Raises InvalidMessage for the first message that is not
    acceptable, without saying which."""
    values = [_value(message) for message in messages]
    extras = list(map(_EXTRAS, messages))
    if extras.count(_NO_EXTRAS) == len(extras):
        return Columns(values)
    keys = [_key(key, coded) for key, coded, *_ in extras]
    times = [_event_time(time) for _, _, time, *_ in extras]
    headers = [_headers(plain, coded, due) for *_, due, plain, coded in extras]
    return Columns(
        values,
        keys if keys.count(None) < len(keys) else None,
        times if times.count(None) < len(times) else None,
        headers if any(headers) else None,
    )


def _value(message: TextMessage | AnyMessage) -> bytes:
    value = _any_value(message) if isinstance(message, AnyMessage) else message.text.encode()
    if len(value) > MAX_MESSAGE_BYTES:
        raise _too_large("value", len(value), MAX_MESSAGE_BYTES)
    return value


def _any_value(message: AnyMessage) -> bytes:
    text, raw, base64 = message.text, message.json, message.base64
    if (text is not UNSET) + (raw is not UNSET) + (base64 is not UNSET) != 1:
        raise InvalidMessage("a message has exactly one of text, json and base64")
    if text is not UNSET:
        return text.encode()
    if base64 is not UNSET:
        return base64
    json = bytes(cast("Raw", raw))
    try:
        json.decode()
    except UnicodeDecodeError as error:
        raise InvalidMessage(f"json is not UTF-8: {error}", "json") from None
    return json


def _key(key: str | None, coded: bytes | None) -> bytes | None:
    if key is not None:
        if coded is not None:
            raise InvalidMessage("a message has at most one of key and key_base64", "key_base64")
        coded = key.encode()
    if coded is not None and len(coded) > MAX_KEY_BYTES:
        raise _too_large("key", len(coded), MAX_KEY_BYTES)
    return coded


def _event_time(time: int | None) -> int | None:
    if time is not None and not INT64_MIN <= time <= INT64_MAX:
        raise InvalidMessage("event_time is no 64-bit number of microseconds", "event_time")
    return time


def _headers(
    plain: dict[str, str] | None, coded: list[tuple[str, bytes]] | None, deliver_at: int | None
) -> Headers:
    if plain is not None:
        if coded is not None:
            raise InvalidMessage(
                "a message has at most one of headers and headers_base64", "headers_base64"
            )
        coded = [(name, value.encode()) for name, value in plain.items()]
    if deliver_at is not None:
        if not 0 <= deliver_at <= INT64_MAX:
            raise InvalidMessage("deliver_at is no time in microseconds since 1970", "deliver_at")
        coded = [(DELIVER_AT, b"%d" % deliver_at), *(coded or ())]
    if not coded:
        return ()
    if len(coded) > MAX_HEADERS:
        raise _too_large("headers", len(coded), MAX_HEADERS, unit="headers")
    size = sum(len(name.encode()) + len(value) for name, value in coded)
    if size > MAX_HEADER_BYTES:
        raise _too_large("headers", size, MAX_HEADER_BYTES)
    return tuple(coded)


def _too_large(field: str, size: int, limit: int, unit: str = "bytes") -> InvalidMessage:
    why = f"{field}: {size} {unit}, at most {limit}"
    return InvalidMessage(why, field, ErrorCode.PAYLOAD_TOO_LARGE)
