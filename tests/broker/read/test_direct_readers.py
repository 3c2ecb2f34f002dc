"""Owners that are asked for the ledgers of their log, by readers that read from bookies."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fencelog.broker.limits import OPENED_AT_ONCE
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import Stage
from tests.support.scripted_ledgers import ScriptedLedgers, ScriptedReader


async def refused(log: PartitionLog, *, confirmed: bool = False) -> ErrorCode:
    with pytest.raises(FencelogError) as raised:
        await log.segments(confirmed=confirmed)
    return raised.value.code


async def of_ledgers(stage: Stage, count: int) -> PartitionLog:
    """Open a log of so many ledgers of one message each, and of one that is being written."""
    log = await stage.open(max_entries=1)
    for _ in range(count):
        await log.append_message(Message(b"x"))
        await asyncio.sleep(0.02)
    return await stage.open(max_entries=1)


def ids(answer: dict[str, list[dict[str, dict[str, int]]]]) -> list[int]:
    return [segment["ledger"]["ledger_id"] for segment in answer["segments"]]


async def test_a_log_that_is_closed_names_no_ledgers(stage: Stage) -> None:
    log = await stage.open()
    await log.append_message(Message(b"0"))
    await log.close()
    assert await refused(log) is ErrorCode.DRAINING


async def test_a_log_that_is_closed_meanwhile_names_no_ledgers(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await of_ledgers(stage, 2)
    asking = asyncio.create_task(refused(log))
    await asyncio.sleep(0)
    log._reader.close(FencelogError(ErrorCode.NO_OWNER, "taken over"))
    assert await asking is ErrorCode.NO_OWNER


async def test_a_confirmed_answer_is_never_one_of_an_owner_that_was_replaced(stage: Stage) -> None:
    previous = await stage.open()
    await previous.append_message(Message(b"0"))
    owner = await stage.open()
    await owner.append_message(Message(b"1"))
    assert (await previous.segments())["end_offset"] == 1
    assert await refused(previous, confirmed=True) is ErrorCode.NO_OWNER
    assert not previous.is_serving
    assert await refused(previous) is ErrorCode.NO_OWNER
    assert (await owner.segments(confirmed=True))["end_offset"] == 2


async def test_an_answer_that_cannot_be_confirmed_is_none(stage: Stage) -> None:
    store = await stage.store()
    log = await stage.open(store=store, timeout_s=0.02)
    store.disconnect()
    assert await refused(log, confirmed=True) is ErrorCode.NO_OWNER
    assert (await log.segments())["end_offset"] == 0
    store.reconnect()
    assert (await log.segments(confirmed=True))["end_offset"] == 0
    assert log.is_serving


async def test_ranges_of_a_log_that_is_trimmed_within_a_ledger_begin_there(stage: Stage) -> None:
    log = await stage.open()
    for _ in range(4):
        await log.append_message(Message(b"x"))
    log._reader.trim(2)
    for each, fields in ((0, (0, 4, 0)), (3, (0, 4, 3))):
        answer = await log.segments(each)
        (found,) = answer["segments"]
        assert (answer["earliest_offset"], answer["end_offset"]) == (2, 4)
        assert (found["base_offset"], found["messages"], found["first_entry"]) == fields


async def test_ranges_of_a_log_that_has_ended_go_to_its_end(stage: Stage) -> None:
    log = await of_ledgers(stage, 2)
    await log.append_message(Message(b"x"))
    await log.terminate()
    for _ in range(2):
        answer = await log.segments(confirmed=True)
        assert [s["base_offset"] for s in answer["segments"]] == [0, 1, 2]
        assert answer["end_offset"] == 3
        assert [s["base_offset"] for s in (await log.segments(2))["segments"]] == [2]
        log = await stage.open()


async def test_metadata_of_a_ledger_is_read_anew_on_request(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    """Bookies of closed ledgers are replaced, which their log does not hear of."""
    log = await of_ledgers(stage, 2)
    first, second = ids(await log.segments())
    for ledger_id in (first, second):
        metadata = ledgers.closed[ledger_id]
        moved = replace(metadata.fragments[0], bookies=("b7", "b8", "b9"))
        ledgers.closed[ledger_id] = replace(metadata, fragments=(moved,))

    async def bookies(refresh: int | None) -> list[str]:
        answer = await log.segments(refresh=refresh)
        return [segment["ledger"]["fragments"][0][1][0] for segment in answer["segments"]]

    assert await bookies(None) == ["b0", "b0"]
    assert await bookies(second) == ["b0", "b7"]
    assert await bookies(999) == ["b0", "b7"]  # it is of no ledger of this log
    ledgers.deleted.add(first)
    log._reader.trim(1)
    assert await bookies(first) == ["b7"]


async def test_ledgers_are_opened_side_by_side_a_few_at_a_time(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await of_ledgers(stage, 3 * OPENED_AT_ONCE // 2)
    opened: list[int] = []
    most = opening = 0
    open_ledger = ledgers.open

    async def counted(ledger_id: int) -> ScriptedReader:
        nonlocal most, opening
        opened.append(ledger_id)
        opening += 1
        most = max(most, opening)
        try:
            return await open_ledger(ledger_id)
        finally:
            opening -= 1

    monkeypatch.setattr(ledgers, "open", counted)
    answer = await log.segments()
    assert most == OPENED_AT_ONCE
    assert ids(answer) == opened
    assert [each["base_offset"] for each in answer["segments"]] == [*range(len(opened))]
    assert (await log.segments(), len(opened)) == (answer, len(set(opened)))


async def test_a_ledger_that_cannot_be_opened_is_not_left_out(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await of_ledgers(stage, 3)
    ledgers.deleted.add(2)
    assert await refused(log) is ErrorCode.LEDGER_NOT_FOUND
