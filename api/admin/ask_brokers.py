"""The same question to every broker: what one does not answer in time is named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from fencelog.api.routing.peers import LinkPeers, broker_path
from fencelog.broker.limits import ADMIN_ANSWER_S, KEPT_STATS_S, STATS_WAIT_S
from fencelog.ledgers.errors import FencelogError

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker

T = TypeVar("T")
Json = dict[str, Any]

Ask = Callable[[str, str, str, Json | None], Awaitable[Json]]
"""Asks a broker by its id and its URL, for what a verb of its path names, with a body if need be:
None: a GET. Raises FencelogError."""


async def ask_brokers(
    broker: Broker, peers: LinkPeers, own: T, verb: str, read: Callable[[Json], T]
) -> tuple[dict[str, T], list[str]]:
    """Return the answers of all brokers by their ids, and the brokers that do not answer within
    ADMIN_ANSWER_S. ``own``: that of ``broker``, which is not asked; ``verb``: of the others' path;
    ``read``: what makes a value of an answer, or raises ValueError."""
    ask = asking(peers)
    found = {broker.config.broker_id: own}
    unanswered: list[str] = []

    async def ask_one(broker_id: str, url: str) -> None:
        answer = await _answer(ask, broker_id, url, verb, None, read)
        if answer is None:
            unanswered.append(broker_id)
        else:
            found[broker_id] = answer.value

    async with asyncio.TaskGroup() as group:
        for each in broker.brokers():
            if each["broker_id"] not in found:
                group.create_task(ask_one(each["broker_id"], each["url"]))
    return found, sorted(unanswered)


def asking(peers: LinkPeers) -> Ask:
    """Return what asks brokers over their links."""

    async def ask(broker_id: str, url: str, verb: str, body: Json | None) -> Json:
        method = "GET" if body is None else "POST"
        return await peers.ask(method, url, broker_path(broker_id, verb), body)

    return ask


class _Answer(NamedTuple, Generic[T]):
    value: T


async def _answer(
    ask: Ask, broker_id: str, url: str, verb: str, body: Json | None, read: Callable[[Json], T]
) -> _Answer[T] | None:
    """Return the answer of one broker; None: there is none, or it cannot be read."""
    try:
        async with asyncio.timeout(ADMIN_ANSWER_S):
            return _Answer(read(await ask(broker_id, url, verb, body)))
    except (FencelogError, TimeoutError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class FoundStats(Generic[T]):
    """The stats that are there at once. ``of_brokers``: by their ids; ``unanswered``: brokers whose
    stats are not known yet; ``last_known``: what these have said at last, if they ever
    answered."""

    of_brokers: dict[str, T]
    unanswered: list[str]
    last_known: dict[str, T]


@dataclass(slots=True)
class _Asked:
    """A question to one broker, which is asked again and again. ``task``: while it is in flight;
    ``answer``: the last one, at ``since_s``; ``is_current``: the broker has answered since."""

    url: str
    task: asyncio.Task[None] | None = None
    answer: _Answer[Any] | None = None
    since_s: float = float("-inf")
    is_current: bool = False
    used_s: float = 0.0


class StatsOfBrokers:
    """The figures that lists show of every broker. A list waits STATS_WAIT_S for them and not at
    all for a broker that was silent last time: the question goes on, and its answer is there for
    whoever asks next. Questions of the same kind to one broker are asked once at a time."""

    def __init__(
        self, own_id: str, brokers: Callable[[], Sequence[Mapping[str, Any]]], ask: Ask
    ) -> None:
        self._own_id = own_id
        self._brokers = brokers
        self._ask = ask
        self._asked: dict[tuple[str, Hashable], _Asked] = {}
        self._silent: set[str] = set()

    async def get(
        self,
        own: T,
        verb: str,
        read: Callable[[Json], T],
        *,
        body: Json | None = None,
        key: Hashable = None,
    ) -> FoundStats[T]:
        """Return the figures that are there. ``own``: those of this broker, which is not asked;
        ``verb`` and ``body``: the question, None: a GET; ``read``: what makes a value of an answer,
        or raises ValueError; ``key``: what tells questions with the same verb apart."""
        now_s = asyncio.get_running_loop().time()
        others = {
            each["broker_id"]: str(each["url"])
            for each in self._brokers()
            if each["broker_id"] != self._own_id
        }
        self._forget(others, now_s)
        asked: dict[str, _Asked] = {}
        for broker_id, url in others.items():
            each = self._asked.setdefault((broker_id, (verb, key)), _Asked(url))
            each.url, each.used_s = url, now_s
            if each.task is None:
                question = self._renew(each, broker_id, verb, body, read)
                each.task = asyncio.create_task(question)
            asked[broker_id] = each
        await self._wait(asked)
        return _sorted_out(own, self._own_id, asked)

    async def _wait(self, asked: Mapping[str, _Asked]) -> None:
        tasks = {
            each.task: broker_id
            for broker_id, each in asked.items()
            if each.task is not None and broker_id not in self._silent
        }
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=STATS_WAIT_S)
            self._silent.update(tasks[task] for task in late)

    async def _renew(
        self,
        each: _Asked,
        broker_id: str,
        verb: str,
        body: Json | None,
        read: Callable[[Json], Any],
    ) -> None:
        try:
            answer = await _answer(self._ask, broker_id, each.url, verb, body, read)
        finally:
            each.task = None
        each.is_current = answer is not None
        if answer is not None:
            each.answer = answer
            each.since_s = asyncio.get_running_loop().time()
            self._silent.discard(broker_id)

    def _forget(self, others: Mapping[str, str], now_s: float) -> None:
        """Forget brokers that are gone, and questions that nobody asks any more."""
        self._silent &= others.keys()
        for place, each in list(self._asked.items()):
            is_used = now_s - each.used_s < KEPT_STATS_S
            if each.task is None and (place[0] not in others or not is_used):
                del self._asked[place]


def _sorted_out(own: T, own_id: str, asked: Mapping[str, _Asked]) -> FoundStats[T]:
    now_s = asyncio.get_running_loop().time()
    found = {own_id: own}
    last_known: dict[str, T] = {}
    for broker_id, each in asked.items():
        if each.answer is None:
            continue
        is_recent = each.is_current and now_s - each.since_s < KEPT_STATS_S
        (found if is_recent else last_known)[broker_id] = each.answer.value
    unanswered = sorted(broker_id for broker_id in asked if broker_id not in found)
    return FoundStats(found, unanswered, last_known)
