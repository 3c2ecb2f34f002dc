"""Rolling to a new ledger: order over the boundary, one roll at a time, faults in between."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.broker.append.pending import AppendFuture
from fencelog.broker.ledger_list import store
from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message, check_batch, encode_values
from tests.support.broker_stage import ReadAll, Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers


def message(number: int) -> Message:
    return Message(b"%d" % number)


def append_entry(log: PartitionLog, number: int) -> AppendFuture:
    """A message that does not wait for those before it: a whole batch, an entry of its own."""
    batch = encode_values([b"%d" % number])
    return log.append_batch(batch, check_batch(batch))


async def test_a_log_rolls_by_entries_and_keeps_its_offsets(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    log = await stage.open(max_entries=2)
    offsets = []
    for number in range(9):
        offsets.append((await log.append_message(message(number))).offset)
        await asyncio.sleep(0.02)
    assert offsets == list(range(9))
    assert len(ledgers.writers) == 5
    assert await read_all(log) == [b"%d" % number for number in range(9)]
    ledger_list = (await stage.node()).ledger_list
    assert [s.base_offset for s in ledger_list.segments] == [0, 2, 4, 6, 8]
    assert [s.sealed.entries for s in ledger_list.segments if s.sealed] == [2, 2, 2, 2]


async def test_a_ledger_whose_listing_is_refused_is_deleted_and_the_roll_is_made_later(
    stage: Stage, ledgers: ScriptedLedgers, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list has grown too long for its node; the retention makes room."""
    log = await stage.open(max_entries=1)

    def too_long(ledger_list: LedgerList) -> bytes:
        raise FencelogError(ErrorCode.BAD_REQUEST, "too long")

    with monkeypatch.context() as patch:
        patch.setattr(store, "encode_ledger_list", too_long)
        await log.append_message(message(0))
        await until(lambda: "delete 2" in ledgers.log)
        await log.append_message(message(1))
    assert [s.ledger_id for s in (await stage.node()).ledger_list.segments] == [1]
    monkeypatch.setattr(log._writer._core._rolls, "_not_before_s", 0.0)
    await log.append_message(message(2))
    await until(lambda: "close 1" in ledgers.log)
    await log.append_message(message(3))
    assert [s.ledger_id for s in (await stage.node()).ledger_list.segments][:2] == [1, 3]


async def test_an_old_ledger_is_closed_before_the_next_roll_begins(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open(max_entries=1)
    futures = [log.append_message(message(n)) for n in range(2)]
    for number in range(2, 8):
        futures.append(log.append_message(message(number)))
        await asyncio.sleep(0.01)
    await asyncio.gather(*futures)
    unclosed = 0
    for step in ledgers.log:
        unclosed += {"create": 1, "close": -1}[step.split()[0]]
        assert unclosed <= 2
    assert ledgers.log.count("close 1") == 1


async def test_the_new_ledger_waits_until_the_old_one_is_drained(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    """Message 8 must never be in the new ledger while message 7 is not in the old one."""
    log = await stage.open(max_entries=1)
    old = ledgers.newest
    old.auto_ack = False
    ledgers.auto_ack = True
    first = log.append_message(message(0))
    await until(lambda: len(old.payloads) == 1)
    second = append_entry(log, 1)
    await until(lambda: len(old.payloads) == 2)
    old.ack(0)  # the roll begins, with one entry outstanding
    await until(lambda: len(ledgers.writers) == 2)
    await asyncio.sleep(0.02)
    third = log.append_message(message(2))
    await asyncio.sleep(0.02)
    new = ledgers.newest
    assert [len(old.payloads), len(new.payloads)] == [2, 0]
    assert [f.done() for f in (first, second, third)] == [True, False, False]
    assert "close 1" not in ledgers.log
    old.ack(1)
    assert (await third).offset == 2
    assert len(new.payloads) == 1
    await until(lambda: "close 1" in ledgers.log)


async def test_writing_goes_on_while_the_list_cannot_be_changed(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    store = await stage.store()
    log = await stage.open(store=store, max_entries=2)
    store.disconnect()
    for number in range(6):
        assert (await log.append_message(message(number))).offset == number
    assert len(ledgers.writers[1].payloads) == 6
    store.reconnect()
    await until(lambda: "close 1" in ledgers.log)
    assert (await log.append_message(message(6))).offset == 6
    assert len(ledgers.writers[2].payloads) == 1


async def test_a_roll_that_finds_no_bookies_leaves_the_old_ledger_in_use(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open(max_entries=1)
    ledgers.create_errors = [FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "one is left")]
    for number in range(3):
        assert (await log.append_message(message(number))).offset == number
        await asyncio.sleep(0.01)
    assert len(ledgers.writers) == 1
    assert len(ledgers.writers[1].payloads) == 3


async def test_a_roll_whose_list_was_changed_ends_the_log(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open(max_entries=1)
    usurper = await stage.node()
    await usurper.change(lambda ledger_list: ledger_list)  # anything under another token
    await log.append_message(message(0))
    await until(lambda: not log.is_serving)
    error = log.append_message(message(1)).exception()
    assert isinstance(error, FencelogError)
    assert error.code is ErrorCode.NO_OWNER
    # Its new ledger is on no list and is removed; the one that is listed is not.
    await until(lambda: ledgers.deleted == {2})


async def test_a_lost_reply_in_a_roll_is_no_loss(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    store = await stage.store()
    log = await stage.open(store=store, max_entries=1)
    ledgers.before_create = lambda: store.lose_replies(1)
    await log.append_message(message(0))
    await until(lambda: "close 1" in ledgers.log)
    assert (await log.append_message(message(1))).offset == 1
    assert ledgers.deleted == set()


async def test_an_old_ledger_that_fails_during_the_roll_is_recovered_first(
    stage: Stage, ledgers: ScriptedLedgers, until: Until, read_all: ReadAll
) -> None:
    log = await stage.open(max_entries=1)
    old = ledgers.newest
    old.auto_ack = False
    futures = []
    for number in range(3):
        futures.append(append_entry(log, number))
        await asyncio.sleep(0.01)
    assert len(old.payloads) == 3
    old.ack(0)
    await until(lambda: len(ledgers.writers) == 2)
    ledgers.stored[1] = 1  # recovery will find entries 0 and 1, not 2
    old.fail(FencelogError(ErrorCode.APPEND_UNKNOWN, "two bookies are gone"))
    assert [(await future).offset for future in futures] == [0, 1, 2]
    assert len(ledgers.writers[2].payloads) == 1
    assert await read_all(log) == [b"0", b"1", b"2"]
    await until(lambda: not log._node.ledger_list.is_rolling)
    ledger_list = (await stage.node()).ledger_list
    assert [s.sealed.entries for s in ledger_list.segments if s.sealed][:1] == [2]
    assert ledger_list.segments[1].base_offset == 2


async def test_a_roll_in_a_log_that_was_lost_meanwhile_ends_there(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    """Another part of the log has met the next owner's list while the roll waits for a recovery.
    An append that was let in then would never be answered."""
    log = await stage.open(max_entries=1)
    old = ledgers.newest
    old.auto_ack = False
    for number in range(2):
        append_entry(log, number).add_done_callback(lambda future: future.exception())
    await until(lambda: len(old.payloads) == 2)
    ledgers.recover_gate.clear()
    old.ack(0)
    await until(lambda: log._node.ledger_list.is_rolling)
    old.fail(FencelogError(ErrorCode.APPEND_UNKNOWN, "two bookies are gone"))
    await asyncio.sleep(0.01)
    await (await stage.node()).change(lambda ledger_list: ledger_list.with_start(1))
    with pytest.raises(FencelogError) as raised:
        await log.retention.trim(1)
    assert raised.value.code is ErrorCode.NO_OWNER
    ledgers.recover_gate.set()
    await asyncio.sleep(0.01)
    with pytest.raises(FencelogError) as raised:
        await asyncio.wait_for(append_entry(log, 1), timeout=10)
    assert raised.value.code is ErrorCode.NO_OWNER


async def test_a_drained_ledger_that_cannot_be_closed_is_recovered(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open(max_entries=2)
    ledgers.newest.close_error = FencelogError(ErrorCode.LEDGER_FENCED, "an auditor is at it")
    for number in range(4):
        assert (await log.append_message(message(number))).offset == number
        await asyncio.sleep(0.01)
    await until(lambda: "recover 1" in ledgers.log)
    await until(lambda: not log._node.ledger_list.is_rolling)
    assert log.is_serving


async def test_a_log_rolls_by_age_and_never_an_empty_ledger(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open(max_age_s=0.05)
    await asyncio.sleep(0.15)
    assert len(ledgers.writers) == 1
    await log.append_message(message(0))
    await until(lambda: len(ledgers.writers) == 2)
    await asyncio.sleep(0.15)
    assert len(ledgers.writers) == 2


async def test_ranges_do_not_overlap_while_the_old_ledger_is_closed(
    stage: Stage, ledgers: ScriptedLedgers, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await stage.open(max_entries=2)
    monkeypatch.setattr(ledgers.newest, "close", asyncio.Event().wait)  # it hangs
    for number in range(2):
        await append_entry(log, number)
    await until(lambda: len(log._reader._segments) == 2)
    for number in range(2, 5):
        await append_entry(log, number)
    found = await log.segments()
    assert [(s["base_offset"], s["messages"]) for s in found["segments"]] == [(0, 2), (2, 3)]
