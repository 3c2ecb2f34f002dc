"""Recovery over scripted bookies: the figures of seed 000 and the stories of seeds 001 and 002."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, LedgerState
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.recovery.recovery import recover_ledger, recover_with_last
from fencelog.ledgers.rpc.bookie_port import BookieInfo
from tests.support.scripted_cluster import Cluster, MakeCluster, ScriptedBookie


async def recover(cluster: Cluster, ledger_id: int = 1) -> LedgerMetadata:
    return await recover_ledger(
        ledger_id, ledgers=cluster.ledgers, bookies=cluster, placement=cluster.placement
    )


async def contents(cluster: Cluster, metadata: LedgerMetadata) -> list[bytes]:
    reader = LedgerReader(metadata, bookies=cluster)
    found: list[bytes] = []
    while len(found) <= metadata.last_entry_id:
        entries = await reader.read(len(found), metadata.last_entry_id)
        found += [bytes(entry.payload) for entry in entries]
    return found


async def test_everything_acknowledged_survives_its_writer(cluster: Cluster) -> None:
    writer = cluster.create()
    payloads = [b"entry %d" % n for n in range(50)]
    await cluster.write(writer, *payloads[:20])
    await cluster.write(writer, *payloads[20:])
    closed = await recover(cluster)
    assert closed.state is LedgerState.CLOSED
    assert (closed.last_entry_id, closed.length) == (49, sum(map(len, payloads)))
    assert await contents(cluster, closed) == payloads


async def test_the_last_entry_comes_with_a_recovery_that_has_read_it(cluster: Cluster) -> None:
    await cluster.write(cluster.create(), b"0", b"1")
    recover = partial(
        recover_with_last, 1, ledgers=cluster.ledgers, bookies=cluster, placement=cluster.placement
    )
    metadata, last = await recover()
    assert last is not None
    assert (metadata.last_entry_id, last.entry_id, bytes(last.payload)) == (1, 1, b"1")
    assert await recover() == (metadata, None)  # it is closed: nothing was read


async def test_the_old_writer_can_no_longer_be_acknowledged(cluster: Cluster) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"0")
    closed = await recover(cluster)
    writer.append(b"too late")
    await cluster.until(lambda: bool(cluster.failures))
    assert cluster.failures[0].code is ErrorCode.LEDGER_FENCED
    assert cluster.acked == [0]
    assert closed.last_entry_id == 0


async def test_empty_ledger_of_a_writer_that_never_wrote(cluster: Cluster) -> None:
    cluster.create()
    closed = await recover(cluster)
    assert (closed.last_entry_id, closed.length) == (-1, 0)
    fenced = [b for b in cluster.bookies.values() if 1 in b.fenced]
    assert len(fenced) >= 2  # unknown ledgers are fenced too (rule 6)


async def test_one_bookie_down_is_tolerated_two_are_not(cluster: Cluster) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"0", b"1")
    cluster.bookies["b1"].go_down()
    cluster.bookies["b2"].go_down()
    with pytest.raises(FencelogError) as caught:
        await recover(cluster)
    assert caught.value.code is ErrorCode.RECOVERY_INCOMPLETE
    assert caught.value.extra["missing_bookies"] == ["b1", "b2"]
    assert cluster.metadata().state is LedgerState.IN_RECOVERY
    cluster.bookies["b2"].come_back()
    closed = await recover(cluster)
    assert closed.last_entry_id == 1
    assert await contents(cluster, closed) == [b"0", b"1"]


async def test_entry_on_a_single_bookie_is_recovered_and_made_durable(cluster: Cluster) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"0")
    lost = FencelogError(ErrorCode.REQUEST_TIMEOUT, "lost")
    for name in ("b1", "b2"):
        cluster.bookies[name].fault = lambda request: lost if request == "add" else None
    writer.append(b"unacknowledged")
    await asyncio.sleep(0.01)
    assert cluster.acked == [0]
    closed = await recover(cluster)
    assert closed.last_entry_id == 1
    holders = [b for b in cluster.bookies.values() if 1 in b.entries.get(1, {})]
    assert len(holders) >= 2


async def test_unknown_answers_abort_and_never_close(cluster: Cluster) -> None:
    """Seed 000: with WQ 3 and AQ 2 one explicit negative and two unknowns decide nothing."""
    cluster.create()
    error = FencelogError(ErrorCode.CORRUPT, "damaged")
    for name in ("b1", "b2"):
        cluster.bookies[name].fault = lambda request: error if request == "read" else None
    with pytest.raises(FencelogError) as caught:
        await recover(cluster)
    assert caught.value.code is ErrorCode.RECOVERY_INCOMPLETE
    assert caught.value.extra["missing_bookies"] == ["b1", "b2"]
    assert cluster.metadata().state is LedgerState.IN_RECOVERY


async def test_ensembles_of_a_recovery_are_committed_only_with_the_close(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(4)
    writer = cluster.create()
    await cluster.write(writer, b"0", b"1", b"2")
    error = FencelogError(ErrorCode.OUT_OF_SPACE, "full")
    for name in ("b1",):
        cluster.bookies[name].fault = lambda request: error if request == "recovery add" else None
    states = []
    cluster.ledgers.before_update = lambda: states.append(cluster.metadata())
    began_us = SystemHost().now_us()
    closed = await recover(cluster)
    assert closed.last_fragment.bookies == ("b4", "b2", "b3")
    assert began_us <= closed.last_fragment.since_us <= SystemHost().now_us()
    assert all(len(state.fragments) == 1 for state in states)
    assert await contents(cluster, closed) == [b"0", b"1", b"2"]


async def test_a_recovery_that_cannot_end_leaves_no_ensembles(make_cluster: MakeCluster) -> None:
    """Seed 001: the next one could find a bookie in them that lacks entries, and believe its no."""
    cluster = make_cluster(4)
    writer = cluster.create()
    await cluster.write(writer, b"0", b"1", b"2")
    before = cluster.metadata().fragments
    full = FencelogError(ErrorCode.OUT_OF_SPACE, "full")

    def read_once(bookie: ScriptedBookie) -> Callable[[str], FencelogError | None]:
        def fault(request: str) -> FencelogError | None:
            if request == "read":
                bookie.hung.add("read")
            is_full = request == "recovery add" and bookie.bookie_id == "b1"
            return full if is_full else None

        return fault

    members = [cluster.bookies[name] for name in ("b1", "b2", "b3")]
    for bookie in members:
        bookie.fault = read_once(bookie)
    recovery = asyncio.create_task(recover(cluster))
    await cluster.until(lambda: 1 in cluster.bookies["b4"].entries)
    for bookie in members:
        bookie.go_down()
        bookie.wake()
    with pytest.raises(FencelogError) as caught:
        await recovery
    assert caught.value.code is ErrorCode.RECOVERY_INCOMPLETE
    assert (cluster.metadata().state, cluster.metadata().fragments) == (
        LedgerState.IN_RECOVERY,
        before,
    )
    for bookie in members:
        bookie.come_back()
    assert await contents(cluster, await recover(cluster)) == [b"0", b"1", b"2"]


async def test_concurrent_recoverers_converge(cluster: Cluster) -> None:
    writer = cluster.create()
    await cluster.write(writer, *[b"%d" % n for n in range(10)])
    results = await asyncio.gather(*(recover(cluster) for _ in range(5)))
    assert {result.last_entry_id for result in results} == {9}
    assert len(set(map(repr, results))) == 1


async def test_close_whose_reply_is_lost_is_recognised(cluster: Cluster) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"0")

    def lose_the_close() -> None:
        cluster.ledgers.before_update = lambda: setattr(cluster.ledgers, "lose_reply", True)

    cluster.ledgers.before_update = lose_the_close
    closed = await recover(cluster)
    assert (closed.last_entry_id, closed.is_closed) == (0, True)


async def test_recovered_entries_keep_their_bytes(make_cluster: MakeCluster) -> None:
    """Recovered entries carry their writer's LAC, never the recoverer's own progress (rule 5)."""
    cluster = make_cluster(4)
    writer = cluster.create()
    await cluster.write(writer, b"a", b"b", b"c")
    before = dict(cluster.bookies["b2"].entries[1])
    cluster.bookies["b1"].go_down()
    await recover(cluster)
    assert {**before, **cluster.bookies["b4"].entries[1]} == before


async def test_an_entry_that_one_bookie_has_is_copied_byte_for_byte(cluster: Cluster) -> None:
    """Its writer's LAC is lower than what recovery has written again by then."""
    writer = cluster.create()
    for bookie in cluster.bookies.values():
        bookie.held = []  # nothing is acknowledged
    writer.append(b"0")
    await asyncio.sleep(0.01)
    lost = FencelogError(ErrorCode.REQUEST_TIMEOUT, "lost")
    for name in ("b1", "b3"):
        cluster.bookies[name].fault = lambda request: lost if request == "add" else None
    writer.append(b"1")
    await asyncio.sleep(0.01)
    original = dict(cluster.bookies["b2"].entries[1])
    for bookie in cluster.bookies.values():
        bookie.held = None
        bookie.come_back()
    assert (await recover(cluster)).last_entry_id == 1
    assert [bookie.entries[1] for bookie in cluster.bookies.values()] == [original] * 3


async def test_striped_ledger_is_recovered(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(5)
    writer = cluster.create(ensemble="b1 b2 b3 b4 b5", write_quorum=3)
    payloads = [b"%d" % n for n in range(23)]
    for payload in payloads:
        await cluster.write(writer, payload)
    cluster.bookies["b3"].go_down()
    closed = await recover(cluster)
    assert closed.last_entry_id == 22
    assert await contents(cluster, closed) == payloads


async def test_a_ledger_without_room_for_another_fragment_is_recovered(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Qa bookies are enough; a failure of the third must not leave the recovery waiting."""
    cluster = make_cluster(4)
    writer = cluster.create()
    await cluster.write(writer, b"0")
    await cluster.write(writer, b"1")
    monkeypatch.setattr("fencelog.ledgers.ledger_metadata.model.MAX_FRAGMENTS", 1)
    error = FencelogError(ErrorCode.OUT_OF_SPACE, "full")
    cluster.bookies["b1"].fault = lambda request: error if request == "recovery add" else None
    async with asyncio.timeout(5):
        closed = await recover(cluster)
    assert closed.last_entry_id == 1
    assert len(closed.fragments) == 1


async def test_a_recovery_that_finds_only_dead_replacements_ends(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(6)
    writer = cluster.create()
    await cluster.write(writer, b"0")
    down = FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "down")
    for name in ("b1", "b3", "b4", "b5", "b6"):
        cluster.bookies[name].fault = lambda request: down if request == "recovery add" else None
    async with asyncio.timeout(5):
        with pytest.raises(FencelogError) as caught:
            await recover(cluster)
    assert caught.value.code is ErrorCode.RECOVERY_INCOMPLETE


async def test_a_replacement_keeps_each_write_set_in_two_racks(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    racks = dict(zip(("b1", "b2", "b3", "b4", "b5", "b6", "b7"), "abaaaab", strict=True))
    lost = FencelogError(ErrorCode.READ_ONLY, "no more")
    for _ in range(10):
        cluster = make_cluster(7)
        monkeypatch.setattr(cluster, "describe", lambda name: BookieInfo(name, "1", racks[name]))
        writer = cluster.create(ensemble="b1 b2 b3 b4", write_quorum=2)
        await cluster.write(writer, b"0", b"1", b"2", b"3")
        cluster.bookies["b4"].fault = lambda request: lost if request == "recovery add" else None
        assert (await recover(cluster)).last_fragment.bookies == ("b1", "b2", "b3", "b7")
