"""``fencelog drill stuck-repair``: repairs that cannot be made now say why, and go on afterwards.

One waits for a bookie to copy to: it says ``not_enough_bookies``, and goes on when bookies are
started. Another one waits for the copies themselves, since every bookie of a ledger is dead: it
says which entries it cannot reach, and goes on when one of the bookies is back.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio

from fencelog.api.drills.bookie.bookie import BookieDrill, BookieReport
from fencelog.api.drills.bookie.heal import AT_ONCE, healing_drill, is_named_nowhere, until
from fencelog.api.drills.bookie.load import BurstLoad
from fencelog.bookie.replication.statuses import read_statuses
from fencelog.ledgers.client import Replication
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata

BOOKIES = 3
"""The number of bookies at first, as many as an ensemble has."""

FURTHER = (4, 5, 6)
"""The bookies that are started when a repair waits for one."""

ENTRIES = 500
"""The entries of a ledger that lies on the victims."""

TWO_COPIES = Replication(ensemble_size=2, write_quorum=2, ack_quorum=2)


async def stuck_repair_drill(*, keep: bool = False) -> BookieReport:
    """Run the drill on a cluster of its own. Raises FencelogError when it cannot be run."""
    report = await healing_drill("stuck-repair", _both, bookies=BOOKIES, options=AT_ONCE, keep=keep)
    named = report.metrics["entries_named"]
    report.expect(named == ENTRIES, f"{named} entries are named, not {ENTRIES}")
    return report


async def _both(drill: BookieDrill, metrics: dict[str, float | None]) -> None:
    await _without_bookies(drill, metrics)
    await _without_copies(drill, metrics)


async def _without_bookies(drill: BookieDrill, metrics: dict[str, float | None]) -> None:
    ledger = await closed_ledger(drill, Replication())
    victim = drill.cluster.bookies[0]
    await victim.kill()
    found = await _until_it_waits(drill, ledger, "not_enough_bookies")
    metrics["said_not_enough_bookies_s"] = found[0]
    began = anyio.current_time()
    for number in FURTHER:
        await drill.cluster.start_bookie(number)
    metrics["went_on_s"] = await _seconds_until_left(drill, victim.name, began)


async def _without_copies(drill: BookieDrill, metrics: dict[str, float | None]) -> None:
    ledger = await closed_ledger(drill, TWO_COPIES)
    names = ledger.last_fragment.bookies
    back, dead = [bookie for bookie in drill.cluster.bookies if bookie.name in names]
    for victim in (back, dead):
        await victim.kill()
    said_s, waiting = await _until_it_waits(drill, ledger, "unreached")
    metrics["said_unreached_s"] = said_s
    metrics["entries_named"] = waiting.get("entry_count")
    began = anyio.current_time()
    await drill.restart(back)
    metrics["went_on_with_a_copy_s"] = await _seconds_until_left(drill, dead.name, began)


async def closed_ledger(drill: BookieDrill, replication: Replication) -> LedgerMetadata:
    """Write a ledger of ENTRIES, and close it. Raises FencelogError."""
    writer = await drill.ledgers.create(
        replication, on_ack=lambda entry_id: None, on_failure=lambda error: None
    )
    for entry_id in range(ENTRIES):
        writer.append(BurstLoad().payload(writer.ledger_id, entry_id))

    async def is_acknowledged() -> bool:
        return writer.last_add_confirmed == ENTRIES - 1

    await until(is_acknowledged)
    return await writer.close()


async def _until_it_waits(
    drill: BookieDrill, ledger: LedgerMetadata, why: str
) -> tuple[float | None, dict[str, Any]]:
    """Wait until the repair of a ledger is said to wait for this reason; return the seconds that it
    took, None if it was never said, and what is said."""
    found: dict[str, Any] = {}
    began = anyio.current_time()

    async def waits() -> bool:
        nonlocal found
        for status in await read_statuses(drill.store):
            for waiting in status["worker"]["waiting"]:
                if waiting["ledger_id"] == ledger.ledger_id and waiting["why"] == why:
                    found = waiting
        return bool(found)

    said = await until(waits)
    return (round(anyio.current_time() - began, 1) if said else None), found


async def _seconds_until_left(drill: BookieDrill, bookie_id: str, began: float) -> float | None:
    """Return how long it takes until no ledger names a bookie, and none is marked."""
    healed = await until(partial(is_named_nowhere, drill, bookie_id))
    return round(anyio.current_time() - began, 1) if healed else None
