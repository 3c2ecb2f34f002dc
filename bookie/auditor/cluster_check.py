"""The cluster metadata checker (BP-34): closed ledgers, compared with the lists of their bookies.

It reports and never repairs: a violation says that marking and re-replication have a hole. So it
accuses late. A ledger that is marked is being taken care of, and skipped unless that takes too
long. A ledger that lacks copies, or has bookies that do not answer, is looked at again after a
delay: an add may still be in flight, a bookie may be restarting. Before the last word its mark and
its metadata are read again, none of it older than that moment, and what has changed is compared
anew.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from fencelog.bookie.auditor.check_core import DurabilityFindings, Violation, shortfalls
from fencelog.bookie.auditor.check_core import ViolationKind as Kind
from fencelog.bookie.auditor.check_report import CheckProgress, CheckReport, Unverified
from fencelog.bookie.auditor.each import each, when_available
from fencelog.bookie.auditor.entry_lists import EntryLists
from fencelog.bookie.auditor.limits import (
    ACCUSATION_ATTEMPTS,
    CHECK_REPEAT_DELAY_MS,
    CHECK_REPEATS,
    LEDGERS_AT_ONCE,
    MIN_RACKS_PER_WRITE_SET,
    UNAVAILABLE_REST_MS,
    UNDER_REPLICATED_TOO_LONG_MS,
)
from fencelog.bookie.auditor.placement_core import placement_violations
from fencelog.bookie.auditor.registered import KnownBookies, read_bookies
from fencelog.bookie.replication.store import UnderReplicatedLedger, UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckConfig:
    """The settings of a check. ``repeats``: how often ledgers that lack something are looked at
    again, each time after ``repeat_delay_ms``. ``too_long_ms``: the time for which a ledger may
    stay marked."""

    repeats: int = CHECK_REPEATS
    repeat_delay_ms: int = CHECK_REPEAT_DELAY_MS
    too_long_ms: int = UNDER_REPLICATED_TOO_LONG_MS
    ledgers_at_once: int = LEDGERS_AT_ONCE
    min_racks: int = MIN_RACKS_PER_WRITE_SET


class _Outcome(Enum):
    """The end of one look at a ledger."""

    DONE = "done"
    AGAIN = "again"


@dataclass(slots=True)
class _Seen:
    """The findings of one comparison of a ledger."""

    metadata: LedgerMetadata
    durability: DurabilityFindings
    placement: list[Violation]
    failures: dict[str, FencelogError] = field(default_factory=dict)
    in_limbo: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()

    @property
    def is_suspect(self) -> bool:
        return bool(self.placement or self.durability.counts or self.failures)


class ClusterCheck:
    """One check of all ledgers. ``progress`` may be read while it runs."""

    def __init__(
        self,
        store: MetadataStore,
        bookies: BookieDirectory,
        *,
        host: Host,
        config: CheckConfig | None = None,
        on_violation: Callable[[Violation], None] = lambda violation: None,
    ) -> None:
        self._store = store
        self._ledgers = LedgerStore(store)
        self._marks = UnderReplicatedLedgers(store)
        self._bookies = bookies
        self._host = host
        self._config = config or CheckConfig()
        self._on_violation = on_violation
        self._loop = asyncio.get_running_loop()
        self._known = KnownBookies({}, frozenset(), 0)
        self._marked: set[int] = set()
        self._resting: dict[str, tuple[float, FencelogError]] = {}
        self._unreachable: dict[str, _Unreachable] = {}
        self._suspects: list[int] = []
        self._is_last = False
        self.progress = CheckProgress()
        self.report = CheckReport(started_us=host.now_us())

    async def run(self) -> CheckReport:
        """Check every ledger that exists at the time of the call. Raises FencelogError:
        METADATA_UNAVAILABLE, METADATA_UNKNOWN (the store was away for too long), CORRUPT (the
        listing, or a mark)."""
        began = self._loop.time()
        self._known = await when_available(lambda: read_bookies(self._store))
        self._marked = {ledger_id async for ledger_id in self._marks.list_ids()}
        ledger_ids = [ledger_id async for ledger_id in self._ledgers.list()]
        self.report.ledgers = len(ledger_ids)
        self.progress.begin("first look", len(ledger_ids), began)
        for repeat in range(self._config.repeats + 1):
            self._is_last = repeat == self._config.repeats
            self._suspects = []
            await each(ledger_ids, self._look, at_once=self._config.ledgers_at_once)
            ledger_ids = sorted(self._suspects)
            if not ledger_ids:
                break
            self.progress.phase = "waiting"
            await asyncio.sleep(self._config.repeat_delay_ms / 1000)
            self._known = await when_available(lambda: read_bookies(self._store))
            self._resting.clear()
            self.progress.begin(f"look {repeat + 2}", len(ledger_ids), self._loop.time())
        await self._report_unreachable()
        self.progress.phase = "done"
        self.report.duration_s = self._loop.time() - began
        return self.report

    async def _look(self, ledger_id: int) -> None:
        outcome = await when_available(lambda: self._check(ledger_id))
        if outcome is _Outcome.AGAIN:
            self._suspects.append(ledger_id)
        self.progress.did(self._loop.time())

    async def _check(self, ledger_id: int) -> _Outcome:
        """Check one ledger; count what is certain."""
        if ledger_id in self._marked and await self._is_skipped(ledger_id):
            return _Outcome.DONE
        try:
            metadata, _ = await self._ledgers.get(ledger_id)
        except FencelogError as error:
            if error.code is ErrorCode.CORRUPT:
                return await self._unreadable(ledger_id)
            return self._deleted(error)
        for _ in range(ACCUSATION_ATTEMPTS):
            if not metadata.is_closed:
                self.report.not_closed += 1
                return _Outcome.DONE
            seen = await self._compare(metadata)
            if not seen.is_suspect:
                self._count_whole(seen)
                return _Outcome.DONE
            if not self._is_last and (seen.failures or seen.durability.counts):
                return _Outcome.AGAIN
            if await self._is_skipped(ledger_id):
                return _Outcome.DONE
            try:
                latest, _ = await self._ledgers.get_latest(ledger_id)
            except FencelogError as error:
                return self._deleted(error)
            if latest == metadata and not await self._came_back(seen.gone):
                self._accuse(seen)
                return _Outcome.DONE
            metadata = latest
        if not self._is_last:
            return _Outcome.AGAIN
        self.report.unverified[Unverified.CHANGING] += 1
        return _Outcome.DONE

    async def _compare(self, metadata: LedgerMetadata) -> _Seen:
        members = {bookie for fragment in metadata.fragments for bookie in fragment.bookies}
        gone = frozenset(filter(self._known.is_gone, members))
        lists = EntryLists(metadata, self._bookies, gone=gone, resting=self._resting_now(members))
        durability = DurabilityFindings(metadata)
        async for window in lists.windows():
            durability.add(shortfalls(metadata, window.first, window.last, window.held))
        for bookie, error in lists.failures.items():
            if bookie not in self._resting:
                self._resting[bookie] = (self._loop.time() + UNAVAILABLE_REST_MS / 1000, error)
        racks, least = self._known.racks, self._config.min_racks
        placement = list(placement_violations(metadata, racks, min_racks=least))
        in_limbo = frozenset(lists.in_limbo)
        return _Seen(metadata, durability, placement, dict(lists.failures), in_limbo, gone)

    def _resting_now(self, members: Iterable[str]) -> dict[str, FencelogError]:
        """Return the bookies that have failed just now: a bookie that hangs costs one time-out in
        a while, not one for each ledger."""
        now, resting = self._loop.time(), {}
        for bookie in members:
            until, error = self._resting.get(bookie, (0.0, None))
            if error is None:
                continue
            if until > now:
                resting[bookie] = error
            else:
                del self._resting[bookie]
        return resting

    async def _is_skipped(self, ledger_id: int) -> bool:
        """Tell whether the ledger is marked; one that has been for too long is reported."""
        try:
            mark = await self._marks.get(ledger_id)
        except FencelogError as error:
            if error.code is not ErrorCode.CORRUPT:
                raise
            self.report.marked += 1
            self._report(Violation(Kind.UNREADABLE_METADATA, ledger_id, error.detail))
            return True
        if mark is None:
            return False
        self.report.marked += 1
        marked_ms = (self._host.now_us() - mark.since_us) // 1000
        if marked_ms > self._config.too_long_ms and not mark.is_for_balance:
            self._report(_too_long(mark, marked_ms))
        return True

    async def _came_back(self, gone: Iterable[str]) -> bool:
        """Tell whether a bookie that was counted as gone is in the cluster: it may have joined
        since that was read."""
        if not gone:
            return False
        self._known = await read_bookies(self._store)
        return not all(map(self._known.is_gone, gone))

    async def _unreadable(self, ledger_id: int) -> _Outcome:
        try:
            await self._ledgers.get_latest(ledger_id)
        except FencelogError as error:
            if error.code is not ErrorCode.CORRUPT:
                return self._deleted(error)
            self.report.checked += 1
            self._report(Violation(Kind.UNREADABLE_METADATA, ledger_id, error.detail))
            return _Outcome.DONE
        return await self._check(ledger_id)

    def _deleted(self, error: FencelogError) -> _Outcome:
        """Count a ledger that does not exist any more. Raises any other error."""
        if error.code is not ErrorCode.LEDGER_NOT_FOUND:
            raise error
        self.report.deleted += 1
        return _Outcome.DONE

    def _count_whole(self, seen: _Seen) -> None:
        self.report.checked += 1
        if seen.durability.unknown_entries:
            self.report.unverified[Unverified.IN_LIMBO] += 1
            self.report.unknown_entries += seen.durability.unknown_entries

    def _accuse(self, seen: _Seen) -> None:
        self._count_whole(seen)
        counts = Counter(seen.durability.counts)
        for violation in (*seen.placement, *seen.durability.violations()):
            counts[violation.kind] -= 1
            self._report(violation)
        self.report.counts.update(+counts)  # those that are not described
        if seen.failures:
            self.report.unverified[Unverified.UNAVAILABLE] += 1
        for bookie, error in seen.failures.items():
            unreachable = self._unreachable.setdefault(
                bookie, _Unreachable(seen.metadata.ledger_id, error)
            )
            unreachable.ledgers += 1

    async def _report_unreachable(self) -> None:
        """Report the bookies that did not answer and are registered even now. One that is not
        registered is a lost bookie, or about to be: the auditor marks its ledgers."""
        if not self._unreachable:
            return
        known = await when_available(lambda: read_bookies(self._store))
        for bookie, found in sorted(self._unreachable.items()):
            if bookie in known.registered:
                self._report(
                    Violation(
                        Kind.REGISTERED_BUT_UNREACHABLE,
                        found.ledger_id,
                        f"bookie {bookie} is registered and did not answer for {found.ledgers} "
                        f"ledgers: {found.error.detail}",
                        unknown=(bookie,),
                    )
                )

    def _report(self, violation: Violation) -> None:
        _log.error("violation: %s", json.dumps(violation.to_json()))
        self.report.add(violation)
        self._on_violation(violation)


@dataclass(slots=True)
class _Unreachable:
    """A bookie that did not answer: the first ledger that it was asked for, and how many."""

    ledger_id: int
    error: FencelogError
    ledgers: int = 0


def _too_long(mark: UnderReplicatedLedger, marked_ms: int) -> Violation:
    causes = ", ".join(
        f"{bookie} ({', '.join(sorted(cause.value for cause in why))})"
        for bookie, why in sorted(mark.missing.items())
    )
    return Violation(
        Kind.UNDER_REPLICATED_TOO_LONG,
        mark.ledger_id,
        f"under-replicated for {marked_ms // 1000} s: {causes}",
        absent=tuple(sorted(mark.missing)),
    )
