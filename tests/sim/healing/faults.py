"""The faults of histories of self-healing alone: bookies lost for good, targets that lose their
disk amid the copying, wrong marks, deletions at the wrong moment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.quorum import write_set
from tests.sim.healing.marker import mark_at_random
from tests.sim.healing.plan import (
    ANEW,
    BRIEF,
    DELETE,
    DELETE_CLOSED,
    FLIP,
    LOSE,
    LOSE_TARGET,
    MARK,
    RETURN,
    STALLED,
    UNSYNCED,
)
from tests.sim.ledgers.cluster import BookieMachine, Cluster, Session
from tests.sim.ledgers.faults import Moments
from tests.sim.ledgers.restarts import JOURNAL_SUFFIX
from tests.sim.oracle.history import History
from tests.sim.plan.plan import Fault

MOST_SLOWLY = 3_000
"""The factor by which syncs take longer, at most: seconds."""

MOST_STALLED_S = 10.0
LOOK_S = 0.01


class HealingFaults:
    """Carries them out until ``is_over``. ``late``: the bookies that joined late; ``may_leave``:
    wrong marks may say that a bookie is to leave."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        moments: Moments,
        late: list[str],
        *,
        may_leave: bool,
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._moments = moments
        self._late = late
        self._may_leave = may_leave
        self._random = cluster.engine.random("healing faults")
        self._machines = 0
        self.is_over = False
        self.fired: list[Fault] = []

    def start(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self._cluster.in_world(self._carry_out(fault))

    async def _carry_out(self, fault: Fault) -> None:
        await self._moments.wait(fault.moment)
        if not self.is_over and await self._begin(fault):
            self.fired.append(fault)
            self._cluster.engine.trace.note(f"fault: {fault}")

    async def _begin(self, fault: Fault) -> bool:
        match fault.kind:
            case kind if kind == LOSE:
                lose(self._cluster, self._cluster.bookies[fault.target])
            case kind if kind == LOSE_TARGET:
                return await self._lose_target()
            case kind if kind == STALLED:
                disk = self._cluster.bookies[fault.target].disk
                disk.slow_sync(JOURNAL_SUFFIX, fault.size * MOST_SLOWLY)
                as_before = partial(disk.slow_sync, JOURNAL_SUFFIX, 1.0)
                self._cluster.in_world(_later(fault.duration_ms / 1000, as_before))
            case kind if kind == UNSYNCED:
                return await self._fail_power(fault)
            case kind if kind == MARK:
                work = partial(
                    mark_at_random,
                    self._cluster,
                    self._history,
                    self._random,
                    may_leave=self._may_leave,
                )
                self._cluster.client_process(self._name(), work)
            case kind if kind == BRIEF:
                machine = self._cluster.bookies[fault.target]
                lose(self._cluster, machine)
                self._cluster.in_world(
                    _later(fault.duration_ms / 1000, partial(self._start_again, machine))
                )
            case kind if kind in (RETURN, ANEW):
                machine = self._cluster.bookies[fault.target]
                if kind == ANEW:
                    machine.hold_down()
                    machine.replace_disk()
                machine.start()
            case kind if kind == DELETE:
                return await self._delete_marked()
            case kind if kind == DELETE_CLOSED:
                return self._delete(self._history.metadata)
            case kind if kind == FLIP:
                undo = self._cluster.bookies[fault.target].damage_replies()
                if undo is None:
                    return False
                self._cluster.in_world(_later(fault.duration_ms / 1000, undo))
        return True

    def _name(self) -> str:
        """Return a machine of its own for a client that does one thing."""
        self._machines += 1
        return f"k{self._machines + 1}"

    def _start_again(self, machine: BookieMachine) -> None:
        """Start a bookie, unless it was lost for good meanwhile."""
        if self._cluster.bookies.get(machine.name) is machine:
            machine.start()

    async def _lose_target(self) -> bool:
        """A bookie that only copies were given to, the first one that can be lost, comes back with
        an empty disk."""
        while not (targets := self._targets()):
            await asyncio.sleep(LOOK_S)
            if self.is_over:
                return False
        machine = self._cluster.bookies[self._random.choice(targets)]
        self._cluster.expects_refusals.add(machine.name)
        machine.hold_down()
        machine.replace_disk()
        machine.start()
        return True

    def _targets(self) -> list[str]:
        return [
            name
            for name in self._late
            if self._history.bookie(name).entries
            and not self._history.bookie(name).from_writers
            and not self._is_in_use(name)
            and not self._has_the_last_copies(name)
        ]

    async def _fail_power(self, fault: Fault) -> bool:
        """Fail the power of the first bookie whose disk has answered nothing for so long, or that
        has listed meanwhile what it has not acknowledged. All that it has acknowledged stays."""
        machine: BookieMachine | None = None
        while machine is None:
            await asyncio.sleep(LOOK_S)
            if self.is_over:
                return False
            machine = self._stalled(fault.size * MOST_STALLED_S)
        machine.hold_down()
        machine.kill(power_loss=True)
        self._cluster.in_world(_later(fault.duration_ms / 1000, machine.start))
        return True

    def _stalled(self, for_s: float) -> BookieMachine | None:
        for name, machine in sorted(self._cluster.bookies.items()):
            bookie, process = machine.bookie, machine.process
            if bookie is not None and process is not None and process.is_alive:
                stalled_s = max(shard.journal.stalled_s for shard in bookie.shards)
                memory = self._history.bookie(name)
                if stalled_s > for_s or (stalled_s and memory.listed - memory.entries.keys()):
                    return machine
        return None

    def _is_in_use(self, bookie: str) -> bool:
        """Tell whether a ledger that is not closed names the bookie: its disk is not to spare."""
        return any(
            bookie in fragment.bookies
            for versions in self._history.metadata.values()
            for fragment in versions[-1].fragments
            if not versions[-1].is_closed
        )

    def _has_the_last_copies(self, target: str) -> bool:
        """Tell whether the target was given an entry of which all other members are lost for good
        (a drain, or a wrong mark, has moved the place of another one): both losses are more than
        its write quorum outlives."""
        return any(
            target in members and all(self._is_lost(bookie) for bookie in members - {target})
            for ledger_id, entry_id in self._history.bookie(target).entries
            for members in [self._members(ledger_id, entry_id)]
        )

    def _members(self, ledger_id: int, entry_id: int) -> set[str]:
        """Return the bookies that are to store an entry; none if its ledger was deleted."""
        metadata = self._history.latest(ledger_id)
        if metadata is None:
            return set()
        bookies = metadata.fragment_of(entry_id).bookies
        places = write_set(entry_id, ensemble_size=len(bookies), write_quorum=metadata.write_quorum)
        return {bookies[place] for place in places}

    def _is_lost(self, bookie: str) -> bool:
        machine = self._cluster.bookies.get(bookie)
        return machine is None or machine.is_held_down

    async def _delete_marked(self) -> bool:
        """Delete a ledger that has been marked, as soon as one of them is closed."""
        while not self._delete({ledger_id for ledger_id, _ in self._history.causes}):
            await asyncio.sleep(LOOK_S)
            if self.is_over:
                return False
        return True

    def _delete(self, ledger_ids: Iterable[int]) -> bool:
        """Delete one of these ledgers that is closed."""
        latest = {ledger_id: self._history.latest(ledger_id) for ledger_id in sorted(ledger_ids)}
        chosen = [
            i for i, metadata in latest.items() if metadata is not None and metadata.is_closed
        ]
        ledger = self._history.ledgers.get(self._random.choice(chosen)) if chosen else None
        if ledger is None:
            return False
        ledger.is_being_deleted = True

        async def delete(session: Session) -> None:
            try:
                await session.ledgers.delete(ledger.ledger_id)
            except FencelogError as error:
                self._history.counts[f"delete: {error.code.slug}"] += 1

        self._cluster.client_process(self._name(), delete)
        return True


def lose(cluster: Cluster, machine: BookieMachine) -> None:
    """The machine is gone; whether it comes back is another question."""
    machine.hold_down()
    machine.kill()
    cluster.end_sessions(machine.name)


async def _later(seconds: float, undo: object) -> None:
    await asyncio.sleep(seconds)
    if callable(undo):
        undo()
