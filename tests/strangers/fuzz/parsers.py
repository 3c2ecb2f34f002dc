"""The parsers themselves, called with broken input at full speed.

Each may refuse its input with an error of the client's (4xx), or as no frame; nothing else may come
of it.
"""

from __future__ import annotations

import random  # noqa: TID251 - seeded, so that a failure can be repeated
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fencelog.api.http.asgi import Exchange
from fencelog.api.http.json_render import ValueForm, message_object
from fencelog.api.http.message_headers import message_headers
from fencelog.api.http.read_request import read_request
from fencelog.api.http.targets import parse_path
from fencelog.api.produce.batch_bodies import parse_json, parse_ndjson, parse_text
from fencelog.api.produce.post import decode_post, read_post
from fencelog.api.routing.link_frames import decode_answer_head, decode_http_request
from fencelog.api.server.request import check_framing
from fencelog.api.subscriptions import requests
from fencelog.broker.names import TopicName
from fencelog.broker.subscriptions.ack_id import ack_id_maker, parse_ack_ids, partition_of_ack_id
from fencelog.ledgers.errors import FencelogError, ProtocolError
from fencelog.ledgers.format.run import build_run, verify_run
from fencelog.ledgers.record_batch import decode_batch
from fencelog.ledgers.rpc.wire import FRAME_HEADER, FrameReader, decode_hello, decode_object
from tests.strangers.fuzz.corpus import (
    BATCH,
    BATCHES,
    HELLO,
    LINES,
    LINK_FRAMES,
    PARTITION,
    REQUESTS,
    TOPIC,
)
from tests.strangers.fuzz.mutate import mutated

SERVER_ERROR = 500
BODY = FRAME_HEADER.size


class Parser(NamedTuple):
    """Reader of bytes that a stranger sends, with valid ones."""

    name: str
    takes: Callable[[bytes], object]
    valid: Sequence[bytes]


def heads() -> list[tuple[bytes, list[tuple[bytes, bytes]]]]:
    """Return target and headers of the valid requests."""
    found = []
    for request in REQUESTS:
        first, *lines = request.partition(b"\r\n\r\n")[0].split(b"\r\n")
        headers = [(n.lower(), v) for n, _, v in (line.partition(b": ") for line in lines)]
        found.append((first.split(b" ")[1], headers))
    return found


def headers_of(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return lines as headers, as an HTTP parser would deliver them."""
    pairs = (line.partition(b":") for line in data.split(b"\r\n"))
    return [(name.lower(), value.strip(b" \t")) for name, _, value in pairs]


def read_head(data: bytes) -> None:
    url, _, lines = data.partition(b"\r\n")
    path, _, query = url.partition(b"?")
    headers = headers_of(lines)
    read_post(headers, query, TopicName("ns", "t"))
    framing = {k: v for k, v in headers if k != b"content-length"}
    check_framing(framing, "1.1", upgrades=False)
    parse_path(path.decode("latin-1"))


def read_query(data: bytes) -> None:
    """A read, by its query and headers."""
    query, _, lines = data.partition(b"\r\n")
    scope = {"headers": headers_of(lines), "query_string": query, "path": "/", "method": "GET"}
    read_request(Exchange(scope, _unused, _unused))


async def _unused(*_: Any) -> Any:
    raise AssertionError


def read_record_batch(data: bytes) -> None:
    for message in decode_batch(data):
        message_object(0, 0, 0, message, ValueForm.JSON)
        message_headers(message)


def read_frames(data: bytes) -> None:
    """Frames of links and bookies, and the bodies that they might have."""
    reader = FrameReader()
    reader.accept_large_frames()
    for frame in reader.feed(data):
        for decode in (decode_http_request, decode_post, decode_answer_head, verify_run):
            try:
                decode(frame.body)
            except FencelogError as error:
                refused(error)


def read_ack_id(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    partition_of_ack_id(text)
    parse_ack_ids([text], "s")


def read_verbs(data: bytes) -> None:
    """The bodies of a subscription's verbs."""
    scope = {"headers": [(b"content-type", b"application/json")], "query_string": b""}
    exchange = Exchange(scope, _unused, _unused)
    for type_ in (requests.PullRequest, requests.AckRequest, requests.SeekRequest):
        try:
            requests.read_body(exchange, data, type_)
        except FencelogError as error:
            refused(error)


QUERIES = [
    target.partition(b"?")[2] + b"\r\nAccept: */*\r\nLast-Event-ID: 5"
    for target, _ in heads()
    if target.startswith(f"{PARTITION}/messages".encode())
]
HEADS = [
    b"\r\n".join((target, *(b"%b: %b" % header for header in headers)))
    for target, headers in heads()
    if target.startswith(f"{TOPIC}/messages".encode())
]
PATHS = [target.partition(b"?")[0] for target, _ in heads()]
BODIES = [part for part in (r.partition(b"\r\n\r\n")[2] for r in REQUESTS) if part[:1] == b"{"]
RUN = build_run(1, 0, [b"x" * 20] * 3, lac=-1, length_before=0)
ACK_IDS = [ack_id_maker("s", partition=0, epoch=1, generation=0, delivery=2)(7).encode()]

PARSERS = (
    Parser("json batch", parse_json, [BATCH]),
    Parser("ndjson batch", parse_ndjson, [LINES]),
    Parser("text batch", parse_text, [b"one\ntwo\r\n\n"]),
    Parser("record batch", read_record_batch, BATCHES),
    Parser("post head", read_head, HEADS),
    Parser("read query", read_query, QUERIES),
    Parser("path", lambda data: parse_path(data.decode("latin-1")), PATHS),
    Parser("frames", read_frames, [*LINK_FRAMES, HELLO, LINK_FRAMES[0] + LINK_FRAMES[2]]),
    Parser("append frame", decode_post, [LINK_FRAMES[0][BODY:]]),
    Parser("forwarded request", decode_http_request, [f[BODY:] for f in LINK_FRAMES[1:5]]),
    Parser("hello", decode_hello, [HELLO[BODY:]]),
    Parser("object", decode_object, [b'{"do": "status", "a": [1, {}, null]}']),
    Parser("run", verify_run, [RUN]),
    Parser("ack id", read_ack_id, ACK_IDS),
    Parser("verbs", read_verbs, BODIES),
)


def refused(error: FencelogError) -> None:
    """Check that an error is the client's."""
    assert isinstance(error, ProtocolError) or error.code.status < SERVER_ERROR, error.code


def fuzz_parsers(inputs: int, seed: int) -> list[str]:
    """Feed so many inputs to the parsers, in turn; return the failures."""
    chance = random.Random(seed)
    failures = []
    others = [each for parser in PARSERS for each in parser.valid]
    for number in range(inputs):
        parser = PARSERS[number % len(PARSERS)]
        data = mutated(chance.choice(parser.valid), others, chance)
        try:
            parser.takes(data)
        except FencelogError as error:
            if not isinstance(error, ProtocolError) and error.code.status >= SERVER_ERROR:
                failures.append(f"{parser.name}: {error.code} for {data[:2000]!r}")
        except Exception as error:
            failures.append(f"{parser.name}: {error!r} for {data[:2000]!r}")
    return failures
