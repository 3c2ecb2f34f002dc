"""The end of writers: closing twice, beside a failure or a change, and after somebody's delete."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerState
from fencelog.ledgers.ledger_metadata.store import replacement_of
from fencelog.ledgers.metastore.port import Version
from tests.support.metadata_nodes import later
from tests.support.scripted_cluster import Cluster, MakeCluster

TIMEOUT = FencelogError(ErrorCode.REQUEST_TIMEOUT, "no answer")


def hold(cluster: Cluster, *names: str) -> None:
    """Hold the answers of these bookies until the test releases them."""
    for name in names or cluster.bookies:
        cluster.bookies[name].held = []


def release(cluster: Cluster, *names: str) -> None:
    for name in names:
        held, cluster.bookies[name].held = cluster.bookies[name].held, None
        assert held is not None
        for reply in held:
            reply()


async def test_nothing_is_appended_once_the_close_has_begun(cluster: Cluster) -> None:
    writer = cluster.create()
    hold(cluster)
    writer.append(b"x")
    closing = asyncio.create_task(writer.close())
    await cluster.until(lambda: bool(cluster.bookies["b3"].held))
    with pytest.raises(FencelogError) as caught:
        writer.append(b"y")
    assert caught.value.code is ErrorCode.LEDGER_CLOSED
    release(cluster, "b1", "b2", "b3")
    assert (await closing).last_entry_id == 0


async def test_a_second_close_returns_what_the_first_one_wrote(cluster: Cluster) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"x")
    closed = await writer.close()
    assert await writer.close() == closed
    assert cluster.ledgers.values[1] == (closed, Version(1, 1))


async def test_a_close_whose_reply_is_lost_finds_its_own_work(cluster: Cluster) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"x")
    cluster.ledgers.lose_reply = True
    closed = await writer.close()
    assert closed.is_closed
    assert cluster.ledgers.values[1] == (closed, Version(1, 1))


async def test_a_close_without_metadata_may_be_repeated(cluster: Cluster) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"x")
    cluster.ledgers.unavailable = True
    with pytest.raises(FencelogError) as caught:
        await writer.close()
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    cluster.ledgers.unavailable = False
    assert (await writer.close()).last_entry_id == 0


async def test_a_close_may_be_left_to_a_commit(cluster: Cluster) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"abc")
    metadata, change = await writer.prepare_close()
    assert (metadata.is_closed, metadata.last_entry_id, metadata.length) == (True, 0, 3)
    assert cluster.metadata().state is LedgerState.OPEN
    assert change == replacement_of(metadata, cluster.ledgers.values[1][1])
    with pytest.raises(FencelogError) as caught:
        writer.append(b"y")
    assert caught.value.code is ErrorCode.LEDGER_CLOSED


async def test_a_commit_that_was_refused_is_followed_by_a_close(cluster: Cluster) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"abc")
    metadata, _ = await writer.prepare_close()
    assert await writer.close() == metadata
    assert await writer.prepare_close() == (metadata, None)
    assert cluster.ledgers.values[1] == (metadata, Version(1, 1))


async def test_a_close_by_commit_waits_for_what_is_pending(cluster: Cluster) -> None:
    writer = cluster.create()
    hold(cluster)
    writer.append(b"x")
    closing = asyncio.create_task(writer.prepare_close())
    await cluster.until(lambda: bool(cluster.bookies["b3"].held))
    assert not closing.done()
    release(cluster, "b1", "b2", "b3")
    assert (await closing).metadata.last_entry_id == 0


async def test_a_fenced_writer_prepares_no_close(cluster: Cluster) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"x")
    writer._execute(writer._core.fail(FencelogError(ErrorCode.LEDGER_FENCED, "by another")))
    with pytest.raises(FencelogError) as caught:
        await writer.prepare_close()
    assert caught.value.code is ErrorCode.LEDGER_FENCED


async def test_a_bookie_that_fails_during_the_close_is_not_replaced(
    make_cluster: MakeCluster,
) -> None:
    """The third copy may fail late: its replacement would race with the close."""
    cluster = make_cluster(4)
    cluster.bookies["b3"].fault = lambda request: TIMEOUT
    hold(cluster, "b3")
    writer = cluster.create()
    await cluster.write(writer, b"x")
    cluster.ledgers.before_update = lambda: release(cluster, "b3")
    closed = await writer.close()
    await asyncio.sleep(0.01)
    assert [fragment.bookies for fragment in closed.fragments] == [("b1", "b2", "b3")]
    assert cluster.ledgers.values[1] == (closed, Version(1, 1))
    assert cluster.failures == []
    assert writer.failure is None


async def test_a_close_waits_for_the_change_that_is_under_way(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4)
    writer = cluster.create()
    await cluster.write(writer, b"x")
    cluster.bookies["b3"].go_down()
    begun = asyncio.Event()
    cluster.ledgers.before_update = begun.set
    writer.append(b"y")
    await begun.wait()
    closed = await writer.close()
    assert [(f.first_entry_id, f.bookies) for f in closed.fragments] == [
        (0, ("b1", "b2", "b3")),
        (2, ("b1", "b2", "b4")),  # the third copy of entry 1 failed; two are enough
    ]
    assert closed.last_entry_id == 1


async def test_a_close_reports_what_the_change_under_way_found(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4)
    writer = cluster.create()
    cluster.bookies["b3"].go_down()

    def somebody_recovers() -> None:
        metadata, version = cluster.ledgers.values[1]
        cluster.ledgers.values[1] = (metadata.in_recovery(), later(version, 1))

    cluster.ledgers.before_update = somebody_recovers
    writer.append(b"x")
    with pytest.raises(FencelogError) as caught:
        await writer.close()
    assert caught.value.code is ErrorCode.LEDGER_FENCED
    assert cluster.failures == [caught.value]
    assert cluster.metadata().state is LedgerState.IN_RECOVERY


async def test_abandoning_ends_a_change_that_waits_for_metadata(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4)
    writer = cluster.create()
    cluster.bookies["b1"].go_down()

    def lose_and_go_away() -> None:
        cluster.ledgers.lose_reply = cluster.ledgers.unavailable = True

    cluster.ledgers.before_update = lose_and_go_away
    writer.append(b"x")
    await cluster.until(lambda: cluster.ledgers.unavailable)
    async with asyncio.timeout(5):
        await writer.abandon()
    assert (cluster.failures, cluster.acked) == ([], [])
    with pytest.raises(FencelogError, match="abandoned"):
        await writer.close()


async def test_a_fenced_writer_ends_the_change_that_waits_for_metadata(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(4)
    cluster.bookies["b3"].go_down()
    hold(cluster, "b1")
    cluster.bookies["b1"].fenced.add(1)
    writer = cluster.create()

    def lose_and_go_away() -> None:
        cluster.ledgers.lose_reply = cluster.ledgers.unavailable = True

    cluster.ledgers.before_update = lose_and_go_away
    writer.append(b"x")
    await cluster.until(lambda: cluster.ledgers.unavailable)
    release(cluster, "b1")
    assert [failure.code for failure in cluster.failures] == [ErrorCode.LEDGER_FENCED]
    await cluster.until(lambda: len(asyncio.all_tasks()) == 1)


@pytest.mark.parametrize("pending", [True, False])
async def test_the_writer_of_a_deleted_ledger_is_finished(
    make_cluster: MakeCluster, *, pending: bool
) -> None:
    cluster = make_cluster(4)
    writer = cluster.create()
    await cluster.write(writer, b"x")
    cluster.ledgers.values.clear()
    if pending:
        cluster.bookies["b3"].go_down()
        writer.append(b"y")
    with pytest.raises(FencelogError, match="was deleted") as caught:
        await writer.close()
    assert caught.value.code is ErrorCode.LEDGER_FENCED
    assert cluster.failures == ([caught.value] if pending else [])
    with pytest.raises(FencelogError, match="finished"):
        writer.append(b"z")


async def test_a_bug_ends_the_writer_instead_of_leaving_it_waiting(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(4)
    writer = cluster.create()
    cluster.ledgers.before_update = broken
    cluster.bookies["b2"].go_down()
    writer.append(b"x")
    closing = asyncio.create_task(writer.close())
    async with asyncio.timeout(5):
        with pytest.raises(FencelogError, match="a bug") as caught:
            await closing
    assert caught.value.code is ErrorCode.INTERNAL
    assert cluster.failures == [caught.value]


def broken() -> None:
    raise RuntimeError("a bug")
