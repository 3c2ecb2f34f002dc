"""``fencelog drill lose-bookie-disk``: a bookie is killed, and is restarted without its data.

Started with ``--repair-cookie``, as an operator would start it, the bookie has its earlier ledgers
in limbo: it denies none of their entries until it has copied them from the others.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio

from fencelog.api.client.retry import retry_not_applied
from fencelog.api.client.tasks import task_group
from fencelog.api.drills.bookie.bookie import POLL_S, BookieDrill, BookieReport, bookie_drill
from fencelog.api.drills.bookie.load import BurstLoad, LedgerLoad
from fencelog.api.drills.harness.directory import drill_directory
from fencelog.api.local_cluster.child_process import ChildProcess
from fencelog.api.streams.ledger_check import check_ledger
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.zookeeper_session import SESSION_TIMEOUT_MS

SETTLE_S = 2.0
"""The time of load before a disk is lost and after the last one."""

REPAIR_S = 120.0
"""The time for a bookie to have everything again."""


@dataclass(frozen=True, slots=True)
class LoseDiskConfig:
    """The configuration of the drill. ``times``: how many disks are lost, one after the other;
    ``session_ms``: of the bookies at ZooKeeper; ``keep`` the data and the logs."""

    times: int = 1
    session_ms: int = SESSION_TIMEOUT_MS
    keep: bool = False


@dataclass(frozen=True, slots=True)
class _LostDisk:
    """A lost disk. ``ledgers``: those that were on it. ``repaired_s``: from the restart until the
    bookie had everything again; None: it had not."""

    bookie_id: str
    ledgers: list[int]
    repaired_s: float | None


async def lose_disk_drill(config: LoseDiskConfig) -> BookieReport:
    """Run the drill on a cluster of its own. Raises FencelogError when it cannot be run, or a
    bookie does not start again."""
    load = BurstLoad()
    with drill_directory(keep=config.keep) as directory:
        async with bookie_drill(directory, session_ms=config.session_ms) as drill:
            writers = drill.writers(load)
            lost = await _load_and_lose(drill, writers, config.times, directory)
            holdings = [text for disk in lost for text in await _not_whole(drill, disk)]
            slowest_s = max((disk.repaired_s or REPAIR_S for disk in lost), default=None)
            metrics = {"disks_lost": config.times, "slowest_repair_s": slowest_s}
            report = await drill.report("lose-bookie-disk", writers, load, metrics)
    repaired = all(disk.repaired_s is not None for disk in lost)
    report.expect(repaired, f"a ledger was in limbo after {REPAIR_S:.0f} s")
    for text in holdings:
        report.expect(False, f"after the repair: {text}")
    report.say_where(directory, kept=config.keep)
    return report


async def _load_and_lose(
    drill: BookieDrill, writers: Sequence[LedgerLoad], times: int, directory: Path
) -> list[_LostDisk]:
    """Have one bookie after the other lose its disk while all write."""
    is_over = anyio.Event()
    lost = []
    async with task_group() as group:
        for writer in writers:
            group.start_soon(writer.run, is_over.is_set)
        for _ in range(times):
            await anyio.sleep(SETTLE_S)
            victim = SystemHost().shuffled(drill.cluster.bookies)[0]
            await victim.kill()
            shutil.rmtree(directory / victim.name)
            # Until its session has expired it counts as running, and is not repaired.
            await drill.until(partial(_is_gone, drill, victim), REPAIR_S)
            ledgers = [ledger.ledger_id for writer in writers for ledger in writer.ledgers]
            number = int(victim.name.rpartition("-")[2])
            await drill.cluster.start_bookie(number, repair_cookie=True)
            drill.acks[victim.name].forget()  # by now everything that it said has arrived
            lost.append(_LostDisk(victim.name, ledgers, await _repaired(drill, victim)))
        await anyio.sleep(SETTLE_S)
        is_over.set()
    return lost


def _is_gone(drill: BookieDrill, bookie: ChildProcess) -> bool:
    return bookie.name not in drill.bookies.available()


async def _repaired(drill: BookieDrill, bookie: ChildProcess) -> float | None:
    """Return the seconds until none of the bookie's ledgers is in limbo, or None after REPAIR_S."""
    began = anyio.current_time()
    await drill.until(lambda: not _is_gone(drill, bookie), REPAIR_S)
    while anyio.current_time() - began < REPAIR_S:
        status = await drill.bookies.client(bookie.name).admin({"do": "status"})
        if status["ledgers_in_limbo"] == 0:
            return round(anyio.current_time() - began, 1)
        await anyio.sleep(POLL_S)
    return None


async def _not_whole(drill: BookieDrill, disk: _LostDisk) -> list[str]:
    """Return the ledgers of which the bookie lacks entries that metadata assigns to it, in
    words."""
    found: list[str] = []
    for ledger_id in disk.ledgers:
        metadata = await retry_not_applied(partial(drill.ledgers.recover, ledger_id))
        found += [
            f"ledger {ledger_id}, {holding}"
            async for holding in check_ledger(metadata, drill.bookies)
            if holding.bookie_id == disk.bookie_id and not holding.is_whole
        ]
    return found
