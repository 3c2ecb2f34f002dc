"""The rates of the last minutes over several brokers."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.api.admin import ask_brokers
from fencelog.api.admin.rate_routes import BrokerRates, added_up
from fencelog.api.routing.peers import LinkPeers
from fencelog.broker.background.rate_history import RateHistory
from fencelog.broker.limits import RATE_SAMPLE_MS
from tests.support.subscription_service import Site, ok, post, running

RATES = "/v1/admin/rates"
INTERVAL_US = RATE_SAMPLE_MS * 1000


def rates(begin: int, into: list[int | None], out: list[int | None] | None = None) -> BrokerRates:
    return BrokerRates(
        since_us=begin * INTERVAL_US, in_bytes_per_s=into, out_bytes_per_s=out or into
    )


async def take_samples_here(site: Site) -> None:
    """Replace the history of a broker by one whose samples the test takes."""
    await site.broker.rate_history.close()
    site.broker.rate_history = RateHistory(site.broker.open_slots, site.broker.host)


@pytest.mark.parametrize(
    ("parts", "sum_"),
    [
        ([], BrokerRates()),
        ([BrokerRates()], BrokerRates()),
        ([rates(5, [1, 2], [7, 8])], rates(5, [1, 2], [7, 8])),
        ([rates(5, [1, 2, 3]), rates(7, [10])], rates(5, [1, 2, 13])),  # it has started later
        ([rates(5, [1, 2, 3]), rates(5, [10, 20])], rates(5, [11, 22])),  # it was asked too early
        ([rates(5, [1, None]), rates(5, [1, 1])], rates(5, [2, None])),
        ([rates(5, [1, 2]), BrokerRates()], rates(5, [1, 2])),
    ],
)
def test_samples_of_one_time_are_added_up(parts: list[BrokerRates], sum_: BrokerRates) -> None:
    assert added_up(parts) == sum_


async def test_rates_come_from_every_broker() -> None:
    async with running() as service:
        sites = first, second = await service.topic(
            [await service.site("a"), await service.site("b")]
        )
        for site in sites:
            await take_samples_here(site)
        await ok(await first.http.get("/v1/brokers/b/rates"))  # It has started.
        empty = await ok(await first.http.get(RATES))
        assert empty == {
            "interval_ms": 5000,
            "since_us": None,
            "in_bytes_per_s": [],
            "out_bytes_per_s": [],
            "unanswered": [],
        }
        await post(first, "x")
        await post(second, "y", partition=1)
        tick = first.broker.host.now_us() // INTERVAL_US
        for site, rate in zip(sites, (100, 20), strict=True):
            for slot in site.broker.open_slots():
                slot.meter.in_bytes_per_s, slot.meter.out_bytes_per_s = rate, 7
            for number in range(2):
                await site.broker.rate_history.sample(tick + number)
        for path in (RATES, f"{RATES}?topic={first.name}"):
            found = await ok(await first.http.get(path))
            assert found["since_us"] == tick * INTERVAL_US
            assert (found["in_bytes_per_s"], found["out_bytes_per_s"]) == ([120, 120], [14, 14])
        of_one = await ok(await first.http.get(f"/v1/brokers/b/rates?topic={first.name}"))
        assert of_one["in_bytes_per_s"] == [20, 20]
        other = await ok(await first.http.get(f"{RATES}?topic=ns/absent"))
        assert other["since_us"] is None


async def test_a_broker_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_brokers, "STATS_WAIT_S", 0.05)
    async with running() as service:
        first, _ = await service.topic([await service.site("a"), await service.site("b")])
        await post(first, "x")
        await take_samples_here(first)
        for slot in first.broker.open_slots():
            slot.meter.in_bytes_per_s = 5.0
        await first.broker.rate_history.sample(1)

        async def never(*_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(LinkPeers, "ask", never)
        found = await ok(await first.http.get(RATES))
        assert (found["unanswered"], found["in_bytes_per_s"]) == (["b"], [5])


async def test_bad_questions_are_refused() -> None:
    async with running() as service:
        site = await service.site("a")
        for query in ({"topic": "none"}, {"zz": "1"}):
            assert (await site.http.get(RATES, params=query)).status_code == 400
