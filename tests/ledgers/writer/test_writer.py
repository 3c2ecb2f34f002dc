"""The writer's shell over scripted bookies: batching, ensemble change with metadata, closing."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import read_run_header
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import LedgerState
from fencelog.ledgers.limits import MAX_ENTRY_BYTES
from fencelog.ledgers.writer import writer as writer_module
from tests.support.metadata_nodes import later
from tests.support.scripted_cluster import Cluster, MakeCluster


def was_acked(cluster: Cluster, entry_id: int) -> bool:
    return cluster.acked[-1:] == [entry_id]


def _has(cluster: Cluster, entry_id: int) -> bool:
    return entry_id in cluster.bookies["b2"].entries.get(1, {})


async def test_what_waits_leaves_as_one_run(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    store = cluster.bookies["b1"].add

    def watch(run: bytes, **options: Any) -> None:
        sizes.append(read_run_header(run).entries)
        store(run, **options)

    monkeypatch.setattr(cluster.bookies["b1"], "add", watch)
    writer = cluster.create()
    assert [writer.append(b"x" * n) for n in range(100)] == list(range(100))
    await cluster.until(lambda: cluster.acked == [99])
    assert sizes == [100]
    assert writer.length == sum(range(100))
    assert writer.pending_bytes == 0


async def test_lac_travels_with_the_next_entries(cluster: Cluster) -> None:
    writer = cluster.create()
    writer.append(b"first")
    await cluster.until(lambda: writer.last_add_confirmed == 0)
    assert cluster.bookies["b2"].lacs[1] == -1
    writer.append(b"second")
    await cluster.until(lambda: writer.last_add_confirmed == 1)
    assert cluster.bookies["b2"].lacs[1] == 0


async def test_entries_carry_no_lac_that_is_not_acknowledged(cluster: Cluster) -> None:
    for bookie in cluster.bookies.values():
        bookie.held = []
    writer = cluster.create()
    for entry_id, payload in enumerate((b"first", b"second")):
        writer.append(payload)
        await cluster.until(partial(_has, cluster, entry_id))
    assert cluster.bookies["b2"].lacs.get(1, -1) == -1


async def test_failed_bookie_is_replaced_in_metadata_before_anything_is_acknowledged(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(4)
    writer = cluster.create()
    writer.append(b"0")
    await cluster.until(lambda: cluster.acked == [0])
    cluster.bookies["b2"].go_down()
    began_us = SystemHost().now_us()
    writer.append(b"1")
    await cluster.until(lambda: cluster.acked[-1] == 1)
    assert began_us <= cluster.metadata().last_fragment.since_us <= SystemHost().now_us()
    fragments = [(f.first_entry_id, f.bookies) for f in cluster.metadata().fragments]
    assert fragments[-1] == (1, ("b1", "b4", "b3"))
    await cluster.until(lambda: 1 in cluster.bookies["b4"].entries[1])
    closed = await writer.close()
    assert (closed.last_entry_id, closed.length, closed.state) == (1, 2, LedgerState.CLOSED)


async def test_ensemble_change_whose_reply_is_lost_is_read_back(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4)
    writer = cluster.create()
    cluster.bookies["b1"].go_down()
    cluster.ledgers.lose_reply = True
    writer.append(b"0")
    await cluster.until(lambda: cluster.acked == [0])
    assert [f.bookies for f in cluster.metadata().fragments] == [("b4", "b2", "b3")]
    assert cluster.ledgers.values[1][1].number == 1  # one write, not a second one on top of it


async def test_two_of_three_bookies_are_enough_without_a_spare(cluster: Cluster) -> None:
    writer = cluster.create()
    cluster.bookies["b3"].go_down()
    for n in range(3):
        writer.append(b"x")
        await cluster.until(partial(was_acked, cluster, n))
    assert (await writer.close()).last_entry_id == 2
    assert len(cluster.metadata().fragments) == 1


async def test_one_of_three_is_not_enough(cluster: Cluster) -> None:
    writer = cluster.create()
    cluster.bookies["b2"].go_down()
    cluster.bookies["b3"].go_down()
    writer.append(b"x")
    await cluster.until(lambda: bool(cluster.failures))
    assert cluster.failures[0].code is ErrorCode.APPEND_UNKNOWN
    assert cluster.acked == []
    with pytest.raises(FencelogError) as caught:
        writer.append(b"y")
    assert caught.value.code is ErrorCode.LEDGER_CLOSED
    with pytest.raises(FencelogError):
        await writer.close()
    assert cluster.metadata().state is LedgerState.OPEN


async def test_fenced_writer_reports_once_and_stops(cluster: Cluster) -> None:
    writer = cluster.create()
    cluster.bookies["b1"].fenced.add(1)
    cluster.bookies["b2"].fenced.add(1)
    writer.append(b"x")
    await cluster.until(lambda: bool(cluster.failures))
    await asyncio.sleep(0.01)
    assert [failure.code for failure in cluster.failures] == [ErrorCode.LEDGER_FENCED]
    assert cluster.acked == []


async def test_ensemble_change_after_somebody_began_recovery(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4)
    writer = cluster.create()
    metadata, version = cluster.ledgers.values[1]
    cluster.ledgers.values[1] = (metadata.in_recovery(), later(version, 1))
    cluster.bookies["b1"].go_down()
    writer.append(b"x")
    await cluster.until(lambda: bool(cluster.failures))
    assert cluster.failures[0].code is ErrorCode.LEDGER_FENCED
    assert cluster.acked == []
    assert cluster.metadata().fragments == metadata.fragments


async def test_close_waits_for_what_is_pending(cluster: Cluster) -> None:
    for bookie in cluster.bookies.values():
        bookie.held = []
    writer = cluster.create()
    writer.append(b"x")
    closing = asyncio.create_task(writer.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    assert cluster.metadata().state is LedgerState.OPEN
    for name in ("b1", "b2"):
        while cluster.bookies[name].held:
            cluster.bookies[name].answer_one()
    assert (await closing).last_entry_id == 0


async def test_close_of_an_empty_ledger(cluster: Cluster) -> None:
    closed = await cluster.create().close()
    assert (closed.last_entry_id, closed.length) == (-1, 0)


async def test_close_accepts_the_same_end_by_another(cluster: Cluster) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"abc")
    metadata, version = cluster.ledgers.values[1]
    closed = metadata.closed(last_entry_id=0, length=3)
    cluster.ledgers.values[1] = (closed, later(version, 1))
    assert await writer.close() == closed


async def test_close_refuses_a_different_end(cluster: Cluster) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"abc")
    metadata, version = cluster.ledgers.values[1]
    cluster.ledgers.values[1] = (metadata.closed(last_entry_id=1, length=9), later(version, 1))
    for _ in range(2):
        with pytest.raises(FencelogError) as caught:
            await writer.close()
        assert caught.value.code is ErrorCode.LEDGER_FENCED
    assert writer.failure is caught.value
    assert cluster.failures == []


async def test_an_end_below_an_acknowledged_entry_is_somebody_elses(cluster: Cluster) -> None:
    """A person who accepted a loss closed it so, while this writer lived."""
    writer = cluster.create()
    await cluster.write(writer, b"abc")
    metadata, version = cluster.ledgers.values[1]
    cluster.ledgers.values[1] = (metadata.closed(last_entry_id=-1, length=0), later(version, 1))
    with pytest.raises(FencelogError) as caught:
        await writer.close()
    assert caught.value.code is ErrorCode.LEDGER_FENCED


async def test_close_refuses_while_another_recovers(cluster: Cluster) -> None:
    writer = cluster.create()
    metadata, version = cluster.ledgers.values[1]
    cluster.ledgers.values[1] = (metadata.in_recovery(), later(version, 1))
    with pytest.raises(FencelogError) as caught:
        await writer.close()
    assert caught.value.code is ErrorCode.LEDGER_FENCED
    assert cluster.metadata().state is LedgerState.IN_RECOVERY


async def test_limits_refuse_before_anything_is_sent(cluster: Cluster) -> None:
    for bookie in cluster.bookies.values():
        bookie.held = []
    writer = cluster.create()
    with pytest.raises(FencelogError) as caught:
        writer.append(bytes(MAX_ENTRY_BYTES + 1))
    assert caught.value.code is ErrorCode.PAYLOAD_TOO_LARGE
    block = bytes(MAX_ENTRY_BYTES)
    for _ in range(7):
        writer.append(block)
    with pytest.raises(FencelogError) as caught:
        writer.append(block)  # with its header it is more than there is room for
    assert caught.value.code is ErrorCode.OVERLOADED
    assert writer.last_add_pushed == -1
    await writer.abandon()


async def test_entries_without_payload_take_room_too(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "WRITER_MAX_PENDING_BYTES", 1000)
    for bookie in cluster.bookies.values():
        bookie.held = []
    writer = cluster.create()
    while writer.pending_bytes <= 1000:
        assert writer.append(b"") < 1000
    with pytest.raises(FencelogError, match="waits for its bookies"):
        writer.append(b"")
    await cluster.until(lambda: all(bookie.held for bookie in cluster.bookies.values()))
    for bookie in cluster.bookies.values():
        bookie.answer_one()
    assert writer.append(b"") > 0  # what is acknowledged takes none
    await writer.abandon()


async def test_a_close_under_way_ends_when_the_writer_is_abandoned(cluster: Cluster) -> None:
    for bookie in cluster.bookies.values():
        bookie.held = []
    writer = cluster.create()
    writer.append(b"x")
    closing = asyncio.create_task(writer.close())
    await cluster.until(lambda: bool(cluster.bookies["b1"].held))
    await writer.abandon()
    async with asyncio.timeout(5):
        with pytest.raises(FencelogError, match="abandoned"):
            await closing
    assert cluster.metadata().state is LedgerState.OPEN


async def test_two_closes_at_once_both_end(cluster: Cluster) -> None:
    for bookie in cluster.bookies.values():
        bookie.held = []
    writer = cluster.create()
    writer.append(b"x")
    closing = [asyncio.create_task(writer.close()) for _ in range(2)]
    await cluster.until(lambda: bool(cluster.bookies["b3"].held))
    for bookie in cluster.bookies.values():
        bookie.answer_one()
    async with asyncio.timeout(5):
        assert [closed.last_entry_id for closed in await asyncio.gather(*closing)] == [0, 0]


async def test_dead_bookies_do_not_replace_each_other_without_end(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(6)
    writer = cluster.create()
    await cluster.write(writer, b"0")
    for name in ("b1", "b3", "b4", "b5", "b6"):
        cluster.bookies[name].go_down()
    writer.append(b"1")
    await cluster.until(lambda: bool(cluster.failures))
    assert cluster.failures[0].code is ErrorCode.APPEND_UNKNOWN
    assert cluster.ledgers.values[1][1].number <= 4  # changes of metadata
