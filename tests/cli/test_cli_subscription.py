"""``fencelog subscription`` against a real service."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import httpx
import pytest

from fencelog.api.cli.main import run
from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.child_process import fencelog_command
from tests.support.fencelog_cli import fencelog
from tests.support.until import PATIENCE_S


@pytest.fixture
def cli(
    service: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Cli:
    monkeypatch.setenv("FENCELOG_SERVER", service)
    return Cli(capfdbinary)


class Cli:
    """Commands run in this process: starting one takes longer than what it does."""

    def __init__(self, output: pytest.CaptureFixture[bytes]) -> None:
        self._output = output

    def __call__(self, *arguments: str) -> str:
        """Return what a subscription command prints that has to succeed."""
        code = run(["subscription", *arguments])
        out, err = self._output.readouterr()
        assert (code, err) == (0, b"")
        return out.decode()

    def complaint(self, *arguments: str) -> str:
        """The line with which it has to fail."""
        code = run(["subscription", *arguments])
        out, err = self._output.readouterr()
        assert (code, out) == (1, b"")
        return err.decode()


def append(service: str, topic: str, *lines: str) -> None:
    for line in lines:
        path = f"{service}/v1/topics/{topic}/messages"
        posted = httpx.post(path, content=line.encode(), trust_env=False, timeout=PATIENCE_S)
        posted.raise_for_status()


def test_from_creation_to_deletion(cli: Cli, service: str, topic: str) -> None:
    append(service, topic, "one", "two", "three")
    created = f"subscription s of {topic} is created\n"
    options = ("--from", "earliest", "--max-deliveries", "1", "--type", "failover")
    assert cli("create", topic, "s", *options) == created
    again = created.replace("created", "there already")
    assert cli("create", topic, "s", *options) == again
    assert "other settings" in cli.complaint("create", topic, "s")
    assert cli("list", topic) == "s\n"
    first = json.loads(
        cli("pull", topic, "s", "--limit", "1", "--output", "json", "--consumer", "c")
    )
    assert (first["text"], first["attempt"]) == ("one", 1)
    assert cli("ack", topic, "s", first["ack_id"]) == "acknowledged\n"
    second = json.loads(
        cli("pull", topic, "s", "--limit", "1", "--output", "json", "--consumer", "c")
    )
    assert cli("ack", topic, "s", "--through", second["ack_id"]) == "acknowledged\n"
    assert cli("pull", topic, "s", "--ack", "--consumer", "c") == "three\n"
    assert cli("pull", topic, "s", "--consumer", "c") == ""
    shown = json.loads(cli("show", topic, "s"))
    assert (shown["type"], shown["partitions"][0]["acked_to"]) == ("failover", 3)
    moved = cli("seek", topic, "s", "--offset", "0:2")
    assert moved == "partition 0 goes on at offset 2\n"
    acknowledging = ("subscription", "ack", topic, "s", first["ack_id"], second["ack_id"])
    stale = fencelog(*acknowledging, "--server", service)
    assert stale.returncode == 1
    assert set(stale.stdout.decode().splitlines()) == {
        f"{first['ack_id']} is stale",
        f"{second['ack_id']} is stale",
        "acknowledged 0 of 2",
    }
    assert cli("pull", topic, "s", "--ack", "--consumer", "c") == "three\n"
    assert cli("replay", topic, "s") == "replayed 0 dead letters\n"
    assert cli("delete", topic, "s") == f"subscription s of {topic} is deleted\n"
    assert "no subscription s" in cli.complaint("show", topic, "s")


def test_following_prints_and_acknowledges_as_messages_come(
    cli: Cli, service: str, topic: str
) -> None:
    cli("create", topic, "s")
    with subprocess.Popen(
        fencelog_command(
            *("subscription", "pull", topic, "s", "--ack", "--follow", "--limit", "2"),
            *("--server", service),
        ),
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        for line in ("one", "two"):
            append(service, topic, line)
            assert process.stdout.readline() == f"{line}\n".encode()
        assert process.wait(30) == 0
    assert cli("pull", topic, "s") == ""


def test_mistakes_are_explained(cli: Cli, topic: str) -> None:
    cli("create", topic, "s")
    for arguments, why in (
        (("ack", topic, "s"), "name messages"),
        (("ack", topic, "s", "--through", "3"), "ack id '3' is none"),
        (("seek", topic, "s", "--offset", "3"), "PARTITION:OFFSET"),
        (("seek", topic, "s", "--offset", "0:²"), "PARTITION:OFFSET"),
        (("seek", topic, "s", "--offset", "0:1", "--offset", "00:2"), "partition 0 twice"),
        (("create", topic, "other", "--from", "²"), "start"),
        (("seek", topic, "s"), "exactly one of"),
        (("seek", topic, "s", "--to", "there"), "$.to"),
        (("pull", topic, "missing"), "no subscription missing"),
    ):
        assert why in cli.complaint(*arguments)


async def test_a_consumer_of_the_client_takes_everything_once(service: str, topic: str) -> None:
    seen: list[bytes] = []
    async with FencelogClient(service) as client:
        await client.create_subscription(topic, "s", start="earliest")
        for number in range(20):
            await client.append(topic, b"%d" % number, headers={"n": b"1"}, key=b"k")
        async with client.consume(topic, "s", max_messages=7) as messages:
            async for message in messages:
                assert (message.key, message.headers) == (b"k", (("n", b"1"),))
                seen.append(message.value)
                messages.ack(message)
                if len(seen) == 20:
                    break
        assert await client.pull(topic, "s") == []
        stats: list[dict[str, Any]] = await client.subscription_stats(topic, "s")
        assert stats[0]["backlog_messages"] == 0
        assert await client.seek(topic, "s", to="earliest") == {0: 0}
        (first,) = await client.pull(topic, "s", max_messages=1)
        assert await client.nack(topic, "s", [first.ack_id]) == []
        assert await client.extend(topic, "s", [first.ack_id], 1000) == [first.ack_id]
        await client.delete_subscription(topic, "s")
        assert await client.subscriptions(topic) == []
    assert seen == [b"%d" % number for number in range(20)]
