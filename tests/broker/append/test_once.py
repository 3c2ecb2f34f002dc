"""The partition of an append under an idempotency key, after the topic has grown."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fencelog.broker.append.conditions import AppendConditions, AppendResult, Repeated
from fencelog.broker.append.once import is_routed_by_key, place_of, previous_partitions, route_once
from fencelog.broker.append.producer_access import Access
from fencelog.broker.ledger_list.state_core import Event
from fencelog.broker.limits import LATE_GROWTH_MS, MAX_PREVIOUS_COUNTS
from fencelog.broker.names import TopicName
from fencelog.broker.policy import Policy
from fencelog.broker.registry.topic_node import (
    PreviousCount,
    TopicConfig,
    TopicInfo,
    decode_topic,
    encode_topic,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.format.entry_header import (
    RANGE_KEY,
    RANGE_SEQUENCE,
    SequenceRange,
    producer_digest,
)
from fencelog.ledgers.metastore.port import Version, Versioned
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers

NAME = TopicName("ns", "t")
RANGE = SequenceRange(0, RANGE_KEY, producer_digest(b"order 7"))
KEYED = AppendConditions(RANGE)
WINDOW_US = (Policy().idempotency_window_ms + LATE_GROWTH_MS) * 1000


def topic(partitions: int, *previous: PreviousCount) -> TopicInfo:
    return TopicInfo(NAME, "id", TopicConfig(partitions), 0, previous_counts=previous)


def test_former_partitions_are_asked_as_long_as_their_appends_are_remembered() -> None:
    grown = topic(7, PreviousCount(1, 10), PreviousCount(4, 20), PreviousCount(5, 30))
    place = 4 * 5 * 7 + 6  # of 1, 4, 5 and 7: 0, 2, 1 and 6
    assert previous_partitions(grown, place, 0) == [0, 2, 1]
    assert previous_partitions(grown, place, 10 + WINDOW_US) == [2, 1]
    assert previous_partitions(grown, place, 30 + WINDOW_US) == []
    assert previous_partitions(grown, 0, 0) == []


@pytest.mark.parametrize("key", [None, b"user-7"])
async def test_the_first_append_is_found_where_it_was_written(key: bytes | None) -> None:
    place = place_of(KEYED, key)
    assert place == crc32c(RANGE.id if key is None else key)
    grown = topic(1000, PreviousCount(997, 10), PreviousCount(998, 20))
    asked: list[int] = []
    original = Repeated(place % 998, 5, 1, 7)

    async def find(partition: int, sequences: SequenceRange) -> AppendResult | None:
        assert sequences == RANGE
        asked.append(partition)
        return original if partition == original.partition else None

    assert await route_once(grown, KEYED, place, now_us=0, find=find) is original
    assert asked == [place % 997, place % 998]
    late = 20 + WINDOW_US
    routed = await route_once(grown, KEYED, place, now_us=late, find=find)
    assert routed == (place % 1000, KEYED._replace(routed_by=1000))
    with pytest.raises(AssertionError, match="without an idempotency key"):
        await route_once(grown, AppendConditions(), place, now_us=0, find=find)


def test_only_idempotency_keys_choose_a_partition() -> None:
    assert is_routed_by_key(KEYED)
    numbered = AppendConditions(RANGE._replace(kind=RANGE_SEQUENCE))
    for other in (None, AppendConditions(), numbered, KEYED._replace(if_offset=3)):
        assert not is_routed_by_key(other)


def test_a_topic_remembers_what_it_was_as_long_as_that_matters() -> None:
    info = topic(1)
    assert info.grown_at(10) == (PreviousCount(1, 10),)
    twice = replace(info, config=TopicConfig(2), previous_counts=info.grown_at(10))
    assert twice.grown_at(20) == (PreviousCount(1, 10), PreviousCount(2, 20))
    assert twice.grown_at(10 + WINDOW_US) == (PreviousCount(2, 10 + WINDOW_US),)
    node = Versioned(encode_topic(twice), Version(1, 1))
    assert decode_topic(NAME, node, Policy()).previous_counts == twice.previous_counts
    often = topic(50, *(PreviousCount(n + 1, n) for n in range(MAX_PREVIOUS_COUNTS)))
    with pytest.raises(FencelogError, match="grew 16 times") as caught:
        often.grown_at(100)
    assert caught.value.code is ErrorCode.LIMIT_REACHED


def is_refused(access: Access, conditions: AppendConditions) -> bool:
    try:
        access.check(conditions)
    except FencelogError as error:
        return error.code is ErrorCode.METADATA_CONFLICT
    return False


def test_a_route_by_a_former_number_of_partitions_is_over() -> None:
    access = Access()
    routed = KEYED._replace(routed_by=2)
    for partitions in (2, 4, 3):
        assert not is_refused(access, routed) or partitions == 3
        access.apply(access.grow(partitions))
    assert access.partitions == 4
    (event,) = access.snapshot()
    restored = Access()
    restored.apply(event)
    assert is_refused(restored, routed)
    assert not is_refused(restored, KEYED)
    assert not is_refused(restored, KEYED._replace(routed_by=4))
    assert access.is_open


async def test_a_key_that_is_not_there_never_comes_by_a_former_route(stage: Stage) -> None:
    log = await stage.open()
    sequences = SequenceRange(0, RANGE_KEY, producer_digest(b"k"))
    routed = AppendConditions(sequences, routed_by=1)
    await log.append_message(Message(b"a"), routed)
    first = await log.access.find_key(sequences, 2)
    assert first is not None
    assert first.offset == 0
    other = sequences._replace(id=producer_digest(b"other"))
    assert await log.access.find_key(other, 2) is None
    for _ in range(2):
        with pytest.raises(FencelogError) as caught:
            await log.append_message(Message(b"a"), routed._replace(sequences=other))
        assert caught.value.code is ErrorCode.METADATA_CONFLICT
        log = await stage.open()  # the next owner knows it, too
        assert await log.access.find_key(sequences, 2) == first
    now = routed._replace(sequences=other, routed_by=2)
    assert (await log.append_message(Message(b"a"), now)).offset == 1


async def test_a_key_is_said_not_to_be_there_only_when_that_is_durable(
    stage: Stage, ledgers: ScriptedLedgers, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ask; what the first one has caused is not durable yet, and is never."""
    log = await stage.open(timeout_s=0.05)
    await log.access.fence(None)
    state = ledgers.newest
    recorded = log._state_log.recorded

    def unanswered(event: Event) -> asyncio.Future[None]:
        state.auto_ack = event[0] != "partitions" and state.auto_ack
        return recorded(event)

    monkeypatch.setattr(log._state_log, "recorded", unanswered)
    first = asyncio.create_task(log.access.find_key(RANGE, 2))
    await until(lambda: log.access._access.partitions == 2)
    second = asyncio.create_task(log.access.find_key(RANGE, 2))
    await asyncio.wait((first, second))
    third = asyncio.create_task(log.access.find_key(RANGE, 2))
    await asyncio.wait((third,))
    errors = [task.exception() for task in (first, second, third)]
    codes = [each.code if isinstance(each, FencelogError) else each for each in errors]
    unavailable = ErrorCode.BOOKIE_UNAVAILABLE
    assert codes == [ErrorCode.STATE_UNKNOWN, unavailable, unavailable]


async def test_those_who_ask_together_cause_one_change(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.broker.append.access_changes.MAX_WAITING_CHANGES", 1)
    log = await stage.open()
    assert await asyncio.gather(*(log.access.find_key(RANGE, 2) for _ in range(5))) == [None] * 5


async def test_a_terminated_partition_says_what_it_has(stage: Stage) -> None:
    log = await stage.open()
    first = await log.append_message(Message(b"a"), KEYED._replace(routed_by=1))
    await log.terminate()
    other = RANGE._replace(id=producer_digest(b"other"))
    for _ in range(2):
        found = await log.access.find_key(RANGE, 2)
        assert found is not None
        assert found.offset == first.offset
        assert await log.access.find_key(other, 2) is None
        log = await stage.open()
