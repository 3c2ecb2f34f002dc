"""Several answers to one request: each as if it had been asked for alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fencelog.api.http.asgi import JSON, Event, Exchange, Receive, Scope
from fencelog.api.http.waits import Waits
from fencelog.api.server import together
from fencelog.api.server.limits import MAX_ANSWERS_TOGETHER
from fencelog.api.server.together import TOGETHER_PATH, Together
from tests.support.network.http_client import http_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


class Asking:
    """A client of the endpoint over an application that answers ``/v1/fast`` at once and
    ``/v1/slow`` when ``release`` is set."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.gone = asyncio.Event()
        self.cancelled: list[str] = []
        self.seen: list[Scope] = []
        self.status = 0
        self.lines: asyncio.Queue[Json] = asyncio.Queue()
        self.waits = Waits()

    async def serve(self, exchange: Exchange, scope: Scope, receive: Receive) -> None:
        self.seen.append(scope)
        if exchange.path == "/v1/silent":
            return
        if exchange.path == "/v1/slow":
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled.append(exchange.path)
                raise
        if exchange.path == "/v1/text":
            await exchange.respond(200, b"text/plain", b"text")
            return
        await exchange.respond(200, JSON, json.dumps({"path": exchange.path}).encode())

    async def get(self, query: str, *headers: tuple[bytes, bytes]) -> list[Json]:
        """Ask; return the lines."""
        scope = {
            "type": "http",
            "method": "GET",
            "path": TOGETHER_PATH,
            "query_string": query.encode(),
            "headers": [*headers],
        }

        async def receive() -> Json:
            await self.gone.wait()
            return {"type": "http.disconnect"}

        lines: list[Json] = []

        async def send(event: Event) -> None:
            self.status = event.get("status", self.status)
            for line in event.get("body", b"").splitlines():
                lines.append(json.loads(line))
                self.lines.put_nowait(lines[-1])

        await Together(self.serve, self.waits).get(Exchange(scope, receive, send))
        return lines


async def test_an_answer_waits_for_no_other_one() -> None:
    asking = Asking()
    asked = asyncio.create_task(asking.get("path=/v1/slow&path=/v1/fast%3Fa%3D1"))
    first = await asking.lines.get()
    assert (first["path"], first["status"]) == ("/v1/fast?a=1", 200)
    assert first["body"] == {"path": "/v1/fast"}
    assert not asked.done()
    asking.release.set()
    assert [line["path"] for line in await asked] == ["/v1/fast?a=1", "/v1/slow"]


async def test_a_part_is_a_request_of_its_own() -> None:
    asking = Asking()
    headers = (b"accept", b"application/x-ndjson"), (b"x-request-id", b"mine"), (b"prefer", b"x")
    await asking.get("path=/v1/a%2520b%3Fx%3D%252F", *headers)
    (scope,) = asking.seen
    assert (scope["path"], scope["raw_path"]) == ("/v1/a b", b"/v1/a%20b")
    assert scope["query_string"] == b"x=%2F"
    assert scope["headers"] == [(b"x-request-id", b"mine"), (b"accept", JSON)]


async def test_what_the_client_knows_is_not_sent_again() -> None:
    asking = Asking()
    (first,) = await asking.get("path=/v1/fast")
    again, other = await asking.get(f"path=/v1/fast&path=/v1/fast%3F&known={first['etag']}")
    assert (again["status"], again["etag"], again["body"]) == (304, first["etag"], None)
    # The same body at another path is another answer.
    assert (other["status"], other["body"]) == (200, {"path": "/v1/fast"})


async def test_what_does_not_answer_in_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "ANSWERS_MS", 20)
    asking = Asking()
    lines = await asking.get("path=/v1/slow&path=/v1/silent&path=/v1/fast")
    by_path = {line["path"]: line for line in lines}
    assert by_path["/v1/slow"]["body"]["code"] == "read_unknown"
    assert by_path["/v1/silent"]["body"]["code"] == "read_unknown"
    assert by_path["/v1/fast"]["status"] == 200
    assert asking.cancelled == ["/v1/slow"]


async def test_what_cannot_be_a_line_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "MAX_ANSWER_BYTES", 30)
    paths = ["/v1/text", TOGETHER_PATH, "/v1/" + "long" * 10, "/v1/fast"]
    lines = await Asking().get("&".join(f"path={path}" for path in paths))
    statuses = {line["path"]: line["status"] for line in lines}
    assert statuses == dict(zip(paths, (406, 400, 400, 200), strict=True))


async def test_a_client_that_goes_ends_all_of_it() -> None:
    asking = Asking()
    asked = asyncio.create_task(asking.get("path=/v1/slow&path=/v1/fast"))
    await asking.lines.get()
    asking.gone.set()
    (result,) = await asyncio.gather(asked, return_exceptions=True)
    assert isinstance(result, Exception)
    assert asking.cancelled == ["/v1/slow"]


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("paths=/v1/brokers", "paths"),
        ("path=/healthz", "path"),
        ("path=/v1/%20", "path"),
        ("path=/v1/a%0A", "path"),
        ("&".join(["path=/v1/brokers"] * (MAX_ANSWERS_TOGETHER + 1)), "path"),
    ],
)
async def test_bad_questions_are_refused(real: str, query: str, parameter: str) -> None:
    async with http_client(real) as http:
        answer = await http.get(f"{TOGETHER_PATH}?{query}")
        assert (answer.status_code, answer.json()["parameter"]) == (400, parameter)


async def test_in_a_whole_service(real: str) -> None:
    paths = ["/v1/brokers", "/v1/admin/doctor?scan=false", "/v1/topics/shop/absent"]
    async with http_client(real) as http:
        answer = await http.get(TOGETHER_PATH, params=[("path", path) for path in paths])
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = {line["path"]: line for line in map(json.loads, answer.text.splitlines())}
        alone = (await http.get(paths[0])).json()
        empty = await http.get(TOGETHER_PATH)
    assert lines.keys() == set(paths)
    ids = [
        [each["broker_id"] for each in said["brokers"]] for said in (lines[paths[0]]["body"], alone)
    ]
    assert ids[0] == ids[1] != []
    assert lines[paths[1]]["body"]["scanned"] is False
    problem = lines[paths[2]]["body"]
    assert (lines[paths[2]]["status"], problem["code"]) == (404, "topic_not_found")
    assert (empty.status_code, empty.content) == (200, b"")
