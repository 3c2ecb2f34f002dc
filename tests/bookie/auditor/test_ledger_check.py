"""The ledger check: it marks what is missing or damaged, and nothing of which it is not sure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fencelog.bookie.auditor.ledger_check import LedgerCheck, LedgerCheckResult
from fencelog.bookie.replication.store import Cause
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import DigestType
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.ledger_metadata.ledger_nodes import MARKS_PATH, ledger_path
from fencelog.ledgers.ledger_metadata.model import Fragment
from fencelog.ledgers.rpc.bookie_port import ReadReply
from tests.bookie.auditor.audit_stage import AuditStage
from tests.support.metadata_nodes import overwrite_now

_PAYLOAD_AT = 88
"""The first byte of the payload, in a run of one entry (ledgers/format/run.py)."""


async def check(stage: AuditStage, **settings: Any) -> LedgerCheckResult:
    settings = {"bytes_per_s": None, **settings}
    return await LedgerCheck(stage.store, stage, host=stage.host, **settings).run()


async def marked(stage: AuditStage) -> dict[int, dict[str, set[str]]]:
    return {
        mark.ledger_id: {b: {why.value for why in causes} for b, causes in mark.missing.items()}
        async for mark in stage.marks.list()
    }


def rot(stage: AuditStage, name: str, ledger_id: int, entry_id: int) -> None:
    """Flip a bit of an entry's payload."""
    entries = stage.bookies[name].entries[ledger_id]
    run = bytearray(entries[entry_id])
    run[_PAYLOAD_AT] ^= 1
    entries[entry_id] = bytes(run)


async def test_what_is_missing_is_marked_with_the_bookies(stage: AuditStage) -> None:
    await stage.ledger(1)
    await stage.ledger(2)
    await stage.ledger(3, "b1 b2 b3 b4 b5", last=30)
    stage.drop("b1", 2, 4)
    del stage.bookies["b3"].entries[2]
    stage.drop("b5", 3, 7)
    result = await check(stage, share=-1)
    assert await marked(stage) == {
        2: {"b1": {"missing_copies"}, "b3": {"missing_copies"}},
        3: {"b5": {"missing_copies"}},
    }
    assert (result.ledgers, result.marked, result.sampled_entries) == (3, 2, 0)


async def test_a_mark_that_cannot_be_read_holds_up_no_other_ledger(stage: AuditStage) -> None:
    for ledger_id in (1, 2, 3):
        await stage.ledger(ledger_id)
        stage.drop("b1", ledger_id, 4)
    path = ledger_path(MARKS_PATH, 2)
    await stage.store.create(path, b"no mark")
    result = await check(stage, share=-1)
    assert [ledger_id async for ledger_id in stage.marks.list_ids()] == [1, 2, 3]
    assert (result.ledgers, result.marked, result.unreadable) == (3, 2, 1)
    assert (await stage.store.get(path)).value == b"no mark"


async def test_first_and_last_entries_of_each_fragment_are_read(stage: AuditStage) -> None:
    await stage.ledger(1, last=20, then=[(8, "b4 b2 b3")])
    await stage.ledger(2, last=20, then=[(8, "b4 b2 b3")])
    rot(stage, "b2", 1, 8)
    rot(stage, "b3", 1, 7)
    rot(stage, "b2", 2, 12)  # not among the samples
    result = await check(stage)
    assert await marked(stage) == {1: {"b2": {"damaged"}, "b3": {"damaged"}}}
    assert result.damaged == 1


async def test_a_share_of_one_reads_everything(stage: AuditStage) -> None:
    await stage.ledger(1, last=20)
    await stage.ledger(2, "b1 b2 b3 b4 b5", last=22)
    rot(stage, "b2", 1, 12)
    rot(stage, "b4", 2, 13)
    await check(stage, share=1.0)
    assert await marked(stage) == {1: {"b2": {"damaged"}}, 2: {"b4": {"damaged"}}}


async def test_a_bookie_that_answers_in_parts_is_read_to_the_end(stage: AuditStage) -> None:
    await stage.ledger(1, last=20)
    rot(stage, "b2", 1, 12)
    original = stage.bookies["b2"].read

    async def one_by_one(ledger_id: int, first: int, **limits: Any) -> ReadReply:
        return await original(ledger_id, first, **{**limits, "max_entries": 1})

    setattr(stage.bookies["b2"], "read", one_by_one)  # noqa: B010 - a double of one method
    await check(stage, share=1.0)
    assert await marked(stage) == {1: {"b2": {"damaged"}}}


async def test_unknown_is_not_marked(stage: AuditStage) -> None:
    await stage.ledger(1)
    await stage.ledger(2)
    stage.drop("b1", 2, 3)
    original = stage.bookies["b1"].list_entries

    async def in_limbo(ledger_id: int, from_entry: int = 0) -> EntryList:
        return replace(await original(ledger_id, from_entry), in_limbo=True)

    setattr(stage.bookies["b1"], "list_entries", in_limbo)  # noqa: B010 - a double of one method
    stage.bookies["b2"].go_down()
    await check(stage, share=1.0)
    assert await marked(stage) == {}


async def test_a_read_that_fails_says_nothing(stage: AuditStage) -> None:
    await stage.ledger(1)
    error = FencelogError(ErrorCode.REQUEST_TIMEOUT, "silence")
    stage.bookies["b1"].fault = lambda request: error if request == "read" else None
    await check(stage, share=1.0)
    assert await marked(stage) == {}


async def test_a_listed_entry_that_is_denied_is_missing(stage: AuditStage) -> None:
    await stage.ledger(1)
    error = FencelogError(ErrorCode.NO_SUCH_ENTRY, "no")
    stage.bookies["b1"].fault = lambda request: error if request == "read" else None
    await check(stage, share=1.0)
    assert await marked(stage) == {1: {"b1": {"missing_copies"}}}


async def test_open_ledgers_are_checked_up_to_their_last_fragment(stage: AuditStage) -> None:
    """Entries of the last one, its first included, may still be in flight."""
    await stage.ledger(1, last=9, then=[(5, "b1 b2 b4")], is_closed=False)
    stage.drop("b1", 1, 5, 8)
    await check(stage)
    assert await marked(stage) == {}
    stage.drop("b1", 1, 3)
    await check(stage)
    assert await marked(stage) == {1: {"b1": {"missing_copies"}}}


async def test_a_ledger_whose_ensembles_changed_meanwhile_is_not_marked(stage: AuditStage) -> None:
    metadata = await stage.ledger(1)
    stage.drop("b1", 1, 3)
    moved = replace(metadata, fragments=(Fragment(0, ("b4", "b2", "b3")),))
    original = stage.bookies["b2"].list_entries

    async def moving(ledger_id: int, from_entry: int = 0) -> EntryList:
        await stage.change(1, moved)
        return await original(ledger_id, from_entry)

    setattr(stage.bookies["b2"], "list_entries", moving)  # noqa: B010 - a double of one method
    await check(stage, share=-1)
    assert await marked(stage) == {}


async def test_a_ledger_that_is_deleted_meanwhile_is_not_marked(stage: AuditStage) -> None:
    await stage.ledger(1)
    stage.drop("b1", 1, 3)
    original = stage.bookies["b2"].list_entries

    async def deleting(ledger_id: int, from_entry: int = 0) -> EntryList:
        await stage.ledgers.delete(1)
        return await original(ledger_id, from_entry)

    setattr(stage.bookies["b2"], "list_entries", deleting)  # noqa: B010 - a double of one method
    await check(stage, share=-1)
    assert await marked(stage) == {}


async def test_digests_that_need_an_unknown_key_are_not_verified(stage: AuditStage) -> None:
    metadata = await stage.ledger(1)
    await stage.change(1, replace(metadata, digest_type=DigestType.HMAC_SHA256))
    result = await check(stage, share=1.0)
    assert await marked(stage) == {}
    assert (result.unverified, result.sampled_entries) == (1, 0)


async def test_metadata_that_cannot_be_read_is_counted(stage: AuditStage) -> None:
    await stage.ledger(1)
    overwrite_now(stage.memory, "/ledgers/0/0001", b"{}")
    assert (await check(stage)).to_json()["unreadable"] == 1


async def test_causes_add_up(stage: AuditStage) -> None:
    await stage.ledger(1)
    await stage.marks.mark(1, missing=["b1"], why=Cause.DECOMMISSION, now_us=1)
    stage.drop("b1", 1, 3)
    await check(stage)
    assert await marked(stage) == {1: {"b1": {"decommission", "missing_copies"}}}
