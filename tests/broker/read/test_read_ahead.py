"""Catch-up reads: each chunk is read once, ahead of those who read on, within bounded memory."""

from __future__ import annotations

import asyncio
import gc
import random  # noqa: TID251 - seeded, so that a failure can be repeated
import weakref

import pytest

from fencelog.broker.read.read_ahead import BrokerReads, Found, LogReadAhead
from fencelog.broker.read.stored import ReadLimits, StoredBatch
from fencelog.broker.read.tail_cache import BATCH_OVERHEAD_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import check_batch, encode_values
from tests.support.broker_stage import Stage

BATCH = 10_000
COST = BATCH + BATCH_OVERHEAD_BYTES


class Source:
    """A log of batches of one message, 10,000 bytes each. ``gate`` holds its reads."""

    def __init__(self, end: int = 1000) -> None:
        self.end = end
        self.loads: list[tuple[int, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[Exception] = []

    async def load(self, offset: int, max_bytes: int) -> Found:
        self.loads.append((offset, max_bytes))
        await self.gate.wait()
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop()
        count = min(max(1, max_bytes // BATCH), self.end - offset)
        batches = [StoredBatch(offset + n, 1, 0, memoryview(bytes(BATCH))) for n in range(count)]
        return batches, offset + count

    def ahead(self, shared: BrokerReads) -> LogReadAhead:
        return LogReadAhead(shared, self.load, is_worth=lambda offset: offset < self.end)


def shared(chunks: int = 16) -> BrokerReads:
    """Room for so many chunks of ten batches."""
    return BrokerReads(chunks * 10 * COST, chunk_bytes=10 * BATCH)


async def read(reads: LogReadAhead, offset: int, count: int = 1) -> int:
    """The offset after a read of ``count`` messages."""
    batches, following = await reads.read(
        offset, ReadLimits(max_messages=count, max_bytes=count * BATCH)
    )
    assert [b.base_offset for b in batches] == list(range(offset, following))
    return following


async def read_to(reads: LogReadAhead, offset: int, end: int, count: int = 5) -> None:
    while offset < end:
        offset = await read(reads, offset, count)


async def test_readers_that_follow_each_other_cost_one_read() -> None:
    source = Source()
    reads = source.ahead(shared(chunks=1000))
    await asyncio.gather(*(read_to(reads, 0, 1000, count) for count in (2, 3, 5, 7, 10, 10, 10)))
    offsets = [offset for offset, _ in source.loads]
    assert len(offsets) == len(set(offsets))
    assert len(offsets) <= 1000 // 10 + 3  # the first ones are as small as what was asked for


async def test_the_same_place_is_read_once_for_all_who_ask_at_the_same_time() -> None:
    source = Source()
    source.gate.clear()
    reads = source.ahead(shared())
    asking = [asyncio.create_task(read(reads, 7, 3)) for _ in range(5)]
    await asyncio.sleep(0)
    asking[0].cancel()  # whose read it was goes away; the others still want it
    await asyncio.sleep(0)
    source.gate.set()
    assert await asyncio.gather(*asking[1:]) == [10] * 4
    assert source.loads == [(7, 3 * BATCH)]


async def test_a_chunk_is_there_before_it_is_asked_for() -> None:
    source = Source()
    reads = source.ahead(shared())
    assert await read(reads, 0, 5) == 5
    assert source.loads == [(0, 5 * BATCH)]  # a place of its own: nothing ahead
    assert await read(reads, 5, 5) == 10
    await asyncio.sleep(0.001)
    assert source.loads[1:] == [(5, 10 * BATCH), (15, 10 * BATCH)]
    source.gate.clear()
    async with asyncio.timeout(10):
        await read_to(reads, 10, 25)
        await asyncio.sleep(0.001)
    assert source.loads[3:] == [(25, 10 * BATCH)]


async def test_a_read_somewhere_brings_no_more_than_it_asked_for() -> None:
    source = Source()
    reads = source.ahead(shared())
    for offset in (500, 30, 700, 90):
        await read(reads, offset, 2)
    assert source.loads == [(offset, 2 * BATCH) for offset in (500, 30, 700, 90)]


async def test_nothing_is_fetched_ahead_that_would_not_fit() -> None:
    source = Source()
    bounds = shared(chunks=4)
    logs = [source.ahead(bounds) for _ in range(10)]
    for reads in logs:
        await read(reads, 0, 5)
        await read(reads, 5, 5)
    await asyncio.sleep(0.001)
    assert bounds.ahead == 2
    assert [start for start, _ in source.loads].count(15) == 2
    assert 0 < bounds.size <= 4 * 10 * COST
    other = source.ahead(bounds)
    for offset in range(100, 400, 3):
        await read(other, offset)  # the two whose chunks wait never come back
    source.loads.clear()
    await read_to(other, 600, 620)
    await asyncio.sleep(0.001)
    assert [start for start, _ in source.loads] == [600, 605, 615, 625]
    for reads in (*logs, other):
        reads.clear()
    assert (bounds.ahead, bounds.size) == (0, 0)


async def test_what_a_reader_has_been_through_stays_for_followers_and_not_for_long() -> None:
    source = Source()
    bounds = shared(chunks=16)
    reads = source.ahead(bounds)
    slow = source.ahead(bounds)
    for offset in (300, 305, 307):
        await read(slow, offset, 2)  # in the middle of a chunk
    await read_to(reads, 0, 505)
    await asyncio.sleep(0.001)
    assert bounds.size <= (16 // 4 + 2 + 3) * 10 * COST
    source.loads.clear()
    assert await read(slow, 309, 1) == 310  # others do not push it out
    assert await read(reads, 480, 5) == 485
    assert source.loads == []
    reads.clear()
    slow.clear()
    assert (bounds.size, bounds._passed_size) == (0, 0)


class Run(bytearray):
    """Memory of which one can tell whether somebody still has it."""


async def test_who_holds_a_little_of_a_chunk_does_not_hold_all_of_it() -> None:
    runs: list[weakref.ref[Run]] = []

    async def load(offset: int, max_bytes: int) -> Found:
        run = Run(10 * BATCH)
        runs.append(weakref.ref(run))
        whole = memoryview(run)
        parts = [whole[n : n + BATCH] for n in range(0, len(whole), BATCH)]
        return [StoredBatch(offset + n, 1, 0, part) for n, part in enumerate(parts)], offset + 10

    reads = LogReadAhead(shared(), load, is_worth=lambda offset: False)
    little, _ = await reads.read(0, ReadLimits(max_messages=4, max_bytes=4 * BATCH))
    assert [b.base_offset for b in little] == [0, 1, 2, 3]
    reads.clear()
    gc.collect()
    assert runs.pop()() is None
    much, _ = await reads.read(0, ReadLimits(max_messages=6, max_bytes=6 * BATCH))
    reads.clear()
    gc.collect()
    assert len(much) == 6
    assert runs.pop()() is not None  # not copied for nothing


async def test_reads_that_are_on_their_way_are_bounded() -> None:
    source = Source()
    source.gate.clear()
    bounds = shared()
    bounds.semaphore.limit = 2 * 5 * BATCH
    logs = [source.ahead(bounds) for _ in range(5)]
    reading = [asyncio.create_task(read(reads, 0, 5)) for reads in logs]
    await asyncio.sleep(0.001)
    assert len(source.loads) == 2
    source.gate.set()
    assert await asyncio.gather(*reading) == [5] * 5
    assert bounds.semaphore.in_use == 0


async def test_an_error_is_told_to_each_who_waits_and_then_forgotten() -> None:
    source = Source()
    reads = source.ahead(shared())
    source.failures = [FencelogError(ErrorCode.READ_UNKNOWN, "no bookie", ledger=7)]
    results = await asyncio.gather(*(read(reads, 3) for _ in range(3)), return_exceptions=True)
    errors = [error for error in results if isinstance(error, FencelogError)]
    assert len({id(error) for error in errors}) == 3
    assert {(e.code, e.detail) for e in errors} == {(ErrorCode.READ_UNKNOWN, "no bookie")}
    assert await read(reads, 3) == 4
    source.failures = [ValueError("a mistake of ours")]
    with pytest.raises(ValueError, match="of ours"):
        await read(reads, 70)


async def test_who_reads_a_log_that_ends_is_told() -> None:
    source = Source()
    source.gate.clear()
    bounds = shared()
    reads = source.ahead(bounds)
    reading = asyncio.create_task(read(reads, 3))
    await asyncio.sleep(0.001)
    reads.clear()
    with pytest.raises(FencelogError) as raised:
        await reading
    assert raised.value.code is ErrorCode.NO_OWNER
    assert (bounds.size, bounds.semaphore.in_use) == (0, 0)


async def test_a_read_that_was_ended_leaves_the_next_one_of_its_place_alone() -> None:
    """It may take a while to end."""
    source = Source()
    source.gate.clear()

    async def load(offset: int, max_bytes: int) -> Found:
        try:
            return await source.load(offset, max_bytes)
        finally:
            await asyncio.sleep(0.001)

    bounds = shared()
    reads = LogReadAhead(bounds, load, is_worth=lambda offset: False)
    ended = asyncio.create_task(read(reads, 3))
    await asyncio.sleep(0.001)
    reads.clear()
    following = [asyncio.create_task(read(reads, 3))]
    with pytest.raises(FencelogError):
        await ended
    following.append(asyncio.create_task(read(reads, 3)))
    await asyncio.sleep(0.001)
    source.gate.set()
    assert await asyncio.gather(*following) == [4, 4]
    assert len(source.loads) == 2
    assert bounds.size == COST


async def test_chunks_below_the_start_are_let_go() -> None:
    source = Source()
    bounds = shared()
    reads = source.ahead(bounds)
    await read_to(reads, 0, 40)
    await asyncio.sleep(0.001)
    before = bounds.size
    reads.trim(30)
    assert bounds.size < before
    source.loads.clear()
    assert await read(reads, 30, 1) == 31
    assert source.loads == []


@pytest.mark.parametrize("seed", range(8))
async def test_any_readers_see_the_log_as_it_is_while_it_rolls_and_is_trimmed(
    stage: Stage, seed: int
) -> None:
    """Appends, rolls, trims, and readers at random places with random bounds, all at once."""
    draw = random.Random(seed)
    bounds = BrokerReads(20_000, chunk_bytes=2_000)
    log = await stage.open(max_entries=draw.randint(2, 6), broker_reads=bounds)
    log._reader._cache._limit = 3_000  # most of it has to come from ledgers

    async def append() -> None:
        for _ in range(60):
            batch = encode_values([b"%d" % n for n in range(draw.randint(1, 9))])
            await log.append_batch(batch, check_batch(batch))
            await asyncio.sleep(0)
            if draw.random() < 0.1:
                sealed = [s for s in log._reader._segments if not s.is_open]
                if sealed:
                    end = sealed[0].base_offset + (sealed[0].messages or 0)
                    log._reader.trim(end)

    async def follow(writing: asyncio.Task[None]) -> None:
        offset = log.earliest_offset
        while not writing.done() or offset < log.tail_offset:
            try:
                result = await log.read(
                    offset,
                    ReadLimits(max_messages=draw.randint(1, 30), max_bytes=draw.randint(1, 3_000)),
                )
            except FencelogError as error:
                if error.code is not ErrorCode.OFFSET_TRIMMED:
                    raise
                offset = error.extra["earliest_offset"]
                continue
            for stored in result.entries:
                assert stored.base_offset <= offset < stored.end_offset
                offset = stored.end_offset
            assert offset == result.next_offset
            await asyncio.sleep(0)

    writing = asyncio.create_task(append())
    await asyncio.gather(writing, *(follow(writing) for _ in range(5)))
    assert bounds.semaphore.in_use == 0
    assert bounds.size <= 20_000
