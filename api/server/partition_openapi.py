"""The requests about one partition's log for ``/openapi.json`` and ``/docs``: they are plain
ASGI."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

TOPIC = "/v1/topics/{namespace}/{topic}"
PARTITION = f"{TOPIC}/partitions/{{partition}}"

_INT64: Json = {"type": "integer", "format": "int64"}
_END: Json = {"partition": _INT64, "end_offset": _INT64}


def partition_paths() -> Json:
    """Return the OpenAPI path items."""
    trimmed = {"partition": _INT64, "earliest_offset": _INT64, "held_back": {"type": "boolean"}}
    return {
        f"{PARTITION}:trim": {
            "post": path_operation(
                "trim_partition",
                "Forget messages",
                "Nothing below `before` is readable any more; its space comes back as whole "
                "ledgers. It stops at what a durable subscription has not acknowledged, unless "
                "the topic's settings say otherwise; `held_back` says so.",
                ("namespace", "topic", "partition"),
                trimmed,
                {"before": _INT64},
            )
        },
        f"{PARTITION}:terminate": {
            "post": path_operation(
                "terminate_partition",
                "End a partition's log for good",
                "Appends are refused from now on, reads go on. May be repeated.",
                ("namespace", "topic", "partition"),
                _END,
            )
        },
        f"{TOPIC}:terminate": {
            "post": path_operation(
                "terminate_topic",
                "End a topic for good",
                "All its partitions, one after another. May be repeated.",
                ("namespace", "topic"),
                {"partitions": {"type": "array", "items": json_object(_END)}},
            )
        },
        f"{PARTITION}/internal": {
            "get": path_operation(
                "partition_internals",
                "What a partition's log looks like inside",
                "Its ledgers, sizes and epochs, what is on its way, its subscriptions. For people: "
                "members may change.",
                ("namespace", "topic", "partition"),
                {},
            )
        },
    }


def path_operation(
    name: str,
    summary: str,
    text: str,
    path: tuple[str, ...],
    answer: Json,
    body: Json | None = None,
) -> Json:
    operation: Json = {
        "tags": ["topics"],
        "operationId": name,
        "summary": summary,
        "description": text,
        "parameters": [
            {
                "name": each,
                "in": "path",
                "required": True,
                "schema": _INT64 if each == "partition" else {"type": "string"},
            }
            for each in path
        ],
        "responses": {
            "200": {"description": "Done", "content": _json(json_object(answer))},
            "default": {
                "description": "Problem (RFC 9457)",
                "content": {
                    "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
                },
            },
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _json(json_object(body))}
    return operation


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def json_object(properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}
