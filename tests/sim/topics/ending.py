"""The end of a history of topics: all is healed, so partitions are served, and what was promised
is there; then the brokers go in order, and leave every log sealed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from fencelog.ledgers.errors import FencelogError
from tests.sim.engine.process import Process
from tests.sim.ledgers.cluster import Cluster
from tests.sim.ledgers.ending import give_new_disks
from tests.sim.oracle.history import History
from tests.sim.oracle.list_watch import LedgerListWatch
from tests.sim.oracle.log_history import LogHistory, Sent
from tests.sim.oracle.subscription_history import SubscriptionHistory
from tests.sim.topics.brokers import TOPIC, BrokerMachine, Unanswered, Unreached
from tests.sim.topics.clients import Clients, append_all, note_read
from tests.sim.topics.consumers import Consumer
from tests.sim.topics.reads import read_some

L = TypeVar("L")

SERVE_S = 40.0
STEP_S = 0.1
CLIENTS_S = 30.0
READ_MESSAGES = 200


class TopicEnding:
    """Runs in the world, with a client of its own on the machine "z1"."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        brokers: dict[str, BrokerMachine],
        ledger_lists: LedgerListWatch,
        clients: Clients,
        processes: list[Process],
        *,
        is_let_go: bool = False,
        drained: Sequence[SubscriptionHistory] = (),
    ) -> None:
        """``is_let_go``: retention takes whatever is followed by anything. ``drained``: appends
        wait for these subscriptions."""
        self._cluster = cluster
        self._history = history
        self._brokers = brokers
        self._ledger_lists = ledger_lists
        self._clients = clients
        self._processes = processes
        self._is_let_go = is_let_go
        self._drained = drained
        self._chance = cluster.engine.random("ending")

    async def run(
        self, logs: list[LogHistory], subscriptions: Sequence[SubscriptionHistory]
    ) -> None:
        await self._history.within(SERVE_S, "bookies and brokers serve again", self._all_serve)
        z0 = self._cluster.engine.start_process("z0")
        drains = [z0.spawn(self._drain(each)) for each in self._drained]
        for log in logs:
            await self._history.within(
                SERVE_S,
                f"partition {log.partition} takes an append",
                z0.spawn(self._append(log)).done,
            )
        await self._history.within(
            CLIENTS_S,
            "clients come to an end",
            lambda: not any(p.is_alive and p.live_tasks() for p in self._processes),
        )
        z1 = self._cluster.engine.start_process("z1")
        for log in logs:
            checked = z1.spawn(self._check_log(log))
            await self._history.within(
                SERVE_S, f"partition {log.partition} is served", checked.done
            )
        for drain in drains:
            drain.cancel()
        for number, subscription in enumerate(subscriptions):
            consumer = Consumer(f"z{number}", subscription, self._clients, self._chance)
            name = f"subscription {subscription.info.name} of {subscription.log.partition}"
            await self._history.within(SERVE_S, f"{name} ends", z1.spawn(consumer.finish()).done)
        for log in logs:
            if self._is_let_go:
                gone = partial(self._has_let_go, log)
                await self._history.within(
                    SERVE_S, f"partition {log.partition} lets messages go", gone
                )
        await self._end_brokers(logs)
        for bookie in self._cluster.bookies.values():
            await bookie.shut_down()
        self._cluster.is_over = True

    async def _end_brokers(self, logs: list[LogHistory]) -> None:
        """One after the other, each handing over to the others; the last one seals its logs."""
        served = await end_brokers(self._history, self._brokers, self._is_served, logs)
        for log in served:
            self._check_sealed(log)

    async def _drain(self, subscription: SubscriptionHistory) -> None:
        """Acknowledge whatever comes, until cancelled."""
        name = f"drain {subscription.info.name}"
        consumer = Consumer(name, subscription, self._clients, self._cluster.engine.random(name))
        while True:
            await consumer.acknowledge(await consumer.pull(100))

    def _is_served(self, log: LogHistory) -> bool:
        """Tell whether its present owner is a broker that is there. One that only believed may
        have released it since."""
        ledger_list = self._ledger_lists.ledger_lists.get(log.partition)
        for machine in self._brokers.values():
            found = machine.broker and machine.broker.open_log(TOPIC, log.partition)
            if found and ledger_list and found.epoch == ledger_list.epoch:
                return True
        return False

    def _has_let_go(self, log: LogHistory) -> bool:
        """Tell whether only the last messages are left, and the ledger that is written next."""
        return len(self._ledger_lists.ledger_lists[log.partition].segments) <= 2

    def _all_serve(self) -> bool:
        give_new_disks(self._cluster)
        return all(
            machine.bookie is not None for machine in self._cluster.bookies.values()
        ) and all(machine.broker is not None for machine in self._brokers.values())

    async def _append(self, log: LogHistory) -> Sent:
        """One that is acknowledged. So an owner learns of it that has lost the log meanwhile: one
        that only refuses does not."""
        machine = self._clients.some_broker(self._chance)
        sent: Sent | None = None
        while sent is None or sent.offset is None:
            if sent is None or sent.may_be_there:  # a new one: the previous may be there
                sent = log.new(f"z/{len(log.sent)}".encode(), is_batch=False)
            try:
                (refused,) = await machine.ask(partial(append_all, log, [sent]))
                if refused is not None:
                    raise refused
            except (FencelogError, Unreached, Unanswered) as error:
                machine = self._clients.directed(self._chance, error)
                await asyncio.sleep(STEP_S)
        return sent

    async def _check_log(self, log: LogHistory) -> None:
        """Append once more, then read everything through whoever owns the partition."""
        machine = self._clients.some_broker(self._chance)
        last = await self._append(log)
        times: list[int] = []
        start = offset = log.start_offset
        while last.offset is None or offset <= last.offset:
            try:
                result = await machine.ask(partial(read_some, log, offset, READ_MESSAGES))
            except (FencelogError, Unreached, Unanswered) as error:
                if self._clients.after_error(log, offset, error) > offset:  # trimmed meanwhile
                    start = offset = log.start_offset
                    times.clear()
                machine = self._clients.directed(self._chance, error)
                await asyncio.sleep(STEP_S)
                continue
            times += note_read(log, offset, result)
            offset = result.next_offset
        log.check_whole(start, offset, times)

    def _check_sealed(self, log: LogHistory) -> None:
        """A broker that ended in order has nothing left for the next owner to recover."""
        ledger_list = self._ledger_lists.ledger_lists.get(log.partition)
        unsealed = (
            [s.ledger_id for s in ledger_list.segments if s.sealed is None] if ledger_list else []
        )
        if unsealed:
            log.violate(22, f"all brokers ended in order, ledgers {unsealed} are not sealed")


async def end_brokers(
    history: History,
    brokers: Mapping[str, BrokerMachine],
    is_served: Callable[[L], bool],
    logs: Sequence[L],
) -> list[L]:
    """One after the other, each handing over to the others; the logs that the last one serves."""
    served: list[L] = []
    for machine in brokers.values():
        served = [log for log in logs if is_served(log)]
        process = machine.process
        machine.is_held_down = True
        machine.drain()
        if process is not None:
            await history.within(SERVE_S, f"{machine.name} ends", partial(_has_ended, process))
    return served


def _has_ended(process: Process) -> bool:
    return not process.is_alive
