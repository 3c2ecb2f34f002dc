"""Committers: they write ledgers of their own, straight to bookies, and have the owner commit them.

Whatever a Spark query may do, one does: its tasks die with their ledgers written, its driver
commits again what it was not answered, aborts what may have been committed, and begins a batch
anew; a request of an earlier attempt arrives late; and two drivers commit the same batch. The last
batch of one that ends has a single attempt, as that of a table.
"""

from __future__ import annotations

import asyncio
from functools import partial

from fencelog.broker.broker import Broker
from fencelog.broker.commits.commits import PendingLedger
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import pack_entry
from fencelog.ledgers.record_batch import encode_batch
from fencelog.ledgers.writer.lent import lent_writer
from fencelog.ledgers.writer.writer import LedgerWriter
from tests.sim.commits.history import Attempt
from tests.sim.engine.host import SimHost
from tests.sim.ledgers.cluster import Cluster, Session
from tests.sim.plan.topic_plan import CommitterPlan
from tests.sim.topics.brokers import TOPIC, Unanswered, Unreached
from tests.sim.topics.clients import RETRY_PAUSE_S, Clients

WRITE_S = 1.5
"""The time for which a task waits for its acknowledgements."""

DIES, LATE, TWICE, REPLAYS, SWEEPS, AGAIN = 0.1, 0.25, 0.15, 0.4, 0.1, 0.4
"""How often the tasks die before the commit, a commit is sent again late, two drivers commit at
once, a committed batch is replayed, somebody sweeps, and a failed commit is repeated as it is
rather than aborted."""


class Committer:
    """One committer of one partition, in a process of its own."""

    def __init__(
        self, plan: CommitterPlan, cluster: Cluster, clients: Clients, session: Session
    ) -> None:
        self._plan = plan
        self._clients = clients
        self._session = session
        self._host = SimHost(cluster.engine, plan.machine)
        self._chance = clients.chance(plan.machine)
        self._log = clients.logs[plan.partition]
        self._machine = clients.some_broker(self._chance)
        self._late: set[asyncio.Task[bool]] = set()
        self._is_refused = False
        """The partition remembers too many others."""

    async def run(self) -> None:
        """Commit one batch after the other, each until it is known to be in the log."""
        batch = 0
        await asyncio.sleep(self._plan.starts_ms / 1000)
        while not self._clients.is_over.is_set() and batch < self._plan.batches:
            batch += 1
            if self._plan.ends and batch == self._plan.batches:
                await self._end(batch)
                break
            drivers = 2 if self._chance.random() < TWICE else 1
            await asyncio.gather(*(self._drive(batch) for _ in range(drivers)))
            if self._chance.random() < REPLAYS:
                attempts = self._log.commits.attempts[self._plan.machine, batch]
                await self._commit(self._chance.choice(attempts))
            if self._chance.random() < SWEEPS:
                await self._sweep()
            await asyncio.sleep(self._plan.pause_ms / 1000)
        if self._late:
            await asyncio.wait(self._late)

    async def _drive(self, batch: int) -> None:
        """Attempt a batch until it is in the log, or there is no room for this committer."""
        chance = self._chance
        while not (self._is_refused and self._clients.is_over.is_set()):
            attempt = self._log.commits.begin(self._plan.machine, batch)
            if not await self._write(attempt) or chance.random() < DIES:
                continue
            if chance.random() < LATE:
                task = asyncio.create_task(self._commit_late(attempt))
                self._late.add(task)
            if await self._commit(attempt):
                return
            while chance.random() < AGAIN:
                if await self._commit(attempt):
                    return
            if await self._abort(attempt):
                return

    async def _end(self, batch: int) -> None:
        """Attempt the last batch, once, and have it committed again and again."""
        attempt = self._log.commits.begin(self._plan.machine, batch)
        if not await self._write(attempt):
            return
        while not self._clients.is_over.is_set():
            is_in = await self._commit(attempt, ends=True)
            await asyncio.sleep(self._chance.uniform(0, 1) if is_in else 0)

    async def _commit_late(self, attempt: Attempt) -> bool:
        await asyncio.sleep(self._chance.uniform(0, 1))
        return await self._commit(attempt)

    # -- tasks -----------------------------------------------------------------------------------

    async def _write(self, attempt: Attempt) -> bool:
        """Write the ledgers of an attempt; return whether all was acknowledged."""
        for number in range(self._chance.choice((1, 1, 2, 3))):
            made = await self._create()
            if made is None or not await self._write_ledger(attempt, number, made):
                return False
        return True

    async def _create(self) -> PendingLedger | None:
        async def create(broker: Broker) -> PendingLedger:
            instance = await broker.partition(TOPIC, self._log.partition)
            return await instance.commits.create(self._plan.machine)

        try:
            return await self._machine.ask(create)
        except (FencelogError, Unreached, Unanswered) as error:
            await self._go_on(error)
            return None

    async def _write_ledger(self, attempt: Attempt, number: int, made: PendingLedger) -> bool:
        history, chance = self._log.history, self._chance
        ledger = history.ledgers[made.metadata.ledger_id]
        writer = lent_writer(
            made.metadata,
            made.incarnations,
            bookies=self._session.directory,
            host=self._host,
            key=b"",
            on_ack=partial(history.acknowledged, ledger),
            on_failure=lambda error: None,
        )
        attempt.ledgers.append(ledger.ledger_id)
        attempt.sent.append([])
        messages = 0
        try:
            for entry in range(chance.choice((1, 2, 4))):
                name = f"{attempt.committer}/{attempt.batch}.{attempt.number}.{number}.{entry}"
                payloads = [f"{name}.{n}".encode() for n in range(chance.choice((1, 2, 3)))]
                sent = self._log.new(*payloads, is_batch=True)
                self._log.attempted(sent)
                attempt.sent[-1].append(sent)
                packed = pack_entry(
                    encode_batch([sent.message(payload) for payload in payloads]),
                    count=len(payloads),
                    first_number=messages,
                    publish_time_us=self._host.now_us(),
                )
                history.appended(ledger, writer.append(packed), packed)
                messages += len(payloads)
            return await _is_acknowledged(writer, len(attempt.sent[-1]))
        except FencelogError:
            return False
        finally:
            await writer.abandon()

    # -- the driver ------------------------------------------------------------------------------

    async def _commit(self, attempt: Attempt, *, ends: bool = False) -> bool:
        """Ask for the commit; return whether the batch is known to be in the log."""
        counts = [sum(len(sent.payloads) for sent in ledger) for ledger in attempt.sent]

        async def commit(broker: Broker) -> None:
            instance = await broker.partition(TOPIC, self._log.partition)
            ledgers = list(zip(attempt.ledgers, counts, strict=True))
            newest_epoch = self._log.newest_epoch
            try:
                done = await instance.commits.commit(
                    attempt.committer, attempt.batch, ledgers, ends=ends
                )
            except FencelogError as error:
                self._log.commits.turned_away(error, instance.epoch, newest_epoch)
                raise
            self._log.commits.told(
                attempt, done.commit.batch, done.commit.offset, duplicate=done.duplicate
            )

        try:
            await self._machine.ask(commit, timeout_s=self._clients.timeout_s(self._chance))
        except (FencelogError, Unreached, Unanswered) as error:
            await self._go_on(error, "commit")
            return False
        return True

    async def _abort(self, attempt: Attempt) -> bool:
        """Abort the attempt, until it is answered; return whether the batch is in the log."""

        async def abort(broker: Broker) -> bool:
            instance = await broker.partition(TOPIC, self._log.partition)
            done = await instance.commits.abort(attempt.committer, attempt.batch, attempt.ledgers)
            if done is None:
                attempt.is_aborted = True
                self._log.counts["aborts"] += 1
            return done is not None

        for _ in range(self._chance.choice((1, 1, 20))):  # or its driver dies
            try:
                return await self._machine.ask(abort)
            except (FencelogError, Unreached, Unanswered) as error:
                await self._go_on(error, "abort")
        return False

    async def _sweep(self) -> None:
        try:
            await self._machine.ask(lambda broker: broker.sweep.sweep())
        except (FencelogError, Unreached, Unanswered) as error:
            await self._go_on(error)

    async def _go_on(self, error: Exception, what: str = "") -> None:
        """Turn to whoever may know better, after a while."""
        if what and isinstance(error, FencelogError):
            self._log.counts[f"{what}: {error.code.slug}"] += 1
            self._is_refused = error.code is ErrorCode.LIMIT_REACHED
            if error.code in (ErrorCode.CORRUPT, ErrorCode.INTERNAL):
                self._log.violate(1, f"{what}: {error}")
        self._machine = self._clients.directed(self._chance, error)
        await asyncio.sleep(self._chance.uniform(0, RETRY_PAUSE_S))


async def _is_acknowledged(writer: LedgerWriter, entries: int) -> bool:
    for _ in range(int(WRITE_S / 0.01)):
        if writer.last_add_confirmed == entries - 1:
            return True
        if writer.failure is not None:
            return False
        await asyncio.sleep(0.01)
    return False
