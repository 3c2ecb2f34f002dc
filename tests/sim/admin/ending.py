"""The end of a history of administration: all is healed, so the topic is served, has what it was
promised to have, and when everything was swept nothing is left of its previous incarnations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from fencelog.broker.append.conditions import NO_CONDITIONS
from fencelog.broker.background.sweep_core import tag_of
from fencelog.broker.broker import Broker
from fencelog.broker.partition.ownership import OWNERS_PATH
from fencelog.broker.registry.subscription_registry import SUBSCRIPTIONS_PATH
from fencelog.broker.registry.topic_deletion import LOGS_PATH
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.sim.admin.clients import AdminClients
from tests.sim.admin.operator import NO_QUOTA, Operator
from tests.sim.engine.process import Process
from tests.sim.ledgers.cluster import Cluster
from tests.sim.oracle.cursors.cursor_history import CursorHistory
from tests.sim.oracle.history import History
from tests.sim.oracle.incarnation_lists import IncarnationLedgerLists
from tests.sim.oracle.incarnations import AdminLog
from tests.sim.oracle.log_history import Sent
from tests.sim.oracle.state_watch import DurableCursor
from tests.sim.plan.admin_plan import AdminPlan
from tests.sim.topics.brokers import TOPIC, BrokerMachine
from tests.sim.topics.ending import CLIENTS_S, READ_MESSAGES, SERVE_S, STEP_S, end_brokers

SWEPT_S = 30.0


class AdminEnding:
    """Runs in the world, with a client of its own on the machine "z1"."""

    def __init__(
        self,
        plan: AdminPlan,
        cluster: Cluster,
        history: History,
        brokers: dict[str, BrokerMachine],
        ledger_lists: IncarnationLedgerLists,
        clients: AdminClients,
        operator: Operator,
        processes: list[Process],
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._history = history
        self._brokers = brokers
        self._ledger_lists = ledger_lists
        self._clients = clients
        self._operator = operator
        self._processes = processes
        self._edge = clients.edge
        self._incarnations = clients.edge.incarnations
        self._asking, self._chance = clients.asking("z1")

    async def run(self) -> None:
        await self._history.within(SERVE_S, "bookies and brokers serve again", self._all_serve)
        await self._history.within(
            CLIENTS_S,
            "clients and operators come to an end",
            lambda: not any(p.is_alive and p.live_tasks() for p in self._processes),
        )
        z1 = self._cluster.engine.start_process("z1")

        async def within(
            what: str, work: Coroutine[Any, Any, None], time_s: float = SERVE_S
        ) -> None:
            await self._history.within(time_s, what, z1.spawn(work).done)

        await within("there is a topic", self._have_topic())
        topic = self._incarnations.living
        if topic is not None and self._incarnations.has_quota(topic.topic_id):
            await within("no quota keeps appends out", self._lift_quota())
        logs = self._incarnations.living_logs
        for log in logs:
            await within(f"partition {log.partition} is free", self._free(log))
            await within(f"partition {log.partition} is served", self._check_log(log))
            await within(f"cursors of {log.partition} are as registered", self._check_cursors(log))
            await within(f"subscriptions of {log.partition} end", self._drain(log))
            if self._plan.compacts:
                await within(f"partition {log.partition} is compacted", self._check_view(log))
        self._incarnations.check_once()
        await within("everything is swept", self._sweep(), SWEPT_S)
        await self._end_brokers(logs)
        for bookie in self._cluster.bookies.values():
            await bookie.shut_down()
        self._cluster.is_over = True

    # -- steps, each in the client's process -----------------------------------------------------

    async def _until(self, work: Callable[[Broker], Coroutine[Any, Any, Any]]) -> Any:
        """Return what it gives, once it gives anything; None for a log that is terminated."""
        while True:
            result = await self._asking.ask(work)
            if self._asking.error is None or self._asking.has(ErrorCode.TOPIC_TERMINATED):
                return result
            await asyncio.sleep(STEP_S)

    async def _have_topic(self) -> None:
        config = TopicConfig(self._plan.partitions, self._plan.overrides)
        while self._incarnations.living is None:
            await self._asking.ask(partial(self._operator.create, config))
            await asyncio.sleep(STEP_S)

    async def _lift_quota(self) -> None:
        """What subscriptions have before them keeps nobody from appending."""
        await self._until(partial(self._operator.update, dict(NO_QUOTA), None))

    async def _free(self, log: AdminLog) -> None:
        """Shut the exclusive producer out, so that others may append."""
        if len(log.access.token.changes) > 1:
            await self._until(partial(self._edge.fence, log.partition, None))
        if len(log.access.holder.changes) > 1:
            claim = partial(self._edge.claim, log.partition, "z1", "fencing")
            claimed = await self._until(claim)
            if claimed is not None:
                await self._until(partial(self._edge.release, log.partition, "z1", *claimed))

    async def _check_log(self, log: AdminLog) -> None:
        """Append once more, unless it has ended, then read everything."""
        end = await self._last(log)
        offset, start, times = log.start_offset, log.start_offset, list[int]()
        while offset < end:
            work = partial(self._edge.read, log.partition, offset, log.topic_id, READ_MESSAGES)
            found = await self._asking.ask(work)
            error = self._asking.error
            if isinstance(error, FencelogError) and error.code is ErrorCode.OFFSET_TRIMMED:
                start = offset = int(error.extra["earliest_offset"])
                times.clear()
            if found is None or found[1] is None:  # or a broker that has slept since
                await asyncio.sleep(STEP_S)
                continue
            times += [batch.publish_time_us for batch in found[1].entries]
            offset = found[1].next_offset
        log.check_whole(start, offset, times)

    async def _last(self, log: AdminLog) -> int:
        """Return where the log ends now, with a message of ours if it still takes any."""
        number = 0
        while True:
            name = f"z/{log.topic_id[:4]}/{log.partition}/{number}".encode()
            number += 1
            sent = Sent((name,), False, 0, None, NO_CONDITIONS)
            work = partial(self._edge.append, log.partition, [sent], only=log.topic_id)
            errors = await self._asking.ask(work)
            if errors == [None]:
                return (log.sent[name].offset or 0) + 1
            ledger_list = self._ledger_lists.by_key.get((log.topic_id, log.partition))
            if (
                ledger_list is not None
                and ledger_list.terminated
                and ledger_list.next_base is not None
            ):
                if errors and errors[0] is not None:
                    return ledger_list.next_base
            elif log.end is not None:
                log.violate(24, f"it ended at {log.end}, and the list does not say so")
            await asyncio.sleep(STEP_S)

    async def _check_cursors(self, log: AdminLog) -> None:
        """The reconciler has opened what is missing, and dropped what belongs to nothing."""
        topic = self._incarnations.living
        registered = (
            {r.info.subscription_id for r in topic.subscriptions.values()} if topic else set()
        )

        async def found(broker: Broker) -> set[str]:
            instance, _ = await self._edge.open(broker, log.partition)
            return set(instance.subscriptions.all())

        while await self._until(found) != registered:  # noqa: ASYNC110 - each turn asks a broker
            await asyncio.sleep(STEP_S)

    async def _drain(self, log: AdminLog) -> None:
        """Every subscription sees all that it was promised and has not acknowledged."""
        topic = self._incarnations.living
        registered = topic.subscriptions if topic else {}
        for name in sorted(registered):
            info = registered[name].info
            cursor = log.cursor(info.subscription_id, name)
            consume = partial(
                self._clients.groups.consume, name, "z", log.partition, 100, 0.0, True
            )
            await drain(
                log,
                cursor,
                partial(_durable, log, info.subscription_id),
                partial(self._until, consume),
                partial(self._has_backlog, log, cursor),
            )
        log.check_begun()

    async def _has_backlog(self, log: AdminLog, cursor: CursorHistory) -> bool:
        async def backlog(broker: Broker) -> int:
            instance, _ = await self._edge.open(broker, log.partition)
            ids = [id_ for id_, one in log.cursors.items() if one is cursor]
            stats = [instance.subscriptions.stats(id_) for id_ in ids]
            return sum(int(one["backlog_messages"]) for one in stats)

        await asyncio.sleep(STEP_S)
        return bool(await self._until(backlog))

    async def _check_view(self, log: AdminLog) -> None:
        async def ask(broker: Broker) -> None:
            instance, _ = await self._edge.open(broker, log.partition)
            broker.compaction.ask(instance)

        if log.known_end > log.start_offset:
            await self._until(ask)
            read = partial(self._edge.read_view, log.partition)
            while not await self._until(read) or max(log.horizons, default=0) < log.known_end:
                await asyncio.sleep(STEP_S)
                await self._until(ask)

    async def _sweep(self) -> None:
        while left := self._left():
            await self._asking.ask(lambda broker: broker.sweep.sweep())
            self._cluster.engine.trace.note(f"not swept yet: {left[:5]}")
            await asyncio.sleep(0.3)

    def _left(self) -> list[str]:
        """Return what belongs to nothing: nodes of topics that were deleted, ledgers on no list."""
        memory, topic = self._cluster.memory, self._incarnations.living
        living = "" if topic is None else topic.topic_id
        left = [
            f"{path}/{name}"
            for path in (LOGS_PATH, SUBSCRIPTIONS_PATH)
            for name in _children(memory.children, path)
            if name != living
        ]
        for ledger_id in self._history.metadata:
            metadata = self._history.latest(ledger_id)
            tag = None if metadata is None else tag_of(metadata.properties)
            if tag is None:
                continue
            ledger_list = self._ledger_lists.by_key.get((tag.topic_id, tag.partition))
            if tag.topic_id != living or ledger_list is None:
                left.append(f"ledger {ledger_id} of {tag}")
            elif tag.epoch is None or ledger_id in ledger_list.ledgers:
                continue
            elif tag.epoch < ledger_list.epoch:
                left.append(f"ledger {ledger_id} of {tag}, on no list")
        return left

    # -- the brokers -----------------------------------------------------------------------------

    async def _end_brokers(self, logs: list[AdminLog]) -> None:
        """One after the other, each handing over to the others; the last one seals its logs."""
        served = await end_brokers(self._history, self._brokers, self._is_served, logs)
        for log in served:
            ledger_list = self._ledger_lists.by_key.get((log.topic_id, log.partition))
            unsealed = (
                [s.ledger_id for s in ledger_list.segments if s.sealed is None]
                if ledger_list
                else []
            )
            if unsealed:
                log.violate(22, f"all brokers ended in order, ledgers {unsealed} are not sealed")
        owners = partial(_children, self._cluster.memory.children, OWNERS_PATH)
        gone = "owner nodes go with the brokers, or with the sessions of those that died"
        await self._history.within(SERVE_S, gone, lambda: not owners())

    def _is_served(self, log: AdminLog) -> bool:
        ledger_list = self._ledger_lists.by_key.get((log.topic_id, log.partition))
        for machine in self._brokers.values():
            found = machine.broker and machine.broker.open_log(TOPIC, log.partition)
            if found and ledger_list and found.epoch == ledger_list.epoch:
                return True
        return False

    def _all_serve(self) -> bool:
        return all(
            machine.bookie is not None for machine in self._cluster.bookies.values()
        ) and all(machine.broker is not None for machine in self._brokers.values())


async def drain(
    log: AdminLog,
    cursor: CursorHistory,
    durable: Callable[[], DurableCursor | None],
    consume: Callable[[], Awaitable[int]],
    has_backlog: Callable[[], Awaitable[bool]],
) -> None:
    """Consume until a subscription has no backlog: all that it was promised has come, again if it
    was not acknowledged before."""
    before, possible = durable(), cursor.possible
    before = None if before is None else before.copy()
    cursor.since.clear()
    while True:
        # What a request gave that did not learn what became of its acknowledgement has come, too:
        # it comes before the one that gave nothing, in the same call.
        if await consume() or await has_backlog():
            continue
        now = durable()
        if now is not None and now.acked_to >= log.known_end:
            break
    if missed := cursor.missed(log.known_end, before, possible):
        log.violate(18, f"{cursor.name} has not seen {missed[:5]} again, and has all")


def _durable(log: AdminLog, subscription_id: str) -> DurableCursor | None:
    return log.state.cursors().get(subscription_id)


def _children(children: Callable[[str], list[str]], path: str) -> list[str]:
    try:
        return children(path)
    except FencelogError:
        return []
