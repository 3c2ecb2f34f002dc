"""The course of a history of administration, and its invariants beside ``topics/runner.py``.

24 an incarnation of the topic keeps its id, its partitions and what was confirmed of its settings;
   nothing of a previous one comes back or is left; what has ended stays so; the compacted view
   equals the naive one                                    oracle/incarnations.py, admin/edge.py
26 an append under an idempotency key that finds its partition is in one partition only, however
   often the topic grows                                   oracle/incarnations.py, admin/edge.py
18 nothing counts as acknowledged without a request, unless a setting allows it; a cursor begins
   where it has to                      oracle/incarnations.py, oracle/cursors/cursor_history.py
17, 27 what is refused, or forgotten, is so by a limit that was set
                    oracle/cursors/settings_history.py, oracle/limits/producer_bounds.py
25 nothing is acknowledged under a token or a claim that is over           oracle/access_history.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from fencelog.broker.background import compaction_scheduler, cursor_reconciler
from fencelog.broker.compaction import compaction
from fencelog.broker.config import BrokerConfig
from fencelog.broker.registry.topics import TopicConfig
from tests.sim.admin.clients import AdminClients
from tests.sim.admin.direct import AdminDirectReader
from tests.sim.admin.edge import Edge
from tests.sim.admin.ending import AdminEnding
from tests.sim.admin.operator import LIMITS, SETTINGS, Operator
from tests.sim.admin.routes import Routes
from tests.sim.admin.subscriptions import Groups
from tests.sim.engine.engine import Engine
from tests.sim.engine.host import SimHost
from tests.sim.engine.process import Process
from tests.sim.oracle.call_history import CallHistory
from tests.sim.oracle.history import History
from tests.sim.oracle.incarnation_lists import IncarnationLedgerLists
from tests.sim.oracle.incarnations import Incarnations
from tests.sim.oracle.log_history import LogHistory
from tests.sim.plan.admin_plan import RECONCILE_MS, AdminPlan
from tests.sim.plan.plan import Fault
from tests.sim.topics.brokers import BrokerMachine, serving_bookies, start_brokers
from tests.sim.topics.clients import Clients
from tests.sim.topics.faults import TopicInjector
from tests.sim.topics.front import Front, Taken
from tests.sim.topics.http import Http
from tests.sim.topics.small_limits import Limits

INTERVALS = BrokerConfig("", "", sweep_grace_s=1.0)
"""A ledger is created, and listed or given up, within the time that an opening may take; what a
topic that is gone has younger than this nobody needs, so nothing hangs on it."""

SHORT_INTERVALS: Limits = (
    (cursor_reconciler, "SUBSCRIPTION_LOOK_MS", RECONCILE_MS),
    (compaction_scheduler, "COMPACTION_LOOK_MS", 100),
    (compaction, "COMPACTION_RETRY_MS", 200),
)
"""The intervals of a broker's periodic work, shortened to fit a history of seconds."""


class AdminPlay:
    """Implements ``Play``."""

    def __init__(self, engine: Engine, plan: AdminPlan) -> None:
        self._engine = engine
        self._plan = plan
        self.history = History()
        self.fired: list[Fault] = []

    async def run(self, faults: tuple[Fault, ...]) -> None:
        plan, history = self._plan, self.history
        moments, cluster = await serving_bookies(self._engine, plan, history)
        incarnations = Incarnations(
            history,
            cluster.memory,
            (*SETTINGS, *(change for changes in LIMITS.values() for change in changes)),
            SimHost(self._engine, "oracle").now_us,
            forgets=any(step.kind == "settings, producers" for step in plan.steps),
        )
        ledger_lists = IncarnationLedgerLists(history, cluster.memory, incarnations)
        brokers: dict[str, BrokerMachine] = {}
        logs = [LogHistory(history, 0)]  # of what goes through the front doors
        front = Front(Http(self._engine, brokers), Taken(logs))
        intervals = replace(INTERVALS, sweep_interval_s=plan.sweep_s)
        await start_brokers(brokers, cluster, plan, ledger_lists, front, intervals)
        clients = Clients(cluster, brokers, logs, moments, front)
        edge = Edge(incarnations, ledger_lists)
        routes = Routes(edge, front, CallHistory(logs, has_arbiter=False)) if plan.posts else None
        roles = AdminClients(clients, edge, Groups(edge, brokers), routes)
        operator = Operator(plan, roles, moments)
        asking, _ = roles.asking("a0")
        while incarnations.living is None:
            config = TopicConfig(plan.partitions, plan.overrides)
            await asking.ask(partial(operator.create, config))
        injector = TopicInjector(cluster, moments, brokers, front.http)
        self.fired = injector.fired
        injector.start(faults)
        processes = self._start(roles, operator)
        await asyncio.sleep(plan.length_ms / 1000)
        injector.heal()
        clients.is_over.set()
        moments.end()
        ending = AdminEnding(
            plan, cluster, history, brokers, ledger_lists, roles, operator, processes
        )
        await ending.run()

    def _start(self, roles: AdminClients, operator: Operator) -> list[Process]:
        plan = self._plan
        works: list[tuple[str, Coroutine[Any, Any, None]]] = [
            *((one.machine, roles.write(one)) for one in plan.writers),
            *((one.machine, roles.read(one)) for one in plan.followers),
            *((one.machine, AdminDirectReader(one, roles).run()) for one in plan.direct),
            *((f"consumer of {one.name}", roles.consume(one)) for one in plan.groups if one.pulls),
            *(
                (f"a{number + 1}", operator.carry_out(f"a{number + 1}", step))
                for number, step in enumerate(plan.steps)
            ),
        ]
        if plan.compacts:
            works.append(("t9", roles.read_views("t9")))
        processes = []
        for machine, work in works:
            processes.append(self._engine.start_process(machine))
            processes[-1].spawn(work)
        return processes
