"""Auditor, workers and checker together, over real bookies: a lost one, one that leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fencelog.api.processes.bookie_main import serving_bookie
from fencelog.bookie.auditor.auditor import Auditor, AuditorConfig
from fencelog.bookie.auditor.check_report import CheckReport
from fencelog.bookie.auditor.cluster_check import CheckConfig, ClusterCheck
from fencelog.bookie.auditor.decommission import Decommissions
from fencelog.bookie.auditor.decommission_core import Phase
from fencelog.bookie.auditor.schedule_core import CheckName
from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.bookie.replication.worker import ReplicationWorker
from fencelog.ledgers.client import LedgerClient, Replication
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.reader.fan_out import cancel_all
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_directory import RegisteredBookies
from tests.support.until import until, until_found

PAYLOADS = [b"entry %d" % n for n in range(40)]


class Service:
    """Bookies b1 … b4, each with a metadata session of its own, and what heals them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._memory = MemoryCluster()
        self._running: dict[str, contextlib.AsyncExitStack] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.host = SystemHost()
        self.store = MemoryMetadataStore(self._memory)
        self.bookies = RegisteredBookies(self.store, connect=lambda a, b: TcpBookieClient(b, a))
        self.opened: dict[str, Bookie] = {}

    async def start(self) -> None:
        await self.store.start()
        await create_instance(self.store, self.host)
        for name in ("b1", "b2", "b3", "b4"):
            await self.start_bookie(name)
        await self.bookies.start()
        self.client = LedgerClient(self.store, self.bookies, host=self.host)
        config = AuditorConfig(
            lost_bookie_grace_ms=500,
            intervals_ms=dict.fromkeys(CheckName, 0),
            decommission_step_ms=100,
        )
        auditor = Auditor(self.store, self.bookies, host=self.host, config=config)
        worker = ReplicationWorker(
            self.store, self.bookies, worker_id="w", host=self.host, check_ms=50
        )
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(auditor.run()), loop.create_task(worker.run())]

    async def close(self) -> None:
        await cancel_all(self._tasks)
        await self.bookies.close()
        for name in list(self._running):
            await self.stop_bookie(name)
        await self.store.close()

    async def start_bookie(self, name: str) -> None:
        stack = self._running[name] = contextlib.AsyncExitStack()
        session = MemoryMetadataStore(self._memory)
        await session.start()
        stack.push_async_callback(session.close)
        config = BookieConfig(self._path / name, bookie_id=name)
        bookie, _ = await stack.enter_async_context(
            serving_bookie(session, config, host=self.host, listen="127.0.0.1:0")
        )
        self.opened[name] = bookie

    async def stop_bookie(self, name: str) -> None:
        await self._running.pop(name).aclose()

    async def write(self) -> LedgerMetadata:
        """Write a ledger with three copies, and close it."""
        acked: list[int] = []
        writer = await self.client.create(
            Replication(), on_ack=acked.append, on_failure=lambda error: None
        )
        for payload in PAYLOADS:
            writer.append(payload)
        await until(lambda: acked[-1:] == [len(PAYLOADS) - 1])
        return await writer.close()

    async def check(self) -> CheckReport:
        config = CheckConfig(repeat_delay_ms=100)
        return await ClusterCheck(self.store, self.bookies, host=self.host, config=config).run()

    async def named(self) -> set[str]:
        found: set[str] = set()
        async for metadata in self.client.ledgers.read_all():
            found.update(*(fragment.bookies for fragment in metadata.fragments))
        return found

    async def read_all(self) -> int:
        """Return how many ledgers can be read to the end."""
        count = 0
        async for metadata in self.client.ledgers.read_all():
            reader: LedgerReader = self.client.reader(metadata)
            entries = await reader.read(0, len(PAYLOADS) - 1)
            assert [bytes(entry.payload) for entry in entries] == PAYLOADS
            await reader.close()
            count += 1
        return count


@pytest_asyncio.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    service = Service(tmp_path)
    await service.start()
    yield service
    await service.close()


async def test_copies_of_a_bookie_that_never_returns_are_made_elsewhere(service: Service) -> None:
    for _ in range(6):
        await service.write()
    assert (await service.check()).is_clean
    await service.stop_bookie("b1")

    async def is_left() -> bool:
        return "b1" not in await service.named()

    await until_found(is_left)
    report = await service.check()
    assert report.is_clean, report.to_json()
    assert report.checked + report.marked == 6
    assert await service.read_all() == 6


async def test_a_living_bookie_is_taken_out(service: Service) -> None:
    for _ in range(4):
        await service.write()
    jobs = Decommissions(service.store)
    await jobs.start("b2", host=service.host)

    async def is_drained() -> bool:
        found = await jobs.get("b2")
        return found is not None and found[0].phase is Phase.DRAINED

    await until_found(is_drained)
    assert service.opened["b2"].is_read_only
    assert "b2" not in await service.named()
    await service.write()
    assert "b2" not in await service.named()
    assert await CookieRegistry(service.store).names() == ["b1", "b2", "b3", "b4"]
    await service.stop_bookie("b2")

    async def is_over() -> bool:
        return await jobs.get("b2") is None

    await until_found(is_over)
    assert await CookieRegistry(service.store).names() == ["b1", "b3", "b4"]
    assert (await service.check()).is_clean
    assert await service.read_all() == 5
    with pytest.raises(FencelogError, match="If it was decommissioned, empty its directories"):
        await service.start_bookie("b2")
