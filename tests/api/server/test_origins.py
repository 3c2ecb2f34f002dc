"""Web pages and a running service: nothing is written for a page that is not allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from fencelog.api.server.origins_core import Origins
from fencelog.broker.names import TopicName
from tests.support.fake_broker import FakeBookies, FakeBroker, Serve, app_over
from tests.support.network.http_client import http_client

PAGE = "https://console.example"
TOPIC = "/v1/topics/ns/t"
STRANGE: list[dict[str, str]] = [
    {"host": "evil.example"},
    {"origin": PAGE},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
]
WRITES = [
    ("POST", f"{TOPIC}/messages"),
    ("POST", f"{TOPIC}/messages:batch"),
    ("POST", f"{TOPIC}:terminate"),
    ("PUT", "/v1/topics/ns/other"),
    ("DELETE", TOPIC),
    ("POST", "/v1/sweep"),
    ("PATCH", "/v1/admin/autorecovery"),
    ("POST", "/v1/admin/checks"),
    ("POST", "/v1/admin/decommissions/b1"),
]


@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize(("method", "path"), WRITES)
async def test_a_page_writes_nothing(
    http: httpx.AsyncClient,
    fake_broker: FakeBroker,
    strange: dict[str, str],
    method: str,
    path: str,
) -> None:
    (await http.post(f"{TOPIC}/messages", content=b"opens the partition")).raise_for_status()
    headers = {"content-type": "text/plain", **strange}
    answer = await http.request(method, path, content=b"x", headers=headers)
    code = "unknown_host" if "host" in strange else "cross_origin"
    assert (answer.status_code, answer.json()["code"]) == (403, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert "access-control-allow-origin" not in answer.headers
    assert [log.tail_offset for log in fake_broker.logs.values()] == [1]
    assert (await http.get(TOPIC)).status_code == 200
    assert (await http.get("/v1/topics/ns/other")).status_code == 404


async def test_a_preflight_of_a_page_that_is_not_allowed(http: httpx.AsyncClient) -> None:
    headers = {"origin": PAGE, "access-control-request-method": "DELETE"}
    assert (await http.options(TOPIC, headers=headers)).status_code == 403


async def test_an_allowed_page_writes_and_sees_the_answers(
    fake_broker: FakeBroker, fake_bookies: FakeBookies, serve: Serve
) -> None:
    app = app_over(fake_broker, fake_bookies)
    app.origins = Origins(allowed=["https://other", PAGE])
    async with serve(app) as url, http_client(url) as http:
        asks = {"origin": PAGE, "access-control-request-method": "PUT"}
        preflight = await http.options(TOPIC, headers=asks)
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-methods"] == "PUT"
        page = {"origin": PAGE, "sec-fetch-site": "cross-site"}
        answers = [
            await http.put(TOPIC, headers=page),
            await http.post(f"{TOPIC}/messages", content=b"x", headers=page),
            await http.post(f"{TOPIC}/messages", content=b"y", headers=page),
            await http.get(f"{TOPIC}/partitions/0/messages", headers=page),
            await http.get("/nowhere", headers=page),
        ]
        assert [answer.status_code for answer in answers] == [201, 201, 201, 200, 404]
        for answer in (preflight, *answers):
            assert answer.headers["access-control-allow-origin"] == PAGE
            assert answer.headers["vary"] == "origin"
        alone = await http.get(TOPIC)
        assert "access-control-allow-origin" not in alone.headers


async def test_the_owner_is_not_asked_again_who_may_write(
    new_broker: Callable[[], FakeBroker], serve: Serve, fake_bookies: FakeBookies
) -> None:
    """The broker that a page asked has decided: over links to others nothing is decided again."""
    owner, entry = new_broker(), new_broker()
    other = app_over(entry, fake_bookies)
    other.origins = Origins(["known.example"], allowed=[PAGE])
    async with (
        serve(app_over(owner, fake_bookies)) as owner_url,
        serve(other) as url,
        http_client(url) as http,
    ):
        owner.topics = entry.topics
        (await http.put(TOPIC, headers={"host": "known.example"})).raise_for_status()
        entry.elsewhere[TopicName("ns", "t"), 0] = owner_url
        asked: dict[str, Any] = {"origin": PAGE, "host": "known.example"}
        answer = await http.post(f"{TOPIC}/messages", content=b"x", headers=asked)
        assert (answer.status_code, answer.headers["fencelog-owner"]) == (201, owner_url)
        asked["origin"] = "https://evil.example"
        refused = await http.post(f"{TOPIC}/messages", content=b"x", headers=asked)
        assert refused.status_code == 403
        assert [log.tail_offset for log in owner.logs.values()] == [1]
