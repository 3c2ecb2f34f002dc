"""The list of topics over several brokers: sums, and brokers that do not answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencelog.api.admin import ask_brokers
from tests.support.subscription_service import ok, post, running
from tests.support.until import PATIENCE_S


async def test_totals_come_from_every_broker() -> None:
    async with running() as service:
        first, second = await service.topic([await service.site("a"), await service.site("b")])
        await post(first, "x", "y")
        await post(second, "z", partition=1)
        (row,) = (await ok(await first.http.get("/v1/admin/topics")))["topics"]
        assert (row["messages"], row["open_partitions"], row["brokers"]) == (3, 2, ["a", "b"])
        through_first: Any = await ok(await first.http.get("/v1/brokers/b/topics"))
        assert through_first["broker_id"] == "b"
        assert list(through_first["topics"]) == [str(first.name)]


async def test_a_broker_that_does_not_answer_does_not_hold_up_the_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ask_brokers, "STATS_WAIT_S", 0.05)
    async with running() as service:
        first, second = await service.topic([await service.site("a"), await service.site("b")])
        await post(first, "x", "y")
        await first.http.get("/v1/brokers")  # It has started.

        async def never() -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(second.broker.topic_table, "totals", never)
        began_s = asyncio.get_running_loop().time()
        found = await ok(await first.http.get("/v1/admin/topics"))
        assert asyncio.get_running_loop().time() - began_s < PATIENCE_S / 2
        assert found["unanswered"] == ["b"]
        (row,) = found["topics"]
        assert (row["brokers"], row["open_partitions"], row["partitions"]) == (["a"], 1, 2)
        assert row["messages"] == 2
