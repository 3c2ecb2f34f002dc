"""The work that all clients of topics share, and readers; each in a process of its own.

A client asks any broker, and goes where it is sent. The broker's answers are noted where they are
given, in the broker's process, whether or not they reach the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random  # noqa: TID251 - for its type: the streams are the engine's
from typing import TYPE_CHECKING, Any, cast

from fencelog.broker.append.conditions import NO_CONDITIONS, AppendFuture
from fencelog.broker.broker import Broker
from fencelog.broker.partition.ownership import NotOwner
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.read.stored import ReadResult
from fencelog.broker.subscriptions.batch import DELIVER_AT
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import check_batch, decode_batch, encode_batch
from tests.sim.engine.host import SimHost
from tests.sim.ledgers.cluster import Cluster
from tests.sim.ledgers.faults import Moments
from tests.sim.oracle.limits.producer_limit import Try
from tests.sim.oracle.log_history import LogHistory, Sent, payload_of
from tests.sim.plan.topic_plan import ReaderPlan
from tests.sim.topics.brokers import ANSWER_S, TOPIC, BrokerMachine, Unanswered, Unreached
from tests.sim.topics.direct.ranges import read_directly
from tests.sim.topics.reads import look_around, look_at_tail, read_some

if TYPE_CHECKING:
    from tests.sim.topics.front import Front

RETRY_PAUSE_S = 0.15
HURRY_S = 0.02
"""Less than most requests take."""

MOST_LATER_US = 600_000

BEYOND = (0, 0, 1, 5)
"""The distances from the known end at which a reader that strays asks for messages."""

LOOKS = 0.15
"""The share of a reader's requests for something else than messages."""


class Clients:
    """The roles of one plan."""

    def __init__(
        self,
        cluster: Cluster,
        brokers: dict[str, BrokerMachine],
        logs: list[LogHistory],
        moments: Moments,
        front: Front,
        hurries: float = 0.0,
        delays: float = 0.0,
    ) -> None:
        self.front = front
        self._cluster = cluster
        self._brokers = brokers
        self.logs = logs
        self._moments = moments
        self._hurries = hurries
        self._delays = delays
        self.is_over = asyncio.Event()

    def chance(self, machine: str) -> Random:
        """Return what a client's machine decides by."""
        return self._cluster.engine.random(f"client {machine}")

    def later(self, chance: Random) -> tuple[tuple[str, bytes], ...]:
        """Headers of what is to be delivered later, now and then."""
        if not self._delays or chance.random() >= self._delays:
            return ()
        now_us = SimHost(self._cluster.engine, "clients").now_us()
        return ((DELIVER_AT, str(now_us + chance.randint(0, MOST_LATER_US)).encode()),)

    def timeout_s(self, chance: Random) -> float:
        """Return how long a client waits for an answer: now and then hardly at all."""
        if self._hurries and not self.is_over.is_set() and chance.random() < self._hurries:
            return chance.uniform(0, HURRY_S)
        return ANSWER_S

    def some_broker(self, chance: Random) -> BrokerMachine:
        return self._brokers[chance.choice(sorted(self._brokers))]

    def broker_names(self) -> list[str]:
        return sorted(self._brokers)

    def directed(self, chance: Random, error: Exception) -> BrokerMachine:
        """Return where to go after this answer: to the owner that it names, or anywhere."""
        if isinstance(error, NotOwner) and chance.random() < 0.8:
            return self._brokers[error.url.removeprefix("http://")]
        return self.some_broker(chance)

    def newest_owner(self, log: LogHistory) -> BrokerMachine | None:
        """Return the broker that has taken the log over last and has it open still; None: none."""
        return self._owner(log, lambda epoch: epoch == log.newest_epoch)

    def previous_owner(self, log: LogHistory) -> BrokerMachine | None:
        """Return a broker that was replaced and does not know it yet; None: none."""
        return self._owner(log, lambda epoch: epoch < log.newest_epoch)

    def _owner(self, log: LogHistory, is_sought: Callable[[int], bool]) -> BrokerMachine | None:
        for machine in self._brokers.values():
            if machine.broker is None:
                continue
            instance = machine.broker.open_log(TOPIC, log.partition)
            if instance is not None and is_sought(instance.epoch):
                return machine
        return None

    # -- readers ---------------------------------------------------------------------------------

    async def read(self, plan: ReaderPlan) -> None:
        """Follow the log from its beginning, and now and then once more."""
        chance = self.chance(plan.machine)
        log, offset = self.logs[plan.partition], 0
        await self._moments.wait(plan.moment)
        machine = self.some_broker(chance)
        while not self.is_over.is_set():
            if plan.strays:
                offset = log.known_end + chance.choice(BEYOND)
                machine = self.some_broker(chance)
            try:
                result = await machine.ask(partial(read_some, log, offset, plan.max_messages))
            except (FencelogError, Unreached, Unanswered) as error:
                offset = self.after_error(log, offset, error)
                machine = self.directed(chance, error)
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            note_read(log, offset, result)
            offset = result.next_offset
            if chance.random() < LOOKS:
                await self._look_around(log, machine, chance)
            if chance.random() < 0.1:
                offset, machine = log.start_offset, self.some_broker(chance)

    async def _look_around(self, log: LogHistory, machine: BrokerMachine, chance: Random) -> None:
        """Ask for an offset by time, or for ranges to read directly."""
        time_us = None
        if log.times and chance.random() < 0.7:
            time_us = log.times[chance.choice(list(log.times))] + chance.choice((0, 0, -1, 1, 1000))
        with suppress(FencelogError, Unreached, Unanswered):
            await machine.ask(partial(look_around, log, time_us))

    def after_error(self, log: LogHistory, offset: int, error: Exception) -> int:
        """Return where to read on. A message that must exist and is not found is a loss."""
        if not isinstance(error, FencelogError):
            return offset
        log.counts[f"read: {error.code.slug}"] += 1
        if error.code is ErrorCode.OFFSET_TRIMMED:
            return int(error.extra["earliest_offset"])
        if error.code.is_negative or error.code is ErrorCode.CORRUPT:
            log.violate(1, f"read at {offset}: {error}")
        return offset


# -- within the broker's process -------------------------------------------------------------------


async def append_all(
    log: LogHistory, waiting: list[Sent], broker: Broker
) -> list[FencelogError | None]:
    """Append them together; what became of each."""
    instance = await broker.partition(TOPIC, log.partition)
    look_at_tail(log, instance)
    futures = []
    for sent in waiting:
        log.attempted(sent)
        limit, sequences = log.producer_limit, sent.conditions.sequences
        tried = None
        if limit is not None:
            tried = limit.tried(sequences, len(sent.payloads), instance.tail_offset)
        future = log.let_in(instance, partial(_append, instance, sent))
        future.add_done_callback(partial(answered, log, sent, instance))
        if tried is not None:
            future.add_done_callback(partial(_noted, tried))
        futures.append(future)
    try:
        if log.is_rolling:
            with suppress(FencelogError):
                await read_directly(log, instance)
        if futures:
            await asyncio.wait(futures)
    except asyncio.CancelledError:
        for future in futures:
            future.cancel()  # as whoever awaits one does
        raise
    return [_error_of(future) for future in futures]


def _error_of(future: AppendFuture) -> FencelogError | None:
    error = future.exception()
    return None if error is None else cast(FencelogError, error)


def _append(instance: PartitionLog, sent: Sent) -> AppendFuture:
    conditions = None if sent.conditions == NO_CONDITIONS else sent.conditions
    messages = [sent.message(payload) for payload in sent.payloads]
    if not sent.is_batch:
        return instance.append_message(messages[0], conditions)
    batch = encode_batch(messages)
    return instance.append_batch(batch, check_batch(batch), conditions)


def answered(log: LogHistory, sent: Sent, instance: PartitionLog, future: AppendFuture) -> None:
    """Note what became of an append at an instance of the log's owner."""
    if future.cancelled():
        return
    error: Any = future.exception()
    if error is None:
        log.acknowledged(sent, future.result(), instance, instance.epoch)
        look_at_tail(log, instance)
    else:
        log.refused(sent, error)


def _noted(tried: Try, future: AppendFuture) -> None:
    if not future.cancelled():
        tried.answered(_error_of(future))


def note_read(log: LogHistory, offset: int, result: ReadResult) -> list[int]:
    """Return what a read gave, as it was asked for; the publish times of its batches."""
    log.counts["reads"] += 1
    position = None
    for batch in result.entries:
        payloads = tuple(payload_of(message) for message in decode_batch(batch.batch))
        if len(payloads) != batch.count:
            log.violate(21, f"a batch of {len(payloads)} messages counts as {batch.count}")
        if position not in (None, batch.base_offset):
            log.violate(21, f"read gave {batch.base_offset} where {position} was next")
        position = batch.end_offset
        log.published(batch.base_offset, batch.count, batch.publish_time_us)
        log.seen(batch.base_offset, payloads, "read")
    if result.entries and not (
        result.entries[0].base_offset <= offset < result.entries[0].end_offset
        and position == result.next_offset
    ):
        log.violate(21, f"a read at {offset} gave {result.entries[0].base_offset} to {position}")
    return [batch.publish_time_us for batch in result.entries]
