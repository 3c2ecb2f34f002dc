"""Drills of self-healing: bookies that never return, that leave, and that only restart.

At the end every ledger is closed and compared with what its writer sent, the cluster metadata
checker has to find nothing, and every entry is read from each bookie that metadata names for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import anyio

from fencelog.api.client.tasks import task_group
from fencelog.api.drills.bookie.acks import BookieAcks, OwnCopies, own_copies
from fencelog.api.drills.bookie.bookie import WRITERS, BookieDrill, BookieReport, bookie_drill
from fencelog.api.drills.bookie.load import BurstLoad, LedgerLoad, recover_and_compare
from fencelog.api.drills.harness.directory import drill_directory
from fencelog.api.local_cluster.child_process import ChildProcess
from fencelog.bookie.auditor.check_report import CheckReport
from fencelog.bookie.auditor.cluster_check import CheckConfig, ClusterCheck
from fencelog.bookie.auditor.decommission import Decommissions
from fencelog.bookie.auditor.decommission_core import Phase
from fencelog.bookie.auditor.scan import bookies_of, scan_ledgers
from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.bookie.repair.core import wanted_ranges
from fencelog.bookie.replication.statuses import read_statuses
from fencelog.bookie.replication.store import UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost

SESSION_MS = 2000
SOON = ("--look-ms", "500", "--recent-check-ms", "2000")
"""The options of self-healing: a drill does not wait for minutes to see what was restored."""

AT_ONCE = (*SOON, "--lost-bookie-grace-ms", "1000", "--open-ledger-grace-ms", "2000")
"""The same where a bookie is lost: nor does it wait for the ten minutes of grace."""

WRITE_S = 3.0
"""The time of load before and after what happens."""

HEALED_S = 300.0
"""The time for self-healing to restore everything."""

POLL_S = 0.5

Happening = Callable[[BookieDrill, dict[str, float | None]], Awaitable[None]]
"""An action on the cluster under load; it notes figures."""


async def lose_bookies_drill(name: str, *, count: int, keep: bool = False) -> BookieReport:
    """Kill bookies for good, one after the other, each when the copies of the one before are back.
    Raises FencelogError when the drill cannot be run."""

    async def lose(drill: BookieDrill, metrics: dict[str, float | None]) -> None:
        for victim in drill.cluster.bookies[:count]:
            await victim.kill()
            began = anyio.current_time()
            is_healed = await until(partial(is_named_nowhere, drill, victim.name))
            took_s = round(anyio.current_time() - began, 1)
            metrics[f"healed_s_{victim.name}"] = took_s if is_healed else None

    return await healing_drill(
        name, lose, bookies=4 if count == 1 else 5, options=AT_ONCE, keep=keep
    )


async def decommission_drill(*, keep: bool = False) -> BookieReport:
    """Decommission a running bookie. Raises FencelogError when the drill cannot be run."""

    async def leave(drill: BookieDrill, metrics: dict[str, float | None]) -> None:
        victim, jobs = drill.cluster.bookies[0], Decommissions(drill.store)
        began = anyio.current_time()
        await jobs.start(victim.name, host=SystemHost())

        async def is_drained() -> bool:
            found = await jobs.get(victim.name)
            return found is not None and found[0].phase is Phase.DRAINED

        async def is_over() -> bool:
            return victim.name not in await CookieRegistry(drill.store).names()

        drained = await until(is_drained)
        metrics["drained_s"] = round(anyio.current_time() - began, 1) if drained else None
        await victim.stop()
        over = await until(is_over)
        metrics["removed_s"] = round(anyio.current_time() - began, 1) if over else None

    return await healing_drill("decommission", leave, bookies=5, options=AT_ONCE, keep=keep)


async def restart_bookies_drill(*, keep: bool = False) -> BookieReport:
    """Restart every bookie; self-healing copies what was in flight, and no more. Raises
    FencelogError when the drill cannot be run, or a bookie does not start again."""

    async def restart(drill: BookieDrill, metrics: dict[str, float | None]) -> None:
        slowest_s = 0.0
        for bookie in list(drill.cluster.bookies):
            began = anyio.current_time()
            await bookie.stop()
            await anyio.sleep(SESSION_MS / 1000)
            await drill.restart(bookie)
            slowest_s = max(slowest_s, anyio.current_time() - began)
            await anyio.sleep(WRITE_S)
        metrics["slowest_restart_s"] = round(slowest_s, 1)
        metrics["most_in_flight"] = len(drill.cluster.bookies) * WRITERS * BurstLoad().burst
        statuses = await statuses_of(drill)
        metrics["copied_entries"] = sum(each["worker"]["copied_entries"] for each in statuses)
        audits = [each["auditor"] for each in statuses if "auditor" in each]
        metrics["lost_bookie_marks"] = sum(each["lost_bookie_marks"] for each in audits)

    report = await healing_drill("rolling-restart", restart, bookies=4, options=SOON, keep=keep)
    found = report.metrics
    report.expect(found["lost_bookie_marks"] == 0, "a restart was taken for a loss")
    is_little = (found["copied_entries"] or 0) <= (found["most_in_flight"] or 0)
    report.expect(is_little, "more was copied than was in flight when bookies stopped")
    return report


async def healing_drill(
    name: str,
    happening: Happening,
    *,
    bookies: int,
    options: tuple[str, ...],
    keep: bool,
    racks: Mapping[str, str] | None = None,
) -> BookieReport:
    """Let something happen to a cluster under load; then compare everything. Raises FencelogError
    when the drill cannot be run."""
    load, is_over = BurstLoad(), anyio.Event()
    metrics: dict[str, float | None] = {}
    with drill_directory(keep=keep) as directory:
        cluster = bookie_drill(
            directory, session_ms=SESSION_MS, bookies=bookies, racks=racks, autorecovery=options
        )
        async with cluster as drill:
            writers = drill.writers(load)
            async with task_group() as group:
                for writer in writers:
                    group.start_soon(writer.run, is_over.is_set)
                await anyio.sleep(WRITE_S)
                await happening(drill, metrics)
                await anyio.sleep(WRITE_S)
                is_over.set()
            report = await _report(name, drill, writers, load, metrics)
    report.say_where(directory, kept=keep)
    return report


async def _report(
    name: str,
    drill: BookieDrill,
    writers: list[LedgerLoad],
    load: BurstLoad,
    metrics: dict[str, float | None],
) -> BookieReport:
    """Close and compare all ledgers, check the cluster, read every copy."""
    written = [ledger for writer in writers for ledger in writer.ledgers]
    result = await recover_and_compare(drill.ledgers, written, load)
    # An entry that Qa bookies had when another one failed may lack that copy, and nobody was lost:
    # the recent check finds it.
    check = CheckReport(0)

    async def is_healed() -> bool:
        nonlocal check
        config = CheckConfig(repeats=0)
        checker = ClusterCheck(drill.store, drill.bookies, host=SystemHost(), config=config)
        check = await checker.run()
        return check.is_clean and not check.unverified and not check.marked

    unhealed = not await until(is_healed)
    metrics |= {
        "violations": check.counts.total(),
        "unverified_ledgers": check.unverified.total(),
        "rereplicated_bytes": await _copied_bytes(drill),
    }
    report = BookieReport(name, result.account, OwnCopies(different=result.different), metrics)
    report.expect(not unhealed, f"ledgers lack copies after {HEALED_S:.0f} s")
    report.expect(all(value is not None for value in metrics.values()), "something never happened")
    report.expect(check.is_clean and not check.unverified, "the cluster check has found something")
    for bookie in drill.cluster.bookies:
        report.own.add(await _copies_by_metadata(drill, bookie, load))
    copies = 3 * sum(ledger.acknowledged + 1 for ledger in written)
    report.expect(report.own.read >= copies, f"{report.own.read} copies were read, not {copies}")
    report.notes.append(f"{len(written)} ledgers; every entry was read from each of its bookies")
    return report


async def _copies_by_metadata(
    drill: BookieDrill, bookie: ChildProcess, load: BurstLoad
) -> OwnCopies:
    """Read every entry that metadata assigns to a bookie, from that bookie alone."""
    expected = BookieAcks()
    async for metadata in scan_ledgers(drill.store):
        ranges = wanted_ranges(metadata, bookie.name, 0, metadata.last_entry_id)
        if found := list(ranges):
            expected.ranges[metadata.ledger_id] = found
    if not expected.ranges:
        return OwnCopies()
    return await own_copies(drill.bookies.client(bookie.name), expected, load.payload)


async def is_named_nowhere(drill: BookieDrill, bookie_id: str) -> bool:
    async for metadata in scan_ledgers(drill.store):
        if bookie_id in bookies_of(metadata):
            return False
    return await has_no_marks(drill)


async def has_no_marks(drill: BookieDrill) -> bool:
    async for _ in UnderReplicatedLedgers(drill.store).list():
        return False
    return True


async def _copied_bytes(drill: BookieDrill) -> int:
    """Return what all processes of self-healing have copied."""
    return sum(status["worker"]["copied_bytes"] for status in await statuses_of(drill))


async def statuses_of(drill: BookieDrill) -> list[dict[str, Any]]:
    """Return the states of all processes of self-healing as of now or later. Raises
    FencelogError(INTERNAL) when one publishes no more."""
    asked_us, statuses = SystemHost().now_us(), list[dict[str, Any]]()

    async def are_new() -> bool:
        statuses[:] = await read_statuses(drill.store)
        published = [status["updated_us"] for status in statuses]
        return len(published) == len(drill.cluster.healers) and min(published) >= asked_us

    if not await until(are_new):
        raise FencelogError(ErrorCode.INTERNAL, f"no new state of self-healing: {statuses}")
    return statuses


async def until(holds: Callable[[], Awaitable[bool]]) -> bool:
    """Wait until the condition holds; tell whether it did within HEALED_S."""
    with anyio.move_on_after(HEALED_S):
        while True:
            if await holds():
                return True
            await anyio.sleep(POLL_S)
    return False
