"""Waiting for the LAC: the first bookie with news, the close, a change of members, failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.recovery.recovery import recover_ledger
from tests.support.scripted_cluster import Cluster, MakeCluster

LONG_MS = 600_000
"""No test waits for so long: what it waits for comes, or the test's own time limit."""

Open = Callable[[Cluster], LedgerReader]


@pytest_asyncio.fixture
async def open_reader() -> AsyncIterator[Open]:
    """A reader as a client opens it, closed after the test; then nothing of it is left running."""
    readers: list[LedgerReader] = []

    def open_(cluster: Cluster) -> LedgerReader:
        readers.append(LedgerReader(cluster.metadata(), bookies=cluster, source=cluster.ledgers))
        return readers[-1]

    yield open_
    for reader in readers:
        await reader.close()


async def waiting(cluster: Cluster, reader: LedgerReader, above: int) -> asyncio.Task[int]:
    """A task that waits for the LAC, and has asked the bookies."""
    for bookie in cluster.bookies.values():
        bookie.asked.clear()
    task = asyncio.create_task(reader.wait_lac(above, LONG_MS))
    await cluster.until(lambda: any(bookie.asked for bookie in cluster.bookies.values()))
    return task


async def test_the_lac_comes_as_soon_as_a_bookie_knows_it(
    cluster: Cluster, open_reader: Open
) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"0")
    reader = open_reader(cluster)
    task = await waiting(cluster, reader, -1)
    assert not task.done()
    await cluster.write(writer, b"1")  # carries LAC 0
    assert await task == 0
    assert reader.last_confirmed == 0


async def test_what_is_known_is_returned_without_asking(
    cluster: Cluster, open_reader: Open
) -> None:
    await cluster.write(cluster.create(), b"0", b"1")
    reader = open_reader(cluster)
    reader.confirm(1)
    assert await reader.wait_lac(0, LONG_MS) == 1
    assert await reader.wait_lac(1, 0) == 1
    assert all(not bookie.asked for bookie in cluster.bookies.values())


async def test_a_tail_is_followed_to_the_end(
    cluster: Cluster, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.ledgers.reader.reader.LAC_POLL_MS", 20)
    writer = cluster.create()
    reader = open_reader(cluster)
    seen = [-1]

    async def follow() -> None:
        while not reader.metadata.is_closed:
            seen.append(await reader.wait_lac(seen[-1], LONG_MS))

    following = asyncio.create_task(follow())
    for n in range(30):
        await cluster.write(writer, b"%d" % n)
    await writer.close()
    await following
    assert seen == sorted(seen)
    assert seen[-1] == 29


async def test_the_close_is_seen_at_the_end_of_a_round(
    cluster: Cluster, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer closes in metadata alone; no bookie hears of it."""
    monkeypatch.setattr("fencelog.ledgers.reader.reader.LAC_POLL_MS", 20)
    writer = cluster.create()
    await cluster.write(writer, b"0", b"1")
    reader = open_reader(cluster)
    task = await waiting(cluster, reader, 0)
    await writer.close()
    assert await task == 1
    assert reader.metadata.is_closed


async def test_the_end_of_a_recovery_is_seen(cluster: Cluster, open_reader: Open) -> None:
    """Fenced bookies answer at once: the reader looks at metadata until the ledger is closed."""
    await cluster.write(cluster.create(), b"0", b"1")
    reader = open_reader(cluster)
    task = await waiting(cluster, reader, 0)
    await recover_ledger(1, ledgers=cluster.ledgers, bookies=cluster, placement=cluster.placement)
    assert await task == 1
    assert reader.metadata.is_closed


async def test_a_bookie_that_fails_or_hangs_is_no_reason_to_fail(
    cluster: Cluster, open_reader: Open
) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"0")
    cluster.bookies["b1"].fault = lambda request: (
        FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "down") if request == "read_lac" else None
    )
    cluster.bookies["b2"].hung.add("read_lac")
    reader = open_reader(cluster)
    task = await waiting(cluster, reader, -1)
    await cluster.write(writer, b"1")
    assert await task == 0


async def test_a_bookie_that_hangs_gets_one_question_at_a_time(
    cluster: Cluster, open_reader: Open
) -> None:
    writer = cluster.create()
    reader = open_reader(cluster)
    cluster.bookies["b2"].hung.add("read_lac")
    await cluster.write(writer, b"0")
    for n in range(10):
        task = asyncio.create_task(reader.wait_lac(n - 1, LONG_MS))
        await cluster.write(writer, b"more")
        assert await task >= n
    assert len(cluster.bookies["b2"].asked) == 1
    assert len(cluster.bookies["b1"].asked) + len(cluster.bookies["b3"].asked) >= 10


async def test_members_are_followed(
    make_cluster: MakeCluster, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All members are replaced while the reader waits; the LAC comes from the new ones."""
    monkeypatch.setattr("fencelog.ledgers.reader.reader.LAC_POLL_MS", 20)
    cluster = make_cluster(6)
    writer = cluster.create()
    await cluster.write(writer, b"0")
    reader = open_reader(cluster)
    task = await waiting(cluster, reader, 1)
    full = FencelogError(ErrorCode.OUT_OF_SPACE, "full")
    for name in ("b1", "b2", "b3"):
        cluster.bookies[name].fault = lambda request: full if request == "add" else None
    await cluster.write(writer, b"1", b"2")
    await cluster.write(writer, b"3")  # carries LAC 2
    assert await task == 2
    assert set(reader.metadata.last_fragment.bookies) == {"b4", "b5", "b6"}


async def test_without_any_answer_to_the_end_the_lac_is_unknown(
    cluster: Cluster, open_reader: Open
) -> None:
    await cluster.write(cluster.create(), b"0")
    for bookie in cluster.bookies.values():
        bookie.go_down()
    with pytest.raises(FencelogError) as caught:
        await open_reader(cluster).wait_lac(0, 10)
    assert caught.value.code is ErrorCode.READ_UNKNOWN
    assert caught.value.extra["missing_bookies"] == ["b1", "b2", "b3"]


async def test_when_the_time_is_over_what_is_known_is_returned(
    cluster: Cluster, open_reader: Open
) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"0")
    await cluster.write(writer, b"1")
    reader = open_reader(cluster)
    assert await reader.wait_lac(0, 10) == 0
    for bookie in cluster.bookies.values():
        bookie.hung.add("read_lac")
    assert await reader.wait_lac(0, 10) == 0


async def test_an_absent_metadata_store_is_borne(cluster: Cluster, open_reader: Open) -> None:
    writer = cluster.create()
    await cluster.write(writer, b"0")
    reader = open_reader(cluster)
    cluster.ledgers.unavailable = True
    assert await reader.wait_lac(-1, 10) == -1
    task = await waiting(cluster, reader, -1)
    await cluster.write(writer, b"1")
    assert await task == 0


async def test_a_deleted_ledger_is_told(
    cluster: Cluster, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.write(cluster.create(), b"0")
    reader = open_reader(cluster)

    async def get(ledger_id: int) -> None:
        raise FencelogError(ErrorCode.LEDGER_NOT_FOUND, f"ledger {ledger_id} is gone")

    monkeypatch.setattr(cluster.ledgers, "get", get)
    with pytest.raises(FencelogError) as caught:
        await reader.wait_lac(0, 10)
    assert caught.value.code is ErrorCode.LEDGER_NOT_FOUND


async def test_nothing_is_left_running_after_close(cluster: Cluster) -> None:
    await cluster.write(cluster.create(), b"0")
    reader = LedgerReader(cluster.metadata(), bookies=cluster)
    cluster.bookies["b1"].hung.add("read_lac")
    await reader.wait_lac(0, 10)
    assert len(asyncio.all_tasks()) == 2
    await reader.close()
    assert len(asyncio.all_tasks()) == 1


async def test_a_metadata_store_that_hangs_does_not_keep_news_waiting(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.ledgers.reader.reader.LAC_POLL_MS", 20)
    looked = asyncio.Event()

    class Hanging:
        async def get(self, ledger_id: int) -> Any:
            looked.set()
            await asyncio.Event().wait()

        get_latest = get

    writer = cluster.create()
    await cluster.write(writer, b"0")
    reader = LedgerReader(cluster.metadata(), bookies=cluster, source=Hanging())
    task = asyncio.create_task(reader.wait_lac(-1, LONG_MS))
    await looked.wait()
    await cluster.write(writer, b"1")
    async with asyncio.timeout(20):
        assert await task == 0
    await reader.close()
