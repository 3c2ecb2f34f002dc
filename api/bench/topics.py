"""``fencelog bench topics``: the cost of many topics for one broker: memory, takeover and drain.

The cluster has real processes, ZooKeeper included. One broker gets a message in each topic and is
killed; a second one, which appends to topics of its own all the time, takes all of them over,
requested by clients that want to read, and hands them to a third one in the end.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import anyio

from fencelog.api.bench.bookie import resident_mb
from fencelog.api.bench.harness.cpu import process_cpu_s
from fencelog.api.bench.harness.load import LoadConnection, connected, encode_request, refused
from fencelog.api.client.tasks import task_group
from fencelog.api.local_cluster.child_process import ChildProcess
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig, running_cluster
from fencelog.ledgers.errors import ErrorCode, FencelogError

CLIENTS = 128
"""The requests in flight, more than a broker opens partitions at a time."""

BUSY_TOPICS = 4
"""The topics of the second broker, to each of which one connection appends."""

BUSY_PAUSE_S = 0.05
"""The pause of each of these connections after an answer: a broker with much time left."""

SEEN_RETRY_S = 0.05
"""The pause before a broker is asked again whether it knows another one."""

BUSY_S = 3.0
"""The time for which these appends are measured before the takeover."""


@dataclass(frozen=True, slots=True)
class TopicMetrics:
    """The metrics of many topics of one partition with one message.

    ``first_takeover_s``: from the death of the owner to the first answer of the next one.
    ``…_cpu_ms``: CPU time of a takeover in each kind of process, without that of the appends to
    other topics. ``busy_p99_ms_…``: of those appends, at the broker that takes over.
    ``bytes_per_idle_topic``: resident memory that a topic adds there. ``drained``: the topics that
    the third broker had taken when the drain ended; ``drain_cpu_ms``: the CPU time of the transfer
    of each, in all processes together.
    """

    topics: int
    created_per_s: float
    first_appends_per_s: float
    takeovers_per_s: float
    takeover_s: float
    first_takeover_s: float
    broker_cpu_ms: float
    bookies_cpu_ms: float
    zookeeper_cpu_ms: float
    busy_p99_ms_before: float
    busy_p99_ms_during: float
    bytes_per_idle_topic: float
    rss_mb: float
    drain_s: float
    drained: int
    drain_cpu_ms: float


async def measure_topics(directory: Path, seconds: float, *, topics: int) -> TopicMetrics:
    """Create topics, fill them, have them taken over, and drain them; ``seconds`` has no effect,
    all topics are measured."""
    names = [f"/v1/topics/bench/t{number}" for number in range(topics)]
    async with running_cluster(ClusterConfig(directory, brokers=1, http_port=0)) as cluster:
        (first,) = cluster.brokers
        created = await _all(cluster, first, names, "PUT", "")
        appended = await _all(cluster, first, names, "POST", "/messages", body=b"x" * 100)
        second = await cluster.start_broker(2)
        async with _busy_topics(cluster, second) as busy:
            cpu = _Cpu(cluster, second)
            await anyio.sleep(BUSY_S)
            before_s, appends = busy.take()
            append_cpu_s = [used_s / max(appends, 1) for used_s in cpu.used_s()]
            empty = resident_mb(second.pid)[0]
            await first.kill()
            cluster.brokers.remove(first)
            cpu = _Cpu(cluster, second)
            taken = await _all(cluster, second, names, "HEAD", "/partitions/0/messages")
            used_s = cpu.used_s()
            during_s, appends = busy.take()
        full = resident_mb(second.pid)[0]
        drain_s, drained, drain_cpu_s = await _drain(cluster, second)
    broker_ms, bookies_ms, zookeeper_ms = (
        (of_all_s - appends * of_append_s) * 1000 / topics
        for of_all_s, of_append_s in zip(used_s, append_cpu_s, strict=True)
    )
    return TopicMetrics(
        topics=topics,
        created_per_s=topics / created.all_s,
        first_appends_per_s=topics / appended.all_s,
        takeovers_per_s=topics / taken.all_s,
        takeover_s=taken.all_s,
        first_takeover_s=taken.first_s,
        broker_cpu_ms=broker_ms,
        bookies_cpu_ms=bookies_ms,
        zookeeper_cpu_ms=zookeeper_ms,
        busy_p99_ms_before=before_s * 1000,
        busy_p99_ms_during=during_s * 1000,
        bytes_per_idle_topic=(full - empty) * 1e6 / topics,
        rss_mb=full,
        drain_s=drain_s,
        drained=drained,
        drain_cpu_ms=drain_cpu_s * 1000 / max(drained, 1),
    )


@dataclass(slots=True)
class _Times:
    """The seconds until the first answer, and until the last."""

    first_s: float = 0.0
    all_s: float = 0.0


async def _all(
    cluster: Cluster,
    broker: ChildProcess,
    names: list[str],
    method: str,
    suffix: str,
    *,
    body: bytes = b"",
) -> _Times:
    """Send a request for every topic to a broker, CLIENTS at a time. Raises FencelogError for a
    request that failed."""
    url, waiting, times = cluster.url_of(broker), iter(names), _Times()
    begin = perf_counter()

    async def one_after_the_other(connection: LoadConnection) -> None:
        for name in waiting:
            answer = await connection.request(encode_request(method, url, name + suffix, body=body))
            if not 200 <= answer.status < 300:
                raise refused(answer)
            times.first_s = times.first_s or perf_counter() - begin

    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connected(url)) for _ in range(CLIENTS)]
        async with task_group() as group:
            for connection in opened:
                group.start_soon(one_after_the_other, connection)
    times.all_s = perf_counter() - begin
    return times


@dataclass(slots=True)
class _BusyTopics:
    """The times of appends to topics that have nothing to do with the takeover."""

    latencies_s: list[float] = field(default_factory=list)
    has_ended: bool = False

    def take(self) -> tuple[float, int]:
        """Return the 99th percentile of the appends since the last call, and their number."""
        latencies_s, self.latencies_s = sorted(self.latencies_s), []
        count = len(latencies_s)
        return (latencies_s[count * 99 // 100] if latencies_s else 0.0), count


@asynccontextmanager
async def _busy_topics(cluster: Cluster, broker: ChildProcess) -> AsyncIterator[_BusyTopics]:
    """Append to a few topics of one broker, slowly, until the end of the context."""
    url, busy = cluster.url_of(broker), _BusyTopics()

    async def append(connection: LoadConnection, name: str) -> None:
        request = encode_request("POST", url, f"{name}/messages", body=b"x" * 100)
        while not busy.has_ended:
            begin = perf_counter()
            answer = await connection.request(request)
            if answer.status != 201:
                raise refused(answer)
            busy.latencies_s.append(perf_counter() - begin)
            await anyio.sleep(BUSY_PAUSE_S)

    async with AsyncExitStack() as stack, task_group() as group:
        for number in range(BUSY_TOPICS):
            connection = await stack.enter_async_context(connected(url))
            name = f"/v1/topics/bench/busy{number}"
            await connection.request(encode_request("PUT", url, name))
            group.start_soon(append, connection, name)
        try:
            yield busy
        finally:
            busy.has_ended = True


class _Cpu:
    """The CPU time of brokers, the bookies, and ZooKeeper, from the beginning on."""

    def __init__(self, cluster: Cluster, *brokers: ChildProcess) -> None:
        self._kinds = (brokers, cluster.bookies, [cluster.zookeeper])
        self._begin_s = self._now_s()

    def used_s(self) -> list[float]:
        """Return the CPU seconds that each of the three has used."""
        return [now - then for now, then in zip(self._now_s(), self._begin_s, strict=True)]

    def _now_s(self) -> list[float]:
        return [sum(process_cpu_s(process.pid) for process in kind) for kind in self._kinds]


async def _drain(cluster: Cluster, broker: ChildProcess) -> tuple[float, int, float]:
    """Have a broker hand everything to another one; return the seconds that it took, how many
    partitions the other one has, and the CPU seconds of all processes."""
    third = await cluster.start_broker(3)
    url = cluster.url_of(broker)
    async with connected(url) as connection:
        await _until_seen(connection, url, third.name)
        begin, cpu = perf_counter(), _Cpu(cluster, broker, third)
        answer = await connection.request(
            encode_request("POST", url, f"/v1/brokers/{broker.name}:drain")
        )
        if answer.status != 200:
            raise refused(answer)
        if left := json.loads(answer.body)["still_open"]:
            raise FencelogError(
                ErrorCode.REQUEST_TIMEOUT, f"{left} partitions were not handed over in time"
            )
        drain_s, cpu_s = perf_counter() - begin, sum(cpu.used_s())
    url = cluster.url_of(third)
    async with connected(url) as connection:
        request = encode_request("GET", url, f"/v1/brokers/{third.name}")
        details = json.loads((await connection.request(request)).body)
    return drain_s, int(details["partitions"]), cpu_s


async def _until_seen(connection: LoadConnection, url: str, broker_id: str) -> None:
    """Wait until the broker at ``url`` knows another one, which has just started."""
    while True:
        answer = await connection.request(encode_request("GET", url, "/v1/brokers"))
        if any(each["broker_id"] == broker_id for each in json.loads(answer.body)["brokers"]):
            return
        await anyio.sleep(SEEN_RETRY_S)
