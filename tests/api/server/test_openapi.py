"""The OpenAPI document against the service: its schemas, parameters and answers are the real
ones."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio

import fencelog.api.server.operation as shapes
from fencelog.api.processes.standalone import StandaloneConfig, standalone
from fencelog.api.server.openapi import complete_document
from fencelog.api.server.operation import Operation
from fencelog.api.server.operations import OPERATIONS
from fencelog.api.server.parameters import REQUIRED
from tests.support.network.http_client import http_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
API = Path(__file__).parents[3] / "api"
PLACES = {
    "namespace": "ns",
    "topic": "t",
    "partition": "0",
    "offset": "0",
    "producer": "p",
    "committer": "q",
    "subscription": "s",
}
BETWEEN_BROKERS = {"FindKeyRequest", "WaitRequest", "LeaseRequest", "CursorRequest"}
BASE64 = {"base64": "/w==", "key_base64": "/w==", "headers_base64": [["h", "/w=="]]}
BODIES: Json = {
    "append_batch": {"messages": [{"json": [1], "key": "k", "headers": {"h": "v"}}, BASE64]},
    "trim_partition": {"before": 1},
    "fence": {"token": None},
    "extend": {"lease_ms": 1000},
    "seek": {"to": "earliest"},
    "commit_ledgers": {"batch": 1, "ledgers": []},
    "abort_ledgers": {"batch": 1, "ledgers": []},
}
"""The bodies that requests need to be answered with 2xx."""

ORDER = ("append_", "fence", "claim_", "pull", "read_", "topic_", "partition_", "list_", "show_")
"""The requests that come first, so that later ones find something; the ends come last."""


@pytest.fixture(scope="module")
def document() -> Json:
    return complete_document({"paths": {}})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service with the topic ``ns/t`` and its subscription ``s``."""
    config = StandaloneConfig(tmp_path_factory.mktemp("service"), "127.0.0.1:0")
    async with (
        standalone(config) as service,
        http_client(service.announcement["http"]) as client,
    ):
        for path in ("/v1/topics/ns/t", "/v1/topics/ns/t/subscriptions/s"):
            (await client.put(path, json={})).raise_for_status()
        yield client


def operations() -> list[Operation]:
    """Return all requests, those that end something last."""
    found = [each for group in OPERATIONS.values() for each in group]
    return sorted(found, key=lambda each: not each.name.startswith(ORDER))


def url_of(operation: Operation) -> tuple[str, str]:
    method, path = operation.request.split(" ")
    return method, path.format_map(PLACES)


def sent(operation: Operation, ack_ids: list[str]) -> Json:
    """Return the body of a request, as httpx takes it."""
    if operation.name == "append_message":
        return {"content": b"x"}
    body = dict(BODIES.get(operation.name, {}))
    if operation.name in ("ack", "nack", "extend"):
        body["ack_ids"] = ack_ids
    return {"json": body} if body else {}


def undescribed(value: Any, schema: Json, schemas: Json) -> list[str]:
    """Return the members of an answer that its schema lacks."""
    schema = schema.get("anyOf", [schema])[0]
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if isinstance(value, list):
        items = schema.get("items") or {}
        return [name for each in value for name in undescribed(each, items, schemas)]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    members = schema["properties"]
    lacking = [name for name in value if name not in members]
    for name in value.keys() & members.keys():
        lacking += undescribed(value[name], members[name], schemas)
    return lacking


async def test_every_body_that_is_decoded_is_described(document: Json) -> None:
    """The parsers' types are found in the code, so that none can be left out of the document."""
    code = "\n".join(path.read_text() for path in API.rglob("*.py"))
    decoded = set(re.findall(r"^class (\w+Request)\(Struct", code, re.MULTILINE))
    assert len(decoded) >= 12
    assert decoded - BETWEEN_BROKERS <= document["components"]["schemas"].keys()


async def test_the_parameters_are_those_that_the_service_takes(
    document: Json, http: httpx.AsyncClient
) -> None:
    """A refusal of an unknown parameter names the known ones."""
    compared = 0
    for operation in operations():
        method, url = url_of(operation)
        answer = await http.request(method, url, params={"zz": 1}, **sent(operation, []))
        found = re.search(r"'zz'; known here: (.*)", answer.json().get("detail", ""))
        known = set() if not found or found[1] == "none" else set(found[1].split(", "))
        shown = document["paths"][operation.request.split(" ")[1]][method.lower()]["parameters"]
        assert {each["name"] for each in shown if each["in"] == "query"} == known, operation.name
        compared += found is not None
    assert compared >= 20


async def test_the_answers_are_as_described(document: Json, http: httpx.AsyncClient) -> None:
    """A member that the document lacks is an error here, as one that the answer lacks."""
    await http.post("/v1/topics/ns/t/messages", content=b"\xff", headers={"Fencelog-Key": "k"})
    ack_ids: list[str] = []
    for operation in operations():
        method, url = url_of(operation)
        if operation.answer == {shapes.EVENTS: shapes.SUBSCRIPTION_EVENTS}:
            continue  # it has no end
        params = {"epoch": "1"} if operation.query & REQUIRED else {}
        answer = await http.request(method, url, params=params, **sent(operation, ack_ids))
        if operation.name == "pull":
            ack_ids = [each["ack_id"] for each in answer.json()["messages"]]
        described = document["paths"][operation.request.split(" ")[1]][method.lower()]["responses"]
        assert str(answer.status_code) in described, (operation.name, answer.text)
        content = described[str(answer.status_code)].get("content", {})
        if shapes.JSON in content:
            schema = content[shapes.JSON]["schema"]
            assert undescribed(answer.json(), schema, document["components"]["schemas"]) == []
            shape = operation.answer
            as_typed = msgspec.json.decode(
                answer.content, type=shape[shapes.JSON] if isinstance(shape, dict) else shape
            )
            again = msgspec.json.decode(msgspec.json.encode(as_typed))
            assert again == answer.json()
        else:
            assert shapes.OCTETS in content or not answer.content


async def test_it_is_what_a_generator_of_clients_needs(http: httpx.AsyncClient) -> None:
    """Each operation has a name of its own, a summary, and parameters with bounds."""
    document = (await http.get("/openapi.json")).json()
    found = [each for item in document["paths"].values() for each in item.values()]
    names = [each["operationId"] for each in found]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z]+(_[a-z]+)*", name) for name in names)
    for each in found:
        assert 5 < len(each["summary"]) < 80
        assert not each["summary"].endswith(".")
        for parameter in each.get("parameters", ()):
            schema = parameter["schema"]
            if schema.get("type") == "integer":
                assert {"minimum", "maximum", "format"} <= schema.keys(), parameter
            if parameter["name"] in ("namespace", "topic", "subscription", "producer"):
                shapes_of = schema.get("anyOf", [schema])
                assert "pattern" in shapes_of[0], parameter


async def test_a_member_that_is_not_described_is_seen(document: Json) -> None:
    page = {"messages": [{"offset": 1, "zz": 2}], "yy": 3}
    schema = {"$ref": "#/components/schemas/MessagePage"}
    assert undescribed(page, schema, document["components"]["schemas"]) == ["yy", "zz"]
