"""Stories of recoveries that meet failures, writers and each other; most are BookKeeper's own
(LedgerRecovery2Test, ParallelLedgerRecoveryTest, TestFencing)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from operator import contains
from typing import Any

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, LedgerState
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.recovery.fencing import fence_ledger
from fencelog.ledgers.recovery.recovery import (
    recover_ledger,
    recover_with_last,
)
from tests.support.metadata_nodes import later
from tests.support.scripted_cluster import Cluster, MakeCluster

Fault = Callable[[str], FencelogError | None]


async def recover(cluster: Cluster) -> LedgerMetadata:
    return await recover_ledger(
        1, ledgers=cluster.ledgers, bookies=cluster, placement=cluster.placement
    )


async def contents(cluster: Cluster, metadata: LedgerMetadata) -> list[bytes]:
    reader = LedgerReader(metadata, bookies=cluster)
    found: list[bytes] = []
    while len(found) <= metadata.last_entry_id:
        entries = await reader.read(len(found), metadata.last_entry_id)
        found += [bytes(entry.payload) for entry in entries]
    return found


def failing(request: str, code: ErrorCode = ErrorCode.REQUEST_TIMEOUT) -> Fault:
    """Every request of this kind fails."""
    error = FencelogError(code, f"{request} fails")
    return lambda asked: error if asked == request else None


def once(request: str, act: Callable[[], None]) -> Fault:
    """Run something just before the first request of this kind is carried out."""
    left = [act]

    def fault(asked: str) -> None:
        if asked == request and left:
            left.pop()()

    return fault


async def incomplete(cluster: Cluster) -> list[str]:
    """Return who is missing; nothing was closed."""
    with pytest.raises(FencelogError) as caught:
        await recover(cluster)
    assert caught.value.code is ErrorCode.RECOVERY_INCOMPLETE
    assert cluster.metadata().state is LedgerState.IN_RECOVERY
    missing: list[str] = caught.value.extra["missing_bookies"]
    return missing


async def test_with_all_down_nothing_can_be_said(cluster: Cluster) -> None:
    await cluster.write(cluster.create(), b"0")
    for bookie in cluster.bookies.values():
        bookie.go_down()
    assert await incomplete(cluster) == ["b1", "b2", "b3"]


async def test_what_can_be_read_and_not_written_is_not_closed(cluster: Cluster) -> None:
    await cluster.write(cluster.create(), b"0")
    for name in ("b1", "b3"):
        cluster.bookies[name].fault = failing("recovery add")
    assert await incomplete(cluster) == ["b1", "b3"]


async def test_closed_by_another_meanwhile_is_adopted(cluster: Cluster) -> None:
    """The close is adopted even where this recovery could not have finished."""
    await cluster.write(cluster.create(), b"0", b"1")
    others: list[LedgerMetadata] = []
    metadata, version = cluster.ledgers.values[1]

    def close() -> None:
        closed = metadata.in_recovery().closed(last_entry_id=1, length=2)
        cluster.ledgers.values[1] = (closed, later(version, 2))
        others.append(closed)

    cluster.bookies["b1"].fault = once("read", close)
    for name in ("b2", "b3"):
        cluster.bookies[name].fault = failing("recovery add")
    assert await recover(cluster) is others[0]


async def test_a_last_entry_below_the_end_of_another_recovery_is_not_the_last(
    cluster: Cluster,
) -> None:
    """Two recoveries may end differently where the outcome of the last entry is not known."""
    await cluster.write(cluster.create(), b"0")

    def close() -> None:
        metadata, version = cluster.ledgers.values[1]
        closed = metadata.closed(last_entry_id=1, length=2)
        cluster.ledgers.values[1] = (closed, later(version, 1))

    cluster.bookies["b1"].fault = once("recovery add", close)
    closed, last = await recover_with_last(
        1, ledgers=cluster.ledgers, bookies=cluster, placement=cluster.placement
    )
    assert (closed.last_entry_id, last) == (1, None)


async def test_an_unfinished_recovery_keeps_its_reason_when_metadata_is_away(
    cluster: Cluster,
) -> None:
    await cluster.write(cluster.create(), b"0")
    for bookie in cluster.bookies.values():
        bookie.go_down()
    cluster.bookies["b3"].fault = once(
        "read_lac", lambda: setattr(cluster.ledgers, "unavailable", True)
    )
    with pytest.raises(FencelogError) as caught:
        await recover(cluster)
    assert caught.value.code is ErrorCode.RECOVERY_INCOMPLETE


async def test_fragments_that_change_during_a_recovery_stop_it(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4)
    await cluster.write(cluster.create(), b"0")
    before = cluster.ledgers.values[1]

    def change() -> None:
        metadata = before[0].in_recovery().with_ensemble(1, ("b1", "b4", "b3"))
        cluster.ledgers.values[1] = (metadata, later(before[1], 2))

    cluster.bookies["b1"].fault = once("recovery add", change)
    assert await incomplete(cluster) == []
    assert (await recover(cluster)).last_entry_id == 0


async def test_a_bookie_that_is_down_from_the_start_is_replaced(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4)
    await cluster.write(cluster.create(), b"0", b"1", b"2")
    cluster.bookies["b1"].go_down()
    closed = await recover(cluster)
    assert [fragment.bookies for fragment in closed.fragments] == [("b4", "b2", "b3")]
    assert set(cluster.bookies["b4"].entries[1]) == {0, 1, 2}
    assert await contents(cluster, closed) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("write_quorum", [2, 3])
async def test_a_bookie_that_fails_on_the_way_is_replaced_from_there_on(
    make_cluster: MakeCluster, write_quorum: int
) -> None:
    """Some entries never lay on it, since E > Qw."""
    cluster = make_cluster(4)
    writer = cluster.create(write_quorum=write_quorum)
    payloads = [b"%d" % n for n in range(20)]
    for payload in payloads:
        await cluster.write(writer, payload)
    for bookie in cluster.bookies.values():
        bookie.lacs[1] = 2
    cluster.bookies["b2"].fault = failing("recovery add", ErrorCode.STORAGE_FAILED)
    closed = await recover(cluster)
    assert closed.last_fragment.bookies == ("b1", "b4", "b3")
    assert closed.last_fragment.first_entry_id >= 3
    assert await contents(cluster, closed) == payloads


async def test_two_bookies_that_fail_on_the_same_entry_are_replaced(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(5)
    await cluster.write(cluster.create(), b"0", b"1")
    for name in ("b1", "b2"):
        cluster.bookies[name].fault = failing("recovery add")
    closed = await recover(cluster)
    assert set(closed.last_fragment.bookies) == {"b3", "b4", "b5"}
    assert closed.last_fragment.bookies[2] == "b3"
    assert await contents(cluster, closed) == [b"0", b"1"]


async def test_a_read_only_bookie_is_replaced(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4)
    await cluster.write(cluster.create(), b"0")
    cluster.bookies["b3"].fault = failing("recovery add", ErrorCode.READ_ONLY)
    assert (await recover(cluster)).last_fragment.bookies == ("b1", "b2", "b4")


async def test_limbo_is_unknown_when_fencing_and_when_reading(cluster: Cluster) -> None:
    cluster.create()
    limbo = ErrorCode.LEDGER_IN_LIMBO
    cluster.bookies["b1"].fault = failing("read_lac", limbo)
    cluster.bookies["b2"].fault = failing("read_lac", limbo)
    assert await incomplete(cluster) == ["b1", "b2"]
    cluster.bookies["b1"].fault = failing("read", limbo)
    cluster.bookies["b2"].fault = failing("read", limbo)
    assert await incomplete(cluster) == ["b1", "b2"]
    cluster.bookies["b2"].come_back()
    assert (await recover(cluster)).last_entry_id == -1


async def test_what_is_in_limbo_still_supplies_what_it_holds(cluster: Cluster) -> None:
    """A bookie in limbo may have lost entries; one that it has it has."""
    await cluster.write(cluster.create(), b"0", b"1")
    for name in ("b2", "b3"):
        cluster.bookies[name].entries[1].pop(1)
    cluster.bookies["b1"].fault = failing("read_lac", ErrorCode.LEDGER_IN_LIMBO)
    cluster.bookies["b2"].hung.add("read")  # else two negatives could come first
    assert (await recover(cluster)).last_entry_id == 1


async def test_a_bookie_in_limbo_goes_on_taking_new_ledgers(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4)
    cluster.create()
    cluster.bookies["b1"].fault = failing("read_lac", ErrorCode.LEDGER_IN_LIMBO)
    await recover(cluster)
    assert any("b1" in cluster.placement.choose(3) for _ in range(50))


async def test_the_last_copy_of_an_acknowledged_entry_is_waited_for(cluster: Cluster) -> None:
    """Two bookies lost entry 0 and did not notice; the third has it, and takes its time."""
    await cluster.write(cluster.create(), b"0")
    for name in ("b1", "b2"):
        cluster.bookies[name].entries[1].clear()
        cluster.bookies[name].lacs[1] = 0  # told to both before, by itself
    slow = cluster.bookies["b3"]
    slow.hung.add("read")
    recovery = asyncio.create_task(recover(cluster))
    await cluster.until(lambda: slow.asked.count(("read", 0)) == 1)
    for _ in range(20):
        await asyncio.sleep(0)
    slow.wake()
    closed = await recovery
    assert (closed.last_entry_id, closed.length) == (0, 1)


async def test_a_late_writer_commits_nothing_after_the_close(make_cluster: MakeCluster) -> None:
    """testFirstWriterCannotCommitWriteAfter2ndWriterCloses."""
    cluster = make_cluster(6)
    writer = cluster.create()
    await cluster.write(writer, b"0")
    closed = await recover(cluster)
    for name in ("b1", "b2", "b3"):  # so that it wants other members, who are not fenced
        cluster.bookies[name].fault = failing("add")
    writer.append(b"too late")
    await cluster.until(lambda: bool(cluster.failures))
    assert cluster.acked == [0]
    assert cluster.metadata() == closed


async def test_a_second_ensemble_without_entries_does_not_hide_the_first(
    make_cluster: MakeCluster,
) -> None:
    """testRecoveryWhenSecondEnsembleReturnsLacMinusOne; the first ensemble is gone by then, but for
    the one bookie that has the entry in which the length stands."""
    cluster = make_cluster(6)
    writer = cluster.create()
    await cluster.write(writer, b"0", b"11", b"222")
    metadata, version = cluster.ledgers.values[1]
    changed = metadata.with_ensemble(3, ("b4", "b5", "b6"))
    cluster.ledgers.values[1] = (changed, later(version, 1))
    for name in ("b1", "b2", "b3"):
        cluster.bookies[name].go_down()
    assert await incomplete(cluster) == ["b1", "b2", "b3"]
    cluster.bookies["b3"].come_back()
    closed = await recover(cluster)
    assert (closed.last_entry_id, closed.length) == (2, 6)
    assert closed.fragments == changed.fragments


async def test_a_writer_whose_change_lost_the_race_is_over(make_cluster: MakeCluster) -> None:
    """testRecoverBeforeWriteMetadata: recovery comes between the failure and the new fragment."""
    cluster = make_cluster(4)
    writer = cluster.create()
    await cluster.write(writer, b"0")
    results: list[asyncio.Task[LedgerMetadata]] = []
    cluster.ledgers.before_update = lambda: results.append(asyncio.create_task(recover(cluster)))
    cluster.bookies["b1"].fault = failing("add")
    writer.append(b"1")
    await cluster.until(lambda: bool(results))
    closed = await results[0]
    assert closed.last_entry_id in (0, 1)
    assert closed.last_entry_id >= max(cluster.acked)
    assert await contents(cluster, closed) == [b"0", b"1"][: closed.last_entry_id + 1]


async def test_entries_after_a_gap_are_dropped(make_cluster: MakeCluster) -> None:
    """testRecoveryOnEntryGap, E > Qw: 3 is nowhere, 4 and 5 are."""
    cluster = make_cluster(5)
    writer = cluster.create(ensemble="b1 b2 b3 b4 b5")
    for n in range(6):
        await cluster.write(writer, b"%d" % n)
    for bookie in cluster.bookies.values():
        bookie.entries[1].pop(3, None)
        bookie.lacs[1] = 0
    closed = await recover(cluster)
    assert (closed.last_entry_id, closed.length) == (2, 3)


async def test_a_bookie_that_sends_more_than_asked_for_is_cut_short(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E > Qw: the next entry has another write set."""
    cluster = make_cluster(5)
    writer = cluster.create(ensemble="b1 b2 b3 b4 b5")
    for n in range(6):
        await cluster.write(writer, b"%d" % n)
    for bookie in cluster.bookies.values():
        bookie.lacs.clear()
        monkeypatch.setattr(bookie, "read", partial(more_than_asked_for, bookie.read))
    closed = await recover(cluster)
    assert await contents(cluster, closed) == [b"%d" % n for n in range(6)]


async def more_than_asked_for(read: Any, *args: Any, **limits: Any) -> Any:
    return await read(*args, **{**limits, "max_entries": 99})


@pytest.mark.parametrize("name", ["b1", "b2", "b3"])
async def test_a_bookie_that_hangs_keeps_nobody_waiting(cluster: Cluster, name: str) -> None:
    await cluster.write(cluster.create(), b"0", b"1")
    cluster.bookies[name].hung |= {"read", "read_lac"}
    assert (await recover(cluster)).last_entry_id == 1
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("request_", ["read_lac", "read", "recovery add"])
async def test_bookies_that_know_another_secret_are_missing(
    cluster: Cluster, request_: str
) -> None:
    """Their knowledge of the ledger is unknown: one of them is borne, all of them are named."""
    await cluster.write(cluster.create(), b"0")
    refusing = failing(request_, ErrorCode.UNAUTHORIZED)
    for bookie in cluster.bookies.values():
        bookie.fault = refusing
    with pytest.raises(FencelogError) as caught:
        await recover(cluster)
    assert caught.value.code is ErrorCode.RECOVERY_INCOMPLETE
    assert len(caught.value.extra["missing_bookies"]) >= 2
    for name in ("b1", "b3"):
        cluster.bookies[name].come_back()
    assert (await recover(cluster)).last_entry_id == 0


async def test_a_recovery_may_be_interrupted_anywhere_and_repeated(
    make_cluster: MakeCluster,
) -> None:
    """Entry 2 lies on one bookie alone and was not acknowledged: it may be kept or dropped, by all
    who come later in the same way."""
    for turns in range(60):
        cluster = make_cluster(4)
        writer = cluster.create()
        await cluster.write(writer, b"0", b"1")
        for name in ("b1", "b2"):
            cluster.bookies[name].fault = failing("add")
        cluster.placement.report_failure("b4")
        writer.append(b"2")
        entries = cluster.bookies["b3"].entries[1]
        await cluster.until(partial(contains, entries, 2))
        cluster.bookies["b2"].fault = failing("recovery add")
        first = asyncio.create_task(recover(cluster))
        for _ in range(turns):
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        added = dict(cluster.bookies["b1"].entries[1])
        closed = await recover(cluster)
        assert added.items() <= cluster.bookies["b1"].entries[1].items()
        assert closed.last_entry_id >= 1
        assert (await contents(cluster, closed))[:2] == [b"0", b"1"]
        assert await recover(cluster) == closed


async def test_a_recovery_that_was_cancelled_does_nothing_more(cluster: Cluster) -> None:
    await cluster.write(cluster.create(), b"0")
    for bookie in cluster.bookies.values():
        bookie.held = []
    task = asyncio.create_task(recover(cluster))
    await cluster.until(lambda: all(bookie.held for bookie in cluster.bookies.values()))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    asked = {name: len(bookie.asked) for name, bookie in cluster.bookies.items()}
    for bookie in cluster.bookies.values():
        while bookie.held:
            bookie.answer_one()
    await asyncio.sleep(0)
    assert {name: len(bookie.asked) for name, bookie in cluster.bookies.items()} == asked
    assert len(asyncio.all_tasks()) == 1


async def test_a_bug_ends_the_recovery_instead_of_leaving_it_waiting(cluster: Cluster) -> None:
    await cluster.write(cluster.create(), b"0")

    def broken(request: str) -> None:
        if request == "read":
            raise ZeroDivisionError

    cluster.bookies["b1"].fault = broken
    cluster.bookies["b2"].hung.add("read")
    cluster.bookies["b3"].hung.add("read")
    with pytest.raises(ZeroDivisionError):
        await recover(cluster)


async def test_fencing_alone_takes_the_writer_its_ledger(cluster: Cluster) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"0")
    cluster.bookies["b1"].hung.add("read_lac")
    await fence_ledger(cluster.metadata(), bookies=cluster)
    writer.append(b"1")
    await cluster.until(lambda: bool(cluster.failures))
    assert cluster.acked == [0]
    assert cluster.metadata().state is LedgerState.OPEN


async def test_fencing_names_who_is_missing(cluster: Cluster) -> None:
    cluster.create()
    cluster.bookies["b1"].go_down()
    cluster.bookies["b3"].go_down()
    with pytest.raises(FencelogError) as caught:
        await fence_ledger(cluster.metadata(), bookies=cluster)
    assert caught.value.code is ErrorCode.RECOVERY_INCOMPLETE
    assert caught.value.extra["missing_bookies"] == ["b1", "b3"]
