"""``fencelog drill pause-bookie``: a bookie is stopped, and continues as if nothing had happened.

SIGSTOP is what a stalled disk or a frozen machine looks like from outside: connections stay open
and no answer comes. The stop lasts longer than the bookie time-out and than its ZooKeeper session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import anyio

from fencelog.api.client.tasks import task_group
from fencelog.api.drills.bookie.bookie import BookieDrill, BookieReport, bookie_drill
from fencelog.api.drills.bookie.load import BurstLoad, LedgerLoad
from fencelog.api.drills.harness.directory import drill_directory
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.limits import BOOKIE_TIMEOUT_MS
from fencelog.ledgers.metastore.zookeeper_session import SESSION_TIMEOUT_MS

PAUSE_S = 1.5 * max(BOOKIE_TIMEOUT_MS, SESSION_TIMEOUT_MS) / 1000
SETTLE_S = 1.0
"""The time of load before a pause and after the last one."""

BACK_S = 30.0
"""The time for a continued bookie to be registered again."""


@dataclass(frozen=True, slots=True)
class PauseBookieConfig:
    """The configuration of the drill. ``times``: the number of pauses; ``keep`` the data and the
    logs of the processes."""

    times: int = 3
    keep: bool = False


@dataclass(slots=True)
class _Seen:
    """The observations of the drill: the least that was acknowledged in a pause; whether every
    bookie lost its registration in its pause, and had it again afterwards."""

    least_acknowledged: int | None = None
    all_left: bool = True
    all_back: bool = True


async def pause_bookie_drill(config: PauseBookieConfig) -> BookieReport:
    """Run the drill on a cluster of its own. Raises FencelogError when it cannot be run."""
    load = BurstLoad()
    with drill_directory(keep=config.keep) as directory:
        async with bookie_drill(directory) as drill:
            writers = drill.writers(load)
            seen = await _load_and_pause(drill, writers, config.times)
            metrics = {
                "pauses": config.times,
                "pause_s": PAUSE_S,
                "least_acknowledged_in_a_pause": seen.least_acknowledged or 0,
            }
            report = await drill.report("pause-bookie", writers, load, metrics)
    report.expect(bool(seen.least_acknowledged), "nothing was acknowledged during a pause")
    report.expect(seen.all_left, "a bookie was still registered at the end of its pause")
    report.expect(seen.all_back, "a bookie did not register again after its pause")
    report.say_where(directory, kept=config.keep)
    return report


async def _load_and_pause(drill: BookieDrill, writers: Sequence[LedgerLoad], times: int) -> _Seen:
    """Pause one bookie after the other while all write."""
    is_over = anyio.Event()
    seen = _Seen()

    def is_there(bookie_id: str) -> bool:
        return bookie_id in drill.bookies.available()

    async with task_group() as group:
        for writer in writers:
            group.start_soon(writer.run, is_over.is_set)
        for _ in range(times):
            await anyio.sleep(SETTLE_S)
            victim = SystemHost().shuffled(drill.cluster.bookies)[0]
            before = _acknowledged(writers)
            with victim.stopped():
                await anyio.sleep(PAUSE_S)
            seen.all_left &= not is_there(victim.name)
            during = _acknowledged(writers) - before
            least = seen.least_acknowledged
            seen.least_acknowledged = during if least is None else min(during, least)
            back_s = await drill.until(partial(is_there, victim.name), BACK_S)
            seen.all_back &= back_s is not None
        await anyio.sleep(SETTLE_S)
        is_over.set()
    return seen


def _acknowledged(writers: Sequence[LedgerLoad]) -> int:
    return sum(writer.acknowledged for writer in writers)
