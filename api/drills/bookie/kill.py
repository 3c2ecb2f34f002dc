"""``fencelog drill kill-bookie``: SIGKILL for bookies under load, again and again.

After the restart a bookie must have everything that it acknowledged, by itself: a copy on another
bookie does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from fencelog.api.client.tasks import task_group
from fencelog.api.drills.bookie.bookie import BookieDrill, BookieReport, bookie_drill
from fencelog.api.drills.bookie.load import BurstLoad, LedgerLoad
from fencelog.api.drills.harness.directory import drill_directory
from fencelog.ledgers.host import SystemHost

LONGEST_PAUSE_S = 1.0
"""The longest pause between two kills; pauses are random, so that the kills hit the bookies in
different activities."""


@dataclass(frozen=True, slots=True)
class KillBookieConfig:
    """The configuration of the drill. ``times``: the number of kills; ``keep`` the data and the
    logs of the processes."""

    times: int = 50
    keep: bool = False


async def kill_bookie_drill(config: KillBookieConfig) -> BookieReport:
    """Run the drill on a cluster of its own. Raises FencelogError when it cannot be run, or a
    bookie does not start again."""
    load = BurstLoad()
    with drill_directory(keep=config.keep) as directory:
        async with bookie_drill(directory) as drill:
            writers = drill.writers(load)
            slowest_s = await _load_and_kill(drill, writers, config.times)
            metrics = {"restarts": config.times, "slowest_restart_ms": round(slowest_s * 1000)}
            report = await drill.report("kill-bookie", writers, load, metrics)
    report.say_where(directory, kept=config.keep)
    return report


async def _load_and_kill(drill: BookieDrill, writers: Sequence[LedgerLoad], times: int) -> float:
    """Kill and restart one bookie after the other while all write; return the slowest restart in
    s."""
    host = SystemHost()
    is_over = anyio.Event()
    slowest_s = 0.0
    async with task_group() as group:
        for writer in writers:
            group.start_soon(writer.run, is_over.is_set)
        for _ in range(times):
            await anyio.sleep(host.fraction() * LONGEST_PAUSE_S)
            victim = host.shuffled(drill.cluster.bookies)[0]
            await victim.kill()
            began = anyio.current_time()
            await drill.restart(victim)
            slowest_s = max(slowest_s, anyio.current_time() - began)
        await anyio.sleep(LONGEST_PAUSE_S)
        is_over.set()
    return slowest_s
