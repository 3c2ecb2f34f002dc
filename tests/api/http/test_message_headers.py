"""Metadata in HTTP headers, there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.api.http.message_headers import message_headers, read_metadata
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message

VISIBLE = st.binary(max_size=10).filter(lambda raw: all(b >= 0x21 and b != 0x7F for b in raw))
NAMES = st.from_regex(r"[a-z0-9-]{1,8}", fullmatch=True)
TIMES = st.integers(-(2**63), 2**63 - 1)


@given(st.none() | VISIBLE, st.none() | TIMES, st.lists(st.tuples(NAMES, VISIBLE), max_size=4))
def test_what_headers_can_carry_comes_back(
    key: bytes | None, time: int | None, headers: list[tuple[str, bytes]]
) -> None:
    message = Message(b"", key, time, tuple(headers))
    assert read_metadata(message_headers(message)) == message[1:]


@given(st.binary(max_size=10), st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5))))
def test_nothing_leaves_that_would_break_a_response(
    key: bytes, headers: list[tuple[str, bytes]]
) -> None:
    shown = message_headers(Message(b"", key, None, tuple(headers)))
    for name, value in shown:
        assert name.decode("ascii").isprintable()
        assert not set(b"\r\n\0") & set(value)
    carried = sum(name.startswith(b"fencelog-header-") for name, _ in shown)
    omitted = int(dict(shown).get(b"fencelog-headers-omitted", b"0"))
    assert carried + omitted == len(headers)


@pytest.mark.parametrize(
    "value", [b"", b"-", b"1.5", b"1e3", b"+1", b" 1", b"--1", b"9" * 21, "\u0661".encode()]
)
def test_an_event_time_is_a_plain_number(value: bytes) -> None:
    with pytest.raises(FencelogError) as caught:
        read_metadata([(b"fencelog-event-time", value)])
    assert caught.value.code is ErrorCode.BAD_REQUEST


def test_other_headers_are_not_the_messages() -> None:
    others = [(b"host", b"x"), (b"fencelog-forwarded", b"1"), (b"fencelo", b"y")]
    assert read_metadata(others) == (None, None, ())


def test_two_keys_are_one_too_many() -> None:
    with pytest.raises(FencelogError, match="twice"):
        read_metadata([(b"fencelog-key", b"a"), (b"fencelog-key", b"a")])
