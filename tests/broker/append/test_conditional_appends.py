"""The gate alone: what waits at it, for how long, and what is refused."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.broker.append import conditional_appends as module
from fencelog.broker.append.conditions import AppendConditions, AppendFuture
from fencelog.broker.append.mode import AppendMode
from fencelog.broker.append.pending import MAX_BATCH_BYTES
from fencelog.broker.append.pending_bytes import PendingBytes
from fencelog.broker.append.pipeline import AppendPipeline
from fencelog.broker.append.producer_replay import replay_producers
from fencelog.broker.append.producer_table import ProducerTable
from fencelog.broker.ledger_list.ledger_list import LedgerList, Sealed, Segment
from fencelog.ledgers.client import Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE, RANGE_SEQUENCE, SequenceRange
from fencelog.ledgers.limits import MAX_MESSAGE_BYTES
from fencelog.ledgers.record_batch import Message, check_batch, encode_values
from tests.support.scripted_ledgers import ScriptedLedgers

GONE = FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "gone")
UNKNOWN = FencelogError(ErrorCode.APPEND_UNKNOWN, "who knows")
FIRST = AppendConditions(SequenceRange(0, RANGE_SEQUENCE))


@pytest.fixture
async def pipeline(ledgers: ScriptedLedgers) -> AppendPipeline:
    """One whose ledger acknowledges on demand."""
    ledgers.auto_ack = False
    pipeline = AppendPipeline(
        0,
        AppendMode(),
        tail_offset=0,
        last_publish_us=0,
        now_us=lambda: 1,
        on_stored=lambda stored: None,
        broker_pending=PendingBytes(),
    )
    pipeline.mode.hold(False)
    pipeline.start_ledger(
        await ledgers.create(Replication(), on_ack=pipeline.acknowledged, on_failure=print)
    )
    return pipeline


async def sent(
    pipeline: AppendPipeline, *conditions: AppendConditions | None
) -> list[AppendFuture]:
    futures = [pipeline.append_message(Message(b"x"), each) for each in conditions]
    await asyncio.sleep(0)
    return futures


def code_of(future: AppendFuture) -> ErrorCode:
    error = future.exception()
    assert isinstance(error, FencelogError)
    return error.code


async def test_the_bytes_of_a_range_count(pipeline: AppendPipeline) -> None:
    info = check_batch(encode_values([b"x"]))
    largest = MAX_BATCH_BYTES - RANGE.size
    futures = [pipeline.append_batch(bytes(n), info, FIRST) for n in (largest + 1, largest)]
    assert code_of(futures[0]) is ErrorCode.PAYLOAD_TOO_LARGE
    assert pipeline.pending_bytes == MAX_BATCH_BYTES
    (too_large,) = [pipeline.append_message(Message(bytes(MAX_MESSAGE_BYTES + 1)), FIRST)]
    assert code_of(too_large) is ErrorCode.PAYLOAD_TOO_LARGE


async def test_few_wait_at_a_time(
    pipeline: AppendPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_APPENDS", 2)
    depends = AppendConditions(if_offset=0)
    first, *waiting, refused = await sent(pipeline, None, depends, depends, depends)
    assert code_of(refused) is ErrorCode.OVERLOADED
    waiting[0].cancel()
    pipeline.acknowledged(0)
    assert first.result().offset == 0
    assert code_of(waiting[1]) is ErrorCode.PRECONDITION_FAILED
    assert pipeline.pending_bytes == 0


async def test_those_that_wait_are_decided_in_the_order_of_arrival(
    pipeline: AppendPipeline,
) -> None:
    """Both are for the offset of an append that vanishes."""
    await sent(pipeline, None)
    pipeline.mode.hold(True)
    expected = AppendConditions(if_offset=1)
    vanishing, earlier, later = await sent(pipeline, None, expected, expected)
    pipeline.acknowledged(0)
    pipeline.refuse_waiting(GONE)
    assert code_of(vanishing) is ErrorCode.BOOKIE_UNAVAILABLE
    pipeline.mode.hold(False)
    pipeline.schedule_pump()
    await asyncio.sleep(0)
    pipeline.acknowledged(1)
    assert earlier.result().offset == 1
    assert code_of(later) is ErrorCode.PRECONDITION_FAILED


async def test_what_waited_is_refused_by_a_log_that_has_ended(pipeline: AppendPipeline) -> None:
    _, waiting = await sent(pipeline, None, AppendConditions(if_offset=0))
    pipeline.mode.refusal = FencelogError(ErrorCode.DRAINING, "closing")
    pipeline.acknowledged(0)
    assert code_of(waiting) is ErrorCode.DRAINING
    with pytest.raises(FencelogError, match="closing"):
        await pipeline.conditional.drain()


async def test_what_was_refused_before_it_was_sent_may_come_again(
    pipeline: AppendPipeline,
) -> None:
    """Apache Pulsar 5218: the attempt counts no more, so its retry waits for nothing of it."""
    (ahead,) = await sent(pipeline, None)
    pipeline.mode.hold(True)
    (refused,) = await sent(pipeline, FIRST)
    pipeline.refuse_waiting(GONE)
    assert code_of(refused) is ErrorCode.BOOKIE_UNAVAILABLE
    (again,) = await sent(pipeline, FIRST)
    pipeline.mode.hold(False)
    pipeline.schedule_pump()
    pipeline.acknowledged(0)
    await asyncio.sleep(0)
    pipeline.acknowledged(1)
    assert (ahead.result().offset, again.result().offset) == (0, 1)
    assert not again.result().duplicate


@pytest.mark.parametrize("last", [-1, 0])
async def test_who_repeats_what_was_given_up_learns_what_recovery_finds(
    pipeline: AppendPipeline, last: int
) -> None:
    (first,) = await sent(pipeline, FIRST)
    pipeline.mode.hold(True)
    pipeline.give_up(GONE, UNKNOWN)
    assert code_of(first) is ErrorCode.APPEND_UNKNOWN
    (repeated,) = await sent(pipeline, FIRST)
    assert not repeated.done()
    pipeline.resolve(last)
    if last < 0:
        assert code_of(repeated) is ErrorCode.BOOKIE_UNAVAILABLE
    else:
        assert (repeated.result().offset, repeated.result().duplicate) == (0, True)
    assert (pipeline.pending_bytes, pipeline.queue.next_offset) == (0, last + 1)


async def test_a_drain_ends_with_what_it_waits_for(pipeline: AppendPipeline) -> None:
    await sent(pipeline, None)
    draining = asyncio.create_task(pipeline.conditional.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    pipeline.mode.hold(True)
    pipeline.give_up(GONE, UNKNOWN)
    with pytest.raises(FencelogError, match="gone"):
        await draining
    pipeline.resolve(-1)
    await pipeline.conditional.drain()
    (held,) = await sent(pipeline, None)
    was_idle = pipeline.is_idle
    pipeline.conditional.open()
    assert (was_idle, pipeline.is_idle) == (True, False)
    assert not held.done()


async def test_producers_known_beyond_the_log_are_a_corruption(ledgers: ScriptedLedgers) -> None:
    table = ProducerTable()
    table.commit([SequenceRange(5, RANGE_SEQUENCE)], 0, 1, 100)
    facts = Sealed(entries=1, messages=4, size=0, last_publish_us=0, sealed_us=0)
    ledger_list = LedgerList(segments=(Segment(1, 0, 0, facts),))
    with pytest.raises(FencelogError, match="ends at offset 4, its producers are known up to 5"):
        await replay_producers(ledgers.open, ledger_list, {}, table)
