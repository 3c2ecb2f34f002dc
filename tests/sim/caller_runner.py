"""The course of a history of calls. Invariants besides those of ``broker_runner.py``:

26 a request to a subscription is carried out by one owner of a partition, unless the former one has
   let it go for certain; its answer says what was done                       call_history.py
"""

from __future__ import annotations

import asyncio
from functools import partial

from broker_callers import NAME, Caller
from broker_clients import Clients
from broker_ending import TopicEnding
from broker_faults import TopicInjector
from broker_front import Front, Taken
from broker_history import LogHistory
from broker_http import Http
from broker_producers import Producer
from brokers import TOPIC, BrokerMachine, ask_until, create_topic, start_brokers
from call_history import CallHistory
from caller_plan import CallPlan
from chain_watch import ChainWatch
from cluster import Cluster
from engine import Engine
from faults import Moments
from history import History
from plan import Fault
from process import Process
from subscription_history import SubscriptionHistory

from fencelog.broker.broker import Broker
from fencelog.broker.subscription_config import EXCLUSIVE, SubscriptionInfo


class CallPlay:
    """Implements ``Play``."""

    def __init__(self, engine: Engine, plan: CallPlan) -> None:
        self._engine = engine
        self._plan = plan
        self.history = History()
        self.fired: list[Fault] = []

    async def run(self, faults: tuple[Fault, ...]) -> None:
        plan, history = self._plan, self.history
        moments = Moments()
        history.on_event = moments.event
        cluster = Cluster(self._engine, history, plan.session_ms / 1000)
        await cluster.initialise()
        cluster.add_bookies(plan)
        await cluster.all_serving()
        logs = [LogHistory(history, partition) for partition in range(plan.partitions)]
        chains = ChainWatch(history, cluster.memory, logs)
        brokers: dict[str, BrokerMachine] = {}
        taken = Taken(logs)
        front = Front(Http(self._engine, brokers), taken)
        await start_brokers(brokers, cluster, plan, chains, front)
        await create_topic(brokers["k1"], plan)
        info = await self._subscribe(brokers["k1"])
        taken.subscriptions = [SubscriptionHistory(log, info) for log in logs]
        for subscription in taken.subscriptions:
            subscription.follow()
        taken.calls = calls = CallHistory(logs, has_arbiter=plan.config.type == EXCLUSIVE)
        await self._spread(brokers)
        clients = Clients(cluster, brokers, logs, moments, front, plan.hurries)
        injector = TopicInjector(cluster, moments, brokers, front.http)
        self.fired = injector.fired
        injector.start(faults)
        processes = self._start_clients(clients, calls)
        await asyncio.sleep(plan.length_ms / 1000)
        injector.heal()
        clients.is_over.set()
        moments.end()
        ending = TopicEnding(
            cluster,
            history,
            brokers,
            chains,
            clients,
            processes,
            is_let_go=plan.overrides.get("retention_bytes") == 1,
        )
        await ending.run(logs, taken.subscriptions)

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
        """Each partition begins at another broker."""
        machines = list(brokers.values())
        for partition in range(self._plan.partitions):
            await ask_until(
                machines[partition % len(machines)],
                partial(_take, partition),
            )

    def _start_clients(self, clients: Clients, calls: CallHistory) -> list[Process]:
        plan = self._plan
        works = [(one.machine, partial(Producer(one, clients).produce)) for one in plan.producers]
        works += [
            (one.machine, partial(Caller(one, plan, clients, calls).run)) for one in plan.callers
        ]
        processes = []
        for machine, work in works:
            processes.append(self._engine.start_process(machine))
            processes[-1].spawn(work())
        return processes


async def _take(partition: int, broker: Broker) -> None:
    await broker.take(TOPIC, partition)
