"""``fencelog brokers`` against a service of one broker: what it shows, and what cannot be moved."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from fencelog.api.cli import brokers
from fencelog.api.cli.main import run
from tests.support.fencelog_cli import complaint, fencelog


def the_broker(service: str) -> dict[str, object]:
    (broker,) = json.loads(fencelog("brokers", "list", "--json", "--server", service).stdout)
    return dict(broker)


def test_brokers_are_listed_and_shown(service: str, topic: str) -> None:
    assert fencelog("append", topic, "--server", service, stdin=b"x\n").returncode == 0
    broker = the_broker(service)
    name = str(broker["broker_id"])
    assert broker["url"] == service
    assert broker["draining"] is False
    shown = json.loads(fencelog("brokers", "show", name, "--server", service).stdout)
    (owned,) = (found for found in shown["owned"] if found["topic"] == topic)
    assert (owned["partition"], owned["tail_offset"]) == (0, 1)
    assert shown["partitions"] >= 1
    table = fencelog("brokers", "list", "--server", service).stdout.decode()
    assert name in table
    assert "partitions" in table


def test_a_partition_that_nobody_else_can_have_is_free_afterwards(service: str, topic: str) -> None:
    assert fencelog("append", topic, "--server", service, stdin=b"x\n").returncode == 0
    done = fencelog("brokers", "unload", topic, "0", "--server", service)
    assert done.returncode == 0, done.stderr
    assert b"waits for its next request" in done.stdout
    assert fencelog("read", topic, "--server", service).stdout == b"x\n"


def test_what_is_not_there_is_named(service: str, topic: str) -> None:
    for command in (
        ("show", "nobody"),
        ("drain", "nobody"),
        ("unload", topic, "0", "--to", "nobody"),
    ):
        done = fencelog("brokers", *command, "--server", service)
        assert done.returncode == 1
        assert "no broker nobody is registered" in complaint(done)


def test_the_only_broker_is_not_drained_by_mistake(service: str, topic: str) -> None:
    name = str(the_broker(service)["broker_id"])
    refused = fencelog("brokers", "drain", name, "--server", service)
    assert refused.returncode == 1
    assert "no other broker takes partitions" in complaint(refused)
    assert fencelog("append", topic, "--server", service, stdin=b"x\n").returncode == 0
    forced = fencelog("brokers", "drain", name, "--force", "--server", service)
    assert forced.returncode == 0, forced.stderr
    assert the_broker(service)["draining"] is True
    again = fencelog("brokers", "undrain", name, "--server", service)
    assert again.stdout.decode().strip() == f"{name} takes partitions"
    assert fencelog("append", topic, "--server", service, stdin=b"y\n").returncode == 0


def test_a_drain_that_did_not_end_is_said_to_have_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(
        _server: str, _method: str, _path: str, *, timeout_s: float = 0.0, **_options: Any
    ) -> dict[str, Any]:
        assert timeout_s == math.inf  # a broker may drain for longer than other requests take
        return {"broker_id": "b", "not_taken": 2, "still_open": 7}

    monkeypatch.setattr(brokers, "_ask", answer)
    assert run(["brokers", "drain", "b"]) == 1
    shown = capsys.readouterr()
    assert shown.out == "2 partitions wait for their next request\n"
    assert shown.err == "fencelog: b is not drained: 7 partitions are still there; try again\n"
