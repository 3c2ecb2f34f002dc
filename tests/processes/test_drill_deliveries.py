"""The arithmetic of deliveries, and consumers against a service that loses answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from fencelog.api.client import FencelogClient
from fencelog.api.drills.harness.consumers import DrillConsumers
from fencelog.api.drills.harness.deliveries import Deliveries, DeliveryAccount
from fencelog.api.drills.harness.report import DrillReport
from fencelog.ledgers.errors import ErrorCode, FencelogError

LOG = [b"a", b"b", b"c"]


def delivered(*offsets: int, asked_at: float = 0) -> Deliveries:
    seen = Deliveries()
    for offset in offsets:
        seen.delivered(offset, LOG[offset], asked_at=asked_at)
    return seen


def test_every_message_was_delivered() -> None:
    seen = delivered(0, 2, 1)
    seen.acknowledged([0, 1], now=1)
    assert seen.compare(LOG) == DeliveryAccount(delivered=3, acknowledged=2)
    assert seen.compare(LOG).is_clean


def test_a_message_that_nobody_got() -> None:
    found = delivered(0, 2).compare(LOG)
    assert (found.missed, found.is_clean) == (1, False)


def test_what_was_not_acknowledged_may_come_again() -> None:
    found = delivered(0, 1, 2, 1).compare(LOG)
    assert (found.redelivered, found.is_clean) == (1, True)


def test_a_request_from_before_the_confirmation_may_still_be_answered() -> None:
    seen = delivered(0, 1, 2)
    seen.acknowledged([1], now=5.0)
    seen.delivered(1, b"b", asked_at=4.9)
    assert seen.compare(LOG).is_clean


def test_an_acknowledgement_that_was_confirmed_is_not_forgotten() -> None:
    seen = delivered(0, 1, 2)
    seen.acknowledged([1], now=5.0)
    seen.acknowledged([1], now=9.0)
    seen.delivered(1, b"b", asked_at=5.0)
    found = seen.compare(LOG)
    assert (found.forgotten, found.is_clean) == (1, False)


def test_other_bytes() -> None:
    seen = delivered(0, 1, 2)
    seen.delivered(0, b"x", asked_at=0)
    assert seen.compare(LOG).different == 1
    assert delivered(0, 1, 2).compare([b"a", b"x"]).different == 2


class Service:
    """Hands the whole log out, and again what was not acknowledged; loses the answers that it is
    told to lose."""

    def __init__(self, lost: Sequence[str]) -> None:
        self._lost = list(lost)
        self._acknowledged: set[str] = set()

    async def create_subscription(self, *names: str, **settings: Any) -> None: ...

    async def pull(self, *names: str, **settings: Any) -> list[Any]:
        await asyncio.sleep(0.001)
        left = [
            SimpleNamespace(offset=offset, value=value, ack_id=str(offset))
            for offset, value in enumerate(LOG)
            if str(offset) not in self._acknowledged
        ]
        self._answer("pull")
        return left

    async def ack(self, topic: str, subscription: str, ack_ids: Sequence[str]) -> list[str]:
        self._acknowledged.update(ack_ids)
        self._answer("ack")
        return []

    def _answer(self, what: str) -> None:
        if what in self._lost:
            self._lost.remove(what)
            raise FencelogError(ErrorCode.STATE_UNKNOWN, "the answer was lost")


async def test_consumers_ask_until_everything_is_confirmed() -> None:
    service = cast(FencelogClient, Service(["pull", "ack", "ack"]))
    consumers = DrillConsumers([service], "default/drill", timeout_s=5)
    report = DrillReport("kill-broker")
    async with consumers.running():
        await consumers.finish(LOG)
    consumers.report(LOG, report)
    assert report.broken == []
    assert set(consumers.deliveries.confirmed_at) == {0, 1, 2}


async def test_what_consumers_did_not_get_is_reported() -> None:
    consumers = DrillConsumers([], "default/drill", timeout_s=5)
    report = DrillReport("kill-broker")
    consumers.deliveries.delivered(0, b"x", asked_at=0)
    consumers.report(LOG, report)
    assert report.broken == [
        "2 messages were never delivered",
        "1 deliveries of other bytes",
        "3 messages could not be acknowledged to the end",
    ]
