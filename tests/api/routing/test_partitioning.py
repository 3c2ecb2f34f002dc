"""One definition of a key's partition, for every way into a topic."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import quote

import pytest
import pytest_asyncio

from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.child_process import fencelog_command
from fencelog.api.routing.partitioner import partition_of_key
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import (
    CODEC_ZSTD,
    Message,
    decode_batch,
    encode_batch,
    encode_values,
)
from fencelog.ledgers.record_batch.frames import read_frames
from tests.support.network.http_client import http_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

PARTITIONS = 4
KEYS = [b"user-%d" % number for number in range(6)]
BATCH = "application/vnd.fencelog.batch"
MESSAGES = [Message(b"v%d" % n, KEYS[n % 5], 7 + n, (("h", b"%d" % n),)) for n in range(20)]


@pytest_asyncio.fixture(loop_scope="module")
async def client(real: str) -> AsyncIterator[FencelogClient]:
    async with FencelogClient(real) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def topic(client: FencelogClient, request: pytest.FixtureRequest) -> str:
    """A new topic of four partitions."""
    name = f"ns/{request.node.name.replace('[', '-').rstrip(']')}"[:100]
    await client.create_topic(name, partitions=PARTITIONS)
    return name


async def stored(client: FencelogClient, topic: str) -> list[list[Message]]:
    """The messages of each partition."""
    found: list[list[Message]] = []
    for partition in range(PARTITIONS):
        path = f"/v1/topics/{topic}/partitions/{partition}/messages"
        answer = await client._service.request("GET", path, headers={"accept": BATCH})
        frames = read_frames(answer.content)
        found.append([message for frame in frames for message in decode_batch(frame.batch)])
    return found


Way = Callable[[str, FencelogClient, str], Awaitable[None]]
"""Appends one message for each of KEYS: by URL, client, topic."""


async def raw_header(url: str, _: FencelogClient, topic: str) -> None:
    async with http_client(f"{url}/v1/topics/{topic}") as http:
        for key in KEYS:
            headers = {"Fencelog-Key": key.decode()}
            assert (await http.post("/messages", headers=headers)).status_code == 201


async def raw_query(url: str, _: FencelogClient, topic: str) -> None:
    async with http_client(f"{url}/v1/topics/{topic}") as http:
        for key in KEYS:
            assert (await http.post(f"/messages?key={quote(key)}")).status_code == 201


async def raw_base64(url: str, _: FencelogClient, topic: str) -> None:
    async with http_client(f"{url}/v1/topics/{topic}") as http:
        for key in KEYS:
            headers = {"Fencelog-Key-Base64": base64.b64encode(key).decode()}
            assert (await http.post("/messages", headers=headers)).status_code == 201


async def _batch(url: str, topic: str, media_type: str, body: bytes) -> None:
    async with http_client(f"{url}/v1/topics/{topic}") as http:
        headers = {"Content-Type": media_type}
        answer = await http.post("/messages:batch", content=body, headers=headers)
    assert answer.status_code == 201
    appended = answer.json()["appended"]
    assert sum(part["count"] for part in appended) == answer.json()["count"] == len(KEYS)


async def batch_json(url: str, _: FencelogClient, topic: str) -> None:
    messages = [{"text": "", "key": key.decode()} for key in KEYS]
    await _batch(url, topic, "application/json", json.dumps({"messages": messages}).encode())


async def batch_ndjson(url: str, _: FencelogClient, topic: str) -> None:
    lines = [{"text": "", "key_base64": base64.b64encode(key).decode()} for key in KEYS]
    body = "\n".join(map(json.dumps, lines)).encode()
    await _batch(url, topic, "application/x-ndjson", body)


async def batch_records(url: str, _: FencelogClient, topic: str) -> None:
    await _batch(url, topic, BATCH, encode_batch([Message(b"", key) for key in KEYS]))


async def batch_compressed(url: str, _: FencelogClient, topic: str) -> None:
    batch = encode_batch([Message(b"", key) for key in KEYS], codec=CODEC_ZSTD)
    await _batch(url, topic, BATCH, batch)


async def client_append(_: str, client: FencelogClient, topic: str) -> None:
    for key in KEYS:
        appended = await client.append(topic, b"", key=key)
        assert appended.partition == partition_of_key(key, PARTITIONS)


async def client_keyed(_: str, client: FencelogClient, topic: str) -> None:
    await client.append_keyed(topic, encode_batch([Message(b"", key) for key in KEYS]))


async def client_once(_: str, client: FencelogClient, topic: str) -> None:
    for key in KEYS:
        for duplicate in (False, True):
            appended = await client.append(topic, b"", key=key, idempotency_key=key.decode())
            assert appended.duplicate == duplicate


async def command_line(url: str, _: FencelogClient, topic: str) -> None:
    for key in KEYS:
        arguments = ["append", topic, "--key", key.decode(), "--server", url]
        process = await asyncio.create_subprocess_exec(
            *fencelog_command(*arguments), stdin=asyncio.subprocess.PIPE
        )
        await process.communicate(b"\n")
        assert process.returncode == 0


WAYS: list[Way] = [
    raw_header,
    raw_query,
    raw_base64,
    batch_json,
    batch_ndjson,
    batch_records,
    batch_compressed,
    client_append,
    client_keyed,
    client_once,
    command_line,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_key_has_one_partition_whatever_way_it_comes(
    real: str, client: FencelogClient, topic: str, way: Way
) -> None:
    await way(real, client, topic)
    found = await stored(client, topic)
    assert [[message.key for message in messages] for messages in found] == [
        [key for key in KEYS if partition_of_key(key, PARTITIONS) == partition]
        for partition in range(PARTITIONS)
    ]


async def test_a_record_batch_is_cut_by_key_with_all_that_its_messages_have(
    client: FencelogClient, topic: str
) -> None:
    without_key = [Message(b"a"), Message(b"b", None, 3)]
    batch = encode_batch([without_key[0], *MESSAGES, without_key[1]], codec=CODEC_ZSTD)
    parts = await client.append_keyed(topic, batch)
    found = await stored(client, topic)
    assert {part.partition: part.count for part in parts} == {
        partition: len(messages) for partition, messages in enumerate(found) if messages
    }
    of_keys = [[m for m in messages if m.key is not None] for messages in found]
    assert of_keys == [
        [m for m in MESSAGES if m.key and partition_of_key(m.key, PARTITIONS) == partition]
        for partition in range(PARTITIONS)
    ]
    others = [[m for m in messages if m.key is None] for messages in found]
    assert sorted(map(len, others)) == [0, 0, 0, 2]
    assert without_key in others


async def test_a_batch_of_one_partition_stays_as_it_is(client: FencelogClient, topic: str) -> None:
    batch = encode_batch([Message(b"a", b"k"), Message(b"b", b"k")], codec=CODEC_ZSTD)
    (part,) = await client.append_keyed(topic, batch)
    named = await client.append_batch(topic, batch, partition=3)
    assert (part.partition, named.partition) == (partition_of_key(b"k", PARTITIONS), 3)
    path = f"/v1/topics/{topic}/partitions/{part.partition}/messages"
    answer = await client._service.request("GET", path, headers={"accept": BATCH})
    assert bytes(read_frames(answer.content)[0].batch) == batch
    in_turn = [await client.append_batch(topic, encode_values([b"x"])) for _ in range(PARTITIONS)]
    assert {appended.partition for appended in in_turn} == set(range(PARTITIONS))


async def test_keys_without_a_partition_are_no_batch_of_one(
    client: FencelogClient, topic: str
) -> None:
    with pytest.raises(FencelogError, match="append_keyed") as caught:
        await client.append_batch(topic, encode_batch([Message(b"", b"k")]))
    assert caught.value.code is ErrorCode.BAD_REQUEST
    assert (await client.append_batch(topic, encode_batch([Message(b"", b"k")]), key=b"k")).count
