"""Fences that come with the end of the ledger: an idle one needs no other request."""

from __future__ import annotations

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import build_run
from fencelog.ledgers.ledger_metadata.model import LedgerState
from fencelog.ledgers.recovery.fencing import fence_for_recovery, told_by
from fencelog.ledgers.recovery.recovery import FoundEnd, find_end, recover_ledger
from fencelog.ledgers.recovery.rules import FenceRound, Told
from fencelog.ledgers.rpc.bookie_port import FenceAnswer
from tests.support.scripted_cluster import Cluster


def telling(cluster: Cluster) -> Cluster:
    for bookie in cluster.bookies.values():
        bookie.tells_ends = True
    return cluster


def lacs(cluster: Cluster, *values: int) -> None:
    for bookie, lac in zip(cluster.bookies.values(), values, strict=True):
        bookie.lacs[1] = lac


def clear(cluster: Cluster) -> None:
    for bookie in cluster.bookies.values():
        bookie.asked.clear()


def reads(cluster: Cluster) -> dict[str, list[tuple[str, int]]]:
    """The requests of recovery to each bookie, without those by which the double tells its end."""
    return {name: bookie.asked for name, bookie in cluster.bookies.items()}


async def find(cluster: Cluster) -> FoundEnd:
    return await find_end(1, ledgers=cluster.ledgers, bookies=cluster, placement=cluster.placement)


async def test_of_an_idle_ledger_the_fence_is_all(cluster: Cluster) -> None:
    await cluster.write(telling(cluster).create(), b"0", b"12")
    lacs(cluster, 1, 1, 0)
    clear(cluster)
    found = await find(cluster)
    assert found.change is not None
    assert (found.metadata.last_entry_id, found.metadata.length) == (1, 3)
    assert found.last is not None
    assert bytes(found.last.payload) == b"12"
    # What the double does to tell the end, and no read beside it:
    assert reads(cluster)["b1"] == [("fence", -1), ("read_lac", -1), ("read", 1), ("read", 2)]
    assert cluster.metadata().state is LedgerState.OPEN


async def test_an_empty_ledger_ends_before_its_first_entry(cluster: Cluster) -> None:
    telling(cluster).create()
    found = await find(cluster)
    assert (found.metadata.last_entry_id, found.metadata.length) == (-1, 0)


async def test_entries_that_nobody_has_confirmed_are_written_again(cluster: Cluster) -> None:
    """b1 tells of entry 1, b2 of entries 1 and 2; b3 does not answer."""
    await cluster.write(telling(cluster).create(), b"0", b"1", b"2")
    lacs(cluster, 0, 0, 0)
    del cluster.bookies["b1"].entries[1][2]
    cluster.bookies["b3"].hung.add("read_lac")
    found = await find(cluster)
    assert found.metadata.last_entry_id == 2
    assert sorted(cluster.bookies["b1"].entries[1]) == [0, 1, 2]
    assert cluster.metadata().state is LedgerState.IN_RECOVERY


async def test_one_bookies_negative_ends_nothing(cluster: Cluster) -> None:
    """b1 has nothing; b2 has an entry that may be acknowledged, and b3 does not answer."""
    await cluster.write(telling(cluster).create(), b"0")
    del cluster.bookies["b1"].entries[1]
    cluster.bookies["b3"].go_down()
    metadata = await recover_ledger(
        1, ledgers=cluster.ledgers, bookies=cluster, placement=cluster.placement
    )
    assert metadata.last_entry_id == 0
    assert 0 in cluster.bookies["b1"].entries[1]


async def test_what_a_bookie_cannot_tell_is_asked(cluster: Cluster) -> None:
    """A bookie that answers with its LAC alone is read; another's answers count beside it."""
    await cluster.write(cluster.create(), b"0")
    lacs(cluster, 0, 0, 0)
    cluster.bookies["b1"].tells_ends = True
    cluster.bookies["b3"].go_down()
    clear(cluster)
    found = await find(cluster)
    assert (found.metadata.last_entry_id, found.metadata.length) == (0, 1)
    assert reads(cluster)["b2"] == [("read_lac", -1), ("read", 1)]


async def test_the_length_is_read_from_one_who_has_told_no_copy(cluster: Cluster) -> None:
    await cluster.write(cluster.create(), b"0")
    lacs(cluster, 0, 0, 0)
    found = await find(cluster)
    assert found.metadata.length == 1


async def test_a_fence_that_cannot_be_is_no_recovery(cluster: Cluster) -> None:
    await cluster.write(telling(cluster).create(), b"0")
    for name in ("b1", "b2"):
        cluster.bookies[name].go_down()
    with pytest.raises(FencelogError) as raised:
        await fence_for_recovery(cluster.metadata(), bookies=cluster, key=b"")
    assert raised.value.code is ErrorCode.RECOVERY_INCOMPLETE
    assert raised.value.extra["missing_bookies"] == ["b1", "b2"]


async def test_a_bug_of_a_client_is_no_answer(cluster: Cluster) -> None:
    telling(cluster).create()

    def broken(request: str) -> FencelogError | None:
        raise ZeroDivisionError

    for bookie in cluster.bookies.values():
        bookie.fault = broken
    with pytest.raises(ZeroDivisionError):
        await find(cluster)


async def test_a_run_that_is_not_valid_tells_nothing(cluster: Cluster) -> None:
    cluster.create()
    run = build_run(1, 0, [b"0"], lac=-1, length_before=0)
    fence = FenceRound(cluster.metadata())
    damaged = run[:-9] + bytes([run[-9] ^ 1]) + run[-8:]
    for wrong in (b"no run", run[:20], damaged, build_run(2, 0, [b""], lac=-1, length_before=0)):
        assert told_by(FenceAnswer(-1, wrong, 1), fence, "b1", b"") == Told()
    told = told_by(FenceAnswer(-1, run, 1), fence, "b1", b"")
    assert told.copy is not None
    assert told.absent == 1
