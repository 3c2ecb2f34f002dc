"""The page of all requests: the OpenAPI document as HTML that a browser shows without a script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

Json = Mapping[str, Any]

REFERENCE_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The content security policy of pages without a script."""

_REFERENCE = "#/components/schemas/"
_NUMBERS = ("integer", "number")
_ANY = 2**53 - 1
_FORMATS = {"binary": "bytes", "byte": "base64"}

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}: all requests</title>
<link rel="icon" href="console/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="console/style.css">
<link rel="stylesheet" href="console/reference.css">
</head>
<body>
<a class="skip" href="#content">To the content</a>
<header><a class="brand" href="console/">{title}</a>
<nav aria-label="Pages"><a href="console/">Console</a>
<a href="docs" aria-current="page">Requests</a>
<a href="openapi.json">OpenAPI</a></nav></header>
<main id="content" tabindex="-1" class="reference">
<h1>All requests</h1>
<p>{about}</p>
<nav aria-label="All requests" class="contents">
{contents}
</nav>
{sections}
<section aria-labelledby="of-schemas"><h2 id="of-schemas">Schemas</h2>
{schemas}
</section>
</main>
</body>
</html>
"""


def reference_page(document: Json) -> str:
    """Return the page of an OpenAPI document."""
    by_tag: dict[str, list[tuple[str, str, Json]]] = {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            by_tag.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    return _PAGE.format(
        title=escape(document["info"]["title"]),
        about=_text(document["info"]["description"]),
        contents="\n".join(_contents(tag, found) for tag, found in by_tag.items()),
        sections="\n".join(_section(tag, found) for tag, found in by_tag.items()),
        schemas="\n".join(
            _schema(name, schema)
            for name, schema in sorted(document["components"]["schemas"].items())
        ),
    )


def _text(plain: str) -> str:
    """Return a text in which names in backticks are code."""
    return re.sub(r"``?([^`]+)``?", r"<code>\1</code>", escape(plain))


def _contents(tag: str, operations: Iterable[tuple[str, str, Json]]) -> str:
    links = "".join(
        f'<li><a href="#{escape(each["operationId"])}"><b>{method}</b> {_path(path)}</a> '
        f"{_text(each['summary'])}</li>\n"
        for method, path, each in operations
    )
    return f"<h2>{escape(tag.capitalize())}</h2>\n<ul>\n{links}</ul>"


def _path(path: str) -> str:
    """Return a path that may be broken after each of its parts."""
    return f"<code>{escape(path).replace('/', '/<wbr>')}</code>"


# -- requests -------------------------------------------------------------------------------------


def _section(tag: str, operations: Iterable[tuple[str, str, Json]]) -> str:
    name = f"of-{escape(tag)}"
    shown = "\n".join(_operation(*each) for each in operations)
    title = f'<h2 id="{name}">{escape(tag.capitalize())}</h2>'
    return f'<section aria-labelledby="{name}">{title}\n{shown}\n</section>'


def _operation(method: str, path: str, operation: Json) -> str:
    name = escape(operation["operationId"])
    parts = [
        f'<h3 id="{name}"><b>{method}</b> {_path(path)}</h3>',
        f"<p>{_text(operation['summary'])}.</p>",
    ]
    if about := operation.get("description"):
        parts.append(f"<p>{_text(about)}</p>")
    parts.append(f"<pre>{escape(_curl(method, path, operation))}</pre>")
    parts += _list("Parameters", map(_parameter, operation.get("parameters", ())))
    parts += _list("Body", _contents_of(operation.get("requestBody", {})))
    parts += _list("Answers", _answers(operation["responses"]))
    return f'<article aria-labelledby="{name}">\n' + "\n".join(parts) + "\n</article>"


def _list(title: str, items: Iterable[tuple[str, str]]) -> list[str]:
    """Return a list of names and what they mean; nothing where there are none."""
    rows = [f"<dt>{name}</dt><dd>{meaning}</dd>" for name, meaning in items]
    return [f"<h4>{title}</h4>", f"<dl>{''.join(rows)}</dl>"] if rows else []


def _parameter(each: Json) -> tuple[str, str]:
    needed = ", required" if each.get("required") and each["in"] != "path" else ""
    about = _text(each["description"]) + ". " if "description" in each else ""
    meaning = f'{about}<span class="muted">{_type(each["schema"])}; in the {each["in"]}{needed}'
    return f"<code>{escape(each['name'])}</code>", meaning + "</span>"


def _contents_of(body: Json) -> Iterator[tuple[str, str]]:
    """Yield the media types of a body, each with what it contains."""
    for media_type, content in body.get("content", {}).items():
        yield f"<code>{escape(media_type)}</code>", _type(content.get("schema", {}))


def _answers(responses: Json) -> Iterator[tuple[str, str]]:
    for status, each in sorted(responses.items()):
        forms = [f"{form}: {what}" for form, what in _contents_of(each)]
        headers = [f"header <code>{escape(name)}</code>" for name in each.get("headers", {})]
        about = "; ".join([_text(each["description"]), *forms, *headers])
        yield ("otherwise" if status == "default" else escape(status)), about


def _curl(method: str, path: str, operation: Json) -> str:
    """Return the request as a command; words in capitals are for its reader to fill in."""
    where = re.sub(r"{(\w+)}", lambda found: found[1].upper(), path)
    needed = [
        each["name"]
        for each in operation.get("parameters", ())
        if each.get("required") and each["in"] == "query"
    ]
    query = "?" + "&".join(f"{name}={name.upper()}" for name in needed) if needed else ""
    words = ["curl", "-sS", *(["-X", method] if method != "GET" else []), f"'URL{where}{query}'"]
    for media_type in list(operation.get("requestBody", {}).get("content", {}))[:1]:
        type_ = "application/octet-stream" if media_type == "*/*" else media_type
        words += ["-H", f"'Content-Type: {type_}'", "--data-binary", "@FILE"]
    return " ".join(words)


# -- schemas --------------------------------------------------------------------------------------


def _schema(name: str, schema: Json) -> str:
    about = f"<p>{_text(schema['description'])}</p>\n" if "description" in schema else ""
    required = schema.get("required", ())
    fields = _list(
        "Fields",
        (
            (f"<code>{escape(field)}</code>", _field(each, is_required=field in required))
            for field, each in schema.get("properties", {}).items()
        ),
    )
    shown = "\n".join(fields) if fields else f"<p>{_type(schema)}</p>"
    title = f'<h3 id="schema-{escape(name)}"><code>{escape(name)}</code></h3>'
    return f'<article aria-labelledby="schema-{escape(name)}">\n{title}\n{about}{shown}\n</article>'


def _field(schema: Json, *, is_required: bool) -> str:
    texts = [
        f"{_text(each['description'].removesuffix('.'))}. "
        for each in (schema, *schema.get("anyOf", ()))
        if "description" in each
    ]
    needed = "" if is_required else ", may be absent"
    default = schema.get("default")
    otherwise = "" if default is None else f", else <code>{escape(str(default))}</code>"
    return f'{"".join(texts)}<span class="muted">{_type(schema)}{otherwise}{needed}</span>'


def _type(schema: Json) -> str:
    """Return what values a schema admits, in words."""
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(_REFERENCE))
        return f'<a href="#schema-{name}">{name}</a>'
    if choices := schema.get("anyOf") or ("type" not in schema and schema.get("oneOf")):
        return " or ".join(dict.fromkeys(_type(each) for each in choices))
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(each))}</code>" for each in schema["enum"])
    type_ = schema.get("type", "anything")
    if type_ == "array":
        return _array(schema)
    if type_ == "object" and isinstance(values := schema.get("additionalProperties"), Mapping):
        return f"object of {_type(values)}" if values else "object"
    if type_ in _NUMBERS:
        return f"{type_}{_bounds(schema)}"
    return _string(schema) if type_ == "string" else escape(str(type_))


def _array(schema: Json) -> str:
    if places := schema.get("prefixItems"):
        return f"list: {', '.join(map(_type, places))}"
    return f"list of {_type(schema['items'])}" if schema.get("items") else "list"


def _bounds(schema: Json) -> str:
    """Return the bounds of a number, without those that only say how many bits it has."""
    least, most = schema.get("minimum"), schema.get("maximum")
    least = None if least is None or least <= -_ANY else least
    most = None if most is None or most >= _ANY else most
    if least is None:
        return "" if most is None else f", at most {_number(most)}"
    return f" from {_number(least)}" + ("" if most is None else f" to {_number(most)}")


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else str(value)


def _string(schema: Json) -> str:
    kind = schema.get("contentEncoding") or schema.get("format")
    shown = _FORMATS.get(kind, escape(kind)) if kind else "string"
    if (most := schema.get("maxLength")) is not None:
        shown += f", at most {most:,} characters"
    if pattern := schema.get("pattern"):
        shown += f", like <code>{escape(pattern)}</code>"
    return shown
