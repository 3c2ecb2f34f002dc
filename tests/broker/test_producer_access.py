"""Who may append: the rules, and their changes step by step."""

from __future__ import annotations

import asyncio
import json

import pytest

from fencelog.broker import producer_access as module
from fencelog.broker.append_terms import NO_TERMS, Terms
from fencelog.broker.producer_access import EXCLUSIVE, FENCING, WAIT, Access, Holder
from fencelog.broker.state_core import Event, PartitionState
from fencelog.ledgers.entry_header import RUN_KEY, RUN_SEQUENCE, ProducerRun, producer_digest
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message


def by(producer: str, epoch: int, sequence: int = 0, token: str | None = None) -> Terms:
    digest = producer_digest(producer.encode())
    return Terms(ProducerRun(0, RUN_SEQUENCE, digest, epoch, sequence), fencing_token=token)


def refusal(access: Access, terms: Terms) -> tuple[ErrorCode, dict[str, object]] | None:
    try:
        access.check(terms)
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
    for terms in (NO_TERMS, by("a", 0), by("a", 9)):
        assert refusal(access, terms) is None
    assert refusal(access, Terms(fencing_token="t")) == (ErrorCode.PRECONDITION_FAILED, {})


def test_a_token_is_wanted_of_everybody() -> None:
    access = Access()
    access.apply(access.fence("t", expected=(None,)))
    assert not access.is_open
    for each in (access, rebuilt(access)):
        assert refusal(each, Terms(fencing_token="t")) is None
        for terms in (NO_TERMS, Terms(fencing_token="u"), by("a", 0)):
            assert refusal(each, terms) == (ErrorCode.PRECONDITION_FAILED, {})
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
    assert access.holder == Holder("a", 7)
    for each in (access, rebuilt(access)):
        assert refusal(each, by("a", 7)) is None
        assert refusal(each, by("a", 6)) == (ErrorCode.PRODUCER_FENCED, {"epoch": 7})
        assert refusal(each, by("a", 8)) == (ErrorCode.PRODUCER_FENCED, {"epoch": 7})
        busy = (ErrorCode.PRODUCER_BUSY, {"producer_id": "a"})
        keyed = Terms(ProducerRun(0, RUN_KEY, producer_digest(b"a")))
        for terms in (NO_TERMS, keyed, by("b", 7)):
            assert refusal(each, terms) == busy


def test_a_holder_is_followed_by_itself_or_by_force() -> None:
    access = Access()
    access.apply(access.claim("a", EXCLUSIVE, seen_epoch=-1))
    for mode in (EXCLUSIVE, WAIT):
        with pytest.raises(FencelogError) as caught:
            access.claim("b", mode, seen_epoch=-1)
        assert caught.value.code is ErrorCode.PRODUCER_BUSY
    access.apply(access.claim("a", EXCLUSIVE, seen_epoch=-1))
    assert access.holder == Holder("a", 2)
    access.apply(access.claim("b", FENCING, seen_epoch=-1))
    assert access.holder == Holder("b", 3)
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


@pytest.mark.parametrize("event", [["claimed", "a"], ["fencing_token", 3], ["released", 1, 1]])
def test_an_event_that_is_none_is_refused(event: Event) -> None:
    with pytest.raises(FencelogError, match="not valid"):
        PartitionState([Access()]).apply(event)


# -- changes ---------------------------------------------------------------------------------------


async def append(log, terms: Terms | None = None) -> int:
    return int((await log.append_message(Message(b"x"), terms)).offset)


async def code_of(work) -> ErrorCode:
    with pytest.raises(FencelogError) as caught:
        await work
    return caught.value.code


async def test_a_token_outlives_its_owner(stage) -> None:
    log = await stage.open()
    await append(log)
    await log.access.fence("t")
    for _ in range(2):
        assert await code_of(append(log)) is ErrorCode.PRECONDITION_FAILED
        assert await append(log, Terms(fencing_token="t")) == log.tail_offset - 1
        log = await stage.open()
        assert log.access.shown() == {"fencing_token": "t", "exclusive": None, "count": 0}
    assert await code_of(log.access.fence("u", expected=("s",))) is ErrorCode.PRECONDITION_FAILED
    await log.access.fence(None, expected=("t",))
    await append(log)


async def test_appends_wait_while_a_change_is_not_durable(stage, ledgers, until) -> None:
    log = await stage.open()
    data = ledgers.newest
    ledgers.auto_ack = data.auto_ack = False
    before = asyncio.create_task(append(log))
    await until(lambda: len(data.payloads) == 1)
    fencing = asyncio.create_task(log.access.fence("t"))
    await asyncio.sleep(0.01)
    held = [asyncio.create_task(append(log, terms)) for terms in (None, Terms(fencing_token="t"))]
    await asyncio.sleep(0.01)
    assert (len(data.payloads), ledgers.newest is data) == (1, True)  # the former append first
    data.ack(0)
    assert await before == 0
    await until(lambda: ledgers.newest is not data and len(ledgers.newest.payloads) == 1)
    assert not any(task.done() for task in (fencing, *held))
    ledgers.newest.ack(0)
    await fencing
    assert await code_of(held[0]) is ErrorCode.PRECONDITION_FAILED
    await until(lambda: len(data.payloads) == 2)
    data.ack(1)
    assert await held[1] == 1


async def test_while_it_is_not_known_whether_a_change_is_durable_nothing_is_appended(
    stage, ledgers, until
) -> None:
    log = await stage.open(patience_s=0.03)
    data = ledgers.newest
    ledgers.auto_ack = False
    fencing = asyncio.create_task(log.access.fence("t"))
    await until(lambda: ledgers.newest is not data and len(ledgers.newest.payloads) == 1)
    held = asyncio.create_task(append(log))
    assert await code_of(fencing) is ErrorCode.STATE_UNKNOWN
    assert await code_of(held) is ErrorCode.BOOKIE_UNAVAILABLE
    for terms in (None, Terms(fencing_token="t")):
        assert await code_of(append(log, terms)) is ErrorCode.BOOKIE_UNAVAILABLE
    ledgers.newest.ack(0)
    await until(lambda: log._pipeline.gate._refusal is None)
    assert await append(log, Terms(fencing_token="t")) == 0


async def test_a_change_is_not_made_on_top_of_what_is_unknown(stage, ledgers, until) -> None:
    log = await stage.open(patience_s=0.03)
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
    await until(lambda: log._pipeline.refusal is None)
    assert log.access.shown()["fencing_token"] is None
    await append(log)


async def test_a_claim_ends_the_epochs_in_the_log(stage) -> None:
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


async def test_who_waits_gets_it_when_it_is_released(stage) -> None:
    log = await stage.open()
    epoch = await log.access.claim("a", WAIT, wait_ms=0)
    assert await code_of(log.access.claim("b", WAIT, wait_ms=10)) is ErrorCode.PRODUCER_BUSY
    waiting = asyncio.create_task(log.access.claim("b", WAIT, wait_ms=60_000))
    await asyncio.sleep(0.01)
    await log.access.release("a", epoch)
    assert await waiting == epoch + 1


async def test_who_waits_is_told_when_the_log_ends(stage) -> None:
    log = await stage.open()
    await log.access.claim("a", EXCLUSIVE, wait_ms=0)
    waiting = asyncio.create_task(log.access.claim("b", WAIT, wait_ms=60_000))
    await asyncio.sleep(0.01)
    await log.close()
    assert await code_of(waiting) is ErrorCode.DRAINING


async def test_a_claim_goes_on_without_its_caller(stage, until) -> None:
    log = await stage.open()
    claim = asyncio.create_task(log.access.claim("a", EXCLUSIVE, wait_ms=0))
    await asyncio.sleep(0)
    claim.cancel()
    await until(lambda: log.access.shown()["exclusive"] is not None)
    await until(lambda: not log.access._tasks)
    assert (await stage.open()).access.shown()["exclusive"] == {"producer_id": "a", "epoch": 1}


async def test_a_producer_is_shown_when_all_of_it_is_settled(stage, ledgers, until) -> None:
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
    assert (await asked).next_sequence == 2
    await sent


async def test_a_producer_is_not_shown_while_it_is_unknown(stage, ledgers, until) -> None:
    log = await stage.open(patience_s=0.03)
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
    assert await log.access.producer("a") is None  # answered when that was resolved
    assert log._pipeline.is_idle
