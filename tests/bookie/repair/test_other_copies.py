"""What garbage collection may remove: that of which the bookies that the metadata names hold
everything, by their own lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fencelog.bookie.gc.ledgers import ClusterMetadata, LedgerGarbage
from fencelog.bookie.repair import other_copies
from fencelog.bookie.repair.core import wanted_ranges
from fencelog.bookie.repair.other_copies import OtherCopies
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.format.run import slice_run
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.metastore.instance import read_instance
from fencelog.ledgers.quorum import write_set
from tests.bookie.replication.stage import healed, running
from tests.support.local_cluster import LocalCluster

PAYLOADS = [b"entry %d" % n for n in range(20)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path, size=6) as cluster:
        yield cluster


async def closed(cluster: LocalCluster, *, ensemble: int = 3, copies: int = 3) -> LedgerMetadata:
    """A ledger of which all bookies have all copies."""
    writer = await cluster.write(*PAYLOADS, ensemble=ensemble, copies=copies, acks=copies)
    await writer.close()
    metadata, _ = await cluster.ledgers.get(writer.ledger_id)
    return metadata


async def stranger(cluster: LocalCluster, metadata: LedgerMetadata) -> str:
    """A bookie that no fragment names, and that holds every entry."""
    members = metadata.fragments[0].bookies
    (found, *_) = [bookie for bookie in sorted(cluster.bookies) if bookie not in members]
    for entry_id in range(len(PAYLOADS)):
        (first, *_) = write_set(
            entry_id,
            ensemble_size=metadata.ensemble_size,
            write_quorum=metadata.write_quorum,
        )
        await give(cluster, found, metadata, members[first], [entry_id])
    return found


async def give(
    cluster: LocalCluster, to: str, metadata: LedgerMetadata, source: str, entries: Iterable[int]
) -> None:
    """Store copies of entries on one more bookie."""
    for entry_id in entries:
        run = (
            await cluster.client(source).read(
                metadata.ledger_id, entry_id, max_entries=1, max_bytes=1
            )
        ).run
        answer: asyncio.Future[FencelogError | None] = asyncio.get_running_loop().create_future()
        cluster.bookies[to].add(
            slice_run(run, entry_id, entry_id), recovery=True, on_reply=answer.set_result
        )
        assert await answer is None


def others(cluster: LocalCluster, bookie: str) -> OtherCopies:
    return OtherCopies(cluster.bookies[bookie], cluster)


def named(metadata: LedgerMetadata, *bookies: str) -> LedgerMetadata:
    return replace(metadata, fragments=(replace(metadata.fragments[0], bookies=bookies),))


@pytest.mark.parametrize(("ensemble", "copies"), [(3, 3), (4, 2), (2, 1)])
async def test_nothing_is_in_doubt_where_all_copies_are(
    cluster: LocalCluster, ensemble: int, copies: int
) -> None:
    metadata = await closed(cluster, ensemble=ensemble, copies=copies)
    copier = others(cluster, await stranger(cluster, metadata))
    assert await copier.doubt(metadata) is None


async def test_each_bookie_has_to_hold_what_it_is_named_for(cluster: LocalCluster) -> None:
    metadata = await closed(cluster, ensemble=4, copies=2)
    copier = others(cluster, await stranger(cluster, metadata))
    first, second, *rest = metadata.fragments[0].bookies
    swapped = named(metadata, second, first, *rest)
    assert "has no entry" in str(await copier.doubt(swapped))


@pytest.mark.parametrize("deleted", [True, False])
async def test_a_bookie_that_has_removed_it_has_none_of_it(
    cluster: LocalCluster, deleted: bool
) -> None:
    metadata = await closed(cluster)
    copier = others(cluster, await stranger(cluster, metadata))
    member = metadata.fragments[0].bookies[1]
    shard = cluster.bookies[member].shard(metadata.ledger_id)
    await shard.remove(metadata.ledger_id, deleted=deleted)
    doubt = str(await copier.doubt(metadata))
    assert member in doubt
    assert ("no ledger" in doubt) if deleted else ("limbo" in doubt)


async def test_a_comparison_costs_what_is_here_and_not_what_is_in_the_ledger(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A striped ledger has as many ranges as entries, nearly."""
    metadata = await closed(cluster, ensemble=4, copies=2)
    members = metadata.fragments[0].bookies
    holder = max(cluster.bookies.keys() - set(members))
    await give(cluster, holder, metadata, members[0], [0])
    looked_at: list[tuple[int, int]] = []

    def ranges(*given: Any) -> Iterator[tuple[int, int]]:
        for each in wanted_ranges(*given):
            looked_at.append(each)
            yield each

    monkeypatch.setattr(other_copies, "wanted_ranges", ranges)
    assert await others(cluster, holder).doubt(metadata) is None
    assert looked_at == [(0, 0), (0, 0)]  # for the two members that have it


async def test_limbo_is_a_doubt_though_nothing_is_missing(cluster: LocalCluster) -> None:
    metadata = await closed(cluster)
    copier = others(cluster, await stranger(cluster, metadata))
    member = metadata.fragments[0].bookies[2]
    cluster.bookies[member].fence_forgotten(metadata.ledger_id)
    assert await copier.doubt(metadata) == f"bookie {member} has the ledger in limbo"


async def test_entries_behind_the_end_are_needed_nowhere(cluster: LocalCluster) -> None:
    metadata = await closed(cluster)
    holder = await stranger(cluster, metadata)
    few = max(cluster.bookies.keys() - {holder, *metadata.fragments[0].bookies})
    await give(cluster, few, metadata, metadata.fragments[0].bookies[0], range(5))
    moved = named(metadata, few, *metadata.fragments[0].bookies[1:])
    copier = others(cluster, holder)
    assert await copier.doubt(replace(moved, last_entry_id=4)) is None
    assert await copier.doubt(replace(moved, last_entry_id=5)) == f"bookie {few} has no entry 5"


async def test_a_bookie_that_does_not_answer_is_asked_once(cluster: LocalCluster) -> None:
    metadata = await closed(cluster)
    copier = others(cluster, await stranger(cluster, metadata))
    asked: list[int] = []

    class Silent:
        async def list_entries(self, ledger_id: int, from_entry: int = 0) -> EntryList:
            asked.append(ledger_id)
            raise FencelogError(ErrorCode.REQUEST_TIMEOUT, "does not answer")

    member = metadata.fragments[0].bookies[0]
    client: Any = cluster.client(member)
    cluster.put(member, Silent())
    for _ in range(3):
        assert "does not answer" in str(await copier.doubt(metadata))
    assert len(asked) == 1
    assert copier._resting[member][1].__traceback__ is None  # or it would keep all their frames
    cluster.put(member, client)
    assert await others(cluster, copier._bookie.bookie_id).doubt(metadata) is None


async def test_what_moved_since_the_backup_stays_where_it_is(cluster: LocalCluster) -> None:
    """All copies have moved, and those that the old bookies had are removed; then metadata from
    before is restored: the new bookies, which it does not name, have the only ones."""

    def garbage(name: str) -> LedgerGarbage:
        bookie = cluster.bookies[name]
        metadata = ClusterMetadata(
            cluster.store, lambda: read_instance(cluster.store), bookie.instance
        )
        return LedgerGarbage(bookie, metadata, others(cluster, name).doubt, grace_ms=0)

    backup = await closed(cluster)
    ledger_id, old = backup.ledger_id, backup.fragments[0].bookies
    marks = UnderReplicatedLedgers(cluster.store)
    await marks.mark(ledger_id, missing=list(old), why=Cause.DECOMMISSION, now_us=1)
    async with running(cluster.worker()):
        await healed(marks)
    moved, version = await cluster.ledgers.get(ledger_id)
    new = moved.fragments[0].bookies
    assert not set(new) & set(old)
    for name in old:
        assert await garbage(name).collect() == [ledger_id]
    assert await cluster.contents(ledger_id) == PAYLOADS
    await cluster.ledgers.update(backup, version)
    for name in new:
        assert await garbage(name).collect() == []
    _, version = await cluster.ledgers.get(ledger_id)
    await cluster.ledgers.update(moved, version)  # a newer backup
    assert await cluster.contents(ledger_id) == PAYLOADS
