"""Faults of brokers, beside those of bookies, the network and metadata sessions
(``ledgers/faults.py``)."""

from __future__ import annotations

from tests.sim.ledgers.cluster import Cluster
from tests.sim.ledgers.faults import Injector, Moments, Undo, _nothing
from tests.sim.metadata.store import SimStore
from tests.sim.plan.plan import Fault
from tests.sim.plan.topic_forwards import CUT_ANSWERS, HTTP_TARGETS, befall
from tests.sim.topics.brokers import BrokerMachine
from tests.sim.topics.http import Http

MAX_JUMP_US = 3_600_000_000


class TopicInjector(Injector):
    """``start`` and ``heal`` as for ledgers."""

    def __init__(
        self,
        cluster: Cluster,
        moments: Moments,
        brokers: dict[str, BrokerMachine],
        http: Http,
    ) -> None:
        super().__init__(cluster, moments, lambda name: None)
        self._brokers = brokers
        self._http = http

    def heal(self) -> None:
        super().heal()
        self._http.heal()
        for machine in self._brokers.values():
            machine.doubt()
            machine.answers_lost = 0.0
            if machine.process is not None:
                machine.process.resume()
            machine.start()

    def _machines(self) -> list[str]:
        return [*self._cluster.bookies, *self._brokers, "zk"]

    def _begin(self, fault: Fault) -> Undo | None:
        machine = self._brokers.get(fault.target)
        if fault.kind in HTTP_TARGETS or fault.kind == CUT_ANSWERS:
            return befall(self._http, fault)
        if machine is None or fault.kind not in BROKERS:
            return super()._begin(fault)
        return self._on_broker(fault, machine)

    def _on_broker(self, fault: Fault, machine: BrokerMachine) -> Undo | None:
        process = machine.process
        if process is None or not process.is_alive:
            return None
        match fault.kind:
            case "kill broker" | "lose broker's power":
                machine.is_held_down = True
                machine.kill(silent="power" in fault.kind)
                return machine.start
            case "pause broker":
                process.pause()
                return process.resume
            case "drain broker":
                machine.drain()
            case "unload":
                machine.unload()
            case "believe":
                machine.believe_at_once()
                return machine.doubt
            case "believe, cut off" | "cut off":
                if "believe" in fault.kind:
                    machine.believe_at_once()
                return self._cut_off_from_bookies(machine)
            case "change's reply lost":
                return self._lose_reply(machine)
            case "changes refused":
                return self._refuse_changes(machine, fault)
            case "clock jumps":
                machine.jump(int((fault.size - 0.5) * 2 * MAX_JUMP_US))
            case "metadata lags":
                for store in self._stores(machine):
                    store.fall_behind()
            case "answers lost":
                machine.answers_lost = fault.size
                return lambda: setattr(machine, "answers_lost", 0.0)
        return _nothing

    def _cut_off_from_bookies(self, machine: BrokerMachine) -> Undo:
        """Cut the broker off from bookies, but not from metadata."""
        for bookie in self._cluster.bookies:
            self._network.block(machine.name, bookie)

        def undo() -> None:
            machine.doubt()
            for bookie in self._cluster.bookies:
                self._network.unblock(machine.name, bookie)

        return undo

    def _refuse_changes(self, machine: BrokerMachine, fault: Fault) -> Undo | None:
        """Its next changes of lists of ledgers."""
        stores = [store for store in self._cluster.stores if store.machine == machine.name]
        if not stores:
            return None
        stores[-1].refuse_changes("/logs/", 1 + int(fault.size * 3))
        return _nothing

    def _lose_reply(self, machine: BrokerMachine) -> Undo | None:
        """Lose the answer to its next change of a ledger list."""
        for store in self._stores(machine):
            store.lose_next_reply("/logs/")
            return _nothing
        return None

    def _stores(self, machine: BrokerMachine) -> list[SimStore]:
        """The present one."""
        return [store for store in self._cluster.stores if store.machine == machine.name][-1:]


BROKERS = {
    "kill broker",
    "lose broker's power",
    "pause broker",
    "drain broker",
    "unload",
    "believe",
    "believe, cut off",
    "cut off",
    "change's reply lost",
    "changes refused",
    "clock jumps",
    "answers lost",
    "metadata lags",
}
