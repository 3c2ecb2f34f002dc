"""The table of brokers with their current loads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencelog.api.admin import ask_brokers
from fencelog.api.routing.peers import LinkPeers
from fencelog.broker.cluster.load import BrokerLoad
from tests.support.subscription_service import Site, ok, post, running

TABLE = "/v1/admin/brokers"


async def rows(site: Site) -> dict[str, dict[str, Any]]:
    return {each["broker_id"]: each for each in (await ok(await site.http.get(TABLE)))["brokers"]}


async def test_loads_are_those_of_now_although_none_was_worth_publishing() -> None:
    async with running() as service:
        first, second = await service.topic([await service.site("a"), await service.site("b")])
        await post(first, "x")
        await post(second, "y", partition=1)
        for site in (first, second):
            for rate in (10, 5000):
                site.broker.directory.measured(BrokerLoad(1, rate, 2 * rate))
        found = await rows(first)
        assert [each["in_bytes_per_s"] for each in found.values()] == [5000, 5000]
        assert [each["out_bytes_per_s"] for each in found.values()] == [10_000, 10_000]
        assert [each["partitions"] for each in found.values()] == [1, 1]
        assert (await ok(await first.http.get(TABLE)))["unanswered"] == []


async def test_the_load_of_a_broker_that_does_not_answer_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ask_brokers, "ADMIN_ANSWER_S", 0.05)
    async with running() as service:
        first, _ = await service.topic([await service.site("a"), await service.site("b")])

        async def never(*_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(LinkPeers, "ask", never)
        answer = await ok(await first.http.get(TABLE))
        assert answer["unanswered"] == ["b"]
        silent = answer["brokers"][1]
        assert (silent["broker_id"], silent["draining"]) == ("b", False)
        assert (silent["partitions"], silent["in_bytes_per_s"]) == (None, None)
