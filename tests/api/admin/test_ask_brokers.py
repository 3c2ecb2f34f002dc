"""The figures of brokers, in virtual time: what is there is answered at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from fencelog.api.admin import ask_brokers
from fencelog.api.admin.ask_brokers import FoundStats, StatsOfBrokers
from fencelog.broker import limits
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.virtual_time import VirtualTimeLoop

Json = dict[str, Any]

POLL_S = 3
NEVER_S = float("inf")


class Brokers:
    """Brokers that answer with a number, each after its own time; infinite: never, None: it
    refuses."""

    def __init__(self, **delays_s: float | None) -> None:
        self.delays_s: dict[str, float | None] = delays_s
        self.asked: list[str] = []
        self.stats = StatsOfBrokers("own", self._registered, self._ask)

    def _registered(self) -> list[dict[str, Any]]:
        return [{"broker_id": each, "url": f"http://{each}"} for each in ("own", *self.delays_s)]

    async def _ask(self, broker_id: str, url: str, verb: str, body: Json | None) -> Json:
        assert (url, verb, body) == (f"http://{broker_id}", "/stats", None)
        self.asked.append(broker_id)
        delay_s = self.delays_s[broker_id]
        if delay_s is None:
            raise FencelogError(ErrorCode.NO_OWNER, "refused")
        if delay_s == NEVER_S:
            await asyncio.Event().wait()
        await asyncio.sleep(delay_s)
        return {"asked": self.asked.count(broker_id)}

    async def get(self) -> FoundStats[int]:
        return await self.stats.get(0, "/stats", lambda answer: int(answer["asked"]))


@pytest.fixture(autouse=True)
def shipped_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ADMIN_ANSWER_S", "STATS_WAIT_S", "KEPT_STATS_S"):
        monkeypatch.setattr(ask_brokers, name, getattr(limits, name))


def run(test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(test)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_a_broker_that_never_answers_holds_nobody_up() -> None:
    async def test() -> None:
        brokers = Brokers(b=0.001, c=NEVER_S)
        for wait_s in (limits.STATS_WAIT_S, 0.001, 0.001):
            began_s = now_s()
            found = await brokers.get()
            assert now_s() - began_s == pytest.approx(wait_s)
            assert (set(found.of_brokers), found.unanswered) == ({"own", "b"}, ["c"])
            await asyncio.sleep(POLL_S)

    run(test())


def test_figures_that_come_late_are_there_the_next_time() -> None:
    async def test() -> None:
        brokers = Brokers(b=5 * limits.STATS_WAIT_S)
        assert (await brokers.get()).unanswered == ["b"]
        await asyncio.sleep(POLL_S)
        assert (await brokers.get()).of_brokers == {"own": 0, "b": 1}
        await asyncio.sleep(POLL_S)
        assert (await brokers.get()).of_brokers == {"own": 0, "b": 2}
        # Nobody has asked for so long that the last figures tell nothing.
        await asyncio.sleep(limits.KEPT_STATS_S)
        assert (await brokers.get()).unanswered == ["b"]

    run(test())


@pytest.mark.parametrize("delay_s", [NEVER_S, None])
def test_figures_of_a_broker_that_goes_silent_are_not_known_any_more(delay_s: float | None) -> None:
    async def test() -> None:
        brokers = Brokers(b=0)
        assert (await brokers.get()).of_brokers == {"own": 0, "b": 1}
        brokers.delays_s["b"] = delay_s
        await brokers.get()
        await asyncio.sleep(POLL_S)
        found = await brokers.get()
        assert (found.of_brokers, found.unanswered) == ({"own": 0}, ["b"])
        assert found.last_known == {"b": 1}
        brokers.delays_s["b"] = 0
        await asyncio.sleep(POLL_S)
        await brokers.get()
        await asyncio.sleep(POLL_S)
        found = await brokers.get()
        assert (found.unanswered, found.last_known) == ([], {})

    run(test())


def test_who_asks_at_the_same_time_shares_the_question() -> None:
    async def test() -> None:
        brokers = Brokers(b=0.01)
        first, second = await asyncio.gather(brokers.get(), brokers.get())
        assert first == second
        assert brokers.asked == ["b"]

    run(test())


def test_a_broker_that_is_gone_is_forgotten() -> None:
    async def test() -> None:
        brokers = Brokers(b=0)
        await brokers.get()
        del brokers.delays_s["b"]
        found = await brokers.get()
        assert (found.of_brokers, found.unanswered, found.last_known) == ({"own": 0}, [], {})
        brokers.delays_s["b"] = NEVER_S
        assert (await brokers.get()).last_known == {}

    run(test())
