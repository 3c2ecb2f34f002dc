"""Owners that were replaced, and hear only of requests that they refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fencelog.broker.append.conditions import AppendConditions
from fencelog.broker.append.producer_access import EXCLUSIVE, FENCING
from fencelog.broker.limits import MAX_CHOSEN_EPOCH
from fencelog.broker.partition import ownership_check as module
from fencelog.broker.partition.ownership_check import OwnershipCheck
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.read.stored import ONE_MESSAGE
from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.broker.subscriptions.ack_id import ack_id_maker
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_SEQUENCE, SequenceRange, producer_digest
from fencelog.ledgers.metastore.port import Version, Versioned
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import Stage
from tests.support.scripted_ledgers import ScriptedLedgers

PRODUCER = producer_digest(b"p")
GONE = FencelogError(ErrorCode.DRAINING, "gone")
INFO = SubscriptionInfo("s", "id-s", SubscriptionConfig(type="exclusive"), "earliest")


def numbered(sequence: int, epoch: int = 0) -> AppendConditions:
    return AppendConditions(SequenceRange(0, RANGE_SEQUENCE, PRODUCER, epoch, sequence))


async def refused(log: PartitionLog, conditions: AppendConditions) -> ErrorCode:
    with pytest.raises(FencelogError) as raised:
        await log.append_message(Message(b"x"), conditions)
    return raised.value.code


def looks_of(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each look at the ledger list, from now on."""
    looks: list[int] = []
    check = log._node.check_unchanged

    async def counted() -> None:
        looks.append(len(looks))
        await check()

    monkeypatch.setattr(log._node, "check_unchanged", counted)
    return looks


@pytest.mark.parametrize(
    "conditions", [numbered(2), numbered(1, epoch=1), AppendConditions(if_offset=2)]
)
async def test_who_was_replaced_does_not_refuse_for_good_what_its_successor_would_take(
    stage: Stage, ledgers: ScriptedLedgers, conditions: AppendConditions
) -> None:
    lost: list[bool] = []
    previous = await stage.open(on_lost=lambda: lost.append(True))
    await previous.append_message(Message(b"0"), numbered(0))
    new = await stage.open()
    await new.append_message(Message(b"1"), numbered(1))
    served = previous.is_serving
    assert await refused(previous, conditions) is ErrorCode.NO_OWNER
    assert lost == [True]
    assert (served, previous.is_serving) == (True, False)
    assert (await new.append_message(Message(b"2"), numbered(2))).offset == 2


async def test_what_an_owner_knows_better_is_no_reason_to_look(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the log, and the epochs that are over, are the same for every later owner: a
    producer that was fenced, and goes on trying, costs the metadata store nothing."""
    log = await stage.open()
    await log.access.claim("p", EXCLUSIVE, wait_ms=0)
    for sequence in range(3):
        await log.append_message(Message(b"x"), numbered(sequence, epoch=1))
    looks = looks_of(log, monkeypatch)
    beside = AppendConditions(numbered(3, epoch=1).sequences, if_offset=1)
    assert await refused(log, beside) is ErrorCode.PRECONDITION_FAILED
    assert await refused(log, numbered(3, epoch=0)) is ErrorCode.PRODUCER_FENCED
    assert (await log.append_message(Message(b"x"), numbered(1, epoch=1))).duplicate
    await asyncio.sleep(0.01)
    assert looks == []


async def replaced(stage: Stage) -> tuple[PartitionLog, PartitionLog]:
    """An owner under which a producer has claimed the partition, and its successor, under which it
    has done so again."""
    previous = await stage.open()
    assert await previous.access.claim("p", EXCLUSIVE, wait_ms=0) == 1
    new = await stage.open()
    assert await new.access.claim("p", FENCING, wait_ms=0) == 2
    return previous, new


@pytest.mark.parametrize(
    "conditions",
    [
        numbered(0, epoch=2),
        numbered(0, epoch=MAX_CHOSEN_EPOCH + 1),
        AppendConditions(SequenceRange(0, RANGE_SEQUENCE, producer_digest(b"q"), 3, 0)),
        AppendConditions(fencing_token="2"),
    ],
    ids=["claimed again", "an epoch that was given since", "another holder", "token"],
)
async def test_who_was_replaced_does_not_refuse_who_may_append_since(
    stage: Stage, ledgers: ScriptedLedgers, conditions: AppendConditions
) -> None:
    previous, _ = await replaced(stage)
    assert await refused(previous, conditions) is ErrorCode.NO_OWNER
    assert not previous.is_serving


CHANGES: dict[str, Callable[[PartitionLog], Awaitable[object]]] = {
    "fence": lambda log: log.access.fence("3", expected=("2",)),
    "claim": lambda log: log.access.claim("q", EXCLUSIVE, wait_ms=0),
    "release": lambda log: log.access.release("p", 2),
    "hold": lambda log: held(log),
}


async def held(log: PartitionLog) -> None:
    async with log.access.held():
        pass


@pytest.mark.parametrize("change", CHANGES)
async def test_who_was_replaced_refuses_no_change_that_its_successor_would_make(
    stage: Stage, ledgers: ScriptedLedgers, change: str
) -> None:
    previous, _ = await replaced(stage)
    with pytest.raises(FencelogError) as raised:
        await CHANGES[change](previous)
    assert raised.value.code is ErrorCode.NO_OWNER
    assert not previous.is_serving


@pytest.mark.parametrize("change", CHANGES)
async def test_an_owner_that_is_one_refuses_changes_for_good(
    stage: Stage, ledgers: ScriptedLedgers, change: str
) -> None:
    log = await stage.open()
    await log.access.claim("p", EXCLUSIVE, wait_ms=0)
    with pytest.raises(FencelogError) as raised:
        await CHANGES[change](log)
    expected = {
        "fence": ErrorCode.PRECONDITION_FAILED,
        "claim": ErrorCode.PRODUCER_BUSY,
        "release": ErrorCode.PRODUCER_FENCED,
        "hold": ErrorCode.PRODUCER_BUSY,
    }
    assert raised.value.code is expected[change]
    assert log.is_serving


async def test_an_owner_that_is_one_refuses_after_a_look_that_others_share(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    log = await stage.open()
    looks = looks_of(log, monkeypatch)
    refusals = await asyncio.gather(*(refused(log, numbered(7)) for _ in range(5)))
    assert refusals == [ErrorCode.SEQUENCE_MISMATCH] * 5
    assert looks == [0]
    assert await refused(log, AppendConditions(if_offset=7)) is ErrorCode.PRECONDITION_FAILED
    assert looks == [0, 1]  # one that began before this append says nothing of it
    assert log.pending_bytes == 0
    assert (await log.append_message(Message(b"0"), numbered(0))).offset == 0


async def test_a_look_that_has_begun_says_nothing_to_who_asks_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log may have been taken over after it was read."""
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    node = await stage.node()
    begun: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def held() -> None:
        look: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        begun.put_nowait(look)
        await look

    monkeypatch.setattr(node, "check_unchanged", held)
    check = OwnershipCheck(node, timeout_s=10.0)
    early = check.check_soon()
    first = await begun.get()
    late = check.check_soon()
    first.set_result(None)
    assert await early
    assert not late.done()
    second = await begun.get()
    second.set_exception(FencelogError(ErrorCode.METADATA_UNAVAILABLE, "away"))
    assert not await late
    await check.close()


async def test_an_owner_that_cannot_tell_says_so(stage: Stage, ledgers: ScriptedLedgers) -> None:
    store = await stage.store()
    log = await stage.open(store=store, timeout_s=0.02)
    store.disconnect()
    assert await refused(log, numbered(7)) is ErrorCode.NO_OWNER
    store.reconnect()
    assert await refused(log, numbered(7)) is ErrorCode.SEQUENCE_MISMATCH
    assert log.is_serving


BEYOND: dict[str, Callable[[PartitionLog], Awaitable[object]]] = {
    "seek": lambda log: log.subscriptions.seek(INFO, 2),
    "read": lambda log: log.read(2, ONE_MESSAGE),
    "read of the view": lambda log: log.compaction.view.read(2, ONE_MESSAGE),
    "trim": lambda log: log.retention.trim(2),
}
"""Requests for an offset beyond the tail of a log with one message."""


async def code_of(request: Awaitable[object]) -> ErrorCode:
    with pytest.raises(FencelogError) as raised:
        await request
    return raised.value.code


@pytest.mark.parametrize("request_", BEYOND)
async def test_who_was_replaced_does_not_deny_an_offset_that_its_successor_has(
    stage: Stage, ledgers: ScriptedLedgers, request_: str
) -> None:
    previous = await stage.open()
    await previous.subscriptions.open(INFO)
    await previous.append_message(Message(b"0"))
    new = await stage.open()
    await new.append_message(Message(b"1"))
    assert await code_of(BEYOND[request_](previous)) is ErrorCode.NO_OWNER
    assert not previous.is_serving


@pytest.mark.parametrize("request_", BEYOND)
async def test_an_owner_that_is_one_denies_offsets_beyond_its_tail(
    stage: Stage, ledgers: ScriptedLedgers, request_: str
) -> None:
    log = await stage.open()
    await log.subscriptions.open(INFO)
    await log.append_message(Message(b"0"))
    assert await code_of(BEYOND[request_](log)) is ErrorCode.OFFSET_BEYOND_TAIL
    assert log.is_serving


async def test_what_is_appended_during_the_look_is_not_denied(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open()
    await log.append_message(Message(b"0"))
    read = asyncio.create_task(log.read(2, ONE_MESSAGE))
    await asyncio.sleep(0)
    await asyncio.gather(*(log.append_message(Message(b"x")) for _ in range(2)))
    assert (await read).next_offset == 3


BY_IDS: dict[str, Callable[[PartitionLog, list[str]], Awaitable[object]]] = {
    "ack": lambda log, ids: log.subscriptions.ack(INFO, ids),
    "ack through": lambda log, ids: log.subscriptions.ack_through(INFO, ids[-1]),
    "nack": lambda log, ids: log.subscriptions.nack(INFO, ids, 0),
    "extend": lambda log, ids: log.subscriptions.extend(INFO, ids, 1_000),
}


async def pulled(log: PartitionLog) -> list[str]:
    found = await log.subscriptions.pull(INFO, "a", max_messages=9, max_bytes=1 << 20)
    return [message.ack_id for message in found]


@pytest.mark.parametrize("is_sought", [True, False], ids=["sought", "appended"])
@pytest.mark.parametrize("request_", BY_IDS)
async def test_who_was_replaced_calls_no_id_of_its_successor_stale(
    stage: Stage, ledgers: ScriptedLedgers, request_: str, is_sought: bool
) -> None:
    """Its successor has another generation of the cursor, or messages that it has not; leases are
    never the same."""
    previous = await stage.open()
    await previous.subscriptions.open(INFO)
    await previous.append_message(Message(b"0"))
    new = await stage.open()
    if is_sought:
        await new.subscriptions.seek(INFO, 0)
    else:
        await new.append_message(Message(b"1"))
    ids = await pulled(new)
    assert await code_of(BY_IDS[request_](previous, ids)) is ErrorCode.NO_OWNER
    assert not previous.is_serving
    await BY_IDS[request_](new, ids)


@pytest.mark.parametrize("request_", ["ack", "ack through"])
async def test_who_was_replaced_confirms_only_what_its_successor_has(
    stage: Stage, ledgers: ScriptedLedgers, request_: str
) -> None:
    previous = await stage.open()
    await previous.subscriptions.open(INFO)
    for _ in range(2):
        await previous.append_message(Message(b"x"))
    first, second = await pulled(previous)
    await BY_IDS[request_](previous, [first])
    new = await stage.open()
    await BY_IDS[request_](previous, [first])  # durable, and found by the takeover
    assert new.subscriptions.stats("id-s")["acked_to"] == 1
    code = await code_of(BY_IDS[request_](previous, [second]))
    assert code is ErrorCode.STATE_UNKNOWN
    assert new.subscriptions.stats("id-s")["acked_to"] == 1


@pytest.mark.parametrize("request_", ["ack", "ack through"])
async def test_an_id_is_not_called_stale_by_a_seek_that_is_lost(
    stage: Stage, ledgers: ScriptedLedgers, request_: str
) -> None:
    previous = await stage.open(timeout_s=0.02)
    await previous.subscriptions.open(INFO)
    await previous.append_message(Message(b"0"))
    ids = await pulled(previous)
    state = ledgers.writer_of(previous._node.ledger_list.state_ledger)
    state.auto_ack = False
    assert await code_of(previous.subscriptions.seek(INFO, 0)) is ErrorCode.STATE_UNKNOWN
    assert await code_of(BY_IDS[request_](previous, ids)) is ErrorCode.STATE_UNKNOWN
    ledgers.stored[state.ledger_id] = state.lac
    new = await stage.open()
    await BY_IDS[request_](new, ids)
    assert new.subscriptions.stats("id-s")["acked_to"] == 1


async def test_a_forged_id_of_a_later_epoch_is_stale(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await stage.open()
    await log.subscriptions.open(INFO)
    await log.append_message(Message(b"0"))
    looks = looks_of(log, monkeypatch)
    make = ack_id_maker("id-s", partition=0, epoch=99, generation=0, delivery=1)
    assert await log.subscriptions.nack(INFO, [make(0)]) == [make(0)]
    assert looks == [0]
    assert await log.subscriptions.nack(INFO, await pulled(log)) == []
    assert looks == [0]  # its own ids cost nothing


@pytest.mark.parametrize("abandoned", [True, False])
async def test_a_look_ends_with_the_log(
    stage: Stage, ledgers: ScriptedLedgers, abandoned: bool
) -> None:
    store = await stage.store()
    log = await stage.open(store=store, close_timeout_s=0.05)
    store.disconnect()
    waiting = asyncio.create_task(refused(log, numbered(7)))
    await asyncio.sleep(0.01)
    looking = [task for task in asyncio.all_tasks() if task.get_name().startswith("look at")]
    assert [task.done() for task in looking] == [False]
    await (log.abandon(GONE) if abandoned else log.close())
    assert [task.done() for task in looking] == [True]
    assert await waiting in (ErrorCode.NO_OWNER, ErrorCode.DRAINING)
    assert not await log._ownership_check.check_soon()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("look at")]


async def test_who_waits_for_a_look_that_never_begins_is_told_nothing_certain(
    stage: Stage,
) -> None:
    check = OwnershipCheck(await stage.node(), timeout_s=1.0)
    assert await check.check_soon()
    waiting = check.check_soon()  # there is a pause between two looks
    await check.close()
    assert not await waiting


async def test_a_ledger_list_that_cannot_be_read_is_no_loss(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await stage.node()

    async def unreadable() -> None:
        raise FencelogError(ErrorCode.CORRUPT, "no ledger list")

    monkeypatch.setattr(node, "check_unchanged", unreadable)
    check = OwnershipCheck(node, timeout_s=1.0)
    assert not await check.check_soon()
    await check.close()
    assert node.lost is None


async def test_a_server_that_lags_does_not_hide_the_successor(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's server shows nothing newer than its last write did (topics, seed 34)."""
    store = await stage.store()
    previous = await stage.open(store=store)
    get, write = store.get, store.set
    shown: dict[str, Versioned] = {}

    async def lagging(path: str) -> Versioned:
        shown[path] = shown.get(path) or await get(path)
        return shown[path]

    async def written(path: str, value: bytes, version: Version) -> Version:
        shown.clear()
        changed: Version = await write(path, value, version)
        return changed

    monkeypatch.setattr(store, "get", lagging)
    monkeypatch.setattr(store, "set", written)
    await store.get(previous._node.path)
    new = await stage.open()
    await new.append_message(Message(b"0"), numbered(0))
    assert await refused(previous, numbered(1)) is ErrorCode.NO_OWNER
    assert not previous.is_serving


async def test_what_another_session_has_read_is_read_again(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server may be behind what the session that caught up has seen."""
    store = await stage.store()
    previous = await stage.open(store=store)
    shown = await store.get(previous._node.path)
    await stage.open()

    async def of_another_session(path: str) -> Versioned:
        monkeypatch.undo()
        store.expire()
        return shown

    monkeypatch.setattr(store, "get", of_another_session)
    assert await refused(previous, numbered(1)) is ErrorCode.NO_OWNER
    assert not previous.is_serving
