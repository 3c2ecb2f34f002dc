"""Metadata in HTTP headers, there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.api.http.message_headers import (
    message_headers,
    read_metadata,
    refuse_metadata,
)
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
    "value",
    [
        *(b"", b"-", b"1.5", b"1e3", b"+1", b" 1", b"--1", b"9" * 21, "\u0661".encode()),
        *(b"%d" % (2**63), b"%d" % (-(2**63) - 1)),
    ],
)
def test_an_event_time_is_a_plain_number(value: bytes) -> None:
    with pytest.raises(FencelogError) as caught:
        read_metadata([(b"fencelog-event-time", value)])
    assert caught.value.code is ErrorCode.BAD_REQUEST


def test_a_delivery_time_is_a_number_of_64_bits() -> None:
    kept = ("fencelog-deliver-at", b"9223372036854775807")
    assert read_metadata([(b"fencelog-deliver-at", kept[1])])[2] == (kept,)
    for value in (b"9223372036854775808", b"-1", b""):
        with pytest.raises(FencelogError, match="Deliver-At"):
            read_metadata([(b"fencelog-deliver-at", value)])


def test_other_headers_are_not_the_messages() -> None:
    others = [(b"host", b"x"), (b"fencelog-forwarded", b"1"), (b"fencelo", b"y")]
    assert read_metadata(others) == (None, None, ())
    refuse_metadata(others)


@pytest.mark.parametrize("name", [b"key", b"key-base64", b"event-time", b"deliver-at"])
def test_what_is_given_twice_is_once_too_often(name: bytes) -> None:
    header = (b"fencelog-" + name, b"1")
    with pytest.raises(FencelogError, match="twice"):
        read_metadata([header, header])


@pytest.mark.parametrize(
    "name", [b"fencelog-keys", b"fencelog-", b"fencelog-headers-omitted", b"fencelog-header"]
)
def test_what_would_be_lost_is_refused(name: bytes) -> None:
    with pytest.raises(FencelogError, match="is no header of an append") as caught:
        read_metadata([(name, b"1")])
    assert caught.value.code is ErrorCode.BAD_REQUEST


@pytest.mark.parametrize("name", [b"fencelog-key", b"fencelog-header-a", b"fencelog-x", b"ce-id"])
def test_a_batch_takes_no_metadata_of_one_message(name: bytes) -> None:
    with pytest.raises(FencelogError, match="describes one message"):
        refuse_metadata([(name, b"1")])


def test_a_cloud_event_and_the_content_type_are_kept() -> None:
    text = (b"content-type", b"text/plain; charset=latin-1")
    assert read_metadata([(b"ce-id", b"7"), text])[2] == (
        ("ce-id", b"7"),
        ("content-type", b"text/plain; charset=latin-1"),
    )
    own = (b"fencelog-header-content-type", b"a/b")
    assert read_metadata([text, own])[2] == (("content-type", b"a/b"),)
    for nothing in (b"", b"application/octet-stream", b"application/x-www-form-urlencoded"):
        assert read_metadata([(b"content-type", nothing)])[2] == ()


def test_a_key_comes_back_in_base64() -> None:
    shown = message_headers(Message(b"", b"\n\0"))
    assert read_metadata(shown)[0] == b"\n\0"
    with pytest.raises(FencelogError, match="cannot both"):
        read_metadata([*shown, (b"fencelog-key", b"a")])
    with pytest.raises(FencelogError, match="not valid"):
        read_metadata([(b"fencelog-key-base64", b"a")])
