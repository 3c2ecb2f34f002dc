"""A sync that failed, a restart, a power loss: what was answered after the restart is there."""

from __future__ import annotations

import asyncio
from errno import EIO
from pathlib import Path

import pytest

from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import build_run
from tests.sim.disk.disk import SimDisk
from tests.sim.engine.engine import Engine
from tests.sim.engine.host import SimHost

RUNS = [build_run(1, n, [b"entry"], lac=-1, length_before=5 * n) for n in range(3)]
"""They share one sync."""


class Scene:
    """One machine, one bookie at a time."""

    def __init__(self, seed: int) -> None:
        self.engine = Engine(seed)
        self.disk = SimDisk(self.engine, "b1")

    async def life(self, *, sync_fails: bool, recovery: bool) -> FencelogError | None:
        """Open the bookie in a process of its own, add the runs, lose power; the one answer that
        all of them get."""
        process = self.engine.start_process("b1")
        self.disk.attach(process)

        async def work() -> FencelogError | None:
            config = BookieConfig(Path("/data"), bookie_id="b1")
            bookie = await Bookie.open(config, disk=self.disk, host=SimHost(self.engine, "b1"))
            if sync_fails:
                self.disk.fail("sync", ".journal", EIO)
            loop = asyncio.get_running_loop()
            answers: list[asyncio.Future[FencelogError | None]] = [
                loop.create_future() for _ in RUNS
            ]
            for run, answer in zip(RUNS, answers, strict=True):
                bookie.add(run, recovery=recovery, on_reply=answer.set_result)
            first, *others = await asyncio.gather(*answers)
            assert others == [first] * len(others)
            return first

        error = await process.call(work())
        process.kill()
        return error

    async def has_entries(self) -> bool:
        process = self.engine.start_process("b1")
        self.disk.attach(process)

        async def work() -> bool:
            config = BookieConfig(Path("/data"), bookie_id="b1")
            bookie = await Bookie.open(config, disk=self.disk, host=SimHost(self.engine, "b1"))
            replies = [
                await bookie.read(1, entry_id, max_entries=1, max_bytes=1)
                for entry_id in range(len(RUNS))
            ]
            return [reply.run for reply in replies] == RUNS

        found = await process.call(work())
        process.kill()
        return found


@pytest.mark.parametrize("seed", range(30))
def test_what_only_the_page_cache_has_is_not_answered_for(seed: int) -> None:
    """The failed sync leaves the records readable and clean. The next process takes them back, and
    a recoverer's adds of the same entries must not be answered before all of the records are on the
    disk."""
    scene = Scene(seed)

    async def story() -> None:
        failed = await scene.life(sync_fails=True, recovery=False)
        assert failed is not None
        assert failed.code is ErrorCode.STORAGE_FAILED
        assert await scene.life(sync_fails=False, recovery=True) is None
        scene.disk.power_loss()
        assert await scene.has_entries()

    scene.engine.run(story(), budget_s=60)
