"""``:batch``: four media types, all of it or nothing, and keys over several partitions."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from fencelog.broker.limits import MAX_BODY_BYTES
from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.record_batch import Message, decode_batch, encode_batch
from fencelog.ledgers.record_batch.frames import read_frames
from tests.support.fake_broker import FakeBroker

URL = "/v1/topics/ns/t/messages:batch"
READ = "/v1/topics/ns/t/partitions/0/messages"
T = TopicName("ns", "t")


async def post(
    http: httpx.AsyncClient, media_type: str, body: bytes, url: str = URL
) -> httpx.Response:
    return await http.post(url, content=body, headers={"content-type": media_type})


async def stored(http: httpx.AsyncClient, url: str = READ) -> list[Message]:
    answer = await http.get(url, headers={"accept": "application/vnd.fencelog.batch"})
    return [m for frame in read_frames(answer.content) for m in decode_batch(frame.batch)]


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("application/json", b'{"messages":[{"text":"a"},{"base64":"Yg=="},{"json":{"c": 1}}]}'),
        (
            "application/json; charset=utf-8",
            b'{"messages":[{"text":"a"},{"text":"b"},{"json":{"c": 1}}]}',
        ),
        ("application/x-ndjson", b'{"text":"a"}\n\n{"text":"b"}\r\n{"json":{"c": 1}}'),
        ("text/plain", b'a\nb\n{"c": 1}\n'),
        ('Text/Plain; a=b; Charset="UTF-8"', b'a\nb\n{"c": 1}'),
    ],
)
async def test_bodies_become_messages(
    http: httpx.AsyncClient, media_type: str, body: bytes
) -> None:
    answer = await post(http, media_type, body)
    assert answer.status_code == 201
    assert answer.json() == {
        "count": 3,
        "appended": [{"partition": 0, "offset": 0, "count": 3}],
    }
    assert [m.value for m in await stored(http)] == [b"a", b"b", b'{"c": 1}']


async def test_lines_keep_every_byte_but_the_newline(http: httpx.AsyncClient) -> None:
    await post(http, "text/plain", b"a\r\n\n\xff\x00\r\n\n")
    assert [m.value for m in await stored(http)] == [b"a\r", b"", b"\xff\x00\r", b""]


async def test_a_record_batch_is_stored_as_it_came(http: httpx.AsyncClient) -> None:
    batch = encode_batch([Message(b"v", b"k", 7, (("h", b"1"), ("h", b"2"))), Message(b"w")])
    answer = await post(http, "application/vnd.fencelog.batch", batch)
    assert answer.json()["count"] == 2
    read = await http.get(READ, headers={"accept": "application/vnd.fencelog.batch"})
    (frame,) = read_frames(read.content)
    assert bytes(frame.batch) == batch


async def test_a_damaged_record_batch_is_refused(
    http: httpx.AsyncClient, fake_broker: FakeBroker
) -> None:
    batch = bytearray(encode_batch([Message(b"v")]))
    batch[-1] ^= 1
    answer = await post(http, "application/vnd.fencelog.batch", bytes(batch))
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert "checksum" in answer.json()["detail"]
    assert not fake_broker.logs[T, 0].entries


@pytest.mark.parametrize(
    ("media_type", "body", "where"),
    [
        ("application/x-ndjson", b'{"text":"a"}\n{"text":"b"}\n{"text":', {"line": 3}),
        ("application/x-ndjson", b'{"text":"a"}\n\n{"txt":"b"}', {"line": 3, "field": "txt"}),
        (
            "application/json",
            b'{"messages":[{"text":"a"},{"text":1}]}',
            {"index": 1, "field": "text"},
        ),
        ("application/json", b'{"messages":[{"text":"a","base64":""}]}', {"index": 0}),
    ],
)
async def test_a_mistake_is_named_and_nothing_is_written(
    http: httpx.AsyncClient,
    fake_broker: FakeBroker,
    media_type: str,
    body: bytes,
    where: dict[str, Any],
) -> None:
    answer = await post(http, media_type, body)
    assert answer.status_code == 400
    problem = answer.json()
    assert {name: problem[name] for name in where} == where
    assert problem["side_effects"] == "none"
    assert not fake_broker.logs[T, 0].entries


@pytest.mark.parametrize("media_type", ["", "application/x-www-form-urlencoded", "text/html"])
async def test_other_media_types_are_refused_by_name(
    http: httpx.AsyncClient, media_type: str
) -> None:
    answer = await post(http, media_type, b"x")
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert "application/x-ndjson" in answer.json()["detail"]


async def test_a_body_over_the_limit_is_refused(http: httpx.AsyncClient) -> None:
    answer = await post(http, "text/plain", bytes(MAX_BODY_BYTES + 1))
    assert (answer.status_code, answer.json()["limit"]) == (413, MAX_BODY_BYTES)


class TestSeveralPartitions:
    """Keys spread a batch; each partition's share is one append."""

    URL = "/v1/topics/ns/many/messages:batch"
    MANY = TopicName("ns", "many")
    KEYS = ("a", "b", "c", "d", "e")

    def body(self) -> bytes:
        lines = [
            json.dumps({"text": f"{key}{n}", "key": key}) for n in range(3) for key in self.KEYS
        ]
        return "\n".join([*lines, '{"text":"none1"}', '{"text":"none2"}']).encode()

    @pytest.fixture(autouse=True)
    async def many(self, fake_broker: FakeBroker) -> None:
        await fake_broker.topics.create(self.MANY, TopicConfig(partitions=4))

    async def test_every_key_keeps_its_order_in_its_partition(
        self, http: httpx.AsyncClient
    ) -> None:
        answer = await post(http, "application/x-ndjson", self.body(), self.URL)
        assert answer.status_code == 201
        appended = answer.json()["appended"]
        assert answer.json()["count"] == 17 == sum(part["count"] for part in appended)
        assert [part["partition"] for part in appended] == sorted(
            {p["partition"] for p in appended}
        )
        for key in self.KEYS:
            partition = crc32c(key.encode()) % 4
            found = await stored(http, f"/v1/topics/ns/many/partitions/{partition}/messages")
            values = [m.value.decode() for m in found if m.key == key.encode()]
            assert values == [f"{key}{n}" for n in range(3)]

    async def test_a_named_partition_or_key_takes_all(self, http: httpx.AsyncClient) -> None:
        named = await post(http, "application/x-ndjson", self.body(), self.URL + "?partition=3")
        assert named.json()["appended"] == [{"partition": 3, "offset": 0, "count": 17}]
        keyed = await post(http, "application/x-ndjson", self.body(), self.URL + "?key=zz")
        assert [p["partition"] for p in keyed.json()["appended"]] == [crc32c(b"zz") % 4]
        both = await post(
            http, "application/x-ndjson", self.body(), self.URL + "?key=z&partition=1"
        )
        assert both.status_code == 400

    async def test_a_partial_append_is_told_as_what_it_is(
        self, http: httpx.AsyncClient, fake_broker: FakeBroker
    ) -> None:
        failing = crc32c(b"a") % 4
        log = await fake_broker.partition(self.MANY, failing)
        log.failure = FencelogError(ErrorCode.OVERLOADED, "too much waits")
        answer = await post(http, "application/x-ndjson", self.body(), self.URL)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (504, "append_unknown")
        assert [part["partition"] for part in problem["failed"]] == [failing]
        assert problem["failed"][0]["code"] == "overloaded"
        assert failing not in [part["partition"] for part in problem["appended"]]

    async def test_one_partition_that_may_have_taken_its_share_leaves_all_unknown(
        self, http: httpx.AsyncClient, fake_broker: FakeBroker
    ) -> None:
        for partition in range(4):
            log = await fake_broker.partition(self.MANY, partition)
            log.failure = FencelogError(ErrorCode.OVERLOADED, "too much waits")
        log.failure = FencelogError(ErrorCode.APPEND_UNKNOWN, "the ledger was fenced")
        keys = [key for key in map(str, range(99)) if crc32c(key.encode()) % 4 in (0, 3)]
        body = "\n".join(json.dumps({"text": "x", "key": key}) for key in keys).encode()
        answer = await post(http, "application/x-ndjson", body, self.URL)
        assert (answer.status_code, answer.json()["code"]) == (504, "append_unknown")
        assert answer.json()["side_effects"] == "maybe"
        assert [part["code"] for part in answer.json()["failed"]] == [
            "overloaded",
            "append_unknown",
        ]

    async def test_when_no_partition_took_anything_the_cause_is_the_answer(
        self, http: httpx.AsyncClient, fake_broker: FakeBroker
    ) -> None:
        for partition in range(4):
            log = await fake_broker.partition(self.MANY, partition)
            log.failure = FencelogError(ErrorCode.OVERLOADED, "too much waits")
        answer = await post(http, "application/x-ndjson", self.body(), self.URL)
        assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")


@pytest.mark.parametrize("charset", ["latin-1", '"iso-8859-15"', "utf-16"])
async def test_a_batch_in_another_charset_is_refused(http: httpx.AsyncClient, charset: str) -> None:
    answer = await post(http, f"text/plain; charset={charset}", b"a")
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


async def test_metadata_of_one_message_is_refused_before_a_batch(http: httpx.AsyncClient) -> None:
    headers = {"content-type": "text/plain", "fencelog-key": "k"}
    answer = await http.post(URL, content=b"a", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert await stored(http) == []
