"""The file of users: what it may have in it, and what new nodes are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import (
    MAX_ZOOKEEPER_CREDENTIALS_BYTES,
    MAX_ZOOKEEPER_USERS,
    MIN_SECRET_BYTES,
)
from fencelog.ledgers.metastore.zookeeper_credentials import credentials_from
from fencelog.ledgers.metastore.zookeeper_wire import CREATORS_ALONE, OPEN_TO_ALL

ANN, BOB = "ann:her password is long".replace(" ", "-"), "bob:his:has:colons:in:it"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users"


def test_every_line_is_a_user_and_nodes_are_for_all_of_them(file: Path) -> None:
    file.write_text(f"{ANN}\n\n  {BOB}\r\n{ANN}\n")
    credentials = credentials_from(file)
    assert credentials.users == (ANN.encode(), BOB.encode())
    assert credentials.access == CREATORS_ALONE
    assert "password" not in repr(credentials)


def test_new_nodes_stay_open_while_everybody_is_among_them(file: Path) -> None:
    file.write_text(f"world:anyone\n{ANN}\n")
    credentials = credentials_from(file)
    assert credentials.users == (ANN.encode(),)
    assert credentials.access == OPEN_TO_ALL


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "0 users"),
        ("world:anyone", "0 users"),
        ("\n".join(f"{ANN}{n}" for n in range(MAX_ZOOKEEPER_USERS + 1)), "9 users, 1 to 8"),
        (f"{ANN}\nbob\n", "line 2 is no name:password"),
        (f"ann:{'x' * (MIN_SECRET_BYTES - 1)}", "line 1 .* of 16 or more"),
        (f":{'x' * MIN_SECRET_BYTES}", "line 1"),
        (f"ann:{'x' * MIN_SECRET_BYTES} y", "line 1"),
        (f"änn:{'x' * MIN_SECRET_BYTES}", "line 1 .*ASCII"),
        (f"{ANN}\n" + "\n" * MAX_ZOOKEEPER_CREDENTIALS_BYTES, "more than 4096 bytes"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_without_what_is_in_it(
    file: Path, content: str, why: str
) -> None:
    file.write_text(content)
    with pytest.raises(FencelogError, match=why) as caught:
        credentials_from(file)
    assert caught.value.code is ErrorCode.BAD_REQUEST
    assert str(file) in str(caught.value)
    assert "xxx" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_refused(file: Path) -> None:
    with pytest.raises(FencelogError, match="No such file"):
        credentials_from(file)
    with pytest.raises(FencelogError, match="null byte"):
        credentials_from(Path("/a\0b"))
