"""Parsing of batch bodies: against a naive definition, and error by error."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencelog.api.http.json_messages import Columns
from fencelog.api.produce.batch_bodies import parse_json, parse_ndjson, parse_text
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_BATCH_MESSAGES, MAX_HEADERS, MAX_KEY_BYTES

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "key": TEXT,
        "event_time": st.integers(-(2**63), 2**63 - 1),
        "headers": st.dictionaries(TEXT, TEXT, max_size=3),
    },
).flatmap(
    lambda rest: st.one_of(
        TEXT.map(lambda text: {**rest, "text": text}),
        st.binary(max_size=20).map(lambda raw: {**rest, "base64": b64encode(raw).decode()}),
        st.dictionaries(TEXT, st.integers(), max_size=2).map(lambda doc: {**rest, "json": doc}),
    )
)


def rows(columns: Columns) -> list[tuple[Any, ...]]:
    count = len(columns.values)
    keys = columns.keys or [None] * count
    times = columns.event_times or [None] * count
    headers = columns.headers or [()] * count
    return list(zip(columns.values, keys, times, headers, strict=True))


def naive(message: dict[str, Any]) -> tuple[Any, ...]:
    if "text" in message:
        value = message["text"].encode()
    elif "base64" in message:
        value = b64decode(message["base64"])
    else:
        value = json.dumps(message["json"]).encode()
    key = message["key"].encode() if "key" in message else None
    headers = tuple((n, v.encode()) for n, v in message.get("headers", {}).items())
    return value, key, message.get("event_time"), headers


@given(st.lists(MESSAGES, min_size=1, max_size=8))
def test_json_and_ndjson_mean_what_they_say(messages: list[dict[str, Any]]) -> None:
    expected = [naive(message) for message in messages]
    lines = "\n".join(json.dumps(message) for message in messages).encode()
    assert rows(parse_ndjson(lines)) == expected
    assert rows(parse_ndjson(b"\n" + lines.replace(b"\n", b"\r\n \n") + b"\n")) == expected
    assert rows(parse_json(json.dumps({"messages": messages}).encode())) == expected


@given(st.binary(min_size=1, max_size=60))
@example(b"a\n\n\nb\n\n")
def test_text_lines_are_what_split_gives(body: bytes) -> None:
    lines = body.split(b"\n")
    assert list(parse_text(body).values) == (lines[:-1] if body.endswith(b"\n") else lines)


@given(st.binary(max_size=60))
def test_any_bytes_parse_or_are_refused_with_a_code(body: bytes) -> None:
    for parse in (parse_ndjson, parse_json):
        assert _outcome(parse, body) in ("messages", ErrorCode.BAD_REQUEST)


def _outcome(parse: Callable[[bytes], Columns], body: bytes) -> object:
    try:
        return "messages" if parse(body).values else "nothing"
    except FencelogError as error:
        return error.code


@pytest.mark.parametrize(
    ("line", "why", "field"),
    [
        (b'{"text":"a","json":1}', "exactly one", None),
        (b"{}", "exactly one", None),
        (b'{"text":null}', "str", "text"),
        (b'{"txt":"a"}', "unknown field", "txt"),
        (b'{"text":"a","key":1}', "str", "key"),
        (b'{"text":"a","key":"k","key_base64":"aw=="}', "at most one", "key_base64"),
        (b'{"text":"a","headers":{},"headers_base64":[]}', "at most one", "headers_base64"),
        (b'{"text":"a","headers":{"h":1}}', "str", "headers"),
        (b'{"base64":"a="}', "base64", "base64"),
        (b'{"text":"a","event_time":1.5}', "int", "event_time"),
        (b'{"text":"a","event_time":9223372036854775808}', "64-bit", "event_time"),
        (b'{"json":"\xff"}', "UTF-8", "json"),
        (b'{"text":"\xff"}', "utf-8", None),
        (b'{"json":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested", None),
        (b'{"text":"a"}{"text":"b"}', "trailing", None),
        (b"[]", "object", None),
        (b"nonsense", "malformed", None),
    ],
)
def test_the_line_the_field_and_the_reason_are_named(
    line: bytes, why: str, field: str | None
) -> None:
    with pytest.raises(FencelogError) as caught:
        parse_ndjson(b'{"text":"ok"}\n\n' + line + b'\n{"text":"ok"}\n')
    error = caught.value
    assert error.code is ErrorCode.BAD_REQUEST
    assert error.extra["line"] == 3
    assert error.extra.get("field") == field
    assert error.detail.startswith("line 3: ")
    assert why.lower() in error.detail.lower()


def test_an_object_over_two_lines_is_refused() -> None:
    with pytest.raises(FencelogError) as caught:
        parse_ndjson(b'{"text":\n"a"}')
    assert caught.value.extra["line"] == 1


@pytest.mark.parametrize("body", [b"", b"\n", b" \n\r\n"])
def test_a_batch_without_messages_is_refused(body: bytes) -> None:
    with pytest.raises(FencelogError, match="no messages"):
        parse_ndjson(body)


def test_limits_are_named_with_their_place() -> None:
    big_key = {"text": "a", "key": "k" * (MAX_KEY_BYTES + 1)}
    many_headers = {"text": "a", "headers": {str(n): "" for n in range(MAX_HEADERS + 1)}}
    for message, field in ((big_key, "key"), (many_headers, "headers")):
        with pytest.raises(FencelogError) as caught:
            parse_json(json.dumps({"messages": [{"text": "ok"}, message]}).encode())
        assert caught.value.code is ErrorCode.PAYLOAD_TOO_LARGE
        assert (caught.value.extra["index"], caught.value.extra["field"]) == (1, field)


def test_too_many_lines_are_refused_before_they_are_parsed() -> None:
    for parse in (parse_ndjson, parse_text):
        with pytest.raises(FencelogError) as caught:
            parse(b"x\n" * (MAX_BATCH_MESSAGES + 1))
        assert caught.value.code is ErrorCode.PAYLOAD_TOO_LARGE
