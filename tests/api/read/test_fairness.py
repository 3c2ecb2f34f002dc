"""A greedy reader, and one that takes nothing, beside producers and other readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import process_time
from typing import Any

import pytest

from fencelog.api.http.asgi import ClientGone, Exchange
from fencelog.api.read import answers as read_answers
from fencelog.api.read.answers import PIECE_BYTES, Answers, respond
from fencelog.api.server.app import Application
from fencelog.broker.append.rates import DispatchLimit, Rate
from fencelog.broker.broker import Broker
from fencelog.broker.config import BrokerConfig
from fencelog.broker.names import TopicName
from fencelog.broker.read.stored import ReadLimits, ReadResult, StoredBatch
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.record_batch import check_batch, encode_values
from tests.support.fake_broker import FakeBookies, app_over
from tests.support.scripted_ledgers import ScriptedLedgers

T = TopicName("ns", "t")
MESSAGES = 30_000


@pytest.fixture
async def app(fake_bookies: FakeBookies) -> AsyncIterator[Application]:
    """The real application over a real broker and ledgers in memory, with one large batch."""
    store = MemoryMetadataStore(MemoryCluster())
    await store.start()
    broker = Broker(
        store, ScriptedLedgers(), host=SystemHost(), config=BrokerConfig("a", "http://a")
    )
    await broker.start()
    await broker.topics.create(T, TopicConfig())
    log = await broker.partition(T, 0)
    batch = encode_values([b"message %d" % number for number in range(MESSAGES)])
    await log.append_batch(batch, check_batch(batch))
    yield app_over(broker, fake_bookies)
    await broker.close()
    await store.close()


async def call(app: Application, method: str, path: str, query: bytes = b"") -> int:
    """The status of a request; its answer is taken as fast as it comes."""
    status = 0

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"hello", "more_body": False}

    async def send(event: Any) -> None:
        nonlocal status
        status = event.get("status", status)

    scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": []}
    await app(scope, receive, send)
    return status


async def read(app: Application) -> None:
    query = b"limit=%d&max_bytes=4194304" % MESSAGES
    assert await call(app, "GET", "/v1/topics/ns/t/partitions/0/messages", query) == 200


async def append_times(app: Application, count: int) -> list[float]:
    times = []
    for _ in range(count):
        begin = process_time()
        assert await call(app, "POST", "/v1/topics/ns/t/messages") == 201
        times.append(process_time() - begin)
    return sorted(times)


async def test_greedy_readers_do_not_hold_producers_up(app: Application) -> None:
    """Six readers, each of which asks for a large answer as soon as it has one. An append waits for
    a step of their work here and there, and never for a whole answer."""
    begin = process_time()
    await read(app)
    one_answer_s = process_time() - begin
    alone = await append_times(app, 30)

    async def be_greedy() -> None:
        while True:
            await read(app)

    greedy = [asyncio.create_task(be_greedy()) for _ in range(6)]
    try:
        await asyncio.sleep(0)
        beside = await append_times(app, 30)
    finally:
        for task in greedy:
            task.cancel()
        await asyncio.gather(*greedy, return_exceptions=True)
    median_s = beside[len(beside) // 2]
    assert median_s < one_answer_s / 3, (alone[len(alone) // 2], median_s, one_answer_s)


# -- clients that do not take their answers ------------------------------------------------------


class Client:
    """One end of an exchange that stops taking what is sent after so many pieces."""

    def __init__(self, takes: int) -> None:
        self.takes = takes
        self.taken: list[int] = []
        self.goes_on = asyncio.Event()
        scope = {"method": "GET", "path": "/", "headers": [], "query_string": b""}
        self.exchange = Exchange(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def _send(self, event: Any) -> None:
        if event["type"] == "http.response.body":
            if len(self.taken) == self.takes:
                await self.goes_on.wait()
            self.taken.append(len(event["body"]))


class Source:
    """A log of batches of 1000 bytes."""

    earliest_offset, tail_offset = 0, 1000
    is_terminated = False
    dispatch_limit: DispatchLimit | None = None

    async def fetch(self, offset: int, limits: ReadLimits) -> ReadResult:
        count = limits.max_messages
        batches = [StoredBatch(offset + n, 1, 0, memoryview(bytes(1000))) for n in range(count)]
        return ReadResult(batches, offset + count, self.tail_offset)

    async def offset_for_time(self, time_us: int) -> int:
        return 0


def held(answers: Answers, count: int, who: str = "a") -> Any:
    return answers.read(Source(), 0, ReadLimits(count, max_bytes=1 << 20), who=who)


async def test_what_a_client_does_not_take_is_not_made() -> None:
    made = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal made
        for _ in range(100):
            made += PIECE_BYTES
            yield bytes(PIECE_BYTES)

    client = Client(takes=1)
    sending = asyncio.create_task(respond(client.exchange, b"x/y", pieces(), []))
    await asyncio.sleep(0.001)
    assert made <= 2 * PIECE_BYTES
    client.goes_on.set()
    assert await sending == sum(client.taken) == 100 * PIECE_BYTES


async def test_a_client_that_takes_nothing_loses_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_answers, "ANSWER_STALL_MS", 10)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield bytes(PIECE_BYTES)

    answers = Answers(limit=10_000)
    with pytest.raises(ClientGone):
        async with held(answers, 10):
            await respond(Client(takes=1).exchange, b"x/y", pieces(), [])
    async with held(answers, 10):  # and its share of the memory
        pass


async def test_what_answers_hold_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = Answers(limit=10_000)
    async with held(answers, 9) as result:
        assert len(result.entries) == 9
        monkeypatch.setattr(read_answers, "ANSWER_TURN_MS", 10)
        with pytest.raises(FencelogError) as raised:
            async with held(answers, 5, "b"):
                pass
        assert raised.value.code is ErrorCode.OVERLOADED
        monkeypatch.setattr(read_answers, "ANSWER_TURN_MS", 60_000)
        waiting = asyncio.create_task(hold_and_count(answers, 5))
        await asyncio.sleep(0.001)
        assert not waiting.done()
    assert await waiting == 5


async def hold_and_count(answers: Answers, count: int, source: Source | None = None) -> int:
    limits = ReadLimits(count, max_bytes=1 << 20, wait_ms=1000)
    async with answers.read(source or Source(), 0, limits, who="b") as result:
        return len(result.entries)


async def test_a_read_that_fails_after_its_wait_gives_its_share_back() -> None:
    class Failing(Source):
        reads = 0

        async def fetch(self, offset: int, limits: ReadLimits) -> ReadResult:
            self.reads += 1
            if self.reads == 2:
                raise FencelogError(ErrorCode.OFFSET_TRIMMED, "trimmed meanwhile")
            return await super().fetch(offset, limits)

    answers = Answers(limit=10_000)

    async def fail() -> None:
        limits = ReadLimits(max_messages=5, max_bytes=1 << 20)
        async with answers.read(Failing(), 0, limits, who="c"):
            pass

    async with held(answers, 9):
        failing = asyncio.create_task(fail())
        await asyncio.sleep(0.001)
    with pytest.raises(FencelogError):
        await failing
    async with held(answers, 10):
        pass


async def test_a_read_that_waits_for_memory_counts_once() -> None:
    """It was allowed before it waited: what others read meanwhile does not refuse it."""
    rate = Rate(10, None, clock=lambda: 0.0)
    source = Source()
    source.dispatch_limit = DispatchLimit(rate)
    messages = rate.messages
    assert messages is not None
    answers = Answers(limit=10_000)
    async with held(answers, 9):
        waiting = asyncio.create_task(hold_and_count(answers, 5, source))
        await asyncio.sleep(0)
        assert (waiting.done(), messages.tokens) == (False, 10)
        rate.take(11, 0)
    assert await waiting == 5
    assert messages.tokens == 10 - 11 - 5


async def test_answers_that_begin_at_the_same_time_take_turns_from_the_first_step_on() -> None:
    values = [b"x"] * 1000
    batch = StoredBatch(0, len(values), 0, memoryview(encode_values(values)))
    answers = Answers()
    steps = 0

    async def answer() -> None:
        nonlocal steps
        result = ReadResult([batch], len(values), len(values))
        async for _ in answers.rows(result, start=0, end=len(values)):
            steps += 1

    answering = [asyncio.create_task(answer()) for _ in range(20)]
    at_once = 0
    while not all(task.done() for task in answering):
        before = steps
        await asyncio.sleep(0)
        at_once = max(at_once, steps - before)
    assert (steps, at_once) == (40, 1)
