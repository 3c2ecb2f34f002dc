"""Clients that no healthy system has, and a safe one survives: adds of a writer that was fenced
long ago, and questions about single entries, both straight to one bookie.

A delayed message of an old writer may arrive at any time, so a fence that was answered must hold
against it, whatever happened to the bookie since. And what a bookie has acknowledged it must have.
"""

from __future__ import annotations

import asyncio
from random import Random  # noqa: TID251 - for its type: the streams are the engine's

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import build_run
from tests.sim.ledgers.cluster import Session
from tests.sim.oracle.history import History

FAR = 1_000_000
"""Entry ids of ghosts: above all that is ever written."""


class Ghosts:
    """Runs in a client process of its own until told that it is over."""

    def __init__(self, history: History, random: Random, over: asyncio.Event) -> None:
        self._history = history
        self._random = random
        self._over = over

    async def haunt(self, session: Session) -> None:
        while not self._over.is_set():
            await asyncio.sleep(self._random.choice((0.001, 0.005, 0.03, 0.12)))
            bookie = self._random.choice(sorted(self._history.bookies) or ["b1"])
            what = self._random.random()
            if what < 0.3:
                self.add(session, bookie)
            elif what < 0.32 and self._history.metadata:
                ledger_id = self._random.choice(sorted(self._history.metadata))
                await self._read(session, bookie, (ledger_id, FAR), fence=True)
            else:
                await self.ask(session, bookie)

    async def ask_on(self, session: Session) -> None:
        """Ask one bookie after the other for entries."""
        while not self._over.is_set():
            await asyncio.sleep(self._random.choice((0.001, 0.005, 0.02)))
            await self.ask(session, self._random.choice(sorted(self._history.bookies) or ["b1"]))

    def add(self, session: Session, bookie: str) -> None:
        """An add for a ledger that this bookie has fenced, or removed. Whether it was right to take
        it, the bookie's own observer says."""
        memory = self._history.bookie(bookie)
        if memory.removed and self._random.random() < 0.4:
            ledger_id = self._random.choice(sorted(memory.removed))
            self._send(session, bookie, ledger_id, memory.incarnation, recovery=True)
            self._send(session, bookie, ledger_id, memory.incarnation, recovery=False)
            return
        fenced = sorted(memory.fenced)
        if not fenced:
            return
        ledger_id = self._random.choice(fenced)
        # The fence alone has to hold, except on a bookie that lost its disk and is not named by
        # the ledger: it has nothing to fence it by, and its incarnation keeps the writer out.
        holds = not memory.is_damaged or self._names(ledger_id, bookie)
        incarnation = None if holds else memory.fenced[ledger_id]
        self._send(session, bookie, ledger_id, incarnation, recovery=False)

    def _send(
        self,
        session: Session,
        bookie: str,
        ledger_id: int,
        incarnation: str | None,
        *,
        recovery: bool,
    ) -> None:
        run = build_run(ledger_id, FAR, [b"ghost"], lac=-1, length_before=FAR)
        session.directory.client(bookie).add(
            run, recovery=recovery, incarnation=incarnation, on_reply=self._answered
        )

    def _names(self, ledger_id: int, bookie: str) -> bool:
        """Tell whether metadata has named the bookie in all its versions, hence also when it fenced
        its ledgers at its start."""
        versions = self._history.metadata.get(ledger_id, [])
        return bool(versions) and all(
            any(bookie in fragment.bookies for fragment in version.fragments)
            for version in versions
        )

    def _answered(self, error: FencelogError | None) -> None:
        self._history.counts[f"ghost: {error.code.slug if error else 'taken'}"] += 1

    async def ask(self, session: Session, bookie: str) -> None:
        """Read an entry that the bookie has, or had until it lost its disk."""
        memory = self._history.bookie(bookie)
        lost = memory.previous_entries and self._random.random() < 0.5
        entries = sorted(memory.previous_entries if lost else memory.entries)
        if entries:
            await self._read(session, bookie, self._random.choice(entries[-40:]), fence=False)

    async def ask_for_lost(self, session: Session, bookie: str) -> None:
        """Read everything that the bookie lost with its disk and must not deny."""
        for entry in sorted(self._history.bookie(bookie).previous_entries):
            if self._history.latest(entry[0]) is not None:
                await self._read(session, bookie, entry, fence=False)

    async def _read(
        self, session: Session, bookie: str, entry: tuple[int, int], *, fence: bool
    ) -> None:
        """A wrong answer is noted where it is given. A fencing read is what an abandoned recovery
        leaves behind: it ends the ledger's writer, no more."""
        ledger_id, entry_id = entry
        try:
            async with asyncio.timeout(1.0):
                await session.directory.client(bookie).read(
                    ledger_id, entry_id, max_entries=1, max_bytes=1, fence=fence
                )
        except (FencelogError, TimeoutError):
            return
