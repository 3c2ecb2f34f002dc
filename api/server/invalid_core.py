"""The complaints of a body's validation in plain words: which member, and what is allowed there.

Members that may be one of several things have a complaint for each; they become one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

_MAX_SHOWN = 40
_MUST_BE = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a number of 64 bits",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "dict_type": "an object",
}
"""The things that a value may have to be, by the type of the complaint."""

_IS = {
    "missing": "is missing",
    "extra_forbidden": "is not known here",
    "json_invalid": "is no JSON: {error}",
}
"""The mistakes in a member whatever its value is."""

Complaint = Mapping[str, Any]


def complaints(errors: Iterable[Complaint], sent: object) -> list[dict[str, str]]:
    """Return the members that are invalid, each with the reason: ``{"field", "why"}``.

    ``errors``: as pydantic lists them; ``sent``: the body that they are about.
    """
    must_be: dict[str, dict[str, None]] = {}
    found: dict[str, str] = {}
    values: dict[str, object] = {}
    for error in errors:
        kind, context = error["type"], error.get("ctx", {})
        field = _field(error["loc"], sent, is_missing=kind == "missing")
        if kind in _MUST_BE:
            must_be.setdefault(field, {})[_MUST_BE[kind].format_map(context)] = None
            values[field] = error["input"]
            found.setdefault(field, "")
        else:
            plain = _IS[kind].format_map(context) if kind in _IS else str(error["msg"])
            found[field] = found.get(field) or plain
    for field, known in must_be.items():
        found[field] = f"must be {' or '.join(known)}, not {_shown(values[field])}"
    return [{"field": field, "why": why} for field, why in found.items()]


def _field(location: Iterable[str | int], sent: object, *, is_missing: bool) -> str:
    """Return the path of a member. The names of types, which stand in a location where a member may
    have several, are left out."""
    where, *rest = location
    if where != "body":
        return ".".join(map(str, rest))
    names: list[str] = []
    for number, part in enumerate(rest, 1):
        if isinstance(sent, dict) and (part in sent or (is_missing and number == len(rest))):
            names.append(str(part))
            sent = sent.get(part)
    return ".".join(names) or "body"


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
