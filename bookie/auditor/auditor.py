"""The auditor: one process of the cluster that finds what lacks copies, and marks it.

Three loops run side by side: the look at registrations, which finds lost bookies and has their
ledgers marked; the checks, one after the other, when they are due or asked for; and decommissions.
Each goes on after an error. While self-healing is off nothing is marked, but checks that only
report are made all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fencelog.bookie.auditor.absence_core import Absences
from fencelog.bookie.auditor.audit_store import REQUEST_PATH, AuditStore
from fencelog.bookie.auditor.check_report import CheckProgress, CheckReport
from fencelog.bookie.auditor.cluster_check import CheckConfig, ClusterCheck
from fencelog.bookie.auditor.decommission import DECOMMISSIONS_PATH, Decommissioner, Decommissions
from fencelog.bookie.auditor.ledger_check import LedgerCheck
from fencelog.bookie.auditor.limits import (
    BOOKIE_CHECK_INTERVAL_MS,
    CHECK_RETRY_MS,
    CLUSTER_CHECK_INTERVAL_MS,
    DECOMMISSION_SCAN_SHARE,
    DECOMMISSION_STEP_MS,
    FIRST_CHECK_DELAY_MS,
    LEDGER_CHECK_INTERVAL_MS,
    LOST_BOOKIE_GRACE_MS,
    MAX_STORED_VIOLATIONS,
    PLACEMENT_CHECK_INTERVAL_MS,
    REGISTRATION_LOOK_MS,
)
from fencelog.bookie.auditor.lost_bookies import check_bookies
from fencelog.bookie.auditor.placement_marks import check_placement
from fencelog.bookie.auditor.registered import read_bookies
from fencelog.bookie.auditor.schedule_core import CheckName, next_check
from fencelog.bookie.replication.settings import AutorecoverySettings, settings_now, watch_settings
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.port import MetadataStore, SessionState
from fencelog.ledgers.metastore.registration import BOOKIES_PATH
from fencelog.ledgers.reader.fan_out import cancel_all
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

_log = logging.getLogger(__name__)

_RETRY_S = 5.0
"""Pause after an error, usually of the metadata store."""

_SKIPPED: Mapping[str, Any] = {"skipped": "self-healing is off"}
"""The result of a check that would mark ledgers while that is off."""


def _intervals() -> dict[CheckName, int]:
    return {
        CheckName.BOOKIES: BOOKIE_CHECK_INTERVAL_MS,
        CheckName.LEDGERS: LEDGER_CHECK_INTERVAL_MS,
        CheckName.CLUSTER: CLUSTER_CHECK_INTERVAL_MS,
        CheckName.PLACEMENT: PLACEMENT_CHECK_INTERVAL_MS,
    }


@dataclass(frozen=True, slots=True)
class AuditorConfig:
    """The settings of an auditor. ``intervals_ms``: of each check, 0 for never. ``sample_share``:
    the share of entries that the ledger check reads besides first and last ones. The grace time of
    lost bookies can be changed for the whole cluster while it runs (``AutorecoverySettings``)."""

    lost_bookie_grace_ms: int = LOST_BOOKIE_GRACE_MS
    intervals_ms: Mapping[CheckName, int] = field(default_factory=_intervals)
    first_check_delay_ms: int = FIRST_CHECK_DELAY_MS
    sample_share: float = 0.0
    decommission_step_ms: int = DECOMMISSION_STEP_MS
    check: CheckConfig = field(default_factory=CheckConfig)


class Auditor:
    """The work of the process that is the auditor. ``last_check``: the last report of the cluster
    metadata checker in this process."""

    def __init__(
        self,
        store: MetadataStore,
        bookies: BookieDirectory,
        *,
        host: Host,
        config: AuditorConfig | None = None,
        key: bytes = b"",
    ) -> None:
        self._store = store
        self._bookies = bookies
        self._host = host
        self._config = config or AuditorConfig()
        self._key = key
        self._loop = asyncio.get_running_loop()
        self._audits = AuditStore(store)
        self._jobs = Decommissions(store)
        self._decommissioner = Decommissioner(store, bookies, host=host)
        self._settings = AutorecoverySettings()
        self._absences = Absences()
        self._marked_lost: frozenset[str] = frozenset()
        self._named: frozenset[str] = frozenset()
        """The bookies that metadata named at the last scan, those without a cookie included."""
        self._has_scanned = False
        self._scanning = asyncio.Lock()
        self._first_check_us = 0
        self._look = asyncio.Event()
        self._check_wakeup = asyncio.Event()
        self._lost_wakeup = asyncio.Event()
        self._decommission_wakeup = asyncio.Event()
        self._marking: asyncio.Task[dict[str, Any]] | None = None
        self.running: CheckName | None = None
        self.progress = CheckProgress()
        self.last_check: CheckReport | None = None
        self.lost_bookie_marks = 0

    async def run(self) -> None:
        """Audit until cancelled. Raises FencelogError: METADATA_UNAVAILABLE, if the store is away
        at the start."""
        self._absences, self._marked_lost = Absences(), frozenset()
        self._has_scanned = False
        self._first_check_us = self._host.now_us() + self._config.first_check_delay_ms * 1000
        self._settings = await settings_now(self._store)
        watches = [
            watch_settings(self._store, self._on_settings),
            self._store.watch_children(BOOKIES_PATH, lambda names: self._look.set()),
            self._store.on_session(self._on_session),
            self._store.watch_value(REQUEST_PATH, lambda node: self._check_wakeup.set()),
            self._store.watch_children(
                DECOMMISSIONS_PATH, lambda names: self._decommission_wakeup.set()
            ),
        ]
        loops = (self._look_forever, self._mark_forever, self._check_forever, self._drain_forever)
        tasks = [self._loop.create_task(self._forever(step)) for step in loops]
        try:
            await asyncio.gather(*tasks)
        finally:
            for watch in watches:
                watch.close()
            await cancel_all(tasks)

    def status(self) -> dict[str, Any]:
        """Return the state of the auditor as JSON-compatible values."""
        now = self._loop.time()
        return {
            "is_disabled": self._settings.is_disabled,
            "lost_bookie_grace_ms": self.grace_ms,
            "absent_bookies": {
                bookie: round(now - since, 1) for bookie, since in self._absences.since.items()
            },
            "lost_bookies": sorted(self._lost()),
            "lost_bookie_marks": self.lost_bookie_marks,
            "running": None if self.running is None else self.running.value,
            "progress": self.progress.to_json(),
        }

    @property
    def grace_ms(self) -> int:
        """Return the time for which a bookie may be away."""
        changed = self._settings.lost_bookie_grace_ms
        return self._config.lost_bookie_grace_ms if changed is None else changed

    def _on_session(self, state: SessionState) -> None:
        """Start all clocks anew when the connection breaks: a bookie may be back, and absent again,
        without having been seen."""
        if state is not SessionState.CONNECTED:
            self._absences = Absences()

    def _on_settings(self, settings: AutorecoverySettings) -> None:
        self._settings = settings
        if self._marking is not None and settings.is_disabled:
            self._marking.cancel()
        for event in (self._look, self._lost_wakeup, self._check_wakeup, self._decommission_wakeup):
            event.set()

    async def _forever(self, step: Callable[[], Awaitable[float]]) -> None:
        """Take steps for ever, each of which returns its pause; errors pass, bugs too: another
        auditor would meet them as well, and count the absence of lost bookies anew."""
        while True:
            try:
                pause_s = await step()
            except FencelogError as error:
                _log.warning("auditor: %s", error.detail)
                pause_s = _RETRY_S
            except Exception:
                _log.exception("auditor")
                pause_s = _RETRY_S
            await asyncio.sleep(pause_s)

    # -- lost bookies ----------------------------------------------------------------------------

    def _lost(self) -> frozenset[str]:
        return self._absences.lost(grace_s=self.grace_ms / 1000, now=self._loop.time())

    async def _look_forever(self) -> float:
        """Look at the registrations once, then wait for a change or for the next time."""
        self._look.clear()
        known = await read_bookies(self._store)
        now = self._loop.time()
        self._absences = self._absences.after_look(
            known.with_cookie | self._named,
            known.registered.keys(),
            session_id=known.session_id,
            now=now,
        )
        self._marked_lost &= self._lost()
        if self._lost() - self._marked_lost:
            self._lost_wakeup.set()
        next_at = self._absences.next_lost_at(grace_s=self.grace_ms / 1000, now=now)
        wait_s = REGISTRATION_LOOK_MS / 1000
        await _wait(self._look, wait_s if next_at is None else min(wait_s, next_at - now))
        return 0.0

    async def _mark_forever(self) -> float:
        """Wait for lost bookies, and mark their ledgers."""
        await self._lost_wakeup.wait()
        self._lost_wakeup.clear()
        lost = self._lost()
        if self._settings.is_disabled or not lost - self._marked_lost:
            return 0.0
        _log.warning("lost bookies: %s", ", ".join(sorted(lost)))
        try:
            await self._check_bookies()
        except FencelogError:
            self._lost_wakeup.set()
            raise
        return 0.0

    async def _check_bookies(self) -> dict[str, Any]:
        async with self._scanning:
            found = await check_bookies(self._store, host=self._host, lost=self._lost_if_enabled)
        self._named, self._has_scanned = frozenset(found.named), True
        self._marked_lost |= found.lost & self._lost()
        self.lost_bookie_marks += found.marked
        return found.to_json()

    def _lost_if_enabled(self) -> frozenset[str]:
        return frozenset() if self._settings.is_disabled else self._lost()

    # -- checks ----------------------------------------------------------------------------------

    async def _check_forever(self) -> float:
        """Make the checks that were asked for, or the one that is due; or wait."""
        self._check_wakeup.clear()
        if (request := await self._audits.requested()) is not None:
            for name in request.checks:
                await self._make(name)
            await self._audits.done(request)
            return 0.0
        results = await self._audits.results()
        finished = {
            name: result["finished_us"]
            for name, result in results.items()
            if isinstance(result.get("finished_us"), int) and "skipped" not in result
        }
        if not self._has_scanned:  # bookies without a cookie are known by a scan of its own
            finished.pop(CheckName.BOOKIES, None)
        intervals_ms = {
            name: min(ms, CHECK_RETRY_MS) if "error" in results.get(name, ()) else ms
            for name, ms in self._config.intervals_ms.items()
            if not self._is_held(name)
        }
        due, wait_us = next_check(
            intervals_ms,
            finished,
            began_us=self._first_check_us,
            now_us=self._host.now_us(),
        )
        if due is not None:
            await self._make(due)
            return 0.0
        await _wait(self._check_wakeup, min(wait_us / 1_000_000, 3600.0))
        return 0.0

    def _is_held(self, name: CheckName) -> bool:
        """Tell whether a check would mark ledgers while that is off."""
        return self._settings.is_disabled and name is not CheckName.CLUSTER

    async def _make(self, name: CheckName) -> None:
        """Make a check, and store its result."""
        makers: dict[CheckName, Callable[[], Awaitable[Mapping[str, Any]]]] = {
            CheckName.BOOKIES: self._check_bookies,
            CheckName.LEDGERS: partial(self._while_on, self._check_ledgers),
            CheckName.CLUSTER: self._check_cluster,
            CheckName.PLACEMENT: partial(self._while_on, self._check_placement),
        }
        if self._is_held(name):
            result = {**_SKIPPED}
        else:
            self.running, began = name, self._loop.time()
            try:
                result = {**await makers[name]()}
            except FencelogError as error:
                if error.code.retryable:
                    raise
                _log.exception("the check of %s has failed", name.value)
                result = {"error": error.detail}
            except Exception as error:  # a bug; the other checks are still to be made
                _log.exception("the check of %s has failed", name.value)
                result = {"error": repr(error)}
            finally:
                self.running = None
            result["took_s"] = round(self._loop.time() - began, 3)
        await self._audits.put(name, {"finished_us": self._host.now_us(), **result})

    async def _while_on(
        self, check: Callable[[], Coroutine[Any, Any, dict[str, Any]]]
    ) -> Mapping[str, Any]:
        """Return the result of a check that marks ledgers; it ends when self-healing is turned
        off."""
        marking = self._marking = self._loop.create_task(check())
        try:
            await asyncio.wait([marking])
            return _SKIPPED if marking.cancelled() else marking.result()
        finally:
            self._marking = None
            await cancel_all([marking])

    async def _check_ledgers(self) -> dict[str, Any]:
        check = LedgerCheck(
            self._store,
            self._bookies,
            host=self._host,
            share=self._config.sample_share,
            key=self._key,
        )
        self.progress = check.progress
        return (await check.run()).to_json()

    async def _check_cluster(self) -> dict[str, Any]:
        check = ClusterCheck(self._store, self._bookies, host=self._host, config=self._config.check)
        self.progress = check.progress
        self.last_check = await check.run()
        named = self.last_check.violations[:MAX_STORED_VIOLATIONS]
        return {**self.last_check.summary(), "violations": [each.to_json() for each in named]}

    async def _check_placement(self) -> dict[str, Any]:
        return (await check_placement(self._store, host=self._host)).to_json()

    # -- decommissions ---------------------------------------------------------------------------

    async def _drain_forever(self) -> float:
        """Carry all decommissions on by a step, or wait for one to begin."""
        self._decommission_wakeup.clear()
        names = [] if self._settings.is_disabled else await self._jobs.names()
        if not names:
            await _wait(self._decommission_wakeup, REGISTRATION_LOOK_MS / 1000)
            return 0.0
        began = self._loop.time()
        for name in names:
            try:
                await self._decommissioner.step(name)
            except FencelogError as error:
                _log.warning("decommission of bookie %s: %s", name, error.detail)
            except Exception:  # a bug; the others are still to be carried on
                _log.exception("decommission of bookie %s", name)
        scan_s = self._loop.time() - began
        return max(self._config.decommission_step_ms / 1000, DECOMMISSION_SCAN_SHARE * scan_s)


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for an event, or until the time is over."""
    try:
        async with asyncio.timeout(max(0.0, timeout_s)):
            await event.wait()
    except TimeoutError:
        return
