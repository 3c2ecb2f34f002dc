"""Reads: every form, positions, bounds, long polls, event streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message, encode_batch
from fencelog.ledgers.record_batch.check import check_batch
from fencelog.ledgers.record_batch.frames import read_frames
from tests.support.fake_broker import FakeBookies, FakeBroker, FakeLog, Serve, app_over
from tests.support.network.http_client import http_client

URL = "/v1/topics/ns/t/partitions/0/messages"
T = TopicName("ns", "t")
BATCH = {"accept": "application/vnd.fencelog.batch"}
EVENTS = {"accept": "text/event-stream"}
TIME = 1_700_000_000_000_000


@pytest.fixture
async def log(http: httpx.AsyncClient, fake_broker: FakeBroker) -> FakeLog:
    """Ten messages, 0 to 9, in entries of 4, 4 and 2."""
    log = await fake_broker.partition(T, 0)
    values = [Message(b"%d" % n) for n in range(10)]
    for first in (0, 4, 8):
        batch = encode_batch(values[first : first + 4])
        await log.append_batch(batch, check_batch(batch))
    return log


def position(answer: httpx.Response) -> tuple[str, str, str]:
    names = ("next-offset", "tail-offset", "at-tail")
    first, second, third = (answer.headers[name] for name in names)
    return first, second, third


async def test_json_is_the_default(http: httpx.AsyncClient, log: FakeLog) -> None:
    answer = await http.get(URL, params={"from": 3, "limit": 2})
    assert answer.json() == {
        "messages": [
            {"partition": 0, "offset": 3, "publish_time": TIME, "text": "3"},
            {"partition": 0, "offset": 4, "publish_time": TIME, "text": "4"},
        ],
        "next_offset": 5,
        "tail_offset": 10,
        "at_tail": False,
    }
    assert position(answer) == ("5", "10", "false")


async def test_ndjson_gives_a_message_a_line(http: httpx.AsyncClient, log: FakeLog) -> None:
    answer = await http.get(URL, headers={"accept": "application/x-ndjson"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["text"] for line in answer.text.splitlines()] == list("0123456789")
    assert position(answer) == ("10", "10", "true")


async def test_record_batches_come_whole(http: httpx.AsyncClient, log: FakeLog) -> None:
    answer = await http.get(URL, params={"from": 5, "limit": 1}, headers=BATCH)
    (frame,) = read_frames(answer.content)
    assert (frame.base_offset, frame.count, frame.publish_time_us) == (4, 4, TIME)
    assert position(answer) == ("8", "10", "false")


async def test_every_form_walks_the_log_without_gap_or_repetition(
    http: httpx.AsyncClient, log: FakeLog
) -> None:
    for limit in range(1, 11):
        seen: list[int] = []
        offset = 0
        while offset < 10:
            answer = await http.get(URL, params={"from": offset, "limit": limit, "max_bytes": 1})
            seen += [message["offset"] for message in answer.json()["messages"]]
            offset = answer.json()["next_offset"]
        assert seen == list(range(10))


async def test_values_show_in_the_form_asked_for(
    http: httpx.AsyncClient, fake_broker: FakeBroker
) -> None:
    log = await fake_broker.partition(T, 0)
    messages = [
        Message(b'{"a":\n1}', b"\xff", 5, (("h", b"1"),)),
        Message(b"\xff", b"k", None, (("h", b"1"), ("h", b"2"))),
        Message(b"nul"),
    ]
    batch = encode_batch(messages)
    await log.append_batch(batch, check_batch(batch))
    shown: dict[str, list[dict[str, Any]]] = {}
    for form in ("text", "json", "base64"):
        answer = await http.get(
            URL, params={"as": form}, headers={"accept": "application/x-ndjson"}
        )
        shown[form] = [json.loads(line) for line in answer.text.splitlines()]
    value_members = {"text", "json", "base64"}
    chosen = {form: [(value_members & m.keys()).pop() for m in ms] for form, ms in shown.items()}
    assert chosen == {
        "text": ["text", "base64", "text"],
        "json": ["json", "base64", "text"],
        "base64": ["base64", "base64", "base64"],
    }
    assert shown["json"][0]["json"] == {"a": 1}
    first, second, _ = shown["text"]
    assert (first["key_base64"], first["event_time"], first["headers"]) == ("/w==", 5, {"h": "1"})
    assert (second["key"], second["headers_base64"]) == ("k", [["h", "MQ=="], ["h", "Mg=="]])


async def test_positions_by_name(http: httpx.AsyncClient, log: FakeLog) -> None:
    latest = await http.get(URL, params={"from": "latest"})
    assert latest.json()["messages"] == []
    assert position(latest) == ("10", "10", "true")
    log.earliest_offset = 4
    earliest = await http.get(URL)
    assert earliest.json()["messages"][0]["offset"] == 4


async def test_offsets_outside_the_log_tell_where_it_is(
    http: httpx.AsyncClient, log: FakeLog
) -> None:
    beyond = await http.get(URL, params={"from": 11})
    assert (beyond.status_code, beyond.json()["tail_offset"]) == (416, 10)
    log.earliest_offset = 4
    trimmed = await http.get(URL, params={"from": 3}, headers=EVENTS)
    assert (trimmed.status_code, trimmed.json()["earliest_offset"]) == (410, 4)


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("from=-1", "from"),
        ("from=last", "from"),
        ("limit=0", "limit"),
        ("limit=100001", "limit"),
        ("max_bytes=9999999999", "max_bytes"),
        ("wait=61", "wait"),
        ("wait=nan", "wait"),
        ("wait=-1", "wait"),
        ("as=xml", "as"),
        ("offset=1", "offset"),
        ("from=1&from=2", "from"),
    ],
)
async def test_bad_parameters_are_named(
    http: httpx.AsyncClient, query: str, parameter: str
) -> None:
    answer = await http.get(f"{URL}?{query}")
    assert (answer.status_code, answer.json()["parameter"]) == (400, parameter)


async def test_segments_begin_at_an_offset(http: httpx.AsyncClient, log: FakeLog) -> None:
    url = URL.replace("messages", "segments")
    assert (await http.get(url)).json()["from_offset"] == 0
    assert (await http.get(f"{url}?from_offset=7")).json()["from_offset"] == 7
    for text in ("latest", "-1", str(2**63)):
        refused = await http.get(f"{url}?from_offset={text}")
        assert (refused.status_code, refused.json()["parameter"]) == (400, "from_offset")


async def test_segments_may_be_confirmed_and_refreshed(
    http: httpx.AsyncClient, log: FakeLog
) -> None:
    url = URL.replace("messages", "segments")
    plain = (await http.get(url)).json()
    assert (plain["confirmed"], plain["refresh"]) == (False, None)
    asked = (await http.get(f"{url}?confirmed=true&refresh=7")).json()
    assert (asked["confirmed"], asked["refresh"]) == (True, 7)
    for name, text in (("confirmed", "1"), ("refresh", "-1"), ("refresh", "x")):
        refused = await http.get(f"{url}?{name}={text}")
        assert (refused.status_code, refused.json()["parameter"]) == (400, name)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("*/*", "application/json"),
        ("text/html, application/xhtml+xml, */*;q=0.8", "application/json"),
        ("application/json;q=0.5, application/x-ndjson", "application/x-ndjson"),
        ("text/csv", "application/problem+json"),
    ],
)
async def test_the_form_is_negotiated(
    http: httpx.AsyncClient, log: FakeLog, accept: str, expected: str
) -> None:
    answer = await http.get(URL, headers={"accept": accept})
    assert answer.headers["content-type"] == expected


async def test_head_tells_the_position_without_a_body(
    http: httpx.AsyncClient, log: FakeLog
) -> None:
    answer = await http.head(URL, params={"from": "latest"})
    assert (answer.status_code, answer.content) == (200, b"")
    assert position(answer) == ("10", "10", "true")
    assert answer.headers["earliest-offset"] == "0"
    assert "content-length" not in answer.headers, "nobody knows that of the GET's answer"


async def test_one_message_by_its_offset(http: httpx.AsyncClient, log: FakeLog) -> None:
    assert (await http.get(f"{URL}/7")).content == b"7"
    missing = await http.get(f"{URL}/10")
    assert (missing.status_code, missing.json()["tail_offset"]) == (416, 10)
    assert log.owner_checks == 1, "a later owner may have it"
    assert (await http.get(f"{URL}/x")).status_code == 400


class TestLongPoll:
    async def test_it_waits_for_a_message(self, http: httpx.AsyncClient, log: FakeLog) -> None:
        reading = asyncio.create_task(http.get(URL, params={"from": 10, "wait": 5}))
        await log.readers_are(1)
        log.append_message(Message(b"ten"))
        assert [m["text"] for m in (await reading).json()["messages"]] == ["ten"]

    async def test_it_comes_back_empty(self, http: httpx.AsyncClient, log: FakeLog) -> None:
        answer = await http.get(URL, params={"from": "latest", "wait": 0.02})
        assert answer.json()["messages"] == []
        assert answer.json()["at_tail"] is True

    async def test_it_ends_with_its_client(
        self, service: str, http: httpx.AsyncClient, log: FakeLog, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with http_client(service) as leaving:
            reading = asyncio.create_task(leaving.get(URL, params={"from": 10, "wait": 60}))
            await log.readers_are(1)
            reading.cancel()
        await log.readers_are(0)
        assert not caplog.records


async def events(lines: AsyncIterator[str], count: int) -> list[dict[str, str]]:
    """The first ``count`` events, parsed as a browser would."""
    found: list[dict[str, str]] = []
    event: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        else:
            found.append(event)
            event = {}
            if len(found) == count:
                break
    return found


class TestEventStream:
    async def test_messages_then_the_tail_then_live(
        self, http: httpx.AsyncClient, log: FakeLog
    ) -> None:
        async with http.stream("GET", URL, params={"from": 8}, headers=EVENTS) as answer:
            assert answer.headers["content-type"] == "text/event-stream"
            assert position(answer) == ("8", "10", "false")
            lines = answer.aiter_lines()
            found = await events(lines, 4)
            log.append_message(Message(b"ten"))
            found += await events(lines, 2)
        names = ["control", "message", "message", "control", "message", "control"]
        assert [event["event"] for event in found] == names
        assert [event["id"] for event in found if "id" in event] == ["8", "9", "10"]
        assert json.loads(found[4]["data"])["text"] == "ten"
        state = {"next_offset": 11, "tail_offset": 11, "at_tail": True}
        assert json.loads(found[5]["data"]) == state

    async def test_it_resumes_after_the_last_event(
        self, http: httpx.AsyncClient, log: FakeLog
    ) -> None:
        headers = {**EVENTS, "Last-Event-ID": "4"}
        answer = await http.get(URL, params={"from": 0, "limit": 3}, headers=headers)
        assert [line for line in answer.text.splitlines() if line.startswith("id")] == [
            "id: 5",
            "id: 6",
            "id: 7",
        ]

    @pytest.mark.parametrize("last", ["x", "-1", str(2**63)])
    @pytest.mark.parametrize("accept", ["text/event-stream", "application/json"])
    async def test_a_last_event_that_is_no_offset_is_refused(
        self, http: httpx.AsyncClient, log: FakeLog, last: str, accept: str
    ) -> None:
        answer = await http.get(URL, headers={"Accept": accept, "Last-Event-ID": last})
        assert answer.status_code == 400
        assert last in answer.json()["detail"]

    async def test_pings_keep_it_alive(
        self, http: httpx.AsyncClient, log: FakeLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("fencelog.api.read.read.PING_INTERVAL_MS", 10)
        async with http.stream("GET", URL, params={"from": "latest"}, headers=EVENTS) as answer:
            found = await events(answer.aiter_lines(), 3)
        assert [event["event"] for event in found] == ["control", "ping", "ping"]

    async def test_a_problem_is_its_last_event(
        self, http: httpx.AsyncClient, log: FakeLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def lost(*_: object, **__: object) -> None:
            raise FencelogError(ErrorCode.NOT_OWNER, "another broker took over")

        async with http.stream("GET", URL, params={"from": 9}, headers=EVENTS) as answer:
            assert len(await events(answer.aiter_lines(), 3)) == 3
        async with http.stream("GET", URL, params={"from": "latest"}, headers=EVENTS) as answer:
            await log.readers_are(1)
            monkeypatch.setattr(log, "fetch", lost)
            log.append_message(Message(b"ten"))
            found = await events(answer.aiter_lines(), 99)
        assert found[-1]["event"] == "problem"
        assert json.loads(found[-1]["data"])["code"] == "not_owner"

    async def test_it_ends_with_its_client(
        self, http: httpx.AsyncClient, log: FakeLog, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with http.stream("GET", URL, params={"from": "latest"}, headers=EVENTS) as answer:
            await events(answer.aiter_lines(), 1)
        await log.readers_are(0)
        assert not caplog.records


async def test_closing_ends_what_waits(
    fake_broker: FakeBroker, fake_bookies: FakeBookies, serve: Serve
) -> None:
    """A long poll gets a problem, an event stream ends with one, and nothing waits for them."""
    await fake_broker.topics.create(T, TopicConfig())
    log = await fake_broker.partition(T, 0)
    app = app_over(fake_broker, fake_bookies)
    async with serve(app) as url, http_client(url) as http:
        polling = asyncio.create_task(http.get(URL, params={"wait": 60}))
        following = asyncio.create_task(http.get(URL, headers=EVENTS))
        await log.readers_are(2)
        app.drain()
        polled, followed = await polling, await following
        late = await http.get(URL, headers=EVENTS)
    assert (polled.status_code, polled.json()["code"]) == (503, "draining")
    assert followed.status_code == 200
    assert "event: problem" in followed.text
    assert '"code":"draining"' in followed.text
    assert (late.status_code, late.json()["code"]) == (503, "draining")
