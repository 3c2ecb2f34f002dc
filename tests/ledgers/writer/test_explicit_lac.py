"""The LAC of an idle writer: told once, with those of others, and by nobody who has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import EXPLICIT_LAC_TICK_MS
from fencelog.ledgers.writer.explicit_lac import LacTimer
from fencelog.ledgers.writer.options import WriterOptions
from fencelog.ledgers.writer.writer import LedgerWriter
from tests.support.scripted_cluster import Cluster, MakeCluster

INTERVAL_S = 0.25


class Timer:
    """The timer of the process, run out by the test."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        assert delay_s == INTERVAL_S
        self._waiting.append(callback)

    @property
    def count(self) -> int:
        return len(self._waiting)

    async def run_out(self) -> None:
        """Time passes for all that wait, and what they send arrives."""
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()
        await asyncio.sleep(0)


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> Timer:
    timer = Timer()
    monkeypatch.setattr("fencelog.ledgers.writer.outbox.LacTimer", lambda: timer)
    return timer


def writer_of(cluster: Cluster, interval_ms: int = 250) -> LedgerWriter:
    return cluster.create(options=WriterOptions(explicit_lac_interval_ms=interval_ms))


def told(cluster: Cluster) -> dict[str, int]:
    return {name: bookie.lacs.get(1, -1) for name, bookie in cluster.bookies.items()}


async def test_an_idle_writer_tells_every_member_once(
    make_cluster: MakeCluster, timer: Timer
) -> None:
    cluster = make_cluster(4)
    writer = writer_of(cluster)
    assert timer.count == 0
    await cluster.write(writer, b"0", b"1")
    assert told(cluster) == {"b1": -1, "b2": -1, "b3": -1, "b4": -1}
    await timer.run_out()
    assert told(cluster) == {"b1": 1, "b2": 1, "b3": 1, "b4": -1}
    assert timer.count == 0
    await cluster.write(writer, b"2")
    await timer.run_out()
    assert told(cluster)["b3"] == 2


async def test_a_busy_writer_does_not(cluster: Cluster, timer: Timer) -> None:
    writer = writer_of(cluster)
    await cluster.write(writer, b"0")
    await cluster.write(writer, b"1")
    await timer.run_out()
    assert told(cluster)["b1"] == 0  # with the second add
    for bookie in cluster.bookies.values():
        bookie.held = []
    writer.append(b"2")
    await cluster.until(lambda: bool(cluster.bookies["b3"].held))
    await timer.run_out()
    assert told(cluster)["b1"] == 1  # with the third, which is not acknowledged
    assert timer.count == 0
    for bookie in cluster.bookies.values():
        bookie.answer_one()
    await timer.run_out()
    assert told(cluster)["b1"] == 2
    await writer.abandon()


async def test_one_timer_however_many_adds(cluster: Cluster, timer: Timer) -> None:
    writer = writer_of(cluster)
    for _ in range(5):
        await cluster.write(writer, b"x")
        assert timer.count == 1


async def test_it_may_be_turned_off(cluster: Cluster, timer: Timer) -> None:
    await cluster.write(writer_of(cluster, 0), b"x")
    assert timer.count == 0


async def test_the_end_of_the_writer_is_the_end_of_it(cluster: Cluster, timer: Timer) -> None:
    writer = writer_of(cluster)
    await cluster.write(writer, b"x")
    await writer.close()
    await timer.run_out()
    assert told(cluster) == dict.fromkeys(cluster.bookies, -1)
    assert timer.count == 0


async def test_an_idle_zombie_learns_that_it_was_fenced(cluster: Cluster, timer: Timer) -> None:
    writer = writer_of(cluster)
    await cluster.write(writer, b"x")
    for bookie in cluster.bookies.values():
        bookie.fenced.add(1)
    await timer.run_out()
    await cluster.until(lambda: bool(cluster.failures))
    assert cluster.failures[0].code is ErrorCode.LEDGER_FENCED
    with pytest.raises(FencelogError):
        writer.append(b"y")


async def test_other_failures_are_of_no_consequence(cluster: Cluster, timer: Timer) -> None:
    writer = writer_of(cluster)
    await cluster.write(writer, b"x")
    cluster.bookies["b1"].go_down()
    cluster.bookies["b2"].incarnation = "2"
    await timer.run_out()
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


# -- the timer of a process ------------------------------------------------------------------------

TICK_S = EXPLICIT_LAC_TICK_MS / 1000


class Clock:
    """The loop's clock and its timers, as a timer of LACs uses them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: self.now_s)
        monkeypatch.setattr(loop, "call_at", self._call_at)

    def _call_at(self, when_s: float, callback: Callable[[], None]) -> Clock:
        self.timers.append((when_s, callback))
        return self

    def cancel(self) -> None:
        """Cancel the timer; there is one at a time."""
        self.timers.clear()

    def expire(self) -> float:
        """Let time pass until the timer expires, and return when."""
        ((when_s, callback),) = self.timers
        self.timers.clear()
        self.now_s = max(self.now_s, when_s)
        callback()
        return when_s


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Clock]:
    with monkeypatch.context() as patches:
        yield Clock(patches)


async def test_ledgers_that_become_due_in_one_tick_share_one_timer(clock: Clock) -> None:
    """None of them before its time, nor later than by a tick."""
    timer, called = LacTimer(), list[tuple[int, float, float]]()

    def note(number: int, due_s: float) -> None:
        called.append((number, due_s, clock.now_s))

    for number in range(200):
        timer.call_later(INTERVAL_S, partial(note, number, clock.now_s + INTERVAL_S))
        assert len(clock.timers) == 1
        clock.now_s += 0.001
    expired = 0
    while clock.timers:
        clock.expire()
        expired += 1
    assert 200 * 0.001 / TICK_S <= expired <= 200 * 0.001 / TICK_S + 1
    assert [number for number, _, _ in called] == list(range(200))
    assert all(due_s <= called_s < due_s + TICK_S + 1e-9 for _, due_s, called_s in called)


async def test_a_shorter_wait_does_not_stand_behind_a_longer_one(clock: Clock) -> None:
    timer, called = LacTimer(), list[str]()
    timer.call_later(10.0, lambda: called.append("long"))
    timer.call_later(0.1, lambda: called.append("short"))
    assert 0.1 <= clock.expire() - 100 <= 0.1 + TICK_S
    assert called == ["short"]
    assert 10.0 <= clock.expire() - 100 <= 10.0 + TICK_S
    assert called == ["short", "long"]
    assert clock.timers == []


async def test_what_is_set_in_a_tick_comes_in_a_later_one(clock: Clock) -> None:
    timer, called = LacTimer(), list[float]()

    def again() -> None:
        called.append(clock.now_s)
        if len(called) < 3:
            timer.call_later(0.0, again)

    timer.call_later(0.0, again)
    while clock.timers:
        clock.expire()
    assert len(called) == 3


async def test_a_bug_in_one_writer_keeps_the_lacs_of_the_others_from_nothing(
    clock: Clock,
) -> None:
    reports: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, report: reports.append(str(report["exception"])))
    timer, called = LacTimer(), list[str]()

    def fail() -> None:
        raise RuntimeError("bug")

    timer.call_later(0.1, fail)
    timer.call_later(0.1, lambda: called.append("same tick"))
    timer.call_later(0.2, lambda: called.append("later"))
    clock.expire()
    clock.expire()
    assert (reports, called) == (["bug"], ["same tick", "later"])
