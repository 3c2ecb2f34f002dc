"""The repair that ends limbo: entries that this bookie may have lost are copied from the others.

This is BP-46's second phase. For every ledger in limbo, one at a time:

    metadata ──► closed? else recover it ──► copy each entry that is missing here, durably
        ──► current metadata: still the same? else again ──► limbo ends, durably

From then on "no such entry" is correct: all entries of the ledger that belong on this bookie are
here; none can be added (it is closed, and fenced here) and none can have been removed:

* a change of the metadata: the current metadata is read again, and has to be the same. Entries that
  a later change gives to this bookie were given to this incarnation, which remembers them;
* a removal by garbage collection in between, which leaves the ledger in limbo again: its count
  shows it, in the same turn of the event loop in which limbo ends;
* a flush, a compaction: they move an entry and never make it unavailable meanwhile;
* a read in progress: it answers by the limbo at its beginning (``engine/reads.py``);
* a crash: the journal has the copies before the end of limbo. Only an unsynced journal may lose
  them, and then all ledgers are in limbo again (``engine/boot.py``).

An entry that no bookie has is never given up here: the ledger stays in limbo, and ``status`` shows
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fencelog.bookie.disk.rate_limit import Pace
from fencelog.bookie.engine.admin import arguments
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.format.ledger_state import BookieLedgerState
from fencelog.bookie.repair.backoff import (
    PostponedLedger,
    WaitingLedgers,
    registered_processes,
)
from fencelog.bookie.repair.copies import Copies, PutOff
from fencelog.bookie.repair.core import LimboStatus, limbo_status
from fencelog.bookie.repair.damage import DamagedRuns
from fencelog.bookie.repair.missing import MissingEntries
from fencelog.bookie.storage.entry_log import StoredRun
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.limits import COPY_BYTES_PER_S, INTEGRITY_CHECK_MS
from fencelog.ledgers.metastore.port import Version
from fencelog.ledgers.placement.placement import Placement
from fencelog.ledgers.recovery.recovery import recover_ledger
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

_log = logging.getLogger(__name__)

_ROUNDS = 3
"""Number of times that metadata may change during a repair before other ledgers are repaired."""


class Integrity:
    """The integrity check of one bookie, and its repairs. ``ledgers``, ``bookies``, ``placement``:
    its own client of the cluster, itself included. ``key``: the key of the ledgers, where they have
    one; ``copy_bytes_per_s`` None: no limit.

    It adds to the bookie the verb ``integrity`` (check now, including postponed repairs) and its
    part of ``status``.
    """

    def __init__(
        self,
        bookie: Bookie,
        *,
        ledgers: LedgerStore,
        bookies: BookieDirectory,
        placement: Placement,
        key: bytes = b"",
        copy_bytes_per_s: int | None = COPY_BYTES_PER_S,
    ) -> None:
        self._bookie = bookie
        self._ledgers = ledgers
        self._bookies = bookies
        self._placement = placement
        self._key = key
        self._loop = asyncio.get_running_loop()
        self._copies = Copies(bookies, key=key, pace=Pace(copy_bytes_per_s))
        self._missing = MissingEntries(bookie, self._copies)
        self.damage = DamagedRuns(bookie, ledgers=ledgers, copies=self._copies)
        self._waiting = WaitingLedgers()
        self._wake = asyncio.Event()
        self._at: int | None = None
        self._repaired = 0
        bookie.status_parts["integrity"] = self.status
        bookie.admin["integrity"] = self._check_now

    def on_damage(self, run: StoredRun, error: FencelogError) -> None:
        """Record a stored run that could not be read back: it is replaced once its ledger is
        closed."""
        self.damage.add(run, error)
        self._wake.set()

    async def run(self) -> None:
        """Check every INTEGRITY_CHECK_MS, for ever."""
        while True:
            await self.check()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTEGRITY_CHECK_MS / 1000):
                    await self._wake.wait()
            self._wake.clear()

    async def check(self) -> None:
        """Try each ledger that is in limbo or damaged, except those that failed a short while
        ago."""
        await self.damage.leave_files()  # also of ledgers whose repair has to wait
        if self._waiting.notice_arrivals(registered_processes(self._bookies), self._loop.time()):
            self._copies.wake_all()
        in_limbo = {i for shard in self._bookie.shards for i in shard.states.in_limbo}
        self._waiting.keep("limbo", in_limbo)
        for ledger_id in sorted(in_limbo):
            await self._attempt("limbo", ledger_id, self._end_limbo)
        damaged = self.damage.ledger_ids()
        self._waiting.keep("damage", set(damaged))
        for ledger_id in damaged:
            await self._attempt("damage", ledger_id, self.damage.repair)

    def status(self) -> dict[str, Any]:
        """Return this part of ``status``: finished repairs, the current one, and the reasons of
        postponed ones."""
        return {
            "at_ledger": self._at,
            "repaired_ledgers": self._repaired,
            "copied_entries": self._missing.copied_entries,
            "copied_bytes": self._missing.copied_bytes,
            "damaged_runs": self.damage.count,
            "damaged_runs_found": self.damage.found,
            "damaged_runs_replaced": self.damage.replaced,
            **self._waiting.status(),
        }

    async def _check_now(self, given: dict[str, Any]) -> dict[str, Any]:
        arguments(given, {})
        self._waiting.hurry()
        self._copies.wake_all()
        self._wake.set()
        return self.status()

    async def _attempt(
        self, what: str, ledger_id: int, repair: Callable[[int], Awaitable[None]]
    ) -> None:
        if not self._waiting.is_due(what, ledger_id, self._loop.time()):
            return
        self._at = ledger_id
        try:
            await repair(ledger_id)
        except FencelogError as error:
            self._put_off(what, ledger_id, error)
        except Exception as error:  # a bug; the others are still to be repaired
            _log.exception("ledger %d", ledger_id)
            self._put_off(what, ledger_id, FencelogError(ErrorCode.INTERNAL, repr(error)))
        else:
            self._waiting.done(what, ledger_id)
        finally:
            self._at = None

    def _put_off(self, what: str, ledger_id: int, error: FencelogError) -> None:
        waiting = PostponedLedger.for_reason(error, self._bookie.bookie_id)
        if self._waiting.put_off(what, ledger_id, waiting, self._loop.time()):
            _log.warning(
                "bookie %s cannot repair ledger %d now (%s): %s",
                self._bookie.bookie_id,
                ledger_id,
                waiting.why,
                error.detail,
            )

    # -- limbo -----------------------------------------------------------------------------------

    async def _end_limbo(self, ledger_id: int) -> None:
        """Repair a ledger and take it out of limbo. Raises FencelogError: why the ledger stays in
        limbo for now."""
        for _ in range(_ROUNDS):
            if (state := self._in_limbo(ledger_id)) is None:
                return
            removals = state.removals
            metadata, version = await self._get(ledger_id)
            self._copies.check_key(metadata)
            status = limbo_status(metadata, self._bookie.bookie_id)
            if status is not LimboStatus.NOT_MEMBER:
                self._note_stranger(ledger_id, False)
            match status:
                case LimboStatus.NOT_MEMBER:
                    is_stranger = await self._is_stranger(metadata, version)
                    self._note_stranger(ledger_id, is_stranger)
                    raise PutOff(
                        LimboStatus.NOT_MEMBER.value,
                        f"ledger {ledger_id} does not name bookie {self._bookie.bookie_id}",
                    )
                case LimboStatus.UNCLOSED:
                    await self._recover(ledger_id)
                    continue
                case LimboStatus.CLOSED:
                    await self._missing.copy(metadata)
            # Check for changes since the beginning only now, when all entries are here.
            if await self._ledgers.get_latest(ledger_id) != (metadata, version):
                continue
            if (state := self._in_limbo(ledger_id)) is None:
                return
            if state.removals == removals:
                await self._bookie.clear_limbo(ledger_id)
                self._repaired += 1
                _log.info("bookie %s: ledger %d is repaired", self._bookie.bookie_id, ledger_id)
                return
        raise PutOff("changing", f"ledger {ledger_id} was changed each time during its repair")

    async def _get(self, ledger_id: int) -> tuple[LedgerMetadata, Version]:
        """Return the metadata of a ledger. One that was deleted lacks nothing."""
        try:
            return await self._ledgers.get(ledger_id)
        except FencelogError as error:
            if error.code is ErrorCode.LEDGER_NOT_FOUND:
                self._note_stranger(ledger_id, True)
            raise

    async def _is_stranger(self, metadata: LedgerMetadata, version: Version) -> bool:
        """Tell whether a ledger that does not name this bookie will not do so either for entries
        that were sent here before: a recovery names a new bookie when it closes the ledger, and a
        replication worker before it removes the mark."""
        ledger_id = metadata.ledger_id
        if not metadata.is_closed or await self._ledgers.is_marked(ledger_id):
            return False
        return await self._ledgers.get_latest(ledger_id) == (metadata, version)

    def _note_stranger(self, ledger_id: int, on: bool) -> None:
        self._bookie.shard(ledger_id).states.set_stranger(ledger_id, on)

    def _in_limbo(self, ledger_id: int) -> BookieLedgerState | None:
        """Return the state of a ledger that is in limbo, else None. Raises PutOff while its entries
        are being removed: those that are here now will not stay."""
        state = self._bookie.shard(ledger_id).states.get(ledger_id)
        if state is None or not state.limbo or state.deleted:
            return None
        if state.removing:
            raise PutOff("removing", f"ledger {ledger_id} is being removed here")
        return state

    async def _recover(self, ledger_id: int) -> None:
        await recover_ledger(
            ledger_id,
            ledgers=self._ledgers,
            bookies=self._bookies,
            placement=self._placement,
            key=self._key,
        )
