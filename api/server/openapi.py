"""The endpoints on plain ASGI, which FastAPI does not know, for ``/openapi.json`` and ``/docs``."""

from __future__ import annotations

from typing import Any

from fencelog.api.admin.models import Problem
from fencelog.api.server.partition_openapi import partition_paths
from fencelog.api.server.producers_openapi import CONDITIONS, producer_paths
from fencelog.api.server.read_openapi import read_paths
from fencelog.api.server.subscription_openapi import subscription_paths, subscription_schemas
from fencelog.broker.limits import MAX_BODY_BYTES, MAX_READ_MESSAGES, MAX_WAIT_MS
from fencelog.ledgers.limits import MAX_BATCH_MESSAGES, MAX_MESSAGE_BYTES, MAX_READ_BYTES

DESCRIPTION = """A durable, replicated, fenced log over plain HTTP.

Errors are RFC 9457 problems: `code` names what went wrong, `retryable` whether the same request
may be sent again, `side_effects` whether it may have taken effect all the same. Times are integer
microseconds since 1970 UTC. Any broker answers any request."""

Json = dict[str, Any]

_INT64: Json = {"type": "integer", "format": "int64"}
_TEXT: Json = {"type": "string"}
_BYTES: Json = {"type": "string", "format": "binary"}
_CODED: Json = {"type": "string", "contentEncoding": "base64"}


def add_hot_paths(document: Json) -> Json:
    """Return the document with the appends and reads in it."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(_schemas() | subscription_schemas())
    partition = "/v1/topics/{namespace}/{topic}/partitions/{partition}"
    document["paths"].update(
        {
            "/v1/topics/{namespace}/{topic}/messages": {"post": _produce()},
            "/v1/topics/{namespace}/{topic}/messages:batch": {"post": _produce_batch()},
            f"{partition}/messages": {"get": _read()},
            f"{partition}/messages/{{offset}}": {"get": _read_one()},
            f"{partition}/segments": {"get": _segments()},
            **subscription_paths(),
            **producer_paths(),
            **partition_paths(),
            **read_paths(),
        }
    )
    return document


# -- operations ----------------------------------------------------------------------------------


def _produce() -> Json:
    return _operation(
        "append_message",
        "Append one message: the body, verbatim",
        f"At most {MAX_MESSAGE_BYTES} bytes. Header `Fencelog-Header-NAME` adds a header `name`. "
        "Without a partition a key decides (CRC32C modulo partitions), else partitions take turns.",
        [
            *_TOPIC,
            _query("partition", _INT64, "Append to this partition"),
            _query("key", _TEXT, "The message's key, percent-encoded; instead of Fencelog-Key"),
            _header("Fencelog-Key", _TEXT, "The message's key"),
            _header("Fencelog-Event-Time", _INT64, "µs since 1970 UTC"),
            _header("Fencelog-Deliver-At", _INT64, "Subscriptions hand it out then; µs since 1970"),
            _query("delay_ms", _INT64, "Subscriptions hand it out so much later"),
            *CONDITIONS,
        ],
        _appended("AppendedMessage"),
        {"*/*": _BYTES},
    )


def _produce_batch() -> Json:
    return _operation(
        "append_batch",
        "Append many messages, atomically per partition",
        f"At most {MAX_BODY_BYTES} bytes and {MAX_BATCH_MESSAGES} messages. A mistake in one "
        "message (the problem names its `line` or `index`) refuses all of them.",
        [
            *_TOPIC,
            _query("partition", _INT64, "Append all of it to this partition"),
            _query("key", _TEXT, "Append all of it to this key's partition"),
            *CONDITIONS,
        ],
        _appended("AppendedBatch"),
        {
            "application/json": _ref("Messages"),
            "application/x-ndjson": _ref("Message"),
            "text/plain": {"type": "string", "description": "A line is a message"},
            "application/vnd.fencelog.batch": _BYTES,
        },
    )


def _appended(schema: str) -> Json:
    content = {"application/json": _ref(schema)}
    repeated = _answer("It was durable before", content, {"Duplicate": {"type": "boolean"}})
    return {"201": _answer("Durable", content), "200": repeated}


def _read() -> Json:
    return _operation(
        "read_messages",
        "Read from a position on",
        "The form is chosen by Accept. An event stream sends `message`, `control`, `ping` and "
        "`problem` events and resumes after `Last-Event-ID`.",
        [
            *_PARTITION,
            _query("from", _TEXT, "earliest (default), latest, or an offset"),
            _query("from_time", _INT64, "Instead: the first message published at or after it"),
            _query("view", {"enum": ["log", "compacted"]}, "compacted: the newest of every key"),
            _query("limit", _INT64, f"Messages, at most {MAX_READ_MESSAGES}"),
            _query("max_bytes", _INT64, f"Stored bytes, at most {MAX_READ_BYTES}"),
            _query("wait", {"type": "number"}, f"At the tail: seconds, to {MAX_WAIT_MS // 1000}"),
            _query("as", {"enum": ["text", "json", "base64"]}, "How values are shown in JSON"),
            _header("Last-Event-ID", _INT64, "Event streams go on after this offset"),
        ],
        {
            "200": _answer(
                "Messages, perhaps none",
                {
                    "application/json": _ref("ReadAnswer"),
                    "application/x-ndjson": _ref("StoredMessage"),
                    "application/vnd.fencelog.batch": _BYTES,
                    "text/event-stream": _TEXT,
                },
                {
                    "Next-Offset": _INT64,
                    "Tail-Offset": _INT64,
                    "At-Tail": {"type": "boolean"},
                    "End-Of-Topic": {"type": "boolean"},
                },
            )
        },
    )


def _read_one() -> Json:
    headers = {
        "Fencelog-Key": _TEXT,
        "Fencelog-Event-Time": _INT64,
        "Fencelog-Publish-Time": _INT64,
    }
    return _operation(
        "read_message",
        "One message's bytes",
        "Its metadata travels in headers, as in an append.",
        [*_PARTITION, _path("offset", _INT64)],
        {"200": _answer("The bytes", {"application/octet-stream": _BYTES}, headers)},
    )


def _segments() -> Json:
    return _operation(
        "list_segments",
        "The ledgers of a partition, for readers of storage",
        "Up to the end that the owner has confirmed, with the bookies that hold them.",
        list(_PARTITION),
        {"200": _answer("Segments", {"application/json": {"type": "object"}})},
    )


def _operation(
    name: str,
    summary: str,
    text: str,
    parameters: list[Json],
    responses: Json,
    body: Json | None = None,
) -> Json:
    operation: Json = {
        "tags": ["messages"],
        "operationId": name,
        "summary": summary,
        "description": text,
        "parameters": parameters,
        "responses": {
            **responses,
            "default": _answer("Problem (RFC 9457)", {"application/problem+json": _ref("Problem")}),
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _content(body)}
    return operation


def _answer(text: str, content: Json, headers: Json | None = None) -> Json:
    answer: Json = {"description": text, "content": _content(content)}
    if headers:
        answer["headers"] = {name: {"schema": schema} for name, schema in headers.items()}
    return answer


def _content(content: Json) -> Json:
    return {media_type: {"schema": schema} for media_type, schema in content.items()}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _path(name: str, schema: Json) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query(name: str, schema: Json, text: str) -> Json:
    return {"name": name, "in": "query", "schema": schema, "description": text}


def _header(name: str, schema: Json, text: str) -> Json:
    return {"name": name, "in": "header", "schema": schema, "description": text}


_TOPIC = (_path("namespace", _TEXT), _path("topic", _TEXT))
_PARTITION = (*_TOPIC, _path("partition", _INT64))


# -- schemas -------------------------------------------------------------------------------------


def _schemas() -> Json:
    value: Json = {
        "text": {**_TEXT, "description": "The value as UTF-8 text"},
        "json": {"description": "The value as any JSON"},
        "base64": {**_CODED, "description": "The value's bytes"},
        "key": _TEXT,
        "key_base64": {**_CODED, "description": "A key that is no UTF-8, instead of `key`"},
        "headers": {"type": "object", "additionalProperties": _TEXT},
        "headers_base64": {
            "type": "array",
            "items": {"type": "array", "prefixItems": [_TEXT, _CODED]},
            "description": "Headers with repeated names or other bytes, instead of `headers`",
        },
        "event_time": _INT64,
        "deliver_at": _INT64,
    }
    one_value = [{"required": [name]} for name in ("text", "json", "base64")]
    place = {"partition": _INT64, "offset": _INT64}
    part = _object({**place, "count": _INT64})
    stored = {**place, "publish_time": _INT64}
    position = {"next_offset": _INT64, "tail_offset": _INT64, "at_tail": {"type": "boolean"}}
    return {
        "Message": {
            "type": "object",
            "properties": value,
            "oneOf": one_value,
            "additionalProperties": False,
        },
        "Messages": _object({"messages": _array(_ref("Message"))}),
        "AppendedMessage": _object(stored),
        "AppendedBatch": _object({"count": _INT64, "appended": _array(part)}),
        "StoredMessage": {**_object(stored), "properties": {**stored, **value}, "oneOf": one_value},
        "ReadAnswer": _object({"messages": _array(_ref("StoredMessage")), **position}),
        "Problem": Problem.model_json_schema(),
    }


def _object(properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _array(items: Json) -> Json:
    return {"type": "array", "items": items}
