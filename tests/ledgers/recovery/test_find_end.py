"""The recovery of a ledger whose close is left to the caller's commit."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from functools import partial

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import Fragment, LedgerMetadata, LedgerState
from fencelog.ledgers.ledger_metadata.store import replacement_of
from fencelog.ledgers.recovery.recovery import FoundEnd, find_end, recover_with_last
from tests.support.metadata_nodes import later
from tests.support.scripted_cluster import Cluster, MakeCluster


async def find(cluster: Cluster) -> FoundEnd:
    return await find_end(1, ledgers=cluster.ledgers, bookies=cluster, placement=cluster.placement)


async def recover(cluster: Cluster) -> LedgerMetadata:
    recovered = await recover_with_last(
        1, ledgers=cluster.ledgers, bookies=cluster, placement=cluster.placement
    )
    return recovered.metadata


async def idle(cluster: Cluster, *payloads: bytes) -> None:
    """Write a ledger whose bookies know that all of it is acknowledged."""
    await cluster.write(cluster.create(), *payloads)
    for bookie in cluster.bookies.values():
        bookie.lacs[1] = len(payloads) - 1


async def test_of_an_idle_ledger_nothing_is_changed_before_the_commit(cluster: Cluster) -> None:
    await idle(cluster, b"0", b"12")
    before = cluster.ledgers.values[1]
    found = await find(cluster)
    assert cluster.ledgers.values[1] == before
    assert before[0].state is LedgerState.OPEN
    assert found.change == replacement_of(found.metadata, before[1])
    assert found.metadata.is_closed
    assert (found.metadata.last_entry_id, found.metadata.length) == (1, 3)
    assert found.last is not None
    assert found.last.entry_id == 1
    assert found.metadata == await recover(cluster)
    assert await find(cluster) == FoundEnd(found.metadata)


async def test_the_writer_is_fenced_all_the_same(cluster: Cluster) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"0")
    for bookie in cluster.bookies.values():
        bookie.lacs[1] = 0
    found = await find(cluster)
    writer.append(b"too late")
    await cluster.until(lambda: bool(cluster.failures))
    assert cluster.failures[0].code is ErrorCode.LEDGER_FENCED
    assert (cluster.acked, found.metadata.last_entry_id) == ([0], 0)


async def test_a_recovery_is_announced_before_anything_is_written(
    make_cluster: MakeCluster,
) -> None:
    """Else a bookie that joins the ensemble, and loses its disk before the ledger names it, would
    deny the entries."""
    cluster = make_cluster(4)
    await cluster.write(cluster.create(), b"0", b"1")  # no bookie knows that both are acknowledged
    states: list[LedgerState] = []

    def noted(bookie_id: str, request: str) -> FencelogError | None:
        if request == "recovery add":
            states.append(cluster.metadata().state)
            if bookie_id == "b1":
                return FencelogError(ErrorCode.REQUEST_TIMEOUT, "b1 is away")
        return None

    for bookie_id, bookie in cluster.bookies.items():
        bookie.fault = partial(noted, bookie_id)
    found = await find(cluster)
    assert len(states) >= 3
    assert set(states) == {LedgerState.IN_RECOVERY}
    announced, version = cluster.ledgers.values[1]
    assert announced.state is LedgerState.IN_RECOVERY
    assert found.change == replacement_of(found.metadata, version)
    assert found.metadata.last_entry_id == 1
    assert "b1" not in found.metadata.last_fragment.bookies  # committed with the close, only


async def test_a_ledger_that_another_client_closes_meanwhile_ends_as_that_says(
    cluster: Cluster,
) -> None:
    await cluster.write(cluster.create(), b"0", b"1")

    def close() -> None:
        metadata, version = cluster.ledgers.values[1]
        closed = metadata.closed(last_entry_id=1, length=2)
        cluster.ledgers.values[1] = (closed, later(version, 1))

    cluster.ledgers.before_update = close
    found = await find(cluster)
    assert found == FoundEnd(cluster.metadata())


async def test_a_fragment_that_the_writer_begins_meanwhile_is_recovered_too(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(4)
    await cluster.write(cluster.create(), b"0", b"1")

    def change() -> None:
        metadata, version = cluster.ledgers.values[1]
        fragments = (*metadata.fragments, Fragment(1, ("b4", "b2", "b3")))
        cluster.ledgers.values[1] = (replace(metadata, fragments=fragments), later(version, 1))

    cluster.ledgers.before_update = change
    found = await find(cluster)
    assert found.change is None
    assert found.metadata == cluster.metadata()
    assert found.metadata.last_entry_id == 1
    assert len(found.metadata.fragments) == 2
    assert 1 in cluster.bookies["b4"].fenced


async def test_an_end_in_doubt_is_none(cluster: Cluster) -> None:
    await idle(cluster, b"0")
    before = cluster.ledgers.values[1]
    for bookie_id in ("b2", "b3"):
        cluster.bookies[bookie_id].go_down()
    with pytest.raises(FencelogError) as raised:
        await find(cluster)
    assert raised.value.code is ErrorCode.RECOVERY_INCOMPLETE
    assert cluster.ledgers.values[1] == before


async def test_a_search_that_is_cancelled_as_it_fails_leaves_no_error_behind(
    make_cluster: MakeCluster,
) -> None:
    """Its owner may be replaced in the very turn in which the bookies refuse."""
    left: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: left.append(context))
    outcomes = set[bool]()
    for turns in range(40):
        cluster = make_cluster(3)
        await cluster.write(cluster.create(), b"0", b"1")
        for bookie in cluster.bookies.values():
            bookie.fault = _refuses_reads
        search = asyncio.create_task(find(cluster))
        for _ in range(turns):
            await asyncio.sleep(0)
        search.cancel()
        (outcome,) = await asyncio.gather(search, return_exceptions=True)
        outcomes.add(isinstance(outcome, FencelogError))
        del search, outcome
    gc.collect()
    await asyncio.sleep(0)
    assert outcomes == {False, True}  # cancelled before, and after, it had failed
    assert left == []


def _refuses_reads(request: str) -> FencelogError | None:
    if "read" in request and "lac" not in request.lower():
        return FencelogError(ErrorCode.REQUEST_TIMEOUT, "away")
    return None
