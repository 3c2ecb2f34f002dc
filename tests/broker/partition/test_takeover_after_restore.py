"""Opening a log of which bookies have deleted a closed ledger, as after the restore of an old
backup of the metadata."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencelog.broker.append.conditions import AppendConditions
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_SEQUENCE, SequenceRange, producer_digest
from fencelog.ledgers.format.run import Entry
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import Stage
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
