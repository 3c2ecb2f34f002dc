"""The LAC of an idle writer: told once, by one timer, and by nobody who has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.writer.options import WriterOptions
from fencelog.ledgers.writer.writer import LedgerWriter
from tests.support.scripted_cluster import Cluster, MakeCluster

INTERVAL_S = 0.25


class Timers:
    """The loop's timers of one length, run out by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._call_later = loop.call_later
        self._waiting: list[tuple[asyncio.TimerHandle, Callable[[], None]]] = []
        monkeypatch.setattr(loop, "call_later", self.call_later)

    def call_later(self, delay: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
        if delay != INTERVAL_S:
            return self._call_later(delay, callback, *args)
        handle = self._call_later(3600, lambda: None)
        self._waiting.append((handle, callback))
        return handle

    @property
    def count(self) -> int:
        return sum(not handle.cancelled() for handle, _ in self._waiting)

    def run_out(self) -> None:
        """Time passes for the one that is set."""
        ((handle, callback),) = self._waiting
        self._waiting.clear()
        handle.cancel()
        callback()


@pytest.fixture
async def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    return Timers(monkeypatch)


def writer_of(cluster: Cluster, interval_ms: int = 250) -> LedgerWriter:
    return cluster.create(options=WriterOptions(explicit_lac_interval_ms=interval_ms))


def told(cluster: Cluster) -> dict[str, int]:
    return {name: bookie.lacs.get(1, -1) for name, bookie in cluster.bookies.items()}


async def test_an_idle_writer_tells_every_member_once(
    make_cluster: MakeCluster, timers: Timers
) -> None:
    cluster = make_cluster(4)
    writer = writer_of(cluster)
    assert timers.count == 0
    await cluster.write(writer, b"0", b"1")
    assert told(cluster) == {"b1": -1, "b2": -1, "b3": -1, "b4": -1}
    timers.run_out()
    assert told(cluster) == {"b1": 1, "b2": 1, "b3": 1, "b4": -1}
    assert timers.count == 0
    await cluster.write(writer, b"2")
    timers.run_out()
    assert told(cluster)["b3"] == 2


async def test_a_busy_writer_does_not(cluster: Cluster, timers: Timers) -> None:
    writer = writer_of(cluster)
    await cluster.write(writer, b"0")
    await cluster.write(writer, b"1")
    timers.run_out()
    assert told(cluster)["b1"] == 0  # with the second add
    for bookie in cluster.bookies.values():
        bookie.held = []
    writer.append(b"2")
    await cluster.until(lambda: bool(cluster.bookies["b3"].held))
    timers.run_out()
    assert told(cluster)["b1"] == 1  # with the third, which is not acknowledged
    assert timers.count == 0
    for bookie in cluster.bookies.values():
        bookie.answer_one()
    timers.run_out()
    assert told(cluster)["b1"] == 2
    await writer.abandon()


async def test_one_timer_however_many_adds(cluster: Cluster, timers: Timers) -> None:
    writer = writer_of(cluster)
    for _ in range(5):
        await cluster.write(writer, b"x")
        assert timers.count == 1


async def test_it_may_be_turned_off(cluster: Cluster, timers: Timers) -> None:
    await cluster.write(writer_of(cluster, 0), b"x")
    assert timers.count == 0


async def test_the_end_of_the_writer_is_the_end_of_it(cluster: Cluster, timers: Timers) -> None:
    writer = writer_of(cluster)
    await cluster.write(writer, b"x")
    await writer.close()
    assert timers.count == 0


async def test_an_idle_zombie_learns_that_it_was_fenced(cluster: Cluster, timers: Timers) -> None:
    writer = writer_of(cluster)
    await cluster.write(writer, b"x")
    for bookie in cluster.bookies.values():
        bookie.fenced.add(1)
    timers.run_out()
    await cluster.until(lambda: bool(cluster.failures))
    assert cluster.failures[0].code is ErrorCode.LEDGER_FENCED
    with pytest.raises(FencelogError):
        writer.append(b"y")


async def test_other_failures_are_of_no_consequence(cluster: Cluster, timers: Timers) -> None:
    writer = writer_of(cluster)
    await cluster.write(writer, b"x")
    cluster.bookies["b1"].go_down()
    cluster.bookies["b2"].incarnation = "2"
    timers.run_out()
    await asyncio.sleep(0)
    assert told(cluster) == {"b1": -1, "b2": -1, "b3": 0}
    cluster.bookies["b1"].come_back()
    assert (await writer.close()).last_entry_id == 0
    assert len(cluster.metadata().fragments) == 1


async def test_the_default_is_on(cluster: Cluster) -> None:
    """Over the loop's own timer."""
    writer = cluster.create(options=WriterOptions())
    await cluster.write(writer, b"x")
    asked: list[str] = []
    told_one = asyncio.Event()

    def note(request: str) -> None:
        asked.append(request)
        told_one.set()

    cluster.bookies["b2"].fault = note
    await told_one.wait()
    assert asked == ["write_lac"]
    assert told(cluster)["b2"] == 0
    await writer.close()
