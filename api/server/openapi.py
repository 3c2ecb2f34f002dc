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
from fencelog.api.server.operation import JSON, Events, Lines, Operation
from fencelog.api.server.operations import OPERATIONS
from fencelog.api.server.parameters import HEADERS, IF_NONE_MATCH, PLACES, QUERY, REQUIRED, Shape
from fencelog.api.subscriptions.pull import DeliveredMessage

DESCRIPTION = """A durable, replicated, fenced log over plain HTTP.

Errors are RFC 9457 problems: `code` names what went wrong, `retryable` whether the same request
may be sent again, `side_effects` whether it may have taken effect all the same. Times are integer
microseconds since 1970 UTC. Integers are written without a fraction: 1, not 1.0. Any broker answers
any request."""

Json = dict[str, Any]

_PROBLEM: Json = {str(status): shown for status, shown in PROBLEM_RESPONSES.items()}
_REFERENCE = "#/components/schemas/{name}"
_ONE_VALUE = [{"required": [name]} for name in ("text", "json", "base64")]


def complete_document(document: Json) -> Json:
    """Return the document of FastAPI's half with the other requests, and with what FastAPI does not
    say of its own."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema()
    generated = _Generator()
    for path, item in document["paths"].items():
        if "put" in item:
            answers = item["put"]["responses"]
            answers["200"] = answers["201"] | {"description": "It exists, with the same settings"}
        for operation in item.values():
            _put_summary(operation)
            places = generated.places(path)
            others = [each for each in operation.get("parameters", ()) if each["in"] != "path"]
            if places or others:
                operation["parameters"] = [*places, *others]
    for tag, operations in OPERATIONS.items():
        for each in operations:
            method, path = each.request.split(" ")
            item = document["paths"].setdefault(path, {})
            item[method.lower()] = generated.operation(each, path) | {"tags": [tag]}
    for type_ in (AnyMessage, StoredMessage, DeliveredMessage):
        generated.schemas[type_.__name__]["oneOf"] = _ONE_VALUE
    schemas.update(generated.schemas)
    finished: Json = _finished(document)
    return finished


def _put_summary(operation: Json) -> None:
    """Make the first sentence of the description the summary."""
    summary, _, text = operation.pop("description").partition(". ")
    operation["summary"] = summary.removesuffix(".")
    if text:
        operation["description"] = text


class _Generator:
    """A generator of operations that collects the schemas which they name."""

    def __init__(self) -> None:
        self.schemas: Json = {}

    def operation(self, asked: Operation, path: str) -> Json:
        shown: Json = {
            "operationId": asked.name,
            "description": asked.about,
            "parameters": self._parameters(asked, path),
            "responses": self._responses(asked),
        }
        _put_summary(shown)
        if asked.body is not None:
            content = self._content(asked.body)
            shown["requestBody"] = {"required": asked.needs_body, "content": content}
        return shown

    def places(self, path: str) -> list[Json]:
        """Return the parameters in a path."""
        return [
            {"name": name, "in": "path", "schema": self._schema(PLACES[name]), "required": True}
            for name in re.findall(r"{(\w+)}", path)
        ]

    def _parameters(self, asked: Operation, path: str) -> list[Json]:
        meanings = {**QUERY, **asked.meanings}
        query = [(name, "query", *meanings[name]) for name in sorted(asked.query)]
        headers = [
            (name.decode().title(), "header", *HEADERS[name]) for name in sorted(asked.headers)
        ]
        return self.places(path) + [
            {"name": name, "in": where, "schema": self._schema(shape), "description": text}
            | ({"required": True} if name in REQUIRED else {})
            for name, where, shape, text in (*query, *headers)
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
        if IF_NONE_MATCH in asked.headers:
            answers["304"] = {"description": "It is as the client has it"}
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
        return {media: self._body(shape) for media, shape in shapes.items()}

    def _body(self, shape: Shape) -> Json:
        """Return the shape of a body. A sequence has the shape of its items, as in OpenAPI 3.2."""
        if isinstance(shape, Lines):
            return {"itemSchema": self._schema(shape.line)}
        if isinstance(shape, Events):
            events = [self._event(name, data) for name, data in shape.data.items()]
            return {"itemSchema": {"oneOf": events}}
        return {"schema": self._schema(shape)}

    def _event(self, name: str, data: Shape) -> Json:
        as_json = {"contentMediaType": JSON, "contentSchema": self._schema(data)}
        members: Json = {
            "event": {"const": name},
            "id": {"type": "string", "pattern": "^[0-9]+$"},
            "data": {"type": "string", **as_json},
        }
        return {"type": "object", "required": ["event", "data"], "properties": members}

    def _schema(self, shape: Shape) -> Json:
        if isinstance(shape, dict):
            return shape
        (schema,), named = schema_components([shape], ref_template=_REFERENCE)
        self.schemas.update(named)
        return schema


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
