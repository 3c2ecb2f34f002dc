"""All that a consumer has is given back by its name, also what it is about to get."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.broker.read.stored import ReadLimits, ReadResult
from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import Stage
from tests.support.scripted_ledgers import ScriptedLedgers

TYPES = ("exclusive", "failover", "shared", "key_shared")


@pytest.mark.parametrize("kind", TYPES)
async def test_what_a_pull_under_way_takes_is_given_back_too(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Nobody waits for that pull any more: its connection was lost."""
    log = await stage.open()
    info = SubscriptionInfo("s", "id-s", SubscriptionConfig(type=kind), "earliest")
    await log.subscriptions.open(info)
    for value in (b"0", b"1"):
        await log.append_message(Message(value, value))
    reading, may_go_on, read = asyncio.Event(), asyncio.Event(), log._reader.read

    async def slowly(offset: int, limits: ReadLimits) -> ReadResult:
        reading.set()
        await may_go_on.wait()
        return await read(offset, limits)

    async def pulled() -> list[tuple[int, int]]:
        found = await log.subscriptions.pull(info, "c", max_messages=9, max_bytes=1 << 20)
        return [(message.offset, message.attempt) for message in found]

    monkeypatch.setattr(log._reader, "read", slowly)
    pulling = asyncio.create_task(pulled())
    await reading.wait()
    giving_back = asyncio.create_task(log.subscriptions.release(info, "c"))
    await asyncio.sleep(0.02)
    may_go_on.set()
    assert await pulling == [(0, 1), (1, 1)]
    await giving_back
    assert await pulled() == [(0, 1), (1, 1)]
