"""The process of self-healing: its parts do not depend on one another."""

from __future__ import annotations

import pytest

from fencelog.api.processes import autorecovery
from fencelog.bookie.auditor.election import LEADER_PATH
from fencelog.bookie.balance.balancer import BookieBalancer
from fencelog.bookie.maintenance import maintenance
from fencelog.bookie.recent.check import RecentCheck
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from tests.support.until import until


@pytest.mark.parametrize("part", [RecentCheck, BookieBalancer])
async def test_a_bug_beside_the_auditor_does_not_end_its_term(
    monkeypatch: pytest.MonkeyPatch, part: type
) -> None:
    """Each new auditor counts the absence of lost bookies anew."""
    runs: list[None] = []

    async def fails(_: object) -> None:
        runs.append(None)
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(part, "run", fails)
    monkeypatch.setattr(maintenance, "_PAUSE_S", 0.01)
    store = MemoryMetadataStore(MemoryCluster())
    await store.start()
    await create_instance(store, SystemHost())
    async with autorecovery.serving_autorecovery(store, {}, process_id="p1", host=SystemHost()):
        await until(lambda: len(runs) >= 1)
        elected = await store.get(LEADER_PATH)
        await until(lambda: len(runs) >= 5)
        assert await store.get(LEADER_PATH) == elected
    await store.close()
