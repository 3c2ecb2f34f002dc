"""Views whose ledger is gone, whose log was trimmed behind them, or whose owner was replaced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.read.stored import ONE_MESSAGE, ReadLimits, ReadResult
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.broker.compaction.test_compaction import append, shown, view_of
from tests.support.broker_stage import Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers

DAY_US = 86_400_000_000


async def rolled(log: PartitionLog, until: Until) -> None:
    """Wait until all messages are in ledgers that are sealed."""

    def is_rolled() -> bool:
        sealed = [each for each in log._node.ledger_list.segments if each.sealed is not None]
        return bool(sealed) and sealed[-1].end_offset == log.tail_offset

    await until(is_rolled)


async def test_an_empty_view_below_a_gap_is_compacted(stage: Stage, until: Until) -> None:
    """It has nothing that could be read, and behind it the log is trimmed."""
    log = await stage.open(max_entries=1)
    await append(log, "a=")
    await log.compaction.run()
    await append(log, "b=1")
    await rolled(log, until)
    log._reader.trim(2)
    await log.compaction.run()
    assert (log.compaction.status()["messages"], log.compaction.horizon) == (0, 2)
    await append(log, "c=1")
    await append(log, "d=1")
    await rolled(log, until)
    log._reader.trim(3)
    await log.compaction.run()
    assert log.compaction.status()["error"] is None
    assert shown(await view_of(log)) == "3:d=1"


async def view_gone_since_backup(stage: Stage, **options: int) -> PartitionLog:
    """A log of a=1 b=1 a=2 c=1, one entry a ledger but the first two; its list names the view of
    the first two, as a backup did, whose ledger was deleted since."""
    log = await stage.open(max_entries=1)
    await append(log, "a=1 b=1")
    await log.compaction.run()
    old = log._node.ledger_list.compacted
    assert old is not None
    await append(log, "a=2")
    await log.compaction.run()
    await log._node.change(lambda ledger_list: replace(ledger_list, compacted=old))
    await log.close()
    log = await stage.open()
    await append(log, "c=1")
    return log


async def test_a_view_whose_ledger_is_gone_is_made_anew(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Else every pass fails for ever, and retention waits for it."""
    log = await view_gone_since_backup(stage)
    with pytest.raises(FencelogError) as raised:
        await view_of(log)
    assert raised.value.code is ErrorCode.LEDGER_NOT_FOUND
    await log.compaction.run()
    assert log.compaction.status()["error"] is None
    assert shown(await view_of(log)) == "1:b=1 2:a=2 3:c=1"
    assert "made anew from the log, which begins at 0" in caplog.text


async def test_a_view_that_is_gone_is_not_replaced_by_one_that_ends_before_it(stage: Stage) -> None:
    log = await view_gone_since_backup(stage)
    log.compaction._max_keys = 1
    await log.compaction.run()
    assert log.compaction.horizon == 2
    assert (
        "1 keys end at 1, the view before, which is gone, at 2" in log.compaction.status()["error"]
    )


async def test_a_view_that_is_there_is_not_given_up_for_a_ledger_of_the_log(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have what the log has trimmed."""
    log = await stage.open()
    await append(log, "a=1 b=1")
    await log.compaction.run()
    await log.close()
    log = await stage.open()
    await append(log, "c=1")
    log._reader.trim(2)
    read, lost = log._reader.read, [FencelogError(ErrorCode.LEDGER_NOT_FOUND, "no ledger 1")]

    async def lost_once(offset: int, limits: ReadLimits) -> ReadResult:
        if lost:
            raise lost.pop()
        return await read(offset, limits)

    monkeypatch.setattr(log._reader, "read", lost_once)
    await log.compaction.run()
    assert log.compaction.status()["state"] == "failed"
    await log.compaction.run()
    assert log.compaction.status()["state"] == "ready"
    assert shown(await view_of(log)) == "0:a=1 1:b=1 2:c=1"


@pytest.mark.parametrize("what", ["read", "time"])
async def test_an_owner_whose_successor_has_replaced_the_view_says_so(
    stage: Stage, what: str
) -> None:
    """Its ledger is deleted then; that is no mistake of the client's."""
    log = await stage.open()
    await append(log, "a=1 b=1")
    await log.compaction.run()
    following = await stage.open()
    await append(following, "a=2")
    await following.compaction.run()
    view = log.compaction.view
    with pytest.raises(FencelogError) as raised:
        await (view.read(0, ONE_MESSAGE) if what == "read" else view.offset_for_time(1))
    assert raised.value.code is ErrorCode.NO_OWNER


@pytest.mark.parametrize("what", ["read", "time"])
async def test_an_owner_whose_successor_has_trimmed_the_log_says_so(
    stage: Stage, ledgers: ScriptedLedgers, until: Until, what: str
) -> None:
    first = await stage.open(max_entries=1)
    await append(first, "a=1 b=1")
    await append(first, "a=2")
    await rolled(first, until)
    await first.close()
    replaced = await stage.open()
    await stage.open()
    ledgers.deleted.add(replaced._node.ledger_list.segments[0].ledger_id)
    with pytest.raises(FencelogError) as raised:
        await (replaced.read(0, ONE_MESSAGE) if what == "read" else replaced.offset_for_time(1))
    assert raised.value.code is ErrorCode.NO_OWNER


async def test_a_clock_that_was_ahead_delays_no_pass(stage: Stage) -> None:
    stage.host.clock_us = 100 * DAY_US
    log = await stage.open()
    await append(log, "a=1")
    await log.compaction.run()
    await log.close()
    stage.host.clock_us -= DAY_US
    log = await stage.open()
    await append(log, "a=2")
    assert log.compaction.due_us(60_000) == 0
    await log.compaction.run()
    assert log.compaction.due_us(60_000) is None
