"""Access for producers: the rules, and their changes step by step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from functools import partial

import pytest

from fencelog.broker.append import producer_access as module
from fencelog.broker.append.conditions import NO_CONDITIONS, AppendConditions
from fencelog.broker.append.producer_access import (
    EXCLUSIVE,
    FENCING,
    WAIT,
    Access,
    ExclusiveProducer,
)
from fencelog.broker.ledger_list.state_core import Event, PartitionState
from fencelog.broker.limits import MAX_CHOSEN_EPOCH
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import (
    RANGE_KEY,
    RANGE_SEQUENCE,
    SequenceRange,
    producer_digest,
)
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers, ScriptedWriter


def by(producer: str, epoch: int, sequence: int = 0, token: str | None = None) -> AppendConditions:
    digest = producer_digest(producer.encode())
    return AppendConditions(
        SequenceRange(0, RANGE_SEQUENCE, digest, epoch, sequence), fencing_token=token
    )


def refusal(
    access: Access, conditions: AppendConditions
) -> tuple[ErrorCode, dict[str, object]] | None:
    try:
        access.check(conditions)
    except FencelogError as error:
        return error.code, error.extra
    return None


def rebuilt(access: Access) -> Access:
    copy = Access()
    state = PartitionState([copy])
    for event in json.loads(json.dumps(list(access.snapshot()))):
        state.apply(event)
    return copy


# -- the rules -------------------------------------------------------------------------------------


def test_everybody_may_append_at_first() -> None:
    access = Access()
    assert access.is_open
    assert list(access.snapshot()) == []
    for conditions in (NO_CONDITIONS, by("a", 0), by("a", 9)):
        assert refusal(access, conditions) is None
    assert refusal(access, AppendConditions(fencing_token="t")) == (
        ErrorCode.PRECONDITION_FAILED,
        {},
    )


def test_no_append_takes_the_epochs_that_claims_have_to_give() -> None:
    access = Access()
    highest = 2**63 - 1
    assert refusal(access, by("a", highest)) == (ErrorCode.BAD_REQUEST, {})
    assert refusal(access, by("a", MAX_CHOSEN_EPOCH)) is None
    access.apply(access.claim("a", EXCLUSIVE, seen_epoch=MAX_CHOSEN_EPOCH))
    for each in (access, rebuilt(access)):
        assert refusal(each, by("a", MAX_CHOSEN_EPOCH + 1)) is None
        each.apply(each.release("a", MAX_CHOSEN_EPOCH + 1))
        assert refusal(each, by("a", MAX_CHOSEN_EPOCH + 1)) is None
        assert refusal(each, by("b", MAX_CHOSEN_EPOCH + 2)) == (ErrorCode.BAD_REQUEST, {})


def test_a_token_is_wanted_of_everybody() -> None:
    access = Access()
    access.apply(access.fence("t", expected=(None,)))
    assert not access.is_open
    for each in (access, rebuilt(access)):
        assert refusal(each, AppendConditions(fencing_token="t")) is None
        for conditions in (NO_CONDITIONS, AppendConditions(fencing_token="u"), by("a", 0)):
            assert refusal(each, conditions) == (ErrorCode.PRECONDITION_FAILED, {})
    with pytest.raises(FencelogError) as caught:
        access.fence("u", expected=("s",))
    assert caught.value.code is ErrorCode.PRECONDITION_FAILED
    access.apply(access.fence(None, expected=("t",)))
    access.apply(access.fence(None))
    assert access.is_open


def test_who_holds_the_partition_appends_alone_and_with_its_epoch() -> None:
    access = Access()
    assert access.claim("a", EXCLUSIVE, seen_epoch=-1) == ["claimed", "a", 1]
    access.apply(access.claim("a", EXCLUSIVE, seen_epoch=6))
    assert access.holder == ExclusiveProducer("a", 7)
    for each in (access, rebuilt(access)):
        assert refusal(each, by("a", 7)) is None
        assert refusal(each, by("a", 6)) == (ErrorCode.PRODUCER_FENCED, {"epoch": 7})
        assert refusal(each, by("a", 8)) == (ErrorCode.PRODUCER_FENCED, {"epoch": 7})
        busy = (ErrorCode.PRODUCER_BUSY, {"producer_id": "a"})
        keyed = AppendConditions(SequenceRange(0, RANGE_KEY, producer_digest(b"a")))
        for conditions in (NO_CONDITIONS, keyed, by("b", 7)):
            assert refusal(each, conditions) == busy


def test_a_holder_is_followed_by_itself_or_by_force() -> None:
    access = Access()
    access.apply(access.claim("a", EXCLUSIVE, seen_epoch=-1))
    for mode in (EXCLUSIVE, WAIT):
        with pytest.raises(FencelogError) as caught:
            access.claim("b", mode, seen_epoch=-1)
        assert caught.value.code is ErrorCode.PRODUCER_BUSY
    access.apply(access.claim("a", EXCLUSIVE, seen_epoch=-1))
    assert access.holder == ExclusiveProducer("a", 2)
    access.apply(access.claim("b", FENCING, seen_epoch=-1))
    assert access.holder == ExclusiveProducer("b", 3)
    with pytest.raises(FencelogError, match="does not hold"):
        access.release("a", 2)
    access.apply(access.release("b", 3))
    # Who was driven out stays out; who released goes on as everybody.
    for each in (access, rebuilt(access)):
        assert each.is_open
        assert refusal(each, by("a", 2)) == (ErrorCode.PRODUCER_FENCED, {"epoch": 3})
        assert refusal(each, by("b", 2)) == (ErrorCode.PRODUCER_FENCED, {"epoch": 3})
        assert refusal(each, by("b", 3)) is None
        assert each.claim("a", EXCLUSIVE, seen_epoch=-1) == ["claimed", "a", 4]


def test_a_release_can_be_repeated() -> None:
    access = Access()
    access.apply(access.claim("a", EXCLUSIVE, seen_epoch=-1))
    for _ in range(2):
        access.apply(access.release("a", 1))
    with pytest.raises(FencelogError, match="does not hold"):
        access.release("a", 2)


def test_the_oldest_claims_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CLAIMED_PRODUCERS", 2)
    access = Access()
    for name in ("a", "b", "c"):
        access.apply(access.claim(name, FENCING, seen_epoch=-1))
    access.apply(access.release("c", 3))
    assert refusal(access, by("a", 0)) is None
    assert refusal(access, by("b", 0)) == (ErrorCode.PRODUCER_FENCED, {"epoch": 3})
    assert rebuilt(access).claim("a", EXCLUSIVE, seen_epoch=-1) == ["claimed", "a", 4]


def test_the_claims_that_came_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """By every owner, and by the latest claim of each producer; one that comes back fences, too."""
    monkeypatch.setattr(module, "MAX_CLAIMED_PRODUCERS", 2)
    access = Access()
    for name in ("b", "a", "b", "c"):
        access.apply(access.claim(name, FENCING, seen_epoch=-1))
    access.apply(access.release("c", 4))
    for each in (access, rebuilt(access)):
        assert refusal(each, by("a", 2)) is None  # which is forgotten
        assert refusal(each, by("b", 3)) == (ErrorCode.PRODUCER_FENCED, {"epoch": 4})
        assert refusal(each, by("c", 3)) == (ErrorCode.PRODUCER_FENCED, {"epoch": 4})
        each.apply(each.claim("a", FENCING, seen_epoch=2))
        assert each.holder == ExclusiveProducer("a", 5)
        assert refusal(each, by("a", 2)) == (ErrorCode.PRODUCER_FENCED, {"epoch": 5})
        each.apply(each.release("a", 5))
        assert refusal(each, by("b", 3)) is None


def test_a_snapshot_keeps_the_order_of_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CLAIMED_PRODUCERS", 2)
    access = Access()
    for name in ("z", "a"):
        access.apply(access.claim(name, FENCING, seen_epoch=-1))
    access.apply(access.release("a", 2))
    following = rebuilt(access)
    following.apply(following.claim("m", FENCING, seen_epoch=-1))
    following.apply(following.release("m", 3))
    assert refusal(following, by("z", 0)) is None
    assert refusal(following, by("a", 1)) == (ErrorCode.PRODUCER_FENCED, {"epoch": 2})


@pytest.mark.parametrize("event", [["claimed", "a"], ["fencing_token", 3], ["released", 1, 1]])
def test_an_event_that_is_none_is_refused(event: Event) -> None:
    with pytest.raises(FencelogError, match="not valid"):
        PartitionState([Access()]).apply(event)


# -- changes ---------------------------------------------------------------------------------------


async def append(log: PartitionLog, conditions: AppendConditions | None = None) -> int:
    return (await log.append_message(Message(b"x"), conditions)).offset


async def code_of(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(FencelogError) as caught:
        await work
    return caught.value.code


async def test_a_token_outlives_its_owner(stage: Stage) -> None:
    log = await stage.open()
    await append(log)
    await log.access.fence("t")
    for _ in range(2):
        assert await code_of(append(log)) is ErrorCode.PRECONDITION_FAILED
        assert await append(log, AppendConditions(fencing_token="t")) == log.tail_offset - 1
        log = await stage.open()
        assert log.access.shown() == {"fencing_token": "t", "exclusive": None, "count": 0}
    assert await code_of(log.access.fence("u", expected=("s",))) is ErrorCode.PRECONDITION_FAILED
    await log.access.fence(None, expected=("t",))
    await append(log)


async def test_appends_wait_while_a_change_is_not_durable(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open()
    data = ledgers.newest
    data.auto_ack = False
    before = asyncio.create_task(append(log))
    await until(lambda: len(data.payloads) == 1)
    fencing = asyncio.create_task(log.access.fence("t"))
    await until(lambda: log._pipeline.mode.checks_every_append)
    state = ledgers.newest
    state.auto_ack = False
    assert state is not data
    held = [
        asyncio.create_task(append(log, conditions))
        for conditions in (None, AppendConditions(fencing_token="t"))
    ]
    await asyncio.sleep(0.01)
    assert (len(data.payloads), len(state.payloads)) == (1, 0)  # the previous append first
    data.ack(0)
    assert await before == 0
    await until(lambda: len(state.payloads) == 1)
    assert not any(task.done() for task in (fencing, *held))
    state.ack(0)
    await fencing
    assert await code_of(held[0]) is ErrorCode.PRECONDITION_FAILED
    await until(lambda: len(data.payloads) == 2)
    data.ack(1)
    assert await held[1] == 1


def has_entry(writer: ScriptedWriter, entry_id: int) -> bool:
    return len(writer.payloads) > entry_id


async def unknown_fence(
    log: PartitionLog, ledgers: ScriptedLedgers, until: Until, monkeypatch: pytest.MonkeyPatch
) -> ScriptedWriter:
    """Fence with "t": entry 2 of the state ledger that is returned, which answers no more."""
    await log.access.fence("s")
    state = ledgers.newest
    recorded = log._state_log.recorded

    def unanswered(event: Event) -> asyncio.Future[None]:
        state.auto_ack = event != ["fencing_token", "t"] and state.auto_ack
        return recorded(event)

    monkeypatch.setattr(log._state_log, "recorded", unanswered)
    fencing = asyncio.create_task(log.access.fence("t"))
    await until(lambda: len(state.payloads) == 3)
    assert await code_of(append(log)) is ErrorCode.BOOKIE_UNAVAILABLE  # it was held
    assert await code_of(fencing) is ErrorCode.STATE_UNKNOWN
    return state


async def test_while_it_is_not_known_whether_a_change_is_durable_nothing_is_appended(
    stage: Stage, ledgers: ScriptedLedgers, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await stage.open(timeout_s=0.03)
    state = await unknown_fence(log, ledgers, until, monkeypatch)
    for conditions in (AppendConditions(fencing_token="s"), AppendConditions(fencing_token="t")):
        assert await code_of(append(log, conditions)) is ErrorCode.BOOKIE_UNAVAILABLE
    state.ack(2)
    await until(lambda: log._pipeline.mode.access_refusal is None)
    assert await append(log, AppendConditions(fencing_token="t")) == 0


async def test_a_change_after_one_of_unknown_outcome_does_not_end_that(
    stage: Stage, ledgers: ScriptedLedgers, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second change is refused, because the partition's own ledger has failed besides."""
    log = await stage.open(timeout_s=0.03)
    data = ledgers.newest
    state = await unknown_fence(log, ledgers, until, monkeypatch)
    ledgers.recover_errors = [FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "away")] * 2
    data.fail(FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "gone"))
    await until(lambda: log._pipeline.mode.refusal is not None)
    assert await code_of(log.access.fence("u")) is ErrorCode.BOOKIE_UNAVAILABLE
    await until(lambda: log._pipeline.mode.refusal is None)
    assert (
        await code_of(append(log, AppendConditions(fencing_token="t")))
        is ErrorCode.BOOKIE_UNAVAILABLE
    )
    state.ack(3)
    await until(lambda: log._pipeline.mode.access_refusal is None)
    assert await append(log, AppendConditions(fencing_token="t")) == 0


async def test_a_change_that_becomes_durable_late_says_nothing_of_the_next(
    stage: Stage, ledgers: ScriptedLedgers, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await stage.open(timeout_s=0.3)
    state = await unknown_fence(log, ledgers, until, monkeypatch)
    following = asyncio.create_task(log.access.fence("u"))
    await asyncio.sleep(0)
    state.ack(2)
    await until(lambda: log._pipeline.mode.access_refusal is None)
    assert (
        await code_of(append(log, AppendConditions(fencing_token="u")))
        is ErrorCode.PRECONDITION_FAILED
    )
    assert await append(log, AppendConditions(fencing_token="t")) == 0
    for entry in (3, 4):
        await until(partial(has_entry, state, entry))
        held = asyncio.create_task(append(log, AppendConditions(fencing_token="u")))
        await asyncio.sleep(0)
        assert not following.done()
        state.ack(entry)
    await following
    assert await held == 1


async def test_where_the_state_cannot_be_written_nothing_is_changed_and_nobody_held(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    """The metadata are away, so there is no state ledger yet."""
    log = await stage.open(timeout_s=0.03)
    ledgers.create_gate.clear()
    changing = asyncio.create_task(log.access.claim("a", EXCLUSIVE, wait_ms=0))
    await asyncio.sleep(0)
    assert await append(log) == 0
    assert await code_of(changing) is ErrorCode.BOOKIE_UNAVAILABLE
    assert await append(log) == 1
    ledgers.create_gate.set()
    assert await log.access.claim("a", EXCLUSIVE, wait_ms=0) == 1


async def test_a_change_is_not_made_on_top_of_what_is_unknown(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open(timeout_s=0.03)
    data = ledgers.newest
    data.auto_ack = False
    before = asyncio.create_task(append(log))
    await until(lambda: len(data.payloads) == 1)
    fencing = asyncio.create_task(log.access.fence("t"))
    await asyncio.sleep(0.01)
    ledgers.recover_errors = [FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "away")] * 2
    data.fail(FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "gone"))
    assert await code_of(before) is ErrorCode.APPEND_UNKNOWN
    assert await code_of(fencing) is ErrorCode.BOOKIE_UNAVAILABLE
    assert await code_of(log.access.fence("t")) is ErrorCode.BOOKIE_UNAVAILABLE
    await until(lambda: log._pipeline.mode.refusal is None)
    assert log.access.shown()["fencing_token"] is None
    await append(log)


async def test_few_changes_wait_for_one_another(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.broker.append.access_changes.MAX_WAITING_CHANGES", 2)
    log = await stage.open()
    ledgers.create_gate.clear()
    waiting = [asyncio.create_task(log.access.fence(token)) for token in ("s", "t")]
    await asyncio.sleep(0)
    assert await code_of(log.access.fence("u")) is ErrorCode.OVERLOADED
    ledgers.create_gate.set()
    await asyncio.gather(*waiting)
    await log.access.fence("u", expected=("t",))


async def test_a_claim_ends_the_epochs_in_the_log(stage: Stage) -> None:
    log = await stage.open()
    await append(log, by("a", 4))
    assert await log.access.claim("a", EXCLUSIVE, wait_ms=0) == 5
    assert await code_of(append(log)) is ErrorCode.PRODUCER_BUSY
    assert await code_of(append(log, by("a", 4, 1))) is ErrorCode.PRODUCER_FENCED
    log = await stage.open()
    assert await append(log, by("a", 5)) == 1
    assert await code_of(append(log, by("b", 5))) is ErrorCode.PRODUCER_BUSY
    assert log.access.shown()["exclusive"] == {"producer_id": "a", "epoch": 5}
    await log.access.release("a", 5)
    await append(log)


async def test_a_claim_ends_the_epochs_that_are_on_their_way(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open()
    data = ledgers.newest
    data.auto_ack = False
    before = asyncio.create_task(append(log, by("a", 4)))
    await until(lambda: len(data.payloads) == 1)
    claim = asyncio.create_task(log.access.claim("a", EXCLUSIVE, wait_ms=0))
    await until(lambda: log._pipeline.mode.is_access_changing)
    data.ack(0)
    assert (await before, await claim) == (0, 5)


async def test_who_waits_gets_it_when_it_is_released(stage: Stage) -> None:
    log = await stage.open()
    epoch = await log.access.claim("a", WAIT, wait_ms=0)
    assert await code_of(log.access.claim("b", WAIT, wait_ms=10)) is ErrorCode.PRODUCER_BUSY
    waiting = asyncio.create_task(log.access.claim("b", WAIT, wait_ms=60_000))
    await asyncio.sleep(0.01)
    await log.access.release("a", epoch)
    assert await waiting == epoch + 1


async def test_who_waits_is_told_when_the_log_ends(stage: Stage) -> None:
    log = await stage.open()
    await log.access.claim("a", EXCLUSIVE, wait_ms=0)
    waiting = asyncio.create_task(log.access.claim("b", WAIT, wait_ms=60_000))
    await asyncio.sleep(0.01)
    await log.close()
    assert await code_of(waiting) is ErrorCode.DRAINING


async def test_a_claim_goes_on_without_its_caller(stage: Stage, until: Until) -> None:
    log = await stage.open()
    claim = asyncio.create_task(log.access.claim("a", EXCLUSIVE, wait_ms=0))
    await asyncio.sleep(0)
    claim.cancel()
    await until(lambda: log.access.shown()["exclusive"] is not None)
    await until(lambda: not log.access._tasks)
    assert (await stage.open()).access.shown()["exclusive"] == {"producer_id": "a", "epoch": 1}


async def test_a_producer_is_shown_when_all_of_it_is_settled(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open()
    assert await log.access.producer("a") is None
    await append(log, by("a", 0))
    data = ledgers.newest
    data.auto_ack = False
    sent = asyncio.create_task(append(log, by("a", 0, 1)))
    await until(lambda: len(data.payloads) == 2)
    asked = asyncio.create_task(log.access.producer("a"))
    await asyncio.sleep(0.01)
    assert not asked.done()
    data.ack(1)
    shown = await asked
    assert shown is not None
    assert shown.next_sequence == 2
    await sent


async def test_a_producer_is_not_shown_while_it_is_unknown(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open(timeout_s=0.03)
    data = ledgers.newest
    data.auto_ack = False
    sent = asyncio.create_task(append(log, by("a", 0)))
    await until(lambda: len(data.payloads) == 1)
    asked = asyncio.create_task(log.access.producer("a"))
    await asyncio.sleep(0)
    ledgers.recover_errors = [FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "away")] * 2
    ledgers.stored[data.ledger_id] = -1
    data.fail(FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "gone"))
    assert await code_of(asked) is ErrorCode.READ_UNKNOWN
    assert await code_of(sent) is ErrorCode.APPEND_UNKNOWN
    assert await code_of(log.access.producer("a")) is ErrorCode.BOOKIE_UNAVAILABLE
    await until(lambda: log._pipeline.mode.refusal is None)
    assert await log.access.producer("a") is None
