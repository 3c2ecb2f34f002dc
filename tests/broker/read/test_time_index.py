"""Offsets for times: by bisection, and the same that a scan finds."""

from __future__ import annotations

import asyncio
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.read.stored import ReadLimits
from fencelog.broker.read.time_index import MAX_PLACES, TimeIndex, TimeIndexEntry
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import check_batch, encode_values
from tests.support.broker_stage import Stage
from tests.support.scripted_ledgers import ScriptedLedgers, ScriptedReader


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=60),
    st.lists(st.integers(-1, 70), min_size=1, max_size=20),
)
def test_bisection_finds_what_a_scan_finds(
    entries: list[tuple[int, int]], queries: list[int]
) -> None:
    times = list(accumulate(step for step, _ in entries))
    numbers = [0, *accumulate(count for _, count in entries)]
    places = [TimeIndexEntry(n, *pair) for n, pair in enumerate(zip(times, numbers, strict=False))]
    end = TimeIndexEntry(len(places), 0, numbers[-1])
    reads: list[int] = []

    async def read(entry_id: int) -> TimeIndexEntry:
        reads.append(entry_id)
        return places[entry_id]

    async def ask() -> None:
        index = TimeIndex()
        for time_us in queries:
            before = len(reads)
            found = await index.first_at(time_us, end, read)
            assert found == next((p for p in places if p.publish_time_us >= time_us), end)
            assert len(reads) - before <= len(places).bit_length()
            once = len(reads)
            assert await index.first_at(time_us, end, read) == found
            assert len(reads) == once  # what was looked at is remembered

    asyncio.run(ask())


def test_remembered_places_stay_few_and_in_order() -> None:
    index = TimeIndex()
    for entry_id in [*range(0, 3 * MAX_PLACES, 2), *range(1, 3 * MAX_PLACES, 2), 5, 5, 5]:
        index.add(TimeIndexEntry(entry_id, entry_id // 3, entry_id))
    assert len(index._places) <= MAX_PLACES
    assert index._places == sorted(set(index._places))


async def write(stage: Stage, log: PartitionLog, times: list[int]) -> None:
    """A batch of one to three messages at each time."""
    for number, time_us in enumerate(times):
        stage.host.clock_us = time_us
        batch = encode_values([b"x"] * (number % 3 + 1))
        await log.append_batch(batch, check_batch(batch))
        await asyncio.sleep(0)


async def scan(log: PartitionLog) -> list[tuple[int, int]]:
    """(offset, publish time) of every message."""
    found, offset = [], log.earliest_offset
    while offset < log.tail_offset:
        result = await log.read(offset, ReadLimits(max_messages=1000, max_bytes=1 << 20))
        for stored in result.entries:
            found += [(at, stored.publish_time_us) for at in range(offset, stored.end_offset)]
            offset = stored.end_offset
    return found


async def check_all_times(log: PartitionLog, times: list[int]) -> None:
    messages = await scan(log)
    for time_us in sorted({t + d for t in [0, *times] for d in (-1, 0, 1)}):
        naive = next((o for o, published in messages if published >= time_us), log.tail_offset)
        assert await log.offset_for_time(time_us) == naive, time_us


@pytest.mark.parametrize("cached", [True, False])
async def test_a_log_of_many_ledgers(stage: Stage, cached: bool) -> None:
    log = await stage.open(max_entries=4)
    times = [100, 100, 100, 105, 110, 110, 120, 120, 120, 120, 120, 130, 200, 200, 201, 202]
    await write(stage, log, times)
    await asyncio.sleep(0.02)
    if not cached:
        log._reader._cache.clear()
    await check_all_times(log, times)
    log._reader.trim(log._reader._bases[1])
    await check_all_times(log, times)
    log._reader.trim(log._reader._bases[0] + 4)  # within the second batch
    await check_all_times(log, times)
    reopened = await stage.open()  # an empty ledger at the end
    await check_all_times(reopened, times)
    await write(stage, reopened, [150, 300])  # the clock went back: times do not
    await check_all_times(reopened, [*times, 300])


async def test_an_empty_log_answers_with_its_tail(stage: Stage) -> None:
    log = await stage.open()
    assert [await log.offset_for_time(t) for t in (-1, 0, 1, 1 << 60)] == [0] * 4
    await write(stage, log, [500])
    log._reader.trim(1)
    assert [await log.offset_for_time(t) for t in (0, 500, 501)] == [1] * 3


async def test_a_search_reads_few_entries(stage: Stage, ledgers: ScriptedLedgers) -> None:
    first = await stage.open()
    await write(stage, first, list(range(1000, 1500)))
    log = await stage.open()
    reader = await log._reader._segments[0].reader()
    assert isinstance(reader, ScriptedReader)
    reader.reads.clear()
    await log.offset_for_time(1321)
    assert len(reader.reads) <= 9
    reader.reads.clear()
    await log.offset_for_time(1321)
    assert reader.reads == []


async def test_a_ledger_that_is_trimmed_during_the_search(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    first = await stage.open(max_entries=3)
    await write(stage, first, [100, 110, 120])
    await asyncio.sleep(0.02)
    await write(stage, first, [130])
    log = await stage.open()
    searching = asyncio.create_task(log.offset_for_time(110))
    ledgers.deleted.add(1)
    await asyncio.sleep(0)
    log._reader.trim(6)
    assert await searching == 6
    await log.close()
    with pytest.raises(FencelogError) as raised:
        await log.offset_for_time(110)
    assert raised.value.code is ErrorCode.DRAINING
