"""The service: passes, verbs and status; and what keeps services running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from fencelog.bookie.disk.port import DiskSpace
from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.gc.collector import Garbage
from fencelog.bookie.gc.config import GarbageConfig
from fencelog.bookie.gc.ledgers import ClusterMetadata
from fencelog.bookie.maintenance.maintenance import running
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.ids import COUNTER_PATH
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.limits import MIB
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.until import until


class Scene:
    def __init__(self, bookie: Bookie, store: MemoryMetadataStore, requests: Requests) -> None:
        self.bookie, self.store, self.requests = bookie, store, requests
        self.ledgers = LedgerStore(store)
        self.instance = "1"
        self.disk = DiskSpace(total_bytes=100, free_bytes=50)

    async def space(self) -> DiskSpace:
        return self.disk

    async def ask(self, verb: str, **arguments: Any) -> Any:
        return await self.bookie.admin[verb](arguments)

    async def garbage(self) -> dict[str, Any]:
        status: dict[str, Any] = (await self.ask("status"))["garbage"]
        return status

    async def collected(self, **arguments: Any) -> dict[str, Any]:
        """Return what the status says after a pass."""
        passes = (await self.garbage())["passes"]
        assert await self.ask("gc", **arguments) == {"begun": True}
        for _ in range(2000):
            status = await self.garbage()
            if status["passes"] > passes:
                return status
            await asyncio.sleep(0.005)
        raise AssertionError("no pass has ended")


@pytest.fixture
def config() -> GarbageConfig:
    return GarbageConfig(grace_ms=0)


@pytest.fixture
def sharers() -> int:
    return 1


@pytest.fixture
async def scene(
    open_bookie: OpenBookie,
    requests: Requests,
    config: GarbageConfig,
    sharers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Scene]:
    """A bookie under maintenance, with ledgers 1 to 9 that the metadata has."""
    store = MemoryMetadataStore()
    await store.start()
    await store.create(COUNTER_PATH, b"9")
    bookie = await open_bookie(flush_interval_ms=3_600_000)
    scene = Scene(bookie, store, requests)
    monkeypatch.setattr(bookie, "space", scene.space)
    for ledger_id in range(1, 10):
        await scene.ledgers.create(
            new_metadata(ledger_id, ensemble=("b",), write_quorum=1, ack_quorum=1, token="t")
        )
        await requests.add(bookie, requests.run(ledger_id, 0, 100, size=1000))

    shard = bookie.shards[0]
    while shard.cache.size:
        shard.flusher.request()
        await asyncio.sleep(0.005)

    async def instance() -> str | None:
        return scene.instance

    async def no_doubt(metadata: LedgerMetadata) -> None:
        """Others hold everything."""

    io_thread = PosixDisk().io_thread("garbage")
    garbage = Garbage(
        bookie,
        io_thread,
        ClusterMetadata(store, instance, "1"),
        config,
        doubt=no_doubt,
        entry_log_bytes=1 << 30,
        sharers=sharers,
        on_damage=lambda run, error: None,
    )
    async with running(bookie.bookie_id, {"garbage": garbage.run}):
        yield scene
    await io_thread.close()
    garbage.close()
    await store.close()


def used_bytes(scene: Scene) -> int:
    used = 0
    for path in scene.bookie.shards[0].storage.entry_logs.directory.iterdir():
        with suppress(FileNotFoundError):  # collected since the directory was read
            used += path.stat().st_size
    return used


async def test_a_pass_brings_the_space_of_deleted_ledgers_back(scene: Scene) -> None:
    await scene.collected()
    assert (await scene.garbage())["removed_ledgers"] == 0
    for ledger_id in range(1, 9):
        await scene.ledgers.delete(ledger_id)
    status = await scene.collected(below=1)
    assert status["removed_ledgers"] == 8
    assert status["removed_entry_logs"] > 0
    assert status["last_error"] is None
    assert used_bytes(scene) < 110_000 + 1_000
    found = await scene.requests.read(scene.bookie, 9, 99)
    assert found == scene.requests.run(9, 99, size=1000)


@pytest.mark.parametrize("config", [GarbageConfig()])
async def test_one_pass_that_is_asked_to_takes_what_was_deleted_a_moment_ago(scene: Scene) -> None:
    await scene.ledgers.delete(1)
    assert (await scene.collected())["removed_ledgers"] == 0
    assert (await scene.collected(no_grace=True))["removed_ledgers"] == 1
    await scene.ledgers.delete(2)
    assert (await scene.collected())["removed_ledgers"] == 1


@pytest.mark.parametrize("config", [GarbageConfig()])
async def test_what_was_deleted_stays_for_a_while_only_while_there_is_space(scene: Scene) -> None:
    await scene.ledgers.delete(1)
    scene.disk = DiskSpace(total_bytes=100, free_bytes=21)
    assert (await scene.collected())["removed_ledgers"] == 0
    scene.disk = DiskSpace(total_bytes=100, free_bytes=20)
    assert (await scene.collected())["removed_ledgers"] == 1


@pytest.mark.parametrize("config", [GarbageConfig()])
async def test_a_full_disk_is_collected_at_once_and_sparse_files_with_it(scene: Scene) -> None:
    """The interval is a quarter of an hour, the grace time an hour, and nobody asks for a pass."""
    for ledger_id in (1, 2):
        await scene.ledgers.delete(ledger_id)
    scene.bookie.set_read_only("operator", True)
    await scene.collected()
    assert used_bytes(scene) > 850_000  # seven ninths of the file are live
    scene.bookie.set_read_only("disk", True)  # it is read-only already, for the operator
    await until(lambda: used_bytes(scene) <= 750_000)
    found = await scene.requests.read(scene.bookie, 9, 99)
    assert found == scene.requests.run(9, 99, size=1000)


async def test_the_metadata_of_another_cluster_is_reported_and_empties_nothing(
    scene: Scene,
) -> None:
    for ledger_id in range(1, 10):
        await scene.ledgers.delete(ledger_id)
    scene.instance = "2"
    status = await scene.collected(below=1)
    assert "metadata is of instance 2" in status["last_error"]
    assert status["removed_ledgers"] == 0
    found = await scene.requests.read(scene.bookie, 1, 99)
    assert found == scene.requests.run(1, 99, size=1000)
    scene.instance = "1"
    status = await scene.collected()
    assert (status["removed_ledgers"], status["last_error"]) == (9, None)


async def test_suspended_nothing_is_copied_but_what_is_dead_goes(scene: Scene) -> None:
    assert await scene.ask("suspend_compaction") == {"compaction_is_suspended": True}
    for ledger_id in range(1, 9):
        await scene.ledgers.delete(ledger_id)
    status = await scene.collected(below=1)
    assert status["compaction_is_suspended"]
    assert status["copied_bytes"] == 0
    before = used_bytes(scene)
    assert await scene.ask("resume_compaction") == {"compaction_is_suspended": False}
    status = await scene.collected(below=1.0)
    assert 0 < status["copied_bytes"] < 110_000
    assert used_bytes(scene) < before / 5
    await scene.ask("suspend_compaction")
    await scene.ledgers.delete(9)
    status = await scene.collected()
    assert used_bytes(scene) == 64


@pytest.mark.parametrize("sharers", [1, 2])
async def test_each_bookie_on_a_disk_keeps_its_space_for_a_flush(
    scene: Scene, sharers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ledger_id in range(1, 9):
        await scene.ledgers.delete(ledger_id)
    free = DiskSpace(total_bytes=1 << 40, free_bytes=6 * MIB)  # a flush may need 4 MiB
    monkeypatch.setattr(scene.bookie.shards[0].storage.entry_logs.disk, "space", lambda _: free)
    status = await scene.collected(below=1)
    assert (status["copied_bytes"] > 0) == (sharers == 1)
    assert (status["last_error"] is None) == (sharers == 1)


async def test_a_read_only_bookie_gets_its_space_back(scene: Scene) -> None:
    await scene.ask("read_only", on=True)
    for ledger_id in range(1, 9):
        await scene.ledgers.delete(ledger_id)
    await scene.collected(below=1)
    assert used_bytes(scene) < 110_000 + 1_000


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("gc", {"below": 1.5}),
        ("gc", {"below": "all"}),
        ("gc", {"of": 3}),
        ("gc", {"no_grace": 1}),
        ("suspend_compaction", {"for": 3}),
        ("resume_compaction", {"for": 3}),
    ],
)
async def test_arguments_that_mean_nothing_are_refused(
    scene: Scene, verb: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(FencelogError) as caught:
        await scene.ask(verb, **arguments)
    assert caught.value.code is ErrorCode.BAD_REQUEST


@pytest.mark.parametrize(
    "settings",
    [
        {"interval_ms": 0},
        {"grace_ms": -1},
        {"grace_below": 1.1},
        {"compaction_bytes_per_s": 0},
        {"minor_below": 0.95},
        {"full_interval_ms": 0},
        {"major_below": 1.1},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(FencelogError) as caught:
        GarbageConfig(**settings)
    assert caught.value.code is ErrorCode.BAD_REQUEST


async def test_a_service_that_dies_or_ends_is_reported_and_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fencelog.bookie.maintenance.maintenance._PAUSE_S", 0)
    starts = 0
    third = asyncio.Event()
    ended = asyncio.Event()

    async def service() -> None:
        nonlocal starts
        starts += 1
        if starts == 1:
            raise ValueError("a bug")
        if starts == 3:
            third.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    async with running("b1", {"brittle": service}):
        await third.wait()
    assert ended.is_set(), "closing ends it at once"
    assert "service brittle died" in caplog.text
    assert "a bug" in caplog.text
    assert "service brittle ended" in caplog.text
