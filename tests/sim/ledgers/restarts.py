"""Restarts of bookies, one after the other: what one replay found has to outlive the flush behind
it, and the next restart; and what a failed sync took must not be answered for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from errno import EIO
from functools import partial
from random import Random  # noqa: TID251 - for its type: the streams are the engine's

from fencelog.bookie.storage.entry_log import ENTRY_LOG_SUFFIX
from tests.sim.ledgers.cluster import BookieMachine, Cluster

JOURNAL_SUFFIX = ".journal"
SLOW_LOGS = (1.0, 100.0, 300.0)
"""The factors by which a sync of an entry log takes longer: meanwhile the journal alone has the
data."""


class Restarts:
    """The restarts of the bookies of one cluster, until ``is_over``: nothing more happens then."""

    def __init__(self, cluster: Cluster, random: Random, is_over: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._random = random
        self._is_over = is_over

    def chain(self, machine: BookieMachine, restarts: int = 2) -> None:
        """Kill it and start it at once, so often or once more; in between it flushes what replay
        has found, and nobody may have asked for anything."""
        self._kill(machine)
        self._cluster.in_world(self._go_on(machine, restarts - self._random.choice((0, 1, 1))))

    def fail_a_sync(self, machine: BookieMachine) -> None:
        """The journal's next sync fails, which ends the process; the next one finds in the page
        cache what the disk does not have, and then the power fails."""
        process = machine.process
        if process is None or not process.is_alive:
            return
        self._cluster.expects_refusals.add(machine.name)
        machine.disk.fail("sync", JOURNAL_SUFFIX, EIO, 1)
        process.on_death(partial(self._start_and_lose_power, machine))

    def _start_and_lose_power(self, machine: BookieMachine) -> None:
        if not self._is_over() and not machine.is_held_down:
            machine.disk.slow_sync(ENTRY_LOG_SUFFIX, self._random.choice(SLOW_LOGS))
            machine.start()
            self._cluster.in_world(self._lose_power(machine))

    async def _lose_power(self, machine: BookieMachine) -> None:
        await self._serving(machine)
        await asyncio.sleep(self._random.choice((0.005, 0.05, 0.2, 0.5)))
        machine.disk.slow_sync(ENTRY_LOG_SUFFIX, 1.0)
        if not self._is_over():
            machine.kill(power_loss=True)

    async def _go_on(self, machine: BookieMachine, restarts: int) -> None:
        for _ in range(restarts):
            await self._serving(machine)
            await asyncio.sleep(self._random.choice((0.005, 0.02, 0.1, 0.4)))
            if self._is_over():
                return
            self._kill(machine)

    def _kill(self, machine: BookieMachine) -> None:
        machine.hold_down()
        machine.kill(power_loss=self._random.random() < 0.3)
        machine.start()

    async def _serving(self, machine: BookieMachine) -> None:
        """One that refuses to start never will."""
        await self._cluster.until(lambda: self._is_over() or machine.bookie is not None)
