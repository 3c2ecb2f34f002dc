"""The messages in flight between clients, bookies and the metadata store.

A message waits until the script delivers, loses or delays it; so does an answer whose request was
only said to ``arrive``. On a route that *flows* nothing waits and nothing is told.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError

STORE = "zk"

Route = tuple[str, str]


class ScriptLoop(asyncio.SelectorEventLoop):
    """Time passes when the script says so."""

    now_s = 0.0
    _ready: deque[asyncio.Handle]  # asyncio's own

    def time(self) -> float:
        return self.now_s

    async def settle(self) -> None:
        """Run until nothing is ready any more."""
        for _ in range(10_000):
            await asyncio.sleep(0)
            if not self._ready:
                return
        raise AssertionError("the story runs in circles")


@dataclass(eq=False)
class Message:
    """A request (``carry_out`` asks the other side) or an answer (it hands one over)."""

    source: str
    destination: str
    text: str
    carry_out: Callable[[], Any]
    reply: asyncio.Future[Any]
    describe: Callable[[Any], str]
    is_write: bool = False
    is_answer: bool = False

    @property
    def route(self) -> Route:
        return self.source, self.destination

    def __str__(self) -> str:
        return f"{self.source} -> {self.destination}  {self.text}"


@dataclass
class ScriptNetwork:
    """Messages under way, oldest first, and what was seen of them (``events``)."""

    loop: ScriptLoop
    events: list[str] = field(default_factory=list)
    waiting: list[Message] = field(default_factory=list)
    flowing: set[Route] = field(default_factory=set)
    held: set[Route] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def tell(self, event: str) -> None:
        self.events.append(event)

    def flows(self, route: Route) -> bool:
        return route in self.flowing or (STORE in route and route not in self.held)

    def send(
        self,
        route: Route,
        text: str,
        ask: Callable[[], Any],
        *,
        describe: Callable[[Any], str] = lambda result: "ok",
        is_write: bool = False,
    ) -> asyncio.Future[Any]:
        """The future answer to a request. ``ask`` returns it, perhaps later, or raises;
        ``describe`` puts it into words."""
        message = Message(*route, text, ask, self.loop.create_future(), describe, is_write)
        message.reply.add_done_callback(_look_at)
        if self.flows(message.route):
            self._start(self._carry_out(message, told=False))
        else:
            self._wait(message)
        return message.reply

    def oldest(self, route: Route) -> Message:
        for message in self.waiting:
            if message.route == route:
                self.waiting.remove(message)
                return message
        raise ValueError(f"nothing is under way {route[0]} -> {route[1]}")

    async def deliver(self, message: Message) -> None:
        """The request is carried out and answered, or the answer is handed over."""
        if message.is_answer:
            message.carry_out()
        else:
            self._start(self._carry_out(message, told=True))
        await self.loop.settle()

    async def arrive(self, message: Message) -> None:
        """The request is carried out; its answer waits."""
        self._start(self._carry_out(message, told=True, hold_answer=True))
        await self.loop.settle()

    async def give_up(self, message: Message) -> None:
        """Time a request out: its sender gets no answer. It may have taken effect."""
        store = STORE in message.route
        code = ErrorCode.REQUEST_TIMEOUT
        if store:
            code = (
                ErrorCode.METADATA_UNKNOWN if message.is_write else ErrorCode.METADATA_UNAVAILABLE
            )
        self._resolve(message, FencelogError(code, f"no answer from {message.destination}"))
        await self.loop.settle()

    async def refuse(self, message: Message, error: FencelogError) -> None:
        """The other side answers with an error, and does nothing else."""
        self.tell(f"{message.destination} -> {message.source}  {error.code.slug}")
        self._resolve(message, error)
        await self.loop.settle()

    async def end(self) -> None:
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _carry_out(self, message: Message, *, told: bool, hold_answer: bool = False) -> None:
        result: Any
        try:
            result = message.carry_out()
            if isinstance(result, Awaitable):
                result = await result
        except FencelogError as error:
            result = error
        answer = Message(
            message.destination,
            message.source,
            result.code.slug if isinstance(result, FencelogError) else message.describe(result),
            lambda: self._resolve(message, result),
            message.reply,
            message.describe,
            message.is_write,
            is_answer=True,
        )
        if hold_answer:
            self._wait(answer)
            return
        if told:
            unheard = " (nobody waits for it)" if message.reply.done() else ""
            self.tell(f"{answer}{unheard}")
        answer.carry_out()

    def _wait(self, message: Message) -> None:
        self.waiting.append(message)
        self.tell(str(message))

    def _resolve(self, message: Message, result: Any) -> None:
        if message.reply.done():
            return
        if isinstance(result, FencelogError):
            message.reply.set_exception(result)
        else:
            message.reply.set_result(result)

    def _start(self, work: Any) -> None:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def _look_at(reply: asyncio.Future[Any]) -> None:
    """A client that died does not fetch its answers; that is no error of the story."""
    if not reply.cancelled():
        reply.exception()
