"""A decommission from end to end: what it waits for, and that the cookie goes last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fencelog.bookie.auditor import decommission
from fencelog.bookie.auditor.decommission import (
    Decommissioner,
    Decommissions,
    check_not_removed,
)
from fencelog.bookie.auditor.decommission_core import Decommission, Phase
from fencelog.bookie.auditor.registered import KnownBookies, read_bookies
from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.ledger_nodes import MARKS_PATH, ledger_path
from fencelog.ledgers.ledger_metadata.model import Fragment
from fencelog.ledgers.metastore.port import MetadataStore, Version
from tests.bookie.auditor.audit_stage import AuditStage
from tests.support.metadata_nodes import overwrite_now


async def move(stage: AuditStage, ledger_id: int, old: str, new: str) -> None:
    """Replace a bookie in all fragments, and remove the mark, as a worker does."""
    metadata, _ = await stage.ledgers.get(ledger_id)
    fragments = tuple(
        Fragment(f.first_entry_id, tuple(new if b == old else b for b in f.bookies))
        for f in metadata.fragments
    )
    await stage.change(ledger_id, replace(metadata, fragments=fragments))
    mark = await stage.marks.get(ledger_id)
    assert mark is not None
    assert await stage.marks.unmark(ledger_id, mark.version)


def obedient(stage: AuditStage, name: str) -> list[dict[str, Any]]:
    """Let a bookie carry out ``read_only``, and show it in its registration; returns what it was
    asked."""
    asked: list[dict[str, Any]] = []

    async def admin(request: Any) -> dict[str, Any]:
        asked.append(dict(request))
        await stage.register(name, read_only=request["on"])
        return {}

    setattr(stage.bookies[name], "admin", admin)  # noqa: B010 - a double of one method
    return asked


async def cookie_is_there(stage: AuditStage, name: str) -> bool:
    return (await CookieRegistry(stage.store).read(name)).registered.cookie is not None


def worker(stage: AuditStage) -> Decommissioner:
    return Decommissioner(stage.store, stage, host=stage.host)


async def step(stage: AuditStage, name: str = "b1") -> Decommission:
    """Take a step, as any auditor would: each time a new one."""
    job = await worker(stage).step(name)
    assert job is not None
    return job


async def test_a_living_bookie_leaves_after_its_copies(stage: AuditStage) -> None:
    await stage.ledger(1)
    await stage.ledger(2, "b2 b1 b3", then=[(4, "b2 b4 b3"), (7, "b1 b4 b3")])
    await stage.ledger(3, "b2 b3 b4")
    asked = obedient(stage, "b1")
    await Decommissions(stage.store).start("b1", host=stage.host)
    job = await step(stage)
    assert asked == [{"do": "read_only", "on": True}]
    assert await stage.marks.get(1) is None, "while it takes adds nothing is marked"
    job = await step(stage)
    assert job.remainder is not None
    assert (job.phase, job.remainder.fragments, job.remainder.ledgers) == (Phase.DRAINING, 3, 2)
    mark = await stage.marks.get(2)
    assert mark is not None
    assert mark.missing == {"b1": {Cause.DECOMMISSION}}
    await move(stage, 1, "b1", "b5")
    await move(stage, 2, "b1", "b5")
    assert (await step(stage)).phase is Phase.DRAINED
    assert (await step(stage)).phase is Phase.DRAINED, "it still runs"
    await stage.lose("b1")
    assert (await step(stage)).phase is Phase.REMOVING
    assert await cookie_is_there(stage, "b1")
    assert await worker(stage).step("b1") is None
    assert not await cookie_is_there(stage, "b1")
    assert await worker(stage).step("b1") is None, "it is over"
    assert await Decommissions(stage.store).list() == []
    assert len(asked) == 1


async def test_a_mark_is_not_renewed_again_and_again(stage: AuditStage) -> None:
    """Its worker could never remove it."""
    await stage.ledger(1)
    await stage.lose("b1")
    await Decommissions(stage.store).start("b1", host=stage.host)
    await step(stage)
    before = await stage.marks.get(1)
    await step(stage)
    assert await stage.marks.get(1) == before
    await stage.marks.mark(1, missing=["b1"], why=Cause.LOST_BOOKIE, now_us=1)
    changed = await stage.marks.get(1)
    await step(stage)
    assert await stage.marks.get(1) == changed


async def test_metadata_counts_and_not_marks(stage: AuditStage) -> None:
    await stage.ledger(1)
    await stage.lose("b1")
    await Decommissions(stage.store).start("b1", host=stage.host)
    await step(stage)
    mark = await stage.marks.get(1)
    assert mark is not None
    await stage.marks.unmark(1, mark.version)
    job = await step(stage)
    assert job.remainder is not None
    assert (job.phase, job.remainder.fragments) == (Phase.DRAINING, 1)
    assert await stage.marks.get(1) is not None, "it is marked again"


async def test_a_ledger_that_names_it_after_all_brings_it_back(stage: AuditStage) -> None:
    await stage.lose("b1")
    await Decommissions(stage.store).start("b1", host=stage.host)
    assert (await step(stage)).phase is Phase.REMOVING
    await stage.ledger(1)
    assert (await step(stage)).phase is Phase.DRAINING
    assert await cookie_is_there(stage, "b1")


async def test_a_bookie_that_starts_again_is_drained_again(stage: AuditStage) -> None:
    await stage.lose("b1")
    await Decommissions(stage.store).start("b1", host=stage.host)
    assert (await step(stage)).phase is Phase.REMOVING
    await stage.register("b1")
    asked = obedient(stage, "b1")
    assert (await step(stage)).phase is Phase.DRAINING
    assert await cookie_is_there(stage, "b1")
    assert (await step(stage)).phase is Phase.DRAINED
    assert asked == [{"do": "read_only", "on": True}], "it is read-only after each start"


async def test_metadata_that_cannot_be_read_may_name_any_bookie(stage: AuditStage) -> None:
    await stage.ledger(1, "b2 b3 b4")
    await stage.lose("b1")
    await Decommissions(stage.store).start("b1", host=stage.host)
    overwrite_now(stage.memory, "/ledgers/0/0001", b"{}")
    job = await step(stage)
    assert job.remainder is not None
    assert (job.phase, job.remainder.unreadable) == (Phase.DRAINING, 1)


async def test_an_auditor_that_died_after_the_cookie_is_no_danger_to_its_successor(
    stage: AuditStage,
) -> None:
    """A new bookie of that name has a new cookie, which stays."""
    await stage.lose("b1")
    jobs = Decommissions(stage.store)
    await jobs.start("b1", host=stage.host)
    assert (await step(stage)).phase is Phase.REMOVING
    cookies = CookieRegistry(stage.store)
    held = await cookies.read("b1")
    assert held.version is not None
    assert held.registered.cookie is not None
    await cookies.delete("b1", held.version)
    renewed = replace(held.registered.cookie, incarnation="02" * 16, directory="02" * 16)
    await cookies.register(renewed, await cookies.read("b1"))
    assert await worker(stage).step("b1") is None
    assert await cookie_is_there(stage, "b1")
    assert await jobs.get("b1") is None


async def test_a_cookie_that_is_gone_already_ends_it(stage: AuditStage) -> None:
    await stage.lose("b1")
    await Decommissions(stage.store).start("b1", host=stage.host)
    await step(stage)
    await stage.give_up("b1")
    assert await worker(stage).step("b1") is None


async def test_what_cannot_be_is_refused_at_the_start(stage: AuditStage) -> None:
    jobs = Decommissions(stage.store)
    with pytest.raises(FencelogError, match="there is no bookie b9") as caught:
        await jobs.start("b9", host=stage.host)
    assert caught.value.code is ErrorCode.BAD_REQUEST
    await stage.ledger(1, "b1 b2 b3 b4", write_quorum=3)
    await jobs.start("b5", host=stage.host)
    with pytest.raises(FencelogError, match="without b1 only 3 take adds"):
        await jobs.start("b1", host=stage.host)
    assert [job.bookie_id for job in await jobs.list()] == ["b5"]


async def test_to_begin_again_changes_nothing(stage: AuditStage) -> None:
    jobs = Decommissions(stage.store)
    first = await jobs.start("b1", host=stage.host)
    assert await jobs.start("b1", host=stage.host) == first


async def test_a_cancelled_decommission_leaves_the_bookie_as_it_was(stage: AuditStage) -> None:
    await stage.ledger(1)
    await stage.ledger(2)
    asked = obedient(stage, "b1")
    jobs = Decommissions(stage.store)
    await jobs.start("b1", host=stage.host)
    await step(stage)
    await step(stage)
    await stage.marks.mark(2, missing=["b2"], why=Cause.LOST_BOOKIE, now_us=1)
    await stage.store.create(ledger_path(MARKS_PATH, 3), b"no mark")
    await jobs.cancel("b1", stage)
    assert await jobs.get("b1") is None
    assert await stage.marks.get(1) is None
    mark = await stage.marks.get(2)
    assert mark is not None
    assert mark.missing == {"b2": {Cause.LOST_BOOKIE}}
    assert asked[-1] == {"do": "read_only", "on": False}
    with pytest.raises(FencelogError) as caught:
        await jobs.cancel("b1", stage)
    assert caught.value.code is ErrorCode.NOT_FOUND


async def test_a_bookie_that_was_read_only_before_stays_so(stage: AuditStage) -> None:
    await stage.register("b1", read_only=True)
    asked = obedient(stage, "b1")
    jobs = Decommissions(stage.store)
    await jobs.start("b1", host=stage.host)
    await step(stage)
    await jobs.cancel("b1", stage)
    assert asked == []


async def test_a_removal_is_not_cancelled(stage: AuditStage) -> None:
    await stage.lose("b1")
    jobs = Decommissions(stage.store)
    await jobs.start("b1", host=stage.host)
    await step(stage)
    with pytest.raises(FencelogError, match="may be gone at any moment") as caught:
        await jobs.cancel("b1", stage)
    assert caught.value.code is ErrorCode.METADATA_CONFLICT


async def test_a_step_of_a_job_that_was_cancelled_meanwhile_changes_nothing(
    stage: AuditStage,
) -> None:
    await stage.lose("b1")
    jobs = Decommissions(stage.store)
    await jobs.start("b1", host=stage.host)
    found = await jobs.get("b1")
    assert found is not None
    await jobs.cancel("b1", stage)
    with pytest.raises(FencelogError):
        await jobs.write(replace(found[0], phase=Phase.REMOVING), found[1])
    assert await jobs.get("b1") is None


async def test_a_job_that_is_cancelled_during_a_scan_marks_nothing_more(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decommission, "_LEDGERS_PER_LOOK", 2)
    for ledger_id in range(1, 9):
        await stage.ledger(ledger_id)
    asked = obedient(stage, "b1")
    jobs = Decommissions(stage.store)
    await jobs.start("b1", host=stage.host)
    await step(stage)
    decommissioner = worker(stage)
    original, marked = decommissioner._mark, list[int]()

    async def mark(ledger_id: int, bookie_id: str) -> None:
        if not marked:
            await jobs.cancel("b1", stage)
        marked.append(ledger_id)
        await original(ledger_id, bookie_id)

    setattr(decommissioner, "_mark", mark)  # noqa: B010 - a double of one method
    with pytest.raises(FencelogError, match="was cancelled") as caught:
        await decommissioner.step("b1")
    assert caught.value.code is ErrorCode.METADATA_CONFLICT
    assert marked == [1]
    assert [ledger_id async for ledger_id in stage.marks.list_ids()] == []
    assert asked[-1] == {"do": "read_only", "on": False}


async def test_a_job_that_is_cancelled_before_its_bookie_is_asked_does_not_ask_it(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = obedient(stage, "b1")
    jobs = Decommissions(stage.store)
    await jobs.start("b1", host=stage.host)

    async def cancelling(store: MetadataStore) -> KnownBookies:
        await jobs.cancel("b1", stage)
        return await read_bookies(store)

    monkeypatch.setattr(decommission, "read_bookies", cancelling)
    with pytest.raises(FencelogError, match="was cancelled"):
        await worker(stage).step("b1")
    assert {"do": "read_only", "on": True} not in asked


async def test_a_job_that_is_cancelled_while_its_bookie_is_asked_asks_it_back(
    stage: AuditStage,
) -> None:
    asked = obedient(stage, "b1")
    jobs = Decommissions(stage.store)
    await jobs.start("b1", host=stage.host)
    obey: Any = stage.bookies["b1"]
    admin = obey.admin

    async def cancelled_first(request: Any) -> dict[str, Any]:
        obey.admin = admin
        await jobs.cancel("b1", stage)
        return await admin(request)  # type: ignore[no-any-return]  # a double of one method

    obey.admin = cancelled_first
    with pytest.raises(FencelogError):
        await worker(stage).step("b1")
    assert [request["on"] for request in asked] == [False, True, False]


async def test_a_bookie_that_starts_during_its_removal_stops(stage: AuditStage) -> None:
    await check_not_removed(stage.store, "b1", "01" * 16)
    await stage.lose("b1")
    jobs = Decommissions(stage.store)
    await jobs.start("b1", host=stage.host)
    await check_not_removed(stage.store, "b1", "01" * 16)
    await step(stage)
    with pytest.raises(FencelogError, match="is being taken out of the cluster") as caught:
        await check_not_removed(stage.store, "b1", "01" * 16)
    assert caught.value.code is ErrorCode.BAD_REQUEST
    assert await worker(stage).step("b1") is None
    with pytest.raises(FencelogError, match="was taken out of the cluster while it started"):
        await check_not_removed(stage.store, "b1", "01" * 16)


async def test_a_bookie_that_registers_before_the_last_step_keeps_its_cookie(
    stage: AuditStage,
) -> None:
    """It registers between the scan and the cookie."""
    await stage.lose("b1")
    await Decommissions(stage.store).start("b1", host=stage.host)
    await step(stage)
    decommissioner = worker(stage)
    original = decommissioner._remainder

    async def registering(job: Decommission, version: Version, *, marks: bool) -> Any:
        found = await original(job, version, marks=marks)
        await stage.register("b1")
        return found

    setattr(decommissioner, "_remainder", registering)  # noqa: B010 - a double of one method
    job = await decommissioner.step("b1")
    assert job is not None
    assert job.phase is Phase.DRAINING
    assert await cookie_is_there(stage, "b1")


async def test_a_cancellation_that_ends_early_is_completed_by_the_auditor(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ledger_id in range(1, 6):
        await stage.ledger(ledger_id)
    asked = obedient(stage, "b1")
    jobs = Decommissions(stage.store)
    await jobs.start("b1", host=stage.host)
    await step(stage)
    await step(stage)
    withdraw, left = UnderReplicatedLedgers.withdraw, list[int]()

    async def fails(self: UnderReplicatedLedgers, ledger_id: int, *why: Any) -> None:
        if len(left) == 2:
            raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "away")
        left.append(ledger_id)
        await withdraw(self, ledger_id, *why)

    with monkeypatch.context() as patch:
        patch.setattr(UnderReplicatedLedgers, "withdraw", fails)
        with pytest.raises(FencelogError, match="away") as left_over:
            await jobs.cancel("b1", stage)
        assert left_over.value.code is ErrorCode.METADATA_UNKNOWN
    found = await jobs.get("b1")
    assert found is not None
    assert found[0].phase is Phase.CANCELLING
    with pytest.raises(FencelogError, match="still being cancelled") as caught:
        await jobs.start("b1", host=stage.host)
    assert caught.value.code is ErrorCode.METADATA_CONFLICT
    assert await worker(stage).step("b1") is None
    assert await jobs.get("b1") is None
    assert [ledger_id async for ledger_id in stage.marks.list_ids()] == []
    assert asked[-1] == {"do": "read_only", "on": False}


async def test_a_cancellation_may_be_repeated_and_comes_between_two_steps(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.ledger(1)
    jobs = Decommissions(stage.store)
    await jobs.start("b1", host=stage.host)
    await step(stage)
    get, undo = jobs.get, jobs.undo

    async def stepped_meanwhile(bookie_id: str) -> Any:
        found = await get(bookie_id)
        monkeypatch.setattr(jobs, "get", get)
        await step(stage)
        return found

    async def fails(*_: Any) -> None:
        raise FencelogError(ErrorCode.METADATA_UNKNOWN, "lost")

    monkeypatch.setattr(jobs, "get", stepped_meanwhile)
    monkeypatch.setattr(jobs, "undo", fails)
    with pytest.raises(FencelogError, match="lost"):
        await jobs.cancel("b1", stage)
    monkeypatch.setattr(jobs, "undo", undo)
    await jobs.cancel("b1", stage)
    assert await jobs.get("b1") is None
    assert await stage.marks.get(1) is None


async def test_a_cancellation_that_an_auditor_completes_first_is_one(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Decommissions(stage.store)
    await jobs.start("b1", host=stage.host)
    write = jobs.write

    async def completed_at_once(job: Decommission, version: Version) -> Version:
        written = await write(job, version)
        await worker(stage).step("b1")
        return written

    monkeypatch.setattr(jobs, "write", completed_at_once)
    await jobs.cancel("b1", stage)
    assert await jobs.get("b1") is None


async def test_a_cancellation_whose_answer_was_lost_is_not_said_to_be_of_no_effect(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An auditor has completed it before it is looked for."""
    jobs = Decommissions(stage.store)
    await jobs.start("b1", host=stage.host)
    write = jobs.write

    async def lost(job: Decommission, version: Version) -> Version:
        await write(job, version)
        await worker(stage).step("b1")
        raise FencelogError(ErrorCode.METADATA_UNKNOWN, "lost")

    monkeypatch.setattr(jobs, "write", lost)
    with pytest.raises(FencelogError, match="lost") as caught:
        await jobs.cancel("b1", stage)
    assert caught.value.code is ErrorCode.METADATA_UNKNOWN


async def test_a_mark_that_cannot_be_read_holds_up_no_other_ledger(stage: AuditStage) -> None:
    for ledger_id in range(1, 6):
        await stage.ledger(ledger_id)
    await stage.store.create(ledger_path(MARKS_PATH, 2), b"no mark")
    await stage.lose("b1")
    await Decommissions(stage.store).start("b1", host=stage.host)
    job = await step(stage)
    assert job.remainder is not None
    assert job.remainder.ledgers == 5
    assert [ledger_id async for ledger_id in stage.marks.list_ids()] == [1, 2, 3, 4, 5]
