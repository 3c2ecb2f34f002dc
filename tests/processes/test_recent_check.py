"""The recent check with real processes: a copy that was in flight when its bookie died is made
again, soon, though no bookie was lost for good."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fencelog.api.drills.bookie.bookie import BookieDrill, bookie_drill
from fencelog.bookie.auditor.cluster_check import CheckConfig, ClusterCheck
from fencelog.bookie.replication.statuses import read_statuses
from fencelog.ledgers.client import Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.writer.writer import LedgerWriter
from tests.support.until import PATIENCE_S

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

INTERVAL_MS = 2000
SEEN_S = 4 * INTERVAL_MS / 1000 + 2.0
"""A listing, the look after it and the one that accuses, the worker's; and the time of each."""


async def until(holds: Callable[[], Awaitable[bool]], *, within_s: float) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(within_s):
        while not await holds():  # noqa: ASYNC110 - a condition without an event
            await asyncio.sleep(0.1)
    return loop.time() - began


async def append(writer: LedgerWriter, count: int) -> None:
    """Append entries, and wait until Qa bookies have them."""
    for number in range(count):
        writer.append(b"entry %d" % number)

    async def are_acknowledged() -> bool:
        return writer.last_add_confirmed == writer.last_add_pushed

    await until(are_acknowledged, within_s=PATIENCE_S)


async def listed(drill: BookieDrill, bookie_id: str, ledger_id: int) -> list[tuple[int, int]]:
    """The entries that a bookie has; none if it never heard of the ledger."""
    try:
        found = await drill.bookies.client(bookie_id).list_entries(ledger_id)
    except FencelogError as error:
        if not error.code.is_negative:
            raise
        return []
    return list(found.availability.ranges(0, 1000))


async def with_a_dead_third_bookie(drill: BookieDrill) -> tuple[LedgerMetadata, str]:
    """A ledger that was closed while one of its bookies stood still, and then died of it; the
    bookie runs again on its data."""
    writer = await drill.ledgers.create(
        Replication(), on_ack=lambda entry_id: None, on_failure=lambda error: None
    )
    await append(writer, 10)
    last = writer.metadata.last_fragment.bookies[-1]
    victim = next(bookie for bookie in drill.cluster.bookies if bookie.name == last)
    with victim.stopped():
        await append(writer, 10)
        metadata = await writer.close()
        await victim.kill()  # what it was sent is in no journal
    return metadata, victim.name


async def test_a_copy_that_died_in_flight_is_made_again_soon(tmp_path: Path) -> None:
    options = ("--recent-check-ms", str(INTERVAL_MS), "--look-ms", "500")
    async with bookie_drill(tmp_path, session_ms=2000, bookies=3, autorecovery=options) as drill:
        metadata, name = await with_a_dead_third_bookie(drill)
        assert len(metadata.fragments) == 1, "the writer had nobody to replace it by"
        victim = next(bookie for bookie in drill.cluster.bookies if bookie.name == name)
        await drill.restart(victim)
        everyone = [bookie.name for bookie in drill.cluster.bookies]

        async def are_all_here() -> bool:
            return drill.bookies.available() == everyone  # a watch tells of it

        await until(are_all_here, within_s=PATIENCE_S)

        async def has_all() -> bool:
            try:
                return await listed(drill, name, metadata.ledger_id) == [(0, 19)]
            except FencelogError as error:
                if error.code is not ErrorCode.BOOKIE_UNAVAILABLE:
                    raise
                return False  # its former address is the one that is known, for a moment

        took_s = await until(has_all, within_s=SEEN_S + 10)
        assert took_s <= SEEN_S
        config = CheckConfig(repeats=0)
        check = ClusterCheck(drill.store, drill.bookies, host=SystemHost(), config=config)

        async def is_whole() -> bool:
            statuses = await read_statuses(drill.store)
            found = [status["recent_check"] for status in statuses if "recent_check" in status]
            return [(each["marked"], each["missing_copies"]) for each in found] == [(1, 0)]

        await until(is_whole, within_s=30)
        assert (await check.run()).is_clean
