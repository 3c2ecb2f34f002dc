"""A bookie as it is composed: it fences, then listens, then says who it is, and keeps that true."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencelog.api.processes.bookie_main import serving_bookie
from fencelog.bookie.auditor.decommission import DECOMMISSIONS_PATH, Decommissions
from fencelog.bookie.auditor.decommission_core import Decommission, Phase, encode_decommission
from fencelog.bookie.disk.port import DiskSpace
from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import new_metadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metastore.registration import BOOKIES_PATH, Registration
from fencelog.ledgers.rpc.absent_bookie import AbsentBookie
from fencelog.ledgers.rpc.bookie_directory import RegisteredBookies
from tests.support.bookie_stage import OpenBookie, Requests, refusal_of
from tests.support.faulty_disk import FaultyDisk


class Place:
    """A metadata store, and bookies on directories of the test."""

    def __init__(self, path: Path, store: MemoryMetadataStore, table: RegisteredBookies) -> None:
        self._path = path
        self.store = store
        self.table = table

    def bookie(self, directory: str = "data", **settings: Any) -> Any:
        config = BookieConfig(self._path / directory, bookie_id="b1")
        settings.setdefault("host", SystemHost())
        return serving_bookie(self.store, config, listen="127.0.0.1:0", **settings)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    cluster = MemoryCluster()
    async with contextlib.AsyncExitStack() as stack:
        stores = [MemoryMetadataStore(cluster) for _ in range(2)]
        for store in stores:
            await store.start()
            stack.push_async_callback(store.close)
        await create_instance(stores[0], SystemHost())
        table = RegisteredBookies(stores[1], connect=lambda _address, id: AbsentBookie(id))
        await table.start()
        stack.push_async_callback(table.close)
        yield Place(tmp_path, stores[0], table)


async def test_the_registration_says_who_and_where_and_how_much_is_free(
    place: Place, requests: Requests, faulty_disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faulty_disk, "space", lambda _path: DiskSpace(1 << 31, 12_345 << 16))
    async with place.bookie(rack="r7", disk=faulty_disk) as (bookie, address):
        await requests.until(lambda: place.table.available() == ["b1"])
        info = place.table.describe("b1")
        assert (info.rack, info.free_bytes, info.is_read_only) == ("r7", 12_345 << 16, False)
        assert info.incarnation == bookie.incarnation
        assert place.table.addresses() == {"b1": address}
    await requests.until(lambda: place.table.available() == [])


async def test_the_free_space_of_this_machine_is_told(place: Place, requests: Requests) -> None:
    async with place.bookie() as (bookie, _):
        assert (await bookie.space()).free_bytes > 0
        await requests.until(lambda: place.table.describe("b1").free_bytes > 0)


async def test_free_space_is_looked_at_now_and_then_even_if_once_in_vain(
    place: Place, requests: Requests, faulty_disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.api.processes.bookie_main.FREE_BYTES_REFRESH_MS", 5)
    answer: int | OSError = 1 << 30
    asked = 0

    def space(_path: Path) -> DiskSpace:
        nonlocal asked
        asked += 1
        if isinstance(answer, OSError):
            raise answer
        return DiskSpace(1 << 31, answer)

    monkeypatch.setattr(faulty_disk, "space", space)
    async with place.bookie(disk=faulty_disk):
        await requests.until(lambda: place.table.describe("b1").free_bytes == 1 << 30)
        answer, before = OSError(5, "no"), asked
        await requests.until(lambda: asked > before + 1)
        answer = 1 << 29
        await requests.until(lambda: place.table.describe("b1").free_bytes == 1 << 29)


async def put_decommission(place: Place, **fields: Any) -> None:
    job = Decommission("b1", 1, was_read_only=False, **fields)
    await place.store.create(f"{DECOMMISSIONS_PATH}/b1", encode_decommission(job))


async def test_a_bookie_that_is_leaving_never_says_that_it_takes_adds(
    place: Place, requests: Requests
) -> None:
    jobs = Decommissions(place.store)
    seen: list[list[str]] = []
    async with place.bookie(decommissions=jobs) as (bookie, _):
        assert not bookie.is_read_only
        await requests.until(lambda: place.table.available() == ["b1"])
    await requests.until(lambda: place.table.available() == [])
    await put_decommission(place)
    watch = place.store.watch_children(BOOKIES_PATH, lambda _: seen.append(place.table.available()))
    async with place.bookie(decommissions=jobs) as (bookie, _):
        await requests.until(lambda: place.table.read_only() == ["b1"])
        assert bookie.read_only_for == {"operator"}
    watch.close()
    assert ["b1"] not in seen


async def test_a_bookie_that_is_taken_out_while_it_starts_is_no_bookie(
    place: Place, requests: Requests
) -> None:
    jobs = Decommissions(place.store)
    await put_decommission(place, phase=Phase.REMOVING)
    with pytest.raises(FencelogError, match="bookie b1 is being taken out of the cluster"):
        async with place.bookie(decommissions=jobs):
            pass
    await requests.until(lambda: place.table.available() == place.table.read_only() == [])


async def test_a_read_only_bookie_takes_recovery_and_reads_and_says_so(
    place: Place, requests: Requests
) -> None:
    async with place.bookie() as (bookie, _):
        await requests.until(lambda: place.table.available() == ["b1"])
        await requests.add(bookie, requests.run(1, 0))
        bookie.is_read_only = True
        assert refusal_of(await requests.add(bookie, requests.run(1, 1))) is ErrorCode.READ_ONLY
        assert refusal_of(await requests.write_lac(bookie, 1, 0)) is ErrorCode.READ_ONLY
        assert await requests.add(bookie, requests.run(1, 1), recovery=True) is None
        assert len(await requests.read(bookie, 1, 0)) > 200
        assert await bookie.read_lac(1, fence=True) == -1
        assert (
            refusal_of(await requests.add(bookie, requests.run(1, 2))) is ErrorCode.LEDGER_FENCED
        )  # which ends a writer; read-only does not
        await requests.until(lambda: place.table.describe("b1").is_read_only)
        assert place.table.available() == []
        bookie.is_read_only = False
        await requests.until(lambda: place.table.available() == ["b1"])
        assert await requests.add(bookie, requests.run(2, 0)) is None


async def test_an_add_held_back_sees_that_the_bookie_became_read_only(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk, write_cache_bytes=1 << 20)
    faulty_disk.waits.add("sync .entrylog")
    answers: list[FencelogError | None] = []
    for i in range(8):
        bookie.add(requests.run(1, i, size=200_000), recovery=False, on_reply=answers.append)
    assert bookie.is_under_pressure
    bookie.is_read_only = True
    faulty_disk.waits.clear()
    await requests.until(lambda: len(answers) == 8)
    codes = [error.code if error else None for error in answers]
    assert codes == [None] * 6 + [ErrorCode.READ_ONLY] * 2


async def test_nobody_finds_a_bookie_that_has_not_fenced_yet(
    place: Place, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    await LedgerStore(place.store).create(
        new_metadata(7, ensemble=("b1", "b2", "b3"), write_quorum=3, ack_quorum=2, token="t")
    )
    faulty_disk.waits.add("sync .journal")
    service = place.bookie(disk=faulty_disk)
    entering = asyncio.get_running_loop().create_task(service.__aenter__())
    done, _ = await asyncio.wait([entering], timeout=0.1)
    assert not done
    assert place.table.addresses() == {}
    faulty_disk.waits.clear()
    bookie, _ = await entering
    await requests.until(lambda: place.table.available() == ["b1"])
    assert refusal_of(await requests.add(bookie, requests.run(7, 0))) is ErrorCode.LEDGER_FENCED
    await service.__aexit__(None, None, None)


async def test_a_bookie_that_cannot_list_does_not_start_and_leaves_its_directory_free(
    place: Place,
) -> None:
    place.store.disconnect()
    with pytest.raises(FencelogError) as caught:
        async with place.bookie():
            pass
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    place.store.reconnect()
    async with place.bookie() as (bookie, _):
        assert not bookie.may_have_forgotten


@pytest.mark.parametrize("rack", ["", "r" * 129])
async def test_a_rack_has_a_name(rack: str, place: Place) -> None:
    with pytest.raises(FencelogError, match="rack") as caught:
        async with place.bookie(rack=rack):
            pass
    assert caught.value.code is ErrorCode.BAD_REQUEST


async def test_a_bookie_that_becomes_read_only_while_it_registers_says_so(
    place: Place, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting, may_start = asyncio.Event(), asyncio.Event()
    start = Registration.start

    async def start_late(*arguments: Any) -> Registration:
        starting.set()
        await may_start.wait()
        return await start(*arguments)

    monkeypatch.setattr(Registration, "start", start_late)
    bookies: list[Any] = []

    async def becomes_read_only() -> None:
        await starting.wait()
        bookies[0].is_read_only = True
        may_start.set()

    open_bookie = Bookie.open

    async def opened(*arguments: Any, **settings: Any) -> Any:
        bookies.append(await open_bookie(*arguments, **settings))
        return bookies[0]

    monkeypatch.setattr(Bookie, "open", opened)
    task = asyncio.get_running_loop().create_task(becomes_read_only())
    async with place.bookie():
        await task
        await requests.until(lambda: place.table.describe("b1").is_read_only)
