"""What a pull has leased whose answer was lost: it is given back by the consumer's name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fencelog.api.client import FencelogClient
from fencelog.api.client.subscription import LeasedMessage
from fencelog.api.http.waits import Waits
from fencelog.api.routing.forward import Forwarder
from fencelog.api.server import app
from fencelog.broker.read.stored import ReadLimits
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.subscription_service import (
    Site,
    ids,
    post,
    pull,
    pull_all,
    running,
    subscribe,
    verb,
)
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


def places(messages: Sequence[dict[str, Any]]) -> list[tuple[int, str, int]]:
    return sorted((m["partition"], m["text"], m["attempt"]) for m in messages)


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
async def test_everything_comes_again_in_order(two: list[Site], kind: str) -> None:
    a, b = two
    await subscribe(a, type=kind)
    for partition in (0, 1):
        await post(a, *"xyz", partition=partition)
    lost = await pull_all(a, consumer="c", max=2)
    assert len(lost) == 6
    acked = next(m for m in lost if (m["partition"], m["text"]) == (1, "x"))
    await verb(b, "ack", ack_ids=[acked["ack_id"]])
    for _ in range(2):
        assert await verb(b, "nack", consumer="c", failed=False) == {"stale": []}
    found = await pull_all(b, consumer="c", max=2)
    assert places(found) == [(0, "x", 1), (0, "y", 1), (0, "z", 1), (1, "y", 1), (1, "z", 1)]
    for partition in (0, 1):
        offsets = [m["offset"] for m in found if m["partition"] == partition]
        assert offsets == sorted(offsets)
    assert await verb(a, "ack", ack_ids=ids(lost)) == {"acked": 6, "stale": []}


async def test_nothing_of_another_consumer_comes_again(two: list[Site]) -> None:
    a, b = two
    await subscribe(a, type="key_shared")
    await post(a, "x", headers={"Fencelog-Key": "x"})
    mine = await pull(a, consumer="mine")
    await post(a, "y", partition=1, headers={"Fencelog-Key": "y"})
    assert places(await pull(b, consumer="other")) == [(1, "y", 1)]
    assert await verb(b, "nack", consumer="other", failed=False) == {"stale": []}
    assert await verb(a, "extend", ack_ids=ids(mine), lease_ms=9000) == {"stale": []}
    assert places(await pull_all(a, consumer="mine")) == [(1, "y", 1)]


async def test_one_partition_can_be_named(two: list[Site]) -> None:
    a, b = two
    await subscribe(a, type="failover")
    for partition in (0, 1):
        await post(a, "x", partition=partition)
    await pull_all(a, consumer="c")
    answer = await b.http.post(f"{b.sub}:nack?partition=1", json={"consumer": "c", "failed": False})
    assert answer.json() == {"stale": []}
    assert places(await pull_all(a, consumer="c")) == [(1, "x", 1)]


@pytest.mark.parametrize(
    "body",
    [
        {"consumer": "c"},
        {"consumer": "c", "ack_ids": ["1-1-0-0-1-00000000"], "failed": False},
        {"failed": False},
        {"consumer": "c" * 129, "failed": False},
        {"consumer": "c", "failed": False, "delay_ms": 0},
        {"consumer": "", "failed": False},
    ],
)
async def test_failures_are_named_one_by_one(one: Site, body: dict[str, Any]) -> None:
    await subscribe(one)
    answer = await one.http.post(f"{one.sub}:nack", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


@pytest.mark.parametrize(
    ("texts", "code"),
    [("xx", "state_unknown"), ("x x", "state_unknown"), (" x", "draining"), ("  ", "draining")],
)
async def test_a_pull_that_a_closing_broker_ends_says_whether_it_may_have_leased(
    monkeypatch: pytest.MonkeyPatch, texts: str, code: str
) -> None:
    """It has, where it took messages of one partition, and was reading another one."""
    made: list[Waits] = []

    class Noted(Waits):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(app, "Waits", Noted)
    async with running() as service:
        site = await service.site("a")
        one, *_ = await service.topic([site] * len(texts))
        await subscribe(one)
        for partition, text in enumerate(texts):
            if text != " ":
                await post(one, text, partition=partition)
        reading = asyncio.Event()

        async def wait(offset: int, limits: ReadLimits) -> None:
            reading.set()
            await asyncio.Event().wait()

        slow = await one.broker.partition(one.name, len(texts) - 1)
        monkeypatch.setattr(slow._reader, "read", wait)
        pulling = asyncio.create_task(one.http.post(f"{one.sub}:pull", json={"wait": 20}))
        if texts == "  ":
            await until(lambda: bool(slow.subscriptions._waiting))
        else:
            await reading.wait()
        for waits in made:
            waits.close()
        assert (await pulling).json()["code"] == code
        stats = (await one.http.get(f"{one.sub}/stats")).json()["partitions"]
        assert sum(each["outstanding"] for each in stats) == int(code == "state_unknown")


class Losing(FencelogClient):
    """Loses the answers of so many pulls, after their messages were leased."""

    losses = 0

    async def pull(self, *args: Any, **options: Any) -> list[LeasedMessage]:
        found = await super().pull(*args, **options)
        if self.losses and found:
            self.losses -= 1
            raise FencelogError(ErrorCode.STATE_UNKNOWN, "the answer was lost")
        return found


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
async def test_a_consumer_gets_everything_in_order(two: list[Site], kind: str) -> None:
    a, b = two
    await subscribe(a, type=kind)
    for partition in (0, 1):
        await post(a, *"abcdef", partition=partition)
    seen: dict[int, list[int]] = {0: [], 1: []}
    client = Losing([b.url, a.url])
    async with (
        client,
        client.consume(str(a.name), "s", max_messages=2) as messages,
        asyncio.timeout(20),
    ):
        for _ in range(12):
            client.losses = 1
            message = await anext(messages)
            seen[message.partition].append(message.offset)
            messages.ack(message)
    assert seen == {0: [*range(6)], 1: [*range(6)]}


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
@pytest.mark.parametrize("near", ["", "x"])
async def test_an_owner_whose_answer_is_lost_is_not_passed_over(
    two: list[Site], monkeypatch: pytest.MonkeyPatch, kind: str, near: str
) -> None:
    """What another partition has is no answer: the next pull would go on behind what it leased."""
    a, _ = two
    await subscribe(a, type=kind)
    await post(a, *"yz", partition=1)
    await post(a, *near, partition=0)
    asked: list[str] = []
    ask = Forwarder.ask

    async def lost(
        self: Forwarder, method: str, url: str, path: str, *args: Any, **options: Any
    ) -> bytes:
        answer = await ask(self, method, url, path, *args, **options)
        if path.endswith(":pull"):
            asked.append(path)
            if len(asked) == 1:
                raise FencelogError(options["lost"], "the answer was lost")
        return answer

    monkeypatch.setattr(Forwarder, "ask", lost)
    codes = []
    while not asked:
        answer = await a.http.post(f"{a.sub}:pull", json={"consumer": "c", "max": 1})
        codes.append(answer.json().get("code"))
    assert codes[-1] == "state_unknown"
    assert await verb(a, "nack", consumer="c", failed=False) == {"stale": []}
    found = await pull_all(a, consumer="c", max=1)
    assert places(found) == sorted([*((0, text, 1) for text in near), (1, "y", 1), (1, "z", 1)])
    assert [m["text"] for m in found if m["partition"] == 1] == ["y", "z"]
