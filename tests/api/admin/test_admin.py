"""Topics, health, figures, the API description, and problems of the FastAPI half."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.fake_broker import FakeBroker

TOPIC = "/v1/topics/ns/orders"


async def test_a_topic_lives_and_dies(http: httpx.AsyncClient) -> None:
    settings = {"partitions": 4, "ack_quorum": 3}
    created = await http.put(TOPIC, json=settings)
    assert created.status_code == 201
    assert created.json()["partitions"] == 4
    assert created.json()["ack_quorum"] == 3
    assert (await http.put(TOPIC, json=settings)).status_code == 200
    other = await http.put(TOPIC, json={"partitions": 5})
    assert (other.status_code, other.json()["code"]) == (409, "already_exists")
    assert (await http.get(TOPIC)).json() == created.json()
    assert (await http.delete(TOPIC)).status_code == 204
    gone = await http.get(TOPIC)
    assert (gone.status_code, gone.json()["code"]) == (404, "topic_not_found")


async def test_topics_are_read_past_a_server_that_lags_where_that_is_asked_for(
    http: httpx.AsyncClient, fake_broker: FakeBroker
) -> None:
    created = (await http.put(TOPIC)).json()
    for number, path in enumerate((TOPIC, "/v1/topics"), 1):
        plain = await http.get(path)
        assert fake_broker.topics.caught_up == number - 1
        confirmed = await http.get(path, params={"confirmed": "true"})
        assert fake_broker.topics.caught_up == number
        assert confirmed.json() == plain.json()
    assert created in confirmed.json()["topics"]


async def test_lists_come_in_pages(http: httpx.AsyncClient) -> None:
    for name in ("b", "a", "c"):
        await http.put(f"/v1/topics/other/{name}")
    first = (await http.get("/v1/topics", params={"namespace": "other", "limit": 2})).json()
    assert [t["topic"] for t in first["topics"]] == ["a", "b"]
    assert first["next_start_after"] == "other/b"
    query = {"namespace": "other", "start_after": first["next_start_after"]}
    second = (await http.get("/v1/topics", params=query)).json()
    assert [t["topic"] for t in second["topics"]] == ["c"]
    assert second["next_start_after"] is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"partitions":0}', "partitions"),
        (b'{"partitions":"4"}', "partitions"),
        (b'{"partition":4}', "partition"),
        (b'{"partitions":4', "body"),
        (b"[]", "body"),
    ],
)
async def test_bad_settings_are_a_problem(http: httpx.AsyncClient, body: bytes, field: str) -> None:
    answer = await http.put(TOPIC, content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert answer.headers["content-type"] == "application/problem+json"
    assert field in answer.json()["errors"][0]["field"]


async def test_settings_of_another_type_are_refused_for_it(http: httpx.AsyncClient) -> None:
    """Curl sends ``-d`` as a form unless told otherwise."""
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = await http.put(TOPIC, content=b'{"partitions":4}', headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert "application/json" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/v1/topics/ns/orders/nothing", 404, "not_found"),
        ("POST", "/v1/brokers", 405, "method_not_allowed"),
        ("GET", "/v1/topics?limits=3", 400, "bad_request"),
        ("GET", "/v1/topics?limit=0", 400, "bad_request"),
        ("PUT", "/v1/topics/ns/-bad", 400, "invalid_name"),
        ("GET", "/v1/topics/ns/absent/owners", 404, "topic_not_found"),
        ("GET", "/v1/topics/ns/t/partitions/9/messages", 404, "not_found"),
        ("GET", "/v1/topics/ns/t/partitions/x/messages", 400, "bad_request"),
    ],
)
async def test_mistakes_are_problems(
    http: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    answer = await http.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == status
    assert problem["instance"] == path.partition("?")[0]
    if status == 405:
        assert answer.headers["allow"] == "GET, HEAD, OPTIONS"


async def test_what_the_cluster_is(http: httpx.AsyncClient) -> None:
    assert (await http.get("/v1/brokers")).json()["brokers"][0]["broker_id"] == "a"
    bookies = (await http.get("/v1/bookies")).json()["bookies"]
    assert bookies[0] == {
        "bookie_id": "b1",
        "address": "127.0.0.1:1",
        "rack": "default",
        "is_read_only": False,
        "is_full": False,
        "free_bytes": None,
        "total_bytes": None,
    }
    assert [(b["bookie_id"], b["address"]) for b in bookies[1:]] == [("b2", None), ("b3", None)]
    assert (await http.get("/v1/topics/ns/t/owners")).json() == {"owners": []}


async def test_health_is_not_readiness(http: httpx.AsyncClient, fake_broker: FakeBroker) -> None:
    assert (await http.get("/readyz")).status_code == 200
    fake_broker.failure = FencelogError(ErrorCode.METADATA_UNAVAILABLE, "no ZooKeeper")
    not_ready = await http.get("/readyz")
    assert (not_ready.status_code, not_ready.headers["retry-after"]) == (503, "1")
    assert (await http.get("/healthz")).json() == {"status": "ok"}


async def test_metrics_count_messages(http: httpx.AsyncClient) -> None:
    await http.post("/v1/topics/ns/t/messages", content=b"12345")
    batch = {"content-type": "text/plain"}
    await http.post("/v1/topics/ns/t/messages:batch", content=b"a\nb\n", headers=batch)
    await http.get("/v1/topics/ns/t/partitions/0/messages")
    await http.get("/v1/topics/ns/t/partitions/7/messages")
    metrics = (await http.get("/metrics")).text.splitlines()
    assert "fencelog_http_appended_messages_total 3.0" in metrics
    assert "fencelog_http_appended_bytes_total 9.0" in metrics
    assert "fencelog_http_read_messages_total 3.0" in metrics
    assert 'fencelog_http_problems_total{code="not_found"} 1.0' in metrics
    assert 'fencelog_http_append_seconds_bucket{le="+Inf"} 2.0' in metrics


async def test_an_unexpected_error_is_a_problem_too(
    http: httpx.AsyncClient, fake_broker: FakeBroker
) -> None:
    fake_broker.failure = RuntimeError("secret")
    answer = await http.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret" not in answer.text


_TOPIC = "/v1/topics/{namespace}/{topic}"
_PARTITION = f"{_TOPIC}/partitions/{{partition}}"
ROUTES = {
    "/v1/namespaces",
    "/v1/namespaces/{namespace}",
    "/v1/topics",
    _TOPIC,
    f"{_TOPIC}/messages",
    f"{_TOPIC}/messages:batch",
    f"{_TOPIC}/owners",
    f"{_TOPIC}/subscriptions",
    f"{_TOPIC}/subscriptions/{{subscription}}",
    *(
        f"{_TOPIC}/subscriptions/{{subscription}}{what}"
        for what in (
            *(":pull", ":ack", ":nack", ":extend", ":seek", ":replay-dead-letters"),
            *("/stats", "/lag", "/events"),
        )
    ),
    f"{_PARTITION}/messages",
    f"{_PARTITION}/messages/{{offset}}",
    f"{_PARTITION}/segments",
    f"{_PARTITION}:fence",
    f"{_PARTITION}/producers",
    f"{_PARTITION}/producers/{{producer}}",
    f"{_PARTITION}/producers/{{producer}}:claim",
    *(
        f"{_PARTITION}/committers/{{committer}}{verb}"
        for verb in ("", ":create-ledger", ":commit", ":abort")
    ),
    f"{_PARTITION}/internal",
    f"{_PARTITION}/chain",
    f"{_PARTITION}:trim",
    f"{_PARTITION}:terminate",
    f"{_TOPIC}:terminate",
    f"{_TOPIC}/offsets",
    f"{_PARTITION}/offsets",
    f"{_PARTITION}/compaction",
    f"{_PARTITION}:compact",
    f"{_PARTITION}:open",
    f"{_PARTITION}:unload",
    "/v1/brokers",
    "/v1/brokers/{broker_id}",
    "/v1/brokers/{broker_id}/subscriptions",
    "/v1/brokers/{broker_id}/topics",
    "/v1/brokers/{broker_id}:drain",
    "/v1/brokers/{broker_id}:undrain",
    "/v1/bookies",
    "/v1/admin/bookies",
    "/v1/admin/brokers",
    "/v1/sweep",
    "/v1/admin/auditor",
    "/v1/admin/doctor",
    "/v1/admin/events",
    "/v1/brokers/{broker_id}/troubles",
    "/v1/brokers/{broker_id}/rates",
    "/v1/brokers/{broker_id}:lags",
    "/v1/admin/rates",
    "/v1/admin/together",
    "/v1/admin/ledgers/{ledger_id}/copies",
    "/v1/admin/autorecovery",
    "/v1/admin/bookies/{bookie_id}:recover",
    "/v1/admin/checks",
    "/v1/admin/decommissions",
    "/v1/admin/decommissions/{bookie_id}",
    "/v1/admin/subscriptions",
    "/v1/admin/topics",
    "/v1/admin/underreplicated",
    "/v1/admin/underreplicated/{ledger_id}",
    "/v1/admin/underreplicated/{ledger_id}:replace-bookie",
    "/healthz",
    "/readyz",
    "/metrics",
}
"""All of the service."""


async def test_the_description_lists_every_route(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    assert set(document["paths"]) == ROUTES
    bodies = document["paths"][f"{_TOPIC}/messages:batch"]["post"]["requestBody"]["content"]
    assert set(bodies) == {
        "application/json",
        "application/x-ndjson",
        "text/plain",
        "application/vnd.fencelog.batch",
    }
    names = set(document["components"]["schemas"])
    references = set(_references(document))
    assert references <= {f"#/components/schemas/{name}" for name in names}
    page = await http.get("/docs")
    assert page.status_code == 200
    sources = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert len(sources) >= 4
    for source in sources:  # all from here: a service may have no internet
        assert ":" not in source
        answer = await http.get(f"/{source}", follow_redirects=True)
        assert answer.status_code == 200


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if "$ref" in node else []
        return own + [ref for value in node.values() for ref in _references(value)]
    if isinstance(node, list):
        return [ref for value in node for ref in _references(value)]
    return []


async def test_the_root_is_a_page_of_links(http: httpx.AsyncClient) -> None:
    page = await http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    links = re.findall(r'href="([^"]+)"', page.text)
    assert len(links) >= 8
    assert {link: (await http.get(link)).status_code for link in links} == dict.fromkeys(links, 200)
