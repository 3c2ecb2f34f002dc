"""Exactly-once appends over failures, retries and takeovers, step by step."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from fencelog.broker.append.conditions import (
    FORGOTTEN,
    AppendConditions,
    AppendFuture,
    AppendResult,
    Repeated,
)
from fencelog.broker.ledger_list.store import LedgerListLost
from fencelog.broker.limits import RECENT_APPENDS
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.policy import Policy
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import (
    MAX_RANGES,
    RANGE_KEY,
    RANGE_NO_PRODUCER,
    RANGE_SEQUENCE,
    SequenceRange,
    producer_digest,
    read_entry_header,
    read_ranges,
)
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.record_batch import Message, check_batch, encode_values
from tests.support.broker_stage import ReadAll, Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers, ScriptedReader, ScriptedWriter


def numbered(sequence: int, epoch: int = 0, name: str = "p") -> AppendConditions:
    return AppendConditions(
        SequenceRange(0, RANGE_SEQUENCE, producer_digest(name.encode()), epoch, sequence),
    )


def keyed(key: str) -> AppendConditions:
    return AppendConditions(SequenceRange(0, RANGE_KEY, producer_digest(key.encode())))


def send(
    log: PartitionLog, sequence: int, count: int = 1, *, epoch: int = 0, name: str = "p"
) -> AppendFuture:
    """Messages whose values are their sequences."""
    batch = encode_values([b"%d" % n for n in range(sequence, sequence + count)])
    return log.append_batch(batch, check_batch(batch), numbered(sequence, epoch, name))


def one(
    log: PartitionLog, conditions: AppendConditions | None, value: bytes = b"x"
) -> AppendFuture:
    return log.append_message(Message(value), conditions)


async def code_of(future: AppendFuture) -> tuple[ErrorCode, dict[str, object]]:
    with pytest.raises(FencelogError) as caught:
        await future
    return caught.value.code, caught.value.extra


async def take_over(stage: Stage, *, max_entries: int) -> PartitionLog:
    """Take over as a broker does: again, if the previous owner was just rolling."""
    while True:
        with suppress(LedgerListLost):
            return await stage.open(max_entries=max_entries)


def was_sent(writer: ScriptedWriter, count: int) -> bool:
    return len(writer.payloads) == count


def accepts(log: PartitionLog) -> bool:
    return log._pipeline.mode.refusal is None


async def test_a_repeated_append_is_answered_with_its_place(
    stage: Stage, read_all: ReadAll
) -> None:
    log = await stage.open()
    assert await send(log, 0, 3) == AppendResult(0, 0, 3, 1_000_000)
    await one(log, None, b"other")
    await send(log, 3, 2)
    stage.host.clock_us += 5
    assert await send(log, 0, 3) == Repeated(0, 0, 3, 1_000_000)
    assert await send(log, 1, 1) == Repeated(0, 1, 1, 1_000_000)
    assert (await send(log, 3, 2)).offset == 4
    assert await read_all(log) == [b"0", b"1", b"2", b"other", b"3", b"4"]


@pytest.mark.parametrize(("sequence", "count"), [(4, 1), (2, 2), (0, 4), (9, 1)])
async def test_gaps_and_overlaps_are_refused(stage: Stage, sequence: int, count: int) -> None:
    log = await stage.open()
    await send(log, 0, 3)
    code, extra = await code_of(send(log, sequence, count))
    assert (code, extra) == (ErrorCode.SEQUENCE_MISMATCH, {"expected_sequence": 3})
    assert log.pending_bytes == 0


async def test_a_newer_epoch_begins_at_zero_and_ends_the_older(stage: Stage) -> None:
    log = await stage.open()
    await send(log, 0, 3)
    assert (await code_of(send(log, 3, epoch=2)))[1] == {"expected_sequence": 0}
    assert (await send(log, 0, epoch=2)).offset == 3
    assert await code_of(send(log, 3)) == (ErrorCode.PRODUCER_FENCED, {"epoch": 2})


async def test_where_an_old_duplicate_is_is_forgotten_but_not_that_it_is_one(stage: Stage) -> None:
    log = await stage.open()
    for sequence in range(RECENT_APPENDS + 1):
        await send(log, sequence)
    old, oldest_kept = await send(log, 0), await send(log, 1)
    assert (old.offset, old.duplicate) == (FORGOTTEN, True)
    assert oldest_kept.offset == 1


async def test_single_messages_of_producers_share_entries(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open()
    futures = [one(log, numbered(n)) for n in range(3)]
    futures += [one(log, None), one(log, numbered(0, name="q")), one(log, keyed("k"))]
    futures += [one(log, numbered(3)), one(log, None)]
    assert [(await f).offset for f in futures] == list(range(8))
    (payload,) = ledgers.newest.payloads
    ranges = read_ranges(payload, read_entry_header(payload))
    assert [(sequences.rows, sequences.kind, sequences.sequence) for sequences in ranges] == [
        (3, RANGE_SEQUENCE, 0),
        (1, RANGE_NO_PRODUCER, 0),
        (1, RANGE_SEQUENCE, 0),
        (1, RANGE_KEY, 0),
        (1, RANGE_SEQUENCE, 3),
        (1, RANGE_NO_PRODUCER, 0),
    ]
    again = await stage.open()
    assert [(await one(again, numbered(n))).offset for n in range(4)] == [0, 1, 2, 6]


async def test_an_entry_has_no_more_ranges_than_its_header_holds(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open()
    futures = []
    for n in range(MAX_RANGES):
        futures += [one(log, keyed(str(n))), one(log, None)]
    assert [(await f).offset for f in futures] == list(range(2 * MAX_RANGES))
    counts = [read_entry_header(p).range_count for p in ledgers.newest.payloads]
    assert counts == [MAX_RANGES, MAX_RANGES]
    assert (await one(await stage.open(), keyed("5"))).offset == 10


async def test_a_repetition_of_what_is_on_its_way_shares_its_outcome(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open()
    ledgers.newest.auto_ack = False
    first, second = send(log, 0, 3), send(log, 3, 2)
    repeated = [send(log, 0, 3), send(log, 1, 2), send(log, 0, 5)]
    gone = send(log, 3, 2)
    gone.cancel()
    await until(lambda: len(ledgers.newest.payloads) == 2)
    assert not any(future.done() for future in repeated)
    first.cancel()  # whoever repeats an append does not depend on who sent it first
    ledgers.newest.ack(1)
    assert (await second).offset == 3
    assert [(await f).offset for f in repeated] == [0, 1, FORGOTTEN]
    assert all(f.result().duplicate for f in repeated)
    assert log.tail_offset == 5


async def test_what_becomes_unknown_is_unknown_to_who_repeated_it_and_then_found(
    stage: Stage, ledgers: ScriptedLedgers, until: Until, read_all: ReadAll
) -> None:
    """Pulsar 25954, 5218: a retry is neither dropped nor written twice, whatever became of it."""
    for is_stored in (True, False):
        log = await stage.open(timeout_s=0.02)
        sequence = log.tail_offset
        writer = ledgers.newest
        writer.auto_ack = False
        sent, repeated = send(log, sequence), send(log, sequence)
        await until(partial(was_sent, writer, 1))
        ledgers.stored[writer.ledger_id] = 0 if is_stored else -1
        ledgers.recover_errors = [FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "away")] * 3
        writer.fail(FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "gone"))
        assert (await code_of(sent))[0] is ErrorCode.APPEND_UNKNOWN
        assert (await code_of(repeated))[0] is ErrorCode.APPEND_UNKNOWN
        assert (await code_of(send(log, sequence)))[0] is ErrorCode.BOOKIE_UNAVAILABLE
        await until(partial(accepts, log))
        found = await send(log, sequence)
        assert (found.offset, found.duplicate) == (sequence, is_stored)
    assert await read_all(log) == [b"0", b"1"]


async def test_what_a_failed_ledger_did_not_take_stays_on_its_way(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    """Pulsar 5271, 5322: failed persists are sent again by the owner, and repeated by nobody."""
    log = await stage.open()
    writer = ledgers.newest
    writer.auto_ack = False
    futures = [send(log, n) for n in range(3)]
    await until(lambda: len(writer.payloads) == 3)
    ledgers.stored[writer.ledger_id] = 0
    writer.fail(FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "gone"))
    repeated = send(log, 1, 2)
    assert [(await f).offset for f in futures] == [0, 1, 2]
    assert (await repeated).duplicate
    assert (await send(log, 3)).offset == 3


async def test_what_was_never_sent_is_forgotten(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open(timeout_s=0.02)
    ledgers.recover_errors = [FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "away")] * 3
    ledgers.newest.fail(FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "gone"))
    futures = [send(log, 0), one(log, keyed("k")), send(log, 0)]
    assert {(await code_of(f))[0] for f in futures} == {ErrorCode.BOOKIE_UNAVAILABLE}
    await until(partial(accepts, log))
    assert not (await send(log, 0)).duplicate
    assert not (await one(log, keyed("k"))).duplicate


@pytest.mark.parametrize("max_entries", [1, 2, 1000])
async def test_a_takeover_knows_what_is_in_the_log(stage: Stage, max_entries: int) -> None:
    log = await stage.open(max_entries=max_entries)
    for sequence in range(7):
        await send(log, sequence)
        await one(log, None)
    for _ in range(3):
        log = await take_over(stage, max_entries=max_entries)
        assert (await send(log, 6)).duplicate
        assert (await code_of(send(log, 8)))[1] == {"expected_sequence": 7}
        assert (await send(log, 2)).offset in (4, FORGOTTEN)
    sealed = [s.sealed for s in log._node.ledger_list.segments if s.sealed is not None]
    assert all(s.has_producers for s in sealed if s.messages > 1)


@pytest.mark.parametrize("stored", [0, 1, 2])
async def test_what_recovery_finds_decides_what_is_repeated(
    stage: Stage, ledgers: ScriptedLedgers, stored: int, until: Until, read_all: ReadAll
) -> None:
    """The owner dies with three appends on their way; some are in the log."""
    ledgers.auto_ack = False
    log = await stage.open()
    futures = [send(log, n) for n in range(3)]
    await until(lambda: len(ledgers.newest.payloads) == 3)
    ledgers.auto_ack = True
    ledgers.stored[1] = stored
    following = await stage.open()
    assert [(await send(following, n)).duplicate for n in range(3)] == [
        n <= stored for n in range(3)
    ]
    assert await read_all(following) == [b"0", b"1", b"2"]
    ledgers.writers[1].ack(2)  # the previous owner wakes
    assert {(await code_of(f))[0] for f in futures} == {ErrorCode.APPEND_UNKNOWN}
    assert (await code_of(send(log, 3)))[0] is ErrorCode.NO_OWNER


async def test_a_log_without_producers_costs_its_takeover_nothing(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    log = await stage.open(max_entries=10)
    for _ in range(35):
        await one(log, None)
    await until(lambda: log._writer._task is None)  # no roll is under way
    opened: list[int] = []
    open_ = ledgers.open

    async def counted(ledger_id: int) -> ScriptedReader:
        opened.append(ledger_id)
        return await open_(ledger_id)

    monkeypatch.setattr(ledgers, "open", counted)
    await stage.open()
    assert opened == []


async def test_a_takeover_reads_little_behind_the_last_snapshot(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    monkeypatch.setattr("fencelog.broker.append.producer_table.MAX_REPLAY_ENTRIES", 10)
    log = await stage.open()
    for sequence in range(95):
        await send(log, sequence)
    await until(lambda: log._state_log._scribe is None)
    readers: list[ScriptedReader] = []
    reader_of = ledgers.reader

    def counted(metadata: LedgerMetadata) -> ScriptedReader:
        readers.append(reader_of(metadata))
        return readers[-1]

    monkeypatch.setattr(ledgers, "reader", counted)
    following = await stage.open()
    assert {reader.metadata.ledger_id for reader in readers} == {1, 2}  # and the state ledger
    read = {
        entry
        for reader in readers
        for first, last in reader.reads
        for entry in range(first, last + 1)
    }
    assert 10 <= len(read) < 40
    assert (await send(following, 94)).offset == 94
    assert (await send(following, 95)).offset == 95


async def test_the_silent_producer_goes_and_is_no_silent_duplicate(stage: Stage) -> None:
    log = await stage.open()
    log.apply_policy(replace(Policy(), max_producers=2))
    for name in ("a", "b", "c"):
        await send(log, 0, 2, name=name)
    for _ in range(2):
        code, extra = await code_of(send(log, 1, 1, name="a"))
        assert (code, extra) == (ErrorCode.SEQUENCE_MISMATCH, {"expected_sequence": 0})
        assert (await send(log, 1, 1, name="b")).duplicate
        log = await stage.open(policy=replace(Policy(), max_producers=2))


async def test_whoever_was_forgotten_is_new(stage: Stage) -> None:
    """A forgotten producer is promised nothing: its first append, sent again, cannot be told from a
    new one."""
    policy = replace(Policy(), max_producers=2)
    log = await stage.open(policy=policy)
    await send(log, 0, name="a")
    await send(log, 0, name="b")
    assert (await send(log, 0, name="a")).duplicate  # as many others have not written yet
    await send(log, 0, name="c")
    log = await stage.open(policy=policy)  # and neither does a takeover know it
    again = await send(log, 0, name="a")
    assert (again.duplicate, again.offset) == (False, 3)
    assert (await send(log, 1, name="a")).offset == 4
    assert (await send(log, 0, name="c")).duplicate


async def test_so_many_producers_are_remembered_as_soon_as_that_is_set(stage: Stage) -> None:
    log = await stage.open()
    log.apply_policy(Policy(max_producers=1))
    for name in ("first", "second"):
        await send(log, 0, name=name)
    assert (await send(log, 0, name="second")).duplicate
    assert not (await send(log, 0, name="first")).duplicate


async def test_who_has_something_on_its_way_is_not_forgotten_by_that(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    """Its first append is sent again after another producer has pushed it out, and while its second
    one is on its way: that outcome is shared, and nothing is written twice."""
    log = await stage.open()
    log.apply_policy(replace(Policy(), max_producers=1))
    await send(log, 0, name="a")
    writer = ledgers.newest
    writer.auto_ack = False
    sent = len(writer.payloads)
    other = send(log, 0, name="b")
    await until(lambda: len(writer.payloads) == sent + 1)
    second = send(log, 1, name="a")
    await until(lambda: len(writer.payloads) == sent + 2)
    writer.ack(sent)
    await other
    first = send(log, 0, name="a")
    writer.ack(sent + 1)
    assert ((await second).offset, (await first).duplicate) == (2, True)
    assert len(writer.payloads) == sent + 2
    writer.auto_ack = True
    assert (await send(log, 2, name="a")).offset == 3


async def test_keys_are_remembered_for_their_window(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    log = await stage.open()
    batch = encode_values([b"a", b"b"])
    first = await log.append_batch(batch, check_batch(batch), keyed("k"))
    await one(log, keyed("other"))
    again = await one(await stage.open(), keyed("k"))
    assert (again.offset, again.count, again.duplicate) == (first.offset, 2, True)
    log = await stage.open()
    ledgers.newest.auto_ack = False
    late = [one(log, keyed("late")), one(log, keyed("late"))]
    await until(lambda: len(ledgers.newest.payloads) == 1)
    ledgers.newest.ack(0)
    assert [(await f).duplicate for f in late] == [False, True]
    ledgers.newest.auto_ack = True
    stage.host.clock_us += Policy().idempotency_window_ms * 1000
    anew = await one(log, keyed("k"))
    assert not anew.duplicate
    assert (await one(await stage.open(), keyed("k"))).offset == anew.offset


async def test_an_expected_offset(stage: Stage, ledgers: ScriptedLedgers, until: Until) -> None:
    log = await stage.open()
    assert (await one(log, AppendConditions(if_offset=0))).offset == 0
    assert await code_of(one(log, AppendConditions(if_offset=0))) == (
        ErrorCode.PRECONDITION_FAILED,
        {"next_offset": 1},
    )
    assert (await code_of(one(log, AppendConditions(if_offset=5))))[1] == {"next_offset": 1}
    ledgers.newest.auto_ack = False
    before = one(log, None)
    following = one(log, AppendConditions(if_offset=2))
    waiting = one(log, AppendConditions(if_offset=1))
    gone = one(log, AppendConditions(if_offset=1))
    gone.cancel()
    await until(lambda: len(ledgers.newest.payloads) == 2)
    assert not waiting.done()
    ledgers.newest.ack(1)
    assert ((await before).offset, (await following).offset) == (1, 2)
    assert (await code_of(waiting))[1] == {"next_offset": 3}
    assert log.pending_bytes == 0


async def test_an_expected_offset_does_not_rest_on_what_vanishes(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    """The append that had the offset is not in the log in the end."""
    log = await stage.open(timeout_s=0.02)
    writer = ledgers.newest
    writer.auto_ack = False
    vanishing = one(log, None)
    await until(lambda: len(writer.payloads) == 1)
    waiting = one(log, AppendConditions(if_offset=0))
    ledgers.stored[writer.ledger_id] = -1
    ledgers.recover_errors = [FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "away")] * 3
    writer.fail(FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "gone"))
    assert (await code_of(vanishing))[0] is ErrorCode.APPEND_UNKNOWN
    assert (await code_of(waiting))[0] is ErrorCode.BOOKIE_UNAVAILABLE
    await until(partial(accepts, log))
    assert (await one(log, AppendConditions(if_offset=0))).offset == 0
    assert log.pending_bytes == 0
