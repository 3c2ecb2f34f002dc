"""An exclusive subscription of several partitions has one consumer, whoever owns them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

import pytest

from fencelog.broker.partition.forwards import OwnerLost
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.subscription_service import (
    Site,
    ids,
    ok,
    post,
    pull,
    pull_all,
    subscribe,
    verb,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def refusal(site: Site, verb: str = "pull", query: str = "", **body: Any) -> str:
    answer = await site.http.post(f"{site.sub}:{verb}{query}", json=body)
    code: str = answer.json().get("code", "")
    return code


async def hold_of(site: Site) -> dict[str, Any]:
    """Return what the arbiter says of its only consumer."""
    (stats,) = (await ok(await site.http.get(f"{site.sub}/stats?partition=0")))["partitions"]
    (consumer,) = stats["consumers"]
    found: dict[str, Any] = consumer
    return found


async def test_who_pulls_from_one_partition_holds_all_of_them(two: list[Site]) -> None:
    a, b = two
    await subscribe(a, type="exclusive")
    await post(a, "x", partition=1)
    (message,) = await pull(b, consumer="c1")
    assert message["partition"] == 1
    await post(a, "y", partition=0)
    for site in two:
        for query in ("", "?partition=0", "?partition=1"):
            assert await refusal(site, query=query, consumer="c2") == "subscription_busy"
            assert await refusal(site, query=query, consumer="c2", wait=5) == "subscription_busy"
        answer = await site.http.get(f"{site.sub}/events?consumer=c2")
        assert answer.json()["code"] == "subscription_busy"
    assert [m["partition"] for m in await pull_all(b, consumer="c1")] == [0]


async def test_a_client_cannot_pass_for_a_broker_that_has_asked(two: list[Site]) -> None:
    """The mark of a forwarded request is a header, which any client may send."""
    a, b = two
    await subscribe(a, type="exclusive")
    await post(a, "x", partition=0)
    await post(a, "y", partition=1)
    assert len(await pull(a, consumer="c1", max=1)) == 1
    headers = {"Fencelog-Forwarded": "1"}
    for site, partition in ((a, 0), (b, 1)):
        path = f"{site.sub}:pull?partition={partition}"
        answer = await site.http.post(path, json={"consumer": "c2"}, headers=headers)
        assert answer.json().get("code") in ("subscription_busy", "not_owner")
    assert len(await pull_all(b, consumer="c1")) == 1


@pytest.mark.parametrize("type_", ["exclusive", "failover", "key_shared"])
async def test_a_consumer_without_a_name_gets_nothing(two: list[Site], type_: str) -> None:
    await subscribe(two[0], type=type_)
    await post(two[0], "x")
    for site in two:
        for query in ("", "?partition=0", "?partition=1"):
            for body in ({}, {"consumer": ""}):
                answer = await site.http.post(f"{site.sub}:pull{query}", json=body)
                problem = answer.json()
                assert (answer.status_code, problem["field"]) == (400, "consumer")
        assert (await site.http.get(f"{site.sub}/events")).json()["field"] == "consumer"
    (message,) = await pull(two[1], consumer="c")
    assert message["attempt"] == 1


async def test_whoever_is_named_in_an_extension_stays_the_consumer(two: list[Site]) -> None:
    a, b = two
    await subscribe(a, type="exclusive")
    await post(a, "x", partition=1)
    messages = await pull(a, consumer="c1", lease_ms=60)
    await verb(b, "extend", ack_ids=ids(messages), lease_ms=60_000, consumer="c1")
    log = await a.broker.partition(a.name, 0)
    (hold,) = log.subscriptions._in_use.values()
    assert hold._consumers.by_name["c1"].until > hold.now() + 50
    await verb(b, "extend", ack_ids=ids(messages), lease_ms=60_000, consumer="c2")
    assert (await hold_of(b))["name"] == "c1"
    assert await refusal(b, consumer="c2") == "subscription_busy"


async def test_a_hold_that_has_lapsed_is_anybodys(two: list[Site]) -> None:
    a, b = two
    await subscribe(a, type="exclusive", lease_ms=40)
    await post(a, "x", partition=0)
    await pull_all(a, consumer="c1")
    long: dict[str, Any] = {"consumer": "c2", "lease_ms": 60_000}
    async with asyncio.timeout(5):
        while await refusal(b, "hold", **long) == "subscription_busy":  # noqa: ASYNC110 - a lease ends by time
            await asyncio.sleep(0.005)
    assert (await pull(b, **long))[0]["attempt"] >= 2
    assert (await hold_of(a))["name"] == "c2"
    assert await refusal(a, consumer="c1") == "subscription_busy"


async def test_nobody_pulls_while_the_arbiter_cannot_be_asked(
    two: list[Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = two
    await subscribe(a, type="exclusive")
    await post(a, "x", partition=1)

    async def refuse(topic: Any, number: int) -> Any:
        raise FencelogError(ErrorCode.OVERLOADED, "too much to do")

    monkeypatch.setattr(a.broker, "partition", refuse)
    assert await refusal(b, consumer="c1") == "overloaded"
    monkeypatch.undo()
    assert len(await pull(b, consumer="c1")) == 1


async def test_other_types_ask_nobody(two: list[Site]) -> None:
    a, b = two
    await subscribe(a, type="failover")
    await post(a, "x", partition=1)
    assert len(await pull(b, consumer="c1")) == 1
    assert await refusal(b, consumer="c2") == ""  # it stands by


@pytest.mark.parametrize("name", ["pull", "seek", "events"])
async def test_an_owner_that_is_gone_leaves_the_outcome_unknown_of_no_append(
    two: list[Site], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    a = two[0]
    await subscribe(a)

    async def gone(topic: Any, partition: int, url: str, work: Any) -> Any:
        raise OwnerLost(url)

    monkeypatch.setattr(a.broker, "while_owner", gone)
    if name == "events":
        answer = await a.http.get(f"{a.sub}/events?partition=1")
    else:
        body = {"to": "latest"} if name == "seek" else {}
        answer = await a.http.post(f"{a.sub}:{name}?partition=1", json=body)
    assert (answer.status_code, answer.json()["code"]) == (504, "state_unknown")


@pytest.mark.parametrize("query", ["", "?partition=1"])
async def test_a_consumer_is_there_until_what_it_has_leased_has_ended(
    two: list[Site], monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """The way to the messages takes longer than the consumer was held for."""
    a, b = two
    await subscribe(a, type="exclusive", lease_ms=100)
    await post(a, "x", partition=1)
    await slow_pulls(b, monkeypatch)
    answer = await ok(await a.http.post(f"{a.sub}:pull{query}", json={"consumer": "c1"}))
    (message,) = answer["messages"]
    log = await b.broker.partition(b.name, 1)
    (used,) = log.subscriptions._in_use.values()
    arbiter = await a.broker.partition(a.name, 0)
    (hold,) = arbiter.subscriptions._in_use.values()
    assert hold._consumers.by_name["c1"].until >= (used.dispatch.leases.next_expiry or inf)
    assert message["partition"] == 1


@pytest.mark.parametrize("query", ["", "?partition=1"])
async def test_who_was_followed_meanwhile_gets_nothing(
    two: list[Site], monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    a, b = two
    await subscribe(a, type="exclusive", lease_ms=50)
    await post(a, "x", partition=1)

    async def follow() -> None:
        async with asyncio.timeout(5):
            long: dict[str, Any] = {"consumer": "c2", "lease_ms": 60_000}
            while await refusal(b, "hold", **long):  # noqa: ASYNC110 - a lease ends by time
                await asyncio.sleep(0.005)

    await slow_pulls(b, monkeypatch, follow)
    assert await refusal(a, query=query, consumer="c1") == "state_unknown"  # it has leases there
    assert (await hold_of(a))["name"] == "c2"
    assert await refusal(a, query=query, consumer="c1") == "subscription_busy"


async def test_an_arbiter_that_is_gone_meanwhile_leaves_the_outcome_unknown(
    two: list[Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = two
    await subscribe(a, type="exclusive", lease_ms=50)
    await post(a, "x", partition=1)
    arbiter = await a.broker.partition(a.name, 0)

    async def gone(*given: Any, **conditions: Any) -> None:
        raise FencelogError(ErrorCode.OVERLOADED, "too much to do")

    async def go() -> None:
        await asyncio.sleep(0.1)
        monkeypatch.setattr(arbiter.subscriptions, "hold", gone)

    await slow_pulls(b, monkeypatch, go)
    assert await refusal(a, consumer="c1") == "state_unknown"


async def slow_pulls(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0.12),
) -> None:
    """Messages of partition 1 come only after that."""
    log = await site.broker.partition(site.name, 1)
    real = log.subscriptions.pull

    async def slow(*given: Any, **conditions: Any) -> Any:
        await meanwhile()
        return await real(*given, **conditions)

    monkeypatch.setattr(log.subscriptions, "pull", slow)
