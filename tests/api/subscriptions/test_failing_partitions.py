"""Pulls of a topic of which a partition cannot be read."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.broker.read.stored import ReadLimits
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.subscription_service import post, running, subscribe


async def test_a_wait_does_not_read_a_damaged_partition_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as service:
        site = await service.site("a")
        one, _ = await service.topic([site, site])
        await subscribe(one)
        await post(one, "x", partition=1)
        damaged, reads = await one.broker.partition(one.name, 1), list[int]()

        async def fails(offset: int, limits: ReadLimits) -> None:
            reads.append(offset)
            raise FencelogError(ErrorCode.CORRUPT, "damaged")

        monkeypatch.setattr(damaged._reader, "read", fails)
        answer = await one.http.post(f"{one.sub}:pull", json={"wait": 2})
        assert (answer.status_code, answer.json()["code"]) == (500, "corrupt")
        assert 2 <= len(reads) <= 10
        waiting = asyncio.create_task(one.http.post(f"{one.sub}:pull", json={"wait": 20}))
        await asyncio.sleep(0.3)
        await post(one, "y", partition=0)
        async with asyncio.timeout(10):
            messages = (await waiting).json()["messages"]
        assert [message["text"] for message in messages] == ["y"]
