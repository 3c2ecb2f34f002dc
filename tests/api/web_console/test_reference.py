"""The page of all requests: what it says of an OpenAPI document, and how it is shown."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from playwright.async_api import expect

from fencelog.api.web_console.reference import REFERENCE_POLICY, reference_page
from tests.api.web_console.conftest import LOOKS, OpenPage, accessibility_findings
from tests.run_suite import thorough_but

pytestmark = pytest.mark.asyncio(loop_scope="package")

Json = dict[str, Any]


def page_of(operation: Json, *, path: str = "/v1/t/{topic}", schemas: Json | None = None) -> str:
    """Return the text of the page of one request."""
    shown = {
        "operationId": "do_it",
        "tags": ["topics"],
        "summary": "Do it",
        "responses": {"200": {"description": "Done"}},
    }
    document = {
        "info": {"title": "fencelog", "description": "With `code`."},
        "paths": {path: {"post": shown | operation}},
        "components": {"schemas": schemas or {}},
    }
    return reference_page(document)


def field_of(schema: Json, **beside: Any) -> str:
    """Return what the page says of a field, without the markup."""
    schemas = {"S": {"type": "object", "properties": {"f": schema}} | beside}
    found = re.search(r"<dt><code>f</code></dt><dd>(.*?)</dd>", page_of({}, schemas=schemas))
    assert found is not None
    return re.sub("<[^>]+>", "", found[1])


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 32.0}, "integer from 1 to 32"),
        ({"type": "integer", "minimum": 0}, "integer from 0"),
        ({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}, "integer"),
        ({"type": "number", "maximum": 0.5}, "number, at most 0.5"),
        ({"type": "integer", "default": 100}, "integer, else 100"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string or null"),
        ({"enum": ["a", "<b>"]}, "a or &lt;b&gt;"),
        ({"const": "yes"}, "yes"),
        ({"type": "array", "items": {"type": "boolean"}}, "list of boolean"),
        ({"type": "array", "prefixItems": [{"type": "string"}, {}]}, "list: string, anything"),
        ({"type": "object", "additionalProperties": {"type": "null"}}, "object of null"),
        ({"type": "object", "additionalProperties": True}, "object"),
        ({"type": "string", "format": "binary"}, "bytes"),
        ({"type": "string", "contentEncoding": "base64"}, "base64"),
        ({"type": "string", "maxLength": 1000}, "string, at most 1,000 characters"),
        ({"type": "string", "pattern": "^a<$"}, "string, like ^a&lt;$"),
        ({}, "anything"),
    ],
)
async def test_values_are_told_in_words(schema: Json, text: str) -> None:
    assert field_of(schema, required=["f"]) == text


async def test_a_field_says_what_it_means_and_whether_it_may_be_absent() -> None:
    text = field_of({"type": "string", "description": "Its `name`."})
    assert text == "Its name. string, may be absent"
    inner = {"anyOf": [{"type": "string", "description": "A key"}, {"type": "null"}]}
    assert field_of(inner) == "A key. string or null, may be absent"


async def test_a_request_is_a_command_and_its_names_are_no_markup() -> None:
    operation = {
        "parameters": [
            {"name": "topic", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": "at", "in": "query", "required": True, "schema": {"type": "integer"}},
            {"name": "<i>", "in": "header", "description": "Not <i>", "schema": {}},
        ],
        "requestBody": {"content": {"*/*": {"schema": {"$ref": "#/components/schemas/S"}}}},
    }
    page = page_of(operation, schemas={"S": {"type": "object"}})
    assert (
        "curl -sS -X POST &#x27;URL/v1/t/TOPIC?at=AT&#x27; -H &#x27;Content-Type: "
        "application/octet-stream&#x27; --data-binary @FILE"
    ) in page
    assert "<i>" not in page
    assert "integer; in the query, required" in page
    assert "string; in the path<" in page
    assert '<dt><code>*/*</code></dt><dd><a href="#schema-S">S</a></dd>' in page
    assert "With <code>code</code>." in page


async def test_every_request_and_schema_is_there_and_every_link_leads_somewhere(
    http: httpx.AsyncClient,
) -> None:
    document = (await http.get("/openapi.json")).json()
    answer = await http.get("/docs")
    ids = re.findall(r'id="([^"]+)"', answer.text)
    assert len(ids) == len(set(ids))
    operations = {
        each["operationId"] for item in document["paths"].values() for each in item.values()
    }
    assert operations | {f"schema-{name}" for name in document["components"]["schemas"]} <= set(ids)
    assert set(re.findall(r'href="#([^"]+)"', answer.text)) <= set(ids)
    assert answer.headers["content-security-policy"] == REFERENCE_POLICY
    assert "<script" not in answer.text
    assert " style=" not in answer.text


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
@pytest.mark.parametrize("path", thorough_but(["../"], ["../docs", "../"]))
async def test_axe_finds_nothing_and_no_width_scrolls_sideways(
    open_page: OpenPage, axe: str, path: str, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 900}
    async with open_page(path, color_scheme=scheme, viewport=size) as page:
        await page.wait_for_selector("h1")
        assert await accessibility_findings(page, axe) == []


async def test_from_the_list_to_a_request_and_to_its_schema_by_keyboard(
    open_page: OpenPage,
) -> None:
    async with open_page("../docs") as page:
        contents = page.get_by_role("navigation", name="All requests")
        await contents.get_by_role(
            "link", name="POST /v1/topics/{namespace}/{topic}/messages:batch"
        ).press("Enter")
        request = page.locator("#append_batch")
        await expect(request).to_be_in_viewport()
        await request.locator("..").get_by_role("link", name="AppendedBatch").first.press("Enter")
        await expect(page.locator("#schema-AppendedBatch")).to_be_in_viewport()
