"""A ledger that fails under the log: what was in it is acknowledged, the rest goes to the next."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.broker.append.pending import AppendResult
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message, check_batch, encode_values
from tests.support.broker_stage import ReadAll, Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers, ScriptedWriter

FAILED = FencelogError(ErrorCode.APPEND_UNKNOWN, "two bookies are gone")
FENCED = FencelogError(ErrorCode.LEDGER_FENCED, "fenced")


async def codes_of(*futures: asyncio.Future[AppendResult]) -> list[ErrorCode | None]:
    """Return what each ends with: an error's code, None for success."""
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    return [outcome.code if isinstance(outcome, FencelogError) else None for outcome in outcomes]


async def in_flight(
    log: PartitionLog, writer: ScriptedWriter, count: int, until: Until
) -> list[asyncio.Future[AppendResult]]:
    """Append so many entries of one message each, sent to the ledger and not acknowledged."""
    writer.auto_ack = False
    futures = []
    for number in range(count):
        batch = encode_values([b"%d" % number])
        futures.append(log.append_batch(batch, check_batch(batch)))
    await until(lambda: len(writer.payloads) == count)
    return futures


def is_written_to(log: PartitionLog, writer: ScriptedWriter | None) -> bool:
    present = log._writer.ledger
    return present is not None and present.writer is writer


@pytest.mark.parametrize("found", [-1, 0, 2, 4])
async def test_what_recovery_finds_is_acknowledged_and_the_rest_sent_again(
    stage: Stage, ledgers: ScriptedLedgers, until: Until, read_all: ReadAll, found: int
) -> None:
    log = await stage.open()
    futures = await in_flight(log, ledgers.newest, 5, until)
    ledgers.stored[1] = found
    ledgers.newest.fail(FAILED)
    assert [(await future).offset for future in futures] == [0, 1, 2, 3, 4]
    await until(lambda: 2 in ledgers.writers and log._node.ledger_list.segments[-1].ledger_id == 2)
    assert len(ledgers.writers[2].payloads) == 4 - found
    assert await read_all(log) == [b"0", b"1", b"2", b"3", b"4"]
    assert ledgers.log == ["create 1", "recover 1", "create 2"]
    ledger_list = (await stage.node()).ledger_list
    sealed = ledger_list.segments[0].sealed
    assert sealed is not None
    assert sealed.entries == found + 1
    assert ledger_list.segments[1].base_offset == found + 1
    # The next owner sees the same log.
    assert await read_all(await stage.open()) == [b"0", b"1", b"2", b"3", b"4"]


async def test_what_recovery_finds_counts_while_no_ledger_follows(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    """A backlog quota would take a subscription for within it."""
    log = await stage.open()
    futures = await in_flight(log, ledgers.newest, 3, until)
    writer = ledgers.newest
    writer.ack(0)
    ledgers.stored[1] = 1
    ledgers.create_errors = [FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "one is left")] * 99
    writer.fail(FAILED)
    await until(lambda: log.tail_offset == 2)
    assert writer.length == len(writer.payloads[0])
    assert log.stored_bytes() == sum(len(payload) for payload in writer.payloads[:2])
    ledgers.create_errors = []
    assert [(await future).offset for future in futures] == [0, 1, 2]


async def test_nothing_is_sent_again_before_the_old_ledgers_end_is_known(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open()
    futures = await in_flight(log, ledgers.newest, 2, until)
    ledgers.recover_errors = [FencelogError(ErrorCode.RECOVERY_INCOMPLETE, "b1 is away")] * 3
    ledgers.newest.fail(FAILED)
    await asyncio.sleep(0.05)
    assert len(ledgers.writers) == 1
    assert not any(future.done() for future in futures)
    assert [(await future).offset for future in futures] == [0, 1]


async def test_appends_during_a_repair_wait_and_keep_their_order(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open()
    futures = await in_flight(log, ledgers.newest, 2, until)
    ledgers.create_gate.clear()
    ledgers.stored[1] = 0
    ledgers.newest.fail(FAILED)
    await until(lambda: "recover 1" in ledgers.log)
    later = log.append_message(Message(b"later"))
    await asyncio.sleep(0.02)
    assert [f.done() for f in (*futures, later)] == [True, False, False]
    ledgers.create_gate.set()
    assert [(await f).offset for f in (*futures, later)] == [0, 1, 2]


async def test_a_ledger_fenced_by_a_new_owner_is_not_fought_over(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    zombie = await stage.open()
    futures = await in_flight(zombie, ledgers.newest, 2, until)
    waiting = zombie.append_message(Message(b"waiting"))
    ledgers.stored[1] = 0
    ledgers.auto_ack = True
    owner = await stage.open()
    before = (await stage.node()).ledger_list
    ledgers.writers[1].fail(FENCED)
    unwritten = zombie.append_message(Message(b"never handed over"))
    assert await codes_of(*futures, waiting, unwritten) == [
        ErrorCode.APPEND_UNKNOWN,
        ErrorCode.APPEND_UNKNOWN,
        ErrorCode.APPEND_UNKNOWN,
        ErrorCode.NO_OWNER,
    ]
    assert not zombie.is_serving
    assert (await stage.node()).ledger_list == before
    assert len(ledgers.writers) == 2
    assert (await owner.append_message(Message(b"x"))).offset == 1


async def test_a_ledger_fenced_by_nobody_in_the_list_is_replaced(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    """An auditor recovered it: the ledger list is as it was, so the log goes on."""
    log = await stage.open()
    await log.append_message(Message(b"a"))
    await ledgers.recover(1)
    assert (await log.append_message(Message(b"b"))).offset == 1
    assert len(ledgers.writers) == 2
    assert log.epoch == 1


async def test_a_leader_elsewhere_ends_the_log_before_it_repairs(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    async def not_leader() -> bool:
        return False

    log = await stage.open(is_leader=not_leader)
    futures = await in_flight(log, ledgers.newest, 1, until)
    ledgers.newest.fail(FAILED)
    assert await codes_of(*futures) == [ErrorCode.APPEND_UNKNOWN]
    assert ledgers.log == ["create 1"]


async def test_callers_are_told_when_a_repair_takes_too_long(
    stage: Stage, ledgers: ScriptedLedgers, until: Until, read_all: ReadAll
) -> None:
    log = await stage.open(timeout_s=0.05)
    handed = await in_flight(log, ledgers.newest, 3, until)
    ledgers.create_gate.clear()
    ledgers.recover_errors = [FencelogError(ErrorCode.RECOVERY_INCOMPLETE, "b1 is away")] * 2
    ledgers.stored[1] = 1
    ledgers.newest.fail(FAILED)
    waiting = log.append_message(Message(b"waiting"))
    assert await codes_of(*handed, waiting) == [
        *[ErrorCode.APPEND_UNKNOWN] * 3,
        ErrorCode.BOOKIE_UNAVAILABLE,
    ]
    refused = log.append_message(Message(b"refused")).exception()
    assert isinstance(refused, FencelogError)
    assert refused.code is ErrorCode.BOOKIE_UNAVAILABLE
    ledgers.create_gate.set()
    await until(lambda: is_written_to(log, ledgers.writers.get(2)))
    # Entries that recovery found are in the log; the one it did not find is not sent again.
    assert (await log.append_message(Message(b"after"))).offset == 2
    assert await read_all(log) == [b"0", b"1", b"after"]
    assert log.pending_bytes == 0


async def test_a_repair_goes_on_over_lost_replies_and_failed_creates(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    store = await stage.store()
    log = await stage.open(store=store)
    futures = await in_flight(log, ledgers.newest, 2, until)
    ledgers.create_errors = [
        FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "one is left"),
        FencelogError(ErrorCode.METADATA_UNAVAILABLE, "away"),
    ]
    ledgers.before_create = lambda: store.lose_replies(1)
    ledgers.stored[1] = 0
    ledgers.newest.fail(FAILED)
    assert [(await future).offset for future in futures] == [0, 1]
    assert ledgers.deleted == set()
    ledger_list = (await stage.node()).ledger_list
    assert [s.ledger_id for s in ledger_list.segments] == [1, 2]


async def test_a_recovery_below_an_acknowledged_entry_stops_the_log(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    """Acknowledged data is gone: nothing may be acknowledged on top of that."""
    log = await stage.open()
    await log.append_message(Message(b"a"))
    ledgers.newest.auto_ack = False
    future = log.append_message(Message(b"b"))
    await asyncio.sleep(0.01)
    ledgers.stored[1] = -1
    ledgers.newest.fail(FAILED)
    with pytest.raises(FencelogError) as raised:
        await future
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
    assert not log.is_serving
