"""Producers: plain ones, and those whose appends are conditional, which they send again until
they know what became of them."""

from __future__ import annotations

import asyncio
from functools import partial

from fencelog.broker.append.conditions import NO_CONDITIONS, AppendConditions
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import (
    RANGE_KEY,
    RANGE_SEQUENCE,
    SequenceRange,
    producer_digest,
)
from tests.sim.oracle.log_history import Sent
from tests.sim.plan.topic_plan import ProducerPlan, Sending
from tests.sim.topics.brokers import Unanswered, Unreached
from tests.sim.topics.clients import RETRY_PAUSE_S, Clients, append_all
from tests.sim.topics.posts import post_all

REPEATS = 0.15
"""The share of appends that are sent again without need: at once, soon, or much later."""

OVERTAKES = 0.05
"""The share of appends that are overtaken by a later one."""

KEYS = (None, b"one", b"two", b"three")


class Producer:
    """One producer of one partition, in a process of its own."""

    def __init__(self, plan: ProducerPlan, clients: Clients) -> None:
        self._plan = plan
        self._clients = clients
        self._chance = clients.chance(plan.machine)
        self._log = clients.logs[plan.partition]
        self._machine = clients.some_broker(self._chance)
        self._number = 0
        self._epoch = 0
        self._sequence = 0
        self._old: list[asyncio.Task[list[FencelogError | None]]] = []
        """What previous epochs still send."""
        self._waiting: list[Sent] = []
        """Of those that are sent again: what is not acknowledged yet."""
        self._done: list[Sent] = []

    async def produce(self) -> None:
        plan, chance = self._plan, self._chance
        await asyncio.sleep(plan.starts_ms / 1000)
        for sending in plan.sendings:
            await asyncio.sleep(sending.pause_ms / 1000)
            if self._clients.is_over.is_set():
                break
            if chance.random() < plan.wanders:
                self._machine = self._clients.some_broker(chance)
            if plan.follows:
                newest = self._clients.newest_owner(self._log)
                if newest is None:
                    continue
                self._machine = newest
            if chance.random() < plan.restarts:
                self._restart()
            if plan.conditions in ("sequence", "key"):
                self._waiting += self._new(sending)
                await self._try()
                await self._repeat()
            else:
                await self._send(self._new(sending))
        while self._waiting:  # healed, it comes to an end
            await self._try()
        if self._old:
            await asyncio.wait(self._old)

    async def _repeat(self) -> None:
        """Send an append again that was acknowledged long ago."""
        if self._done and self._chance.random() < REPEATS:
            await self._send([self._chance.choice(self._done)])

    def _restart(self) -> None:
        """Begin as a new process of the same name: requests in flight are abandoned, and arrive
        late."""
        if self._waiting:
            self._old.append(asyncio.create_task(self._send(list(self._waiting))))
        self._epoch, self._sequence = self._epoch + 1, 0
        self._waiting.clear()
        self._done.clear()

    async def _try(self) -> None:
        """Send all that waits; what is told to be there waits no more."""
        waiting = list(self._waiting)
        acknowledged = max((_end(sent) for sent in self._done), default=0)
        if self._chance.random() < OVERTAKES:
            await self._send(waiting[1:])
        if self._chance.random() < REPEATS:  # impatient: before an answer has come
            errors, _ = await asyncio.gather(self._send(waiting), self._send(waiting))
        else:
            errors = await self._send(waiting)
        if self._chance.random() < REPEATS:  # the answer did not get to the application
            return
        known = 0
        for sent, error in zip(waiting, errors, strict=False):
            if error is None:
                self._waiting.remove(sent)
                self._done.append(sent)
            elif error.code is ErrorCode.SEQUENCE_MISMATCH:
                expected = int(error.extra["expected_sequence"])
                if expected < acknowledged and self._log.producer_limit is not None:
                    self._restart()  # it was forgotten
                    return
                if expected < acknowledged:
                    self._log.violate(
                        17,
                        f"{self._plan.machine}: {acknowledged} acknowledged, {expected} expected",
                    )
                known = max(known, expected)
        for sent in list(self._waiting):
            if _end(sent) <= known:
                sent.is_certain = True
                self._waiting.remove(sent)

    async def _send(self, waiting: list[Sent]) -> list[FencelogError | None]:
        """Return what became of each; nothing is known if no answer came."""
        errors: list[FencelogError | None] = []
        if self._plan.over_http:
            return await self._post(waiting)
        try:
            errors = await self._machine.ask(
                partial(append_all, self._log, waiting),
                timeout_s=self._clients.timeout_s(self._chance),
            )
        except (FencelogError, Unreached, Unanswered) as error:
            self._machine = self._clients.directed(self._chance, error)
        if not errors or any(errors):
            await asyncio.sleep(self._chance.uniform(0, RETRY_PAUSE_S))
        return errors

    async def _post(self, waiting: list[Sent]) -> list[FencelogError | None]:
        """Send as ``_send``, over HTTP: the broker that is asked finds the owner."""
        clients, chance = self._clients, self._chance
        errors = await post_all(clients.front, self._machine.name, self._log, waiting)
        if any(errors):
            if chance.random() < 0.5:
                self._machine = clients.some_broker(chance)
            await asyncio.sleep(chance.uniform(0, RETRY_PAUSE_S))
        return errors

    def _new(self, sending: Sending) -> list[Sent]:
        made: list[Sent] = []
        for size in sending.sizes:
            name = f"{self._plan.machine}/{self._number}"
            payloads = [f"{name}.{place}".encode() for place in range(max(1, size))]
            made.append(
                self._log.new(
                    *payloads,
                    is_batch=size > 0,
                    key=self._chance.choice(KEYS),
                    conditions=self._conditions(
                        name, len(payloads), sum(len(sent.payloads) for sent in made)
                    ),
                )
            )
            made[-1].headers = self._clients.later(self._chance)
            self._number += 1
            self._sequence += len(payloads)
        return made

    def _conditions(self, name: str, count: int, before: int) -> AppendConditions:
        """``before``: messages that are sent before it at the same time."""
        match self._plan.conditions:
            case "sequence":
                producer = producer_digest(self._plan.machine.encode())
                return AppendConditions(
                    SequenceRange(count, RANGE_SEQUENCE, producer, self._epoch, self._sequence)
                )
            case "key":
                return AppendConditions(
                    SequenceRange(count, RANGE_KEY, producer_digest(name.encode()))
                )
            case "offset":
                return AppendConditions(if_offset=self._log.known_end + before)
        return NO_CONDITIONS


def _end(sent: Sent) -> int:
    sequences = sent.conditions.sequences
    return 0 if sequences is None else sequences.sequence + len(sent.payloads)
