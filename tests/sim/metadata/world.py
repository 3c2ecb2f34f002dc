"""A tree, a network, and processes with metadata sessions: the stage of the store's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.memory import MemoryCluster
from tests.sim.engine.engine import Engine
from tests.sim.engine.process import Process
from tests.sim.metadata.store import SimStore

TIMEOUT_S = 6.0


class World:
    """An engine, a tree, and processes with sessions on it."""

    def __init__(self, seed: int) -> None:
        self.engine = Engine(seed)
        self.network = self.engine.network
        self.tree = MemoryCluster()

    async def store(self, machine: str) -> tuple[Process, SimStore]:
        process = self.engine.start_process(machine)

        async def start() -> SimStore:
            store = SimStore(self.engine, self.tree, session_timeout_s=TIMEOUT_S)
            await store.start()
            return store

        return process, await process.call(start())

    def has(self, path: str) -> bool:
        try:
            self.tree.get(path)
        except FencelogError:
            return False
        return True

    def cut(self, machine: str) -> None:
        self.network.block(machine, "zk")
        self.network.block("zk", machine)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - a condition without an event
            await asyncio.sleep(0.005)


def simulate(main: Callable[[World], Coroutine[Any, Any, Any]], seed: int = 1) -> Any:
    world = World(seed)
    result = world.engine.run(main(world), budget_s=3600)
    assert [process.failures for process in world.engine.processes if process.failures] == []
    return result


async def code_of(request: Awaitable[object]) -> ErrorCode:
    with pytest.raises(FencelogError) as caught:
        await request
    return caught.value.code
