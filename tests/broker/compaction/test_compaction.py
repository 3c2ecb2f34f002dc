"""A compacted view over scripted ledgers: what readers of it see, and what survives what."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - seeded, so that a failure can be repeated
from collections.abc import Sequence
from typing import Any

import pytest

from fencelog.broker.background.compaction_scheduler import CompactionScheduler, spread_us
from fencelog.broker.compaction.compaction import LogCompaction
from fencelog.broker.ledger_list.ledger_list import Compacted
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.read.stored import ONE_MESSAGE, CompactedBatch, ReadLimits
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message, check_batch, encode_batch
from fencelog.ledgers.record_batch.windows import message_windows
from tests.support.broker_stage import Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers

Row = tuple[int, bytes | None, bytes]
"""Offset, key, value."""


def keyed(text: str) -> list[Message]:
    """``a=1 b= -=3``: values of keys, a tombstone, a message without a key."""
    pairs = [item.split("=") for item in text.split()]
    return [Message(value.encode(), None if key == "-" else key.encode()) for key, value in pairs]


async def append(log: PartitionLog, text: str) -> None:
    batch = encode_batch(keyed(text))
    await log.append_batch(batch, check_batch(batch))


ALL = ReadLimits(max_messages=1000, max_bytes=1 << 20)


async def view_of(log: PartitionLog, start: int = 0, limits: ReadLimits = ALL) -> list[Row]:
    view = log.compaction.view
    rows: list[Row] = []
    offset = start
    while offset < log.tail_offset:
        result = await view.read(offset, limits)
        assert result.next_offset > offset
        for stored in result.entries:
            messages = [m for window in message_windows(stored.batch, 3) for m in window]
            offsets: Sequence[int] = range(stored.base_offset, stored.end_offset)
            if isinstance(stored, CompactedBatch):
                offsets = stored.offsets
            rows += [
                (at, message.key, message.value)
                for at, message in zip(offsets, messages, strict=True)
                if at >= offset
            ]
        offset = result.next_offset
    return rows


def shown(rows: list[Row]) -> str:
    return " ".join(f"{at}:{(key or b'-').decode()}={value.decode()}" for at, key, value in rows)


async def test_the_newest_of_every_key_below_the_horizon_and_the_log_above(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open()
    await append(log, "a=1 b=1 -=u a=2")
    assert log.compaction.status()["state"] == "none"
    assert shown(await view_of(log)) == "0:a=1 1:b=1 2:-=u 3:a=2"  # there is no view yet
    await log.compaction.run()
    assert shown(await view_of(log)) == "1:b=1 2:-=u 3:a=2"
    await append(log, "b=2 b= c=1")
    assert shown(await view_of(log)) == "1:b=1 2:-=u 3:a=2 4:b=2 5:b= 6:c=1"
    await log.compaction.run()
    assert shown(await view_of(log)) == "2:-=u 3:a=2 5:b= 6:c=1"  # the tombstone is seen
    await append(log, "d=1")
    await log.compaction.run()
    assert shown(await view_of(log)) == "2:-=u 3:a=2 6:c=1 7:d=1"  # and gone with the next pass
    status = log.compaction.status()
    assert (status["state"], status["end_offset"], status["messages"]) == ("ready", 8, 4)
    compacted = log._node.ledger_list.compacted
    assert compacted is not None
    assert (len(compacted.ledgers), compacted.created_us) == (1, stage.host.clock_us)
    assert ledgers.deleted == {2, 3}
    assert ledgers.writers[compacted.ledgers[0]].metadata.properties == {
        "log": "t1/0",
        "epoch": "1",
    }


async def test_a_tombstone_outlasts_the_compaction_that_read_it(stage: Stage) -> None:
    """However many passes that takes: whoever reads the view between two of them has to see it."""
    log = await stage.open()
    log.compaction._max_keys = 1
    await append(log, "a=1")
    await log.compaction.run()
    await append(log, "a= b=1 c=1")
    await log.compaction.run()  # three passes
    assert shown(await view_of(log)) == "1:a= 2:b=1 3:c=1"
    await append(log, "d=1")
    await log.compaction.run()
    assert shown(await view_of(log)) == "2:b=1 3:c=1 4:d=1"


async def test_nothing_new_costs_nothing(stage: Stage, ledgers: ScriptedLedgers) -> None:
    log = await stage.open()
    await log.compaction.run()
    await append(log, "a=1")
    await log.compaction.run()
    before = list(ledgers.log)
    assert log.compaction.due_us(1) is None
    await log.compaction.run()
    assert ledgers.log == before


async def test_a_view_of_which_nothing_is_left(stage: Stage, ledgers: ScriptedLedgers) -> None:
    log = await stage.open()
    await append(log, "a=")
    await log.compaction.run()
    await append(log, "b=")
    await log.compaction.run()
    assert shown(await view_of(log)) == "1:b="
    log._node.ledger_list = log._node.ledger_list.with_compacted(Compacted((), 2, 0, 0, 5))
    assert await view_of(log) == []
    result = await log.compaction.view.read(0, ONE_MESSAGE)
    assert (result.entries, result.next_offset) == ([], 2)
    assert await log.compaction.view.offset_for_time(0) == 2


@pytest.mark.parametrize("seed", range(6))
async def test_any_log_compacts_to_what_a_dictionary_would_hold(stage: Stage, seed: int) -> None:
    """Rolls, takeovers, trims up to the horizon, few keys at a time, reads from anywhere."""
    draw = random.Random(seed)
    log = await stage.open(max_entries=5)
    rows: list[Row] = []
    view: list[Row] = []
    for _ in range(12):
        for _ in range(draw.randint(0, 6)):
            stage.host.clock_us += draw.randint(0, 3)
            text = " ".join(
                f"{draw.choice('abcdefg-')}={draw.choice(['', '1', '2'])}"
                for _ in range(draw.randint(1, 9))
            )
            start = log.tail_offset
            await append(log, text)
            rows += [(start + n, m.key, m.value) for n, m in enumerate(keyed(text))]
        step = draw.choice(("compact", "compact", "take over", "trim", "read"))
        if step == "take over":
            await log.close()
            log = await stage.open(max_entries=5)
        elif step == "trim" and log.earliest_offset < log.compaction.horizon:
            log._reader.trim(draw.randint(log.earliest_offset, log.compaction.horizon))
        elif step == "compact":
            log.compaction._max_keys = draw.randint(3, 9)
            began = log.compaction.horizon
            while (horizon := log.compaction.horizon) < log.tail_offset:
                await log.compaction._pass(log.tail_offset, tombstones_from=began)
                end = log.compaction.horizon
                view = _naive(view, [row for row in rows if horizon <= row[0] < end], began)
        horizon = log.compaction.horizon
        expected = [*view, *(row for row in rows if row[0] >= horizon)]
        start = draw.randint(0, log.tail_offset)
        limits = ReadLimits(draw.randint(1, 20), draw.choice((1, 300, 1 << 20)))
        assert await view_of(log, start, limits) == [row for row in expected if row[0] >= start]


def _naive(view: list[Row], part: list[Row], began: int) -> list[Row]:
    newest: dict[bytes, Row] = {}
    unkeyed = []
    for row in [row for row in view if row[2] or row[1] is None or row[0] >= began] + part:
        if row[1] is None:
            unkeyed.append(row)
        else:
            newest[row[1]] = row
    return sorted([*unkeyed, *newest.values()])


async def test_the_view_outlives_the_log_below_it_and_a_takeover(stage: Stage) -> None:
    log = await stage.open(max_entries=2)
    await append(log, "a=1 b=1")
    await append(log, "a=2 c=1")
    await log.compaction.run()
    await append(log, "c=2")
    await asyncio.sleep(0.02)
    log = await stage.open()
    log._reader.trim(4)
    assert (log.earliest_offset, log.compaction.view.earliest_offset) == (4, 0)
    assert shown(await view_of(log)) == "1:b=1 2:a=2 3:c=1 4:c=2"
    await log.compaction.run()
    assert shown(await view_of(log)) == "1:b=1 2:a=2 4:c=2"


async def test_what_was_trimmed_before_it_was_compacted_is_no_silent_gap(stage: Stage) -> None:
    log = await stage.open(max_entries=1)
    await append(log, "a=1 b=1")
    await log.compaction.run()
    await append(log, "a=2")
    await asyncio.sleep(0.02)
    await append(log, "c=1")
    log._reader.trim(3)
    with pytest.raises(FencelogError) as raised:
        await view_of(log)
    assert (raised.value.code, raised.value.extra) == (
        ErrorCode.OFFSET_TRIMMED,
        {"earliest_offset": 3},
    )
    await log.compaction.run()
    assert shown(await view_of(log)) == "0:a=1 1:b=1 3:c=1"


async def test_a_gap_at_the_end_of_the_log_is_closed_without_a_new_message(stage: Stage) -> None:
    """Readers of a topic that is idle have to reach its end."""
    log = await stage.open(max_entries=1)
    await append(log, "a=1 b=1")
    await log.compaction.run()
    await append(log, "a=2")
    await asyncio.sleep(0.02)
    log._reader.trim(3)
    assert log.compaction.due_us(1) is not None
    with pytest.raises(FencelogError, match="3"):
        await view_of(log)
    await log.compaction.run()
    assert shown(await view_of(log)) == "0:a=1 1:b=1"
    assert (log.compaction.status()["end_offset"], log.compaction.due_us(1)) == (3, None)


async def test_what_was_trimmed_without_a_view_is_no_gap(stage: Stage) -> None:
    log = await stage.open(max_entries=1)
    await append(log, "a=1 b=1")
    log._reader.trim(2)
    assert log.compaction.due_us(1) is None
    await log.compaction.run()
    assert log.compaction.status()["state"] == "none"


async def test_a_reader_goes_on_when_the_view_is_replaced_under_it(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open()
    await append(log, "a=1 b=1 c=1 d=1")
    await log.compaction.run()
    view = log.compaction.view
    assert (await view.read(0, ReadLimits(max_messages=2, max_bytes=1))).entries
    await append(log, "c=2 e=1")
    view.clear()
    reading = asyncio.create_task(view_of(log, 2))
    await asyncio.sleep(0)  # it has begun, in the ledger that goes away
    await log.compaction.run()
    ledgers.deleted.add(2)
    assert shown(await reading) in ("3:d=1 4:c=2 5:e=1", "2:c=1 3:d=1 4:c=2 5:e=1")
    assert shown(await view_of(log, 2)) == "3:d=1 4:c=2 5:e=1"


async def test_times_of_the_view(stage: Stage) -> None:
    log = await stage.open()
    for time_us, text in ((100, "a=1 b=1"), (110, "a=2"), (110, "c=1"), (120, "b=2"), (130, "z=1")):
        stage.host.clock_us = time_us
        await append(log, text)
        if time_us == 120:
            await log.compaction.run()
    assert shown(await view_of(log)) == "2:a=2 3:c=1 4:b=2 5:z=1"
    log._reader.trim(0)
    found = [
        await log.compaction.view.offset_for_time(t) for t in (0, 100, 110, 111, 120, 121, 131)
    ]
    assert found == [2, 2, 2, 4, 4, 5, 6]


# -- faults ------------------------------------------------------------------------------------


async def test_a_ledger_that_fails_leaves_the_former_view(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open()
    await append(log, "a=1")
    await log.compaction.run()
    previous = log._node.ledger_list.compacted
    await append(log, "a=2")
    ledgers.auto_ack = False
    running = asyncio.create_task(log.compaction.run())
    await until(lambda: 3 in ledgers.writers and bool(ledgers.writers[3].payloads))
    assert log.compaction.status()["state"] == "running"
    ledgers.writers[3].fail(FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "two are gone"))
    await running
    assert log._node.ledger_list.compacted is previous
    assert 3 in ledgers.deleted
    status = log.compaction.status()
    assert (status["state"], "two are gone" in status["error"]) == ("failed", True)
    due_us = log.compaction.due_us(1)
    assert due_us is not None
    assert due_us > stage.host.clock_us  # not at once again
    ledgers.auto_ack = True
    await log.compaction.run()
    assert (log.compaction.status()["state"], log.compaction.horizon) == ("ready", 2)


async def test_a_ledger_that_cannot_be_made(stage: Stage, ledgers: ScriptedLedgers) -> None:
    log = await stage.open()
    await append(log, "a=1")
    ledgers.create_errors = [FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "none")]
    await log.compaction.run()
    assert log.compaction.status()["state"] == "failed"


async def test_a_mistake_of_ours_is_a_state_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await stage.open()
    await append(log, "a=1")

    async def fail(self: LogCompaction, end: int, *, tombstones_from: int) -> None:
        raise ValueError("oh")

    monkeypatch.setattr(LogCompaction, "_pass", fail)
    await log.compaction.run()
    assert log.compaction.status()["state"] == "failed"


async def test_a_takeover_in_the_middle_finishes_the_pass(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open()
    await append(log, "a=1 a=2")
    ledgers.auto_ack = False
    running = asyncio.create_task(log.compaction.run())
    await until(lambda: 2 in ledgers.writers and bool(ledgers.writers[2].payloads))
    ledgers.auto_ack = True
    following = await stage.open()
    ledgers.writers[2].ack(0)
    await running
    assert following._node.ledger_list.compacted is None
    assert 2 in ledgers.deleted
    assert "taken over" in log.compaction.status()["error"]
    await following.compaction.run()
    assert shown(await view_of(following)) == "1:a=2"


async def test_a_log_that_closes_ends_its_pass(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open()
    await append(log, "a=1 a=2")
    ledgers.auto_ack = False
    running = asyncio.create_task(log.compaction.run())
    await until(lambda: 2 in ledgers.writers and bool(ledgers.writers[2].payloads))
    ledgers.auto_ack = True
    async with asyncio.timeout(10):
        await log.close()
        await running
    assert 2 in ledgers.deleted
    following = await stage.open()
    assert following._node.ledger_list.compacted is None


# -- the scheduler -------------------------------------------------------------------------------


class Log:
    """The part of a log that the scheduler uses."""

    def __init__(self, name: str, due: int | None, interval_ms: int | None = 1) -> None:
        self.name = name
        self.policy = self
        self.compaction = self
        self.compaction_ms = interval_ms
        self.due = due
        self.is_serving = True
        self.runs = 0

    def due_us(self, interval_ms: int) -> int | None:
        return self.due

    async def run(self) -> None:
        await asyncio.sleep(0)
        self.runs += 1
        self.due = None


async def test_one_log_at_a_time_what_is_due_longest_first(stage: Stage, until: Until) -> None:
    stage.host.clock_us = 10_000
    logs: list[Any] = [
        Log("later", 9_000),
        Log("sooner", 1_000),
        Log("nothing new", None),
        Log("not yet", 20_000),
        Log("off", 0, None),
    ]
    order: list[str] = []
    for log in logs:
        log.run = lambda log=log: _noted(log, order)
    scheduler = CompactionScheduler(lambda: logs, stage.host)
    scheduler.start()
    scheduler.ask(logs[4])  # by hand, whatever the policy says
    scheduler.ask(logs[4])
    assert scheduler.is_asked(logs[4])
    await until(lambda: len(order) == 3)
    assert order == ["off", "sooner", "later"]
    logs[2].is_serving = False
    scheduler.ask(logs[2])
    await until(lambda: not scheduler.is_asked(logs[2]))
    assert len(order) == 3  # it was lost meanwhile
    await scheduler.close()


async def _noted(log: Log, order: list[str]) -> None:
    order.append(log.name)
    log.due = None


def test_due_times_are_spread() -> None:
    spreads = [spread_us(f"topic/{n}", 60_000) for n in range(100)]
    assert min(spreads) >= 0
    assert max(spreads) < 6_000_000
    assert len(set(spreads)) > 90
