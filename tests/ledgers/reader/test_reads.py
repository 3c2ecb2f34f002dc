"""Reads on their way: the second bookie, stripes side by side, limits."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import build_run
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.limits import MAX_SIDE_BY_SIDE_READS, MIB
from fencelog.ledgers.metrics import LedgerCounts
from fencelog.ledgers.reader.entry_reads import verified_reply
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.rpc.bookie_port import ReadReply
from tests.support.scripted_cluster import Cluster, MakeCluster

TIMEOUT = FencelogError(ErrorCode.REQUEST_TIMEOUT, "no answer")


async def striped(cluster: Cluster, payloads: list[bytes]) -> LedgerMetadata:
    """The metadata of a closed ledger with E = 5, Qw = 3."""
    writer = cluster.create(ensemble="b1 b2 b3 b4 b5")
    for payload in payloads:
        await cluster.write(writer, payload)
    return await writer.close()


@pytest.fixture
def wide(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(5)


async def closed_ledger(cluster: Cluster, *payloads: bytes) -> LedgerMetadata:
    writer = cluster.create()
    await cluster.write(writer, *payloads)
    return await writer.close()


def asked(cluster: Cluster) -> dict[str, list[int]]:
    return {
        name: [entry for what, entry in bookie.asked if what == "read"]
        for name, bookie in cluster.bookies.items()
    }


async def test_a_bookie_that_hangs_is_overtaken_and_then_asked_last(cluster: Cluster) -> None:
    closed = await closed_ledger(cluster, b"0", b"1")
    order = ["b2", "b3", "b1"]  # ledger 1 begins with the second member
    cluster.bookies[order[0]].hung.add("read")
    counted = LedgerCounts()
    reader = LedgerReader(closed, bookies=cluster, speculative_read_ms=1, metrics=counted)
    assert len(await reader.read(0, 1)) == 2
    assert counted.speculative_reads == 1
    assert asked(cluster) == {"b1": [], "b2": [0], "b3": [0]}
    reader = LedgerReader(closed, bookies=cluster, speculative_read_ms=1)
    await reader.read(0, 1)
    await reader.read(0, 1)
    assert asked(cluster) == {"b1": [], "b2": [0, 0], "b3": [0, 0, 0]}


async def test_the_next_is_asked_at_once_after_an_error(cluster: Cluster) -> None:
    """However long a bookie may take."""
    closed = await closed_ledger(cluster, b"0")
    cluster.bookies["b2"].fault = lambda request: TIMEOUT
    reader = LedgerReader(closed, bookies=cluster, speculative_read_ms=1_000_000)
    assert len(await reader.read(0, 0)) == 1


async def test_all_hang_but_the_last(cluster: Cluster) -> None:
    closed = await closed_ledger(cluster, b"0")
    for name in ("b2", "b3"):
        cluster.bookies[name].hung.add("read")
    reader = LedgerReader(closed, bookies=cluster, speculative_read_ms=1)
    assert len(await reader.read(0, 0)) == 1
    assert len(asyncio.all_tasks()) == 1  # those that hang were given up


async def test_a_bug_is_no_answer(cluster: Cluster) -> None:
    closed = await closed_ledger(cluster, b"0")

    def broken(request: str) -> None:
        raise ZeroDivisionError

    cluster.bookies["b2"].fault = broken
    with pytest.raises(ZeroDivisionError):
        await LedgerReader(closed, bookies=cluster).read(0, 0)


async def test_a_reply_with_other_entries_is_unknown(cluster: Cluster) -> None:
    closed = await closed_ledger(cluster, b"0", b"1")
    for bookie in cluster.bookies.values():
        bookie.entries[1][0] = bookie.entries[1][1]
    with pytest.raises(FencelogError) as caught:
        await LedgerReader(closed, bookies=cluster).read(0, 0)
    assert caught.value.code is ErrorCode.READ_UNKNOWN
    assert "answered with 1 of 1" in caught.value.detail


async def test_the_same_entry_of_another_ledger_is_unknown(cluster: Cluster) -> None:
    closed = await closed_ledger(cluster, b"0")
    for bookie in cluster.bookies.values():
        bookie.entries[1][0] = build_run(2, 0, [b"0"], lac=-1, length_before=0)
    with pytest.raises(FencelogError) as caught:
        await LedgerReader(closed, bookies=cluster).read(0, 0)
    assert caught.value.code is ErrorCode.READ_UNKNOWN
    assert "answered with 0 of 2" in caught.value.detail


async def test_the_lac_of_a_reply_with_other_entries_is_not_believed(cluster: Cluster) -> None:
    await cluster.write(cluster.create(), b"0", b"1")
    for bookie in cluster.bookies.values():
        bookie.entries[1][0] = bookie.entries[1][1]
        bookie.lacs[1] = 7
    reader = LedgerReader(cluster.metadata(), bookies=cluster)
    reader.confirm(0)
    with pytest.raises(FencelogError):
        await reader.read(0, 0)
    assert reader.last_confirmed == 0


@pytest.mark.parametrize(
    ("ledger_id", "first", "expected"),
    [(1, 2, [0, 1, 2, 3]), (1, 3, [0, 1]), (1, 1, [0, 1]), (2, 2, [0, 1])],
)
async def test_only_adjacent_runs_of_the_ledger_are_read_from_a_file(
    cluster: Cluster, ledger_id: int, first: int, expected: list[int]
) -> None:
    """Of others the first run alone is returned: the read of the next one finds what is wrong."""
    closed = await closed_ledger(cluster, b"0")
    runs = [
        build_run(ledger, begin, [b"x", b"y"], lac=-1, length_before=0)
        for ledger, begin in ((1, 0), (ledger_id, first))
    ]
    places = ((0, len(runs[0])), (len(runs[0]), len(runs[1])))
    reply = ReadReply(-1, b"".join(runs), places)
    found = verified_reply(reply, closed, 0, bookie_id="b1", key=b"", whole=False)
    assert [entry.entry_id for entry in found] == expected


async def test_no_more_entries_than_asked_for(cluster: Cluster) -> None:
    closed = await closed_ledger(cluster, b"0", b"1", b"2")
    reader = LedgerReader(closed, bookies=cluster)
    assert [e.entry_id for e in await reader.read(1, 1)] == [1]
    assert [e.entry_id for e in await reader.read(1, 99)] == [1, 2]


async def test_stripes_are_read_side_by_side_in_order(wide: Cluster) -> None:
    payloads = [b"%d" % n for n in range(50)]
    closed = await striped(wide, payloads)
    reader = LedgerReader(closed, bookies=wide)
    assert [bytes(e.payload) for e in await reader.read(0, 99)] == payloads
    assert len([entry for entries in asked(wide).values() for entry in entries]) == 50


async def test_side_by_side_means_at_the_same_time(wide: Cluster) -> None:
    closed = await striped(wide, [b"x" * 10] * 60)
    reader = LedgerReader(closed, bookies=wide, speculative_read_ms=1_000_000)
    await reader.read(0, 59)  # it knows now how large entries are
    for _ in range(10):
        await reader.read(0, 59)
    for bookie in wide.bookies.values():
        bookie.asked.clear()
        bookie.hung.add("read")
    reading = asyncio.create_task(reader.read(0, 59))
    await wide.until(lambda: sum(map(len, asked(wide).values())) >= 4)
    for _ in range(100):
        await asyncio.sleep(0)
    assert 4 <= sum(map(len, asked(wide).values())) <= MAX_SIDE_BY_SIDE_READS
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert len(asyncio.all_tasks()) == 1


async def test_stripes_fall_over_each_on_its_own(wide: Cluster) -> None:
    payloads = [b"%d" % n for n in range(20)]
    closed = await striped(wide, payloads)
    wide.bookies["b1"].go_down()
    wide.bookies["b4"].hung.add("read")
    reader = LedgerReader(closed, bookies=wide, speculative_read_ms=1)
    found: list[bytes] = []
    while len(found) < 20:
        found += [bytes(e.payload) for e in await reader.read(len(found), 19)]
    assert found == payloads


async def test_stripes_end_before_an_entry_that_cannot_be_had(wide: Cluster) -> None:
    """Entries before it are delivered; the error comes to a reader that asks from it on."""
    closed = await striped(wide, [b"%d" % n for n in range(10)])
    for bookie in wide.bookies.values():
        bookie.entries[1].pop(4, None)
    reader = LedgerReader(closed, bookies=wide)
    assert [e.entry_id for e in await reader.read(0, 9)] == [0, 1, 2, 3]
    with pytest.raises(FencelogError) as caught:
        await reader.read(4, 9)
    assert caught.value.code is ErrorCode.NO_SUCH_ENTRY


async def test_stripes_keep_within_the_bytes(wide: Cluster) -> None:
    closed = await striped(wide, [b"x" * 1000] * 10)
    reader = LedgerReader(closed, bookies=wide)
    assert len(await reader.read(0, 9, max_bytes=3500)) == 3
    assert len(await reader.read(0, 9, max_bytes=10)) == 1
    assert len(await reader.read(0, 9, max_bytes=MIB)) == 10


@pytest.mark.parametrize("run", [b"", b"junk", bytes(100)])
async def test_an_empty_reply_or_junk_is_unknown_and_asked_for_once(
    cluster: Cluster, run: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = await closed_ledger(cluster, b"0")
    asked_for: list[int] = []

    async def read(ledger_id: int, first: int, **limits: object) -> ReadReply:
        asked_for.append(first)
        return ReadReply(-1, run)

    for bookie in cluster.bookies.values():
        monkeypatch.setattr(bookie, "read", read)
    with pytest.raises(FencelogError) as caught:
        await LedgerReader(closed, bookies=cluster).read(0, 0)
    assert caught.value.code is ErrorCode.READ_UNKNOWN
    assert asked_for == [0, 0, 0]


async def test_a_bookie_is_told_both_limits(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = await closed_ledger(cluster, b"0", b"1", b"2")
    limits: list[dict[str, int]] = []
    whole = cluster.bookies["b2"].read

    async def read(ledger_id: int, first: int, **told: int) -> ReadReply:
        limits.append(told)
        return await whole(ledger_id, first, max_entries=99, max_bytes=MIB)

    monkeypatch.setattr(cluster.bookies["b2"], "read", read)
    reader = LedgerReader(closed, bookies=cluster)
    found = await reader.read(0, 1, max_bytes=77)
    assert limits == [{"max_entries": 2, "max_bytes": 77}]
    assert [e.entry_id for e in found] == [0, 1]  # whatever the bookie makes of them


async def test_a_deleted_ledger_does_not_hide_the_error_of_a_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = await closed_ledger(cluster, b"0")
    for bookie in cluster.bookies.values():
        bookie.entries.clear()

    async def get(ledger_id: int) -> None:
        raise FencelogError(ErrorCode.LEDGER_NOT_FOUND, f"ledger {ledger_id} is gone")

    monkeypatch.setattr(cluster.ledgers, "get", get)
    with pytest.raises(FencelogError) as caught:
        await LedgerReader(closed, bookies=cluster, source=cluster.ledgers).read(0, 0)
    assert caught.value.code is ErrorCode.NO_SUCH_ENTRY
