"""Opening a log by metadata that was restored from a backup: bookies have deleted a closed ledger,
or the state ledger went on for longer than the ledgers of messages that the backup names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencelog.broker.append.conditions import AppendConditions
from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import (
    RANGE_KEY,
    RANGE_SEQUENCE,
    SequenceRange,
    producer_digest,
)
from fencelog.ledgers.format.run import Entry
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import Stage, Until
from tests.support.scripted_ledgers import ScriptedReader

NUMBERED = SequenceRange(0, RANGE_SEQUENCE, producer_digest(b"p"), 0, 0)


async def closed_log(stage: Stage, *, conditions: AppendConditions | None = None) -> PartitionLog:
    """A log with one message, closed: its ledger is sealed."""
    log = await stage.open()
    await log.append_message(Message(b"x"), conditions or AppendConditions())
    await log.close()
    return log


def no_copies(monkeypatch: pytest.MonkeyPatch, ledger_id: int, code: ErrorCode) -> None:
    """No entry of the ledger can be read any more."""
    read = ScriptedReader.read

    async def fails(self: ScriptedReader, first: int, last: int, **options: int) -> list[Entry]:
        if self.metadata.ledger_id == ledger_id:
            raise FencelogError(code, "no bookie has it")
        return await read(self, first, last, **options)

    monkeypatch.setattr(ScriptedReader, "read", fails)


async def refusal(stage: Stage) -> ErrorCode:
    with pytest.raises(FencelogError) as caught:
        await stage.open()
    return caught.value.code


@pytest.mark.parametrize("code", [ErrorCode.NO_SUCH_ENTRY, ErrorCode.READ_UNKNOWN])
async def test_the_list_says_how_long_a_closed_ledger_without_copies_is(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    (segment,) = (await closed_log(stage))._node.ledger_list.segments
    no_copies(monkeypatch, segment.ledger_id, code)
    taken = await stage.open()
    assert taken._node.ledger_list.segments[0] == segment
    assert (await taken.append_message(Message(b"y"))).offset == 1


async def test_what_is_damaged_is_not_served(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    (segment,) = (await closed_log(stage))._node.ledger_list.segments
    no_copies(monkeypatch, segment.ledger_id, ErrorCode.CORRUPT)
    assert await refusal(stage) is ErrorCode.CORRUPT


async def test_the_list_is_not_believed_against_the_metadata(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (segment,) = (await closed_log(stage))._node.ledger_list.segments
    assert segment.sealed is not None
    wrong = replace(segment, sealed=replace(segment.sealed, entries=7))
    node = await stage.node()
    await node.change(lambda ledger_list: replace(ledger_list, segments=(wrong,)))
    no_copies(monkeypatch, segment.ledger_id, ErrorCode.READ_UNKNOWN)
    assert await refusal(stage) is ErrorCode.READ_UNKNOWN


async def test_what_the_list_does_not_know_has_to_be_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await stage.open()
    await log.append_message(Message(b"x"))
    no_copies(monkeypatch, log._node.ledger_list.segments[0].ledger_id, ErrorCode.READ_UNKNOWN)
    assert await refusal(stage) is ErrorCode.READ_UNKNOWN


async def test_producers_that_stand_in_it_alone_are_not_forgotten(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await closed_log(stage, conditions=AppendConditions(NUMBERED))
    (segment,) = log._node.ledger_list.segments
    no_copies(monkeypatch, segment.ledger_id, ErrorCode.READ_UNKNOWN)
    assert await refusal(stage) is ErrorCode.READ_UNKNOWN


def numbered(sequence: int, *, key: bytes | None = None) -> AppendConditions:
    if key is not None:
        return AppendConditions(SequenceRange(0, RANGE_KEY, producer_digest(key), 0, 0))
    return AppendConditions(SequenceRange(0, RANGE_SEQUENCE, producer_digest(b"p"), 0, sequence))


async def gone_back(stage: Stage, until: Until) -> LedgerList:
    """A log of one message, in a ledger that has ended, whose state ledger knows of two more: their
    producer, their keys, and a subscription that has acknowledged them."""
    log = await stage.open(max_entries=1)
    await log.append_message(Message(b"x"), numbered(0))
    cursors = log.subscriptions._cursors
    cursors.begin("s", 0, durable=True)
    await cursors.settled()
    await until(lambda: len(log._node.ledger_list.segments) == 2)
    listed = log._node.ledger_list
    backup = replace(listed, segments=(replace(listed.segments[0], sealed=None),))
    await log.append_message(Message(b"y"), numbered(1))
    await log.append_message(Message(b"z"), numbered(0, key=b"k"))
    cursors.change(["ack", "s", [[0, 1], [2, 3]]])
    for event in log._pipeline.conditional.producers.changes():
        await log._state_log.record(event)
    await log.abandon(FencelogError(ErrorCode.DRAINING, "everything stops"))
    node = await stage.node()
    await node.change(lambda _: backup)
    return backup


async def test_state_of_messages_that_a_restore_has_lost_is_forgotten(
    stage: Stage, until: Until
) -> None:
    backup = await gone_back(stage, until)
    taken = await stage.open()
    assert taken.tail_offset == 1
    assert taken.subscriptions.stats("s")["acked_to"] == 1
    assert taken._node.ledger_list.state_ledger != backup.state_ledger
    known = await taken.append_message(Message(b"x"), numbered(0))
    again = await taken.append_message(Message(b"y"), numbered(1))
    keyed = await taken.append_message(Message(b"z"), numbered(0, key=b"k"))
    assert [(each.offset, each.duplicate) for each in (known, again, keyed)] == [
        (0, True),
        (1, False),
        (2, False),
    ]


async def test_it_stays_forgotten_when_others_have_their_offsets(
    stage: Stage, until: Until
) -> None:
    await gone_back(stage, until)
    taken = await stage.open()
    for value in (b"1", b"2", b"3"):
        await taken.append_message(Message(value))
    await taken.abandon(FencelogError(ErrorCode.DRAINING, "it dies"))
    assert (await stage.open()).subscriptions.stats("s")["acked_to"] == 1


async def test_nothing_is_served_before_it_is_forgotten_for_good(
    stage: Stage, until: Until
) -> None:
    await gone_back(stage, until)
    never = FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "none for the state")
    tried = 0

    def one_ledger_only() -> None:
        nonlocal tried
        tried += 1
        if tried > 1:
            stage.ledgers.create_errors.append(never)

    stage.ledgers.before_create = one_ledger_only
    with pytest.raises(FencelogError) as caught:
        await stage.open(timeout_s=0.05)
    assert caught.value.code is ErrorCode.STATE_UNKNOWN
    stage.ledgers.before_create = lambda: None
    assert (await stage.open()).subscriptions.stats("s")["acked_to"] == 1
