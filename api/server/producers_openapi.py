"""The conditions of appends and the access to partitions, for ``/openapi.json``: they are plain
ASGI."""

from __future__ import annotations

from typing import Any

from fencelog.broker.append.producer_access import MODES
from fencelog.broker.limits import MAX_IDEMPOTENCY_KEY_BYTES, MAX_WAIT_MS

Json = dict[str, Any]

PATH = "/v1/topics/{namespace}/{topic}/partitions/{partition}"

_TEXT: Json = {"type": "string"}
_INT64: Json = {"type": "integer", "format": "int64"}
_TOKEN: Json = {"type": ["string", "null"]}


def _header(name: str, schema: Json, text: str) -> Json:
    return {"name": name, "in": "header", "schema": schema, "description": text}


CONDITIONS = (
    _header("Producer-Id", _TEXT, "Who appends; the append is written once"),
    _header("Producer-Epoch", _INT64, "Which instance of it; a higher one ends the lower ones"),
    _header("Producer-Seq", _INT64, "The number of the first message, without a gap from 0"),
    _header(
        "Idempotency-Key",
        _TEXT,
        f"To {MAX_IDEMPOTENCY_KEY_BYTES} bytes; the append is written once",
    ),
    _header("If-Offset", _INT64, "Only if the first message gets this offset"),
    _header("Fencing-Token", _TEXT, "Only while this is the partition's"),
)
"""The header parameters of both kinds of appends."""


def producer_paths() -> Json:
    """Return the OpenAPI path items."""
    producer = f"{PATH}/producers/{{producer}}"
    claim = {"mode": {"enum": list(MODES)}, "wait_ms": {"type": "integer", "maximum": MAX_WAIT_MS}}
    epoch: Json = {"name": "epoch", "in": "query", "required": True, "schema": _INT64}
    shown = _object({"producer_id": _TEXT, "epoch": _INT64, "next_sequence": _INT64})
    holder = {"type": ["object", "null"]}
    access = _object({"fencing_token": _TOKEN, "exclusive": holder, "count": _INT64})
    tokens = {"token": _TOKEN, "expected": _TOKEN}
    return {
        f"{PATH}:fence": {"post": _operation("fence", "Set the fencing token", None, body=tokens)},
        f"{PATH}/producers": {"get": _operation("show_access", "Who may append", access)},
        f"{producer}:claim": {
            "post": _operation(
                "claim_partition",
                "Append alone",
                _object({"epoch": _INT64}),
                named=True,
                body=claim,
            )
        },
        producer: {
            "get": _operation("show_producer", "Where a producer is", shown, named=True),
            "delete": _operation(
                "release_partition", "Let all append again", None, epoch, named=True
            ),
        },
    }


def _operation(
    name: str,
    summary: str,
    answer: Json | None,
    *parameters: Json,
    named: bool = False,
    body: Json | None = None,
) -> Json:
    """Return an operation. ``answer``: None for no content; ``named``: the path names a
    producer."""
    places = {"namespace": _TEXT, "topic": _TEXT, "partition": _INT64}
    if named:
        places["producer"] = _TEXT
    done: Json = {"204": {"description": "Durable"}}
    if answer is not None:
        done = {"200": {"description": "Done", "content": _json(answer)}}
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    operation: Json = {
        "tags": ["producers"],
        "operationId": name,
        "summary": summary,
        "parameters": [
            *(
                {"name": place, "in": "path", "required": True, "schema": schema}
                for place, schema in places.items()
            ),
            *parameters,
        ],
        "responses": {**done, "default": {"description": "Problem (RFC 9457)", "content": problem}},
    }
    if body is not None:
        content = _json({"type": "object", "properties": body})
        operation["requestBody"] = {"required": "token" in body, "content": content}
    return operation


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _object(properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}
