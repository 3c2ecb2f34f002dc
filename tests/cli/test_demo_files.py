"""The files that the demo takes, and its comparison."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencelog.api.bench.demo.files import (
    choose_files,
    count_lines,
    same_up_to_final_newline,
    too_long_line,
    topic_names,
)
from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.limits import MAX_MESSAGE_BYTES

CONTENT = st.lists(st.sampled_from([b"\n", b"a", b"\r\n", b"\xff"]), max_size=6).map(b"".join)


@given(one=CONTENT, other=CONTENT)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_are_the_same_up_to_one_final_newline(
    tmp_path: Path, one: bytes, other: bytes
) -> None:
    (tmp_path / "one").write_bytes(one)
    (tmp_path / "other").write_bytes(other)
    same = one.removesuffix(b"\n") == other.removesuffix(b"\n")
    assert same_up_to_final_newline(tmp_path / "one", tmp_path / "other") == same


@given(content=CONTENT)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_last_line_without_an_end_counts(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    lines = content.split(b"\n")
    assert count_lines(tmp_path / "file") == len(lines) - (lines[-1] == b"")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", None),
        (b"a\n" + b"x" * MAX_MESSAGE_BYTES + b"\nb\n" + b"x" * MAX_MESSAGE_BYTES, None),
        (b"x" * (MAX_MESSAGE_BYTES + 1), 1),
        (b"a\nb\n" + b"x" * (MAX_MESSAGE_BYTES + 1) + b"\nc\n", 3),
    ],
    ids=["empty", "longest", "first", "third"],
)
def test_a_line_that_fits_no_message_is_found(
    content: bytes, line: int | None, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(content)
    assert too_long_line(tmp_path / "file") == line


def test_every_file_gets_a_valid_topic_of_its_own() -> None:
    names = topic_names(["syslog", "syslog", ".hidden", "ünï code.log", "x" * 300, "...", "a/b"])
    assert len(set(names)) == len(names)
    for name in names:
        namespace, _, topic = name.partition("/")
        assert str(TopicName(namespace, topic)) == name


def test_all_files_of_a_directory_are_taken(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.log").write_bytes(b"\x00binary")
    (tmp_path / "a.log").write_bytes(b"text\n")
    chosen = choose_files(tmp_path)
    assert [(file.path.name, file.topic, file.size) for file in chosen] == [
        ("a.log", "demo/a.log", 5),
        ("b.log", "demo/b.log", 7),
    ]


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FencelogError, match="there is no readable file in"):
        choose_files(tmp_path)


def test_without_a_directory_there_is_always_something_to_read() -> None:
    chosen = choose_files(None)
    assert sum(file.size for file in chosen) > 0
