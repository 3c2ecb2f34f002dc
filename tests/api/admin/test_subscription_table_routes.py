"""The list of subscriptions over several brokers: sums, topics that are open nowhere, pages."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.api.admin import ask_brokers
from fencelog.broker.limits import TOPIC_TOTALS_MS
from tests.support.subscription_service import ok, post, pull, running, subscribe

TABLE = "/v1/admin/subscriptions"


async def test_figures_come_from_every_broker() -> None:
    async with running() as service:
        first, second = await service.topic([await service.site("a"), await service.site("b")])
        await subscribe(first, "s")
        await post(first, "x", "y")
        await post(second, "z", partition=1)
        leased = await pull(first, max=1)
        found = await ok(await first.http.get(TABLE))
        (row,) = found["subscriptions"]
        assert (row["topic"], row["subscription"]) == (str(first.name), "s")
        assert (row["partitions"], row["backlog_messages"], row["outstanding"]) == (2, 3, 1)
        assert row["backlog_bytes"] > 0
        assert 0 <= found["now_us"] - row["oldest_us"] < 60_000_000
        assert (found["total"], found["next_start"], found["unanswered"]) == (1, None, [])
        through_first = await ok(await first.http.get("/v1/brokers/b/subscriptions"))
        assert through_first["broker_id"] == "b"
        stats = await ok(await first.http.get(f"{first.sub}/stats"))
        lag = {each["partition"]: each["backlog_bytes"] for each in stats["partitions"]}
        assert sum(lag.values()) == row["backlog_bytes"]
        assert min(each["oldest_us"] for each in stats["partitions"]) == row["oldest_us"]
        assert len(leased) == 1


async def test_subscriptions_of_a_topic_that_is_open_nowhere_have_no_figures() -> None:
    async with running() as service:
        (site,) = await service.topic([await service.site("a")])
        for name in ("s", "t"):
            await subscribe(site, name)
        for slot in site.broker.open_slots():
            await slot.close()
        await asyncio.sleep(TOPIC_TOTALS_MS / 1000)
        assert (await ok(await site.http.get(TABLE)))["total"] == 0
        of_topic = {"topic": str(site.name), "limit": "1"}
        page = await ok(await site.http.get(TABLE, params=of_topic))
        (row,) = page["subscriptions"]
        assert (row["subscription"], row["backlog_messages"], row["oldest_us"]) == ("s", None, None)
        assert (page["total"], page["next_start"]) == (2, 1)


async def test_a_broker_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_brokers, "TOPIC_TOTALS_MS", 50)
    async with running() as service:
        first, second = await service.topic([await service.site("a"), await service.site("b")])
        await subscribe(first)

        async def never() -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(second.broker.backlog_table, "totals", never)
        found = await ok(await first.http.get(TABLE))
        assert found["unanswered"] == ["b"]
        assert found["subscriptions"][0]["partitions"] == 1


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"topic": "none"}, 400),
        ({"topic": "ns/absent"}, 404),
        ({"sort": "size"}, 400),
        ({"limit": "1001"}, 400),
        ({"zz": "1"}, 400),
    ],
)
async def test_other_questions_are_refused(query: dict[str, str], status: int) -> None:
    async with running() as service:
        site = await service.site("a")
        assert (await site.http.get(TABLE, params=query)).status_code == status
