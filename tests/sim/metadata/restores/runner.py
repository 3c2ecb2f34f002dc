"""One seed of restores, one history: the metadata store of a topic's cluster goes back to a backup.

The operator does what ``k8s/restore_zookeeper.sh`` does: everything stops, the tree of the backup
comes back, the ids of ledgers that were given since are skipped, and bookies and brokers start. The
invariants are those of topics (``topics/runner.py``), as far as the restore leaves promises
(``restores/rolled_back.py``), and

41 what was acknowledged before the backup, and what was appended later to a ledger that the backup
   names, is there once, in order; of what is lost nothing is remembered: a producer that repeats it
   is not called a duplicate, a subscription gets what is written in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from fencelog.broker.registry.subscription_config import SubscriptionInfo
from fencelog.ledgers.ledger_metadata.ids import skip_ids
from tests.sim.engine.engine import Engine
from tests.sim.engine.process import Process
from tests.sim.ledgers.cluster import Cluster, Session
from tests.sim.ledgers.faults import Moments
from tests.sim.metadata.restores.again import Again
from tests.sim.metadata.restores.plan import GRACE_MS, RestorePlan, draw_restore_plan
from tests.sim.metadata.restores.rolled_back import (
    INVARIANT,
    roll_back_ledgers,
    roll_back_lists,
    rolled_back,
    rolled_back_subscription,
)
from tests.sim.metadata.restores.tree import Backup, back_up, restore
from tests.sim.oracle.history import History
from tests.sim.oracle.list_watch import LedgerListWatch
from tests.sim.oracle.log_history import LogHistory
from tests.sim.oracle.subscription_history import SubscriptionHistory
from tests.sim.outcome import Result, outcome_of
from tests.sim.plan.plan import Fault
from tests.sim.plan.topic_plan import SubscriptionPlan, TopicPlan
from tests.sim.topics.brokers import BrokerMachine, create_topic, start_brokers
from tests.sim.topics.clients import Clients
from tests.sim.topics.consumers import Consumer
from tests.sim.topics.ending import TopicEnding
from tests.sim.topics.faults import TopicInjector
from tests.sim.topics.front import Front, Taken
from tests.sim.topics.http import Http
from tests.sim.topics.producers import Producer
from tests.sim.topics.small_limits import LIMITS, small_limits

BUDGET_S = 300.0
"""Virtual seconds that a history may take."""

STOPS_S = 20.0
"""The time for all services to stop in order."""

SKIPPED_IDS = 1_000_000


def run_restore_seed(
    seed: int,
    faults: Sequence[Fault] | None = None,
    *,
    verbose: bool = False,
    until_wrong: bool = False,
) -> Result:
    """Play one history. ``faults``: these instead of the plan's own."""
    plan = draw_restore_plan(seed)
    chosen = plan.faults if faults is None else tuple(faults)
    engine = Engine(seed)
    engine.trace.verbose = verbose
    play = _Play(engine, plan)
    with small_limits(LIMITS):
        return outcome_of(engine, play, chosen, budget_s=BUDGET_S, until_wrong=until_wrong)


class _Play:
    """The course of one history."""

    def __init__(self, engine: Engine, plan: RestorePlan) -> None:
        self._engine = engine
        self._plan = plan
        self.history = History()
        self.history.may_come_back = True
        self.fired: list[Fault] = []
        self._moments = Moments()
        self.history.on_event = self._moments.event
        self._cluster = Cluster(engine, self.history, plan.topic.session_ms / 1000)
        self._logs = [LogHistory(self.history, n) for n in range(plan.topic.partitions)]
        self._lists = LedgerListWatch(self.history, self._cluster.memory, list(self._logs))
        self._brokers: dict[str, BrokerMachine] = {}
        self._front = Front(Http(engine, self._brokers), Taken(self._logs))
        self._backup: Backup | None = None

    async def run(self, faults: tuple[Fault, ...]) -> None:
        topic, after = self._plan.topic, self._plan.after
        await self._start_bookies()
        await start_brokers(self._brokers, self._cluster, topic, self._lists, self._front)
        await create_topic(self._brokers["k1"], topic)
        subscriptions = [self._subscription(n, each) for n, each in enumerate(topic.subscriptions)]
        clients, injector = self._clients(), self._injector(faults)
        processes = self._start_clients(topic, clients, subscriptions)
        await asyncio.sleep(self._plan.backup_ms / 1000)
        self._backup = back_up(self._cluster.memory)
        await asyncio.sleep((topic.length_ms - self._plan.backup_ms) / 1000)
        injector.heal()
        self.fired += injector.fired
        await self._stop()
        clients.is_over.set()
        for process in processes:
            process.kill()
        subscriptions = await self._restore(subscriptions)
        self._start()
        clients, injector = self._clients(), self._injector(after.faults)
        again = Again(clients, self._engine.random("again"))
        processes = self._start_clients(after, clients, subscriptions)
        processes += again.start(self._engine, self._logs)
        await asyncio.sleep(after.length_ms / 1000)
        injector.heal()
        if self._plan.outlasts_grace:
            await asyncio.sleep(GRACE_MS / 1000 + 2)
        clients.is_over.set()
        self._moments.end()
        is_let_go = topic.overrides.get("retention_bytes") == 1
        ending = TopicEnding(
            self._cluster,
            self.history,
            self._brokers,
            self._lists,
            clients,
            processes,
            is_let_go=is_let_go,
        )
        await ending.run(self._logs, subscriptions)
        for subscription in subscriptions:
            check_nothing_was_passed(subscription)

    # -- parts -----------------------------------------------------------------------------------

    async def _start_bookies(self) -> None:
        cluster = self._cluster
        await cluster.initialise()
        cluster.add_bookies(self._plan.topic)
        for machine in cluster.bookies.values():
            garbage = replace(machine.maintenance.garbage, grace_ms=GRACE_MS)
            machine.maintenance = replace(machine.maintenance, garbage=garbage)
        await cluster.all_serving()

    def _clients(self) -> Clients:
        return Clients(self._cluster, self._brokers, self._logs, self._moments, self._front)

    def _injector(self, faults: tuple[Fault, ...]) -> TopicInjector:
        injector = TopicInjector(self._cluster, self._moments, self._brokers, self._front.http)
        injector.start(faults)
        return injector

    def _subscription(self, number: int, plan: SubscriptionPlan) -> SubscriptionHistory:
        log = self._logs[plan.partition]
        info = SubscriptionInfo(plan.name, f"{number:024x}", plan.config, "earliest")
        subscription = SubscriptionHistory(log, info)
        subscription.follow()
        return subscription

    def _start_clients(
        self, plan: TopicPlan, clients: Clients, subscriptions: list[SubscriptionHistory]
    ) -> list[Process]:
        works = [(each.machine, Producer(each, clients).produce) for each in plan.producers]
        works += [(each.machine, partial(clients.read, each)) for each in plan.readers]
        for each in plan.consumers:
            subscription, chance = subscriptions[each.subscription], clients.chance(each.machine)
            consumer = Consumer(each.machine, subscription, clients, chance)
            works.append((each.machine, partial(consumer.consume, each)))
        processes = []
        for machine, work in works:
            processes.append(self._engine.start_process(machine))
            processes[-1].spawn(work())
        return processes

    # -- the operator ----------------------------------------------------------------------------

    async def _stop(self) -> None:
        """Everything stops: brokers, then bookies."""
        history, plan = self.history, self._plan
        for machine in self._brokers.values():
            machine.is_held_down = True
            if plan.is_sudden or machine.broker is None:
                machine.kill()
            else:
                machine.drain()
        running = [m.process for m in self._brokers.values() if m.process is not None]
        await history.within(STOPS_S, "brokers stop", lambda: not any(p.is_alive for p in running))
        for bookie in self._cluster.bookies.values():
            bookie.hold_down()
            if plan.bookies_end == "stop":
                await bookie.shut_down()
            else:
                bookie.kill(power_loss=plan.bookies_end == "power")

    async def _restore(self, subscriptions: list[SubscriptionHistory]) -> list[SubscriptionHistory]:
        """The tree of the backup comes back, and the oracle's promises with it; ids are skipped."""
        backup, cluster, timeout_s = self._backup, self._cluster, self._plan.topic.session_ms / 1000
        assert backup is not None
        logs = [rolled_back(log, backup) for log in self._logs]
        roll_back_ledgers(self.history, cluster.watch, backup)
        restore(self._engine, cluster.memory, backup, session_timeout_s=timeout_s)
        self._logs[:] = logs
        roll_back_lists(self._lists, logs, backup)
        self.history.counts["restores"] += 1
        self.history.on_event("restored")
        after = [rolled_back_subscription(s, logs[s.log.partition]) for s in subscriptions]
        await asyncio.sleep(self._plan.waits_ms / 1000)

        async def skip(session: Session) -> None:
            await skip_ids(session.store, SKIPPED_IDS)

        process = cluster.client_process("o1", skip)
        await cluster.until(lambda: not process.live_tasks())
        process.kill()
        return after

    def _start(self) -> None:
        for bookie in self._cluster.bookies.values():
            bookie.start()
        for broker in self._brokers.values():
            broker.start()


def check_nothing_was_passed(subscription: SubscriptionHistory) -> None:
    """Check, when a subscription is finished, that each message was acknowledged on request."""
    log = subscription.log
    for offset in range(log.start_offset, log.known_end):
        if not subscription.asked.get(offset) and not subscription._is_lawful(offset):
            subscription.violate(INVARIANT, f"{offset} was passed over")
            return
