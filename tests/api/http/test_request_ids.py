"""Ids of requests: repeated in answers and problems, and made where none was sent."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import pytest

from fencelog.api.http.request_ids import CurrentRequest, current_contexts, live_request, serving
from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.request_context import NO_CONTEXTS, RequestContext
from tests.support.fake_broker import FakeBroker, FakeLog

POST = "/v1/topics/ns/t/messages"
BATCH = f"{POST}:batch"
READ = "/v1/topics/ns/t/partitions/0/messages"
TEXT = {"content-type": "text/plain"}


def fake_log(broker: FakeBroker) -> FakeLog:
    return broker.logs[TopicName("ns", "t"), 0]


WAYS = [
    ("POST", POST, {}),
    ("POST", BATCH, TEXT),
    ("GET", READ, {}),
    ("GET", "/v1/topics/ns/t", {}),
    ("GET", "/healthz", {}),
]
"""A connection's own way, that of the application, and that of its framework."""


@pytest.mark.parametrize(("method", "path", "headers"), WAYS)
async def test_an_answer_repeats_the_id_that_the_request_brought(
    http: httpx.AsyncClient, method: str, path: str, headers: dict[str, str]
) -> None:
    await http.post(POST, content=b"x")
    given = {**headers, "X-Request-Id": "Root=1-67891233;a/b"}
    answer = await http.request(method, path, content=b"x", headers=given)
    assert answer.is_success
    assert answer.headers.get_list("x-request-id") == ["Root=1-67891233;a/b"]
    plain = await http.request(method, path, content=b"x", headers=headers)
    assert "x-request-id" not in plain.headers


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, 'a"b', "a%0ab"])
async def test_an_id_that_cannot_be_used_is_no_id(http: httpx.AsyncClient, given: str) -> None:
    headers = {"X-Request-Id": given}
    assert "x-request-id" not in (await http.post(POST, content=b"x", headers=headers)).headers
    missing = await http.get("/v1/topics/ns/none", headers=headers)
    assert missing.headers.get_list("x-request-id") == [missing.json()["request_id"]] != [given]


FAILING = [
    ("GET", "/v1/topics/ns/none", {}, 404),
    ("GET", "/nowhere", {}, 404),
    ("PUT", POST, {}, 405),
    ("POST", f"{POST}?partition=7", {}, 404),
    ("POST", BATCH, {}, 415),
    ("GET", f"{READ}?from=9", {}, 416),
    ("POST", POST, {"Origin": "https://elsewhere.example"}, 403),
]


@pytest.mark.parametrize(("method", "path", "headers", "status"), FAILING)
async def test_every_problem_has_an_id(
    http: httpx.AsyncClient, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answer = await http.request(method, path, headers=headers)
    again = await http.request(method, path, headers=headers)
    given = await http.request(method, path, headers={**headers, "X-Request-Id": "mine"})
    assert [each.status_code for each in (answer, again, given)] == [status] * 3
    ids = [each.json()["request_id"] for each in (answer, again, given)]
    assert [each.headers.get_list("x-request-id") for each in (answer, again)] == [
        [ids[0]],
        [ids[1]],
    ]
    assert ids[0] != ids[1]
    if status != 403:  # It is refused before anything else of it is read.
        assert ids[2] == "mine"
        assert given.headers.get_list("x-request-id") == ["mine"]


@pytest.mark.parametrize(
    ("error", "level", "given_level"),
    [
        (FencelogError(ErrorCode.APPEND_UNKNOWN, "lost"), "WARNING", "WARNING"),
        (FencelogError(ErrorCode.OVERLOADED, "much"), "INFO", "INFO"),
        (FencelogError(ErrorCode.PAYLOAD_TOO_LARGE, "big"), "DEBUG", "INFO"),
        (RuntimeError("a bug"), "ERROR", "ERROR"),
    ],
)
@pytest.mark.parametrize(("path", "headers"), [(POST, {}), (BATCH, TEXT)])
async def test_a_problem_finds_its_line(
    http: httpx.AsyncClient,
    fake_broker: FakeBroker,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    level: str,
    given_level: str,
    path: str,
    headers: dict[str, str],
) -> None:
    await http.post(POST, content=b"x")
    fake_log(fake_broker).failure = error
    seen: list[tuple[str, str]] = []

    class Named(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            request = live_request()
            assert request is not None
            seen.append((record.levelname, request.request_id))

    handler = Named(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "fencelog.api")
    logging.getLogger("fencelog.api").addHandler(handler)
    try:
        answer = await http.post(path, content=b"x", headers=headers)
        assert (level, answer.json()["request_id"]) in seen
        answer = await http.post(path, content=b"x", headers={**headers, "X-Request-Id": "mine"})
        assert (given_level, "mine") in seen
    finally:
        logging.getLogger("fencelog.api").removeHandler(handler)


@pytest.mark.parametrize(("path", "headers"), [(POST, {}), (BATCH, TEXT)])
async def test_appends_name_the_requests_that_brought_an_id(
    http: httpx.AsyncClient, fake_broker: FakeBroker, path: str, headers: dict[str, str]
) -> None:
    await http.post(path, content=b"x", headers={**headers, "X-Request-Id": "mine"})
    await http.post(path, content=b"x", headers=headers)
    followed = [contexts for contexts in fake_log(fake_broker).followed if contexts]
    assert followed == [(RequestContext("mine"),)]


async def test_what_a_request_leaves_running_serves_no_request() -> None:
    found: list[Any] = []
    over = asyncio.Event()

    async def later() -> None:
        found.append(live_request())
        await over.wait()
        found.extend((live_request(), current_contexts()))

    request = CurrentRequest("a")
    with serving(request):
        assert current_contexts() == (RequestContext("a"),)
        task = asyncio.create_task(later())
        await asyncio.sleep(0)
    over.set()
    await task
    assert found == [request, None, NO_CONTEXTS]
    assert live_request() is None
