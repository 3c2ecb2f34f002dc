"""A real bookie on a temporary directory, and ways to talk to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from fencelog.bookie.bookie import Bookie, BookieConfig
from fencelog.bookie.disk_posix import PosixDisk
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.run import build_run

OpenBookie = Callable[..., Awaitable[Bookie]]


class Requests:
    """Plain calls for tests: build runs, add them and wait for the answer."""

    @staticmethod
    def run(ledger_id: int, first: int, count: int = 1, *, lac: int = -1, size: int = 100) -> bytes:
        """Entries whose payload says which ledger and entry they are."""
        payloads = [f"{ledger_id}/{first + i}|".encode().ljust(size, b".") for i in range(count)]
        return build_run(ledger_id, first, payloads, lac=lac, length_before=first * size)

    @staticmethod
    async def add(bookie: Bookie, run: bytes, *, recovery: bool = False) -> FencelogError | None:
        answer: asyncio.Future[FencelogError | None] = asyncio.get_running_loop().create_future()
        bookie.add(run, recovery=recovery, on_reply=answer.set_result)
        async with asyncio.timeout(20):
            return await answer

    @staticmethod
    async def read(bookie: Bookie, ledger_id: int, first: int, max_entries: int = 4096) -> bytes:
        reply = await bookie.read(ledger_id, first, max_entries=max_entries, max_bytes=1 << 22)
        return reply.run


@pytest.fixture
def requests() -> Requests:
    return Requests()


@pytest.fixture
async def open_bookie(tmp_path: Path) -> AsyncIterator[OpenBookie]:
    """Opens bookies on ``tmp_path / "data"`` (or ``data_dir``); closes those still open."""
    opened: list[Bookie] = []

    async def open_one(**settings: object) -> Bookie:
        disk = settings.pop("disk", None) or PosixDisk()
        settings.setdefault("data_dir", tmp_path / "data")
        config = BookieConfig(**settings)  # type: ignore[arg-type]  # settings of one test
        bookie = await Bookie.open(config, disk=disk, host=SystemHost())  # type: ignore[arg-type]
        opened.append(bookie)
        return bookie

    yield open_one
    for bookie in opened:
        await bookie.close()
