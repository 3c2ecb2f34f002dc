"""Every path tells truly which methods it takes; HEAD is GET without its body, everywhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from fencelog.api.server.together import TOGETHER_PATH
from tests.support.network.http_client import http_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
PLACES = {
    "namespace": "ns",
    "topic": "t",
    "partition": "0",
    "offset": "0",
    "producer": "p",
    "committer": "q",
    "subscription": "s",
    "broker_id": "nobody",
    "bookie_id": "nobody",
    "ledger_id": "1",
}
PAGES = ("/", "/docs", "/openapi.json")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(real: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service with the topic ``ns/t``, its subscription ``s`` and one message."""
    async with http_client(real) as client:
        for path in ("/v1/topics/ns/t", "/v1/topics/ns/t/subscriptions/s"):
            (await client.put(path, json={})).raise_for_status()
        (await client.post("/v1/topics/ns/t/messages", content=b"x")).raise_for_status()
        yield client


def is_stream(path: str) -> bool:
    """Tell whether a path answers with an event stream; the timeline of events is a list."""
    return path.endswith("/events") and path != "/v1/admin/events"


async def routes(http: httpx.AsyncClient) -> dict[str, set[str]]:
    """Return the methods of all paths, as ``/openapi.json`` describes them."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, item in (await http.get("/openapi.json")).json()["paths"].items():
        found[path.format_map(PLACES)] |= {method.upper() for method in item}
    assert len(found) >= 35
    return found | {path: {"GET"} for path in PAGES}


async def test_every_path_tells_its_methods(http: httpx.AsyncClient) -> None:
    for path, methods in (await routes(http)).items():
        told = methods | {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set())
        options = await http.options(path)
        assert (options.status_code, options.content) == (204, b""), path
        assert set(options.headers["allow"].split(", ")) == told, path
        for method in set(METHODS) - told:
            answer = await http.request(method, path)
            assert answer.status_code == 405, (method, path)
            assert set(answer.headers["allow"].split(", ")) == told, (method, path)
            if method != "HEAD":
                assert answer.json()["code"] == "method_not_allowed"


async def test_head_is_get_without_its_body(http: httpx.AsyncClient) -> None:
    compared = 0
    for path, methods in (await routes(http)).items():
        if "GET" not in methods:
            continue
        head = await http.head(path)
        assert head.content == b""
        if is_stream(path):
            assert head.headers["content-type"] == "text/event-stream"
            continue  # The stream of a GET has no end.
        answer = await http.get(path)
        assert head.status_code == answer.status_code, path
        assert head.headers["content-type"] == answer.headers["content-type"], path
        compared += 1
    assert compared >= 20
    stats = (await http.get("/v1/topics/ns/t/subscriptions/s/stats")).json()["partitions"]
    assert [each["outstanding"] for each in stats] == [0]


async def test_every_json_answer_ends_its_line(http: httpx.AsyncClient) -> None:
    """A shell's prompt then begins a line of its own."""
    answers = [await http.put("/v1/topics/ns/line"), await http.get("/v1/topics/ns/absent")]
    posts = "/v1/topics/ns/line/messages"
    answers += [await http.post(posts, content=b"x") for _ in range(3)]
    answers.append(await http.post(f"{posts}:batch", json={"messages": [{"text": "x"}]}))
    for path, methods in (await routes(http)).items():
        if "GET" in methods and path not in (*PAGES, TOGETHER_PATH) and not is_stream(path):
            answers.append(await http.get(path))
    for answer in answers:
        if "json" in answer.headers["content-type"]:
            assert answer.text.endswith("}\n"), answer.url
            assert answer.text.count("\n") == 1, answer.url


async def test_a_form_that_cannot_be_had_is_refused(http: httpx.AsyncClient) -> None:
    for path, methods in (await routes(http)).items():
        if "GET" not in methods or not path.startswith("/v1/"):
            continue
        answer = await http.get(path, headers={"accept": "image/png"})
        if path.endswith("/messages/0"):
            assert answer.status_code == 200  # A message may be a picture.
            continue
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (406, "not_acceptable"), path
        form = "text/event-stream" if is_stream(path) else "application/json"
        form = "application/x-ndjson" if path == TOGETHER_PATH else form
        assert form in problem["detail"]


@pytest.mark.parametrize("path", ["/v1/topics/", "/v1/topics/ns/t/", "/docs/"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_no_other_path_is_meant_and_nobody_is_sent_elsewhere(
    http: httpx.AsyncClient, method: str, path: str
) -> None:
    answer = await http.request(method, path)
    assert answer.status_code in (404, 405)
    assert "location" not in answer.headers
    assert (await http.get("/v1/topics/ns/t")).status_code == 200


async def test_what_is_terminated_is_told_without_inner_names(http: httpx.AsyncClient) -> None:
    (await http.put("/v1/topics/ns/ended")).raise_for_status()
    (await http.post("/v1/topics/ns/ended:terminate")).raise_for_status()
    problem = (await http.post("/v1/topics/ns/ended/messages", content=b"x")).json()
    assert problem["code"] == "topic_terminated"
    assert problem["detail"] == "the partition is terminated at offset 0"
