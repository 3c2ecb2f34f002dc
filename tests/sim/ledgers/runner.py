"""One seed, one history: a safety phase full of faults, then everything is healed and has to
converge.

Invariants, and where each is checked (the numbers that are missing are those of storage, topics and
subscriptions):

 1 acknowledged entries are readable with identical bytes      ending.py, workload.py
 2 a closed ledger ends at or above every acknowledgement      oracle/history.py, metadata/watch.py
 3 one close wins, versions grow, states go forward            metadata/watch.py, oracle/history.py
 4 fragments in order, ensembles of E different bookies        metadata/watch.py
 5 one body for one entry                                        oracle, workload.py
 6 no LAC above the true one, never back                         oracle, workload.py
 7 no read above LAC                                           workload.py
 8 no gaps, in order                                           workload.py, oracle/history.py
 9 a fenced bookie takes no regular add                          oracle
10 "no" is said from intact storage only                         oracle
11 each entry of a closed ledger on Qa live bookies            ending.py
12 a restarted bookie has what it acknowledged                   oracle
13 a bookie stops or refuses only for a reason                 cluster.py
22 after healing all converges in time, nothing is left behind ending.py, cluster.py
23 the same seed gives the same trace                          test_simulation.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from tests.sim.engine.engine import Engine
from tests.sim.engine.process import Process
from tests.sim.ledgers.cluster import Cluster
from tests.sim.ledgers.ending import Ending
from tests.sim.ledgers.faults import Injector, Moments
from tests.sim.ledgers.ghosts import Ghosts
from tests.sim.ledgers.workload import Workload
from tests.sim.oracle.history import History
from tests.sim.outcome import Result, outcome_of
from tests.sim.plan.draw import draw_plan
from tests.sim.plan.plan import Fault, Plan

BUDGET_S = 400.0
"""Virtual seconds that a history may take, its liveness phase included."""


def run_seed(
    seed: int,
    faults: Sequence[Fault] | None = None,
    *,
    verbose: bool = False,
    until_wrong: bool = False,
) -> Result:
    """Play one history. ``faults``: these instead of the plan's own."""
    plan = draw_plan(seed)
    chosen = plan.faults if faults is None else tuple(faults)
    engine = Engine(seed)
    engine.trace.verbose = verbose
    play = _Play(engine, plan)
    return outcome_of(engine, play, chosen, budget_s=BUDGET_S, until_wrong=until_wrong)


class _Play:
    """The course of one history."""

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self._engine = engine
        self._plan = plan
        self.history = History()
        self._clients: dict[str, Process] = {}
        self.fired: list[Fault] = []

    async def run(self, faults: tuple[Fault, ...]) -> None:
        plan, engine = self._plan, self._engine
        moments = Moments()
        self.history.on_event = moments.event
        cluster = Cluster(engine, self.history)
        await cluster.initialise()
        cluster.add_bookies(plan)
        await cluster.all_serving()
        workload = Workload(cluster, self.history, moments)
        injector = Injector(cluster, moments, self._live_client)
        self.fired = injector.fired
        injector.start(faults)
        self._start_clients(cluster, workload)
        asyncio.get_running_loop().call_soon(workload.watch_writers)
        await asyncio.sleep(plan.length_ms / 1000)
        injector.heal()
        for process in self._clients.values():
            if process.is_alive:
                process.resume()
        workload.is_over.set()
        moments.end()
        await Ending(cluster, self.history, plan, workload, list(self._clients.values())).run()

    def _start_clients(self, cluster: Cluster, workload: Workload) -> None:
        plan = self._plan
        for index, ledger in enumerate(plan.ledgers):
            name = f"w{index + 1}"
            work = partial(workload.write, index, ledger)
            self._clients[name] = cluster.client_process(name, work)
        for visits, role in (
            (plan.recoverers, workload.recover),
            (plan.readers, workload.read),
            (plan.deleters, workload.delete),
        ):
            for visit in visits:
                self._clients[visit.machine] = cluster.client_process(
                    visit.machine, partial(role, visit)
                )

        if plan.is_haunted:
            chance = self._engine.random("ghosts")
            ghosts = Ghosts(self.history, chance, workload.is_over)
            self._clients["g1"] = cluster.client_process("g1", ghosts.haunt)
        for number in range(plan.askers):
            name = f"q{number + 1}"
            asker = Ghosts(self.history, self._engine.random(f"asker {name}"), workload.is_over)
            self._clients[name] = cluster.client_process(name, asker.ask_on)

    def _live_client(self, machine: str) -> Process | None:
        process = self._clients.get(machine)
        return process if process is not None and process.is_alive else None
