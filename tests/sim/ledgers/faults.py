"""Carrying out a plan's faults, each at its moment, and undoing them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from errno import EIO, ENOSPC
from functools import partial

from fencelog.bookie.storage.entry_log import ENTRY_LOG_SUFFIX
from tests.sim.engine.process import Process
from tests.sim.ledgers.aims import aimed
from tests.sim.ledgers.cluster import BookieMachine, Cluster
from tests.sim.ledgers.restarts import JOURNAL_SUFFIX, Restarts
from tests.sim.metadata.emptied import Emptied
from tests.sim.metadata.store import SimStore
from tests.sim.plan.plan import Fault, Moment

Undo = Callable[[], None]


class Moments:
    """Wakes whoever waits for a moment. ``event`` is called from anywhere, in any process."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._waiting: list[asyncio.Event] = []
        self._waiting_for: dict[str, list[tuple[int, asyncio.Event]]] = {}
        """Those that wait for the n-th event of a kind."""

    def event(self, kind: str) -> None:
        self._counts[kind] = count = self._counts[kind] + 1
        for nth, reached in self._waiting_for.get(kind, ()):
            if nth <= count:
                reached.set()

    def end(self) -> None:
        """End the waits of faults that are still to come."""
        for reached in self._waiting:
            reached.set()
        self._waiting.clear()
        self._waiting_for.clear()

    async def wait(self, moment: Moment) -> None:
        if moment.when != "start" and self._counts[moment.when] < moment.nth:
            reached = asyncio.Event()
            self._waiting.append(reached)
            self._waiting_for.setdefault(moment.when, []).append((moment.nth, reached))
            await reached.wait()
        await asyncio.sleep(moment.delay_ms / 1000)


class Injector:
    """``start`` them, and at the end of the safety phase ``heal``: nothing more happens."""

    def __init__(
        self, cluster: Cluster, moments: Moments, clients: Callable[[str], Process | None]
    ) -> None:
        self._cluster = cluster
        self._network = cluster.engine.network
        self._moments = moments
        self._clients = clients
        self._random = cluster.engine.random("faults")
        self._undo: dict[int, Undo] = {}
        self._over = False
        self._restarts = Restarts(cluster, self._random, lambda: self._over)
        self.fired: list[Fault] = []

    def start(self, faults: Iterable[Fault]) -> None:
        for number, fault in enumerate(faults):
            self._cluster.in_world(self._carry_out(number, fault))

    def heal(self) -> None:
        self._over = True
        for undo in list(self._undo.values()):
            undo()
        self._undo.clear()
        self._network.heal()
        for store in self._cluster.stores:
            store.heal()
        for machine in self._cluster.bookies.values():
            machine.start()

    async def _carry_out(self, number: int, fault: Fault) -> None:
        await self._moments.wait(fault.moment)
        if self._over:
            return
        there = aimed(fault, self._cluster.history, self._cluster.bookies)
        if there is None:
            return
        fault = there
        undo = self._begin(fault)
        while undo is None and fault.kind == ROT and not self._over:
            await asyncio.sleep(LOOK_S)  # until a flush has written an entry log
            undo = self._begin(fault)
        if undo is None or self._over:
            return
        self.fired.append(fault)
        self._cluster.engine.trace.note(f"fault: {fault}")
        self._undo[number] = undo
        await asyncio.sleep(fault.duration_ms / 1000)
        if self._undo.pop(number, None) is not None and not self._over:
            undo()

    def _begin(self, fault: Fault) -> Undo | None:
        """Return how to undo it; None where it cannot befall its target now."""
        if fault.kind in LINKS:
            source, _, destination = fault.target.partition(">")
            return self._on_link(fault, source, destination)
        if fault.target == "all":
            return self._on_all(fault)
        if fault.kind == "slow bookie":
            return self._slow_down(fault)
        if fault.kind == "slow metadata":
            self._network.clog(fault.target, "zk", fault.size)
            return lambda: self._network.unclog(fault.target, "zk")
        if "client" in fault.kind:
            process = self._clients(fault.target)
            return None if process is None else self._on_client(fault, process)
        if fault.kind in ("isolate", "deaf", "mute"):
            return self._cut_off(fault)
        if fault.kind in SESSIONS:
            return self._on_session(fault)
        if fault.kind == "metadata emptied":
            return self._empty_metadata(fault, self._cluster.bookies[fault.target])
        return self._on_bookie(fault, self._cluster.bookies[fault.target])

    # -- network ---------------------------------------------------------------------------------

    def _on_link(self, fault: Fault, source: str, destination: str) -> Undo:
        network = self._network
        match fault.kind:
            case "clog":
                network.clog(source, destination, fault.size * 3)
                return lambda: network.unclog(source, destination)
            case "reset":
                network.reset(source, destination)
                return _nothing
        network.block(source, destination)
        return lambda: network.unblock(source, destination)

    def _on_all(self, fault: Fault) -> Undo:
        network = self._network
        match fault.kind:
            case "slow network":
                network.latency(0.001, 0.005 + fault.size / 5)
                return lambda: network.latency(0.0002, 0.002)
            case "spikes":
                network.spike(fault.size / 4, 1.5)
                return lambda: network.spike(0.0, 0.0)
            case "power loss everywhere":
                for machine in self._cluster.bookies.values():
                    machine.kill(power_loss=True, silent=fault.size < 0.3)
                return _nothing
            case "restart chain":
                for machine in self._cluster.bookies.values():
                    self._restarts.chain(machine)
                return _nothing
            case "sync error everywhere, crash":
                for machine in self._cluster.bookies.values():
                    self._restarts.fail_a_sync(machine)
                return self._stop_failing
        return self._swizzle()

    def _stop_failing(self) -> None:
        for machine in self._cluster.bookies.values():
            machine.disk.stop_failing()

    def _swizzle(self) -> Undo:
        """Clog a random part of the links one after the other; they come free in another order."""
        names = self._machines()
        links = [(a, b) for a in names for b in names if a != b and self._random.random() < 0.3]
        for number, (a, b) in enumerate(links):
            self._network.clog(a, b, 0.05 * (number + 1))
        self._random.shuffle(links)

        def undo() -> None:
            for a, b in links:
                self._network.unclog(a, b)

        return undo

    def _slow_down(self, fault: Fault) -> Undo:
        """Slow the connections of a bookie down."""
        pairs = [(fault.target, name) for name in self._machines() if name != fault.target]
        pairs += [(destination, source) for source, destination in pairs]
        for source, destination in pairs:
            self._network.clog(source, destination, fault.size)

        def undo() -> None:
            for source, destination in pairs:
                self._network.unclog(source, destination)

        return undo

    def _cut_off(self, fault: Fault) -> Undo:
        others = [name for name in self._machines() if name != fault.target]
        pairs: list[tuple[str, str]] = []
        if fault.kind != "deaf":
            pairs += [(fault.target, other) for other in others]
        if fault.kind != "mute":
            pairs += [(other, fault.target) for other in others]
        for source, destination in pairs:
            self._network.block(source, destination)

        def undo() -> None:
            for source, destination in pairs:
                self._network.unblock(source, destination)

        return undo

    def _machines(self) -> list[str]:
        return [*self._cluster.bookies, *self._cluster.clients, "zk"]

    # -- processes -------------------------------------------------------------------------------

    def _on_client(self, fault: Fault, process: Process) -> Undo:
        if fault.kind == "kill client":
            process.kill(silent=fault.size < 0.3)
            return _nothing
        process.pause()
        return process.resume

    def _on_session(self, fault: Fault) -> Undo | None:
        stores = [store for store in self._cluster.stores if store.machine == fault.target]
        if not stores:
            return None
        store: SimStore = stores[-1]
        match fault.kind:
            case "metadata refuses":
                store.refuse_for(fault.duration_ms / 1000)
            case "metadata reply lost":
                store.lose_next_reply()
            case "listing breaks off":
                store.break_off(1 + int(fault.size * 16), fault.duration_ms / 1000)
            case _:
                store.expire()
        return _nothing

    def _empty_metadata(self, fault: Fault, machine: BookieMachine) -> Undo | None:
        """Empty the metadata store. In some cases an operator has initialised it again, with
        another instance id; in some the bookie is started again meanwhile."""
        self._cluster.expects_refusals.add(machine.name)
        instance = f"{self._random.getrandbits(128):032x}" if fault.size < 0.7 else ""
        undo = machine.empty_metadata(Emptied(instance))
        if undo is not None and fault.size < 0.4:
            machine.kill()
        return undo

    def _on_bookie(self, fault: Fault, machine: BookieMachine) -> Undo | None:
        if fault.kind == "others down":
            machine.start()
            return self._hold_down_others(machine)
        process = machine.process
        if process is None or not process.is_alive:
            return None
        if fault.kind.startswith("replace disk"):
            return self._replace_disk(fault, machine)
        match fault.kind:
            case "kill bookie":
                machine.hold_down()
                machine.kill()
            case "power loss" | "silent power loss":
                machine.hold_down()
                machine.kill(power_loss=True, silent=fault.kind == "silent power loss")
            case "die at an effect" | "die at an effect, crash":
                power_loss = "crash" not in fault.kind
                machine.die_at_effect(1 + int(fault.size * 30), power_loss=power_loss)
                if not power_loss:
                    process.on_death(partial(self._crash_soon, machine, fault))
                return _nothing
            case "rot journal, crash":
                self._cluster.expects_refusals.add(machine.name)
                if not machine.rot_journal():
                    return None
                machine.kill()
                return machine.start
            case "pause bookie":
                process.pause()
                return process.resume
            case "restart cleanly":
                self._cluster.in_world(machine.shut_down())
            case "read only":
                return machine.make_read_only()
            case "crash twice":
                machine.kill()
                machine.start()
                self._cluster.in_world(self._crash_later(machine, fault))
                return _nothing
            case "sync error, power loss":
                self._cluster.expects_refusals.add(machine.name)
                machine.disk.fail("sync", JOURNAL_SUFFIX, EIO, 1)
                self._cluster.in_world(self._crash_later(machine, fault))
                return machine.disk.stop_failing
            case "sync error, crash":
                self._restarts.fail_a_sync(machine)
                return machine.disk.stop_failing
            case "restarts":
                self._restarts.chain(machine)
                return _nothing
            case "bad memory":
                return machine.damage_replies()
            case _:
                return self._on_disk(fault, machine)
        return machine.start

    def _replace_disk(self, fault: Fault, machine: BookieMachine) -> Undo:
        machine.hold_down()
        machine.replace_disk()
        match fault.kind:
            case "replace disk, crash":
                self._cluster.in_world(self._crash_later(machine, fault))
            case "replace disk, restarts":
                self._restarts.chain(machine, 4)
                return _nothing
            case "replace disk, others down":
                machine.start()
                return self._hold_down_others(machine)
        return machine.start

    def _hold_down_others(self, machine: BookieMachine) -> Undo:
        """Stop all other bookies, so that only the one without data can be asked."""
        others = [other for other in self._cluster.bookies.values() if other is not machine]
        for other in others:
            other.hold_down()
            other.kill()

        def undo() -> None:
            for other in others:
                other.start()

        return undo

    def _crash_soon(self, machine: BookieMachine, fault: Fault) -> None:
        """Start the bookie again at once, and then fail its power."""
        if not self._over and not machine.is_held_down:
            machine.start()
            self._cluster.in_world(self._crash_later(machine, fault))

    async def _crash_later(self, machine: BookieMachine, fault: Fault) -> None:
        """Power loss, soon after the process serves again, or just before that."""
        if fault.kind.startswith("replace"):
            await asyncio.sleep(fault.duration_ms / 1000 + self._random.choice((0.05, 0.5, 2.0)))
        else:
            await asyncio.sleep(self._random.choice((0.002, 0.01, 0.02, 0.05, 0.3, 1.0)))
        if not self._over:
            machine.kill(power_loss=True)

    def _on_disk(self, fault: Fault, machine: BookieMachine) -> Undo | None:
        disk = machine.disk
        self._cluster.expects_refusals.add(machine.name)
        match fault.kind:
            case "disk full":
                disk.full = True
                return lambda: setattr(disk, "full", False)
            case "disk fills":
                disk.free_share = self._random.choice((0.04, 0.015, 0.001))
                return lambda: setattr(disk, "free_share", 1.0)
            case "slow disk":
                disk.slow(2 + fault.size * 100)
                return lambda: disk.slow(1)
            case "no room":
                disk.free_share = 0.001
                return lambda: setattr(disk, "free_share", 1.0)
            case "index unreadable":
                disk.fail("read", "index", EIO, UNREADABLE)
                return disk.stop_failing
            case "rot journal":
                return _nothing if machine.rot_journal() else None
            case kind if kind == ROT:
                self._cluster.history.bookie(machine.name).is_damaged = True
                return None if disk.rot(ENTRY_LOG_SUFFIX) is None else _nothing
        operation = fault.kind.partition(" ")[0]
        suffix = self._random.choice((JOURNAL_SUFFIX, ENTRY_LOG_SUFFIX, "index"))
        error = ENOSPC if operation == "write" and fault.size < 0.5 else EIO
        disk.fail(operation, suffix, error, 1 + int(fault.size * 2))
        return lambda: disk.stop_failing()


ROT, LOOK_S = "rot entry log", 0.1

UNREADABLE = 10_000
"""Reads that fail: more than come while a fault lasts."""

SESSIONS = {"metadata refuses", "metadata reply lost", "session expires", "listing breaks off"}

LINKS = {"cut", "clog", "reset", "metadata cut"}


def _nothing() -> None:
    """Undo nothing, for a fault that is over at once."""
