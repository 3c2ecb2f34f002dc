"""``fencelog events``: what has happened at a service, as lines, as JSON, and as it happens."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from fencelog.api.cli.events import _show, line, moment_us
from fencelog.api.local_cluster.child_process import fencelog_command
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from tests.support.fencelog_cli import complaint, fencelog
from tests.support.network.http_client import http_client


def put(service: str, topic: str) -> None:
    assert fencelog("append", topic, "--server", service, stdin=b"x\n").returncode == 0


def shown(service: str, *options: str) -> list[dict[str, Any]]:
    done = fencelog("events", "--json", *options, "--server", service)
    assert done.returncode == 0, done.stderr
    return [json.loads(each) for each in done.stdout.splitlines()]


def until_shown(service: str, topic: str) -> list[dict[str, Any]]:
    for _ in range(20):
        if found := shown(service, "--topic", topic):
            return found
    pytest.fail("no event arrives")


def test_a_line_says_when_and_what() -> None:
    event = {"time_us": 1_700_000_000_123_456, "kind": "roll", "summary": "ns/t/0: rolled"}
    assert line(event) == "2023-11-14 22:13:20.123Z  roll               ns/t/0: rolled"
    assert line(event | {"time_us": 1_700_000_000_000_000}).startswith("2023-11-14 22:13:20.000Z ")


@pytest.mark.parametrize(("age", "seconds"), [("90s", 90), ("15m", 900), ("6h", 21_600)])
def test_an_age_is_a_time(age: str, seconds: int) -> None:
    assert abs(SystemHost().now_us() - moment_us(age, "--since") - seconds * 1_000_000) < 1_000_000


def test_a_time_is_a_time() -> None:
    assert moment_us("1970-01-01T00:00:01", "--since") == 1_000_000
    assert moment_us("12345", "--since") == 12_345
    with pytest.raises(FencelogError) as raised:
        moment_us("yesterday", "--until")
    assert raised.value.code is ErrorCode.BAD_REQUEST
    assert "--until" in raised.value.detail


def test_events_are_shown_and_filtered(service: str, topic: str) -> None:
    put(service, topic)
    (takeover,) = until_shown(service, topic)
    assert (takeover["kind"], takeover["partition"], takeover["epoch"]) == ("takeover", 0, 1)
    assert shown(service, "--since", "10m", "--topic", topic) == [takeover]
    assert shown(service, "--topic", topic, "--kind", "roll", "--kind", "trim") == []
    assert shown(service, "--since", "2100-01-01") == []
    assert shown(service, "--until", "2000-01-01") == []
    assert shown(service, "--since", "10m", "--until", "2100-01-01", "--topic", topic) == [takeover]
    refused = fencelog("events", "--until", "1h", "--follow", "--server", service)
    assert refused.returncode == 2
    assert b"what is followed has no end" in refused.stderr
    assert len(shown(service, "--limit", "1")) == 1
    text = fencelog("events", "--topic", topic, "--server", service).stdout.decode()
    assert re.fullmatch(
        rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3}}Z  takeover           {topic}/0: taken over by "
        r"broker-\w+ for the first time; epoch 1, took \d+ ms\n",
        text,
    )


async def test_events_are_followed(service: str, topic: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *fencelog_command("events", "--follow", "--topic", topic, "--server", service),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        await asyncio.sleep(1)
        async with http_client(service) as http:
            (await http.post(f"/v1/topics/{topic}/messages", content=b"x")).raise_for_status()
        async with asyncio.timeout(20):
            followed = await process.stdout.readline()
        assert b"taken over by" in followed
    finally:
        process.kill()
        await process.wait()


def test_what_is_wrong_is_said(service: str) -> None:
    done = fencelog("events", "--kind", "eclipse", "--server", service)
    assert done.returncode == 1
    assert "kind is some of takeover, " in complaint(done)


class Outage:
    """A service that does not answer every other request."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def get_object(
        self, _path: str, *, params: dict[str, Any], extra_wait_s: float
    ) -> dict[str, Any]:
        assert extra_wait_s == params.get("wait", 0)
        self.asked.append(params)
        if len(self.asked) % 2 == 0:
            raise FencelogError(ErrorCode.REQUEST_TIMEOUT, "the owner is gone")
        if len(self.asked) > 6:
            raise FencelogError(ErrorCode.INTERNAL, "that is all")
        event = {"time_us": 0, "kind": "roll", "summary": f"event {len(self.asked)}"}
        return {"events": [event], "newer": len(self.asked)}


@pytest.mark.parametrize("follow", [True, False])
async def test_what_is_shown_goes_on_after_an_outage(
    follow: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    service: Any = Outage()
    with pytest.raises(FencelogError, match="that is all"):
        await _show(service, {"after": 0}, follow=follow, as_json=False)
    assert re.findall(r"event \d", capsys.readouterr().out) == ["event 1", "event 3", "event 5"]
    assert [params["after"] for params in service.asked] == [0, 1, 1, 3, 3, 5, 5]


async def test_that_there_is_no_service_is_said_at_once() -> None:
    class Nobody:
        async def get_object(self, _path: str, **_options: Any) -> dict[str, Any]:
            raise FencelogError(ErrorCode.NO_OWNER, "cannot reach it")

    nobody: Any = Nobody()
    async with asyncio.timeout(1):
        with pytest.raises(FencelogError, match="cannot reach it"):
            await _show(nobody, {}, follow=True, as_json=False)
