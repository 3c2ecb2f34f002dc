"""Damage in entry logs is found where nobody looks, told as an error, and replaced by copies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.admin import administer
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.repair.integrity import Integrity
from fencelog.bookie.repair.scrubber import Scrubber
from fencelog.bookie.storage.entry_log import StoredRun
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.bookie_stage import Requests
from tests.support.local_cluster import LocalCluster

PAYLOADS = [b"%d|" % n + b"." * 2000 for n in range(40)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path) as cluster:
        yield cluster


def logs(cluster: LocalCluster, bookie_id: str) -> list[Path]:
    return sorted(cluster.directory(bookie_id).glob("entrylog/*"))


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


async def damaged(cluster: LocalCluster, bookie_id: str, offset: int = 5000) -> Bookie:
    """The bookie after a restart, its first entry log with one bit flipped."""
    await cluster.stop(bookie_id)
    flip(logs(cluster, bookie_id)[0], offset)
    return await cluster.start(bookie_id)


@asynccontextmanager
async def scrubbing(
    bookie: Bookie, integrity: Integrity, disk: Any = None, **settings: Any
) -> AsyncIterator[Scrubber]:
    settings.setdefault("bytes_per_s", None)
    scrubber = Scrubber(bookie, disk=disk or PosixDisk(), on_damage=integrity.on_damage, **settings)
    try:
        yield scrubber
    finally:
        await scrubber.close()


async def flush(requests: Requests, bookie: Bookie, ledger_id: int) -> None:
    flusher = bookie.shard(ledger_id).flusher
    await requests.until(lambda: flusher._begun is None)
    before = flusher.completed
    flusher.request()
    await requests.until(lambda: flusher.completed > before and flusher._begun is None)


async def code_of(bookie: Bookie, ledger_id: int, entry_id: int = 0) -> ErrorCode | None:
    try:
        await bookie.read(ledger_id, entry_id, max_entries=1, max_bytes=1000)
    except FencelogError as error:
        return error.code
    return None


@pytest.mark.parametrize("offset", [3, 5000])
async def test_a_flipped_bit_is_found_told_as_an_error_and_repaired(
    cluster: LocalCluster, offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Offset 3: the header of the file, so that nothing in it can be read."""
    ledger_id = (await (await cluster.write(*PAYLOADS)).close()).ledger_id
    bookie = await damaged(cluster, "b1", offset)
    integrity = cluster.integrity("b1")
    async with scrubbing(bookie, integrity) as scrubber:
        await scrubber.scrub()
        assert await code_of(bookie, ledger_id) is ErrorCode.CORRUPT
        assert integrity.status()["damaged_runs"] == 1
        assert logs(cluster, "b1")[0].name in caplog.text
        await integrity.check()
        assert integrity.status()["damaged_runs_replaced"] == 1
        assert integrity.status()["damaged_runs"] == 0
        cluster.cut("b2", "b3")
        assert await cluster.contents(ledger_id) == PAYLOADS
        bookie = await cluster.restart("b1")
        assert await cluster.contents(ledger_id) == PAYLOADS
    integrity = cluster.integrity("b1")
    async with scrubbing(bookie, integrity) as scrubber:
        await scrubber.scrub()
        assert integrity.status()["damaged_runs_found"] == 0
        assert scrubber.status()["bytes"] > sum(map(len, PAYLOADS))
        assert scrubber.status()["passes"] == 1


@pytest.mark.parametrize("is_closed", [True, False])
async def test_nothing_more_is_written_to_a_file_in_which_damage_was_found(
    cluster: LocalCluster, requests: Requests, *, is_closed: bool
) -> None:
    """The header of the file that is being written decays: copies, and entries of others, behind
    it could not be read either."""
    writer = await cluster.write(*PAYLOADS)
    if is_closed:
        await writer.close()
    bookie = cluster.bookies["b1"]
    await flush(requests, bookie, writer.ledger_id)
    (decayed,) = logs(cluster, "b1")
    flip(decayed, 3)
    integrity = cluster.integrity("b1")
    async with scrubbing(bookie, integrity) as scrubber:
        await scrubber.scrub()
        assert integrity.status()["damaged_runs_found"] == 1
        await integrity.check()
        assert integrity.status()["damaged_runs"] == (0 if is_closed else 1)
        size = decayed.stat().st_size
        other = (await (await cluster.write(*PAYLOADS)).close()).ledger_id
        await flush(requests, bookie, other)
        await scrubber.scrub()
        assert integrity.status()["damaged_runs_found"] == 1
        await integrity.check()
        assert len(logs(cluster, "b1")) == 2  # no other file was begun
    assert decayed.stat().st_size == size
    assert await code_of(bookie, other) is None
    bookie = await cluster.restart("b1")
    assert await code_of(bookie, other) is None
    assert await code_of(bookie, writer.ledger_id) is (None if is_closed else ErrorCode.CORRUPT)
    if not is_closed:
        await writer.close()


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_what_was_added_behind_a_damaged_header_is_found_and_replaced(
    cluster: LocalCluster, requests: Requests, *, is_restarted: bool
) -> None:
    """The writer does not know until the next pass. Its entries are damaged, and never "not
    there"."""
    bookie, ledger_ids = cluster.bookies["b1"], list[int]()
    for _ in range(2):
        ledger_ids.append((await (await cluster.write(*PAYLOADS)).close()).ledger_id)
        await flush(requests, bookie, ledger_ids[-1])
        if len(ledger_ids) == 1:
            flip(logs(cluster, "b1")[0], 3)
    assert len(logs(cluster, "b1")) == 1
    if is_restarted:
        bookie = await cluster.restart("b1")
        for ledger_id in ledger_ids:
            assert await code_of(bookie, ledger_id) is ErrorCode.CORRUPT
    integrity = cluster.integrity("b1")
    async with scrubbing(bookie, integrity) as scrubber:
        await scrubber.scrub()
    await integrity.check()
    status = integrity.status()
    assert (status["damaged_runs_found"], status["damaged_runs_replaced"]) == (2, 2)
    bookie = await cluster.restart("b1")
    for ledger_id in ledger_ids:
        assert await code_of(bookie, ledger_id) is None
        assert await cluster.contents(ledger_id) == PAYLOADS


async def test_a_damaged_file_that_cannot_be_sealed_gets_no_more_runs_either(
    cluster: LocalCluster, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger_id = (await (await cluster.write(*PAYLOADS)).close()).ledger_id
    bookie = cluster.bookies["b1"]
    await flush(requests, bookie, ledger_id)
    flip(logs(cluster, "b1")[0], 3)

    def fails(_: object) -> None:
        raise OSError(28, "no space")

    integrity = cluster.integrity("b1")
    async with scrubbing(bookie, integrity) as scrubber:
        await scrubber.scrub()
        with monkeypatch.context() as full:
            full.setattr("fencelog.bookie.storage.entry_log_writer.EntryLog.seal", fails)
            await integrity.damage.repair(ledger_id)
        assert integrity.status()["damaged_runs_replaced"] == 1
        await flush(requests, bookie, ledger_id)
        await scrubber.scrub()
        assert integrity.status()["damaged_runs_found"] == 1
    await cluster.restart("b1")
    assert await code_of(cluster.bookies["b1"], ledger_id) is None


async def test_a_run_whose_entries_lie_on_different_bookies_is_put_together_again(
    cluster: LocalCluster,
) -> None:
    writer = await cluster.write(*PAYLOADS, copies=2, acks=2)
    ledger_id = (await writer.close()).ledger_id
    bookie = await damaged(cluster, "b1", 300)
    integrity = cluster.integrity("b1")
    async with scrubbing(bookie, integrity) as scrubber:
        await scrubber.scrub([ledger_id])
        assert scrubber.status()["passes"] == 0
    await integrity.check()
    assert integrity.status()["damaged_runs_replaced"] == 1
    assert await cluster.contents(ledger_id) == PAYLOADS
    bookie = await cluster.restart("b1")
    held = (await bookie.list_entries(ledger_id)).availability
    for first, last in held.ranges():
        for entry_id in range(first, last + 1):
            assert await code_of(bookie, ledger_id, entry_id) is None


async def test_what_no_other_bookie_has_stays_an_error(cluster: LocalCluster) -> None:
    ledger_id = (await (await cluster.write(*PAYLOADS)).close()).ledger_id
    await cluster.lose_disk("b2")
    await cluster.lose_disk("b3")
    bookie = await damaged(cluster, "b1")
    integrity = cluster.integrity("b1")
    async with scrubbing(bookie, integrity) as scrubber:
        await scrubber.scrub()
        await scrubber.scrub()  # found again, and no other
    await integrity.check()
    status = integrity.status()
    assert (status["damaged_runs_found"], status["damaged_runs"]) == (1, 1)
    (waiting,) = status["waiting"]
    assert (waiting["why"], waiting["for"]) == ("in_limbo", "damage")
    assert waiting["bookies_in_limbo"] == ["b1", "b2", "b3"]
    assert await code_of(bookie, ledger_id) is ErrorCode.CORRUPT


async def test_an_open_ledger_is_repaired_once_it_is_closed(cluster: LocalCluster) -> None:
    writer = await cluster.write(*PAYLOADS)
    bookie = await damaged(cluster, "b1")
    integrity = cluster.integrity("b1")
    async with scrubbing(bookie, integrity) as scrubber:
        await scrubber.scrub()
    await integrity.check()
    assert [item["why"] for item in integrity.status()["waiting"]] == ["open"]
    await writer.close()
    await administer(bookie.admin, {"do": "integrity"})
    await integrity.check()
    assert integrity.status()["damaged_runs_replaced"] == 1
    assert await code_of(bookie, writer.ledger_id) is None


async def test_what_is_found_during_a_repair_is_repaired_next(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger_id = (await (await cluster.write(*PAYLOADS)).close()).ledger_id
    bookie = await damaged(cluster, "b1")
    integrity = cluster.integrity("b1")
    replace = bookie.shard(ledger_id).adds.replace
    other = StoredRun(ledger_id, 100, 109, 1, 64, 100)

    async def finding(run: bytes, *, is_end: bool) -> None:
        integrity.on_damage(other, FencelogError(ErrorCode.CORRUPT, "found just now"))
        await replace(run, is_end=is_end)

    monkeypatch.setattr(bookie.shard(ledger_id).adds, "replace", finding)
    async with scrubbing(bookie, integrity) as scrubber:
        await scrubber.scrub()
    await integrity.check()
    status = integrity.status()
    assert (status["damaged_runs_replaced"], status["damaged_runs"]) == (1, 1)
    await integrity.check()  # it is not in the index
    assert integrity.status()["damaged_runs"] == 0


async def test_a_damaged_run_across_the_end_is_repaired_up_to_the_end(
    cluster: LocalCluster, requests: Requests
) -> None:
    """One bookie took more than was acknowledged; the flush made one run of all of it."""
    writer = await cluster.write(*PAYLOADS)
    ledger_id = writer.ledger_id
    behind = requests.run(ledger_id, len(PAYLOADS), 2)
    assert await requests.add(cluster.bookies["b1"], behind) is None
    await writer.close()
    bookie = await damaged(cluster, "b1")
    integrity = cluster.integrity("b1")
    async with scrubbing(bookie, integrity) as scrubber:
        await scrubber.scrub()
    await integrity.check()
    assert integrity.status()["damaged_runs"] == 0
    assert integrity.status()["damaged_runs_replaced"] == 1
    cluster.cut("b2", "b3")
    for _ in range(2):  # from the journal, then from the index
        assert await cluster.contents(ledger_id) == PAYLOADS
        bookie = await cluster.restart("b1")
    last = len(PAYLOADS) - 1
    assert await bookie.shard(ledger_id).reads.stored_ranges(ledger_id, (0, 99)) == [(0, last)]


async def test_a_damaged_run_behind_the_end_is_not_called_lost(
    cluster: LocalCluster, requests: Requests
) -> None:
    writer = await cluster.write(*PAYLOADS)
    ledger_id = writer.ledger_id
    behind = requests.run(ledger_id, len(PAYLOADS) + 1, 2)
    assert await requests.add(cluster.bookies["b1"], behind) is None
    await writer.close()
    bookie = cluster.bookies["b1"]
    await flush(requests, bookie, ledger_id)
    integrity = cluster.integrity("b1")
    (run,) = bookie.shard(ledger_id).storage.index.runs_from(ledger_id, len(PAYLOADS) + 1)
    integrity.on_damage(run, FencelogError(ErrorCode.CORRUPT, "found just now"))
    await integrity.check()
    (waiting,) = integrity.status()["waiting"]
    assert waiting["why"] == "behind_the_end"
    assert integrity.status()["ledgers_lost"] == 0


async def test_damage_of_a_deleted_ledger_is_forgotten(cluster: LocalCluster) -> None:
    ledger_id = (await (await cluster.write(*PAYLOADS)).close()).ledger_id
    bookie = await damaged(cluster, "b1")
    integrity = cluster.integrity("b1")
    async with scrubbing(bookie, integrity) as scrubber:
        await scrubber.scrub()
        await cluster.ledgers.delete(ledger_id)
        await integrity.check()
        assert integrity.status()["damaged_runs"] == 0
        await bookie.shard(ledger_id).remove(ledger_id, deleted=True)
        before = scrubber.status()["runs"]
        await scrubber.scrub()
        assert scrubber.status()["runs"] == before


async def test_a_read_that_fails_once_is_no_damage(cluster: LocalCluster) -> None:
    """A file that was compacted away, or a lack of file handles, fails a read just once."""

    class FailsOnce(PosixDisk):
        fails = 1

        def open(self, path: Path) -> Any:
            if self.fails:
                self.fails -= 1
                raise FileNotFoundError(2, "moved", str(path))
            return super().open(path)

    await (await cluster.write(*PAYLOADS)).close()
    bookie = await cluster.restart("b1")
    integrity = cluster.integrity("b1")
    disk = FailsOnce()
    async with scrubbing(bookie, integrity, disk) as scrubber:
        await scrubber.scrub()
        assert integrity.status()["damaged_runs_found"] == 0
    assert disk.fails == 0


class NotingDisk(PosixDisk):
    """A disk that notes what is dropped from the kernel's memory, and what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[str, int, int]] = []

    def open(self, path: Path) -> Any:
        file: Any = super().open(path)
        noted, drop_cache, read = self.noted, file.drop_cache, file.read

        class Noting:
            close = file.close

            def drop_cache(self, offset: int, size: int) -> None:
                noted.append(("drop", offset, size))
                drop_cache(offset, size)

            def read(self, offset: int, size: int) -> bytes:
                noted.append(("read", offset, size))
                data: bytes = read(offset, size)
                return data

        return Noting()


async def test_runs_are_read_from_the_disk_itself(cluster: LocalCluster) -> None:
    """The kernel may have in memory what the disk has lost."""
    await (await cluster.write(*PAYLOADS)).close()
    bookie = await cluster.restart("b1")
    disk = NotingDisk()
    async with scrubbing(bookie, cluster.integrity("b1"), disk) as scrubber:
        await scrubber.scrub()
    reads = [place for what, *place in disk.noted if what == "read"]
    assert reads
    assert [place for what, *place in disk.noted if what == "drop"] == reads


@pytest.mark.parametrize(
    ("begin_at", "order"),
    [(0.0, [1, 2, 3, 1, 2, 3]), (0.5, [2, 3, 1, 1, 2, 3]), (0.999, [3, 1, 2, 1, 2, 3])],
)
async def test_the_first_pass_begins_anywhere_and_reads_everything(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, begin_at: float, order: list[int]
) -> None:
    for _ in range(3):
        await (await cluster.write(*PAYLOADS)).close()
    bookie = await cluster.restart("b1")
    async with scrubbing(bookie, cluster.integrity("b1"), begin_at=begin_at) as scrubber:
        scrub, read = scrubber._scrub_ledger, list[int]()

        async def noted(shard: Any, ledger_id: int) -> None:
            read.append(ledger_id)
            await scrub(shard, ledger_id)

        monkeypatch.setattr(scrubber, "_scrub_ledger", noted)
        await scrubber.scrub()
        await scrubber.scrub()
    assert read == order


async def test_a_run_that_is_gone_by_the_second_look_is_no_damage(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger_id = (await (await cluster.write(*PAYLOADS)).close()).ledger_id
    bookie = await damaged(cluster, "b1")
    integrity = cluster.integrity("b1")
    async with scrubbing(bookie, integrity) as scrubber:
        look_up = scrubber._look_up
        looks: list[int] = []

        async def removed(shard: Any, ledger_id: int, position: int) -> Any:
            looks.append(position)
            return await look_up(shard, ledger_id, position) if len(looks) == 1 else []

        monkeypatch.setattr(scrubber, "_look_up", removed)
        await scrubber.scrub([ledger_id])
        assert len(looks) == 3
        assert integrity.status()["damaged_runs_found"] == 0


async def test_passes_come_by_themselves_and_when_they_are_asked_for(
    cluster: LocalCluster, requests: Requests
) -> None:
    ledger_id = (await (await cluster.write(*PAYLOADS)).close()).ledger_id
    bookie = await damaged(cluster, "b1")
    integrity = cluster.integrity("b1")
    services: list[asyncio.Task[None]] = []
    loop = asyncio.get_running_loop()
    async with scrubbing(bookie, integrity, bytes_per_s=1 << 30) as scrubber:
        services = [loop.create_task(integrity.run()), loop.create_task(scrubber.run())]
        try:
            # The damage wakes the repair, which need not wait for its next look.
            await requests.until(lambda: integrity.status()["damaged_runs_replaced"] == 1)
            await requests.until(lambda: scrubber.status()["passes"] == 1)
            runs = scrubber.status()["runs"]
            await administer(bookie.admin, {"do": "scrub", "ledger": ledger_id})
            with pytest.raises(FencelogError) as caught:
                await administer(bookie.admin, {"do": "scrub", "ledger": 77})
            assert caught.value.code is ErrorCode.NO_SUCH_LEDGER
            await requests.until(lambda: not scrubber._asked and scrubber._at is None)
            assert scrubber.status()["passes"] == 1
            answer = await administer(bookie.admin, {"do": "scrub"})
            assert answer["runs"] >= runs
            await requests.until(lambda: scrubber.status()["passes"] == 2)
            status = await administer(bookie.admin, {"do": "status"})
            assert status["scrub"]["passes"] == 2
            assert status["integrity"]["damaged_runs_found"] == 1
        finally:
            for service in services:
                service.cancel()
            await asyncio.gather(*services, return_exceptions=True)
    async with scrubbing(bookie, integrity, interval_ms=1) as scrubber:
        task = loop.create_task(scrubber.run())
        await requests.until(lambda: scrubber.status()["passes"] > 3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_more_damage_than_is_kept_is_told(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.bookie.repair.damage.MAX_DAMAGED_RUNS", 1)
    for _ in range(2):
        await (await cluster.write(*PAYLOADS)).close()
    bookie = await damaged(cluster, "b1", 3)
    integrity = cluster.integrity("b1")
    async with scrubbing(bookie, integrity) as scrubber:
        await scrubber.scrub()
    assert integrity.status()["damaged_runs_found"] == 2
    assert integrity.status()["damaged_runs"] == 1
