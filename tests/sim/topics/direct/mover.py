"""A replication worker that moves closed ledgers of a log to other bookies, as balancing does:
readers and owners too, go on with the metadata that they had."""

from __future__ import annotations

import asyncio
from random import Random  # noqa: TID251 - for its type: the streams are the engine's

from fencelog.bookie.replication.settings import change_settings
from fencelog.bookie.replication.store import Cause, FragmentMove, UnderReplicatedLedgers
from fencelog.bookie.replication.worker import ReplicationWorker
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.reader.fan_out import cancel_all
from tests.sim.engine.host import SimHost
from tests.sim.ledgers.cluster import Cluster, Session
from tests.sim.oracle.log_history import LogHistory

MACHINE = "m1"

RATE = 1_000_000
CHECK_MS = 20
PAUSE_S = (0.02, 0.08)
"""The time between two moves: a few of each ledger, in a history of seconds."""

NEWEST = 4
"""So many of the closed ledgers are moved: readers ask for the newest."""


class Mover:
    """The moves of one history, until ``is_over``."""

    def __init__(self, cluster: Cluster, log: LogHistory, is_over: asyncio.Event) -> None:
        self._cluster = cluster
        self._log = log
        self._is_over = is_over
        self._chance: Random = cluster.engine.random("mover")

    async def run(self, session: Session) -> None:
        host = SimHost(self._cluster.engine, MACHINE)
        worker = ReplicationWorker(
            session.store, session.directory, worker_id=MACHINE, host=host, check_ms=CHECK_MS
        )
        working = asyncio.get_running_loop().create_task(worker.run())
        marks, is_on = UnderReplicatedLedgers(session.store), False
        try:
            while not self._is_over.is_set():
                await asyncio.sleep(self._chance.uniform(*PAUSE_S))
                try:
                    if not is_on:
                        await change_settings(session.store, balance_bytes_per_s=RATE)
                        is_on = True
                    await self._mark(marks, host.now_us())
                except FencelogError as error:
                    self._log.counts[f"mover: {error.code.slug}"] += 1
        finally:
            await cancel_all([working])

    async def _mark(self, marks: UnderReplicatedLedgers, now_us: int) -> None:
        """Mark the move of one fragment to a bookie that is no member."""
        log, chance, history = self._log, self._chance, self._log.history
        known = [history.latest(ledger_id) for ledger_id in sorted(log.listed)]
        closed = [one for one in known if one is not None and one.is_closed]
        if not closed:
            return
        metadata = chance.choice(closed[-NEWEST:])
        fragment = chance.choice(metadata.fragments)
        others = sorted(set(self._cluster.bookies) - set(fragment.bookies))
        if others:
            giver, taker = chance.choice(fragment.bookies), chance.choice(others)
            causes = history.causes.setdefault((metadata.ledger_id, giver), set())
            causes.add(Cause.BALANCE.value)
            move = FragmentMove(fragment.first_entry_id, giver, taker)
            await marks.mark_moves(metadata.ledger_id, [move], now_us=now_us)
