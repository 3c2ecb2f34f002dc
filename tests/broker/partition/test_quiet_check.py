"""Owners that were replaced, and are asked only for messages."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.broker.background.retention_scheduler import RetentionScheduler
from fencelog.broker.ledger_list.store import LedgerListLost
from fencelog.broker.partition import quiet_check as module
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.read.stored import ReadLimits
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.port import Versioned
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import Stage, Until

GONE = FencelogError(ErrorCode.NO_OWNER, "let go")


@pytest.fixture(autouse=True)
def _quiet_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_CHECK_MS", 0)


async def read(log: PartitionLog) -> int:
    return (await log.read(0, ReadLimits(max_messages=10, max_bytes=1000))).tail_offset


async def test_an_old_tail_is_not_shown_for_ever(stage: Stage, until: Until) -> None:
    """The other broker lets the log go, so the owner node keeps naming the one that lost it."""
    previous = await stage.open()
    await previous.append_message(Message(b"0"))
    other = await stage.open()
    await other.append_message(Message(b"1"))
    await other.abandon(GONE)
    assert (await read(previous), previous.is_serving) == (1, True)
    scheduler = RetentionScheduler(lambda: [previous], period_s=0.01)
    scheduler.start()
    await until(lambda: not previous.is_serving)
    await scheduler.close()
    assert await read(await stage.open()) == 2


async def test_an_owner_that_was_replaced_finds_out_by_one_read(stage: Stage) -> None:
    previous = await stage.open()
    await stage.open()
    with pytest.raises(LedgerListLost):
        await previous.quiet_check.check()
    assert not previous.is_serving


async def test_requests_for_segments_alone_make_an_owner_check(stage: Stage) -> None:
    """As of Spark, which reads the messages elsewhere."""
    previous = await stage.open()
    await stage.open()
    await previous.segments()
    assert previous.quiet_check.is_due()
    with pytest.raises(LedgerListLost):
        await previous.quiet_check.check()
    with pytest.raises(FencelogError) as raised:
        await previous.segments()
    assert raised.value.code is ErrorCode.NO_OWNER


async def test_only_a_log_that_is_asked_and_quiet_is_checked(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await stage.open()
    assert not log.quiet_check.is_due()
    await read(log)
    assert log.quiet_check.is_due()
    await log.quiet_check.check()
    assert not log.quiet_check.is_due()
    monkeypatch.setattr(module, "QUIET_CHECK_MS", 60_000)
    loop, later_s = asyncio.get_running_loop(), [61.0]
    time = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + later_s[0])
    await read(log)
    assert log.quiet_check.is_due()
    await log.append_message(Message(b"0"))  # it could not, if it had been replaced
    assert not log.quiet_check.is_due()
    later_s.append(later_s.pop() + 61.0)
    assert log.quiet_check.is_due()


async def test_who_asks_while_the_owner_looks_has_it_look_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log may have been taken over after the list was read."""
    log = await stage.open()
    await read(log)

    async def asked_meanwhile() -> None:
        await read(log)

    monkeypatch.setattr(log._node, "check_epoch", asked_meanwhile)
    await log.quiet_check.check()
    assert log.quiet_check.is_due()


async def test_a_store_that_does_not_answer_says_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await stage.store()
    log = await stage.open(store=store)
    await stage.open()

    async def unavailable(path: str) -> Versioned:
        raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, path)

    with monkeypatch.context() as patch:
        patch.setattr(store, "get", unavailable)
        await log.quiet_check.check()
        assert log.is_serving
    with pytest.raises(LedgerListLost):
        await log.quiet_check.check()
