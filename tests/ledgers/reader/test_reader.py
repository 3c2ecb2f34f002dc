"""Reading: verified, never past what is confirmed, and "not there" only when all say so."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import Fragment, LedgerMetadata
from fencelog.ledgers.metastore.port import NO_VERSION, Version
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.recovery.fencing import fence_ledger
from fencelog.ledgers.recovery.recovery import recover_ledger
from fencelog.ledgers.writer.writer import LedgerWriter
from tests.support.metadata_nodes import later
from tests.support.scripted_cluster import Cluster, MakeCluster


async def written(cluster: Cluster, count: int) -> LedgerWriter:
    writer = cluster.create()
    for n in range(count):
        await cluster.write(writer, b"%d" % n)
    return writer


async def test_open_ledger_is_read_up_to_the_lac_that_bookies_know(cluster: Cluster) -> None:
    await written(cluster, 5)
    reader = LedgerReader(cluster.metadata(), bookies=cluster, source=cluster.ledgers)
    assert await reader.read_lac() == 3  # the last entry's own acknowledgement is not stored yet
    assert [bytes(e.payload) for e in await reader.read(0, 99)] == [b"0", b"1", b"2", b"3"]
    with pytest.raises(FencelogError) as caught:
        await reader.read(4, 4)
    assert caught.value.code is ErrorCode.BAD_REQUEST
    reader.confirm(4)  # told by the writer
    assert [bytes(e.payload) for e in await reader.read(4, 4)] == [b"4"]


async def test_reader_follows_the_ledger_being_closed(cluster: Cluster) -> None:
    writer = await written(cluster, 5)
    reader = LedgerReader(cluster.metadata(), bookies=cluster, source=cluster.ledgers)
    assert await reader.read_lac() == 3
    await writer.close()
    assert await reader.read_lac() == 4
    last = await reader.read_last()
    assert last is not None
    assert bytes(last.payload) == b"4"


async def test_reading_does_not_fence(cluster: Cluster) -> None:
    writer = await written(cluster, 2)
    reader = LedgerReader(cluster.metadata(), bookies=cluster, source=cluster.ledgers)
    await reader.read_lac()
    await reader.read(0, 0)
    assert all(not bookie.fenced for bookie in cluster.bookies.values())
    assert (await writer.close()).last_entry_id == 1


async def test_falls_over_to_the_next_bookie(cluster: Cluster) -> None:
    writer = await written(cluster, 3)
    closed = await writer.close()
    for down in ("b1", "b2", "b3"):
        cluster.bookies[down].go_down()
        reader = LedgerReader(closed, bookies=cluster)
        assert len(await reader.read(0, 2)) == 3
        cluster.bookies[down].come_back()


async def test_damaged_copy_is_passed_over_and_never_counts_as_absent(cluster: Cluster) -> None:
    writer = await written(cluster, 1)
    closed = await writer.close()
    good = cluster.bookies["b1"].entries[1][0]
    damaged = bytearray(good)
    damaged[-8] ^= 1
    for name in ("b1", "b2"):
        cluster.bookies[name].entries[1][0] = bytes(damaged)
    (entry,) = await LedgerReader(closed, bookies=cluster).read(0, 0)
    assert bytes(entry.payload) == b"0"
    del cluster.bookies["b3"].entries[1][0]
    with pytest.raises(FencelogError) as caught:
        await LedgerReader(closed, bookies=cluster).read(0, 0)
    assert caught.value.code is ErrorCode.READ_UNKNOWN
    assert set(caught.value.extra["missing_bookies"]) >= {"b1", "b2"}


async def test_absent_only_when_the_whole_write_set_says_so(cluster: Cluster) -> None:
    writer = await written(cluster, 1)
    closed = await writer.close()
    for bookie in cluster.bookies.values():
        bookie.entries[1].clear()
    with pytest.raises(FencelogError) as caught:
        await LedgerReader(closed, bookies=cluster).read(0, 0)
    assert caught.value.code is ErrorCode.NO_SUCH_ENTRY
    cluster.bookies["b2"].go_down()
    with pytest.raises(FencelogError) as caught:
        await LedgerReader(closed, bookies=cluster).read(0, 0)
    assert caught.value.code is ErrorCode.READ_UNKNOWN


async def test_a_read_ends_where_its_fragment_ends(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4)
    writer = cluster.create()
    for n in range(6):
        if n == 3:
            cluster.bookies["b1"].go_down()
        await cluster.write(writer, b"%d" % n)
    closed = await writer.close()
    assert [f.first_entry_id for f in closed.fragments] == [0, 3]
    reader = LedgerReader(closed, bookies=cluster)
    assert [e.entry_id for e in await reader.read(0, 5)] == [0, 1, 2]
    assert [e.entry_id for e in await reader.read(3, 5)] == [3, 4, 5]


async def test_open_ledger_without_any_answer_is_unknown(cluster: Cluster) -> None:
    await written(cluster, 1)
    for bookie in cluster.bookies.values():
        bookie.go_down()
    reader = LedgerReader(cluster.metadata(), bookies=cluster)
    with pytest.raises(FencelogError) as caught:
        await reader.read_lac()
    assert caught.value.code is ErrorCode.READ_UNKNOWN


async def replaced(cluster: Cluster) -> tuple[Any, LedgerMetadata]:
    """A writer whose whole ensemble was replaced after entry 0; and the metadata of before."""
    writer = cluster.create()
    await cluster.write(writer, b"0")
    before = cluster.metadata()
    full = FencelogError(ErrorCode.OUT_OF_SPACE, "full")
    for name in ("b1", "b2", "b3"):
        cluster.bookies[name].fault = lambda request: full if request == "add" else None
    await cluster.write(writer, b"1", b"2")
    return writer, before


async def test_an_open_ledger_whose_ensemble_was_replaced_is_unknown_not_absent(
    make_cluster: MakeCluster,
) -> None:
    """Metadata read before the change names bookies that never had the entry, and say so."""
    cluster = make_cluster(6)
    writer, before = await replaced(cluster)
    reader = LedgerReader(before, bookies=cluster)
    reader.confirm(writer.last_add_confirmed)
    with pytest.raises(FencelogError) as caught:
        await reader.read(1, 1)
    assert caught.value.code is ErrorCode.READ_UNKNOWN


async def test_an_earlier_fragment_is_confirmed_and_read_from_its_own_bookies(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(6)
    writer, _ = await replaced(cluster)
    reader = LedgerReader(cluster.metadata(), bookies=cluster)
    assert reader.last_confirmed == 0
    assert [bytes(entry.payload) for entry in await reader.read(0, 9)] == [b"0"]
    reader = LedgerReader(await writer.close(), bookies=cluster)
    assert [bytes(entry.payload) for entry in await reader.read(0, 9)] == [b"0"]


async def test_a_read_that_fails_is_tried_again_where_the_entry_lies_by_now(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(6)
    writer, before = await replaced(cluster)
    reader = LedgerReader(before, bookies=cluster, source=cluster.ledgers)
    reader.confirm(writer.last_add_confirmed)
    assert [bytes(entry.payload) for entry in await reader.read(1, 2)] == [b"1", b"2"]
    for name in ("b4", "b5", "b6"):
        cluster.bookies[name].go_down()
    cluster.ledgers.unavailable = True
    with pytest.raises(FencelogError) as caught:
        await reader.read(1, 2)  # metadata cannot be had: the read's own error stands
    assert caught.value.code is ErrorCode.READ_UNKNOWN


async def test_a_read_that_fails_after_another_saw_the_change_is_tried_again_too(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(6)
    writer, before = await replaced(cluster)
    reader = LedgerReader(before, bookies=cluster, source=cluster.ledgers)
    reader.confirm(writer.last_add_confirmed)
    slow = cluster.bookies["b2"]
    slow.hung.add("read")
    late = asyncio.create_task(reader.read(1, 1))
    await cluster.until(lambda: ("read", 1) in slow.asked)
    slow.hung.clear()  # the next is answered at once
    assert [bytes(entry.payload) for entry in await reader.read(1, 1)] == [b"1"]
    assert reader.metadata != before
    slow.wake()
    assert [bytes(entry.payload) for entry in await late] == [b"1"]


async def test_older_metadata_changes_nothing(cluster: Cluster) -> None:
    writer = await written(cluster, 2)
    before = cluster.metadata()
    closed = await writer.close()
    reader = LedgerReader(closed, bookies=cluster)
    reader.update(before)
    assert (reader.metadata, reader.last_confirmed) == (closed, 1)


async def test_a_ledger_closed_below_what_was_acknowledged_is_an_error(cluster: Cluster) -> None:
    await written(cluster, 2)
    reader = LedgerReader(cluster.metadata(), bookies=cluster)
    reader.confirm(1)
    with pytest.raises(FencelogError) as caught:
        reader.update(cluster.metadata().closed(last_entry_id=0, length=1))
    assert caught.value.code is ErrorCode.CORRUPT
    assert reader.last_confirmed == 1


async def test_a_ledger_in_recovery_is_read_up_to_its_lac_and_then_to_its_end(
    cluster: Cluster,
) -> None:
    await written(cluster, 5)
    reader = LedgerReader(cluster.metadata(), bookies=cluster, source=cluster.ledgers)
    metadata, version = cluster.ledgers.values[1]
    cluster.ledgers.values[1] = (metadata.in_recovery(), later(version, 1))
    await fence_ledger(metadata, bookies=cluster)
    assert await reader.read_lac() == 3
    assert len(await reader.read(0, 9)) == 4
    await recover_ledger(1, ledgers=cluster.ledgers, bookies=cluster, placement=cluster.placement)
    assert await reader.read_lac() == 4
    assert len(await reader.read(0, 9)) == 5


async def test_the_lac_is_known_when_a_bookie_hangs(cluster: Cluster) -> None:
    """The two that answer have, between them, seen every entry that was acknowledged."""
    await written(cluster, 5)
    cluster.bookies["b1"].hung.add("read_lac")
    reader = LedgerReader(cluster.metadata(), bookies=cluster)
    assert await reader.read_lac() == 3


async def test_a_bookie_that_missed_everything_does_not_say_what_the_lac_is(
    cluster: Cluster,
) -> None:
    await written(cluster, 5)
    cluster.bookies["b1"].lacs[1] = -1
    reader = LedgerReader(cluster.metadata(), bookies=cluster)
    assert await reader.read_lac() == 3


async def test_the_last_entry_of_an_empty_ledger_is_none(cluster: Cluster) -> None:
    closed = await cluster.create().close()
    assert await LedgerReader(closed, bookies=cluster).read_last() is None


async def moved(cluster: Cluster) -> LedgerMetadata:
    """Let other bookies have the entries of a closed ledger, as re-replication does; those that
    held them deny them. Returns the metadata of before."""
    writer = await written(cluster, 2)
    before = await writer.close()
    move(cluster, ("b1", "b2", "b3"), ("b4", "b5", "b6"))
    return before


def move(cluster: Cluster, old: tuple[str, ...], new: tuple[str, ...]) -> None:
    metadata, version = cluster.ledgers.values[1]
    for source, target in zip(old, new, strict=True):
        cluster.bookies[target].entries[1] = cluster.bookies[source].entries.pop(1)
        cluster.bookies[source].lacs.clear()
    fragments = (Fragment(0, new),)
    cluster.ledgers.values[1] = (replace(metadata, fragments=fragments), later(version, 1))


async def test_bookies_of_a_closed_ledger_that_were_replaced_deny_nothing(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(6)
    before = await moved(cluster)
    reader = LedgerReader(before, bookies=cluster, source=cluster.ledgers)
    assert [bytes(entry.payload) for entry in await reader.read(0, 1)] == [b"0", b"1"]
    assert reader.metadata != before


async def test_a_denial_counts_only_with_the_latest_metadata(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that lags behind has the metadata of before, too."""
    cluster = make_cluster(6)
    before = await moved(cluster)

    async def outdated(ledger_id: int) -> tuple[LedgerMetadata, Version]:
        return before, NO_VERSION

    monkeypatch.setattr(cluster.ledgers, "get", outdated)
    latest = cluster.ledgers.values[1]

    async def get_latest(ledger_id: int) -> tuple[LedgerMetadata, Version]:
        if cluster.ledgers.unavailable:
            raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "the store is away")
        return latest

    monkeypatch.setattr(cluster.ledgers, "get_latest", get_latest)
    cluster.ledgers.unavailable = True
    reader = LedgerReader(before, bookies=cluster, source=cluster.ledgers)
    with pytest.raises(FencelogError) as caught:
        await reader.read(0, 1)
    assert caught.value.code is ErrorCode.READ_UNKNOWN
    cluster.ledgers.unavailable = False
    assert len(await reader.read(0, 1)) == 2


async def test_a_denial_of_bookies_replaced_once_more_is_unknown(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(6)
    before = await moved(cluster)
    reader = LedgerReader(before, bookies=cluster, source=cluster.ledgers)

    def move_back(request: str) -> None:
        for bookie in cluster.bookies.values():
            bookie.fault = lambda request: None
        move(cluster, ("b4", "b5", "b6"), ("b1", "b2", "b3"))

    for name in ("b4", "b5", "b6"):
        cluster.bookies[name].fault = move_back
    with pytest.raises(FencelogError) as caught:
        await reader.read(0, 1)
    assert caught.value.code is ErrorCode.READ_UNKNOWN
    assert len(await reader.read(0, 1)) == 2
