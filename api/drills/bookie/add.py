"""``fencelog drill add-bookies``: two bookies join three that have data, and get their share of it.

Writers append all the while. At the end no bookie has much more of the closed ledgers than another
one, and every copy is where metadata says that it is.
"""

from __future__ import annotations

from collections import Counter

import anyio

from fencelog.api.client.tasks import task_group
from fencelog.api.drills.bookie.bookie import BookieDrill, BookieReport
from fencelog.api.drills.bookie.heal import (
    SOON,
    has_no_marks,
    healing_drill,
    statuses_of,
    until,
)
from fencelog.api.drills.bookie.load import REPLICATION
from fencelog.api.drills.bookie.stuck import closed_ledger
from fencelog.bookie.auditor.scan import scan_ledgers
from fencelog.bookie.balance.core import stored_bytes
from fencelog.bookie.balance.limits import END_SHARE
from fencelog.bookie.replication.settings import change_settings

OLD, ADDED = 3, 2

LEDGERS = 40

RATE = 4 << 20
"""The rate of balancing: some fifty ledgers of this size in a second."""


async def add_bookies_drill(*, keep: bool = False) -> BookieReport:
    """Run the drill on a cluster of its own. Raises FencelogError when it cannot be run."""

    async def add(drill: BookieDrill, metrics: dict[str, float | None]) -> None:
        async with task_group() as group:
            for _ in range(LEDGERS):
                group.start_soon(closed_ledger, drill, REPLICATION)
        for number in range(OLD + 1, OLD + ADDED + 1):
            await drill.cluster.start_bookie(number)
        metrics["distance_before"] = await _distance(drill)
        await change_settings(drill.store, balance_bytes_per_s=RATE)
        began = anyio.current_time()

        async def is_even() -> bool:
            return await _distance(drill) <= END_SHARE and await has_no_marks(drill)

        is_over = await until(is_even)
        metrics["balanced_s"] = round(anyio.current_time() - began, 1) if is_over else None
        metrics["distance_after"] = await _distance(drill)
        workers = [status["worker"] for status in await statuses_of(drill)]
        for name in ("moved_fragments", "moved_bytes", "dropped_moves"):
            metrics[name] = sum(worker[name] for worker in workers)
        await change_settings(drill.store, balance_bytes_per_s=None)

    report = await healing_drill("add-bookies", add, bookies=OLD, options=SOON, keep=keep)
    least = LEDGERS * REPLICATION.write_quorum * ADDED // (OLD + ADDED) * 3 // 4
    moved = report.metrics["moved_fragments"] or 0
    report.expect(moved >= least, f"{moved:.0f} fragments were moved, not {least}")
    return report


async def _distance(drill: BookieDrill) -> float:
    """Return how much more than the emptiest bookie the fullest one has by metadata, as a share of
    the mean."""
    stored = Counter(dict.fromkeys(drill.bookies.available(), 0))
    async for metadata in scan_ledgers(drill.store):
        stored.update(stored_bytes(metadata))
    mean = stored.total() / len(stored)
    return round((max(stored.values()) - min(stored.values())) / mean, 3) if mean else 0.0
