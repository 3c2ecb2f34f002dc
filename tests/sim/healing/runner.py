"""One seed, one history of self-healing: a bookie is lost amid the usual faults, or is to leave;
auditors find that out, and replication workers, which die and stumble as well, copy what it held to
others.

The invariants are those of ``ledgers/runner.py``. Invariant 11 is stricter: in the end each entry
of a closed ledger has Qw copies, each readable with the right digest from a live bookie that the
metadata names. A change of the metadata by a worker is checked as it happens
(``metadata/replacements.py``). Invariant 38: what auditors and checkers say is true, and a cookie
goes last (``healing/mark_watch.py``, ``healing/mark_truth.py``, ``healing/accusations.py``).
Invariant 39: a mark goes when nothing that it names is missing, one worker at a time repairs a
ledger, and none ends a writer too early (``healing/mark_truth.py``, ``healing/repair_watch.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from fencelog.bookie.auditor import absence_core, auditor
from fencelog.bookie.auditor.decommission_core import Phase
from fencelog.bookie.replication.settings import change_settings
from fencelog.ledgers.errors import FencelogError
from tests.sim.engine.engine import Engine
from tests.sim.engine.host import SimHost
from tests.sim.engine.process import Process
from tests.sim.healing.auditors import Auditors
from tests.sim.healing.balance import MACHINE, Balancing, draw_balance_rate
from tests.sim.healing.ending import HealingEnding
from tests.sim.healing.faults import HealingFaults, lose
from tests.sim.healing.mark_truth import left_behind
from tests.sim.healing.mark_watch import UNSEEN_S, MarkWatch
from tests.sim.healing.plan import AUDITORS, HEALING_TARGETS, HealingPlan
from tests.sim.healing.repair_watch import ObservedWorker
from tests.sim.healing.stories import draw_healing_plan
from tests.sim.ledgers.cluster import Cluster, Session
from tests.sim.ledgers.faults import Injector, Moments
from tests.sim.ledgers.ghosts import Ghosts
from tests.sim.ledgers.workload import Workload
from tests.sim.oracle.history import History
from tests.sim.outcome import Result, outcome_of
from tests.sim.plan.plan import Fault
from tests.sim.topics.small_limits import Limits, small_limits

Work = Callable[[Session], Coroutine[Any, Any, None]]

BUDGET_S = 1_500.0
"""Virtual seconds that a history may take, its liveness phase included."""

LIMITS: Limits = (
    (auditor, "REGISTRATION_LOOK_MS", 700),
    (absence_core, "MAX_LOOK_GAP_S", UNSEEN_S),
)
"""Auditors look as often, and start their clocks anew as soon, as suits grace times of seconds."""

RESTART_S = 0.5
CHECK_MS = 300


def run_healing_seed(
    seed: int,
    faults: Sequence[Fault] | None = None,
    *,
    verbose: bool = False,
    until_wrong: bool = False,
) -> Result:
    """Play one history. ``faults``: these instead of the plan's own."""
    plan = draw_healing_plan(seed)
    chosen = plan.faults if faults is None else tuple(faults)
    engine = Engine(seed)
    engine.trace.verbose = verbose
    play = _Play(engine, plan)
    with small_limits(LIMITS):
        return outcome_of(engine, play, chosen, budget_s=BUDGET_S, until_wrong=until_wrong)


class _Play:
    """The course of one history."""

    def __init__(self, engine: Engine, plan: HealingPlan) -> None:
        self._engine = engine
        self._plan = plan
        self.history = History()
        self._clients: dict[str, Process] = {}
        self._healers: dict[str, Process] = {}
        self._is_healed = False
        self._is_decided = False
        self._is_stopped = False
        """The operator has stopped the bookie that is to leave."""
        self.fired: list[Fault] = []

    async def run(self, faults: tuple[Fault, ...]) -> None:
        plan, base = self._plan, self._plan.base
        moments = Moments()
        self.history.on_event = moments.event
        cluster = Cluster(self._engine, self.history)
        cluster.clients = (*cluster.clients, "h1", "h2", *AUDITORS, "k1", "o1", MACHINE)
        watch = MarkWatch(self.history, cluster, plan)
        self._repairs = watch.repairs
        if plan.are_writers_left:
            watch.repairs.open_grace_s = plan.open_ledger_grace_ms / 1000
        await cluster.initialise()
        if plan.is_off:
            await self._switch(cluster, is_disabled=True)
        cluster.add_bookies(base)
        await cluster.all_serving()
        workload = Workload(cluster, self.history, moments)
        injector = Injector(cluster, moments, self._live_client)
        auditors = Auditors(cluster, self.history, watch, plan, lambda: self._is_healed)
        late = [f"b{base.bookies + n + 1}" for n in range(plan.late_bookies)]
        may_leave = plan.decommission is None
        special = HealingFaults(cluster, self.history, moments, late, may_leave=may_leave)
        injector.start(fault for fault in faults if fault.kind not in HEALING_TARGETS)
        special.start(fault for fault in faults if fault.kind in HEALING_TARGETS)
        self._start_clients(cluster, workload)
        asyncio.get_running_loop().call_soon(workload.watch_writers)
        cluster.in_world(self._join(cluster, late))
        for number in range(plan.workers):
            cluster.in_world(self._keep(cluster, f"h{number + 1}", self._repair))
        for machine in AUDITORS:
            cluster.in_world(self._keep(cluster, machine, auditors.audit))
        cluster.in_world(self._keep(cluster, "k1", auditors.check))
        if (rate := draw_balance_rate(base.seed)) is not None:
            balancing = Balancing(cluster, self.history, rate)
            cluster.in_world(self._keep(cluster, MACHINE, balancing.run))
        if plan.decommission is not None:
            cluster.takes_bookies_out = True
            cluster.expects_refusals.add(base.victim)
            cluster.in_world(self._keep(cluster, "o1", auditors.decommission))
            cluster.in_world(self._stop_drained(cluster, watch, auditors))
        await asyncio.sleep(base.length_ms / 1000)
        special.is_over = True
        watch.repairs.open_grace_s = None
        self.history.counts["copies left behind"] += left_behind(self.history)
        injector.heal()
        self._decide_loss(cluster)
        for process in (*self._clients.values(), *self._healers.values()):
            if process.is_alive:
                process.resume()
        workload.is_over.set()
        moments.end()
        self.fired = [*injector.fired, *special.fired]
        if plan.is_off:
            await self._switch(cluster, is_disabled=False)
        clients = list(self._clients.values())
        ending = HealingEnding(cluster, self.history, base, workload, clients)
        ending.heal_s = plan.heal_s
        ending.on_healed = self._healed
        ending.is_retired = lambda: auditors.is_retired
        await ending.run()

    def _healed(self) -> None:
        """Nothing more needs a worker, and none is in the way of what follows."""
        self._is_healed = True
        for process in self._healers.values():
            process.kill()

    def _decide_loss(self, cluster: Cluster) -> None:
        victim = self._plan.base.victim
        machine = cluster.bookies[victim]
        self._is_decided = True
        if self._plan.decommission == "alive" and not self._is_stopped:
            return  # it leaves when its last ledger has left it
        match self._plan.loss:
            case "for good":
                lose(cluster, machine)
                self.history.bookie(victim).is_damaged = True
                del cluster.bookies[victim]
            case "returns empty":
                cluster.expects_refusals.add(victim)
                machine.hold_down()
                machine.replace_disk()
                machine.start()

    async def _stop_drained(self, cluster: Cluster, watch: MarkWatch, auditors: Auditors) -> None:
        """The operator stops a bookie that nothing needs any more. One that has died by itself when
        it was drained is left as it is, in the end."""
        victim = self._plan.base.victim
        while not self._is_healed and victim in cluster.bookies:
            phase = watch.phase(victim)
            is_out = phase is Phase.REMOVING or auditors.is_retired
            if phase is Phase.DRAINED or (self._is_decided and is_out):
                lose(cluster, cluster.bookies[victim])
                self._is_stopped = True
                if self._is_decided:
                    self.history.bookie(victim).is_damaged = True
                    del cluster.bookies[victim]
            await asyncio.sleep(RESTART_S)

    async def _switch(self, cluster: Cluster, *, is_disabled: bool) -> None:
        """Turn self-healing off, or on: ``fencelog autorecovery``."""

        async def switch(session: Session) -> None:
            while True:
                try:
                    await change_settings(session.store, is_disabled=is_disabled)
                except FencelogError:
                    await asyncio.sleep(RESTART_S)
                else:
                    return

        process = cluster.client_process("o2", switch)
        await cluster.until(lambda: not process.live_tasks())
        process.kill()

    # -- processes -------------------------------------------------------------------------------

    async def _join(self, cluster: Cluster, late: list[str]) -> None:
        await asyncio.sleep(self._plan.late_ms / 1000)
        for name in late:
            cluster.add_bookie(name, self._plan.base)

    async def _keep(self, cluster: Cluster, machine: str, work: Work) -> None:
        """Start a process again whenever it has died."""
        while not self._is_healed:
            process = self._healers.get(machine)
            if process is None or not process.is_alive:
                if process is not None:
                    await asyncio.sleep(RESTART_S)
                self._healers[machine] = cluster.client_process(machine, work)
            await asyncio.sleep(0.2)

    async def _repair(self, session: Session) -> None:
        worker = ObservedWorker(
            session,
            self._repairs,
            worker_id=session.process.machine,
            host=SimHost(self._engine, session.process.machine),
            check_ms=CHECK_MS,
            open_ledger_grace_ms=self._plan.open_ledger_grace_ms,
            copy_bytes_per_s=self._plan.copy_bytes_per_s,
        )
        try:
            await worker.run()
        finally:
            status = worker.status()
            self.history.counts["entries copied by workers"] += status["copied_entries"]
            self.history.counts["ledgers repaired by workers"] += status["repaired_ledgers"]

    def _start_clients(self, cluster: Cluster, workload: Workload) -> None:
        base = self._plan.base
        for index, ledger in enumerate(base.ledgers):
            name = f"w{index + 1}"
            work = partial(workload.write, index, ledger)
            self._clients[name] = cluster.client_process(name, work)
        for visits, role in (
            (base.recoverers, workload.recover),
            (base.readers, workload.read),
            (base.deleters, workload.delete),
        ):
            for visit in visits:
                self._clients[visit.machine] = cluster.client_process(
                    visit.machine, partial(role, visit)
                )
        if base.is_haunted:
            ghosts = Ghosts(self.history, self._engine.random("ghosts"), workload.is_over)
            self._clients["g1"] = cluster.client_process("g1", ghosts.haunt)
        for number in range(base.askers):
            name = f"q{number + 1}"
            asker = Ghosts(self.history, self._engine.random(f"asker {name}"), workload.is_over)
            self._clients[name] = cluster.client_process(name, asker.ask_on)

    def _live_client(self, machine: str) -> Process | None:
        process = self._clients.get(machine) or self._healers.get(machine)
        return process if process is not None and process.is_alive else None
