"""A bookie takes entries from a recovery that will name it only with its close, and loses its disk
before that: it must not deny them afterwards, and gets them back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.metastore.port import Version
from fencelog.ledgers.recovery.recovery import recover_ledger
from tests.support.local_cluster import LocalCluster

PAYLOADS = [b"entry %d" % n for n in range(20)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path, size=4) as cluster:
        yield cluster


class HeldClose:
    """Ledgers of which something happens right before one is closed."""

    def __init__(
        self, cluster: LocalCluster, before_close: Callable[[], Awaitable[object]]
    ) -> None:
        self._ledgers = cluster.ledgers
        self._before_close = before_close

    async def get(self, ledger_id: int) -> tuple[LedgerMetadata, Version]:
        return await self._ledgers.get(ledger_id)

    async def update(self, metadata: LedgerMetadata, version: Version) -> Version:
        if metadata.is_closed:
            await self._before_close()
        return await self._ledgers.update(metadata, version)


async def answer(cluster: LocalCluster, bookie_id: str, ledger_id: int, entry_id: int) -> object:
    client = cluster.client(bookie_id)
    try:
        reply = await client.read(ledger_id, entry_id, max_entries=1, max_bytes=1)
    except FencelogError as error:
        return error.code
    return len(reply.run) > 0


async def recovered_with(
    cluster: LocalCluster, before_close: Callable[[str], Awaitable[object]]
) -> tuple[LedgerMetadata, str]:
    """A ledger whose recovery had to put the spare bookie in the place of a member, and which one
    that is: it is told to ``before_close``."""
    writer = await cluster.write(*PAYLOADS)
    await writer.abandon()
    members = writer.metadata.last_fragment.bookies
    (spare,) = set(cluster.available()) - set(members)
    cluster.cut(members[0])
    closed = await recover_ledger(
        writer.ledger_id,
        ledgers=HeldClose(cluster, lambda: before_close(spare)),
        bookies=cluster,
        placement=cluster.placement,
    )
    return closed, spare


async def test_what_a_recovery_wrote_to_a_lost_disk_is_unknown_and_comes_back(
    cluster: LocalCluster,
) -> None:
    closed, spare = await recovered_with(cluster, cluster.lose_disk)
    assert spare in closed.last_fragment.bookies
    for entry_id in (0, len(PAYLOADS) - 1, len(PAYLOADS)):
        found = await answer(cluster, spare, closed.ledger_id, entry_id)
        assert found is ErrorCode.LEDGER_IN_LIMBO
    await cluster.integrity(spare).check()
    cluster.cut(*(set(cluster.available()) - {spare}))
    assert await cluster.contents(closed.ledger_id) == PAYLOADS
    end = await answer(cluster, spare, closed.ledger_id, len(PAYLOADS))
    assert end is ErrorCode.NO_SUCH_ENTRY


async def test_a_recovery_that_goes_another_way_leaves_only_a_stranger(
    cluster: LocalCluster,
) -> None:
    """The lost bookie is not named in the end: it says "unknown", and nothing waits for it."""

    async def lose_and_close_without(spare: str) -> None:
        await cluster.lose_disk(spare)
        cluster.cut()
        (ledger_id,) = [m.ledger_id async for m in cluster.ledgers.read_all()]
        await cluster.ledger_client.recover(ledger_id)

    closed, spare = await recovered_with(cluster, lose_and_close_without)
    assert spare not in closed.last_fragment.bookies
    assert await answer(cluster, spare, closed.ledger_id, 0) is ErrorCode.LEDGER_IN_LIMBO
    integrity = cluster.integrity(spare)
    await integrity.check()
    assert [item["why"] for item in integrity.status()["waiting"]] == ["stranger"]
    assert await cluster.contents(closed.ledger_id) == PAYLOADS


async def test_what_a_replication_worker_may_have_copied_to_a_lost_disk_is_unknown(
    cluster: LocalCluster,
) -> None:
    """While a ledger is marked, a worker may be about to name the bookie; a ledger that is not
    marked, and does not name it, has nothing here."""
    closed = [await (await cluster.write(*PAYLOADS)).close() for _ in range(2)]
    outside = [set(cluster.available()) - set(one.last_fragment.bookies) for one in closed]
    while outside[0] != outside[1]:
        closed[1] = await (await cluster.write(*PAYLOADS)).close()
        outside[1] = set(cluster.available()) - set(closed[1].last_fragment.bookies)
    (spare,) = outside[0]
    marked, other = (one.ledger_id for one in closed)
    await UnderReplicatedLedgers(cluster.store).mark(
        marked, missing=["b9"], why=Cause.LOST_BOOKIE, now_us=1
    )
    await cluster.lose_disk(spare)
    assert await answer(cluster, spare, marked, 0) is ErrorCode.LEDGER_IN_LIMBO
    assert await answer(cluster, spare, other, 0) is ErrorCode.NO_SUCH_LEDGER


async def test_a_marked_ledger_that_is_open_is_not_fenced_on_a_new_bookie(
    cluster: LocalCluster,
) -> None:
    """Its writer may choose the bookie."""
    writer = await cluster.write(*PAYLOADS)
    (spare,) = set(cluster.available()) - set(writer.metadata.last_fragment.bookies)
    await UnderReplicatedLedgers(cluster.store).mark(
        writer.ledger_id, missing=["b9"], why=Cause.LOST_BOOKIE, now_us=1
    )
    await cluster.lose_disk(spare)
    cluster.cut(writer.metadata.last_fragment.bookies[0])
    writer.append(b"more")
    closed = await writer.close()
    assert closed.last_entry_id == len(PAYLOADS)
    assert spare in closed.last_fragment.bookies
