"""A writer by sequence numbers, which partitions may forget: then it begins anew."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from random import Random  # noqa: TID251 - for its type: the streams are the engine's

from fencelog.broker.append.conditions import AppendConditions
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_SEQUENCE, SequenceRange, producer_digest
from tests.sim.admin.asking import Asking
from tests.sim.admin.edge import Edge
from tests.sim.oracle.log_history import Sent
from tests.sim.plan.admin_plan import WriterPlan
from tests.sim.topics.clients import RETRY_PAUSE_S

TRIES = 6
REPEATS = 0.3
"""The share of turns before which an append is sent again that was answered long ago."""
KEYS = (None, b"one", b"two", b"three")


class Numbered:
    """One writer's messages in one incarnation of the topic after the other."""

    def __init__(self, plan: WriterPlan, asking: Asking, edge: Edge, chance: Random) -> None:
        self._plan = plan
        self._asking = asking
        self._edge = edge
        self._chance = chance
        self._topic_id = ""
        self._number = 0
        self._epoch = 0
        self._sequence = 0
        self._waiting: list[Sent] = []
        self._done: list[Sent] = []

    async def write(self, sizes: Sequence[int]) -> None:
        """Append new messages behind those that wait, until nothing waits; now and then before that
        one of the last turns once more, or the first one, with which the partition begins anew if
        it has forgotten the writer."""
        topic = self._edge.incarnations.living
        if topic is None:
            return
        if topic.topic_id != self._topic_id:
            self._topic_id = topic.topic_id
            self._begin_anew()
        if self._done and self._chance.random() < REPEATS:
            await self._send([self._chance.choice((self._done[0], self._done[-1]))])
        self._waiting += [self._new(size) for size in sizes]
        for _ in range(TRIES):
            self._told(self._waiting, await self._send(self._waiting))
            if not self._waiting:
                break
            await asyncio.sleep(self._chance.uniform(0, RETRY_PAUSE_S))

    async def _send(self, waiting: list[Sent]) -> list[FencelogError | None]:
        work = partial(self._edge.append, self._plan.partition, list(waiting), only=self._topic_id)
        return await self._asking.ask(work) or []

    def _told(self, waiting: list[Sent], errors: list[FencelogError | None]) -> None:
        there = max((_end(sent) for sent in self._done), default=0)
        for sent, error in zip(list(waiting), errors, strict=False):
            if error is None:
                self._waiting.remove(sent)
                self._done.append(sent)
            elif error.code is ErrorCode.SEQUENCE_MISMATCH:
                expected = int(error.extra["expected_sequence"])
                if expected < there:  # it was forgotten
                    self._begin_anew()
                    return
                self._waiting = [each for each in self._waiting if _end(each) > expected]
                return

    def _begin_anew(self) -> None:
        self._epoch, self._sequence = self._epoch + 1, 0
        self._waiting, self._done = [], []

    def _new(self, size: int) -> Sent:
        name = f"{self._plan.machine}/{self._number}"
        self._number += 1
        payloads = tuple(f"{name}.{place}".encode() for place in range(max(1, size)))
        producer = producer_digest(self._plan.machine.encode())
        sequences = SequenceRange(
            len(payloads), RANGE_SEQUENCE, producer, self._epoch, self._sequence
        )
        self._sequence += len(payloads)
        key = self._chance.choice(KEYS)
        return Sent(payloads, size > 0, 0, key, AppendConditions(sequences))


def _end(sent: Sent) -> int:
    sequences = sent.conditions.sequences
    return 0 if sequences is None else sequences.sequence + len(sent.payloads)
