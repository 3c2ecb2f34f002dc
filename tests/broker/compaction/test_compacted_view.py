"""A view of several entries, a view that may be listed or not, and one of a log that has ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from fencelog.broker.compaction import core
from fencelog.broker.compaction.compacted_view import CompactedReader, CompactedView
from fencelog.broker.ledger_list.ledger_list import Compacted
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.read.stored import ONE_MESSAGE, CompactedBatch, ReadLimits
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message, check_batch, encode_batch
from tests.support.broker_stage import Stage
from tests.support.scripted_ledgers import ScriptedLedgers

GONE = FencelogError(ErrorCode.NO_OWNER, "let go")


async def append(log: PartitionLog, keys: str) -> None:
    """Append a message for each of these keys, of one letter."""
    batch = encode_batch([Message(b"value", key.encode()) for key in keys])
    await log.append_batch(batch, check_batch(batch))


def view_of(log: PartitionLog) -> Compacted:
    compacted = log._node.ledger_list.compacted
    assert compacted is not None
    return compacted


# -- several entries -----------------------------------------------------------------------------

KEYS = "abaacdaaebfag"


@pytest.fixture
def short_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "COMPACTED_ENTRY_MESSAGES", 2)


@pytest.mark.usefixtures("short_entries")
@pytest.mark.parametrize("max_bytes", [1, 100, 1 << 20])
async def test_a_view_of_several_entries_is_read_from_anywhere_without_a_gap(
    stage: Stage, ledgers: ScriptedLedgers, max_bytes: int
) -> None:
    log = await stage.open()
    await append(log, KEYS)
    await log.compaction.run()
    (ledger_id,) = view_of(log).ledgers
    assert len(ledgers.writers[ledger_id].payloads) > 2
    expected = sorted(KEYS.rindex(key) for key in set(KEYS))
    for start in range(len(KEYS)):
        found: list[int] = []
        offset = start
        for _ in range(len(KEYS)):
            result = await log.compaction.view.read(offset, ReadLimits(1, max_bytes))
            for stored in result.entries:
                assert isinstance(stored, CompactedBatch)
                found += [at for at in stored.offsets if at >= offset]
            offset = result.next_offset
            if offset == log.tail_offset:
                break
        assert found == [at for at in expected if at >= start]
        assert offset == log.tail_offset


@pytest.mark.usefixtures("short_entries")
async def test_what_is_loaded_from_a_gap_begins_behind_it(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    """The entry before the gap ends where the read begins."""
    log = await stage.open()
    await append(log, "abccde")  # the entries are of 0 and 1, of 3 and 4, and of 5
    await log.compaction.run()
    (ledger_id,) = view_of(log).ledgers
    loaded = [
        await CompactedReader(ledgers, ledger_id, end_offset=6).load(offset, 1)
        for offset in (0, 2, 5)
    ]
    assert [([batch.base_offset for batch in batches], end) for batches, end in loaded] == [
        ([0], 2),
        ([3], 5),
        ([5], 6),
    ]


# -- faults --------------------------------------------------------------------------------------


async def test_while_it_is_unknown_which_view_is_listed_both_ledgers_stay(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await stage.open()
    await append(log, "ab")
    await log.compaction.run()
    previous = view_of(log)
    await append(log, "a")

    async def lost(change: object) -> None:
        raise FencelogError(ErrorCode.METADATA_UNKNOWN, "no answer")

    with monkeypatch.context() as patch:
        patch.setattr(log._node, "change", lost)
        await log.compaction.run()
    assert log.compaction.status()["state"] == "failed"
    created = {*ledgers.writers} - {*previous.ledgers}
    assert len(created) == 2  # the log's own, and that of the view
    assert ledgers.deleted.isdisjoint({*previous.ledgers, *created})
    await log.compaction.run()
    assert view_of(log).end_offset == 3
    assert ledgers.deleted == {*previous.ledgers}


@pytest.mark.parametrize("is_replaced", [True, False])
async def test_a_read_goes_on_in_the_view_that_has_replaced_its_own(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    """Its ledger is deleted then. Where there is no other view, the error is the reader's."""
    log = await stage.open()
    await append(log, "ab")
    await log.compaction.run()
    await append(log, "a")
    view = log.compaction.view

    async def deleted(*arguments: object) -> None:
        monkeypatch.undo()
        if is_replaced:
            await log.compaction.run()
        raise FencelogError(ErrorCode.LEDGER_NOT_FOUND, "it was deleted")

    for owner, name, read in (
        (view, "_read_below", view.read(0, ReadLimits(9, 1 << 20))),
        (CompactedReader, "offset_for_time", view.offset_for_time(0)),
    ):
        monkeypatch.setattr(owner, name, deleted)
        if is_replaced:
            await read
            await append(log, "a")
            continue
        with pytest.raises(FencelogError) as raised:
            await read
        assert raised.value.code is ErrorCode.LEDGER_NOT_FOUND


READS: dict[str, Callable[[CompactedView], Awaitable[object]]] = {
    "read": lambda view: view.read(0, ONE_MESSAGE),
    "search": lambda view: view.offset_for_time(0),
}


@pytest.mark.parametrize("kind", READS)
async def test_an_owner_that_has_lost_its_log_does_not_show_the_view(
    stage: Stage, kind: str
) -> None:
    """Its successor may have another one."""
    log = await stage.open()
    await append(log, "ab")
    await log.compaction.run()
    await READS[kind](log.compaction.view)
    await log.abandon(GONE)
    with pytest.raises(FencelogError) as raised:
        await READS[kind](log.compaction.view)
    assert raised.value.code is ErrorCode.NO_OWNER
