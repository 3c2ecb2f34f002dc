"""``fencelog bench soak``: one topic under a steady load for minutes, while everything runs that
disturbs appends in a service that is in use.

The load is open (``open_loop``), by default half of what the service can do. A reader follows the
topic and accounts for every message. Ledgers are rolled and compacted, retention removes them,
caches are flushed to entry logs, and bookies are asked to collect garbage and to compact their
entry logs. Afterwards the latencies of each interval show whether any of it delays appends, and the
memory whether something grows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import anyio

from fencelog.api.bench.bookie import resident_mb
from fencelog.api.bench.harness.histogram import LatencyHistogram
from fencelog.api.bench.harness.load import closed_loop, connected, encode_request
from fencelog.api.bench.harness.open_loop import OpenLoop
from fencelog.api.bench.http import WARM_UP_S, LoadedService, call, standalone
from fencelog.api.bench.soak_reader import NUMBER_BYTES, SoakReader
from fencelog.api.client.tasks import task_group
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.limits import KIB
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient

TOPIC, MAX_TOPIC = "bench/soak", "bench/soak-max"
CONNECTIONS = 64
KEYS = 10_000
"""The keys of the messages: what compaction keeps the newest of."""

MAX_MEASURE_S = 10.0
"""The longest time for which the largest rate is measured."""

SHARE_OF_MAX = 0.5
CYCLES = 10
"""The least number of times that retention, compaction and garbage collection take place: a run of
ten minutes keeps messages for one."""

MIN_CYCLE_S = 2.0
COMPACT_BELOW = 0.91
"""The live share below which bookies compact an entry log: that of their major compaction."""


@dataclass(frozen=True, slots=True)
class SoakSizes:
    """The size of a run. ``per_s``: messages, None: half of the measured maximum."""

    interval_s: float = 10.0
    connections: int = CONNECTIONS
    per_s: float | None = None


@dataclass(frozen=True, slots=True)
class SoakInterval:
    """A part of the run, which ends at ``at_s``. Latencies of the appends answered in it, each from
    the time at which it was due; ``cpu_cores`` and ``rss_mb`` of the whole service."""

    at_s: float
    per_s: float
    p50_ms: float
    p99_ms: float
    p99_9_ms: float
    max_ms: float
    cpu_cores: float
    rss_mb: float


@dataclass(frozen=True, slots=True)
class SoakReport:
    """The metrics of the whole run, and its intervals."""

    metrics: dict[str, float]
    intervals: list[SoakInterval]

    def rows(self) -> list[dict[str, float]]:
        """Return the intervals as they are printed."""
        return [asdict(interval) for interval in self.intervals]


async def measure_soak(directory: Path, seconds: float, *, sizes: SoakSizes) -> SoakReport:
    """Load a standalone service for ``seconds``. Raises FencelogError: INTERNAL if a message that
    was acknowledged is missing or is there twice, OVERLOADED if the load is too much for the
    service, and what the service answers."""
    async with standalone(directory) as service:
        cycle_s = max(MIN_CYCLE_S, seconds / CYCLES)
        metrics = {}
        per_s = sizes.per_s
        if per_s is None:
            max_per_s = await _measure_max(service.url, min(seconds / CYCLES, MAX_MEASURE_S), sizes)
            metrics["max_per_s"] = max_per_s
            per_s = max_per_s * SHARE_OF_MAX
        await _create_topic(service.url, TOPIC, cycle_s)
        meter, reader = _Meter(service, sizes.interval_s), SoakReader(service.url, TOPIC)
        maintenance = _Maintenance(service.url, cycle_s)
        async with AsyncExitStack() as stack:
            url = service.url
            opened = [
                await stack.enter_async_context(connected(url)) for _ in range(sizes.connections)
            ]
            load = OpenLoop(opened, _requests(url, TOPIC), per_s=per_s, on_answer=meter.record)
            async with task_group() as group:
                group.start_soon(reader.follow)
                group.start_soon(maintenance.keep)
                group.start_soon(meter.keep)
                await load.run(seconds)
                group.cancel_scope.cancel()
        meter.finish()
        metrics |= {"wanted_per_s": per_s} | meter.metrics()
        await reader.check_all(load.answered)
        metrics["read_once"] = float(reader.messages)
        return SoakReport(metrics | await maintenance.metrics(), meter.intervals)


class _Meter:
    """The latencies of appends, and the CPU time and memory of the service meanwhile."""

    def __init__(self, service: LoadedService, interval_s: float) -> None:
        self._service = service
        self._interval_s = interval_s
        self._all = LatencyHistogram()
        self._current = LatencyHistogram()
        self._begin_s = self._since_s = perf_counter()
        self._begin_cpu_s = self._since_cpu_s = service.cpu_s()
        self.intervals: list[SoakInterval] = []

    def record(self, latency_s: float) -> None:
        """Record the latency of an append."""
        self._current.record(latency_s)

    async def keep(self) -> None:
        while True:
            await anyio.sleep(self._interval_s)
            self._end_interval()

    def finish(self) -> None:
        """End the last interval; a short rest is one of its own only if it is the only one."""
        if not self.intervals or perf_counter() - self._since_s >= self._interval_s / 2:
            self._end_interval()
        else:
            self._all.add(self._current)

    def _end_interval(self) -> None:
        current, self._current = self._current, LatencyHistogram()
        now_s, cpu_s = perf_counter(), self._service.cpu_s()
        elapsed_s = now_s - self._since_s
        self.intervals.append(
            SoakInterval(
                at_s=now_s - self._begin_s,
                per_s=current.count / elapsed_s,
                **current.summary(),
                cpu_cores=(cpu_s - self._since_cpu_s) / elapsed_s,
                rss_mb=sum(resident_mb(pid)[0] for pid in self._service.pids),
            )
        )
        self._all.add(current)
        self._since_s, self._since_cpu_s = now_s, cpu_s

    def metrics(self) -> dict[str, float]:
        """Return the metrics of all intervals together. ``post_cpu_us``: CPU time of the service
        for each append, with all that happens beside it."""
        elapsed_s, count = perf_counter() - self._begin_s, self._all.count
        rss_mb = [interval.rss_mb for interval in self.intervals]
        return {
            "per_s": count / elapsed_s,
            **self._all.summary(),
            "post_cpu_us": (self._service.cpu_s() - self._begin_cpu_s) / max(count, 1) * 1e6,
            "rss_mb_first": rss_mb[0],
            "rss_mb_last": rss_mb[-1],
            "rss_mb_max": max(rss_mb),
            "acknowledged": float(count),
        }


class _Maintenance:
    """The maintenance beside the appends, once in each cycle: the bookies collect garbage and
    compact their entry logs; retention and compaction of the topic go by its settings."""

    def __init__(self, url: str, cycle_s: float) -> None:
        self._url = url
        self._cycle_s = cycle_s
        self._collections = 0

    async def keep(self) -> None:
        """Collect in the middle of each cycle, so that every cycle of a run has its collection."""
        due_s = anyio.current_time() + self._cycle_s / 2
        while True:
            await anyio.sleep(max(0.0, due_s - anyio.current_time()))
            due_s += self._cycle_s
            for bookie_id, address in (await self._get("segments"))["bookies"].items():
                bookie = TcpBookieClient(bookie_id, address)
                try:
                    await bookie.admin({"do": "gc", "below": COMPACT_BELOW, "no_grace": True})
                finally:
                    await bookie.close()
            self._collections += 1

    async def metrics(self) -> dict[str, float]:
        """Return how far the maintenance has come. ``trimmed``: messages that retention has
        removed; ``compacted_to``: the offset up to which there is a compacted view."""
        segments, compaction = await self._get("segments"), await self._get("compaction")
        return {
            "trimmed": float(segments["earliest_offset"]),
            "compacted_to": float(compaction.get("end_offset", 0)),
            "garbage_collections": float(self._collections),
        }

    async def _get(self, what: str) -> dict[str, Any]:
        path = f"/v1/topics/{TOPIC}/partitions/0/{what}"
        response = await call(self._url, encode_request("GET", self._url, path), 200)
        found: dict[str, Any] = json.loads(response.body)
        return found


async def _measure_max(url: str, seconds: float, sizes: SoakSizes) -> float:
    """Return the appends a second of a closed loop, to a topic of its own; it is removed then."""
    await _create_topic(url, MAX_TOPIC, MIN_CYCLE_S)
    numbers, request_of = count(), _requests(url, MAX_TOPIC)
    sources = [lambda: request_of(next(numbers))] * sizes.connections
    await closed_loop([url], sources, seconds=WARM_UP_S)
    load = await closed_loop([url], sources, seconds=seconds)
    await call(url, encode_request("DELETE", url, f"/v1/topics/{MAX_TOPIC}"), 204)
    return load.per_s


async def _create_topic(url: str, topic: str, cycle_s: float) -> None:
    """Create a topic whose ledgers are rolled twice in each cycle, and kept for one."""
    cycle_ms = int(cycle_s * 1000)
    settings = {
        "partitions": 1,
        "retention_ms": cycle_ms,
        "roll_ms": cycle_ms // 2,
        "compaction_ms": cycle_ms,
    }
    headers = {"Content-Type": "application/json"}
    body = json.dumps(settings).encode()
    await call(
        url, encode_request("PUT", url, f"/v1/topics/{topic}", body=body, headers=headers), 201
    )


def _requests(url: str, topic: str) -> Callable[[int], bytes]:
    """Return the requests of the load: a message of 1 KiB that begins with its number, under one of
    KEYS keys."""
    head = (
        f"POST /v1/topics/{topic}/messages HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n"
        f"Content-Type: application/octet-stream\r\nContent-Length: {KIB}\r\n"
    ).encode()
    rest = SystemHost().random_bytes(KIB - NUMBER_BYTES)

    def request_of(number: int) -> bytes:
        return b"%bFencelog-Key: user-%d\r\n\r\n%b%b" % (
            head,
            number % KEYS,
            number.to_bytes(NUMBER_BYTES, "big"),
            rest,
        )

    return request_of
