"""The liveness phase of a history of self-healing: in the end every entry of each closed ledger has
all its copies, on bookies that live and that the metadata names (invariant 11), and a bookie that
was to leave has left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import verify_entries, verify_run
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from tests.sim.ledgers.cluster import Session
from tests.sim.ledgers.ending import Ending
from tests.sim.oracle.history import WrittenLedger, write_set_of

COPIES_READ = 64
LOOK_S = 2.0


class HealingEnding(Ending):
    """``on_healed`` is called when all copies are there, or the time is over."""

    heal_s: float
    on_healed: Callable[[], None] = staticmethod(lambda: None)
    is_retired: Callable[[], bool] = staticmethod(lambda: True)
    """Tells whether a bookie that is to leave has left."""

    async def _after_reading(self) -> None:
        missing = ["not looked"]

        async def look(session: Session) -> None:
            while missing:
                found = await self._missing_copy(session)
                if found is None and not self.is_retired():
                    found = "a bookie that is to leave is still there"
                missing[:] = [] if found is None else [found]
                if missing:
                    await asyncio.sleep(LOOK_S)

        process = self._cluster.client_process("z2", look)
        deadline = asyncio.get_running_loop().time() + self.heal_s
        await self._cluster.until(
            lambda: not process.live_tasks() or asyncio.get_running_loop().time() >= deadline
        )
        process.kill()
        if missing:
            self._history.violate(11, missing[0])
        self._history.counts["healed"] += not missing
        self.on_healed()

    async def _missing_copy(self, session: Session) -> str | None:
        """Return which copy of an entry of a closed ledger is missing, None if none is."""
        for ledger_id, ledger in sorted(self._history.ledgers.items()):
            metadata = self._history.latest(ledger_id)
            if metadata is None or not metadata.is_closed or ledger.is_being_deleted:
                continue
            for bookie in sorted({b for f in metadata.fragments for b in f.bookies}):
                found = await self._missing_on(session, bookie, ledger, metadata)
                if found is not None:
                    return found
        return None

    async def _missing_on(
        self, session: Session, bookie: str, ledger: WrittenLedger, metadata: LedgerMetadata
    ) -> str | None:
        if bookie not in self._cluster.bookies:
            return f"ledger {ledger.ledger_id} names {bookie}, which is lost: {metadata.fragments}"
        wanted = {
            n for n in range(metadata.last_entry_id + 1) if bookie in write_set_of(metadata, n)
        }
        while wanted:
            entry_id = min(wanted)
            try:
                reply = await session.directory.client(bookie).read(
                    ledger.ledger_id, entry_id, max_entries=COPIES_READ, max_bytes=1 << 20
                )
                verify_run(reply.run)
                entries = verify_entries(reply.run, digest_type=metadata.digest_type, key=b"")
            except FencelogError as error:
                return f"{bookie} does not give entry {entry_id} of {ledger.ledger_id}: {error}"
            for entry in entries:
                wanted.discard(entry.entry_id)
                is_right = (
                    entry.entry_id >= len(ledger.payloads)
                    or bytes(entry.payload) == ledger.payloads[entry.entry_id]
                )
                if not is_right:
                    self._history.violate(5, f"{bookie} has another entry {entry.entry_id}")
            self._history.counts["copies verified"] += len(entries)
        return None
