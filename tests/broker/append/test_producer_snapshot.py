"""Producers are in the state log before the entries that name them go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencelog.broker.append.producer_snapshot import ProducerSnapshot
from fencelog.broker.append.producer_table import ProducerTable
from fencelog.broker.ledger_list.state_core import Event
from fencelog.ledgers.errors import ErrorCode, FencelogError


class ScriptedLog:
    """A state log whose events become durable, or not, as the test says."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.outcomes: list[asyncio.Future[None]] = []

    def recorded(self, event: Event) -> asyncio.Future[None]:
        self.events.append(event)
        self.outcomes.append(asyncio.get_running_loop().create_future())
        return self.outcomes[-1]

    async def settled(self, future: asyncio.Future[None]) -> None:
        await future


@pytest.fixture
def producers() -> ProducerTable:
    table = ProducerTable()
    table.commit([], 7, 1, 1)
    return table


@pytest.fixture
async def log() -> ScriptedLog:
    return ScriptedLog()


@pytest.fixture
async def snapshot(producers: ProducerTable, log: ScriptedLog) -> ProducerSnapshot:
    state_log: Any = log
    return ProducerSnapshot(producers, state_log)


async def test_nobody_counts_on_what_is_not_durable_yet(
    snapshot: ProducerSnapshot, log: ScriptedLog
) -> None:
    """Two trims at once: the second one would remove the entries first."""
    first, second = (asyncio.create_task(snapshot.ensure_persisted(5)) for _ in range(2))
    await asyncio.sleep(0)
    assert (first.done(), second.done(), len(log.events)) == (False, False, 2)
    for outcome in log.outcomes:
        outcome.set_result(None)
    await asyncio.gather(first, second)
    await snapshot.ensure_persisted(5)
    assert len(log.events) == 2


async def test_what_was_not_recorded_is_recorded_by_the_next_one(
    snapshot: ProducerSnapshot, log: ScriptedLog
) -> None:
    trim = asyncio.create_task(snapshot.ensure_persisted(5))
    await asyncio.sleep(0)
    log.outcomes[0].set_exception(FencelogError(ErrorCode.STATE_UNKNOWN, "no answer"))
    with pytest.raises(FencelogError, match="no answer"):
        await trim
    again = asyncio.create_task(snapshot.ensure_persisted(5))
    await asyncio.sleep(0)
    assert not again.done()
    log.outcomes[1].set_result(None)
    await again


async def test_what_is_appended_meanwhile_is_not_persisted_yet(
    snapshot: ProducerSnapshot, producers: ProducerTable, log: ScriptedLog
) -> None:
    first = asyncio.create_task(snapshot.ensure_persisted(5))
    await asyncio.sleep(0)
    producers.commit([], 20, 2, 1)
    log.outcomes[0].set_result(None)
    await first
    second = asyncio.create_task(snapshot.ensure_persisted(15))
    await asyncio.sleep(0)
    assert (second.done(), len(log.events)) == (False, 2)
    log.outcomes[1].set_result(None)
    await second
