"""The model bookie of the stories keeps the real bookie's rules: both answer alike, whatever comes.

The real one runs on a temporary directory. Every example takes a ledger of its own there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path
from random import Random  # noqa: TID251 - seeded: the same steps each time
from typing import Any

import pytest

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.bookie.server.local import LocalBookieClient
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import build_run
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.rpc.bookie_port import NO_LAC, FenceAnswer
from tests.scripts.playground_bookie import ModelBookie, StoredLedger

ENTRIES = 6


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Bookie]:
    config = BookieConfig(data_dir=tmp_path / "data")
    bookie = await Bookie.open(config, disk=PosixDisk(), host=SystemHost())
    yield bookie
    await bookie.close()


async def outcome(ask: Callable[[], Awaitable[Any]]) -> object:
    """Return what was answered, in a form in which two bookies can be compared."""
    try:
        return await ask()
    except FencelogError as error:
        return error.code


async def wrote(client: LocalBookieClient, write: Callable[[Callable[..., None]], None]) -> None:
    answer: asyncio.Future[FencelogError | None] = asyncio.get_running_loop().create_future()
    write(answer.set_result)
    if (error := await answer) is not None:
        raise error


class Pair:
    """A request to both. ``step`` draws one and compares."""

    def __init__(self, real: Bookie, ledger_id: int, chance: Random) -> None:
        self.real = real
        self.client = LocalBookieClient(real)
        self.model = ModelBookie("b1")
        self.ledger_id = ledger_id
        self.chance = chance
        self.told: list[str] = []

    async def step(self) -> None:
        request = self.chance.choice([self.add, self.add, self.write_lac, self.read, self.read_lac])
        if self.chance.random() < 0.1:
            request = self.fence_and_read
        name, of_real, of_model = request()
        expected = await outcome(of_real)
        self.told.append(f"{name}: {expected}")
        assert await outcome(of_model) == expected, "\n".join(self.told)

    def put_in_limbo(self) -> None:
        """Put the ledger in limbo, as the start of a bookie does that may have lost data."""
        self.real.fence_forgotten(self.ledger_id)
        ledger = self.model.ledgers.setdefault(self.ledger_id, StoredLedger())
        ledger.fenced = ledger.in_limbo = True
        self.told.append("fenced, in limbo")

    async def delete(self) -> None:
        """Delete the ledger as garbage collection does once metadata no longer has it."""
        await self.real.shard(self.ledger_id).remove(self.ledger_id, deleted=True)
        self.model.remove(self.ledger_id)
        self.told.append("deleted")

    def add(self) -> tuple[str, Any, Any]:
        first = self.chance.randrange(ENTRIES)
        last = self.chance.randrange(first, min(first + 3, ENTRIES))
        recovery = self.chance.random() < 0.4
        payloads = [b"entry %d" % entry_id for entry_id in range(first, last + 1)]
        lac = self.chance.randrange(-1, first) if first else NO_LAC
        run = build_run(self.ledger_id, first, payloads, lac=lac, length_before=7 * first)

        async def of_model() -> None:
            self.model.add(run, recovery=recovery, incarnation=None)

        def write(on_reply: Callable[..., None]) -> None:
            self.client.add(run, recovery=recovery, incarnation=None, on_reply=on_reply)

        kind = "recovery add" if recovery else "add"
        return f"{kind} {first}..{last} lac {lac}", lambda: wrote(self.client, write), of_model

    def write_lac(self) -> tuple[str, Any, Any]:
        lac = self.chance.randrange(ENTRIES)

        async def of_model() -> None:
            self.model.write_lac(self.ledger_id, lac, incarnation=None)

        def write(on_reply: Callable[..., None]) -> None:
            self.client.write_lacs(
                [(self.ledger_id, lac)],
                [0],
                incarnation=None,
                on_replies=lambda _, error: on_reply(error),
            )

        return f"write lac {lac}", lambda: wrote(self.client, write), of_model

    def read(self) -> tuple[str, Any, Any]:
        """One entry: how many come beyond the first is for the bookie to say."""
        first, fence = self.chance.randrange(ENTRIES + 1), self.chance.random() < 0.1
        limits: dict[str, Any] = {"max_entries": 1, "max_bytes": 1 << 20, "fence": fence}

        async def of_model() -> tuple[int, bytes]:
            reply = self.model.read(self.ledger_id, first, **limits)
            return reply.lac, bytes(reply.run)

        async def of_real() -> tuple[int, bytes]:
            reply = await self.client.read(self.ledger_id, first, **limits)
            return reply.lac, bytes(reply.run)

        return f"read {first} fence {fence}", of_real, of_model

    def fence_and_read(self) -> tuple[str, Any, Any]:
        above = self.chance.randrange(-1, ENTRIES)

        async def of_model() -> FenceAnswer:
            return self.model.fence_and_read(self.ledger_id, above)

        async def of_real() -> FenceAnswer:
            return await self.client.fence_and_read(self.ledger_id, above)

        return f"fence above {above}", of_real, of_model

    def read_lac(self) -> tuple[str, Any, Any]:
        fence = self.chance.random() < 0.1

        async def of_model() -> int:
            return await self.model.read_lac(self.ledger_id, fence=fence, above=NO_LAC, wait_ms=0)

        async def of_real() -> int:
            return await self.client.read_lac(self.ledger_id, fence=fence)

        return f"read lac fence {fence}", of_real, of_model


@pytest.mark.parametrize("seed", range(8))
async def test_model_and_bookie_answer_alike(real: Bookie, seed: int) -> None:
    numbers = count(1)
    for _ in range(25):
        ledger_id = next(numbers)
        chance = Random(f"{seed} {ledger_id}")
        pair = Pair(real, ledger_id, chance)
        if chance.random() < 0.3:
            await pair.step()
            pair.put_in_limbo()
        for _ in range(14):
            await pair.step()
        if ledger_id in pair.model.ledgers and chance.random() < 0.3:
            await pair.delete()
            for _ in range(6):
                await pair.step()
