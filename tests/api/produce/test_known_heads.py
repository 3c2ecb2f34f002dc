"""What is remembered of heads, and for how long."""

from __future__ import annotations

import pytest

from fencelog.api.produce.known_heads import (
    MAX_FORM_BYTES,
    MAX_FORM_HEADERS,
    MAX_KNOWN_FORMS,
    MAX_KNOWN_HEADERS,
    MAX_KNOWN_HEADS,
    Headers,
    HeadForm,
    KnownHeads,
)
from fencelog.api.produce.post import Post
from fencelog.broker.names import TopicName

POST = Post(TopicName("ns", "t"), None, None, None, (), None, None)


def no_post(url: bytes, headers: Headers) -> None:
    """Read no head by its shape."""


HEADERS = [(b"host", b"a"), (b"content-length", b"7")]


def head(path: str) -> bytes:
    return f"POST /{path} HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n".encode()


def learn(heads: KnownHeads, path: str) -> None:
    heads.learn(head(path), f"/{path}".encode(), HEADERS, dict(HEADERS), POST)


@pytest.mark.parametrize(
    "given",
    [
        b"\r\n\r\n",
        b"\r\n" + head("a"),
        head("a") + b"more\r\n\r\n",
        head("a").replace(b"\r\n", b"\n", 1),
        head("b"),
    ],
)
def test_more_or_less_than_a_head_is_not_learnt(given: bytes) -> None:
    heads = KnownHeads(no_post)
    for _ in range(3):
        heads.learn(given, b"/a", HEADERS, dict(HEADERS), POST)
    assert heads.find(given) is None


SEQ = (b"producer-seq", b"7")


def varied(*lines: bytes) -> bytes:
    return b"\r\n".join([b"POST /a?b=c HTTP/1.1", *lines, b"Content-Length: 7", b"", b""])


def learn_form(heads: KnownHeads, head: bytes, headers: Headers) -> HeadForm | None:
    framing = {name: value for name, value in headers if name in (b"host", b"content-length")}
    return heads.learn(head, b"/a?b=c", headers, framing, POST)


def test_a_form_is_known_from_its_second_time_on() -> None:
    heads = KnownHeads(lambda _url, _headers: POST)
    headers = [*HEADERS[:1], SEQ, *HEADERS[1:]]
    heads_of = [varied(b"Host: a", b"Producer-Seq: %d" % number) for number in range(3)]
    assert learn_form(heads, heads_of[0], [(n, v.replace(b"7", b"0")) for n, v in headers]) is None
    form = learn_form(heads, varied(b"Host: a", b"Producer-Seq: 7"), headers)
    assert form is not None
    known = heads.read(heads_of[2], form)
    assert known is not None
    assert known.headers == [HEADERS[0], (b"producer-seq", b"2"), HEADERS[1]]
    assert (known.url, known.body_bytes, known.framing) == (b"/a?b=c", 7, dict(HEADERS))
    heads.note(heads_of[2], known)
    assert heads.find(heads_of[2]) is None
    heads.note(heads_of[2], known)
    assert heads.find(heads_of[2]) is known


@pytest.mark.parametrize(
    "line",
    [
        b"Producer-Seq: 7\t",
        b"Producer-Seq: 7 ",
        b"Producer-Seq:  7",
        b"Producer-Seq:7",
        b"Producer-Seq: ",
        b"Producer-Seq: \x80",
        b"Producer-Seq: 7\r",
        b"Producer-Seq : 7",
        b"Producer-Id: 7",
        b"Producer-Seq: 7\r\nProducer-Seq: 7",
        b"Producer-Seq: 7\r\n 8",
    ],
)
def test_lines_that_are_not_plain_are_left_to_the_parser(line: bytes) -> None:
    heads = KnownHeads(lambda _url, _headers: POST)
    headers = [HEADERS[0], SEQ, HEADERS[1]]
    for _ in range(2):
        form = learn_form(heads, varied(b"Host: a", b"Producer-Seq: 7"), headers)
    assert form is not None
    assert heads.read(varied(b"Host: a", b"Producer-Seq: 8"), form) is not None
    assert heads.read(varied(b"Host: a", line), form) is None
    assert heads.read(varied(b"Host: b", b"Producer-Seq: 7"), form) is None


def test_what_is_no_post_is_left_to_the_parser() -> None:
    found: list[Post | None] = [POST]
    heads = KnownHeads(lambda _url, _headers: found[0])
    for _ in range(2):
        form = learn_form(heads, varied(b"Host: a"), HEADERS)
    assert form is not None
    found[0] = None
    assert heads.read(varied(b"Host: a"), form) is None


def test_a_trace_that_is_given_twice_has_no_form() -> None:
    heads = KnownHeads(lambda _url, _headers: POST)
    trace = (b"traceparent", b"x")
    headers = [HEADERS[0], trace, trace, HEADERS[1]]
    lines = varied(b"Host: a", b"traceparent: x", b"traceparent: x")
    assert [learn_form(heads, lines, headers) for _ in range(3)] == [None] * 3


def test_no_more_forms_are_known_than_the_limit() -> None:
    heads = KnownHeads(lambda _url, _headers: POST)
    for number in range(MAX_KNOWN_FORMS + 1):
        headers = [(b"x-%d" % number, b"x"), HEADERS[1]]
        for _ in range(2):
            form = learn_form(heads, varied(b"X-%d: x" % number), headers)
        assert (form is not None) == (number < MAX_KNOWN_FORMS)
    assert len(heads._forms) == MAX_KNOWN_FORMS


@pytest.mark.parametrize(
    "lines",
    [
        [b"X: \xe9"],
        [b"X:y"],
        [b"X: "],
        [b"X: y"] * MAX_FORM_HEADERS,
        [b"X: %b" % (b"y" * MAX_FORM_BYTES)],
    ],
)
def test_a_head_that_is_not_plain_and_small_has_no_form(lines: list[bytes]) -> None:
    heads = KnownHeads(lambda _url, _headers: POST)
    headers = [(b"x", line.partition(b":")[2].strip()) for line in lines] + HEADERS[1:]
    for _ in range(3):
        assert learn_form(heads, varied(*lines), headers) is None
    assert not heads._forms


def test_a_head_of_many_headers_is_not_learnt() -> None:
    """Each takes more memory than its bytes."""
    heads = KnownHeads(no_post)
    lines = [b"POST /a HTTP/1.1", *[b"A: b"] * MAX_KNOWN_HEADERS, b"Content-Length: 7", b"", b""]
    headers = [(b"a", b"b")] * MAX_KNOWN_HEADERS + HEADERS[1:]
    for _ in range(3):
        heads.learn(b"\r\n".join(lines), b"/a", headers, dict(headers), POST)
        heads.learn(b"\r\n".join(lines[:-3] + lines[-2:]), b"/a", headers[:-1], dict(HEADERS), POST)
    assert [len(known.headers) for known in heads._known.values()] == [MAX_KNOWN_HEADERS]


def test_a_head_is_known_from_its_second_time_on() -> None:
    heads = KnownHeads(no_post)
    learn(heads, "a")
    assert heads.find(head("a")) is None
    learn(heads, "a")
    known = heads.find(head("a"))
    assert known is not None
    assert (known.url, known.body_bytes, known.post) == (b"/a", 7, POST)
    assert heads.find(head("b")) is None


def test_heads_that_never_come_again_do_not_take_the_place_of_others() -> None:
    heads = KnownHeads(no_post)
    learn(heads, "a")
    learn(heads, "a")
    for number in range(3 * MAX_KNOWN_HEADS):
        learn(heads, str(number))
    assert heads.find(head("a")) is not None
    assert len(heads._came_once) <= MAX_KNOWN_HEADS


def test_no_more_heads_are_known_than_the_limit() -> None:
    heads = KnownHeads(no_post)
    for number in range(MAX_KNOWN_HEADS + 1):
        learn(heads, str(number))
        learn(heads, str(number))
    assert len(heads._known) <= MAX_KNOWN_HEADS
    assert heads.find(head(str(MAX_KNOWN_HEADS))) is not None
