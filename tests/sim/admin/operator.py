"""Operators of a topic that is administered: each step of a plan in a process of its own, so that
any of them meet."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random  # noqa: TID251 - for its type: the streams are the engine's
from typing import Any

from fencelog.broker.broker import Broker
from fencelog.broker.registry.subscription_registry import SUBSCRIPTIONS_PATH
from fencelog.broker.registry.topic_deletion import LOGS_PATH
from fencelog.broker.registry.topics import TopicConfig, TopicInfo
from fencelog.ledgers.errors import ErrorCode
from tests.sim.admin.asking import Asking
from tests.sim.admin.clients import AdminClients
from tests.sim.admin.routes import Routes
from tests.sim.engine.process import current_process
from tests.sim.ledgers.faults import Moments
from tests.sim.plan.admin_plan import AdminPlan, AdminStep
from tests.sim.topics.brokers import TOPIC, Unanswered
from tests.sim.topics.clients import RETRY_PAUSE_S

POSTED = ("trim", "terminate", "fence")
"""The steps that may go through the routes of the service."""

MAX_PARTITIONS = 3
TRIES = 6
LEAST_HELD_S = 0.1
SETTINGS: tuple[dict[str, Any], ...] = (
    {"roll_entries": 2},
    {"roll_entries": 7},
    {"retention_bytes": 1},
    {"retention_bytes": 400},
    {"retention_ms": 50},
    {"retention_ms": None, "retention_bytes": None},
    {"max_producers": 50},
    {"ack_quorum": 2, "write_quorum": 2},
    {"publish_messages_per_s": 500},
)

NO_QUOTA: dict[str, Any] = {"backlog_quota_bytes": None, "backlog_quota_ms": None}
LIMITS: dict[str, tuple[dict[str, Any], ...]] = {
    "settings, age": ({"ttl_ms": 100}, {"ttl_ms": 300}, {"ttl_ms": None}),
    "settings, quota": (
        {"backlog_quota_bytes": 300, "backlog_action": "evict"},
        {"backlog_quota_ms": 200, "backlog_action": "evict"},
        NO_QUOTA,
    ),
    "settings, full": (
        {"backlog_quota_bytes": 600, "backlog_action": "refuse"},
        {"backlog_quota_ms": 300, "backlog_action": "refuse"},
        {"backlog_quota_bytes": 600, "backlog_action": "hold"},
        NO_QUOTA,
    ),
    "settings, producers": tuple({"max_producers": most} for most in (1, 2, 2, 3, 50)),
    "settings, view": tuple({"compaction_ms": each} for each in (100, 400, None, None)),
}
"""The settings that steps of these kinds change."""


def token_of(step: AdminStep) -> str | None:
    """Return the fencing token of a step; None: it takes the token away."""
    return None if step.size < 0.3 else f"token {step.size:.6f}"


class Operator:
    """Carries out one step. ``finish``: what must not be left half done."""

    def __init__(self, plan: AdminPlan, clients: AdminClients, moments: Moments) -> None:
        self._plan = plan
        self._clients = clients
        self._edge = clients.edge
        self._moments = moments

    async def carry_out(self, machine: str, step: AdminStep) -> None:
        asking, chance = self._clients.asking(machine)
        await self._moments.wait(step.moment)
        if self._clients.is_over.is_set():
            return
        self._edge.incarnations.history.counts[f"step: {step.kind}"] += 1
        if step.kind == "recreate":
            await self._recreate(asking, chance, step)
            return
        if self._clients.routes is not None and step.kind in POSTED:
            await self._post(self._clients.routes, chance, step)
            return
        for _ in range(TRIES):
            asking.wander()
            if step.kind == "fence, newest" and not self._follows(asking, step):
                await asyncio.sleep(chance.uniform(0, RETRY_PAUSE_S))
                continue
            await asking.ask(partial(self._step, step))
            if asking.error is None or self._clients.is_over.is_set():
                return
            if step.kind == "subscribe, die" and isinstance(asking.error, Unanswered):
                return
            if asking.has(
                ErrorCode.NOT_FOUND,
                ErrorCode.SUBSCRIPTION_NOT_FOUND,
                ErrorCode.TOPIC_TERMINATED,
                ErrorCode.BAD_REQUEST,
                ErrorCode.ALREADY_EXISTS,
            ):
                return

    def _follows(self, asking: Asking, step: AdminStep) -> bool:
        topic = self._edge.incarnations.living
        return topic is not None and asking.follow(
            self._edge.incarnations.log(topic.topic_id, step.partition)
        )

    async def _post(self, routes: Routes, chance: Random, step: AdminStep) -> None:
        """Have it done through the routes of any broker."""
        for _ in range(TRIES):
            target, topic = self._clients.some_broker(chance), self._edge.incarnations.living
            if topic is None or self._clients.is_over.is_set():
                return
            if step.kind == "terminate":
                is_done = await routes.terminate(target, step.partition)
            elif step.kind == "fence":
                is_done = await routes.fence(target, step.partition, token_of(step))
            else:
                log = self._edge.incarnations.log(topic.topic_id, step.partition)
                length = log.known_end - log.start_offset
                before = log.start_offset + round(length * step.size)
                is_done = await routes.trim(target, step.partition, before)
            if is_done and step.kind != "trim":  # what is trimmed is trimmed again
                return
            await asyncio.sleep(chance.uniform(0, RETRY_PAUSE_S))

    async def _recreate(self, asking: Asking, chance: Random, step: AdminStep) -> None:
        """Delete, pause, create. Another one may do the same meanwhile."""
        while True:
            await asking.ask(self._delete)
            if asking.error is None or asking.has(ErrorCode.TOPIC_NOT_FOUND):
                break
        await asyncio.sleep(chance.choice((0, 0, 0.005, 0.05, 0.3)))
        config = TopicConfig(1 + int(step.size * 2), self._plan.overrides)
        while True:
            await asking.ask(partial(self.create, config))
            if asking.error is None or asking.has(ErrorCode.ALREADY_EXISTS):
                return

    async def _delete(self, broker: Broker) -> None:
        self._edge.incarnations.begun("deleting")
        await broker.topics.delete(TOPIC)

    async def create(self, config: TopicConfig, broker: Broker) -> None:
        await broker.topics.create(TOPIC, config)

    async def _step(self, step: AdminStep, broker: Broker) -> None:
        edge, groups, size = self._edge, self._clients.groups, step.size
        match step.kind:
            case "settings":
                await self.update(dict(SETTINGS[int(size * len(SETTINGS))]), None, broker)
            case kind if kind in LIMITS:
                changes = LIMITS[kind]
                await self.update(dict(changes[int(size * len(changes))]), None, broker)
            case "grow":
                has = (await broker.topic(TOPIC)).config.partitions
                if has < MAX_PARTITIONS:
                    await self.update({}, has + 1, broker)
            case "create":
                config = TopicConfig(1 + int(size * 2), self._plan.overrides)
                await self.create(config, broker)
            case "subscribe" if self._plan.groups:
                group = self._plan.groups[int(size * len(self._plan.groups))]
                await groups.create(group.name, group.start, broker)
            case "unsubscribe" if self._plan.groups:
                group = self._plan.groups[int(size * len(self._plan.groups))]
                await groups.delete(group.name, broker)
            case "unsubscribe, unheard" if self._plan.groups:
                group = self._plan.groups[int(size * len(self._plan.groups))]
                store: Any = broker.subscriptions._store
                store.lose_next_write(SUBSCRIPTIONS_PATH)
                await groups.delete(group.name, broker)
            case "subscribe, die" if self._plan.groups:
                group = self._plan.groups[int(size * len(self._plan.groups))]
                await groups.register(group.name, group.start, broker)
                current_process().kill()
            case "trim":
                await edge.trim(step.partition, size, broker)
            case "terminate":
                await edge.terminate(step.partition, broker)
            case "fence" | "fence, newest":
                await edge.fence(step.partition, token_of(step), broker)
            case "compact":
                instance, _ = await edge.open(broker, step.partition)
                broker.compaction.ask(instance)
            case "sweep, held":
                held: Any = broker.sweep._store
                held.hold_next_listing(LOGS_PATH, LEAST_HELD_S + size / 2)
                await broker.sweep.sweep()
            case "sweep":
                await broker.sweep.sweep()
            case "unload":
                await broker.unload(TOPIC, step.partition)

    async def update(
        self, changes: dict[str, Any], partitions: int | None, broker: Broker
    ) -> TopicInfo:
        """Confirmed: the topic with this id had exactly these settings."""
        info = await broker.topics.update(TOPIC, changes, partitions=partitions)
        broker.topic_changed(info)
        self._edge.incarnations.check_stood(info)
        return info
