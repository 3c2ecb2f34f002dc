"""The simulated HTTP, and what the oracle makes of appends that are passed on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from fencelog.broker.append.conditions import AppendFuture
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.sim.engine.engine import Engine
from tests.sim.engine.process import Process
from tests.sim.oracle.history import History
from tests.sim.oracle.log_history import LogHistory
from tests.sim.topics.front import Taken
from tests.sim.topics.http import (
    Answer,
    Broken,
    Door,
    Http,
    NoConnection,
    Refused,
    Request,
    Silent,
)

POST = Request("POST", "/x", b"", [], b"body")


@dataclass
class Server:
    """A machine that answers after a while."""

    process: Process
    door: Door | None = None
    served: list[bytes] = field(default_factory=list)
    takes_s: float = 0.0

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        event = await receive()
        self.served.append(event["body"])
        await asyncio.sleep(self.takes_s)
        await send({"type": "http.response.start", "status": 201, "headers": [(b"a", b"b")]})
        await send({"type": "http.response.body", "body": b"done"})


class World:
    def __init__(self) -> None:
        self.engine = Engine(1)
        self.server = Server(self.engine.start_process("k1"))
        machines: Any = {"k1": self.server}
        self.http = Http(self.engine, machines)
        self.server.door = Door(self.server.process, lambda: self.server.app)

    async def ask(self, answer_s: float = 1.0) -> Answer:
        client = self.engine.start_process("c1")
        return await client.call(self.http.ask("k1", POST, connect_s=0.2, answer_s=answer_s))

    def run(self, work: Any) -> Any:
        return self.engine.run(work, budget_s=60.0)


def test_an_answer_comes_back() -> None:
    world = World()
    answer = world.run(world.ask())
    assert (answer.status, answer.headers, answer.body) == (201, [(b"a", b"b")], b"done")
    assert world.server.served == [b"body"]


def test_what_is_refused_or_not_reached_was_never_served() -> None:
    for shares, raised in (("refusing", Refused), ("unreachable", NoConnection)):
        world = World()
        getattr(world.http, shares)["k1"] = 1.0
        with pytest.raises(raised):
            world.run(world.ask())
        assert world.server.served == []
    world = World()
    world.server.door = None
    with pytest.raises(Refused):
        world.run(world.ask())
    world = World()
    world.engine.network.block("c1", "k1")
    with pytest.raises(NoConnection):
        world.run(world.ask())


def test_a_connection_breaks_before_or_after_the_request_was_taken() -> None:
    served = set()
    for how in ("before", "amid", "after"):
        world = World()
        world.http.breaking["k1"] = 1.0
        world.server.takes_s = 0.05
        chance: Any = world.http._chance
        chance.choice = lambda _, how=how: how
        with pytest.raises(Broken):
            world.run(world.ask())
        served.add((how, len(world.server.served)))
    assert served == {("before", 0), ("amid", 1), ("after", 1)}


def test_a_death_is_heard_of_and_a_power_loss_is_not() -> None:
    for silent, raised in ((False, Broken), (True, Silent)):
        world = World()
        world.server.takes_s = 0.5

        async def dies(world: World = world, silent: bool = silent) -> None:
            assert world.server.door is not None
            door = world.server.door
            world.server.process.on_death(lambda: world.http.died(door))
            asked = asyncio.create_task(world.ask())
            await asyncio.sleep(0.1)
            world.server.process.kill(silent=silent)
            await asked

        with pytest.raises(raised):
            world.run(dies())
        assert world.server.served == [b"body"]


def test_what_is_sent_once_is_taken_once() -> None:
    async def play() -> list[str]:
        log = LogHistory(History(), 0)
        taken = Taken([log])
        sent = log.new(b"a", is_batch=False)
        log.attempted(sent)
        first: AppendFuture = asyncio.get_running_loop().create_future()
        taken.take(log, b"a", "k1", first)
        first.set_exception(FencelogError(ErrorCode.NO_OWNER, "let go"))
        await asyncio.sleep(0)
        second: AppendFuture = asyncio.get_running_loop().create_future()
        taken.take(log, b"a", "k2", second)
        assert log.history.violations == []
        taken.take(log, b"a", "k3", asyncio.get_running_loop().create_future())
        taken.told(log, sent, FencelogError(ErrorCode.NO_OWNER, "nobody"))
        taken.take(log, b"a", "k4", asyncio.get_running_loop().create_future())
        return log.history.violations

    again, refused, *late = asyncio.run(play())
    assert "is passed on again" in again
    assert "is refused (no_owner), an owner has taken it" in refused
    assert "is taken by an owner after it was refused" in late[-1]
