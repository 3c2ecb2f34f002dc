"""Ledgers that are let go: by age, by size, on request; with owners that change at every step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import pytest

from fencelog.broker.append.conditions import AppendConditions
from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.broker.ledger_list.store import LedgerListLost
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.policy import BACKLOG_EVICT, Policy
from fencelog.broker.read.stored import ONE_MESSAGE, CompactedBatch, ReadLimits
from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_SEQUENCE, SequenceRange
from fencelog.ledgers.metastore.port import Change, Version
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers

SECOND = 1_000_000
AGED = Policy(roll_entries=1, retention_ms=10_000)
SUBSCRIPTION = SubscriptionInfo("s", "s-id", SubscriptionConfig(), "earliest")


class Fill(Protocol):
    """Opens a log and fills it."""

    async def __call__(self, policy: Policy = AGED, messages: int = 4) -> PartitionLog: ...


@pytest.fixture
def filled(stage: Stage, until: Until) -> Fill:
    """Open a log and give it messages of a second each, a ledger for every one."""

    async def fill(policy: Policy = AGED, messages: int = 4) -> PartitionLog:
        log = await stage.open(policy=policy)
        for number in range(messages):
            stage.host.clock_us += SECOND
            await log.append_message(Message(b"%d" % number))
            if policy.roll_entries == 1:
                await until(partial(has_sealed, log, number + 1))
        return log

    return fill


def has_sealed(log: PartitionLog, count: int) -> bool:
    sealed = [segment["sealed"] for segment in log.internals()["segments"]]
    return sealed.count(True) == count


def ledgers_of(log: PartitionLog) -> list[int]:
    return [segment["ledger_id"] for segment in log.internals()["segments"]]


async def offsets_of(log: PartitionLog) -> list[int]:
    found, offset = [], log.earliest_offset
    while offset < log.tail_offset:
        result = await log.read(offset, ReadLimits(max_messages=100, max_bytes=1 << 20))
        found += [stored.base_offset for stored in result.entries]
        offset = result.next_offset
    return found


async def refused(log: PartitionLog, offset: int) -> FencelogError:
    with pytest.raises(FencelogError) as raised:
        await log.read(offset, ONE_MESSAGE)
    return raised.value


async def test_what_has_expired_is_unlisted_first_and_deleted_then(
    stage: Stage, ledgers: ScriptedLedgers, filled: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await filled()
    assert not log.retention.is_due()
    stage.host.clock_us += 9 * SECOND
    assert log.retention.is_due()
    listed_at_delete: list[bool] = []
    delete = ledgers.delete

    async def look(ledger_id: int, **options: bool) -> None:
        listed_at_delete.append(ledger_id in (await stage.node()).ledger_list.ledgers)
        await delete(ledger_id, **options)

    monkeypatch.setattr(ledgers, "delete", look)
    await log.retention.tend()
    assert listed_at_delete == [False, False]
    assert ledgers.deleted == {1, 2}
    assert (log.earliest_offset, log.tail_offset) == (2, 4)
    error = await refused(log, 1)
    assert (error.code, error.extra["earliest_offset"]) == (ErrorCode.OFFSET_TRIMMED, 2)
    assert await offsets_of(log) == [2, 3]
    again = await stage.open(policy=AGED)
    assert (again.earliest_offset, again.tail_offset) == (2, 4)
    assert await offsets_of(again) == [2, 3]


async def test_what_is_beyond_the_size_that_is_kept_goes(
    stage: Stage, ledgers: ScriptedLedgers, filled: Fill
) -> None:
    log = await filled(Policy(roll_entries=1))
    sizes = [segment.get("size", 0) for segment in log.internals()["segments"]]
    log.apply_policy(Policy(roll_entries=1, retention_bytes=sizes[2] + sizes[3]))
    await log.retention.tend()
    assert ledgers.deleted == {1, 2}


async def test_an_idle_topic_gives_its_last_messages_back(
    stage: Stage, ledgers: ScriptedLedgers, filled: Fill, until: Until
) -> None:
    """apache/pulsar 7184, 24855: the ledger that was written last was never let go."""
    log = await filled(Policy(retention_ms=10_000), messages=0)
    await log.append_message(Message(b"x"))
    stage.host.clock_us += 11 * SECOND
    await log.retention.tend()
    await until(lambda: len(ledgers_of(log)) == 2)
    await until(lambda: log.internals()["segments"][0]["sealed"])
    await log.retention.tend()
    assert ledgers_of(log) == [2]
    assert (log.earliest_offset, log.tail_offset) == (1, 1)
    await log.retention.tend()
    assert ledgers_of(log) == [2]  # an empty ledger is not rolled again
    assert (await log.append_message(Message(b"y"))).offset == 1


async def test_a_subscription_keeps_what_it_has_not_acknowledged(
    stage: Stage, ledgers: ScriptedLedgers, filled: Fill
) -> None:
    log = await filled()
    await log.subscriptions.open(SUBSCRIPTION, start_offset=1)
    stage.host.clock_us += 99 * SECOND
    await log.retention.tend()
    assert (ledgers.deleted, log.earliest_offset) == ({1}, 1)
    await log.subscriptions.acknowledge_below(SUBSCRIPTION.subscription_id, 3)
    await log.retention.tend()
    assert log.earliest_offset == 3


async def test_a_policy_may_take_it_all_the_same(
    stage: Stage, ledgers: ScriptedLedgers, filled: Fill
) -> None:
    log = await filled()
    await log.subscriptions.open(SUBSCRIPTION, start_offset=1)
    taking = Policy(roll_entries=1, retention_ms=10_000, trim_unacknowledged=True)
    log.apply_policy(taking)
    stage.host.clock_us += 99 * SECOND
    await log.retention.tend()
    assert log.earliest_offset == 4
    assert log.subscriptions.stats(SUBSCRIPTION.subscription_id)["acked_to"] == 4


async def test_a_cursor_that_comes_during_the_trim_is_seen_or_begins_behind_it(
    stage: Stage, ledgers: ScriptedLedgers, filled: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn in which the change begins decides which ledgers go: a cursor that is opened before
    then is respected, one after it begins where the log does."""
    log = await filled()
    stage.host.clock_us += 99 * SECOND
    settle = log.retention._ensure_persisted

    async def open_meanwhile(offset: int) -> None:
        await settle(offset)
        await log.subscriptions.open(SUBSCRIPTION, start_offset=2)

    monkeypatch.setattr(log.retention, "_ensure_persisted", open_meanwhile)
    await log.retention.tend()
    assert log.earliest_offset == 2
    change = log._node.change

    async def open_after_deciding(next_of: Callable[[LedgerList], LedgerList]) -> None:
        def decide(ledger_list: LedgerList) -> LedgerList:
            decided = next_of(ledger_list)
            log.subscriptions._cursors.drop(SUBSCRIPTION.subscription_id)
            opening = log.subscriptions.open(late, start_offset=0)
            opened.append(asyncio.get_running_loop().create_task(opening))
            return decided

        await change(decide)

    opened: list[asyncio.Task[None]] = []
    late = SubscriptionInfo("late", "late-id", SubscriptionConfig(), "earliest")
    monkeypatch.setattr(log.retention, "_ensure_persisted", settle)
    await log.subscriptions.acknowledge_below(SUBSCRIPTION.subscription_id, 3)
    monkeypatch.setattr(log._node, "change", open_after_deciding)
    await log.retention.tend()
    monkeypatch.setattr(log._node, "change", change)
    await opened[0]
    assert log.earliest_offset == 3
    assert log.subscriptions.stats("late-id")["acked_to"] == 3


async def test_a_ledger_that_ends_while_acknowledgements_settle_stays_for_the_next_time(
    stage: Stage, filled: Fill, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await filled()
    await log.subscriptions.open(SUBSCRIPTION, start_offset=2)
    stage.host.clock_us += 99 * SECOND
    settle = log.retention._ensure_persisted

    async def go_on_meanwhile(offset: int) -> None:
        await settle(offset)
        await log.append_message(Message(b"4"))
        await until(partial(has_sealed, log, 5))
        stage.host.clock_us += 99 * SECOND
        await log.subscriptions.acknowledge_below(SUBSCRIPTION.subscription_id, 5)

    monkeypatch.setattr(log.retention, "_ensure_persisted", go_on_meanwhile)
    await log.retention.tend()
    assert log.earliest_offset == 2
    monkeypatch.setattr(log.retention, "_ensure_persisted", settle)
    await log.retention.tend()
    assert log.earliest_offset == 5


async def test_nothing_goes_before_the_compacted_view_has_it(
    stage: Stage, ledgers: ScriptedLedgers, filled: Fill
) -> None:
    log = await filled(replace(AGED, compaction_ms=1000))
    stage.host.clock_us += 60 * SECOND
    assert not log.retention.is_due()
    await log.retention.tend()
    assert await offsets_of(log) == [0, 1, 2, 3]
    await log.compaction.run()
    assert log.retention.is_due()
    await log.retention.tend()
    assert log.earliest_offset == 4
    view = await log.compaction.view.read(0, ReadLimits(max_messages=10, max_bytes=1 << 20))
    (batch,) = view.entries
    assert isinstance(batch, CompactedBatch)
    assert list(batch.offsets) == [0, 1, 2, 3]


async def test_a_deletion_that_fails_is_tried_again(
    stage: Stage, ledgers: ScriptedLedgers, filled: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await filled()
    stage.host.clock_us += 9 * SECOND
    delete = ledgers.delete

    async def refuse(_ledger_id: int, **_options: bool) -> None:
        raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "not connected")

    monkeypatch.setattr(ledgers, "delete", refuse)
    await log.retention.tend()
    assert (ledgers.deleted, log.earliest_offset) == (set(), 2)
    assert log.retention.is_due()
    monkeypatch.setattr(ledgers, "delete", delete)
    await log.retention.tend()
    assert ledgers.deleted == {1, 2}
    assert not log.retention.is_due()


async def test_a_trim_whose_caller_goes_away_still_frees_its_space(
    stage: Stage,
    ledgers: ScriptedLedgers,
    filled: Fill,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The change of the list goes on; what it let go is deleted at the next look."""
    log = await filled(Policy(roll_entries=1))
    store, may_write = stage.stores[0], asyncio.Event()
    write = store.commit

    async def wait_and_write(changes: Sequence[Change]) -> list[Version]:
        await may_write.wait()
        return await write(changes)

    monkeypatch.setattr(store, "commit", wait_and_write)
    trimming = asyncio.create_task(log.retention.trim(3))
    await until(lambda: log.earliest_offset == 3)
    trimming.cancel()
    await asyncio.wait((trimming,))
    await log.retention.tend()
    assert ledgers.deleted == set()  # they may still be listed
    may_write.set()
    await log._node.check_unchanged()
    assert log.retention.is_due()
    await log.retention.tend()
    assert ledgers.deleted == {1, 2, 3}
    assert not log.retention.is_due()


async def test_a_trim_is_one_before_its_ledgers_are_deleted(
    stage: Stage, ledgers: ScriptedLedgers, filled: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer "nothing was done", as of a store that cannot be reached, would be wrong."""
    log = await filled(Policy(roll_entries=1))
    delete = ledgers.delete

    async def refuse(_ledger_id: int, **_options: bool) -> None:
        raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "not connected")

    monkeypatch.setattr(ledgers, "delete", refuse)
    assert (await log.retention.trim(3)).earliest_offset == 3
    monkeypatch.setattr(ledgers, "delete", delete)
    await log.retention.tend()
    assert ledgers.deleted == {1, 2, 3}


async def test_a_trim_whose_reply_is_lost_is_one(
    stage: Stage, ledgers: ScriptedLedgers, filled: Fill
) -> None:
    log = await filled()
    stage.host.clock_us += 9 * SECOND
    stage.stores[0].lose_replies(1)
    await log.retention.tend()
    assert ledgers.deleted == {1, 2}
    assert (await stage.node()).ledger_list.segments[0].base_offset == 2


async def test_an_owner_that_was_replaced_trims_nothing(
    stage: Stage, ledgers: ScriptedLedgers, filled: Fill
) -> None:
    log = await filled()
    new = await stage.open(policy=AGED)
    before = set(ledgers.deleted)
    stage.host.clock_us += 9 * SECOND
    with pytest.raises(LedgerListLost):
        await log.retention.tend()
    assert ledgers.deleted == before
    assert not log.is_serving
    assert await offsets_of(new) == [0, 1, 2, 3]
    await new.retention.tend()
    assert await offsets_of(new) == [2, 3]


async def test_a_takeover_that_meets_a_trim_starts_again(
    stage: Stage, ledgers: ScriptedLedgers, filled: Fill
) -> None:
    """Its list names ledgers that the owner has let go meanwhile."""
    log = await filled()
    node = await stage.node()
    stage.host.clock_us += 99 * SECOND
    await log.retention.tend()
    with pytest.raises(LedgerListLost):
        await stage.open(node=node)
    new = await stage.open(policy=AGED)
    assert (new.earliest_offset, new.tail_offset) == (4, 4)
    assert (await new.append_message(Message(b"x"))).offset == 4


async def test_a_trim_on_request_holds_at_once_and_frees_whole_ledgers(
    stage: Stage, ledgers: ScriptedLedgers, filled: Fill, until: Until
) -> None:
    log = await filled(Policy(roll_entries=1))
    log.apply_policy(Policy(roll_entries=100))
    await log.append_message(Message(b"4"))
    await log.append_message(Message(b"5"))
    trimmed = await log.retention.trim(5)
    assert (trimmed.earliest_offset, trimmed.held_back) == (5, False)
    assert ledgers.deleted == {1, 2, 3, 4}
    assert (await refused(log, 4)).code is ErrorCode.OFFSET_TRIMMED
    assert (await log.retention.trim(3)).earliest_offset == 5
    again = await stage.open()
    assert again.earliest_offset == 5
    assert (await refused(again, 4)).code is ErrorCode.OFFSET_TRIMMED
    assert (await again.read(5, ONE_MESSAGE)).tail_offset == 6


async def test_a_trim_to_the_tail_frees_the_present_ledger_too(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open()
    for number in range(3):
        await log.append_message(Message(b"%d" % number))
    assert (await log.retention.trim(3)).earliest_offset == 3
    await until(lambda: len(ledgers_of(log)) == 2 and log.internals()["segments"][0]["sealed"])
    await log.retention.tend()
    assert (ledgers.deleted, ledgers_of(log)) == ({1}, [2])
    with pytest.raises(FencelogError) as raised:
        await log.retention.trim(4)
    assert raised.value.code is ErrorCode.OFFSET_BEYOND_TAIL


async def test_a_trim_on_request_stops_at_a_subscription_and_says_so(
    stage: Stage, filled: Fill
) -> None:
    log = await filled(Policy(roll_entries=1))
    await log.subscriptions.open(SUBSCRIPTION, start_offset=2)
    trimmed = await log.retention.trim(4)
    assert (trimmed.earliest_offset, trimmed.held_back) == (2, True)


async def test_a_read_under_way_ends_cleanly_when_its_ledger_goes(
    stage: Stage, ledgers: ScriptedLedgers, filled: Fill
) -> None:
    first = await filled()
    await first.close()
    log = await stage.open(policy=AGED)
    reading = asyncio.create_task(log.read(0, ONE_MESSAGE))
    await asyncio.sleep(0)
    await log.retention.trim(4)
    try:
        result = await reading
    except FencelogError as error:
        code = error.code
    else:
        assert result.entries[0].base_offset == 0  # it had read before
        code = ErrorCode.OFFSET_TRIMMED
    assert code is ErrorCode.OFFSET_TRIMMED


async def test_a_read_that_fails_for_a_trim_says_so(
    filled: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await filled(Policy(roll_entries=1))
    errors = [ErrorCode.READ_UNKNOWN, ErrorCode.LEDGER_NOT_FOUND]
    trims = [0, 4]

    async def failing(*_: object) -> None:
        log._reader.trim(trims.pop(0))
        raise FencelogError(errors.pop(0), "its ledger is gone")

    monkeypatch.setattr(log._reader._catch_up, "read", failing)
    monkeypatch.setattr(log._reader._cache, "read", lambda *_: [])
    for code in (ErrorCode.READ_UNKNOWN, ErrorCode.OFFSET_TRIMMED):
        with pytest.raises(FencelogError) as caught:
            await log.read(0, ONE_MESSAGE)
        assert caught.value.code is code


async def test_messages_that_are_too_old_count_as_acknowledged(stage: Stage, filled: Fill) -> None:
    log = await filled(Policy(roll_entries=1, ttl_ms=10_000))
    await log.subscriptions.open(SUBSCRIPTION, start_offset=0)
    stage.host.clock_us += 8 * SECOND + SECOND // 2
    await log.retention.tend()
    assert log.subscriptions.slowest_offset() == 2
    assert log.earliest_offset == 0


@pytest.mark.parametrize("beside_durable", [False, True])
async def test_messages_that_are_too_old_count_for_subscriptions_that_are_not_durable(
    stage: Stage, filled: Fill, beside_durable: bool
) -> None:
    log = await filled(Policy(roll_entries=1, ttl_ms=10_000))
    if beside_durable:
        await log.subscriptions.open(SUBSCRIPTION, start_offset=4)
    volatile = SubscriptionInfo("v", "id-v", SubscriptionConfig(durable=False))
    await log.subscriptions.open(volatile, start_offset=0)
    stage.host.clock_us += 8 * SECOND + SECOND // 2
    await log.retention.tend()
    assert log.subscriptions.stats("id-v")["acked_to"] == 2


async def test_a_quota_evicts_nothing_where_no_durable_subscription_lags(filled: Fill) -> None:
    quota = Policy(roll_entries=1, backlog_quota_bytes=1, backlog_action=BACKLOG_EVICT)
    log = await filled(quota)
    await log.subscriptions.open(SUBSCRIPTION, start_offset=4)
    volatile = SubscriptionInfo("v", "id-v", SubscriptionConfig(durable=False))
    await log.subscriptions.open(volatile, start_offset=0)
    await log.retention.tend()
    assert log.subscriptions.stats("id-v")["acked_to"] == 0


async def test_what_a_subscription_had_seen_holds_nothing_back_after_a_takeover(
    stage: Stage, filled: Fill
) -> None:
    log = await filled(Policy(roll_entries=1))
    await log.subscriptions.open(SUBSCRIPTION, start_offset=0)
    await log.subscriptions.acknowledge_below(SUBSCRIPTION.subscription_id, 3)
    trimmed = await (await stage.open()).retention.trim(3)
    assert (trimmed.earliest_offset, trimmed.held_back) == (3, False)


async def test_what_ledgers_say_of_producers_is_kept_when_they_go(
    stage: Stage, ledgers: ScriptedLedgers, filled: Fill, until: Until
) -> None:
    """A repeated append would otherwise be written twice after a takeover."""
    conditions = AppendConditions(SequenceRange(0, RANGE_SEQUENCE, bytes(16), 0, 0))
    log = await filled(messages=0)
    assert (await log.append_message(Message(b"once"), conditions)).offset == 0
    await until(partial(has_sealed, log, 1))
    stage.host.clock_us += 99 * SECOND
    await log.retention.tend()
    assert log.earliest_offset == 1
    new = await stage.open(policy=AGED)
    again = await new.append_message(Message(b"once"), conditions)
    assert (again.duplicate, again.offset, new.tail_offset) == (True, 0, 1)
