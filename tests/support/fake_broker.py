"""A broker in memory, for the stories that are hard to stage with a real one: an owner elsewhere, a
lost owner, overload, an append of unknown outcome. It does nothing beyond what it fakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from fencelog.api.server.app import Application, build_app
from fencelog.api.server.limits import MAX_CONNECTIONS
from fencelog.api.server.serve import HttpServer, bind
from fencelog.broker.append.conditions import AppendConditions, AppendFuture
from fencelog.broker.append.pending import AppendResult, message_size
from fencelog.broker.append.rates import DispatchLimit
from fencelog.broker.broker import Broker
from fencelog.broker.cluster.event_recorder import EventRecorder
from fencelog.broker.config import BrokerConfig
from fencelog.broker.metrics import BrokerCounts
from fencelog.broker.names import TopicName
from fencelog.broker.partition.forwards import ForwardedAppends, Forwards
from fencelog.broker.partition.stats.broker_stats import BrokerStats, PartitionStats
from fencelog.broker.policy import Policy
from fencelog.broker.read.stored import ReadLimits, ReadResult, StoredBatch
from fencelog.broker.registry.topics import TopicConfig, TopicInfo
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.request_context import Contexts
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.record_batch import BatchInfo, Message, encode_batch
from fencelog.ledgers.rpc.absent_bookie import AbsentBookie
from fencelog.ledgers.rpc.bookie_port import BookieClient, BookieInfo

PUBLISH_TIME = 1_700_000_000_000_000


class FakeLog:
    """A partition in memory. ``failure``: the error of the next appends."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.is_serving = True
        self.entries: list[StoredBatch] = []
        self.is_terminated = False
        self.dispatch_limit: DispatchLimit | None = None
        self.followed: list[Contexts] = []
        self.earliest_offset = 0
        self.tail_offset = 0
        self.failure: BaseException | None = None
        self.answers_after: asyncio.Event | None = None
        self.grown = asyncio.Event()
        self.waiting_readers = 0
        self.readers_changed = asyncio.Event()
        self.owner_checks = 0

    async def check_owner(self) -> None:
        self.owner_checks += 1

    def append_message(
        self, message: Message, conditions: AppendConditions | None = None
    ) -> asyncio.Future[AppendResult]:
        message_size(message)
        return self._append(encode_batch([message]), 1)

    def append_batch(
        self, batch: bytes, info: BatchInfo, conditions: AppendConditions | None = None
    ) -> asyncio.Future[AppendResult]:
        return self._append(batch, info.count)

    def follow(self, future: AppendFuture, contexts: Contexts) -> None:
        self.followed.append(contexts)

    def _append(self, batch: bytes, count: int) -> asyncio.Future[AppendResult]:
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        if self.failure is not None:
            future.set_exception(self.failure)
            return future
        offset = self.tail_offset
        self.entries.append(StoredBatch(offset, count, PUBLISH_TIME, memoryview(batch)))
        self.tail_offset += count
        self.grown.set()
        appended = AppendResult(self.partition, offset, count, PUBLISH_TIME)
        if self.answers_after is None:
            future.set_result(appended)
        else:
            waiting = asyncio.get_running_loop().create_task(self.answers_after.wait())
            waiting.add_done_callback(lambda _: future.set_result(appended))
        return future

    async def read(self, offset: int, limits: ReadLimits) -> ReadResult:
        return await self.fetch(offset, limits)

    async def fetch(self, offset: int, limits: ReadLimits) -> ReadResult:
        max_messages, max_bytes, wait_ms = limits
        if offset > self.tail_offset:
            raise FencelogError(
                ErrorCode.OFFSET_BEYOND_TAIL, "beyond the tail", tail_offset=self.tail_offset
            )
        if offset < self.earliest_offset:
            raise FencelogError(
                ErrorCode.OFFSET_TRIMMED, "trimmed", earliest_offset=self.earliest_offset
            )
        await self._wait(offset, wait_ms)
        found: list[StoredBatch] = []
        size = messages = 0
        for entry in self.entries:
            if entry.end_offset <= offset:
                continue
            if found and (size + len(entry.batch) > max_bytes or messages >= max_messages):
                break
            found.append(entry)
            size += len(entry.batch)
            messages += entry.count - max(0, offset - entry.base_offset)
        next_offset = found[-1].end_offset if found else offset
        return ReadResult(found, next_offset, self.tail_offset)

    async def _wait(self, offset: int, wait_ms: int) -> None:
        if wait_ms == 0:
            return
        self._count_readers(1)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while offset == self.tail_offset:
                    self.grown.clear()
                    await self.grown.wait()
        except TimeoutError:
            pass
        finally:
            self._count_readers(-1)

    def _count_readers(self, change: int) -> None:
        self.waiting_readers += change
        self.readers_changed.set()

    async def readers_are(self, count: int) -> None:
        """Return when ``count`` readers wait at the tail."""
        while self.waiting_readers != count:
            self.readers_changed.clear()
            await self.readers_changed.wait()

    async def segments(
        self, from_offset: int = 0, *, confirmed: bool = False, refresh: int | None = None
    ) -> dict[str, Any]:
        asked = {"from_offset": from_offset, "confirmed": confirmed, "refresh": refresh}
        return {"partition": self.partition, "segments": []} | asked


class FakeTopics:
    def __init__(self) -> None:
        self.known: dict[TopicName, TopicInfo] = {}
        self.caught_up = 0

    async def create(
        self, name: TopicName, config: TopicConfig, *, bookies: int | None = None
    ) -> tuple[TopicInfo, bool]:
        if name in self.known:
            if self.known[name].config != config:
                raise FencelogError(ErrorCode.ALREADY_EXISTS, f"{name} has other settings")
            return self.known[name], False
        policy = Policy().inherited_by(config.overrides)
        self.known[name] = TopicInfo(name, "t1", config, PUBLISH_TIME, policy)
        return self.known[name], True

    async def get(self, name: TopicName) -> TopicInfo:
        if name not in self.known:
            raise FencelogError(ErrorCode.TOPIC_NOT_FOUND, f"there is no topic {name}")
        return self.known[name]

    @asynccontextmanager
    async def latest(self) -> AsyncIterator[None]:
        self.caught_up += 1
        yield

    async def list(
        self, namespace: str | None = None, prefix: str = "", *, start_after: str = "", limit: int
    ) -> list[TopicInfo]:
        found = [
            info
            for name, info in sorted(self.known.items(), key=lambda item: str(item[0]))
            if namespace in (None, name.namespace) and name.topic.startswith(prefix)
        ]
        return [info for info in found if str(info.name) > start_after][:limit]

    async def delete(self, name: TopicName) -> None:
        await self.get(name)
        del self.known[name]


class FakeHistory:
    """A history without samples."""

    def start(self) -> None: ...


@dataclass
class FakeBroker:
    """``elsewhere`` maps (topic, partition) to the URL of the broker that owns it."""

    topics: FakeTopics = field(default_factory=FakeTopics)
    logs: dict[tuple[TopicName, int], FakeLog] = field(default_factory=dict)
    elsewhere: dict[tuple[TopicName, int], str] = field(default_factory=dict)
    reported: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    forwards: Forwards = field(default_factory=lambda: Forwards(lambda url: False))
    failure: BaseException | None = None
    url: str = ""
    """The URL at which it is served, if a test has noted that."""
    config: BrokerConfig = field(default_factory=lambda: BrokerConfig("a", "http://127.0.0.1:1"))
    host: SystemHost = field(default_factory=SystemHost)
    metrics: BrokerCounts = field(default_factory=BrokerCounts)
    pending_bytes: int = 0
    events: EventRecorder = field(
        default_factory=lambda: EventRecorder(
            BrokerConfig("a", "http://a"), BrokerCounts(), SystemHost()
        )
    )
    lag_history: FakeHistory = field(default_factory=FakeHistory)
    rate_history: FakeHistory = field(default_factory=FakeHistory)
    sweep: None = None
    """The sweep, of which the doctor takes hold; nobody is examined here."""

    async def measure(self) -> BrokerStats:
        return BrokerStats(0, (), ())

    async def measure_partitions(self) -> list[PartitionStats]:
        return []

    async def topic(self, topic: TopicName) -> TopicInfo:
        return await self.topics.get(topic)

    async def partition(self, topic: TopicName, partition: int) -> FakeLog:
        if self.failure is not None:
            raise self.failure
        info = await self.topics.get(topic)
        if partition >= info.config.partitions:
            raise FencelogError(ErrorCode.NOT_FOUND, f"{topic} has no partition {partition}")
        url = self.elsewhere.get((topic, partition))
        if url is not None:
            raise FencelogError(ErrorCode.NOT_OWNER, "owned by another broker", url=url)
        return self.logs.setdefault((topic, partition), FakeLog(partition))

    def known(self, topic: TopicName) -> TopicInfo | None:
        return self.topics.known.get(topic)

    def open_log(self, topic: TopicName, partition: int) -> FakeLog | None:
        if self.failure is not None or (topic, partition) in self.elsewhere:
            return None
        return self.logs.get((topic, partition))

    def forwarded_appends(self, topic: TopicName, partition: int) -> ForwardedAppends | None:
        url = self.elsewhere.get((topic, partition))
        return None if url is None else self.forwards.appends(url)

    async def owners(self, topic: TopicName) -> list[dict[str, Any]]:
        await self.topics.get(topic)
        return []

    async def check_ready(self) -> None:
        if self.failure is not None:
            raise self.failure

    def brokers(self) -> list[dict[str, Any]]:
        return [{"broker_id": "a", "url": "http://127.0.0.1:1", "started_us": PUBLISH_TIME}]

    def forget_owner(self, topic: TopicName, partition: int, url: str) -> None:
        self.forgotten.append(url)

    async def while_owner(
        self, topic: TopicName, partition: int, url: str, work: Callable[[], Awaitable[Any]]
    ) -> Any:
        return await self.forwards.run(url, work, owner_url=url)

    async def report_dead_owner(self, topic: TopicName, partition: int, url: str) -> None:
        self.reported.append(url)
        self.elsewhere.pop((topic, partition), None)


class FakeBookies:
    def available(self) -> list[str]:
        return ["b1", "b2", "b3"]

    def read_only(self) -> list[str]:
        return []

    def describe(self, bookie_id: str) -> BookieInfo:
        return BookieInfo(bookie_id)

    def client(self, bookie_id: str) -> BookieClient:
        return AbsentBookie(bookie_id)

    def addresses(self) -> dict[str, str]:
        return {"b1": "127.0.0.1:1"}


def app_over(broker: Broker | FakeBroker, bookies: FakeBookies) -> Application:
    return build_app(
        broker,  # type: ignore[arg-type]  # a fake with the methods used
        store=MemoryMetadataStore(),
        bookies=bookies,  # type: ignore[arg-type]  # a fake with the methods used
    )


@asynccontextmanager
async def serving(app: Application, max_connections: int = MAX_CONNECTIONS) -> AsyncIterator[str]:
    """Serve an application with a real uvicorn on a free port; yields its URL. FastAPI is imported
    before, so that no client's time limit includes that; its half of the application is built for
    the first request that needs it, since that takes longer than most tests do."""
    import_module("fencelog.api.server.framework")
    server = await HttpServer.start(app, bind("127.0.0.1", 0), max_connections)
    if app.host is not None:
        app.host.url = server.url
    try:
        yield server.url
    finally:
        await server.close()


Serve = Callable[[Application], AbstractAsyncContextManager[str]]
"""A function that serves an application, at the URL that it yields."""
