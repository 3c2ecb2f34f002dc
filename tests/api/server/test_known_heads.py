"""A connection that knows heads takes the same requests as one that parses all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.flow_control import FlowControl

from fencelog.api.http.targets import Targets
from fencelog.api.produce.known_heads import MAX_KNOWN_HEAD_BYTES, KnownHeads
from fencelog.api.produce.post_paths import PostPaths
from fencelog.api.server.connections import Connections
from fencelog.api.server.limits import MAX_DIRECT_BODY_BYTES
from fencelog.api.server.request import HttpRequest, may_be_direct
from fencelog.api.server.request_reader import MAX_FORMS, RequestReader
from fencelog.ledgers.errors import ErrorCode, FencelogError


def known_heads() -> KnownHeads:
    return PostPaths(Targets()).known_heads


class Taker:
    """A connection that answers nothing, and notes what it was to answer."""

    may_become_link = False

    def __init__(self, heads: KnownHeads | None) -> None:
        self._posts = PostPaths(Targets())
        self.taken: list[Any] = []
        self.parsed = 0
        self.reader = RequestReader(self, Connections(), FlowControl(_Transport()), heads)

    def take_head(self, request: HttpRequest) -> None:
        self.parsed += 1
        if may_be_direct(request):
            request.post = self._posts.single_post(request.url, request.headers)

    def take_request(self, request: HttpRequest) -> None:
        assert request.is_received
        self.taken.append(
            (
                request.method,
                request.url,
                request.headers,
                request.framing,
                request.keep_alive,
                request.http_version,
                request.post,
                request.body,
                None if request.current is None else request.current.request_id,
            )
        )

    def become_link(self) -> None:
        raise AssertionError("nothing here asks for a link")

    def refuse(self, error: FencelogError) -> None:
        self.taken.append((error.code, error.detail))
        self.reader.end()


class _Transport(asyncio.Transport):
    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


PATH = "/v1/topics/ns/t/messages"


def request(body: bytes, *lines: str, first: str = f"POST {PATH} HTTP/1.1") -> bytes:
    length = () if "Transfer-Encoding: chunked" in lines else (f"Content-Length: {len(body)}",)
    return "\r\n".join([first, "Host: a", *lines, *length, "", ""]).encode() + body


REQUESTS = [
    request(b"one"),
    request(b"two"),
    request(b"other length"),
    request(b""),
    request(b"key", "Fencelog-Key: k"),
    request(b"seq", "Producer-Id: p", "Producer-Seq: 7"),
    request(b"id!", "X-Request-Id: r-1"),
    request(b"GET", first=f"GET {PATH} HTTP/1.1"),
    request(b"old", first=f"POST {PATH} HTTP/1.0"),
    request(b"bad", "Fencelog-Unknown: x"),
    request(b"web", "Origin: http://a"),
    request(b"3\r\nabc\r\n0\r\n\r\n", "Transfer-Encoding: chunked"),
    request(b"x", "Expect: 100-continue"),
    request(b"big", f"Fencelog-Header-Big: {'x' * MAX_KNOWN_HEAD_BYTES}"),
    b"\r\n" + request(b"blank line"),
    b"\r\n\r\n" + request(b"two blank lines"),
    request(b"LF\r\n\r\n").replace(b"\r\n", b"\n", 4),
    request(b"folded", "Fencelog-Header-A: b\r\n c"),
    request(b"last", "Connection: close"),
    b"NONSENSE\r\n\r\n",
]


@given(
    st.lists(st.sampled_from(REQUESTS), max_size=12),
    st.lists(st.integers(1, 400), max_size=12),
)
async def test_known_heads_change_nothing_of_what_is_taken(
    requests: list[bytes], cuts: list[int]
) -> None:
    """Pieces end between requests, or anywhere."""
    parsing, knowing = Taker(None), Taker(known_heads())
    data = b"".join(requests)
    whole = [*requests, *requests]
    pieces, at = list[bytes](), 0
    for size in cuts:
        pieces.append(data[at : at + size])
        at += size
    for piece in [*whole, *filter(None, pieces), data[at:]]:
        for taker in (parsing, knowing):
            taker.reader.feed(piece)
    assert knowing.taken == parsing.taken
    assert knowing.reader.is_in_message == parsing.reader.is_in_message
    assert knowing.reader.url == parsing.reader.url


NAMES = (
    *("Fencelog-Key", "Fencelog-Header-A", "Producer-Id", "Producer-Seq", "traceparent", "X-Other"),
    *("Connection", "Proxy-Connection", "Content-Type", "Content-Length", "Prefer", "User-Agent"),
)
PLAIN = {"Connection": "keep-alive", "Proxy-Connection": "keep-alive", "Producer-Seq": "1"}
VALUES = st.one_of(
    st.sampled_from(("7", "close", "keep-alive", "upgrade", "a b", " a", "a ", "", "a\tb", "5, 5")),
    st.text(st.characters(max_codepoint=255), max_size=5),
    st.text(st.sampled_from("a7 \r\n\t\0\x7f\x80:"), max_size=4),
)


def post_of(names: Sequence[str], values: Mapping[str, str], path: str = PATH) -> bytes:
    """Return a post of five bytes with these headers, in their order."""
    lines = [f"{name}: {values.get(name, PLAIN.get(name, 'plain'))}" for name in names]
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: a", *lines, "", "seven"]).encode("latin-1")


@given(
    st.lists(st.sampled_from(NAMES), unique=True, max_size=6).flatmap(st.permutations),
    st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=2),
    st.sampled_from(
        (PATH, f"{PATH}?key=a", f"{PATH}?key=a#b", "/v1/topics/ns/u/messages", "/", "*")
    ),
)
async def test_known_forms_change_nothing_of_what_is_taken(
    names: list[str], values: dict[str, str], path: str
) -> None:
    names = [name for name in names if name != "Content-Length"]
    names.insert(len(names) // 2, "Content-Length")
    parsing, knowing = Taker(None), Taker(known_heads())
    given = {"Content-Length": "5"} | values
    usual = post_of(names, {"Content-Length": "5"})
    for piece in (usual, usual, post_of(names, given), post_of(names, given, path), usual):
        for taker in (parsing, knowing):
            taker.reader.feed(piece)
    assert knowing.taken == parsing.taken
    assert knowing.reader.is_in_message == parsing.reader.is_in_message


async def test_a_head_of_a_known_form_is_not_parsed() -> None:
    heads = known_heads()
    first, second = Taker(heads), Taker(heads)
    for number in range(5):
        key = f"Fencelog-Key: {number}"
        first.reader.feed(request(b"x" * (number + 1), key, f"traceparent: 00-{number}-b-01"))
    assert (first.parsed, len(first.taken)) == (2, 5)
    for number in range(3):
        key = f"Fencelog-Key: of another {number}"
        second.reader.feed(request(b"y", key, "traceparent: 00-a-b-00"))
    assert (second.parsed, len(second.taken)) == (1, 3)


async def test_a_connection_remembers_a_few_forms() -> None:
    """Posts with a key, and without one, need not be parsed in turn."""
    *some, last = [f"Fencelog-Header-{number}: x" for number in range(MAX_FORMS + 1)]
    taker = Taker(known_heads())

    def parsed_of(lines: Sequence[str]) -> int:
        before = taker.parsed
        for line in lines:
            taker.reader.feed(request(b"x" * (len(taker.taken) + 1), line))
        return taker.parsed - before

    assert [parsed_of(some) for _ in range(3)] == [MAX_FORMS, MAX_FORMS, 0]
    assert parsed_of([last] * 3) == 2
    assert parsed_of(some[1:]) == 0
    assert parsed_of(some[:1]) == 1
    assert parsed_of(some) == 0
    assert parsed_of([last]) == 1


async def test_heads_whose_bodies_come_later_do_not_take_the_place_of_others() -> None:
    heads = known_heads()
    taker = Taker(heads)
    for number in range(4):
        head, _, _ = request(b"body", f"Fencelog-Key: {number}").rpartition(b"body")
        for piece in (head + b"bo", b"dy"):
            taker.reader.feed(piece)
    assert (taker.parsed, len(taker.taken)) == (4, 4)
    assert len(heads._forms) == 1
    assert not heads._known


async def test_a_connection_of_many_forms_learns_a_few() -> None:
    """To learn one takes longer than to parse many heads."""
    heads = known_heads()
    taker = Taker(heads)
    for number in range(3 * MAX_FORMS):
        for _ in range(2):
            line = f"Fencelog-Header-{number}: x"
            taker.reader.feed(request(b"x" * (len(taker.taken) + 1), line))
    assert len(heads._forms) == 2 * MAX_FORMS


async def test_of_a_head_without_its_body_nothing_is_learnt() -> None:
    """Many clients send them one after the other: what is parsed anyway is not read twice."""
    heads = known_heads()
    taker = Taker(heads)
    for _ in range(3):
        head, _, _ = request(b"body", "Fencelog-Key: k").rpartition(b"body")
        taker.reader.feed(head)
        taker.reader.feed(b"body")
    assert (taker.parsed, len(taker.taken)) == (3, 3)
    assert not heads._forms
    assert not heads._known


@pytest.mark.parametrize(
    "piece",
    [
        request(b"x", "Fencelog-Key: a", "Proxy-Connection: close"),
        request(b"x" * MAX_DIRECT_BODY_BYTES + b"x", "Fencelog-Key: a", "Proxy-Connection: x"),
        request(b"x", "Fencelog-Key: a", "Proxy-Connection: x") + b"more",
        request(b"x", "Fencelog-Key: a", "Proxy-Connection: x").replace(b"Host: a", b"Host: b"),
    ],
    ids=["last of its connection", "large body", "more than one", "another host"],
)
async def test_what_is_more_than_a_post_of_a_known_form_is_parsed(piece: bytes) -> None:
    parsing, knowing = Taker(None), Taker(known_heads())
    for number in range(4):
        for taker in (parsing, knowing):
            key = f"Fencelog-Key: {number}"
            taker.reader.feed(request(b"y", key, "Proxy-Connection: x"))
    assert knowing.parsed == 2
    for taker in (parsing, knowing):
        taker.reader.feed(piece)
    assert knowing.parsed == 3
    assert knowing.taken == parsing.taken


async def test_a_head_is_parsed_twice_and_then_known_to_all_connections() -> None:
    heads = known_heads()
    first, second = Taker(heads), Taker(heads)
    for body in (b"1", b"2", b"3", b"4"):
        first.reader.feed(request(body))
    assert (first.parsed, len(first.taken)) == (2, 4)
    second.reader.feed(request(b"5"))
    assert (second.parsed, len(second.taken)) == (0, 1)


async def test_heads_that_stand_for_more_than_a_post_are_parsed_each_time() -> None:
    for lines in (("X-Request-Id: r",), ("Expect: 100-continue",), ("Origin: http://a",)):
        taker = Taker(known_heads())
        for _ in range(3):
            taker.reader.feed(request(b"x", *lines))
        assert taker.parsed == 3


async def test_blank_lines_before_a_head_are_no_head() -> None:
    """The parser passes over them, and others may send them before anything else."""
    heads = known_heads()
    taker, other = Taker(heads), Taker(heads)
    for _ in range(3):
        taker.reader.feed(b"\r\n\r\n" + request(b"x" * 15))
    assert taker.parsed == len(taker.taken) == 3
    other.reader.feed(b"\r\n\r\nno request, no!")
    assert [code for code, _ in other.taken] == [ErrorCode.BAD_REQUEST]


async def test_what_follows_a_last_request_is_ignored() -> None:
    taker = Taker(known_heads())
    for _ in range(3):
        taker.reader.feed(request(b"x"))
    taker.reader.feed(request(b"x", "Connection: close"))
    taker.reader.feed(request(b"x"))
    assert len(taker.taken) == 4


async def test_after_a_refusal_nothing_is_taken() -> None:
    taker = Taker(known_heads())
    for _ in range(3):
        taker.reader.feed(request(b"x"))
    taker.reader.end()
    taker.reader.feed(request(b"x"))
    assert len(taker.taken) == 3
