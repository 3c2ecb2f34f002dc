"""The course of a history of calls, and its invariants beside ``topics/runner.py``.

18 what a lost pull has leased, and its consumer has given back, comes before what is behind it
                                                                   topics/calls/order_history.py
26 a request to a subscription is carried out by one owner of a partition, unless the previous one
   has certainly not done it; its answer says what was done        oracle/call_history.py
"""

from __future__ import annotations

import asyncio
from functools import partial

from fencelog.broker.broker import Broker
from fencelog.broker.registry.subscription_config import EXCLUSIVE, ORDERED, SubscriptionInfo
from tests.sim.engine.engine import Engine
from tests.sim.engine.process import Process
from tests.sim.ledgers.cluster import Cluster
from tests.sim.letters.history import LetterHistory
from tests.sim.letters.replayer import Replayer
from tests.sim.oracle.call_history import CallHistory
from tests.sim.oracle.history import History
from tests.sim.oracle.list_watch import LedgerListWatch
from tests.sim.oracle.log_history import LogHistory
from tests.sim.oracle.subscription_history import SubscriptionHistory
from tests.sim.plan.caller_plan import CallPlan
from tests.sim.plan.plan import Fault
from tests.sim.topics.brokers import (
    TOPIC,
    BrokerMachine,
    ask_until,
    create_topic,
    serving_bookies,
    start_brokers,
)
from tests.sim.topics.calls.callers import NAME, Caller
from tests.sim.topics.calls.order_history import OrderHistory
from tests.sim.topics.calls.ordered_callers import OrderedCaller
from tests.sim.topics.clients import Clients, answered
from tests.sim.topics.consumers import Consumer
from tests.sim.topics.ending import TopicEnding
from tests.sim.topics.faults import TopicInjector
from tests.sim.topics.front import Front, Taken
from tests.sim.topics.http import Http
from tests.sim.topics.producers import Producer

LETTERS_S = 60.0

REPLAYERS = ("c8", "c9")
"""The machines of clients that have dead letters replayed."""


class CallPlay:
    """Implements ``Play``."""

    def __init__(self, engine: Engine, plan: CallPlan) -> None:
        self._engine = engine
        self._plan = plan
        self.history = History()
        self.fired: list[Fault] = []

    async def run(self, faults: tuple[Fault, ...]) -> None:
        plan, history = self._plan, self.history
        moments, cluster = await serving_bookies(self._engine, plan, history)
        logs = [LogHistory(history, partition) for partition in range(plan.partitions)]
        ledger_lists = LedgerListWatch(history, cluster.memory, logs)
        brokers: dict[str, BrokerMachine] = {}
        taken = Taken(logs)
        front = Front(Http(self._engine, brokers), taken)
        await start_brokers(brokers, cluster, plan, ledger_lists, front)
        await create_topic(brokers["k1"], plan)
        info = await self._subscribe(brokers["k1"])
        taken.subscriptions = [SubscriptionHistory(log, info) for log in logs]
        for subscription in taken.subscriptions:
            subscription.follow()
        taken.calls = calls = CallHistory(logs, has_arbiter=plan.config.type == EXCLUSIVE)
        if plan.config.type in ORDERED and all(one.gives_back for one in plan.callers):
            calls.order = OrderHistory(taken.subscriptions)
        if plan.replays:
            taken.letters = LetterHistory(taken.subscriptions, answered)
            for subscription in taken.subscriptions:
                subscription.letters = front.dead_letters
        await self._spread(brokers)
        clients = Clients(cluster, brokers, logs, moments, front, plan.hurries)
        injector = TopicInjector(cluster, moments, brokers, front.http)
        self.fired = injector.fired
        injector.start(faults)
        processes = self._start_clients(clients, calls, info)
        await asyncio.sleep(plan.length_ms / 1000)
        injector.heal()
        clients.is_over.set()
        moments.end()
        if taken.letters is not None:
            await self._end_letters(cluster, clients, taken.letters)
        ending = TopicEnding(
            cluster,
            history,
            brokers,
            ledger_lists,
            clients,
            processes,
            is_let_go=plan.overrides.get("retention_bytes") == 1,
        )
        await ending.run(logs, taken.subscriptions)
        if taken.letters is not None:
            taken.letters.check_replayed()

    async def _end_letters(
        self, cluster: Cluster, clients: Clients, letters: LetterHistory
    ) -> None:
        """Acknowledge all, so that nothing fails any more; then replay what has failed."""
        process = self._engine.start_process("z2")
        chance = clients.chance("z2")
        for subscription in letters.subscriptions:
            partition = subscription.log.partition
            consumer = Consumer(f"y{partition}", subscription, clients, chance)
            await self.history.within(
                LETTERS_S,
                f"partition {partition} is consumed",
                process.spawn(consumer.finish()).done,
            )
        info = letters.subscriptions[0].info
        finished = process.spawn(Replayer("z2", info, clients, self.history).finish(letters))
        await self.history.within(LETTERS_S, "all dead letters are replayed", finished.done)

    async def _subscribe(self, machine: BrokerMachine) -> SubscriptionInfo:
        """Register it. Its cursors are opened as it is called."""

        async def register(broker: Broker) -> SubscriptionInfo:
            topic = await broker.topic(TOPIC)
            registered, _ = await broker.subscriptions.create(
                topic.topic_id,
                NAME,
                self._plan.config,
                "earliest",
                partitions=self._plan.partitions,
                at_most=1,
            )
            return registered.info

        return await ask_until(machine, register)

    async def _spread(self, brokers: dict[str, BrokerMachine]) -> None:
        """Each partition begins at another broker. One that fails otherwise than by an answer is
        broken."""
        machines = list(brokers.values())
        for partition in range(self._plan.partitions):
            try:
                await ask_until(
                    machines[partition % len(machines)],
                    partial(_take, partition),
                )
            except Exception as error:
                self.history.violate(22, f"partition {partition} cannot be taken: {error!r}")

    def _start_clients(
        self, clients: Clients, calls: CallHistory, info: SubscriptionInfo
    ) -> list[Process]:
        plan = self._plan
        works = [(one.machine, partial(Producer(one, clients).produce)) for one in plan.producers]
        for one in plan.callers:
            role = OrderedCaller if one.gives_back else Caller
            works.append((one.machine, partial(role(one, plan, clients, calls).run)))
        if plan.replays:
            works += [
                (machine, partial(Replayer(machine, info, clients, self.history).run))
                for machine in REPLAYERS
            ]
        processes = []
        for machine, work in works:
            processes.append(self._engine.start_process(machine))
            processes[-1].spawn(work())
        return processes


async def _take(partition: int, broker: Broker) -> None:
    await broker.take(TOPIC, partition)
