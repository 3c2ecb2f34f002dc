"""Valid requests to every endpoint, and valid frames: what mutations begin with."""

from __future__ import annotations

import json
from typing import Any

from fencelog.api.produce.post import encode_post, read_post
from fencelog.api.routing.link_frames import (
    KIND,
    PATH,
    UPGRADE,
    LinkOp,
    RequestHead,
    encode_credit,
    encode_http_request,
    frame_of,
)
from fencelog.broker.names import TopicName
from fencelog.ledgers.record_batch import CODEC_LZ4, CODEC_ZSTD, Message, encode_batch
from fencelog.ledgers.rpc.handshake import ClientHandshake

NAMESPACE = "fuzz"
TOPIC = f"/v1/topics/{NAMESPACE}/t"
PARTITION = f"{TOPIC}/partitions/0"
LOCKED = f"/v1/topics/{NAMESPACE}/locked/partitions/0"
SUBSCRIPTION = f"{TOPIC}/subscriptions/s"
JSON = "Content-Type: application/json"

MESSAGES = [
    Message(b"value"),
    Message(b'{"n": 1}', b"key", 1_700_000_000_000_000, (("trace", b"1"), ("trace", b"\xff"))),
    Message(b"", b""),
]
BATCHES = [encode_batch(MESSAGES, codec=codec) for codec in (0, CODEC_LZ4, CODEC_ZSTD)]
LINES = (
    b'{"text": "one", "key": "k"}\n{"base64": "dHdv", "headers": {"h": "v"}}\n\n{"json": [1, {}]}\n'
)
BATCH = json.dumps(
    {
        "messages": [
            {"text": "one", "event_time": -5, "deliver_at": 5},
            {"json": {"deep": [[[["x"]]]]}, "key": "a", "headers": {"trace": "1"}},
            {"base64": "/w==", "key_base64": "/w==", "headers_base64": [["h", "/w=="]]},
        ]
    }
).encode()
CONDITIONS = ("Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq: 0")
POST_HEADERS = (
    "Fencelog-Key: k",
    "Fencelog-Event-Time: 1700000000000000",
    "Fencelog-Header-Trace: 4bf92f",
    "ce-id: 5",
    "Content-Type: text/html; charset=latin-1",
)


def request(line: str, *headers: str, body: bytes | None = None) -> bytes:
    """Return the bytes of a request. ``line``: method and path."""
    lines = [f"{line} HTTP/1.1", "Host: 127.0.0.1", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def sent(line: str, value: Any) -> bytes:
    return request(line, JSON, body=json.dumps(value).encode())


IDS = {"ack_ids": ["0-1-0-0-1-89abcdef"]}
BATCH_URL = f"POST {TOPIC}/messages:batch"
READ = f"GET {PARTITION}/messages"

REQUESTS = [
    request(f"POST {TOPIC}/messages?partition=0", *POST_HEADERS, body=b"hello"),
    request(f"POST {TOPIC}/messages?key=%C3%A4&delay_ms=5", body=b"x" * 200),
    request(f"POST {TOPIC}/messages", "Fencelog-Key-Base64: /w==", *CONDITIONS, body=b"c"),
    request(
        f"POST {TOPIC}/messages",
        "Idempotency-Key: 7",
        "If-Offset: 0",
        "Fencing-Token: t",
        body=b"k",
    ),
    request(f"POST {TOPIC}/messages", "Fencelog-Deliver-At: 5", "Prefer: redirect", body=b"d"),
    request(f"POST {TOPIC}/messages", "Transfer-Encoding: chunked") + b"3\r\nabc\r\n0\r\n\r\n",
    request(f"POST {TOPIC}/messages", "Expect: 100-continue", body=b"e"),
    request(BATCH_URL, JSON, body=BATCH),
    request(BATCH_URL, "Content-Type: application/x-ndjson", *CONDITIONS, body=LINES),
    request(f"{BATCH_URL}?key=k", "Content-Type: text/plain", body=b"one\ntwo\r\n\n"),
    *(
        request(BATCH_URL, "Content-Type: application/vnd.fencelog.batch", body=batch)
        for batch in BATCHES
    ),
    request(f"{READ}?from=0&limit=2&max_bytes=10000&wait=0.01&as=json"),
    request(f"{READ}?from_time=5", "Accept: application/x-ndjson;q=0.9, */*;q=0.1"),
    request(f"{READ}?from=latest&wait=0.01", "Accept: application/vnd.fencelog.batch"),
    request(f"{READ}?limit=2", "Accept: text/event-stream", "Last-Event-ID: 0"),
    request(f"{READ}?view=compacted&as=base64"),
    request(f"HEAD {PARTITION}/messages/0"),
    request(f"GET {PARTITION}/messages/1"),
    request(f"GET {PARTITION}/segments?from_offset=1"),
    request(f"GET {PARTITION}/offsets?time=1700000000000000"),
    request(f"GET {PARTITION}/internal"),
    request(f"GET {PARTITION}/chain?ledgers=2&before=1", 'If-None-Match: W/"x"'),
    request("GET /v1/admin/topics?sort=size&contains=t&start=0&limit=5"),
    request("GET /v1/admin/events?kind=takeover,roll&topic=fuzz/t&since=5&before=9&limit=5"),
    request("GET /v1/admin/events?after=0&wait=0.01", "Accept: application/json"),
    request("GET /v1/admin/subscriptions?sort=held_bytes&contains=t&start=0&limit=5"),
    request(f"GET {PARTITION}/compaction"),
    request(f"GET {PARTITION}/producers/p"),
    request(f"DELETE {LOCKED}/producers/p?epoch=1"),
    sent(f"POST {LOCKED}/producers/p:claim", {"mode": "wait", "wait_ms": 5}),
    sent(f"POST {LOCKED}:fence", {"token": "t", "expected": None}),
    request(f"GET {PARTITION}/committers/q"),
    request(f"POST {PARTITION}/committers/q:create-ledger", body=b""),
    sent(
        f"POST {PARTITION}/committers/q:commit",
        {"batch": 1, "ledgers": [{"ledger_id": 1, "messages": 2}], "partitions": 1},
    ),
    sent(f"POST {PARTITION}/committers/q:abort", {"batch": 1, "ledgers": [1]}),
    sent(f"POST {PARTITION}:trim", {"before": 0}),
    sent(f"POST {PARTITION}:unload", {"to": None}),
    request(f"POST {PARTITION}:open", body=b""),
    sent(
        f"POST {PARTITION}:find-key",
        {"id": "AAAA", "contents": "AAAA", "topic_id": "t", "partitions": 2},
    ),
    sent(f"PUT {TOPIC}2", {"partitions": 2, "retention_bytes": "unlimited", "ttl_ms": None}),
    sent(f"PATCH {TOPIC}?allow_missing_bookies=true", {"retention_ms": 604_800_000}),
    request(f"GET /v1/topics?namespace={NAMESPACE}&prefix=t&start_after=a&limit=5"),
    sent("PUT /v1/namespaces/other", {"publish_bytes_per_s": 10_000_000}),
    request("GET /v1/brokers"),
    request("OPTIONS /v1/topics/fuzz/t", "Origin: http://127.0.0.1"),
    request("GET /console/icon.svg", "Range: bytes=0-5", "If-None-Match: x"),
    sent(f"PUT {SUBSCRIPTION}2", {"type": "key_shared", "start": {"offset": 0}, "lease_ms": 99}),
    sent(f"POST {SUBSCRIPTION}:pull?partition=0", {"max": 2, "wait": 0.01, "consumer": "c"}),
    sent(f"POST {SUBSCRIPTION}:ack", IDS),
    sent(f"POST {SUBSCRIPTION}:ack", {"through": IDS["ack_ids"], "consumer": "c"}),
    sent(f"POST {SUBSCRIPTION}:nack", {**IDS, "delay_ms": 5}),
    sent(f"POST {SUBSCRIPTION}:extend", {**IDS, "lease_ms": 5}),
    sent(f"POST {SUBSCRIPTION}:seek", {"offsets": [{"partition": 0, "offset": 1}]}),
    sent(f"POST {SUBSCRIPTION}:replay-dead-letters", {"limit": 5}),
    sent(f"POST {SUBSCRIPTION}:wait", {"partitions": [0], "wait": 0.01}),
    sent(f"POST {SUBSCRIPTION}:hold", {"consumer": "c", "lease_ms": 5}),
    sent(f"POST {SUBSCRIPTION}:open-cursor", {"subscription_id": "x"}),
    request(f"GET {SUBSCRIPTION}/events?limit=1&lease_ms=5&as=text"),
    request(f"GET {SUBSCRIPTION}/stats"),
    request(f"GET {SUBSCRIPTION}/lag?partition=0"),
]

UPGRADES = request(f"GET {PATH.decode()}", "Connection: Upgrade", f"Upgrade: {UPGRADE.decode()}")
HELLO = ClientHandshake("127.0.0.1", features=frozenset(), kind=KIND).hello()
POSTED = read_post(
    [(b"fencelog-key", b"k"), (b"idempotency-key", b"i")],
    b"delay_ms=5",
    TopicName(NAMESPACE, "t"),
)
LINK_FRAMES = [
    b"".join(frame_of(LinkOp.APPEND, 1, encode_post(POSTED, 0, b"appended"))),
    *(
        b"".join(
            frame_of(
                LinkOp.REQUEST,
                number,
                encode_http_request(
                    RequestHead(method, path.encode(), b"", [(b"content-type", b"text/plain")]),
                    body,
                ),
            )
        )
        for number, (method, path, body) in enumerate(
            (
                ("POST", f"{TOPIC}/messages", b"x"),
                ("POST", f"{TOPIC}/messages:batch", b"one\ntwo"),
                ("GET", f"{PARTITION}/messages", b""),
                ("GET", "/v1/brokers", b""),
            ),
            start=2,
        )
    ),
    encode_credit(3, 1000),
    b"".join(frame_of(LinkOp.CANCEL, 3, ())),
    b"".join(frame_of(LinkOp.PING, 0, ())),
]
