"""Conditions of appends and who may append, over HTTP and from Python, at the owner and
elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from fencelog.api.client import Appended, FencelogClient
from fencelog.api.client.conditions import Producer
from fencelog.api.client.producer import ExactlyOnceProducer, PartitionAccess
from fencelog.api.streams.exactly_once_stream import ExactlyOnceStream
from fencelog.broker.limits import RECENT_APPENDS
from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import encode_values, open_batch
from tests.support.fake_broker import FakeBookies, FakeBroker, Serve, app_over
from tests.support.network.http_client import http_client
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def topic(real: str, request: pytest.FixtureRequest) -> str:
    """A new topic of one partition."""
    name = f"ns/{request.node.name.replace('[', '-').rstrip(']')}"[:100]
    async with FencelogClient(real) as client:
        await client.create_topic(name)
    return name


@pytest_asyncio.fixture(loop_scope="module", params=["owner", "other"])
async def http(
    real: str,
    topic: str,
    request: pytest.FixtureRequest,
    fake_broker: FakeBroker,
    fake_bookies: FakeBookies,
    serve: Serve,
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the topic's owner, or of a broker that passes its requests on."""
    base = f"/v1/topics/{topic}"
    if request.param == "owner":
        async with http_client(real + base) as client:
            yield client
        return
    name = TopicName.parse(topic)
    await fake_broker.topics.create(name, TopicConfig())
    fake_broker.elsewhere[name, 0] = real
    async with (
        serve(app_over(fake_broker, fake_bookies)) as url,
        http_client(url + base) as client,
    ):
        yield client


def by(sequence: int, epoch: int = 0, name: str = "p") -> dict[str, str]:
    return {"Producer-Id": name, "Producer-Epoch": str(epoch), "Producer-Seq": str(sequence)}


async def test_an_append_is_written_once(http: httpx.AsyncClient) -> None:
    first = await http.post("/messages", content=b"a", headers=by(0))
    assert (first.status_code, first.json()["offset"]) == (201, 0)
    assert "duplicate" not in first.headers
    again = await http.post("/messages", content=b"a", headers=by(0))
    assert (again.status_code, again.headers["duplicate"]) == (200, "true")
    assert again.json() == first.json()
    for duplicate in (False, True):
        text = {**by(1), "Content-Type": "text/plain"}
        batch = await http.post("/messages:batch", content=b"b\nc\n", headers=text)
        assert batch.status_code == (200 if duplicate else 201)
        assert ("duplicate" in batch.headers) is duplicate
        appended = [{"partition": 0, "offset": 1, "count": 2}]
        assert batch.json() == {"count": 2, "appended": appended}
    gap = await http.post("/messages", content=b"d", headers=by(5))
    assert (gap.status_code, gap.json()["expected_sequence"]) == (409, 3)
    assert (await http.post("/messages", content=b"d", headers=by(0, 2))).status_code == 201
    fenced = await http.post("/messages", content=b"d", headers=by(3))
    assert (fenced.status_code, fenced.json()["epoch"]) == (403, 2)
    assert (await http.get("/partitions/0/producers/p")).json() == {
        "producer_id": "p",
        "epoch": 2,
        "next_sequence": 1,
    }
    assert (await http.get("/partitions/0/producers/q")).json()["next_sequence"] == 0


async def test_a_repetition_is_not_counted_as_appended(real: str, topic: str) -> None:
    async with http_client(real) as client:

        async def counted() -> int:
            lines = (await client.get("/metrics")).text.splitlines()
            name = "fencelog_http_appended_messages_total "
            (figure,) = (line.removeprefix(name) for line in lines if line.startswith(name))
            return int(float(figure))

        before = await counted()
        path = f"/v1/topics/{topic}/messages"
        for status in (201, 200):
            first = await client.post(path, content=b"a", headers=by(0))
            text = {**by(1), "Content-Type": "text/plain"}
            others = await client.post(f"{path}:batch", content=b"b\nc\n", headers=text)
            assert (first.status_code, others.status_code) == (status, status)
        assert await counted() == before + 3


async def test_a_place_that_is_forgotten_is_null(http: httpx.AsyncClient) -> None:
    for sequence in range(RECENT_APPENDS + 1):
        await http.post("/messages", content=b"a", headers=by(sequence))
    again = await http.post("/messages", content=b"a", headers=by(0))
    assert again.json() == {"partition": 0, "offset": None, "publish_time": None}
    text = {**by(0), "Content-Type": "text/plain"}
    batch = await http.post("/messages:batch", content=b"b\n", headers=text)
    assert batch.json()["appended"] == [{"partition": 0, "offset": None, "count": 1}]


async def test_a_key_an_offset_and_a_token(http: httpx.AsyncClient) -> None:
    key = {"Idempotency-Key": "order 7"}
    for status in (201, 200):
        answer = await http.post("/messages", content=b"a", headers=key)
        assert (answer.status_code, answer.json()["offset"]) == (status, 0)
    refused = await http.post("/messages", content=b"a", headers={"If-Offset": "0"})
    assert (refused.status_code, refused.json()["next_offset"]) == (412, 1)
    assert (await http.post("/messages", headers={"If-Offset": "1"})).status_code == 201
    fence = await http.post("/partitions/0:fence", json={"token": "t1"})
    assert (fence.status_code, fence.content) == (204, b"")
    assert (await http.post("/messages", content=b"a")).status_code == 412
    token = {"Fencing-Token": "t1"}
    assert (await http.post("/messages", content=b"a", headers=token)).status_code == 201
    for expected in ("t0", None):  # None: that there is no token
        change = {"token": "t2", "expected": expected}
        other = await http.post("/partitions/0:fence", json=change)
        assert (other.status_code, other.json()["code"]) == (412, "precondition_failed")
    removed = await http.post("/partitions/0:fence", json={"token": None, "expected": "t1"})
    assert removed.status_code == 204
    assert (await http.post("/messages", content=b"a")).status_code == 201


async def test_an_exclusive_producer(http: httpx.AsyncClient) -> None:
    claimed = await http.post("/partitions/0/producers/p:claim")
    assert (claimed.status_code, claimed.json()) == (200, {"epoch": 1})
    assert (await http.get("/partitions/0/producers")).json() == {
        "fencing_token": None,
        "exclusive": {"producer_id": "p", "epoch": 1},
        "count": 0,
    }
    busy = await http.post("/messages", content=b"a")
    assert (busy.status_code, busy.json()["code"]) == (409, "producer_busy")
    assert (await http.post("/messages", headers=by(0, 1))).status_code == 201
    assert (await http.post("/messages", headers=by(1, 0))).status_code == 403
    for mode in ("exclusive", "wait"):
        body = {"mode": mode, "wait_ms": 5}
        answer = await http.post("/partitions/0/producers/q:claim", json=body)
        assert (answer.status_code, answer.json()["producer_id"]) == (409, "p")
    taken = await http.post("/partitions/0/producers/q:claim", json={"mode": "fencing"})
    assert taken.json() == {"epoch": 2}
    assert (await http.delete("/partitions/0/producers/p?epoch=1")).status_code == 403
    assert (await http.delete("/partitions/0/producers/q?epoch=2")).status_code == 204
    assert (await http.post("/messages", content=b"a")).status_code == 201
    assert (await http.post("/messages", headers=by(1, 1))).status_code == 403


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"Producer-Id": "p"}, "needs Producer-Seq"),
        ({"Producer-Seq": "0"}, "need Producer-Id"),
        ({"Producer-Epoch": "0"}, "need Producer-Id"),
        (by(0, name="a b"), "not valid"),
        ({**by(0), "Producer-Seq": "-1"}, "Producer-Seq must be a whole number"),
        ({**by(0), "Producer-Epoch": str(2**63)}, "Producer-Epoch must be"),
        ({**by(0), "Idempotency-Key": "k"}, "cannot both"),
        ({"Idempotency-Key": ""}, "1 to 256 bytes"),
        ({"Idempotency-Key": "k" * 257}, "1 to 256 bytes"),
        ({"Fencing-Token": "k" * 257}, "at most 256 bytes"),
        ({"If-Offset": "latest"}, "If-Offset must be"),
    ],
)
async def test_conditions_that_say_nothing_certain_are_refused(
    real: str, headers: dict[str, str], why: str
) -> None:
    async with http_client(real) as http:
        await http.put("/v1/topics/ns/refusing")
        answer = await http.post("/v1/topics/ns/refusing/messages", headers=headers)
        assert answer.status_code == 400
        assert why in answer.json()["detail"]
        for again in (headers, dict.fromkeys(headers, "7")):
            twice = [*headers.items(), *again.items(), ("Content-Type", "text/plain")]
            for path in ("messages", "messages:batch"):
                answer = await http.post(f"/v1/topics/ns/refusing/{path}", headers=twice)
                assert "twice" in answer.json()["detail"]


async def test_a_repetition_has_to_find_its_partition(real: str) -> None:
    async with http_client(f"{real}/v1/topics/ns/") as http:
        await http.put("many", json={"partitions": 2})
        key, text = {"Idempotency-Key": "k"}, {"Content-Type": "text/plain"}
        for headers in (by(0), {"If-Offset": "0"}, {"Fencing-Token": "t"}):
            for path in ("messages", "messages:batch"):
                answer = await http.post(f"many/{path}", content=b"a", headers=headers | text)
                assert "has several partitions" in answer.json()["detail"]
        keyed = {**by(0), "Fencelog-Key": "a"}
        assert (await http.post("many/messages", headers=keyed)).status_code == 400
        for status in (201, 200):
            for query, headers in (("?partition=1", by(0)), ("?key=a", key)):
                for path, place in (("messages", 0), ("messages:batch", 1)):
                    if place:
                        headers = headers | text | ({} if query == "?key=a" else by(1))
                        headers = headers | ({"Idempotency-Key": "l"} if query == "?key=a" else {})
                    answer = await http.post(f"many/{path}{query}", content=b"a", headers=headers)
                    assert answer.status_code == status


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (":fence", {}),
        (":fence", {"token": ""}),
        (":fence", {"token": " t"}),
        (":fence", {"token": "a\nb"}),
        (":fence", {"token": "t" * 257}),
        (":fence", {"token": "t", "more": 1}),
        ("/producers/p:claim", {"mode": "shared"}),
        ("/producers/p:claim", {"wait_ms": 60_001}),
        ("/producers/p:claim", {"wait_ms": -1}),
        ("/producers/-:claim", {}),
    ],
)
async def test_changes_of_access_that_are_none(real: str, path: str, body: dict[str, Any]) -> None:
    async with http_client(real) as http:
        await http.put("/v1/topics/ns/refusing")
        answer = await http.post(f"/v1/topics/ns/refusing/partitions/0{path}", json=body)
        assert (answer.status_code, answer.json()["side_effects"]) == (400, "none")
        answer = await http.delete("/v1/topics/ns/refusing/partitions/0/producers/p")
        assert answer.json()["parameter"] == "epoch"


# -- from Python -----------------------------------------------------------------------------------


async def test_the_client_carries_conditions(real: str, topic: str) -> None:
    async with FencelogClient(real) as client:
        for duplicate in (False, True):
            done = await client.append(topic, b"a", producer=Producer("p", 0, 0))
            assert done == Appended(0, 0, 1, duplicate)
            done = await client.append(topic, b"b", idempotency_key="k", if_offset=1)
            assert done == Appended(0, 1, 1, duplicate)
        access = PartitionAccess(client, topic)
        await access.fence("t", expected=None)
        with pytest.raises(FencelogError, match="fencing token") as caught:
            await client.append(topic, b"c")
        assert caught.value.code is ErrorCode.PRECONDITION_FAILED
        await client.append(topic, b"c", fencing_token="t")
        await access.fence(None)
        epoch = await access.claim("p", mode="wait", wait_ms=10)
        assert (await access.producers())["exclusive"] == {"producer_id": "p", "epoch": epoch}
        await client.append(topic, b"d", producer=Producer("p", epoch))
        assert (await access.producer("p"))["next_sequence"] == 1
        await access.release("p", epoch)


class Losing(FencelogClient):
    """Loses answers: each request of a batch is sent, and its outcome hidden so many times."""

    losses = 0

    async def append_batch(self, topic: str, batch: bytes, **options: Any) -> Appended:
        done = await super().append_batch(topic, batch, **options)
        if self.losses:
            self.losses -= 1
            raise FencelogError(ErrorCode.APPEND_UNKNOWN, "the answer was lost")
        return done


async def values_of(client: FencelogClient, topic: str) -> list[bytes]:
    found: list[bytes] = []
    async for frame in client.batches(topic, 0):
        found += open_batch(frame.batch)[1].values()
    return found


async def test_a_producer_sends_again_what_may_be_there(real: str, topic: str) -> None:
    client = Losing(real)
    async with client:
        producer = ExactlyOnceProducer(client, topic, "p")
        for number in range(3):
            client.losses = number
            await producer.append([b"%d" % number, b"x"])
        assert await values_of(client, topic) == [b"0", b"x", b"1", b"x", b"2", b"x"]
        other = ExactlyOnceProducer(client, topic, "p", timeout_s=0)
        assert await other.resume() == 6
        client.losses = 1
        with pytest.raises(FencelogError) as caught:
            await other.append([b"3"])
        assert (caught.value.code, other.sequence) == (ErrorCode.APPEND_UNKNOWN, 6)
        await other.append([b"3"])
        assert (await values_of(client, topic))[6:] == [b"3"]
        newer = ExactlyOnceProducer(client, topic, "p", epoch=4)
        assert await newer.resume() == 0
        await newer.append_batch(encode_values([b"4"]), 1)
        with pytest.raises(FencelogError, match="has epoch 4"):
            await other.resume()


async def test_a_refusal_after_a_lost_answer_is_no_no(real: str, topic: str) -> None:
    client = Losing(real)
    async with client:
        producer = ExactlyOnceProducer(client, topic, "p")
        client.losses = 1000
        sending = asyncio.create_task(producer.append([b"a"]))
        await until(lambda: client.losses < 1000)
        await PartitionAccess(client, topic).fence("t")
        with pytest.raises(FencelogError, match="may have been written") as caught:
            await sending
        assert caught.value.code is ErrorCode.APPEND_UNKNOWN


async def test_a_stream_is_written_once_over_many_runs(real: str, topic: str) -> None:
    lines = [b"%d" % n for n in range(10)]
    async with FencelogClient(real) as client:
        for cut in (3, 7, 10):
            stream = ExactlyOnceStream(client, topic, "p", partition=0, key="k")
            await stream.append(lines[: cut // 2])
            await stream.append(lines[cut // 2 : cut])
        assert (stream.acknowledged, stream.skipped, stream.end) == (3, 7, 10)
        late = ExactlyOnceStream(client, topic, "p", partition=0)
        await late.append(lines)
        await ExactlyOnceStream(client, topic, "p", partition=0).append([*lines, b"10", b"11"])
        await late.append([b"10", b"11", b"12"])  # what another run wrote meanwhile is skipped
        assert (late.acknowledged, late.skipped) == (1, 12)
        assert await values_of(client, topic) == [*lines, b"10", b"11", b"12"]
        stale = ExactlyOnceStream(client, topic, "p", partition=0)
        stale._producer.epoch = 1
        await stale.append([b"other"])
        with pytest.raises(FencelogError) as caught:
            await late.append([b"13"])
        assert caught.value.code is ErrorCode.PRODUCER_FENCED


class Overtaken(FencelogClient):
    """An earlier run's append comes in just before the first of this one, and is on its way yet."""

    late: list[bytes] | None = None

    async def append_batch(self, topic: str, batch: bytes, **options: Any) -> Appended:
        if self.late is None:
            return await super().append_batch(topic, batch, **options)
        late, self.late = encode_values(self.late), None
        await super().append_batch(topic, late, **options)
        raise FencelogError(ErrorCode.SEQUENCE_MISMATCH, "in the log: 0", expected_sequence=0)


async def test_a_stream_goes_on_behind_what_was_on_its_way(real: str, topic: str) -> None:
    lines = [b"a", b"b", b"c"]
    client = Overtaken(real)
    client.late = lines[:2]
    async with client:
        stream = ExactlyOnceStream(client, topic, "p", partition=0)
        await stream.append(lines)
        assert (stream.acknowledged, stream.skipped) == (1, 2)
        assert await values_of(client, topic) == lines
