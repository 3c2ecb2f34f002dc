"""Balancing in a third of the histories: bookies that join late get copies of the others', moves
that nobody planned are marked as well, and lost copies come first (invariant 38)."""

from __future__ import annotations

import asyncio
import json
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from fencelog.bookie.balance.balancer import BalanceConfig, BookieBalancer
from fencelog.bookie.replication.settings import change_settings
from fencelog.bookie.replication.store import Cause, FragmentMove, UnderReplicatedLedgers
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.ledger_metadata.ledger_nodes import MARKS_PATH
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, decode_metadata
from fencelog.ledgers.ledger_metadata.store import LEDGERS_PATH
from fencelog.ledgers.reader.fan_out import cancel_all
from tests.sim.engine.host import SimHost
from tests.sim.ledgers.cluster import Cluster, Session
from tests.sim.oracle.history import History

MACHINE = "l1"
SHARE = 1 / 3
RATES = (2_000, 20_000, 1_000_000)
LATE_S = 20.0
"""The time after which everybody has seen that a ledger lacks copies: processes are paused, and cut
off from the metadata store."""

CONFIG = BalanceConfig(look_ms=200, interval_ms=1_000)
WRONG_S = (0.5, 4.0)


def draw_balance_rate(seed: int) -> int | None:
    """Return the rate of a history; None: nothing is moved. It has a source of chance of its own,
    so that the other histories are what they are without it."""
    random = Random(f"balance {seed}")
    return random.choice(RATES) if random.random() < SHARE else None


class Balancing:
    """The balancing of one history, and the watch over its marks and moves."""

    def __init__(self, cluster: Cluster, history: History, rate: int) -> None:
        self._cluster = cluster
        self._history = history
        self._rate = rate
        self._random = cluster.engine.random("balance")
        self._lacking_since: dict[int, float] = {}
        """The marks for another cause than balance, by ledger."""
        self._wrong: set[int] = set()
        """The ledgers with moves that nobody has planned."""
        self._ledgers: dict[int, LedgerMetadata] = {}
        cluster.memory.subscribe(self._changed)

    async def run(self, session: Session) -> None:
        """Turn balancing on, plan moves, and mark wrong ones, until this process dies."""
        host = SimHost(self._cluster.engine, session.process.machine)
        loop = asyncio.get_running_loop()
        balancer = BookieBalancer(session.store, host=host, config=CONFIG)
        tasks = [loop.create_task(balancer.run()), loop.create_task(self._mark_wrong(session))]
        try:
            while True:
                try:
                    await change_settings(session.store, balance_bytes_per_s=self._rate)
                    break
                except FencelogError as error:
                    self._history.counts[f"balance: {error.code.slug}"] += 1
                    await asyncio.sleep(0.5)
            await asyncio.gather(*tasks)
        finally:
            await cancel_all(tasks)

    async def _mark_wrong(self, session: Session) -> None:
        """Mark moves of any bookie to any bookie, members and strangers included."""
        marks = UnderReplicatedLedgers(session.store)
        host = SimHost(self._cluster.engine, session.process.machine)
        names = [*self._cluster.bookies, "b77"]
        for _ in range(4):
            await asyncio.sleep(self._random.uniform(*WRONG_S))
            ledgers = sorted(self._history.metadata)
            if not ledgers:
                continue
            ledger_id = self._random.choice(ledgers)
            fragment = self._random.choice(self._history.metadata[ledger_id][-1].fragments)
            giver, taker = self._random.choice(fragment.bookies), self._random.choice(names)
            move = FragmentMove(fragment.first_entry_id, giver, taker)
            self._wrong.add(ledger_id)
            self._history.counts["wrong moves"] += 1
            try:
                await marks.mark_moves(ledger_id, [move], now_us=host.now_us())
            except FencelogError as error:
                self._history.counts[f"balance: {error.code.slug}"] += 1

    # -- the watch -------------------------------------------------------------------------------

    def _changed(self, path: str) -> None:
        root, _, low = path.rpartition("/")
        root, _, high = root.rpartition("/")
        if root not in (MARKS_PATH, LEDGERS_PATH):
            return
        ledger_id = int(high, 16) << 16 | int(low, 16)
        try:
            value = self._cluster.memory.get(path).value
        except FencelogError:
            self._lacking_since.pop(ledger_id, None)
            return
        if root == MARKS_PATH:
            self._marked(ledger_id, value)
        else:
            self._written(decode_metadata(value))

    def _marked(self, ledger_id: int, value: bytes) -> None:
        causes = {cause for some in json.loads(value)["missing"].values() for cause in some}
        if causes != {Cause.BALANCE.value}:
            now = asyncio.get_running_loop().time()
            self._lacking_since.setdefault(ledger_id, now)
        elif ledger_id not in self._wrong:
            self._history.counts["moves planned"] += 1
            self._check_first(f"a move of ledger {ledger_id} is planned")

    def _written(self, now: LedgerMetadata) -> None:
        before = self._ledgers.get(now.ledger_id)
        self._ledgers[now.ledger_id] = now
        if before is None or not before.is_closed:
            return
        for old, new in zip(before.fragments, now.fragments, strict=True):
            for giver in set(old.bookies) - set(new.bookies):
                causes = self._history.causes.get((now.ledger_id, giver), set())
                if causes == {Cause.BALANCE.value}:
                    self._history.counts["moves made"] += 1
                    self._check_first(f"ledger {now.ledger_id} was moved")

    def _check_first(self, what: str) -> None:
        """Check that no ledger has lacked copies for long."""
        now = asyncio.get_running_loop().time()
        for ledger_id, since in self._lacking_since.items():
            if now - since > LATE_S:
                told = f"ledger {ledger_id} has been marked for {now - since:.1f} s"
                self._history.violate(38, f"{what}, and {told}")
