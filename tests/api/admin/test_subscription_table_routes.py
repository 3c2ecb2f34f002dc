"""The list of subscriptions over several brokers: sums, topics that are open nowhere, pages."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.api.admin import ask_brokers, subscription_table_routes
from fencelog.api.server import app
from fencelog.broker.background.lag_history import LagHistory
from fencelog.broker.limits import LAG_SAMPLE_MS, RECENT_LAG_SAMPLES, TOPIC_TOTALS_MS
from tests.support.subscription_service import ok, post, pull, running, subscribe

TABLE = "/v1/admin/subscriptions"
LAG_SAMPLE_US = LAG_SAMPLE_MS * 1000


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


async def test_the_recent_lag_is_that_of_all_partitions() -> None:
    async with running() as service:
        sites = first, second = await service.topic(
            [await service.site("a"), await service.site("b")]
        )
        await subscribe(first, "s")
        await post(first, "x", "y")
        await post(second, "z", partition=1)
        for site in sites:
            await site.broker.lag_history.close()
            # Samples are taken here.
            site.broker.lag_history = LagHistory(site.broker.open_slots, site.broker.host)
        question = {"recent": "true"}
        await ok(await first.http.get("/v1/brokers/b/subscriptions"))  # It has started.
        page = await ok(await first.http.get(TABLE, params=question))
        assert page["subscriptions"][0]["recent_lag"] == []
        tick = first.broker.host.now_us() // LAG_SAMPLE_US
        await first.broker.lag_history.sample(tick)
        for site in sites:  # the second broker has no sample yet, so that the sum is not known
            (row,) = (await ok(await site.http.get(TABLE, params=question)))["subscriptions"]
            assert row["recent_lag"] == []
        await second.broker.lag_history.sample(tick)
        for number in range(1, RECENT_LAG_SAMPLES + 5):
            for site in sites:
                await site.broker.lag_history.sample(tick + number)
        (row,) = (await ok(await second.http.get(TABLE, params=question)))["subscriptions"]
        assert row["recent_lag"] == [3] * RECENT_LAG_SAMPLES
        (row,) = (await ok(await second.http.get(TABLE)))["subscriptions"]
        assert row["recent_lag"] is None
        asked = {"subscriptions": [[str(first.name), "s"], [str(first.name), "absent"]]}
        lags = (await ok(await first.http.post("/v1/brokers/b:lags", json=asked)))["lags"]
        assert [lag and lag["backlog_messages"] for lag in lags] == [[1] * RECENT_LAG_SAMPLES, None]


async def test_the_lag_of_many_with_long_names_is_asked_for_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand names of subscriptions are more than the body of an administrative request."""
    monkeypatch.setattr(app, "MAX_ADMIN_BYTES", 1024)
    monkeypatch.setattr(subscription_table_routes, "MAX_ADMIN_BYTES", 1024)
    names = [f"{'s' * 126}{number}" for number in range(10, 20)]
    async with running() as service:
        first, second = await service.topic([await service.site("a"), await service.site("b")])
        for name in names:
            await subscribe(first, name)
        tick = first.broker.host.now_us() // LAG_SAMPLE_US
        for site in (first, second):
            await site.broker.lag_history.close()
            site.broker.lag_history = LagHistory(site.broker.open_slots, site.broker.host)
            await site.broker.lag_history.sample(tick)
        await ok(await first.http.get("/v1/brokers/b/subscriptions"))  # It has started.
        page = await ok(await first.http.get(TABLE, params={"recent": "true"}))
    shown = {row["subscription"]: row["recent_lag"] for row in page["subscriptions"]}
    assert shown == {name: [0] for name in names}


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


async def test_names_of_a_broker_that_does_not_answer_any_more_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as service:
        first, second = await service.topic([await service.site("a"), await service.site("b")])
        await subscribe(first)
        for slot in second.broker.open_slots():
            await slot.close()  # All figures are those of the other broker.
        (row,) = (await ok(await second.http.get(TABLE)))["subscriptions"]
        assert row["partitions"] == 1

        async def never() -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(first.broker.backlog_table, "totals", never)
        monkeypatch.setattr(ask_brokers, "ADMIN_ANSWER_S", 0.05)
        found = await ok(await second.http.get(TABLE, params={"recent": "true"}))
        assert (found["unanswered"], found["total"]) == (["a"], 1)
        (row,) = found["subscriptions"]
        assert (row["subscription"], row["partitions"], row["backlog_messages"]) == (
            "s",
            None,
            None,
        )


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
