"""Append and read from the command line against a real service: what went in comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fencelog.api.cli import read as cli_read
from fencelog.api.console import EXIT_BROKEN_PIPE, EXIT_ERROR
from fencelog.api.local_cluster.child_process import fencelog_command
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.limits import MAX_MESSAGE_BYTES
from tests.support.fencelog_cli import complaint, fencelog

ODD = b"plain\r\n\r\n\n\xff\xfe no UTF-8\n\0\n  spaces  \nlast, without an end"


def read(service: str, topic: str, *options: str) -> bytes:
    done = fencelog("read", topic, "--server", service, *options)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def append(service: str, topic: str, data: bytes, *options: str) -> bytes:
    done = fencelog("append", topic, "--server", service, *options, stdin=data)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


@pytest.mark.parametrize(
    "content",
    [ODD, b"", b"\n", b"\n\n\n", b"no end", b"x" * MAX_MESSAGE_BYTES + b"\n", ODD * 30_000],
    ids=["odd", "empty", "newline", "newlines", "unfinished", "longest", "many"],
)
def test_a_file_comes_back_byte_for_byte(
    service: str, topic: str, content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "input"
    file.write_bytes(content)
    done = fencelog("append", topic, str(file), "--server", service)
    assert (done.returncode, done.stderr) == (0, b"")
    back = read(service, topic)
    assert back.removesuffix(b"\n") == content.removesuffix(b"\n")
    assert back.count(b"\n") == content.removesuffix(b"\n").count(b"\n") + (content != b"")


def test_stdin_is_appended_and_counted(service: str, topic: str) -> None:
    assert append(service, topic, ODD) == (
        f"appended 7 messages (partition 0 up to offset 6) to {topic}\n".encode()
    )
    assert append(service, topic, b"", "-") == f"appended 0 messages to {topic}\n".encode()
    assert read(service, topic) == ODD + b"\n"


def test_lines_are_durable_while_stdin_is_still_open(service: str, topic: str) -> None:
    with subprocess.Popen(
        fencelog_command("append", topic, "--server", service),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\nthr")
        process.stdin.flush()
        following = fencelog("read", topic, "--server", service, "--follow", "--limit", "2")
        assert following.stdout == b"one\ntwo\n"
        process.stdin.write(b"ee\n")
        process.stdin.close()
        assert process.wait(30) == 0
    assert read(service, topic) == b"one\ntwo\nthree\n"


def test_reading_begins_and_ends_where_it_is_told(service: str, topic: str) -> None:
    append(service, topic, b"".join(b"%d\n" % number for number in range(10)))
    assert read(service, topic, "--from", "7") == b"7\n8\n9\n"
    assert read(service, topic, "--from", "3", "--limit", "2") == b"3\n4\n"
    assert read(service, topic, "--from", "latest") == b""
    assert read(service, topic, "--from", "10") == b""
    done = fencelog("read", topic, "--from", "11", "--server", service)
    assert done.returncode == EXIT_ERROR
    assert "beyond the tail 10" in complaint(done)


def test_json_is_one_message_object_a_line(service: str, topic: str) -> None:
    append(service, topic, "grüß\n".encode() + b"\xff\n", "--key", "k")
    lines = [json.loads(line) for line in read(service, topic, "--output", "json").splitlines()]
    assert [(line["partition"], line["offset"], line["key"]) for line in lines] == [
        (0, 0, "k"),
        (0, 1, "k"),
    ]
    assert (lines[0]["text"], lines[1]["base64"]) == ("grüß", "/w==")
    assert read(service, topic, "--output", "json", "--from", "1").count(b"\n") == 1


def test_partitions_are_read_one_after_the_other(service: str) -> None:
    created = fencelog("topic", "create", "cli/three", "--partitions", "3", "--server", service)
    assert created.returncode == 0
    for partition in (2, 0, 1):
        append(service, "cli/three", b"in %d\n" % partition, "--partition", str(partition))
    assert read(service, "cli/three") == b"in 0\nin 1\nin 2\n"
    assert read(service, "cli/three", "--partition", "1") == b"in 1\n"
    following = read(service, "cli/three", "--follow", "--limit", "3")
    assert sorted(following.splitlines()) == [b"in 0", b"in 1", b"in 2"]


def test_a_key_keeps_messages_together_and_batches_go_round_without_one(service: str) -> None:
    created = fencelog("topic", "create", "cli/spread", "--partitions", "2", "--server", service)
    assert created.returncode == 0
    lines = b"".join(b"%d\n" % number for number in range(200_000))
    append(service, "cli/spread", lines)
    back = read(service, "cli/spread")
    assert sorted(back.splitlines()) == sorted(lines.splitlines())
    assert all(read(service, "cli/spread", "--partition", p, "--limit", "1") for p in "01")
    first = append(service, "cli/spread", b"a\n", "--key", "same").split(b"partition ")[1][:1]
    second = append(service, "cli/spread", b"b\n", "--key", "same").split(b"partition ")[1][:1]
    assert first == second


def test_a_line_over_the_limit_is_named_and_those_before_it_stay(
    service: str, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "long.log"
    file.write_bytes(b"one\ntwo\n" + b"x" * (MAX_MESSAGE_BYTES + 1) + b"\nfour\n")
    done = fencelog("append", topic, str(file), "--server", service)
    assert done.returncode == EXIT_ERROR
    assert f"{file}, line 3 is longer than" in complaint(done)
    assert "2 messages are appended" in complaint(done)
    assert read(service, topic) == b"one\ntwo\n"


def test_who_has_read_enough_may_leave(service: str, topic: str) -> None:
    append(service, topic, b"line\n" * 200_000)
    with subprocess.Popen(
        fencelog_command("read", topic, "--server", service),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == EXIT_BROKEN_PIPE


def redirected(redirection: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command with streams as a shell redirects them: ``<&-`` closes stdin."""
    command = ("bash", "-c", f'exec "$@" {redirection}', "-", *fencelog_command(*arguments))
    return subprocess.run(command, input=b"", capture_output=True, timeout=30, check=False)


def test_streams_that_are_closed_or_full_are_named(service: str, topic: str) -> None:
    append(service, topic, b"1\n2\n")
    at = ("--server", service)
    done = redirected("<&-", "append", topic, *at)
    assert (done.returncode, complaint(done)) == (EXIT_ERROR, "stdin is closed")
    for command in (("read", topic), ("subscription", "pull", topic, "none")):
        done = redirected(">&-", *command, *at)
        assert (done.returncode, complaint(done)) == (EXIT_ERROR, "stdout is closed")
    file = str(Path(__file__))
    done = redirected(">/dev/full", "append", topic, file, *at)
    assert done.returncode == EXIT_ERROR
    assert complaint(done).startswith("appended ")
    assert complaint(done).endswith(", but stdout cannot be written: No space left on device")
    done = redirected("<&- >&- 2>&-", "append", topic, file, *at)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len(read(service, topic).splitlines()) == 2 + 2 * len(
        Path(file).read_bytes().splitlines()
    )


def test_no_file_takes_the_place_of_a_stream_that_is_closed() -> None:
    """What a library prints must not go to a journal."""
    code = """
import os
from fencelog.api.console import keep_standard_descriptors
keep_standard_descriptors()
first = os.open(os.devnull, os.O_RDONLY)
inherited = all(map(os.get_inheritable, range(3)))
os._exit(first if inherited else 99)
"""
    command = ("bash", "-c", 'exec "$@" <&- >&- 2>&-', "-", sys.executable, "-c", code)
    assert subprocess.run(command, check=False).returncode == 3


def test_topics_are_created_listed_shown_and_deleted(service: str) -> None:
    def topic(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return fencelog("topic", *arguments, env={**os.environ, "FENCELOG_SERVER": service})

    assert topic("create", "shop/a", "--partitions", "2", "--ack-quorum", "3").returncode == 0
    assert topic("create", "shop/b").returncode == 0
    assert topic("create", "alone").stdout == b"topic default/alone is created\n"
    assert topic("list", "shop").stdout == b"shop/a\nshop/b\n"
    assert topic("list", "shop", "--prefix", "b").stdout == b"shop/b\n"
    shown = json.loads(topic("show", "shop/a").stdout)
    assert (shown["partitions"], shown["ack_quorum"]) == (2, 3)
    assert "another configuration" in complaint(topic("create", "shop/a", "--partitions", "3"))
    assert topic("delete", "shop/a").stdout == b"topic shop/a is deleted\n"
    assert "shop/a" in complaint(topic("show", "shop/a"))
    assert "not valid" in complaint(topic("create", "sh op/a"))


def test_a_topic_that_is_not_there_is_named(service: str) -> None:
    for command in ("append", "read"):
        done = fencelog(command, "cli/nothing", "--server", service)
        assert done.returncode == EXIT_ERROR
        assert "cli/nothing" in complaint(done)


def test_reading_from_a_time_and_the_compacted_view(service: str, topic: str) -> None:
    for value in ("1", "2"):
        append(service, topic, value.encode(), "--key", "k")
    lines = read(service, topic, "--output", "json").splitlines()
    second = json.loads(lines[1])["publish_time"]
    assert read(service, topic, "--from-time", str(second)) == b"2\n"
    done = fencelog("topic", "compact", topic, "--server", service)
    assert done.stdout == b"partition 0: 1 messages stand for all below offset 2\n"
    assert read(service, topic, "--view", "compacted") == b"2\n"


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("17", 17),
        ("1970-01-01", 0),
        ("1970-01-02T00:00:01.5", 86_401_500_000),
        ("1970-01-01T02:00+02:00", 0),
        ("1969-01-01", 0),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000_000),
    ],
)
def test_times_as_users_write_them(text: str, time_us: int) -> None:
    assert cli_read.time_us(text) == time_us


def test_what_is_no_time() -> None:
    with pytest.raises(FencelogError, match="ISO 8601"):
        cli_read.time_us("soon")


def test_a_producer_appends_a_growing_file_once(service: str, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "input"
    told = []
    for content in (b"a\nb\n", b"a\nb\nc\n", b"a\nb\nc\n"):
        file.write_bytes(content)
        done = fencelog("append", topic, str(file), "--server", service, "--producer-id", "p")
        assert (done.returncode, done.stderr) == (0, b"")
        told.append(done.stdout.decode().removesuffix(f" to {topic}\n"))
    assert told == [
        "appended 2 messages (partition 0 up to offset 1)",
        "appended 1 messages (partition 0 up to offset 2, 2 were there)",
        "appended 0 messages (3 were there)",
    ]
    assert read(service, topic) == b"a\nb\nc\n"
    old = fencelog("append", topic, "--server", service, "--producer-id", "p", stdin=b"a\nb\nc\nd")
    assert old.returncode == 0
    options = ("--producer-id", "p", "--producer-epoch", "1")
    assert b"appended 1 messages" in append(service, topic, b"new", *options)
    old = fencelog("append", topic, "--server", service, "--producer-id", "p", stdin=b"x")
    assert old.returncode == EXIT_ERROR
    assert b"producer p has epoch 1" in old.stderr


def test_a_producer_of_many_partitions_says_which(service: str, topic: str) -> None:
    many = f"{topic}.many"
    fencelog("topic", "create", many, "--partitions", "3", "--server", service)
    options = ("--server", service, "--producer-id", "p")
    refused = fencelog("append", many, *options, stdin=b"a")
    assert refused.returncode == EXIT_ERROR
    assert b"give --partition or --key" in refused.stderr
    for choice in (("--partition", "0"), ("--key", "k")):
        for count in (1, 0):
            done = fencelog("append", many, *options, *choice, stdin=b"a")
            assert f"appended {count} messages".encode() in done.stdout


def test_following_ends_where_a_topic_does(service: str) -> None:
    """The reader does not ask for what never comes, over and over; other partitions go on."""
    topic = "cli/ending"
    server = ("--server", service)
    assert fencelog("topic", "create", topic, "--partitions", "2", *server).returncode == 0
    append(service, topic, b"a\nb\n")
    ended = fencelog("topic", "terminate", topic, "--partition", "0", *server)
    assert (ended.returncode, ended.stderr) == (0, b"")
    command = fencelog_command("read", topic, "--follow", *server)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as following:
        try:
            assert following.stdout is not None
            seen = [following.stdout.readline() for _ in range(2)]
            append(service, topic, b"c\n", "--partition", "1")
            seen.append(following.stdout.readline())
            assert sorted(seen) == [b"a\n", b"b\n", b"c\n"]
            assert fencelog("topic", "terminate", topic, *server).returncode == 0
            assert following.wait(timeout=10) == 0
        finally:
            following.kill()
