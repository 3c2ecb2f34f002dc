"""``fencelog drill lose-zone``: all bookies of a zone are gone at once, and come back later.

There are three zones, one for each copy. While one is away, writers go on with the bookies of the
others, and self-healing makes its copies there, each write set in both.
"""

from __future__ import annotations

import anyio

from fencelog.api.client.tasks import task_group
from fencelog.api.drills.bookie.bookie import BookieDrill, BookieReport
from fencelog.api.drills.bookie.heal import (
    AT_ONCE,
    healing_drill,
    is_named_nowhere,
    until,
)
from fencelog.api.drills.bookie.load import REPLICATION
from fencelog.bookie.auditor.scan import scan_ledgers
from fencelog.ledgers.ledger_metadata.model import Fragment, LedgerMetadata

ZONES = ("zone-a", "zone-b", "zone-c")
BOOKIES_OF_ZONE = 2

RACKS = {
    f"bookie-{number + 1}": ZONES[number % len(ZONES)]
    for number in range(len(ZONES) * BOOKIES_OF_ZONE)
}
"""The zone of each bookie, which is its rack."""

LOST = ZONES[0]

BACK_S = 30.0
"""The time for the zone's bookies to be registered again."""


async def lose_zone_drill(*, keep: bool = False) -> BookieReport:
    """Run the drill on a cluster of its own. Raises FencelogError when it cannot be run."""

    async def lose(drill: BookieDrill, metrics: dict[str, float | None]) -> None:
        metrics["zones_before"] = await _least_zones(drill)
        victims = [bookie for bookie in drill.cluster.bookies if RACKS[bookie.name] == LOST]
        acknowledged = _acknowledged(drill)
        async with task_group() as group:
            for victim in victims:
                group.start_soon(victim.kill)
        began = anyio.current_time()

        async def is_healed() -> bool:
            nowhere = [await is_named_nowhere(drill, victim.name) for victim in victims]
            return all(nowhere)

        healed = await until(is_healed)
        took_s = round(anyio.current_time() - began, 1)
        metrics["healed_s"] = took_s if healed else None
        metrics["zones_without_it"] = await _least_zones(drill)
        metrics["copies_acknowledged_without_it"] = _acknowledged(drill) - acknowledged
        for victim in victims:
            await drill.restart(victim)
        names = {victim.name for victim in victims}
        metrics["back_s"] = await drill.until(
            lambda: names <= set(drill.bookies.available()), BACK_S
        )
        metrics["zones_of_a_new_ledger"] = _zones((await _new_ledger(drill)).last_fragment)

    bookies = len(RACKS)
    report = await healing_drill(
        "lose-zone", lose, bookies=bookies, options=AT_ONCE, keep=keep, racks=RACKS
    )
    found = report.metrics
    report.expect(found["zones_before"] == len(ZONES), "a write set had two copies in a zone")
    report.expect(found["zones_without_it"] == len(ZONES) - 1, "all copies are in one zone")
    report.expect(found["zones_of_a_new_ledger"] == len(ZONES), "the zone that is back is not used")
    report.expect(bool(found["copies_acknowledged_without_it"]), "appends stood still")
    return report


async def _new_ledger(drill: BookieDrill) -> LedgerMetadata:
    """Return a ledger that was begun just now."""
    writer = await drill.ledgers.create(
        REPLICATION, on_ack=lambda entry_id: None, on_failure=lambda error: None
    )
    return await writer.close()


async def _least_zones(drill: BookieDrill) -> int:
    """Return in how many zones the copies of the most endangered fragment are."""
    found = [metadata async for metadata in scan_ledgers(drill.store)]
    return min(_zones(fragment) for metadata in found for fragment in metadata.fragments)


def _zones(fragment: Fragment) -> int:
    return len({RACKS[bookie] for bookie in fragment.bookies})


def _acknowledged(drill: BookieDrill) -> int:
    """Return how many copies bookies have acknowledged so far."""
    return sum(acks.acknowledged for acks in drill.acks.values())
