"""Clients that have dead letters replayed, over HTTP through any broker, and the end of that."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from fencelog.api.http.asgi import JSON
from fencelog.api.http.problems import error_from_problem
from fencelog.api.subscriptions.dead_letters import dead_letter_topic, replay_name
from fencelog.broker.broker import Broker
from fencelog.broker.read.stored import ReadLimits
from fencelog.broker.registry.subscription_config import SubscriptionInfo
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message, decode_batch
from tests.sim.letters.history import LetterHistory
from tests.sim.oracle.history import History
from tests.sim.topics.brokers import TOPIC, Unanswered, Unreached
from tests.sim.topics.clients import RETRY_PAUSE_S, Clients
from tests.sim.topics.http import Broken, NoConnection, Refused, Request, Silent
from tests.sim.topics.posts import CONNECT_S
from tests.sim.topics.reads import READ_BYTES

PAUSE_S = 0.3
"""The longest pause between two replays."""

LIMITS = (1, 5, 100)


class Replayer:
    """A client in a process of its own."""

    def __init__(
        self, machine: str, info: SubscriptionInfo, clients: Clients, history: History
    ) -> None:
        self._info = info
        self._clients = clients
        self._history = history
        self._chance = clients.chance(machine)

    async def run(self) -> None:
        """Replay now and then until the safety phase ends."""
        while not self._clients.is_over.is_set():
            await asyncio.sleep(self._chance.uniform(0, PAUSE_S))
            await self._replay(self._chance.choice(LIMITS))

    async def finish(self, letters: LetterHistory) -> None:
        """Replay until nothing is left; then have the oracle look at the dead letter topic."""
        while True:
            await self._replay(max(LIMITS))
            machine = self._clients.some_broker(self._chance)
            try:
                is_there = bool(letters.places)
                found = await machine.ask(partial(_read_if_replayed, self._info, is_there))
            except (FencelogError, Unreached, Unanswered):
                found = None
            if found is not None:
                letters.check_topic(found)
                return
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _replay(self, limit: int) -> None:
        path = f"/v1/topics/{TOPIC}/subscriptions/{self._info.name}:replay-dead-letters"
        content = msgspec.json.encode({"limit": limit})
        request = Request("POST", path, b"", [(b"content-type", JSON)], content)
        target = self._clients.some_broker(self._chance).name
        timeout_s = self._clients.timeout_s(self._chance)
        try:
            answer = await self._clients.front.http.ask(
                target, request, connect_s=CONNECT_S, answer_s=timeout_s
            )
        except (Refused, NoConnection, Broken, Silent):
            self._history.counts["replay: no answer"] += 1
            return
        if answer.is_whole:
            what = "done"
            if answer.status != 200:
                what = error_from_problem(answer.body, answer.status).code.slug
            self._history.counts[f"replay: {what}"] += 1


async def _read_if_replayed(
    info: SubscriptionInfo, is_there: bool, broker: Broker
) -> list[tuple[int, Message]] | None:
    """Return all dead letters; None as long as some of them have not been replayed, or the broker's
    metadata lags: it does not know their topic yet, which ``is_there``."""
    try:
        topic = await broker.topic(dead_letter_topic(TOPIC, info))
    except FencelogError as error:
        if error.code is ErrorCode.TOPIC_NOT_FOUND:
            return None if is_there else []
        raise
    log = await broker.partition(topic.name, 0)
    await log.check_owner()
    registered = await broker.subscriptions.get(topic.topic_id, replay_name(info.subscription_id))
    stats = log.subscriptions.stats(registered.info.subscription_id)
    if stats["acked_to"] < log.tail_offset:
        return None
    found: list[tuple[int, Message]] = []
    while len(found) < log.tail_offset:
        result = await log.read(len(found), ReadLimits(100, READ_BYTES))
        for batch in result.entries:
            found += enumerate(decode_batch(batch.batch), batch.base_offset)
    return found
