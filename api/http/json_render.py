"""Messages as JSON objects, as reads show them.

A value appears under exactly one of ``text``, ``json`` and ``base64``. The requested form
(``?as=``) is used where the bytes allow it; other bytes show as ``text`` where they are UTF-8 and
as ``base64`` where not, so that a reader never gets stuck on a message.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from fencelog.api.http.json_messages import (
    BinaryValue,
    HeaderPairs,
    JsonValue,
    KeyBytes,
    TextValue,
)
from fencelog.ledgers.record_batch import Message

_encoder = msgspec.json.Encoder()


class ValueForm(Enum):
    """The form in which values are shown."""

    TEXT = "text"
    JSON = "json"
    BASE64 = "base64"


class StoredMessage(msgspec.Struct, kw_only=True):
    """A message as ``message_object`` shows it. Times in µs since 1970 UTC."""

    partition: int
    offset: int
    publish_time: int
    key: str | UnsetType = UNSET
    key_base64: KeyBytes | UnsetType = UNSET
    event_time: int | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    headers_base64: HeaderPairs | UnsetType = UNSET
    text: TextValue | UnsetType = UNSET
    json: JsonValue | UnsetType = UNSET
    base64: BinaryValue | UnsetType = UNSET


def message_object(
    partition: int, offset: int, publish_time_us: int, message: Message, form: ValueForm
) -> dict[str, Any]:
    """Return one message as an object. Times in µs since 1970 UTC."""
    value, key, event_time, headers = message
    shown: dict[str, Any] = {
        "partition": partition,
        "offset": offset,
        "publish_time": publish_time_us,
    }
    if key is not None:
        _put_text(shown, "key", "key_base64", key)
    if event_time is not None:
        shown["event_time"] = event_time
    if headers:
        _put_headers(shown, headers)
    if form is ValueForm.BASE64:
        shown["base64"] = b64encode(value).decode()
    elif form is ValueForm.TEXT or not _put_json(shown, value):
        _put_text(shown, "text", "base64", value)
    return shown


def encode_objects(objects: Iterable[dict[str, Any]]) -> list[bytes]:
    """Encode each object as JSON on one line."""
    return [_encoder.encode(shown) for shown in objects]


def encode_joined(objects: Sequence[dict[str, Any]], separator: bytes) -> bytes:
    """Encode all objects as JSON, one line each, with a separator between."""
    return separator.join(map(_encoder.encode, objects))


def _put_text(shown: dict[str, Any], text: str, coded: str, value: bytes) -> None:
    """Show bytes under the member ``text`` where they are UTF-8, else under ``coded``."""
    try:
        shown[text] = value.decode()
    except UnicodeDecodeError:
        shown[coded] = b64encode(value).decode()


def _put_json(shown: dict[str, Any], value: bytes) -> bool:
    """Show the value as the JSON it is, on one line; return False if it is none."""
    try:
        value.decode()
        msgspec.json.decode(value)
        breaks = b"\n" in value or b"\r" in value
        one_line = msgspec.json.format(value, indent=-1) if breaks else value
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return False
    shown["json"] = msgspec.Raw(one_line)
    return True


def _put_headers(shown: dict[str, Any], headers: Sequence[tuple[str, bytes]]) -> None:
    """Show ``headers`` as an object where names are unique and values text, else as pairs in
    base64."""
    try:
        plain = {name: value.decode() for name, value in headers}
    except UnicodeDecodeError:
        plain = {}
    if len(plain) == len(headers):
        shown["headers"] = plain
    else:
        shown["headers_base64"] = [(name, b64encode(value).decode()) for name, value in headers]
