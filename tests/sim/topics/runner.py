"""One seed of the topics' kind, one history: brokers contend for the partitions of a topic.

Invariants, beside those of the ledgers underneath (``ledgers/runner.py``), and where each is
checked:

16 one owner an epoch gets acks, in the order of the log;          oracle/log_history.py
   the list of ledgers is legal, nothing is deleted that it has,   oracle/list_watch.py
   nothing acknowledged in what it has not                         oracle/observed_ledgers.py
17 what a producer numbered is there once, in order, as far as     oracle/log_history.py,
   it is remembered                                                oracle/limits/producer_limit.py
18 nothing is with two, nothing is left out, order, keys           oracle/subscription_history.py
19 what is acknowledged does not come again, is durable            oracle/subscription_history.py,
                                                                   oracle/state_watch.py
20 nothing is trimmed that somebody still needs                    oracle/subscription_history.py
21 one sequence of messages for everybody, for ever                oracle/log_history.py,
                                                                   topics/reads.py,
                                                                   topics/direct/ranges.py
27 a quota lets in what it may, and nothing else                   oracle/limits/quota_watch.py
22 after healing all is served, and sealed in the end              topics/ending.py
37 a batch is in the log once, or not at all                       commits/history.py
40 a dead letter is there before its message goes, and comes back  letters/history.py
23 the same seed gives the same trace                              test_topic_simulation.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from fencelog.broker.policy import BACKLOG_HOLD, BACKLOG_REFUSE
from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from tests.sim.admin.runner import SHORT_INTERVALS, AdminPlay
from tests.sim.commits.routed import routed_limits, start_committers
from tests.sim.commits.routes import CommitterRoutes
from tests.sim.engine.engine import Engine
from tests.sim.engine.host import SimHost
from tests.sim.engine.process import Process
from tests.sim.letters.plan import draw_letter_plan, has_letters
from tests.sim.oracle.history import History
from tests.sim.oracle.lawful_ends import lawful_ends
from tests.sim.oracle.limits.producer_limit import ProducerLimit
from tests.sim.oracle.limits.quota_watch import QuotaWatch
from tests.sim.oracle.list_watch import LedgerListWatch
from tests.sim.oracle.log_history import LogHistory
from tests.sim.oracle.subscription_history import SubscriptionHistory
from tests.sim.outcome import Result, outcome_of
from tests.sim.plan.admin_draw import draw_admin_plan, is_administered
from tests.sim.plan.admin_plan import AdminPlan
from tests.sim.plan.caller_plan import CallPlan, draw_call_plan, has_calls
from tests.sim.plan.plan import Fault
from tests.sim.plan.topic_draw import draw_topic_plan
from tests.sim.plan.topic_plan import ConsumerPlan, SubscriptionPlan, TopicPlan
from tests.sim.topics.brokers import BrokerMachine, create_topic, serving_bookies, start_brokers
from tests.sim.topics.calls.caller_runner import CallPlay
from tests.sim.topics.calls.lost_pulls import draw_lost_pull_plan, loses_pulls
from tests.sim.topics.clients import Clients
from tests.sim.topics.consumers import Consumer
from tests.sim.topics.dead_letters import Keyed, Letters, Replayer
from tests.sim.topics.direct.mover import MACHINE, Mover
from tests.sim.topics.direct.reader import DirectReader
from tests.sim.topics.direct.route import RangeRoute
from tests.sim.topics.ending import TopicEnding
from tests.sim.topics.faults import TopicInjector
from tests.sim.topics.front import Front, Taken
from tests.sim.topics.http import Http
from tests.sim.topics.producers import Producer
from tests.sim.topics.rover import Rover, Stray
from tests.sim.topics.small_limits import (
    FORGETFUL,
    HOLD_S,
    LIMITS,
    REPLAYED_SOON,
    few_claimants,
    few_waiting,
    small_limits,
)

BUDGET_S = 250.0
"""Virtual seconds that a history may take."""


REPLAYS = ConsumerPlan("c0", 0, 300, 3, 100, 0.0, 0.0, 0.0, 0.0, 0.0)
"""The schedule of replays of dead letters, and their size."""


def run_topic_seed(
    seed: int,
    faults: Sequence[Fault] | None = None,
    *,
    verbose: bool = False,
    until_wrong: bool = False,
) -> Result:
    """Play one history. ``faults``: these instead of the plan's own."""
    engine = Engine(seed)
    outcome = partial(outcome_of, engine, budget_s=BUDGET_S, until_wrong=until_wrong)
    engine.trace.verbose = verbose
    plan = plan_of(seed)
    chosen = plan.faults if faults is None else tuple(faults)
    if isinstance(plan, AdminPlan):
        few = (*few_claimants(plan.claimants), *few_waiting(plan.waiting))
        with small_limits(), small_limits((*SHORT_INTERVALS, *few)):
            return outcome(AdminPlay(engine, plan), chosen)
    if isinstance(plan, CallPlan):
        with small_limits(), small_limits(REPLAYED_SOON if has_letters(seed) else ()):
            return outcome(CallPlay(engine, plan), chosen)
    limits = LIMITS + FORGETFUL if plan.forgets else LIMITS
    with small_limits(limits + routed_limits(plan)):
        return outcome(_Play(engine, plan), chosen)


def plan_of(seed: int) -> AdminPlan | CallPlan | TopicPlan:
    """The plan of a history: of administration, of requests by other brokers, or of a topic."""
    if is_administered(seed):
        return draw_admin_plan(seed)
    if has_letters(seed):
        return draw_letter_plan(seed)
    if loses_pulls(seed):
        return draw_lost_pull_plan(seed)
    return draw_call_plan(seed) if has_calls(seed) else draw_topic_plan(seed)


class _Play:
    """The course of one history."""

    def __init__(self, engine: Engine, plan: TopicPlan) -> None:
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
        front = Front(Http(self._engine, brokers), Taken(logs))
        await start_brokers(brokers, cluster, plan, ledger_lists, front)
        await create_topic(brokers["k1"], plan)
        clients = Clients(cluster, brokers, logs, moments, front, plan.hurries, plan.delays)
        injector = TopicInjector(cluster, moments, brokers, front.http)
        self.fired = injector.fired
        injector.start(faults)
        subscriptions = [
            _subscription(number, each, logs) for number, each in enumerate(plan.subscriptions)
        ]
        if plan.dead_letters is not None:
            subscriptions.append(_with_letters(subscriptions[0], logs[plan.dead_letters], brokers))
        for subscription in subscriptions:
            subscription.latest_us = partial(self._latest_us, brokers)
            subscription.lawful += lawful_ends(
                subscription.log, plan.overrides, partial(self._latest_us, brokers)
            )
        is_limited = self._watch_limits(logs, subscriptions)
        processes = self._start_clients(clients, subscriptions, brokers)
        is_routed = any(each.over_http for each in plan.committers)
        routes = CommitterRoutes(logs, front) if is_routed else None
        processes += start_committers(plan.committers, cluster, clients, routes)
        if plan.moves:
            mover = Mover(cluster, logs[0], clients.is_over)
            processes.append(cluster.client_process(MACHINE, mover.run))
        await asyncio.sleep(plan.length_ms / 1000)
        injector.heal()
        clients.is_over.set()
        moments.end()
        ending = TopicEnding(
            cluster,
            history,
            brokers,
            ledger_lists,
            clients,
            processes,
            is_let_go=plan.overrides.get("retention_bytes") == 1,
            drained=subscriptions if is_limited else (),
        )
        await ending.run(logs, subscriptions)

    def _watch_limits(
        self, logs: list[LogHistory], subscriptions: list[SubscriptionHistory]
    ) -> bool:
        """Judge what settings let in. Whether appends may wait for subscriptions."""
        settings = self._plan.overrides
        for log in logs:
            if "max_producers" in settings:
                most = int(settings["max_producers"])
                log.producer_limit = ProducerLimit(most, log.violate)
        action = str(settings.get("backlog_action"))
        if action not in (BACKLOG_HOLD, BACKLOG_REFUSE):
            return False
        quota = int(settings["backlog_quota_bytes"])
        for log in logs:
            there = [each for each in subscriptions if each.log is log]
            log.let_in = QuotaWatch(log, action, quota, HOLD_S, there).append
        return True

    def _latest_us(self, brokers: Mapping[str, BrokerMachine]) -> int:
        """No broker's clock has ever been later."""
        most = max(machine.most_skew_us for machine in brokers.values())
        return SimHost(self._engine, "oracle").now_us() + most

    def _start_clients(
        self,
        clients: Clients,
        subscriptions: list[SubscriptionHistory],
        brokers: Mapping[str, BrokerMachine],
    ) -> list[Process]:
        works = [
            (plan.machine, partial(Producer(plan, clients).produce))
            for plan in self._plan.producers
        ]
        works += [(plan.machine, partial(clients.read, plan)) for plan in self._plan.readers]
        route = RangeRoute(clients.front, clients.logs[0]) if self._plan.direct else None
        for direct in self._plan.direct:
            works.append((direct.machine, partial(DirectReader(direct, clients, route).run)))
        for consumer in self._plan.consumers:
            subscription = subscriptions[consumer.subscription]
            chance = clients.chance(consumer.machine)
            role = Rover if consumer.roves else Stray if consumer.strays else Consumer
            work = role(consumer.machine, subscription, clients, chance).consume
            works.append((consumer.machine, partial(work, consumer)))
        if self._plan.dead_letters is not None:
            replayer = Replayer("c0", subscriptions[-1], subscriptions[0], brokers, clients)
            works.append(("c0", partial(replayer.replay, REPLAYS)))
        processes = []
        for machine, work in works:
            processes.append(self._engine.start_process(machine))
            processes[-1].spawn(work())
        return processes


def _subscription(
    number: int, plan: SubscriptionPlan, logs: list[LogHistory]
) -> SubscriptionHistory:
    """Create a subscription at the beginning of the log, which keeps everything from being
    trimmed."""
    log = logs[plan.partition]
    info = SubscriptionInfo(plan.name, f"{number:024x}", plan.config, "earliest")
    subscription = SubscriptionHistory(log, info)
    subscription.follow()
    return subscription


def _with_letters(
    origin: SubscriptionHistory, dead: LogHistory, brokers: Mapping[str, BrokerMachine]
) -> SubscriptionHistory:
    """Have a subscription's dead letters go to that log; the subscription that replays them."""
    letters = Letters(origin, Keyed(dead, brokers))
    origin.letters = lambda broker: letters
    info = SubscriptionInfo("replay", "f" * 24, SubscriptionConfig(lease_ms=300), "earliest")
    replaying = SubscriptionHistory(dead, info)
    replaying.follow()
    return replaying
