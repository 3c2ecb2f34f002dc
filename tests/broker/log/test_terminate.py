"""Logs that end for good: what is acknowledged, what is refused, and takeovers in between."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.broker.append.conditions import AppendConditions, AppendFuture
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.policy import Policy
from fencelog.broker.read.stored import ONE_MESSAGE, ReadLimits
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message, check_batch, encode_values
from tests.support.broker_stage import ReadAll, Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers


async def code_of(append: AppendFuture) -> ErrorCode:
    with pytest.raises(FencelogError) as raised:
        await append
    return raised.value.code


async def is_ended(log: PartitionLog, count: int) -> None:
    assert log.is_terminated
    assert (log.earliest_offset, log.tail_offset) == (0, count)
    assert await code_of(log.append_message(Message(b"late"))) is ErrorCode.TOPIC_TERMINATED


async def test_a_terminated_log_is_read_and_not_written(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    log = await stage.open()
    for number in range(3):
        await log.append_message(Message(b"%d" % number))
    waiting = asyncio.create_task(
        log.read(3, ReadLimits(max_messages=1, max_bytes=1, wait_ms=60_000))
    )
    await asyncio.sleep(0)
    await log.terminate()
    assert (await waiting).entries == []
    await is_ended(log, 3)
    assert await read_all(log) == [b"0", b"1", b"2"]
    ledger_list = (await stage.node()).ledger_list
    assert (ledger_list.terminated, ledger_list.next_base) == (True, 3)
    await log.terminate()
    at_the_end = await log.read(3, ReadLimits(max_messages=1, max_bytes=1, wait_ms=60_000))
    assert at_the_end.entries == []


async def test_a_takeover_of_a_terminated_log_makes_no_ledger(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    log = await stage.open()
    await log.append_message(Message(b"0"))
    await log.terminate()
    await log.close()
    made = len(ledgers.writers)
    again = await stage.open()
    await is_ended(again, 1)
    assert await read_all(again) == [b"0"]
    assert len(ledgers.writers) == made
    await again.terminate()
    await again.close()
    assert (await stage.open()).is_terminated


async def test_what_was_on_its_way_is_acknowledged_first(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    ledgers.auto_ack = False
    log = await stage.open()
    batch = encode_values([b"a"])
    sent = log.append_batch(batch, check_batch(batch))
    await asyncio.sleep(0)
    ending = asyncio.create_task(log.terminate())
    await asyncio.sleep(0)
    late = log.append_batch(batch, check_batch(batch))
    await asyncio.sleep(0.01)
    assert not ending.done()
    assert len(ledgers.newest.payloads) == 1
    ledgers.newest.ack(0)
    await ending
    assert sent.result().offset == 0
    assert await code_of(late) is ErrorCode.TOPIC_TERMINATED
    await is_ended(log, 1)


async def test_a_ledger_that_fails_meanwhile_is_recovered_and_not_followed(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    ledgers.auto_ack = False
    log = await stage.open()
    batch = encode_values([b"a"])
    appends = [log.append_batch(batch, check_batch(batch)) for _ in range(3)]
    await asyncio.sleep(0)
    ending = asyncio.create_task(log.terminate())
    await asyncio.sleep(0.01)
    ledgers.stored[1] = 1
    ledgers.newest.fail(FencelogError(ErrorCode.APPEND_UNKNOWN, "two bookies are gone"))
    await ending
    assert [appends[0].result().offset, appends[1].result().offset] == [0, 1]
    assert await code_of(appends[2]) is ErrorCode.TOPIC_TERMINATED
    await is_ended(log, 2)
    assert len(ledgers.writers) == 1


async def test_a_lost_reply_is_no_lost_end(stage: Stage, ledgers: ScriptedLedgers) -> None:
    log = await stage.open()
    await log.append_message(Message(b"0"))
    stage.stores[0].lose_replies(1)
    await log.terminate()
    await is_ended(log, 1)


async def test_who_was_replaced_ends_nothing_and_says_that_it_does_not_know(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open()
    await log.append_message(Message(b"0"))
    new = await stage.open()
    with pytest.raises(FencelogError) as raised:
        await log.terminate()
    assert raised.value.code is ErrorCode.METADATA_UNKNOWN
    assert not new.is_terminated
    assert (await new.append_message(Message(b"1"))).offset == 1


async def test_an_owner_that_dies_between_closing_and_the_list_ends_nothing(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    store = await stage.store()
    log = await stage.open(store=store)
    await log.append_message(Message(b"0"))
    store.disconnect()
    ending = asyncio.create_task(log.terminate())
    await asyncio.sleep(0.05)
    new = await stage.open()
    assert not new.is_terminated
    assert (await new.append_message(Message(b"1"))).offset == 1
    store.reconnect()
    with pytest.raises(FencelogError) as raised:
        await ending
    assert raised.value.code is ErrorCode.METADATA_UNKNOWN


async def test_a_closing_log_is_not_terminated(stage: Stage) -> None:
    log = await stage.open()
    await log.close()
    with pytest.raises(FencelogError) as raised:
        await log.terminate()
    assert raised.value.code is ErrorCode.DRAINING


async def test_retention_may_empty_a_terminated_log(stage: Stage, ledgers: ScriptedLedgers) -> None:
    log = await stage.open(policy=Policy(retention_ms=1_000))
    await log.append_message(Message(b"0"))
    await log.terminate()
    stage.host.clock_us += 2_000_000
    await log.retention.tend()
    assert ledgers.deleted == {1}
    assert (log.earliest_offset, log.tail_offset) == (1, 1)
    again = await stage.open()
    assert (again.is_terminated, again.earliest_offset, again.tail_offset) == (True, 1, 1)
    for each in (log, again):
        with pytest.raises(FencelogError) as raised:
            await each.read(0, ONE_MESSAGE)
        assert raised.value.code is ErrorCode.OFFSET_TRIMMED
        described = await each.segments()
        assert (described["segments"], described["end_offset"]) == ([], 1)


async def test_appends_that_a_quota_holds_are_refused_by_the_end(stage: Stage) -> None:
    log = await stage.open(policy=Policy(backlog_action="hold", backlog_quota_bytes=1))
    log._admission.over_quota(True)
    held = log.append_message(Message(b"0"))
    await asyncio.sleep(0)
    await log.terminate()
    assert await code_of(held) is ErrorCode.TOPIC_TERMINATED


async def test_a_store_that_is_away_does_not_hold_appends_for_ever(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    store = await stage.store()
    log = await stage.open(store=store, timeout_s=0.05)
    await log.append_message(Message(b"0"))
    store.disconnect()
    ending = asyncio.create_task(log.terminate())
    await asyncio.sleep(0)
    await until(lambda: log._pipeline.mode.is_held)
    held = log.append_message(Message(b"held"))
    bound = log.append_message(Message(b"bound"), AppendConditions(if_offset=1))
    async with asyncio.timeout(5):
        assert await code_of(held) is ErrorCode.BOOKIE_UNAVAILABLE
        assert await code_of(bound) is ErrorCode.BOOKIE_UNAVAILABLE
    refused = log.append_message(Message(b"refused")).exception()
    assert isinstance(refused, FencelogError)
    assert refused.code is ErrorCode.BOOKIE_UNAVAILABLE
    assert not ending.done()
    store.reconnect()
    await ending
    assert log.pending_bytes == 0
    await is_ended(log, 1)
    assert (await stage.node()).ledger_list.terminated
