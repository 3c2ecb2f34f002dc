"""HTTP between clients and brokers: connections that are refused, cannot be made, break before a
request is taken or after it, and answers that never come. Brokers ask each other over links
(``network/broker_links.py``).

A request runs in the broker's process, as a task of its own that goes on when nobody waits for it
any more, as under a real server. What an answer looks like on the wire is left out; it is lost as
a whole, or breaks off after its head.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fencelog.api.http.asgi import AsgiApp, Event, RawHeaders, Receive, Scope, Send
from fencelog.api.http.request_ids import RequestIds
from fencelog.api.produce.append_headers import appended_status
from fencelog.api.produce.single import receipt
from fencelog.api.routing.link_frames import FORWARDED
from fencelog.api.server.app import Application
from fencelog.broker.append.once import is_routed_by_key
from fencelog.ledgers.errors import Effects, FencelogError
from tests.sim.engine.engine import Engine
from tests.sim.engine.host import SimHost
from tests.sim.engine.process import Process, current_process
from tests.sim.oracle.call_history import CALL, Call

if TYPE_CHECKING:
    from tests.sim.network.transport import SimTransport
    from tests.sim.topics.brokers import BrokerMachine

SHUTDOWN_S = 3.0
"""The time that requests in flight get when a server closes, as in ``api.serve``."""

REUSED = 0.7
"""The share of requests that use a connection which is open already."""


IS_FORWARDED: ContextVar[bool] = ContextVar("IS_FORWARDED", default=False)
"""True if the request that is being served was forwarded by another broker."""


class Refused(Exception):
    """The error of a connection that was refused. Nothing was sent."""


class NoConnection(Exception):
    """None could be made, for another reason. Nothing was sent."""


class Broken(Exception):
    """The connection was lost after the request went out. Nobody knows what became of it."""


class Silent(Exception):
    """No answer came in time."""


@dataclass(slots=True)
class Answer:
    """``is_whole``: False for one that broke off after its head."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: bytes
    headers: RawHeaders
    body: bytes
    call: Call | None = None
    """The call that it is a part of."""

    @property
    def scope(self) -> Scope:
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": self.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in self.headers],
            "client": None,
            "server": None,
        }


class Door:
    """The listening end of a broker's process. ``build``: makes the application, at the first
    request; ``links``: what else is closed with it."""

    def __init__(
        self,
        process: Process,
        build: Callable[[], AsgiApp],
        links: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.process = process
        self.is_open = True
        self.waiting: dict[asyncio.Future[Answer | None], None] = {}
        """What callers of other processes wait for."""
        self._build = build
        self._close_links = links
        self._app: AsgiApp | None = None
        self._serving: set[asyncio.Task[None]] = set()

    def take(self, request: Request, answered: Callable[[Answer | None], None]) -> asyncio.Event:
        """Serve it; ``answered`` is called with what is to be sent, None if the connection is
        closed instead. Set what is returned when the caller has gone."""
        gone = asyncio.Event()
        task = self.process.spawn(self._serve(request, answered, gone))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return gone

    async def close(self) -> None:
        """Accept no more; let what is under way end, and cut off what does not."""
        self.is_open = False
        if self._serving:
            await asyncio.wait(self._serving, timeout=SHUTDOWN_S)
        for task in list(self._serving):
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)
        if self._close_links is not None:
            await self._close_links()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app()(scope, receive, send)

    def app(self) -> AsgiApp:
        """The application of the process."""
        if self._app is None:
            self._app = self._build()
        return self._app

    async def _serve(
        self, request: Request, answered: Callable[[Answer | None], None], gone: asyncio.Event
    ) -> None:
        parts: list[Event] = [{"type": "http.request", "body": request.body, "more_body": False}]
        answer = Answer(0, [], b"", is_whole=False)

        async def receive() -> Event:
            if parts:
                return parts.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(event: Event) -> None:
            if event["type"] == "http.response.start":
                answer.status = event["status"]
                answer.headers = list(event["headers"])
            else:
                answer.body += event["body"]
                answer.is_whole = not event.get("more_body", False)

        CALL.set(request.call)
        IS_FORWARDED.set(any(name == FORWARDED for name, _ in request.scope["headers"]))
        try:
            at_once = await posted_at_once(self.app(), request)
            if at_once is None:
                await self.serve(request.scope, receive, send)
            else:
                answer = at_once
        finally:
            answered(answer if answer.status else None)


async def posted_at_once(app: Any, request: Request) -> Answer | None:
    """The answer to a single post that the connection itself passes to another broker, as
    ``HttpProtocol`` does; None for one that takes the way of all requests."""
    scope, post = request.scope, None
    if isinstance(app, Application) and request.method == "POST":
        post = app.posts.single_post(
            b"%b?%b" % (scope["raw_path"], request.query) if request.query else scope["raw_path"],
            scope["headers"],
        )
    if post is None or post.partition is None or is_routed_by_key(post.conditions):
        return None
    future = app.append_elsewhere(post, int(post.partition), request.body)
    if future is None:
        return None
    try:
        result = await future
    except FencelogError as error:
        if error.code.effects is Effects.NONE:
            return None
        status, _, body, headers = app.problem_answer(error, "POST", request.path)
        return Answer(status, headers, body)
    return Answer(*appended_status(result.duplicate), receipt(result))


BREAKS = ("before", "amid", "after", "head")
"""The moments at which a connection breaks: the request has not arrived; it is being served; its
answer was in flight, or the rest of it."""

AMID_S = 0.02


class Http:
    """All of it in one history. ``breaking``, ``refusing`` and ``unreachable``: the shares of the
    requests to a machine, by its name, whose connection breaks, is refused, cannot be made;
    ``cutting``: of what comes from it over links, within which these break."""

    def __init__(self, engine: Engine, machines: Mapping[str, BrokerMachine]) -> None:
        self._loop = engine.loop
        self._network = engine.network
        self._machines = machines
        self._chance = engine.random("http")
        self.request_ids = RequestIds(SimHost(engine, "requests"))
        self._kept: dict[tuple[Process, str], Door] = {}
        """Connections that a process has open, as far as it knows."""
        self.calls: dict[str, Call] = {}
        """By name: those that brokers ask each other for."""
        self.breaking: dict[str, float] = {}
        self.refusing: dict[str, float] = {}
        self.unreachable: dict[str, float] = {}
        self.cutting: dict[str, float] = {}

    def heal(self) -> None:
        for shares in (self.breaking, self.refusing, self.unreachable, self.cutting):
            shares.clear()

    async def ask(
        self, target: str, request: Request, *, connect_s: float, answer_s: float
    ) -> Answer:
        """Send from the running process. Raises Refused, NoConnection, Broken, Silent."""
        here = current_process()
        door = self._kept.get((here, target))
        if door is None or not self._seems_open(door) or self._chance.random() > REUSED:
            door = await self._connect(here.machine, target, connect_s)
            self._kept[here, target] = door
        how = self._chance.choice(BREAKS) if self.is_due(self.breaking, target) else ""
        try:
            async with asyncio.timeout(answer_s):
                return await self._exchange(here.machine, door, request, how)
        except TimeoutError:
            raise Silent(target) from None

    def is_due(self, shares: dict[str, float], target: str) -> bool:
        """Tell whether a fault befalls a request to that machine."""
        return target in shares and self._chance.random() < shares[target]

    def break_within(self, end: SimTransport, seconds: float) -> None:
        """Reset a connection, soon."""
        delay_us = int(self._chance.uniform(0, seconds) * 1e6)
        self._loop.at(self._loop.now_us + delay_us, self._network.reset_one, end)

    def length_within(self, data: bytes) -> int:
        """Return how much of these bytes arrives."""
        return self._chance.randrange(len(data))

    def _seems_open(self, door: Door) -> bool:
        """A host that has lost its power has closed nothing."""
        process = door.process
        return door.is_open if process.is_alive else self._network.is_down(process.machine)

    async def _connect(self, here: str, target: str, connect_s: float) -> Door:
        if self.is_due(self.unreachable, target):
            raise NoConnection(target)
        try:
            async with asyncio.timeout(connect_s):
                await self._way(here, target)
                door = self._machines[target].door
                await self._way(target, here)
        except TimeoutError:
            raise NoConnection(target) from None
        if door is None or not door.is_open or self.is_due(self.refusing, target):
            raise Refused(target)
        return door

    async def _exchange(self, here: str, door: Door, request: Request, how: str) -> Answer:
        target = door.process.machine
        await self._way(here, target)
        if how == "before" or not door.process.is_alive or not door.is_open:
            await self._way(target, here)
            raise Broken(target)
        outcome: asyncio.Future[Answer | None] = self._loop.create_future()

        def came(answer: Answer | None) -> None:
            if not outcome.done():
                outcome.set_result(answer)

        def send(answer: Answer | None) -> None:
            if answer is not None and how == "head":
                answer.is_whole = False
            self._network.carry(target, here, came, None if how == "after" else answer)

        gone = door.take(request, send)
        door.waiting[outcome] = None
        if how == "amid":
            delay_us = int(self._chance.uniform(0, AMID_S) * 1e6)
            self._loop.at(self._loop.now_us + delay_us, came, None)
        try:
            answer = await outcome
        finally:
            del door.waiting[outcome]
            self._network.carry(here, target, gone.set)
        if answer is None:
            raise Broken(target)
        return answer

    def died(self, door: Door) -> None:
        """Its process has. Without power, nobody is told."""
        target = door.process.machine
        if not self._network.is_down(target):
            for outcome in door.waiting:
                self._network.carry(target, target, partial(_close, outcome))

    async def _way(self, source: str, target: str) -> None:
        arrived: asyncio.Future[None] = self._loop.create_future()

        def came() -> None:
            if not arrived.done():
                arrived.set_result(None)

        self._network.carry(source, target, came)
        await arrived


def _close(outcome: asyncio.Future[Answer | None]) -> None:
    if not outcome.done():
        outcome.set_result(None)
