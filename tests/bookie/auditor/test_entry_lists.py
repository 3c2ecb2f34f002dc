"""The lists of a ledger's bookies: pages, failures, and answers that are too large to be true."""

from __future__ import annotations

from typing import Any

from fencelog.bookie.auditor.check_core import Answer
from fencelog.bookie.auditor.entry_lists import EntryLists
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import MAX_ENTRY_ID, Availability, SequenceGroup
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.limits import MAX_LISTED_RUNS
from tests.bookie.auditor.audit_stage import AuditStage


def answering(stage: AuditStage, name: str, *answers: EntryList | FencelogError) -> None:
    """Let a bookie give these answers, one after the other."""
    remaining = list(answers)

    async def answer(ledger_id: int, from_entry: int = 0) -> EntryList:
        stage.bookies[name].asked.append(("list_entries", from_entry))
        found = remaining.pop(0)
        if isinstance(found, FencelogError):
            raise found
        return found

    setattr(stage.bookies[name], "list_entries", answer)  # noqa: B010 - a double of one method


async def windows(lists: EntryLists) -> list[tuple[int, int, dict[str, Any]]]:
    return [
        (w.first, w.last, {b: (h.answer, h.listed.count) for b, h in w.held.items()})
        async for w in lists.windows()
    ]


async def test_only_the_bookies_of_fragments_with_entries_are_asked(stage: AuditStage) -> None:
    metadata = await stage.ledger(1, last=9, then=[(5, "b2 b3 b4"), (10, "b3 b4 b5")])
    lists = EntryLists(metadata, stage)
    ((first, last, held),) = await windows(lists)
    assert (first, last) == (0, 9)
    assert sorted(held) == ["b1", "b2", "b3", "b4"]
    assert stage.bookies["b5"].asked == []


async def test_an_empty_ledger_has_no_window(stage: AuditStage) -> None:
    metadata = await stage.ledger(1, last=-1)
    assert await windows(EntryLists(metadata, stage)) == []


async def test_a_bookie_that_fails_on_a_later_page_is_unavailable_from_there(
    stage: AuditStage,
) -> None:
    metadata = await stage.ledger(1, last=9)
    error = FencelogError(ErrorCode.REQUEST_TIMEOUT, "silence")
    answering(stage, "b1", EntryList(Availability.of([(0, 3)]), 4), error)
    lists = EntryLists(metadata, stage)
    others = {"b2": (Answer.COMPLETE, 10), "b3": (Answer.COMPLETE, 10)}
    assert await windows(lists) == [
        (0, 3, {"b1": (Answer.COMPLETE, 4), **others}),
        (4, 9, {"b1": (Answer.UNAVAILABLE, 0), **others}),
    ]
    assert lists.failures == {"b1": error}
    assert stage.bookies["b2"].asked == [("list_entries", 0)]


async def test_limbo_of_any_page_is_noted(stage: AuditStage) -> None:
    metadata = await stage.ledger(1, last=9)
    answering(
        stage,
        "b1",
        EntryList(Availability.of([(0, 3)]), 4, in_limbo=True),
        EntryList(Availability.of([(4, 9)])),
    )
    lists = EntryLists(metadata, stage)
    found = await windows(lists)
    assert [held["b1"][0] for _, _, held in found] == [Answer.IN_LIMBO, Answer.COMPLETE]
    assert lists.in_limbo == {"b1"}


async def test_a_list_that_no_bookie_could_have_is_unknown(stage: AuditStage) -> None:
    """It is not gone through: it would take for ever."""
    metadata = await stage.ledger(1, last=9)
    endless = SequenceGroup(0, (MAX_ENTRY_ID // 7 - 1) * 7, 1, 7)
    answering(stage, "b1", EntryList(Availability((endless,))))
    lists = EntryLists(metadata, stage)
    ((_, _, held),) = await windows(lists)
    assert held["b1"] == (Answer.UNAVAILABLE, 0)
    assert lists.failures["b1"].code is ErrorCode.CORRUPT
    assert str(MAX_LISTED_RUNS) not in lists.failures["b1"].detail


async def test_bookies_that_are_gone_or_rest_are_not_asked(stage: AuditStage) -> None:
    metadata = await stage.ledger(1, last=9)
    error = FencelogError(ErrorCode.REQUEST_TIMEOUT, "silence")
    lists = EntryLists(metadata, stage, gone={"b1"}, resting={"b2": error, "b5": error})
    ((_, _, held),) = await windows(lists)
    assert (held["b1"][0], held["b2"][0]) == (Answer.GONE, Answer.UNAVAILABLE)
    assert lists.failures == {"b2": error}, "b5 is not needed"
    assert stage.bookies["b1"].asked == stage.bookies["b2"].asked == []
