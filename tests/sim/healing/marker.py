"""The marker: a plain process in the auditor's place, which says which copies are missing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random  # noqa: TID251 - for its type: the streams are the engine's

from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from tests.sim.engine.host import SimHost
from tests.sim.ledgers.cluster import Cluster, Session
from tests.sim.oracle.history import NOES, History, write_set_of

PASS_S = 1.0
LOST_S = 2.5
"""The time for which a bookie may be without registration before it counts as lost."""


class Marker:
    """Looks at all ledgers, again and again, until ``is_over``."""

    def __init__(self, cluster: Cluster, history: History, is_over: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._history = history
        self._is_over = is_over
        self._absent_since: dict[str, float] = {}
        self._whole: set[tuple[int, str]] = set()
        """(ledger, its fragments as text) of those whose copies are all there."""

    async def run(self, session: Session) -> None:
        while not self._is_over():
            try:
                await self._look(session)
            except FencelogError as error:
                self._history.counts[f"marker: {error.code.slug}"] += 1
            await asyncio.sleep(PASS_S)

    async def _look(self, session: Session) -> None:
        lost = self._lost(session)
        async for metadata in LedgerStore(session.store).read_all():
            named = {bookie for fragment in metadata.fragments for bookie in fragment.bookies}
            for bookie in sorted(named & lost):
                await self.mark(session, metadata.ledger_id, bookie, Cause.LOST_BOOKIE)
            key = (metadata.ledger_id, str(metadata.fragments))
            if metadata.is_closed and key not in self._whole:
                short = await self._short_of_copies(session, metadata)
                for bookie in short or ():
                    await self.mark(session, metadata.ledger_id, bookie, Cause.MISSING_COPIES)
                if short is not None and not short:
                    self._whole.add(key)

    def _lost(self, session: Session) -> set[str]:
        now = asyncio.get_running_loop().time()
        present = {*session.directory.available(), *session.directory.read_only()}
        for bookie in self._cluster.bookies:
            if bookie in present:
                self._absent_since.pop(bookie, None)
        named = {
            bookie
            for versions in self._history.metadata.values()
            for fragment in versions[-1].fragments
            for bookie in fragment.bookies
        }
        for bookie in sorted(named - present):
            self._absent_since.setdefault(bookie, now)
        return {b for b, since in self._absent_since.items() if now - since >= LOST_S}

    async def _short_of_copies(
        self, session: Session, metadata: LedgerMetadata
    ) -> list[str] | None:
        """Return the bookies that deny an entry which they should have; None where one could not
        tell."""
        short: list[str] = []
        for bookie in sorted({b for f in metadata.fragments for b in f.bookies}):
            try:
                held = await self._held(session, bookie, metadata.ledger_id)
            except FencelogError:
                return None
            if held is None:
                return None
            if any(
                bookie in write_set_of(metadata, n) and n not in held
                for n in range(metadata.last_entry_id + 1)
            ):
                short.append(bookie)
        return short

    async def _held(self, session: Session, bookie: str, ledger_id: int) -> set[int] | None:
        held, position = set[int](), 0
        client = session.directory.client(bookie)
        while True:
            try:
                page = await client.list_entries(ledger_id, position)
            except FencelogError as error:
                if error.code in NOES:
                    return held
                raise
            if page.in_limbo:
                return None
            held |= {n for a, b in page.availability.ranges() for n in range(a, b + 1)}
            if page.next_entry is None:
                return held
            position = page.next_entry

    async def mark(self, session: Session, ledger_id: int, bookie: str, why: Cause) -> None:
        """Mark a ledger. What it says may be wrong: workers have to look themselves."""
        host = SimHost(self._cluster.engine, session.process.machine)
        self._history.causes.setdefault((ledger_id, bookie), set()).add(why.value)
        await UnderReplicatedLedgers(session.store).mark(
            ledger_id, missing=[bookie], why=why, now_us=host.now_us()
        )
        self._history.counts[f"marks {why.value}"] += 1
        self._history.on_event("marked")


async def mark_at_random(
    marker: Marker, history: History, random: Random, session: Session
) -> None:
    """Mark any bookie of any ledger for any reason."""
    ledgers = sorted(history.metadata)
    if not ledgers:
        return
    ledger_id = random.choice(ledgers)
    fragment = random.choice(history.metadata[ledger_id][-1].fragments)
    why = random.choice(list(Cause))
    told = [causes for (i, _), causes in history.causes.items() if i == ledger_id]
    if why is Cause.DECOMMISSION and any(why.value in causes for causes in told):
        return  # no bookie that is to leave is a target: there might be none left
    try:
        await marker.mark(session, ledger_id, random.choice(fragment.bookies), why)
    except FencelogError as error:
        history.counts[f"marker: {error.code.slug}"] += 1
