"""The requests on plain ASGI in ``/openapi.json`` and ``/docs``, generated from their types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from msgspec.json import schema_components

from fencelog.api.admin.models import PROBLEM_RESPONSES, Problem
from fencelog.api.http.json_messages import AnyMessage
from fencelog.api.http.json_render import StoredMessage
from fencelog.api.server.operations import (
    HEADERS,
    JSON,
    OPERATIONS,
    PLACES,
    QUERY,
    REQUIRED,
    Operation,
    Shape,
)
from fencelog.api.subscriptions.pull import DeliveredMessage

DESCRIPTION = """A durable, replicated, fenced log over plain HTTP.

Errors are RFC 9457 problems: `code` names what went wrong, `retryable` whether the same request
may be sent again, `side_effects` whether it may have taken effect all the same. Times are integer
microseconds since 1970 UTC. Any broker answers any request."""

Json = dict[str, Any]

_PROBLEM: Json = {str(status): shown for status, shown in PROBLEM_RESPONSES.items()}
_REFERENCE = "#/components/schemas/{name}"
_ONE_VALUE = [{"required": [name]} for name in ("text", "json", "base64")]


def add_hot_paths(document: Json) -> Json:
    """Return the document with the requests in it that FastAPI does not know."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema()
    generated = _Generator()
    for tag, operations in OPERATIONS.items():
        for operation in operations:
            method, path = operation.request.split(" ")
            item = document["paths"].setdefault(path, {})
            item[method.lower()] = generated.operation(operation, path) | {"tags": [tag]}
    for type_ in (AnyMessage, StoredMessage, DeliveredMessage):
        generated.schemas[type_.__name__]["oneOf"] = _ONE_VALUE
    schemas.update(generated.schemas)
    return document


class _Generator:
    """A generator of operations that collects the schemas which they name."""

    def __init__(self) -> None:
        self.schemas: Json = {}

    def operation(self, asked: Operation, path: str) -> Json:
        summary, _, text = asked.about.partition(". ")
        shown: Json = {
            "operationId": asked.name,
            "summary": summary,
            "description": text,
            "parameters": self._parameters(asked, path),
            "responses": self._responses(asked),
        }
        if asked.body is not None:
            content = self._content(asked.body)
            shown["requestBody"] = {"required": asked.needs_body, "content": content}
        return shown

    def _parameters(self, asked: Operation, path: str) -> list[Json]:
        places = [
            (name, "path", PLACES.get(name, str), "") for name in re.findall(r"{(\w+)}", path)
        ]
        query = [(name, "query", *QUERY[name]) for name in sorted(asked.query)]
        headers = [
            (name.decode().title(), "header", *HEADERS[name]) for name in sorted(asked.headers)
        ]
        return [
            {"name": name, "in": where, "schema": self._schema(shape)}
            | ({"description": text} if text else {})
            | ({"required": True} if where == "path" or name in REQUIRED else {})
            for name, where, shape, text in (*places, *query, *headers)
        ]

    def _responses(self, asked: Operation) -> Json:
        if asked.answer is None:
            return {"204": {"description": "Durable"}, **_PROBLEM}
        created = asked.status == HTTPStatus.CREATED
        text = "Durable" if created else "Done"
        done: Json = {"description": text, "content": self._content(asked.answer)}
        if asked.answer_headers:
            done["headers"] = self._headers(asked.answer_headers)
        answers = {str(asked.status): done, **_PROBLEM}
        if b"prefer" in asked.headers:
            there = {"description": "Another broker owns the partition; nothing was done"}
            answers["307"] = there | {"headers": self._headers({"Location": str})}
        if created:
            repeated = {"description": "It was durable before", "content": done["content"]}
            answers["200"] = repeated | {
                "headers": self._headers({"Duplicate": bool, **asked.answer_headers})
            }
        return answers

    def _headers(self, shapes: Mapping[str, Shape]) -> Json:
        return {name: {"schema": self._schema(shape)} for name, shape in shapes.items()}

    def _content(self, shapes: Shape) -> Json:
        if not isinstance(shapes, dict):
            shapes = {JSON: shapes}
        return {media: {"schema": self._schema(shape)} for media, shape in shapes.items()}

    def _schema(self, shape: Shape) -> Json:
        if isinstance(shape, dict):
            return shape
        (schema,), named = schema_components([shape], ref_template=_REFERENCE)
        self.schemas.update(_finished(named))
        finished: Json = _finished(schema)
        return finished


def _finished(schema: Any) -> Any:
    """Return the schema with the width of its integers and without line breaks in its texts."""
    if isinstance(schema, list):
        return [_finished(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    done = {name: _finished(part) for name, part in schema.items()}
    if done.get("type") == "integer":
        done["format"] = "int64"
    if isinstance(done.get("description"), str):
        done["description"] = " ".join(done["description"].split())
    return done
