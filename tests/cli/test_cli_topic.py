"""``fencelog topic`` and ``fencelog namespace`` against a service: settings, trim, the end."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from tests.support.fencelog_cli import complaint, fencelog


def shown(service: str, *arguments: str) -> Any:
    done = fencelog(*arguments, "--server", service)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def said(service: str, *arguments: str) -> str:
    done = fencelog(*arguments, "--server", service)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_settings_are_set_inherited_and_taken_back(service: str) -> None:
    name = "settings/topic"
    settings = shown(service, "namespace", "set", "settings", "--set", "retention_ms=60000")
    assert settings == {"retention_ms": 60000}
    said(service, "topic", "create", name, "--set", "ttl_ms=5000")
    changed = shown(
        service, "topic", "update", name, "--partitions", "3", "--set", "retention_bytes=unlimited"
    )
    own = {"ttl_ms": 5000, "retention_bytes": "unlimited"}
    assert changed == {"partitions": 3, "settings": own}
    effective = shown(service, "topic", "show", name)["effective"]
    assert (effective["retention_ms"], effective["ttl_ms"]) == (60000, 5000)
    back = shown(service, "topic", "update", name, "--set", "ttl_ms=null")
    assert "ttl_ms" not in back["settings"]
    assert shown(service, "namespace", "show", "settings")["settings"] == settings
    assert "settings" in said(service, "namespace", "list").split()


def test_a_namespace_goes_when_it_is_empty(service: str) -> None:
    shown(service, "namespace", "set", "empty")
    said(service, "topic", "create", "empty/t")
    done = fencelog("namespace", "delete", "empty", "--server", service)
    assert (done.returncode, "has 1 topics" in complaint(done)) == (1, True)
    said(service, "topic", "delete", "empty/t")
    assert said(service, "namespace", "delete", "empty") == "namespace empty is deleted\n"


def test_mistakes_are_named(service: str, topic: str) -> None:
    for arguments, words in (
        (("--set", "retention=5"), "retention"),
        (("--set", "retention_ms"), "NAME=VALUE"),
        (("--set", "retention_ms=0"), "retention_ms"),
        (("--partitions", "1025"), "partitions"),
    ):
        done = fencelog("topic", "update", topic, *arguments, "--server", service)
        assert done.returncode in (1, 2)
        assert words in complaint(done)


def test_a_setting_may_be_given_in_either_way_and_once(service: str) -> None:
    name = "cli/either-way"
    created = ("topic", "create", name, "--set", "partitions=3", "--set", "ack_quorum=1")
    said(service, *created, "--write-quorum", "1", "--ensemble", "1")
    shown_partitions = shown(service, "topic", "show", name)["partitions"]
    assert shown_partitions == 3
    for arguments, words in (
        (("topic", "create", name, "--set", "partitions=3", "--partitions", "3"), "given twice"),
        (("topic", "update", name, "--set", "partitions=4", "--partitions", "5"), "given twice"),
        (("topic", "create", name, "--set", "ttl_ms=1", "--set", "ttl_ms=2"), "given twice"),
        (("topic", "create", name, "--set", "topic=x"), "topic is no setting"),
        (("topic", "create", name, "--set", "allow_missing_bookies=true"), "is no setting"),
        (("topic", "create", name, "--set", "ttl_ms=NaN"), "NaN is no number"),
        (("topic", "update", name, "--set", "ttl_ms=-Infinity"), "-Infinity is no number"),
        (("namespace", "set", "cli", "--set", "ttl_ms=1e999"), "1e999 is no number"),
        (("namespace", "set", "cli", "--set", "ttl_ms=[NaN]"), "NaN is no number"),
    ):
        done = fencelog(*arguments, "--server", service)
        assert (done.returncode, words in complaint(done)) == (2, True)


def test_a_topic_is_trimmed_looked_at_and_ended(service: str, topic: str) -> None:
    assert fencelog("append", topic, "--server", service, stdin=b"a\nb\nc\n").returncode == 0
    trimmed = said(service, "topic", "trim", topic, "0", "--before", "2")
    assert trimmed == "partition 0 begins at offset 2\n"
    assert said(service, "read", topic) == "c\n"
    inside = shown(service, "topic", "internal", topic, "0")
    assert (inside["earliest_offset"], inside["tail_offset"]) == (2, 3)
    assert inside["segments"][-1]["epoch"] == inside["epoch"]
    assert said(service, "topic", "terminate", topic) == "partition 0 ends at offset 3\n"
    assert said(service, "topic", "terminate", topic, "--partition", "0").endswith("offset 3\n")
    done = fencelog("append", topic, "--server", service, stdin=b"d\n")
    assert done.returncode == 1
    assert "3 (end)" in said(service, "topic", "stats", topic)
    assert said(service, "read", topic) == "c\n"


def test_a_sweep_finds_nothing_where_nothing_was_left(service: str) -> None:
    looked = shown(service, "topic", "sweep", "--dry-run")
    assert (looked["ledgers"], looked["topics"]) == ([], [])
    assert looked["looked_at"] > 0
    assert shown(service, "topic", "sweep")["failed"] == {}


def test_a_topic_is_created_once_and_has_a_name_of_two_parts(service: str) -> None:
    assert said(service, "topic", "create", "cli/made") == "topic cli/made is created\n"
    assert said(service, "topic", "create", "cli/made") == "topic cli/made is there already\n"
    for command in (("topic", "create"), ("read",), ("topic", "show")):
        done = fencelog(*command, "a/b/c", "--server", service)
        assert done.returncode == 2
        assert "'a/b/c' is not NAMESPACE/NAME" in " ".join(done.stderr.decode().split())


def test_a_table_that_is_piped_is_whole(service: str) -> None:
    name = f"cli/{'long-name-' * 12}"
    said(service, "topic", "create", name)
    for subscription in "abc":
        said(service, "subscription", "create", name, subscription * 30)
    lines = said(service, "topic", "stats", name).splitlines()
    assert len(lines) == 2
    assert f"{'c' * 30} 0" in lines[1]


@pytest.mark.parametrize(
    "command",
    [
        ("topic", "list"),
        ("topic", "create", "t"),
        ("append", "t"),
        ("read", "t"),
        ("read", "t", "--follow"),
        ("subscription", "pull", "t", "s"),
        ("subscription", "pull", "t", "s", "--follow"),
        ("subscription", "show", "t", "s"),
        ("brokers", "list"),
        ("namespace", "list"),
    ],
    ids=" ".join,
)
def test_a_service_that_is_not_there_is_named_at_once(command: tuple[str, ...]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        done = fencelog(*command, "--server", url, stdin=b"x\n", timeout_s=25)
    assert done.returncode == 1
    assert f"cannot reach {url}" in complaint(done)
