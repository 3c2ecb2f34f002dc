"""Owner nodes as two brokers read and change them: whose a node is, and who may replace it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fencelog.broker.partition import ownership as module
from fencelog.broker.partition.ownership import Ownership
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.metastore.port import Change, Version
from tests.support.broker_stage import Stage

Place = tuple[str, int]
PLACE: Place = ("t1", 0)
OTHER_PLACE: Place = ("t1", 1)


async def broker(stage: Stage, name: str) -> tuple[MemoryMetadataStore, Ownership]:
    """A session of a broker of this name."""
    store = await stage.store()
    return store, Ownership(store, broker_id=name, url=f"http://{name}")


async def owner_of(ownership: Ownership, place: Place = PLACE) -> tuple[str, int] | None:
    owner = await ownership.get(*place)
    return None if owner is None else (owner.broker_id, owner.session_id)


async def test_a_node_of_an_earlier_session_is_replaced(stage: Stage) -> None:
    """It will go when that session ends."""
    _, before = await broker(stage, "a")
    store, now = await broker(stage, "a")
    assert await before.claim(*PLACE) is None
    assert await now.claim(*PLACE) is None
    assert await owner_of(now) == ("a", store.session_id)
    owner = await now.get(*PLACE)
    assert owner is not None
    assert (now.is_ours(owner), before.is_ours(owner)) == (True, False)
    await before.release(*PLACE)
    assert await owner_of(now) == ("a", store.session_id)


async def test_only_the_owner_that_was_found_dead_is_removed(stage: Stage) -> None:
    _, a = await broker(stage, "a")
    _, b = await broker(stage, "b")
    assert await a.claim(*PLACE) is None
    owner = await owner_of(a)
    assert await b.remove_dead(*PLACE, "http://its-predecessor")
    assert await owner_of(a) == owner
    await a.remove_dead(*PLACE, "http://a")  # nobody takes itself for dead
    assert await owner_of(a) == owner
    assert await b.remove_dead(*PLACE, "http://a")
    assert await owner_of(a) is None


async def test_an_owner_that_was_found_dead_counts_as_that_for_a_while(stage: Stage) -> None:
    _, a = await broker(stage, "a")
    _, b = await broker(stage, "b")
    for place in (PLACE, OTHER_PLACE):
        assert await a.claim(*place) is None
    assert await b.remove_dead(*PLACE, "http://a")
    assert (await b.claiming(*OTHER_PLACE))[0] is None
    await asyncio.sleep(module.DEAD_FOR_S)
    other, changes = await b.claiming(*OTHER_PLACE)
    assert other is not None
    assert (other.broker_id, changes) == ("a", [])


@pytest.mark.parametrize("code", [ErrorCode.METADATA_UNKNOWN, ErrorCode.METADATA_CONFLICT])
@pytest.mark.parametrize("is_forestalled", [False, True])
async def test_a_claim_that_may_not_have_been_made_is_looked_at(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, code: ErrorCode, is_forestalled: bool
) -> None:
    store, a = await broker(stage, "a")
    _, b = await broker(stage, "b")

    async def lost(changes: Sequence[Change]) -> list[Version]:
        monkeypatch.undo()
        if is_forestalled:
            assert await b.claim(*PLACE) is None
        raise FencelogError(code, "lost")

    monkeypatch.setattr(store, "commit", lost)
    other = await a.claim(*PLACE)
    owner = await owner_of(a)
    assert owner is not None
    assert owner[0] == ("b" if is_forestalled else "a")
    assert (other and other.broker_id) == ("b" if is_forestalled else None)
