"""Clients of a topic that is administered: writers, readers, consumers; each in a process of its
own, which asks any broker and goes where it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from random import Random  # noqa: TID251 - for its type: the streams are the engine's

from fencelog.broker.append.conditions import NO_CONDITIONS, AppendConditions
from fencelog.broker.append.producer_access import MODES, WAIT
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import (
    RANGE_KEY,
    RANGE_SEQUENCE,
    SequenceRange,
    producer_digest,
)
from tests.sim.admin.asking import Asking
from tests.sim.admin.edge import CLAIM_WAIT_MS, Edge
from tests.sim.admin.numbered import Numbered
from tests.sim.admin.router import Router
from tests.sim.admin.routes import Routes
from tests.sim.admin.subscriptions import Groups
from tests.sim.oracle.log_history import Sent
from tests.sim.plan.admin_plan import GroupPlan, WriterPlan
from tests.sim.plan.topic_plan import ReaderPlan
from tests.sim.topics.clients import RETRY_PAUSE_S, Clients

KEYS = (None, b"one", b"two", b"three")
TRIES = 12
REPEATS = 0.2
"""The share of appends that a writer that insists sends again though they were answered."""
STALE = 0.3
"""The share of appends for which a writer uses an older fencing token."""


class AdminClients:
    """The roles of one plan."""

    def __init__(
        self, clients: Clients, edge: Edge, groups: Groups, routes: Routes | None = None
    ) -> None:
        """``routes``: those of the service, where changes go through them."""
        self.routes = routes
        self.clients = clients
        self.edge = edge
        self.groups = groups
        self.is_over = clients.is_over

    def asking(self, machine: str) -> tuple[Asking, Random]:
        chance = self.clients.chance(machine)
        return Asking(self.clients, chance), chance

    def some_broker(self, chance: Random) -> str:
        """Return the name of the broker that a change is sent to."""
        return self.clients.some_broker(chance).name

    async def write(self, plan: WriterPlan) -> None:
        await asyncio.sleep(plan.starts_ms / 1000)
        await Writer(plan, self).run()

    async def read(self, plan: ReaderPlan) -> None:
        """Follow whichever incarnation there is, from its beginning."""
        asking, chance = self.asking(plan.machine)
        topic_id, offset = "", 0
        await asyncio.sleep(plan.moment.delay_ms / 1000)
        while not self.is_over.is_set():
            work = partial(self.edge.read, plan.partition, offset, topic_id, plan.max_messages)
            found = await asking.ask(work)
            if found is None:
                if asking.has(ErrorCode.OFFSET_TRIMMED) and isinstance(asking.error, FencelogError):
                    offset = int(asking.error.extra["earliest_offset"])
                elif not asking.has(ErrorCode.NOT_OWNER):
                    await asyncio.sleep(RETRY_PAUSE_S)
                continue
            topic_id, result = found
            offset = 0 if result is None else result.next_offset
            if chance.random() < 0.1:
                topic_id, offset = "", 0
                asking.wander()

    async def read_views(self, machine: str) -> None:
        asking, chance = self.asking(machine)
        while not self.is_over.is_set():
            await asyncio.sleep(chance.uniform(0.05, 0.4))
            count = max(1, len(self.edge.incarnations.living_logs))
            await asking.ask(partial(self.edge.read_view, chance.randrange(count)))

    async def consume(self, plan: GroupPlan) -> None:
        asking, chance = self.asking(f"consumer of {plan.name}")
        leaving = self.clients.chance(f"consumer of {plan.name}, leaving")
        await asyncio.sleep(plan.starts_ms / 1000)
        while not self.is_over.is_set():
            work = partial(
                self.groups.consume,
                plan.name,
                "c",
                chance.randrange(4),
                plan.pulls,
                chance.uniform(0, plan.thinks_ms / 1000),
                leaving.random() >= plan.leaves,
            )
            if not await asking.ask(work):
                await asyncio.sleep(RETRY_PAUSE_S)


class Writer:
    """One producer."""

    def __init__(self, plan: WriterPlan, clients: AdminClients) -> None:
        self._plan = plan
        self._clients = clients
        self._edge = clients.edge
        self._asking, self._chance = clients.asking(plan.machine)
        self._number = 0
        self._claim: tuple[str, int] | None = None
        self._sequence = 0
        self._left: list[Sent] = []
        """What it goes on to send by its claim."""
        self._router = Router(self._asking, self._edge, self._chance)
        self._numbered = Numbered(plan, self._asking, self._edge, self._chance)
        self._removals = clients.clients.chance(f"{plan.machine}, removals")

    async def run(self) -> None:
        for pause_ms in self._plan.pauses_ms:
            await asyncio.sleep(pause_ms / 1000)
            if self._clients.is_over.is_set():
                break
            if self._plan.strays and not self._goes_to_an_owner():
                continue
            if self._plan.conditions == "claim":
                await self._write_alone()
            elif self._plan.conditions == "sequence":
                await self._numbered.write(self._plan.sizes)
            elif self._plan.conditions == "routed":
                await self._router.write(self._new(self._plan.sizes[0]))
            else:
                await self._write()
        await self._release()

    def _goes_to_an_owner(self) -> bool:
        """Go to the newest owner, or to one that was replaced. False: there is none, and no other
        broker is to hear of it."""
        topic = self._edge.incarnations.living
        if topic is None:
            return False
        log = self._edge.incarnations.log(topic.topic_id, self._plan.partition)
        if self._chance.random() < self._plan.strays:
            return self._asking.stray(log)
        return self._asking.follow(log)

    async def _write(self) -> None:
        """Once, or under a key until it is there."""
        wanted = [self._new(size) for size in self._plan.sizes]
        for _ in range(TRIES if self._plan.conditions == "key" else 1):
            for sent in wanted:
                sent.conditions = sent.conditions._replace(fencing_token=self._token())
            errors = await self._asking.ask(
                partial(self._edge.append, self._plan.partition, wanted)
            )
            if errors:
                told = zip(wanted, errors, strict=True)
                wanted = [sent for sent, error in told if error is not None]
            if not wanted or self._asking.has(ErrorCode.NOT_FOUND, ErrorCode.TOPIC_TERMINATED):
                return
            await asyncio.sleep(self._chance.uniform(0, RETRY_PAUSE_S))

    async def _write_alone(self) -> None:
        plan, chance = self._plan, self._chance
        if self._claim is None:
            mode = chance.choice(MODES)
            self._claim = await self._claimed(mode)
            self._sequence = 0
        if self._claim is None:
            return
        for sent in self._left:
            sent.conditions = sent.conditions._replace(fencing_token=self._token())
        wanted = self._left or [self._new(size) for size in plan.sizes]
        self._left = []
        work = partial(self._edge.append, plan.partition, wanted, only=self._claim[0])
        errors = await self._asking.ask(work)
        if errors and not any(errors):
            if plan.insists and chance.random() < REPEATS:
                await self._asking.ask(work)
            if chance.random() < plan.releases:
                await self._release()
        elif errors != [] and plan.insists and chance.random() < plan.insists:
            told: Sequence[Exception | None] = errors or [self._asking.error] * len(wanted)
            self._left = [sent for sent, error in zip(wanted, told, strict=True) if error]
        else:
            self._claim = None  # it begins anew with a higher epoch

    async def _claimed(self, mode: str) -> tuple[str, int] | None:
        name, partition, routes = self._plan.machine, self._plan.partition, self._clients.routes
        if routes is None:
            return await self._asking.ask(partial(self._edge.claim, partition, name, mode))
        wait_ms = CLAIM_WAIT_MS if mode == WAIT else 0
        target = self._clients.some_broker(self._chance)
        return await routes.claim(target, partition, name, mode, wait_ms)

    async def _release(self) -> None:
        if self._claim is not None:
            (topic_id, epoch), self._claim = self._claim, None
            name, partition, routes = self._plan.machine, self._plan.partition, self._clients.routes
            if routes is not None:
                target = self._clients.some_broker(self._chance)
                await routes.release(target, partition, name, epoch)
                return
            await self._asking.ask(partial(self._edge.release, partition, name, topic_id, epoch))

    def _token(self) -> str | None:
        """The newest that anybody was told, or an older one."""
        topic = self._edge.incarnations.living
        if topic is None:
            return None
        access = self._edge.incarnations.log(topic.topic_id, self._plan.partition).access
        if self._chance.random() < STALE:
            value = self._chance.choice(access.token.changes).value
            return value if isinstance(value, str) else None
        return access.newest_token()

    def _new(self, size: int) -> Sent:
        name = f"{self._plan.machine}/{self._number}"
        self._number += 1
        payloads = tuple(f"{name}.{place}".encode() for place in range(max(1, size)))
        conditions = NO_CONDITIONS
        if self._plan.conditions in ("key", "routed"):
            conditions = AppendConditions(
                SequenceRange(len(payloads), RANGE_KEY, producer_digest(name.encode()))
            )
        elif self._claim is not None:
            producer = producer_digest(self._plan.machine.encode())
            sequences = SequenceRange(
                len(payloads), RANGE_SEQUENCE, producer, self._claim[1], self._sequence
            )
            conditions = AppendConditions(sequences, fencing_token=self._token())
            self._sequence += len(payloads)
        key = self._chance.choice(KEYS)
        removes = key is not None and self._removals.random() < self._plan.removes
        return Sent(payloads, size > 0, 0, key, conditions, removes=removes)
