"""When the writer of an open ledger is ended: after a time without any sign of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fencelog.bookie.repair.copies import PutOff
from fencelog.bookie.replication.open_ledgers import OpenLedgers
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedger, UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerState
from fencelog.ledgers.metastore.port import NO_VERSION
from fencelog.ledgers.writer.writer import LedgerWriter
from tests.bookie.replication.stage import PAYLOADS, Clock, healed, knows_lac, running
from tests.support.local_cluster import LocalCluster

GRACE_MS = 200
AFTER_S = 0.25
"""The time of a ``Clock``: the requests in between take none of it."""

LOST = frozenset({Cause.LOST_BOOKIE})


def opened(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> tuple[OpenLedgers, Clock]:
    ledgers = OpenLedgers(
        ledgers=cluster.ledgers,
        bookies=cluster,
        placement=cluster.placement,
        key=b"",
        grace_ms=GRACE_MS,
    )
    clock = Clock()
    monkeypatch.setattr(ledgers, "_loop", clock)
    return ledgers, clock


async def is_closed(
    cluster: LocalCluster, ledgers: OpenLedgers, ledger_id: int, *also: str
) -> bool:
    """Try to close the ledger, whose first bookie is marked as lost, as are the bookies ``also``;
    tell whether that was done."""
    metadata, version = await cluster.ledgers.get(ledger_id)
    lost = dict.fromkeys((metadata.last_fragment.bookies[0], *also), LOST)
    mark = UnderReplicatedLedger(ledger_id, lost, 1, NO_VERSION)
    try:
        await ledgers.close(metadata, version, mark, frozenset(lost))
    except PutOff:
        return False
    assert (await cluster.ledgers.get(ledger_id))[0].is_closed
    return True


@pytest.fixture
async def writer(cluster: LocalCluster) -> LedgerWriter:
    writer = await cluster.write(*PAYLOADS)
    await knows_lac(cluster, writer, len(PAYLOADS) - 1)
    return writer


async def test_a_ledger_is_closed_when_its_writer_gives_no_sign(
    cluster: LocalCluster, writer: LedgerWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledgers, clock = opened(cluster, monkeypatch)
    assert not await is_closed(cluster, ledgers, writer.ledger_id)
    assert not await is_closed(cluster, ledgers, writer.ledger_id)
    clock.now_s += AFTER_S
    assert await is_closed(cluster, ledgers, writer.ledger_id)


async def test_each_sign_of_the_writer_begins_the_time_anew(
    cluster: LocalCluster, writer: LedgerWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its LAC, and its changes of the metadata."""
    ledgers, clock = opened(cluster, monkeypatch)
    assert not await is_closed(cluster, ledgers, writer.ledger_id)
    clock.now_s += AFTER_S
    await knows_lac(cluster, writer, writer.append(b"more"))
    assert not await is_closed(cluster, ledgers, writer.ledger_id)
    clock.now_s += AFTER_S
    metadata, version = await cluster.ledgers.get(writer.ledger_id)
    await cluster.ledgers.update(replace(metadata, properties={"changed": "1"}), version)
    assert not await is_closed(cluster, ledgers, writer.ledger_id)
    clock.now_s += AFTER_S
    assert await is_closed(cluster, ledgers, writer.ledger_id)


async def test_bookies_that_do_not_answer_for_a_while_are_no_sign(
    cluster: LocalCluster, writer: LedgerWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say less of the LAC, and then as much as before."""
    ledgers, clock = opened(cluster, monkeypatch)
    assert not await is_closed(cluster, ledgers, writer.ledger_id)
    cluster.cut(*cluster.bookies)
    assert not await is_closed(cluster, ledgers, writer.ledger_id)
    clock.now_s += AFTER_S
    with pytest.raises(FencelogError) as caught:
        await is_closed(cluster, ledgers, writer.ledger_id)
    assert caught.value.code is ErrorCode.RECOVERY_INCOMPLETE
    cluster.cut()
    assert await is_closed(cluster, ledgers, writer.ledger_id) is False  # it is being recovered now
    clock.now_s += AFTER_S
    assert await is_closed(cluster, ledgers, writer.ledger_id)


async def test_a_ledger_that_was_well_meanwhile_has_its_time_again(
    cluster: LocalCluster, writer: LedgerWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledgers, clock = opened(cluster, monkeypatch)
    assert not await is_closed(cluster, ledgers, writer.ledger_id)
    clock.now_s += AFTER_S
    ledgers.keep({writer.ledger_id + 1})
    assert not await is_closed(cluster, ledgers, writer.ledger_id)
    clock.now_s += AFTER_S
    ledgers.keep({writer.ledger_id})
    assert await is_closed(cluster, ledgers, writer.ledger_id)


async def test_no_writer_is_ended_where_there_is_nothing_to_copy_to(
    cluster: LocalCluster, writer: LedgerWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledgers, clock = opened(cluster, monkeypatch)
    assert not await is_closed(cluster, ledgers, writer.ledger_id)
    clock.now_s += AFTER_S
    spares = {*cluster.bookies} - {*writer.metadata.last_fragment.bookies}
    for spare in spares:
        await cluster.stop(spare)
    with pytest.raises(FencelogError) as caught:
        await is_closed(cluster, ledgers, writer.ledger_id)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_BOOKIES
    assert (await cluster.ledgers.get(writer.ledger_id))[0].state is LedgerState.OPEN
    await writer.abandon()


async def test_a_bookie_that_is_lost_itself_is_nothing_to_copy_to(
    cluster: LocalCluster, writer: LedgerWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledgers, clock = opened(cluster, monkeypatch)
    spares = {*cluster.bookies} - {*writer.metadata.last_fragment.bookies}
    assert not await is_closed(cluster, ledgers, writer.ledger_id, *spares)
    clock.now_s += AFTER_S
    with pytest.raises(FencelogError) as caught:
        await is_closed(cluster, ledgers, writer.ledger_id, *spares)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_BOOKIES
    await writer.abandon()


@pytest.mark.parametrize("size", [3, 5])
async def test_a_lost_bookie_that_is_back_with_everything_ends_no_writer(
    tmp_path: Path, size: int
) -> None:
    """Also where there is no spare bookie, which an end of the writer would wait for."""
    async with LocalCluster(tmp_path, size=size) as cluster:
        marks = UnderReplicatedLedgers(cluster.store)
        writer = await cluster.write(*PAYLOADS)
        lost = writer.metadata.last_fragment.bookies[0]
        await marks.mark(writer.ledger_id, missing=[lost], why=Cause.LOST_BOOKIE, now_us=1)
        async with running(cluster.worker(open_ledger_grace_ms=0)):
            await healed(marks)
        assert (await cluster.ledgers.get(writer.ledger_id))[0] == writer.metadata
        await writer.abandon()
