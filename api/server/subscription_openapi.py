"""The consumers' endpoints for ``/openapi.json`` and ``/docs``: they are plain ASGI."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.json import schema_components

from fencelog.api.subscriptions.requests import (
    Acked,
    AckRequest,
    ExtendRequest,
    FoundOffsets,
    NackRequest,
    PullRequest,
    Replayed,
    ReplayRequest,
    SeekRequest,
    Stale,
)

Json = dict[str, Any]

PATH = "/v1/topics/{namespace}/{topic}/subscriptions/{subscription}"

_TEXT: Json = {"type": "string"}
_INT64: Json = {"type": "integer", "format": "int64"}
_PULLED = "PulledMessages"
_VERBS: tuple[tuple[str, str, str, type[Struct], type[Struct] | str], ...] = (
    (
        "pull",
        "Lease messages",
        (
            "They come again, to anybody, when the lease ends before they are acknowledged. "
            "`wait`: seconds while there is none."
        ),
        PullRequest,
        _PULLED,
    ),
    (
        "ack",
        "Acknowledge messages",
        (
            "By their ack ids, or everything `through` a message of each partition. Durable with "
            "the answer; may be repeated."
        ),
        AckRequest,
        Acked,
    ),
    ("nack", "Give messages back", "They come again after `delay_ms`.", NackRequest, Stale),
    ("extend", "Extend leases", "To `lease_ms` from now.", ExtendRequest, Stale),
    ("seek", "Move to another place", "What is leased is forgotten.", SeekRequest, FoundOffsets),
    (
        "replay-dead-letters",
        "Send dead letters back",
        "To the partition they came from, for this subscription alone.",
        ReplayRequest,
        Replayed,
    ),
)


def subscription_paths() -> Json:
    """Return the OpenAPI path items."""
    paths: Json = {
        f"{PATH}:{verb}": {"post": _verb(verb, summary, text, request, answer)}
        for verb, summary, text, request, answer in _VERBS
    }
    stats: Json = {"type": "object", "properties": {"partitions": {"type": "array"}}}
    paths[f"{PATH}/stats"] = {
        "get": _operation(
            "subscription_stats", "Metrics of each partition", "", {"application/json": stats}
        )
    }
    events = _operation(
        "subscription_events",
        "Messages as they come, each leased",
        "`message`, `ping` and `problem` events; acknowledge with `:ack`.",
        {"text/event-stream": _TEXT},
    )
    for name, schema in (
        ("consumer", _TEXT),
        ("lease_ms", _INT64),
        ("limit", _INT64),
        ("as", {"enum": ["text", "json", "base64"]}),
    ):
        events["parameters"].append({"name": name, "in": "query", "schema": schema})
    paths[f"{PATH}/events"] = {"get": events}
    return paths


def subscription_schemas() -> Json:
    """Return the schemas that the path items name."""
    types = [request for _, _, _, request, _ in _VERBS]
    types += [answer for _, _, _, _, answer in _VERBS if not isinstance(answer, str)]
    _, schemas = schema_components(types, ref_template="#/components/schemas/{name}")
    leased: Json = {"ack_id": _TEXT, "attempt": _INT64}
    message: Json = {
        "allOf": [
            {"$ref": "#/components/schemas/StoredMessage"},
            {"type": "object", "properties": leased, "required": list(leased)},
        ]
    }
    pulled: Json = {
        "type": "object",
        "properties": {"messages": {"type": "array", "items": message}},
        "required": ["messages"],
    }
    return {**schemas, _PULLED: pulled}


def _verb(
    verb: str, summary: str, text: str, request: type[Struct], answer: type[Struct] | str
) -> Json:
    name = answer if isinstance(answer, str) else answer.__name__
    operation = _operation(verb.replace("-", "_"), summary, text, {"application/json": _ref(name)})
    operation["requestBody"] = {
        "required": request in (AckRequest, NackRequest, ExtendRequest, SeekRequest),
        "content": {"application/json": {"schema": _ref(request.__name__)}},
    }
    return operation


def _operation(name: str, summary: str, text: str, content: Json) -> Json:
    in_path = ("namespace", "topic", "subscription")
    parameters: list[Json] = [
        {"name": part, "in": "path", "required": True, "schema": _TEXT} for part in in_path
    ]
    parameters.append(
        {
            "name": "partition",
            "in": "query",
            "schema": _INT64,
            "description": "This partition only; by default all",
        }
    )
    problem = {"application/problem+json": {"schema": _ref("Problem")}}
    shown = {media_type: {"schema": schema} for media_type, schema in content.items()}
    return {
        "tags": ["subscriptions"],
        "operationId": name,
        "summary": summary,
        "description": text,
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done", "content": shown},
            "default": {"description": "Problem (RFC 9457)", "content": problem},
        },
    }


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}
