"""The positions and the compacted view for ``/openapi.json`` and ``/docs``: they are plain ASGI."""

from __future__ import annotations

from fencelog.api.server.partition_openapi import (
    PARTITION,
    TOPIC,
    Json,
    json_object,
    path_operation,
)

_INT64: Json = {"type": "integer", "format": "int64"}
_PLACE = ("namespace", "topic", "partition")
_TIME: Json = {
    "name": "time",
    "in": "query",
    "schema": _INT64,
    "description": "Which offset is the first that was published at or after it?",
}
_OFFSETS: Json = {"partition": _INT64, "earliest_offset": _INT64, "tail_offset": _INT64}
_STATE: Json = {
    "partition": _INT64,
    "state": {"enum": ["none", "waiting", "running", "failed", "ready"]},
    "end_offset": _INT64,
    "messages": _INT64,
    "bytes": _INT64,
}


def read_paths() -> Json:
    """Return the OpenAPI path items."""
    text = "The earliest offset, the tail and, with `time`, the offset that belongs to it."
    of_one = path_operation("partition_offsets", "Positions", text, _PLACE, _OFFSETS)
    of_all = path_operation(
        "topic_offsets",
        "Positions of all partitions",
        text,
        ("namespace", "topic"),
        {"offsets": {"type": "array", "items": json_object(_OFFSETS)}},
    )
    for operation in (of_one, of_all):
        operation["parameters"].append(_TIME)
    compact = path_operation(
        "compact_partition",
        "Compact a partition next",
        "Brings its view of the newest message of every key up to date. May be repeated.",
        _PLACE,
        _STATE,
    )
    compact["responses"]["202"] = compact["responses"].pop("200")
    state = path_operation(
        "partition_compaction", "The state of the compacted view", "", _PLACE, _STATE
    )
    return {
        f"{PARTITION}/offsets": {"get": of_one},
        f"{TOPIC}/offsets": {"get": of_all},
        f"{PARTITION}:compact": {"post": compact},
        f"{PARTITION}/compaction": {"get": state},
    }
