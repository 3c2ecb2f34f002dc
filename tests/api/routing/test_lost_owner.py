"""Appends in flight to an owner whose process dies, stops, or lets the partition go."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator

import httpx
import pytest

from fencelog.api.produce.single import Produce
from fencelog.api.routing import link as link_module
from fencelog.api.server.serve import bind
from fencelog.broker.append.conditions import AppendFuture
from fencelog.broker.names import TopicName
from fencelog.broker.partition import forwards as forwards_module
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.api.routing import slow_owner
from tests.support.fake_broker import FakeBroker, FakeLog
from tests.support.network.http_client import http_client
from tests.support.until import until

URL = "/v1/topics/ns/t/messages"
T = TopicName("ns", "t")
MANY = 100


@pytest.fixture
async def owner_process() -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", slow_owner.__name__, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        url = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
        yield process, url
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def posted(http: httpx.AsyncClient, count: int) -> list[asyncio.Task[httpx.Response]]:
    """Posts that wait for their answers."""
    return [asyncio.create_task(http.post(URL, content=b"x", timeout=60)) for _ in range(count)]


@pytest.fixture
def forwarded(monkeypatch: pytest.MonkeyPatch) -> list[AppendFuture]:
    """The appends that went to the owner without an exchange."""
    found: list[AppendFuture] = []
    append_elsewhere = Produce.append_elsewhere

    def noted(self: Produce, *args: object) -> AppendFuture | None:
        future = append_elsewhere(self, *args)  # type: ignore[arg-type]  # the original's arguments
        if future is not None:
            found.append(future)
        return future

    monkeypatch.setattr(Produce, "append_elsewhere", noted)
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_appends_in_flight_to_a_lost_process_are_of_unknown_outcome(
    http: httpx.AsyncClient,
    fake_broker: FakeBroker,
    owner_process: tuple[asyncio.subprocess.Process, str],
    forwarded: list[AppendFuture],
    how: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_module, "LINK_PING_MS", 100)
    process, fake_broker.elsewhere[T, 0] = owner_process
    posts = await posted(http, MANY)
    await until(lambda: len(forwarded) >= MANY)
    await asyncio.sleep(0.3)
    assert not any(post.done() for post in posts)
    os.kill(process.pid, how)
    for post in posts:
        answer = await asyncio.wait_for(post, 30)
        assert (answer.status_code, answer.json()["code"]) == (504, "append_unknown")
        assert answer.json()["side_effects"] == "maybe"
    assert fake_broker.reported == []
    assert not fake_broker.logs


@pytest.fixture
def open_owner(owner: FakeBroker) -> FakeBroker:
    """The owner, whose log is open."""
    owner.logs[T, 0] = FakeLog(0)
    return owner


async def test_appends_in_flight_to_an_owner_that_was_replaced_are_of_unknown_outcome(
    http: httpx.AsyncClient,
    fake_broker: FakeBroker,
    open_owner: FakeBroker,
    forwarded: list[AppendFuture],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It lost its session, not its link: it still answers pings."""
    monkeypatch.setattr(forwards_module, "OWNER_LOST_MS", 30)
    open_owner.logs[T, 0].answers_after = asyncio.Event()
    posts = await posted(http, 10)
    await until(lambda: len(forwarded) >= 10)
    await asyncio.sleep(0.1)
    assert not any(post.done() for post in posts)
    fake_broker.elsewhere[T, 0] = "http://next"
    fake_broker.forwards.owner_is("http://next")
    for post in posts:
        answer = await asyncio.wait_for(post, 30)
        assert (answer.status_code, answer.json()["code"]) == (504, "append_unknown")
    assert len(forwarded) == 10  # nothing was appended by the next owner
    assert fake_broker.reported == []
    assert not fake_broker.logs


async def test_a_post_goes_to_the_owner_without_an_exchange(
    http: httpx.AsyncClient, open_owner: FakeBroker, forwarded: list[AppendFuture]
) -> None:
    headers = {"Fencelog-Key": "k", "Fencelog-Header-a": "b"}
    answer = await http.post(URL, content=b"x", headers=headers)
    assert (answer.status_code, answer.json()["offset"]) == (201, 0)
    assert answer.headers["fencelog-owner"] == open_owner.url
    assert len(forwarded) == 1
    shown = await http.get("/v1/topics/ns/t/partitions/0/messages/0")
    assert (shown.content, shown.headers["fencelog-key"]) == (b"x", "k")
    assert shown.headers["fencelog-header-a"] == "b"


async def test_an_unknown_outcome_at_the_owner_is_one_for_the_client(
    http: httpx.AsyncClient, open_owner: FakeBroker, forwarded: list[AppendFuture]
) -> None:
    open_owner.logs[T, 0].failure = FencelogError(ErrorCode.APPEND_UNKNOWN, "lost", bookies=["b1"])
    answer = await http.post(URL, content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (504, "append_unknown")
    assert (answer.json()["detail"], answer.json()["bookies"]) == ("lost", ["b1"])
    open_owner.logs[T, 0].failure = RuntimeError("a bug")
    answer = await http.post(URL, content=b"x")
    assert (answer.status_code, answer.json()["side_effects"]) == (500, "maybe")
    assert len(forwarded) == 2


async def test_an_append_that_the_owner_refuses_takes_the_ordinary_way(
    http: httpx.AsyncClient, open_owner: FakeBroker, forwarded: list[AppendFuture]
) -> None:
    open_owner.logs[T, 0].failure = FencelogError(ErrorCode.RATE_LIMITED, "slower")
    answer = await http.post(URL, content=b"x")
    assert (answer.status_code, answer.json()["detail"]) == (429, "slower")
    del open_owner.logs[T, 0]  # not open; the ordinary way opens it
    answer = await http.post(URL, content=b"y")
    assert (answer.status_code, answer.json()["offset"]) == (201, 0)
    assert [bool(future.exception()) for future in forwarded] == [True, True]


async def test_a_refused_connection_lets_this_broker_take_over(
    http: httpx.AsyncClient, fake_broker: FakeBroker, forwarded: list[AppendFuture]
) -> None:
    with contextlib.closing(bind("127.0.0.1", 0)) as sock:
        dead = f"http://127.0.0.1:{sock.getsockname()[1]}"
        fake_broker.elsewhere[T, 0] = dead
        answer = await http.post(URL, content=b"x")
    assert answer.status_code == 201
    assert "fencelog-owner" not in answer.headers
    assert fake_broker.reported == [dead]
    assert len(forwarded) == 1


async def test_an_event_stream_that_nobody_reads_stops_no_append(
    http: httpx.AsyncClient, open_owner: FakeBroker, service: str
) -> None:
    text = json.dumps({"text": "x" * 50_000}).encode()
    for _ in range(20):
        batch = await http.post(
            f"{URL}:batch",
            content=b"\n".join([text] * 5),
            headers={"content-type": "application/x-ndjson"},
        )
        assert batch.status_code == 201
    headers = {"accept": "text/event-stream"}
    read = "/v1/topics/ns/t/partitions/0/messages?from=0"
    async with (
        http_client(service) as slow,
        slow.stream("GET", read, headers=headers) as stream,
    ):
        lines = stream.aiter_lines()
        await anext(lines)
        for offset in range(100, 150):
            answer = await http.post(URL, content=b"y", timeout=10)
            assert answer.json()["offset"] == offset
        seen = 0
        async for line in lines:
            seen += line.startswith("data:")
            if seen == 100:
                break
