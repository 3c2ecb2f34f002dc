"""Bodies of ``:batch`` requests -> columns of messages: JSON, NDJSON and lines of text.

A body is decoded in bulk; only when that fails is it walked message by message, to name the line
or index at fault. Nothing of a batch with an error is written, so the first one is enough.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from fencelog.api.http.json_messages import (
    AnyMessage,
    Columns,
    InvalidMessage,
    Messages,
    TextMessage,
    columns_of,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_BATCH_MESSAGES, MAX_MESSAGE_BYTES


class _TextBatch(msgspec.Struct, forbid_unknown_fields=True):
    messages: list[TextMessage]


class AnyBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Messages to append together."""

    messages: Annotated[list[AnyMessage], Meta(extra_json_schema={"minItems": 1})]


_text_line = msgspec.json.Decoder(TextMessage)
_any_line = msgspec.json.Decoder(AnyMessage)
_text_batch = msgspec.json.Decoder(_TextBatch)
_any_batch = msgspec.json.Decoder(AnyBatch)

_MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_ELEMENT = re.compile(r"at `\$\.messages\[(\d+)\]")
_FIELD = re.compile(r"\.(\w+)(?:\[[^\]]*\])*`$")
_UNKNOWN_FIELD = re.compile(r"field `([^`]+)`")


# -- the three bodies ----------------------------------------------------------------------------


def parse_ndjson(body: bytes) -> Columns:
    """Parse ``application/x-ndjson``: one message object in each line; blank lines are skipped.

    Raises FencelogError with ``line`` (from 1) and ``field`` where one is at fault.
    """
    _check_count(body.count(b"\n") + (not body.endswith(b"\n")), "lines")
    try:
        messages = _decode_lines(body)
        if messages and len(messages) == _count_filled(body):
            return columns_of(messages)
    except (*_MALFORMED, InvalidMessage):
        pass
    raise _locate_line(body)


def parse_json(body: bytes) -> Columns:
    """Parse ``application/json``: ``{"messages": [...]}``.

    Raises FencelogError with ``index`` (from 0) and ``field`` where one is at fault.
    """
    try:
        messages: Messages = _text_batch.decode(body).messages
    except _MALFORMED:
        try:
            messages = _any_batch.decode(body).messages
        except _MALFORMED as error:
            raise _locate_in_document(error) from None
    _check_count(len(messages), "messages")
    try:
        return columns_of(messages)
    except InvalidMessage:
        raise _locate_index(messages) from None


def parse_text(body: bytes) -> Columns:
    r"""Parse ``text/plain``: the bytes of a line are a message; ``\n`` ends a line, the last one
    too.

    A ``\r`` belongs to its message; an empty line is an empty message.
    """
    lines = body.count(b"\n") + (not body.endswith(b"\n"))
    _check_count(lines if body else 0, "lines")
    values = body.split(b"\n")
    if not values[-1]:
        values.pop()
    if len(body) > MAX_MESSAGE_BYTES:
        for number, value in enumerate(values, start=1):
            if len(value) > MAX_MESSAGE_BYTES:
                raise FencelogError(
                    ErrorCode.PAYLOAD_TOO_LARGE,
                    f"line {number}: {len(value)} bytes, a message has at most {MAX_MESSAGE_BYTES}",
                    line=number,
                )
    return Columns(values)


def _decode_lines(body: bytes) -> Messages:
    try:
        return _text_line.decode_lines(body)
    except _MALFORMED:
        return _any_line.decode_lines(body)


def _count_filled(body: bytes) -> int:
    """Count the lines that are not blank: two objects in one line, or one over two lines, are
    refused."""
    return sum(map(bool, map(bytes.strip, body.split(b"\n"))))


def _check_count(count: int, unit: str) -> None:
    if count > MAX_BATCH_MESSAGES:
        raise FencelogError(
            ErrorCode.PAYLOAD_TOO_LARGE,
            f"a batch has at most {MAX_BATCH_MESSAGES} messages, this one {count} {unit}",
        )
    if count == 0:
        raise FencelogError(ErrorCode.BAD_REQUEST, "the batch has no messages")


# -- where an error is ---------------------------------------------------------------------------


def _locate_line(body: bytes) -> FencelogError:
    """Return the error of the first line that is no acceptable message."""
    for number, line in enumerate(body.split(b"\n"), start=1):
        if line.strip():
            invalid = _why_invalid(line)
            if invalid is not None:
                return _error(f"line {number}", invalid, line=number)
    return FencelogError(ErrorCode.BAD_REQUEST, "the batch has no messages")


def _why_invalid(line: bytes) -> InvalidMessage | None:
    try:
        columns_of([_any_line.decode(line)])
    except InvalidMessage as invalid:
        return invalid
    except _MALFORMED as error:
        return _from_decoder(error)
    return None


def _locate_index(messages: Messages) -> FencelogError:
    """Return the error of the first message of the list that is not acceptable."""
    for index, message in enumerate(messages):
        try:
            columns_of([message])
        except InvalidMessage as invalid:
            return _error(f"messages[{index}]", invalid, index=index)
    raise AssertionError("every message is acceptable alone, but not together")


def _locate_in_document(error: Exception) -> FencelogError:
    """Return the error at the place where the decoder stopped: it names the element where the JSON
    itself is well-formed."""
    match = _ELEMENT.search(str(error))
    if match is None:
        return _error("body", _from_decoder(error))
    index = int(match[1])
    return _error(f"messages[{index}]", _from_decoder(error), index=index)


def _from_decoder(error: Exception) -> InvalidMessage:
    if isinstance(error, RecursionError):
        return InvalidMessage("JSON is nested too deeply")
    text, _, path = str(error).partition(" - at `$")
    field = _UNKNOWN_FIELD.search(text) or _FIELD.search(path)
    return InvalidMessage(text, field[1] if field else None)


def _error(place: str, invalid: InvalidMessage, **where: int) -> FencelogError:
    named = {} if invalid.field is None else {"field": invalid.field}
    return FencelogError(invalid.code, f"{place}: {invalid.why}", **where, **named)
