"""The recent check: what a writer left behind with too few copies is found soon, and marked.

A writer goes on with Qa acknowledgements. Where it replaces a bookie, or closes, while a copy is in
flight, nobody sends that copy again, and no bookie misses it: only a comparison of metadata with
the bookies' lists shows it. The ledger check compares all ledgers, once a week. This one compares
those that were not found whole yet (``core``):

    listing ──► new ids ──────────────┐
    watch ──► open ledger changed ────┴─► metadata, lists ──► whole: verified, and never again
        ──► lacks copies ──► look again, after a pause ──► metadata again: still so ──► mark

No entry is read. An open ledger costs a watch, and nothing while it does not change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fencelog.bookie.auditor.check_core import DurabilityFindings, shortfalls
from fencelog.bookie.auditor.each import each
from fencelog.bookie.auditor.entry_lists import EntryLists
from fencelog.bookie.auditor.ledger_check import closed_part
from fencelog.bookie.recent.core import Look, Pauses, RecentLedgers
from fencelog.bookie.recent.limits import (
    LAST_PAUSE_MS,
    LIST_TIMEOUT_REST_MS,
    LOOKS_AT_ONCE,
    LOOKS_PER_S,
    MAX_SAVED_DIRECTORIES,
    MAX_TRACKED_LEDGERS,
    MAX_WATCHED_LEDGERS,
    NEWEST_DIRECTORIES,
    RECENT_CHECK_INTERVAL_MS,
    SETTLE_MS,
)
from fencelog.bookie.recent.verified_store import VerifiedStore
from fencelog.bookie.replication.settings import AutorecoverySettings, watch_settings
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.ledger_nodes import (
    directories_of_ledgers,
    ledger_path,
    ledgers_in_directory,
)
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, LedgerState
from fencelog.ledgers.ledger_metadata.store import LEDGERS_PATH, LedgerStore
from fencelog.ledgers.metastore.port import MetadataStore, Version, Versioned, Watch
from fencelog.ledgers.metastore.registration import BOOKIES_PATH
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

_log = logging.getLogger(__name__)

_TURN_S = 1.0
"""The time in which at most LOOKS_PER_S looks are made."""

_RETRY_S = 5.0
"""The pause after an error, usually of the metadata store."""

_SHOWN = 20
"""The ledgers without all their copies that ``status`` names."""


@dataclass(frozen=True, slots=True)
class RecentCheckConfig:
    """The settings. ``interval_ms``: between listings, 0 for no recent check at all."""

    interval_ms: int = RECENT_CHECK_INTERVAL_MS
    looks_per_s: int = LOOKS_PER_S
    max_watched: int = MAX_WATCHED_LEDGERS
    max_tracked: int = MAX_TRACKED_LEDGERS

    @property
    def pauses(self) -> Pauses:
        interval_s = self.interval_ms / 1000
        settle_s = min(SETTLE_MS / 1000, interval_s)
        return Pauses(interval_s, settle_s, max(LAST_PAUSE_MS / 1000, interval_s))


class RecentCheck:
    """The recent check of the process that is the auditor. ``looks`` and ``marked``: counts since
    the start of the process."""

    def __init__(
        self,
        store: MetadataStore,
        bookies: BookieDirectory,
        *,
        host: Host,
        config: RecentCheckConfig | None = None,
    ) -> None:
        self._store = store
        self._bookies = bookies
        self._host = host
        self._config = config or RecentCheckConfig()
        self._loop = asyncio.get_running_loop()
        self._ledgers = LedgerStore(store)
        self._marks = UnderReplicatedLedgers(store)
        self._bits = VerifiedStore(store)
        self._is_enabled = asyncio.Event()
        self._wakeup = asyncio.Event()
        self.looks = 0
        self.marked = 0
        self._begin()

    def _begin(self) -> None:
        """Forget everything that an earlier term as the auditor has found."""
        self._recent = RecentLedgers(self._config.pauses, most=self._config.max_tracked)
        self._watches: dict[int, Watch] = {}
        self._registered: set[str] = set()
        self._resting: dict[str, tuple[float, FencelogError]] = {}
        self._older: list[int] = []
        """The directories that are still to be listed, the newest last."""
        self._loaded: set[int] = set()
        self._next_listing = self._loop.time()
        self._is_first_listing = True

    async def run(self) -> None:
        """Check until cancelled. Errors of the store pass."""
        if self._config.interval_ms == 0:
            await asyncio.Event().wait()
        self._begin()
        watches = [
            watch_settings(self._store, self._on_settings),
            self._store.watch_children(BOOKIES_PATH, self._on_bookies),
        ]
        try:
            while True:
                await self._is_enabled.wait()
                try:
                    await self._turn()
                except FencelogError as error:
                    _log.warning("recent check: %s", error.detail)
                    await asyncio.sleep(_RETRY_S)
        finally:
            for watch in (*watches, *self._watches.values()):
                watch.close()

    def status(self) -> dict[str, Any]:
        """Return what it does, as JSON-compatible values."""
        return {
            "is_enabled": self._config.interval_ms > 0,
            "looks": self.looks,
            "marked": self.marked,
            **self._recent.counts(self._loop.time()),
            "lacking": list(self._recent.lacking(_SHOWN)),
        }

    def _on_settings(self, settings: AutorecoverySettings) -> None:
        if settings.is_disabled:
            self._is_enabled.clear()
        else:
            self._is_enabled.set()

    async def _turn(self) -> None:
        """List what is new if it is time for that, make the looks that are due, and wait."""
        began = self._loop.time()
        if began >= self._next_listing:
            await self._list()
            self._next_listing = began + self._config.interval_ms / 1000
        self._wakeup.clear()
        most = max(1, round(self._config.looks_per_s * _TURN_S))
        taken = self._recent.take(most, self._loop.time())
        await each(taken, self._look, at_once=min(LOOKS_AT_ONCE, len(taken)))
        now = self._loop.time()
        due = self._recent.next_due(now)
        until = self._next_listing if due is None else min(due, self._next_listing)
        # What is due at once shares the next turn: so many looks in a second, and no more.
        await asyncio.sleep(max(0.0, began + _TURN_S - now if taken else 0.0))
        await self._wait(until)

    async def _wait(self, until: float) -> None:
        """Wait until that time, or until a watch brings the next look forward."""
        try:
            async with asyncio.timeout(max(0.0, until - self._loop.time())):
                await self._wakeup.wait()
        except TimeoutError:
            return

    # -- listings --------------------------------------------------------------------------------

    async def _list(self) -> None:
        """List the newest directories, and one of the others; save what was verified."""
        for directory in sorted(self._recent.verified.changed)[-MAX_SAVED_DIRECTORIES:]:
            self._recent.verified.changed.discard(directory)
            try:
                await self._bits.save(self._recent.verified, directory)
            except FencelogError:
                self._recent.verified.changed.add(directory)
                raise
        directories = await directories_of_ledgers(self._store, LEDGERS_PATH)
        for directory in directories[-NEWEST_DIRECTORIES:]:
            await self._list_directory(directory, are_new=not self._is_first_listing)
        self._is_first_listing = False
        if not self._recent.has_backlog:
            older = directories[:-NEWEST_DIRECTORIES]
            self._older = [d for d in self._older if d in older] or list(older)
            if self._older:
                await self._list_directory(self._older.pop(), are_new=False)

    async def _list_directory(self, directory: int, *, are_new: bool) -> None:
        if directory not in self._loaded:
            await self._bits.load(self._recent.verified, directory)
            self._loaded.add(directory)
        ids = await ledgers_in_directory(self._store, LEDGERS_PATH, directory)
        self._recent.listed(ids, are_new=are_new, now=self._loop.time())

    # -- one ledger ------------------------------------------------------------------------------

    async def _look(self, ledger_id: int) -> None:
        """Look at a ledger; mark it if it lacked the same bookies' copies before. Raises
        FencelogError: METADATA_UNAVAILABLE, METADATA_UNKNOWN."""
        self.looks += 1
        try:
            metadata, version = await self._ledgers.get(ledger_id)
        except FencelogError as error:
            self._unreadable(ledger_id, error)
            return
        look = await self._compare(metadata, version)
        is_watched = not metadata.is_closed and self._watch(ledger_id)
        now = self._loop.time()
        accused = self._recent.looked(ledger_id, look, is_watched=is_watched, now=now)
        if metadata.is_closed:
            self._unwatch(ledger_id)
        if accused:
            await self._mark(metadata, accused)

    def _unreadable(self, ledger_id: int, error: FencelogError) -> None:
        """Forget a ledger that was deleted; the metadata check reports one that is not valid.
        Raises any other error."""
        if error.code is ErrorCode.LEDGER_NOT_FOUND:
            self._recent.forget(ledger_id)
            self._unwatch(ledger_id)
        elif error.code is ErrorCode.CORRUPT:
            self._recent.put_off(ledger_id, self._loop.time())
        else:
            raise error

    async def _compare(self, metadata: LedgerMetadata, version: Version) -> Look:
        """Compare what gets no more entries with the lists of its bookies. During a recovery
        nothing is compared: workers leave the ledger alone until it is closed."""
        part = closed_part(metadata)
        settled = part.last_entry_id + 1
        known = self._recent.whole_below(metadata.ledger_id)
        if metadata.state is LedgerState.IN_RECOVERY:
            return Look(version, is_closed=False, settled=known)
        if not metadata.is_closed and settled <= known:
            return Look(version, is_closed=False, settled=settled)
        durability, unknown = DurabilityFindings(part), set[str]()
        lists = EntryLists(part, self._bookies, resting=self._resting_now(_members(part)))
        async for window in lists.windows():
            found = list(shortfalls(part, window.first, window.last, window.held))
            durability.add(found)
            unknown.update(bookie for shortfall in found for bookie in shortfall.unknown)
        for bookie, error in lists.failures.items():
            if bookie not in self._resting:
                rest_s = LIST_TIMEOUT_REST_MS / 1000
                self._resting[bookie] = (self._loop.time() + rest_s, error)
        missing = frozenset(durability.missing)
        return Look(version, metadata.is_closed, settled, missing, frozenset(unknown))

    async def _mark(self, seen: LedgerMetadata, accused: Iterable[str]) -> None:
        """Mark a ledger unless it has changed since the look, or is marked already: a mark that is
        renewed again and again could not be removed by its worker."""
        try:
            latest, _ = await self._ledgers.get_latest(seen.ledger_id)
        except FencelogError as error:
            if error.code is not ErrorCode.LEDGER_NOT_FOUND:
                raise
            return
        if latest.fragments != seen.fragments or latest.state is LedgerState.IN_RECOVERY:
            return
        try:
            mark = await self._marks.get(seen.ledger_id)
        except FencelogError as error:
            if error.code is not ErrorCode.CORRUPT:
                raise
            _log.error("ledger %d is not marked: %s", seen.ledger_id, error.detail)
            return
        marked = {} if mark is None else mark.missing
        missing = sorted(b for b in accused if Cause.MISSING_COPIES not in marked.get(b, ()))
        if missing:
            now_us = self._host.now_us()
            why = Cause.MISSING_COPIES
            await self._marks.mark(seen.ledger_id, missing=missing, why=why, now_us=now_us)
            self.marked += 1
            _log.info("ledger %d lacks copies on %s", seen.ledger_id, ", ".join(missing))

    def _resting_now(self, members: Iterable[str]) -> dict[str, FencelogError]:
        """Return the bookies that have failed just now."""
        now = self._loop.time()
        self._resting = {b: rest for b, rest in self._resting.items() if rest[0] > now}
        return {b: self._resting[b][1] for b in members if b in self._resting}

    # -- watches ---------------------------------------------------------------------------------

    def _watch(self, ledger_id: int) -> bool:
        """Watch an open ledger, and tell whether it is watched."""
        if ledger_id in self._watches:
            return True
        if len(self._watches) >= self._config.max_watched:
            return False
        path = ledger_path(LEDGERS_PATH, ledger_id)
        self._watches[ledger_id] = self._store.watch_value(path, partial(self._changed, ledger_id))
        return True

    def _changed(self, ledger_id: int, node: Versioned | None) -> None:
        version = None if node is None else node.version
        if self._recent.changed(ledger_id, version, self._loop.time()):
            self._wakeup.set()

    def _on_bookies(self, names: list[str]) -> None:
        """Have the ledgers looked at that waited for a bookie which is back."""
        back, self._registered = set(names) - self._registered, set(names)
        if self._recent.returned(back, self._loop.time()):
            self._wakeup.set()

    def _unwatch(self, ledger_id: int) -> None:
        if (watch := self._watches.pop(ledger_id, None)) is not None:
            watch.close()


def _members(metadata: LedgerMetadata) -> set[str]:
    return {bookie for fragment in metadata.fragments for bookie in fragment.bookies}
