"""Reading back: from memory at the tail, from ledgers before it, and waiting at the end."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterator

import pytest

from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.read import rows
from fencelog.broker.read.read_ahead import BrokerReads
from fencelog.broker.read.segment_reader import MAX_POINTS, SegmentReader, SparseIndex
from fencelog.broker.read.stored import ONE_MESSAGE, ReadLimits, StoredBatch
from fencelog.broker.read.tail_cache import (
    BATCH_OVERHEAD_BYTES,
    WAKE_AT_ONCE,
    TailCache,
    TailCaches,
    TailNotifier,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message, check_batch, encode_values
from fencelog.ledgers.record_batch.windows import message_windows
from tests.support.broker_stage import ReadAll, Stage
from tests.support.scripted_ledgers import ScriptedLedgers, ScriptedReader

COST = 100 + BATCH_OVERHEAD_BYTES
"""The cost of one of ``batches`` in a cache."""


def batches(*counts: int) -> list[StoredBatch]:
    found, offset = [], 0
    for count in counts:
        found.append(StoredBatch(offset, count, 0, memoryview(bytes(100))))
        offset += count
    return found


async def write(log: PartitionLog, *counts: int) -> None:
    number = log.tail_offset
    for count in counts:
        batch = encode_values([b"%d" % (number + n) for n in range(count)])
        await log.append_batch(batch, check_batch(batch))
        number += count


def test_the_cache_keeps_the_newest_batches_within_its_limit() -> None:
    cache = TailCache(TailCaches(), limit=4 * COST - 1)
    cache.extend(batches(1, 2, 3, 4, 5))
    assert cache.size == 3 * COST
    assert cache.read(2, ReadLimits(max_messages=10, max_bytes=1000)) == []
    assert [b.base_offset for b in cache.read(7, ReadLimits(max_messages=10, max_bytes=1000))] == [
        6,
        10,
    ]
    assert [b.base_offset for b in cache.read(3, ReadLimits(max_messages=4, max_bytes=1000))] == [
        3,
        6,
    ]
    assert [b.base_offset for b in cache.read(3, ReadLimits(max_messages=99, max_bytes=1))] == [3]
    assert cache.read(15, ONE_MESSAGE) == []


def test_the_cache_forgets_in_strides() -> None:
    cache = TailCache(TailCaches(), limit=10 * COST)
    cache.extend(batches(*[1] * 5000))
    assert cache.size == 10 * COST
    found = cache.read(4995, ReadLimits(max_messages=100, max_bytes=1000))
    assert [b.base_offset for b in found] == list(range(4995, 5000))


def test_the_caches_of_a_broker_share_one_limit() -> None:
    caches = TailCaches(limit=10 * COST)
    quiet, busy, busier = (TailCache(caches) for _ in range(3))
    for cache in (quiet, busy, busier):
        cache.extend(batches(*[1] * 4))
    assert [cache.size for cache in (quiet, busy, busier)] == [0, 4 * COST, 4 * COST]
    busy.extend(batches(1))
    busier.extend(batches(*[1] * 3))
    assert [busy.size, busier.size, caches.size] == [0, 7 * COST, 7 * COST]
    assert quiet.read(0, ONE_MESSAGE) == []
    busier.clear()
    assert caches.size == 0


@pytest.mark.parametrize(("count", "size"), [(10_000, 1), (1000, 10_000)])
def test_a_cache_takes_no_more_memory_than_its_limit(count: int, size: int) -> None:
    limit = 1 << 20
    cache = TailCache(TailCaches(), limit=limit)
    tracemalloc.start()
    try:
        for number in range(count):
            batch = memoryview(encode_values([b"%d" % number * size]))
            cache.extend([StoredBatch(number, 1, 1 << 50 | number, batch)])
        assert tracemalloc.get_traced_memory()[0] < 1.5 * limit
    finally:
        tracemalloc.stop()


def test_the_index_stays_small_and_right() -> None:
    index = SparseIndex()
    for number in range(0, 10 * MAX_POINTS, 2):
        index.add(number, number // 2)
    assert len(index._points) <= MAX_POINTS
    index.add(7, 3)
    for number in (0, 1, 555, 9 * MAX_POINTS):
        (known, entry), after = index.around(number)
        assert known <= number
        assert entry == known // 2
        assert after is None or after[0] > number


async def test_a_bell_wakes_everybody_once_and_survives_those_who_leave() -> None:
    notifier = TailNotifier()
    waiting = [asyncio.create_task(notifier.wait(60_000)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [True, False, False]
    notifier.notify()
    async with asyncio.timeout(10):
        await asyncio.gather(*waiting[1:])
    later = asyncio.create_task(notifier.wait(60_000))
    await asyncio.sleep(0.01)
    assert not later.done()  # the last ring is not heard twice
    later.cancel()
    async with asyncio.timeout(10):
        await notifier.wait(1)  # nobody rings: the time is over


async def test_a_bell_wakes_many_in_their_order_and_some_at_a_time() -> None:
    notifier = TailNotifier()
    woken: list[int] = []

    async def wait(number: int) -> None:
        await notifier.wait(60_000)
        woken.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(1000)]
    await asyncio.sleep(0)
    notifier.notify()
    notifier.notify()  # nobody new
    at_once, before = 0, 0
    async with asyncio.timeout(5):
        while len(woken) < 1000:
            await asyncio.sleep(0)
            at_once, before = max(at_once, len(woken) - before), len(woken)
    assert woken == list(range(1000))
    assert at_once <= WAKE_AT_ONCE
    await asyncio.gather(*waiting)


async def test_a_bell_that_rings_while_it_rings_wakes_who_waits_since() -> None:
    notifier = TailNotifier()
    first = [asyncio.create_task(notifier.wait(60_000)) for _ in range(10 * WAKE_AT_ONCE)]
    await asyncio.sleep(0)
    notifier.notify()
    late = asyncio.create_task(notifier.wait(60_000))
    await asyncio.sleep(0)
    assert not first[-1].done()
    notifier.notify()
    async with asyncio.timeout(5):
        await asyncio.gather(*first, late)


async def test_a_bell_remembers_nobody_whose_time_was_over() -> None:
    """Long polls of an idle topic come and go for days."""
    notifier = TailNotifier()
    stays = asyncio.create_task(notifier.wait(60_000))
    for _ in range(3):
        await asyncio.gather(*(notifier.wait(0) for _ in range(3 * WAKE_AT_ONCE)))
    assert list(notifier._waiting.values()) == [1]
    notifier.notify()
    async with asyncio.timeout(10):
        await stays


async def test_who_waits_while_a_bell_rings_hears_the_next_ring() -> None:
    notifier = TailNotifier()
    first = [asyncio.create_task(notifier.wait(60_000)) for _ in range(3 * WAKE_AT_ONCE)]
    await asyncio.sleep(0)
    notifier.notify()
    late = asyncio.create_task(notifier.wait(60_000))
    async with asyncio.timeout(5):
        await asyncio.gather(*first)
    assert not late.done()
    notifier.notify()
    async with asyncio.timeout(5):
        await late


@pytest.mark.parametrize("reopened", [False, True])
async def test_every_offset_can_be_read_from(stage: Stage, reopened: bool) -> None:
    log = await stage.open(max_entries=3)
    await write(log, 3, 1, 4, 1, 5, 9, 2, 6)
    await asyncio.sleep(0.05)
    await write(log, 5, 3, 5)
    await asyncio.sleep(0.05)
    if reopened:
        log = await stage.open()
    for offset in range(log.tail_offset):
        result = await log.read(offset, ONE_MESSAGE)
        (stored,) = result.entries
        assert stored.base_offset <= offset < stored.end_offset == result.next_offset


async def test_a_sequential_reader_never_searches(stage: Stage, ledgers: ScriptedLedgers) -> None:
    first = await stage.open()
    await write(first, *[2] * 50)
    segment = (await stage.open())._reader._segments[0]
    reader = await segment.reader()
    assert isinstance(reader, ScriptedReader)
    reader.reads.clear()
    size = 5 * len(ledgers.writers[1].payloads[0])
    offset = 0
    while offset < 100:
        offset = (await segment.read(offset, max_bytes=size))[-1].end_offset
    assert len(reader.reads) == 10
    reader.reads.clear()
    await segment.read(51, max_bytes=1)
    assert len(reader.reads) <= 5  # a known place is near, whatever is asked for


async def test_a_search_without_an_index_is_a_bisection(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    first = await stage.open()
    await write(first, *[3] * 200)
    segment = SegmentReader(ledgers, ledger_id=1, base_offset=0)
    await ledgers.recover(1)
    reader = await segment.reader()
    assert isinstance(reader, ScriptedReader)
    (stored, *_) = await segment.read(445, max_bytes=1)
    assert stored.base_offset == 444
    assert len(reader.reads) <= 9


async def test_limits_of_a_read(stage: Stage) -> None:
    log = await stage.open()
    await write(log, *[10] * 10)
    for source in (log, await stage.open()):
        result = await source.read(15, ReadLimits(max_messages=20, max_bytes=1 << 20))
        assert [b.base_offset for b in result.entries] == [10, 20, 30]
        assert (result.next_offset, result.tail_offset) == (40, 100)
        assert len((await source.read(15, ReadLimits(max_messages=99, max_bytes=1))).entries) == 1


async def test_offsets_outside_the_log_are_refused_by_name(stage: Stage) -> None:
    log = await stage.open()
    await write(log, 2)
    assert (await log.read(2, ONE_MESSAGE)).entries == []
    with pytest.raises(FencelogError) as raised:
        await log.read(3, ONE_MESSAGE)
    assert raised.value.code is ErrorCode.OFFSET_BEYOND_TAIL
    assert raised.value.extra == {"tail_offset": 2}
    log._reader.trim(1)
    with pytest.raises(FencelogError) as raised:
        await log.read(0, ONE_MESSAGE)
    assert raised.value.code is ErrorCode.OFFSET_TRIMMED


async def test_a_read_at_the_tail_waits_for_the_next_append(stage: Stage) -> None:
    log = await stage.open()
    waiting = [
        asyncio.create_task(log.read(0, ReadLimits(max_messages=9, max_bytes=99, wait_ms=5_000)))
        for _ in range(2)
    ]
    await asyncio.sleep(0.01)
    await log.append_message(Message(b"x"))
    for result in await asyncio.gather(*waiting):
        assert (len(result.entries), result.next_offset) == (1, 1)
    result = await log.read(1, ReadLimits(max_messages=9, max_bytes=99, wait_ms=1))
    assert result.entries == []


async def test_readers_never_see_what_is_not_acknowledged(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    ledgers.auto_ack = False
    log = await stage.open()
    future = log.append_message(Message(b"x"))
    await asyncio.sleep(0.01)
    assert len(ledgers.newest.payloads) == 1
    assert log.tail_offset == 0
    assert (await log.segments())["segments"] == []
    ledgers.newest.ack(0)
    assert (await future).offset == 0
    assert log.tail_offset == 1


async def test_a_reader_that_waits_learns_that_the_log_has_ended(stage: Stage) -> None:
    log = await stage.open()
    waiting = asyncio.create_task(
        log.read(0, ReadLimits(max_messages=1, max_bytes=1, wait_ms=5_000))
    )
    await asyncio.sleep(0.01)
    await log.close()
    with pytest.raises(FencelogError) as raised:
        await asyncio.wait_for(waiting, 1)
    assert raised.value.code is ErrorCode.DRAINING


async def test_segments_name_the_confirmed_ranges_of_every_ledger(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open(max_entries=2)
    await write(log, 2, 3)
    await asyncio.sleep(0.02)
    await write(log, 4)
    ranges = await log.segments()
    assert (ranges["partition"], ranges["earliest_offset"], ranges["end_offset"]) == (0, 0, 9)
    fields = ("base_offset", "messages", "first_entry", "last_entry")
    assert [tuple(s[name] for name in fields) for s in ranges["segments"]] == [
        (0, 5, 0, 1),
        (5, 4, 0, 0),
    ]
    assert [s["ledger"]["state"] for s in ranges["segments"]] == ["closed", "open"]
    reopened = await (await stage.open()).segments()
    assert [s["ledger"]["state"] for s in reopened["segments"]] == ["closed", "closed"]
    assert reopened["end_offset"] == 9


@pytest.mark.parametrize(
    ("from_offset", "entries"),
    [
        (0, [(0, 0, 1), (5, 0, 1)]),
        (1, [(0, 0, 1), (5, 0, 1)]),
        (2, [(0, 1, 1), (5, 0, 1)]),
        (4, [(0, 1, 1), (5, 0, 1)]),
        (5, [(5, 0, 1)]),
        (9, [(5, 1, 1)]),
        (10, []),
        (11, []),
    ],
)
async def test_segments_from_an_offset_begin_with_its_entry(
    stage: Stage, from_offset: int, entries: list[tuple[int, int, int]]
) -> None:
    log = await stage.open(max_entries=2)
    await write(log, 2, 3)
    await asyncio.sleep(0.02)
    await write(log, 4)
    await write(log, 1)
    ranges = await log.segments(from_offset)
    fields = ("base_offset", "first_entry", "last_entry")
    assert [tuple(s[name] for name in fields) for s in ranges["segments"]] == entries
    assert (ranges["earliest_offset"], ranges["end_offset"]) == (0, 10)
    assert ranges["topic_id"] == log._node.topic_id


async def test_a_trimmed_ledger_is_gone_for_readers_and_the_rest_stays(
    stage: Stage, read_all: ReadAll
) -> None:
    log = await stage.open(max_entries=2)
    await write(log, 2, 3)
    await asyncio.sleep(0.02)
    await write(log, 4)
    reader = log._reader
    reader.trim(5)
    assert (log.earliest_offset, log.tail_offset) == (5, 9)
    assert await read_all(log) == [b"5", b"6", b"7", b"8"]
    with pytest.raises(FencelogError) as raised:
        await log.read(4, ONE_MESSAGE)
    assert raised.value.code is ErrorCode.OFFSET_TRIMMED
    assert raised.value.extra == {"earliest_offset": 5}
    assert [s["base_offset"] for s in (await log.segments())["segments"]] == [5]
    reader.trim(3)
    assert log.earliest_offset == 5  # it never goes back
    reader.trim(1000)
    assert (log.earliest_offset, len(reader._segments)) == (9, 1)  # what is written stays
    await write(log, 1)
    assert await read_all(log) == [b"9"]


async def test_a_read_in_progress_of_a_trimmed_ledger_says_so(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    first = await stage.open()
    await write(first, 2, 3)
    log = await stage.open()
    reading = asyncio.create_task(log.read(0, ReadLimits(max_messages=9, max_bytes=99)))
    describing = asyncio.create_task(log.segments())
    ledgers.deleted.add(1)
    await asyncio.sleep(0)
    log._reader.trim(5)
    with pytest.raises(FencelogError) as raised:
        await reading
    assert raised.value.code is ErrorCode.OFFSET_TRIMMED
    assert (await describing)["segments"] == []


async def test_a_log_that_is_trimmed_while_a_read_waits_for_its_turn_says_so(stage: Stage) -> None:
    """The read is not answered with what a later ledger holds."""
    reads = BrokerReads()
    log = await stage.open(max_entries=1, broker_reads=reads)
    await write(log, 1, 1, 1, 1)
    await asyncio.sleep(0.02)
    log._reader._cache.clear()
    async with reads.semaphore.turn("somebody", reads.semaphore.limit):
        reading = asyncio.create_task(log.read(0, ONE_MESSAGE))
        await asyncio.sleep(0)
        log._reader.trim(2)
    with pytest.raises(FencelogError) as raised:
        await reading
    assert raised.value.code is ErrorCode.OFFSET_TRIMMED


def test_of_a_large_batch_no_more_is_decoded_than_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded = 0

    def windows(batch: memoryview, size: int, *, start: int) -> Iterator[list[Message]]:
        nonlocal decoded
        for messages in message_windows(batch, size, start=start):
            decoded += len(messages)
            yield messages

    monkeypatch.setattr(rows, "message_windows", windows)
    batch = StoredBatch(100, 5000, 7, memoryview(encode_values([b"x"] * 5000)))
    steps = list(rows.rows_in_steps([batch], start=1010, end=1015, step=10))
    assert [[offset for offset, _, _ in step] for step in steps] == [list(range(1010, 1015))]
    assert decoded == 10
