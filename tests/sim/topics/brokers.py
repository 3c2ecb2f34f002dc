"""Broker machines: each runs the real ``Broker`` over its own metadata session and ledger client.

Most clients use no HTTP: a client's process runs its request within the broker's process, and may
never hear what became of it. Some producers come through its front door (``topics/front.py``). A
broker that *believes* takes itself for the owner of whatever it is
asked for, so any number of them contend for a partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from fencelog.broker.broker import Broker
from fencelog.broker.config import BrokerConfig
from fencelog.broker.names import TopicName
from fencelog.broker.partition.ownership import Owner, Ownership
from fencelog.broker.partition.partition_slot import PartitionSlot
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.port import Change, Versioned, Watch
from tests.sim.engine.engine import Engine
from tests.sim.engine.host import SimHost
from tests.sim.engine.process import Process, ProcessLost
from tests.sim.ledgers.cluster import RESTART_S, Cluster
from tests.sim.ledgers.faults import Moments
from tests.sim.oracle.history import History
from tests.sim.oracle.list_watch import LedgerListWatch
from tests.sim.oracle.observed_ledgers import ObservedLedgers, observe_changes, observe_looks
from tests.sim.plan.topic_plan import TopicPlan
from tests.sim.topics.http import Door

if TYPE_CHECKING:
    from tests.sim.topics.front import Front

T = TypeVar("T")

TOPIC = TopicName("sim", "topic")
"""The one topic of a history."""

USUAL = BrokerConfig("", "")

ANSWER_S = 4.0
"""The time for which a client waits."""

_WAY_S = (0.0001, 0.002)


class Unreached(Exception):
    """The request did not get to a broker."""


class Unanswered(Exception):
    """The request got to a broker, and nobody knows what became of it."""


class BrokerMachine:
    """One host. ``broker`` is the present one, None while there is none to be asked."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        plan: TopicPlan,
        ledger_lists: LedgerListWatch,
        others: Mapping[str, BrokerMachine],
        front: Front,
        intervals: BrokerConfig = USUAL,
    ) -> None:
        """``others``: all brokers by name; ``intervals``: what is set besides."""
        self._cluster = cluster
        self._ledger_lists = ledger_lists
        self._plan = plan
        self._peers = SimPeers(others)
        self._front = front
        self._intervals = intervals
        self._chance = cluster.engine.random(f"ways to {name}")
        self.name = name
        self.url = f"http://{name}"
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.door: Door | None = None
        """Where its process takes HTTP requests."""
        self.is_held_down = False
        self.believes = False
        self.watches: list[_BlindWatch] = []
        """The watches of owner nodes in the present process."""
        self.answers_lost = 0.0
        """The share of answers that do not come back."""
        self.skew_us = 0
        self.most_skew_us = 0
        self._host: SimHost | None = None
        self._stop: asyncio.Event | None = None
        self._requests = 0
        """Under way in the present process."""

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Boot the process, unless it runs."""
        self.is_held_down = False
        if self.process is None or not self.process.is_alive:
            self.process = self._cluster.engine.start_process(self.name)
            self.process.on_death(self._died)
            self.process.spawn(self._run(self.process))

    def kill(self, *, silent: bool = False) -> None:
        if self.process is not None:
            self.process.kill(silent=silent)

    def jump(self, by_us: int) -> None:
        """Its wall clock, from now on."""
        self.skew_us += by_us
        self.most_skew_us = max(self.most_skew_us, self.skew_us)
        if self._host is not None:
            self._host.skew_us = self.skew_us

    def believe_at_once(self) -> None:
        """Take itself for the owner of every partition, and open them."""
        self.believes = True
        broker, process = self.broker, self.process
        if broker is not None and process is not None and process.is_alive:
            for partition in range(self._plan.partitions):
                process.spawn(_opened(broker, partition))

    def doubt(self) -> None:
        """Believe no more: look at the owner nodes of what is open here, and of what is being
        opened as soon as it is: nobody has claimed those. And hear what watches have to say."""
        self.believes = False
        broker, process = self.broker, self.process
        if broker is not None and process is not None and process.is_alive:
            for watch in list(self.watches):
                process.spawn(watch.look())
            for slot in broker._slots.values():
                if slot.is_here:
                    process.spawn(_doubted(slot))

    def unload(self) -> None:
        """An operator wants its partitions elsewhere."""
        broker, process = self.broker, self.process
        if broker is not None and process is not None and process.is_alive:
            for partition in range(self._plan.partitions):
                if broker.open_log(TOPIC, partition) is not None:
                    process.spawn(_unloaded(broker, partition))

    def drain(self) -> None:
        """SIGTERM."""
        if self._stop is not None:
            self._stop.set()

    async def _run(self, process: Process) -> None:
        """Serve until told to stop; the process is over afterwards."""
        cluster = self._cluster
        self._stop, self._requests = asyncio.Event(), 0
        session = await cluster._persistent_session(process)
        self._host = SimHost(cluster.engine, self.name)
        self._host.skew_us = self.skew_us
        broker = Broker(
            session.store,
            ObservedLedgers(session.ledgers, cluster.history, self._ledger_lists),
            host=self._host,
            config=replace(
                self._intervals,
                broker_id=self.name,
                url=self.url,
                open_timeout_s=5.0,
                append_timeout_s=0.7,
                close_timeout_s=3.0,
                drain_timeout_s=3.0,
                retention_check_s=0.25,
            ),
            peers=self._peers,
        )
        believe(broker, self)
        observe_changes(broker, cluster.history)
        observe_looks(broker, cluster.history)
        try:
            await broker.start()
        except FencelogError as error:
            cluster.engine.trace.note(f"{self.name} cannot start: {error}")
            process.kill()
        self.broker = broker
        self.door = door = await self._front.open(broker, process)
        await self._stop.wait()
        await broker.drain()
        await door.close()
        await broker.close()
        self.broker = None
        while self._requests:  # noqa: ASYNC110 - the service polls here too
            await asyncio.sleep(0.01)
        await session.close()
        await asyncio.sleep(0.001)  # reads that the end of the connection ends
        cluster.check_leaks(process)
        process.kill()

    def _died(self) -> None:
        self.broker = None
        self.door = None
        self._host = None
        self._stop = None
        if not self._cluster.is_over:
            self._cluster.in_world(self._restart())

    async def _restart(self) -> None:
        await asyncio.sleep(RESTART_S)
        if not self.is_held_down and not self._cluster.is_over:
            self.start()

    # -- for clients -----------------------------------------------------------------------------

    async def ask(
        self, work: Callable[[Broker], Coroutine[Any, Any, T]], *, timeout_s: float = ANSWER_S
    ) -> T:
        """Return what ``work`` gives in the broker's process; it is cancelled there when nobody
        waits for it any more. Raises what it raises, Unreached, Unanswered."""
        await asyncio.sleep(self._chance.uniform(*_WAY_S))
        broker, process = self.broker, self.process
        if broker is None or process is None or not process.is_alive:
            raise Unreached(self.name)
        lost = self._chance.random() < self.answers_lost
        try:
            async with asyncio.timeout(timeout_s):
                result = await process.call(self._serve(work, broker))
        except (TimeoutError, ProcessLost) as error:
            raise Unanswered(self.name) from error
        if lost:
            raise Unanswered(self.name)
        await asyncio.sleep(self._chance.uniform(*_WAY_S))
        return result

    async def _serve(self, work: Callable[[Broker], Coroutine[Any, Any, T]], broker: Broker) -> T:
        """Within the process, which does not end in order before its requests do. The request is
        made here: of one that is given up before it begins nothing is left to be awaited."""
        self._requests += 1
        try:
            return await work(broker)
        finally:
            self._requests -= 1


class SimPeers:
    """Implements ``Peers``."""

    def __init__(self, brokers: Mapping[str, BrokerMachine]) -> None:
        self._brokers = brokers

    async def open(self, url: str, topic: TopicName, partition: int) -> None:
        machine = self._brokers[url.removeprefix("http://")]
        try:
            await machine.ask(lambda broker: broker.take(topic, partition))
        except (Unreached, Unanswered) as error:
            raise FencelogError(ErrorCode.NO_OWNER, f"{url} does not answer") from error


async def serving_bookies(
    engine: Engine, plan: TopicPlan, history: History
) -> tuple[Moments, Cluster]:
    """Return the moments of a history, and its cluster, whose bookies serve."""
    moments = Moments()
    history.on_event = moments.event
    cluster = Cluster(engine, history, plan.session_ms / 1000)
    await cluster.initialise()
    cluster.add_bookies(plan)
    await cluster.all_serving()
    return moments, cluster


async def start_brokers(
    brokers: dict[str, BrokerMachine],
    cluster: Cluster,
    plan: TopicPlan,
    ledger_lists: LedgerListWatch,
    front: Front,
    intervals: BrokerConfig = USUAL,
) -> None:
    """Fill in the machines of a plan, and wait until each serves."""
    for name in (f"k{n + 1}" for n in range(plan.brokers)):
        brokers[name] = BrokerMachine(cluster, name, plan, ledger_lists, brokers, front, intervals)
    for machine in brokers.values():
        machine.start()
    await cluster.until(lambda: all(machine.broker for machine in brokers.values()))


async def create_topic(machine: BrokerMachine, plan: TopicPlan) -> None:
    config = TopicConfig(plan.partitions, plan.overrides)

    async def create(broker: Broker) -> None:
        await broker.topics.create(TOPIC, config)

    await ask_until(machine, create)


async def ask_until(machine: BrokerMachine, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
    """Return what it gives, once it gives anything."""
    while True:
        try:
            return await machine.ask(work)
        except (FencelogError, Unreached, Unanswered):
            await asyncio.sleep(0.1)


async def _opened(broker: Broker, partition: int) -> None:
    with suppress(FencelogError):
        await broker.take(TOPIC, partition)


async def _doubted(slot: PartitionSlot) -> None:
    slot._owner._is_missing = True
    slot._owner.keep()


async def _unloaded(broker: Broker, partition: int) -> None:
    with suppress(FencelogError):
        await broker.unload(TOPIC, partition)


class _BlindWatch:
    """A watch of an owner node, which says nothing as long as its machine believes: a broker that
    hears that a node is not its own looks at once whether its log was taken over."""

    def __init__(
        self, machine: BrokerMachine, callback: Callable[[Versioned | None], None]
    ) -> None:
        self._machine = machine
        self._callback = callback
        self._unseen: list[Versioned | None] = []
        self.watch: Watch | None = None
        machine.watches.append(self)

    def see(self, node: Versioned | None) -> None:
        if self._machine.believes:
            self._unseen = [node]
        else:
            self._callback(node)

    async def look(self) -> None:
        """Say the newest of what was not said."""
        unseen, self._unseen = self._unseen, []
        for node in unseen:
            self.see(node)

    def close(self) -> None:
        self._unseen = []
        if self in self._machine.watches:
            self._machine.watches.remove(self)
        if self.watch is not None:
            self.watch.close()


def believe(broker: Broker, machine: BrokerMachine) -> None:
    """Let the broker ignore owner nodes from now on, whenever its machine ``believes``."""
    ownership = broker._services.ownership
    claiming, claim, get = ownership.claiming, ownership.claim, ownership.get
    watch = ownership.watch
    machine.watches = []

    def watching(
        topic_id: str, partition: int, callback: Callable[[Versioned | None], None]
    ) -> _BlindWatch:
        blind = _BlindWatch(machine, callback)
        blind.watch = watch(topic_id, partition, blind.see)
        return blind

    def looking_away(
        look: Callable[[str, int], Awaitable[Owner | None]],
    ) -> Callable[[str, int], Awaitable[Owner | None]]:
        async def looked(topic_id: str, partition: int) -> Owner | None:
            return None if machine.believes else await look(topic_id, partition)

        return looked

    async def claimed(topic_id: str, partition: int) -> tuple[Owner | None, list[Change]]:
        return (None, []) if machine.believes else await claiming(topic_id, partition)

    replaced: Any = ownership
    replaced.claiming = claimed
    replaced.claim, replaced.get = looking_away(claim), looking_away(get)
    replaced.watch = watching
    assert isinstance(ownership, Ownership)
