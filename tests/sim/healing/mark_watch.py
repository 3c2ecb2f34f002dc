"""Marks, registrations, decommissions and cookies, checked as they change in the metadata store
(invariant 38)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

from fencelog.bookie.auditor.decommission import DECOMMISSIONS_PATH
from fencelog.bookie.auditor.decommission_core import (
    Decommission,
    Phase,
    decode_decommission,
)
from fencelog.bookie.identity.cookie_registry import COOKIES_PATH
from fencelog.bookie.identity.cookies import decode_cookie
from fencelog.bookie.replication.store import Cause
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.ledger_metadata.ledger_nodes import MARKS_PATH
from fencelog.ledgers.ledger_metadata.store import LEDGERS_PATH
from fencelog.ledgers.metastore.registration import BOOKIES_PATH
from tests.sim.healing.mark_truth import MarkTruth
from tests.sim.healing.plan import HealingPlan
from tests.sim.healing.repair_watch import RepairWatch
from tests.sim.healing.versions import MetadataVersions
from tests.sim.ledgers.cluster import Cluster
from tests.sim.oracle.history import History

UNSEEN_S = 2.0
"""The time for which a bookie may be registered without being seen, by a server that lags or an
auditor that was suspended. The clocks of an auditor that has not looked for longer begin anew."""


@dataclass(slots=True)
class _Presence:
    """The registrations of a bookie: the time of the last one, or of the absences."""

    absent_since: float | None = 0.0
    absences: list[tuple[float, float]] = field(default_factory=list)
    """Those that are over: the begin and the end of each."""


class MarkWatch:
    """Sees each write to the tree at the moment it takes effect, in order."""

    def __init__(self, history: History, cluster: Cluster, plan: HealingPlan) -> None:
        self._history = history
        self._cluster = cluster
        self._tree = cluster.memory
        self._grace_s = plan.lost_bookie_grace_ms / 1000
        self._late_s = plan.late_s
        self.versions = MetadataVersions(history)
        self.repairs = RepairWatch(history, cluster)
        self._truth = MarkTruth(
            history, cluster, self.versions, settle_s=plan.settle_s, late_s=plan.late_s
        )
        self._present: dict[str, _Presence] = {}
        self._incarnations: dict[str, str] = {}
        """Those of the cookies."""
        self._jobs: dict[str, Decommission] = {}
        self._tree.subscribe(self._changed)

    def _changed(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        value = self._value(path)
        if parent == BOOKIES_PATH:
            self._registered(name, is_there=value is not None)
        elif parent == COOKIES_PATH:
            self._cookie(name, value)
        elif parent == DECOMMISSIONS_PATH:
            self._decommission(name, value)
        elif path.startswith(f"{MARKS_PATH}/") and len(path.split("/")) == 5:
            high, low = path.split("/")[-2:]
            self._mark(int(high, 16) << 16 | int(low, 16), value)
        elif path.startswith(f"{LEDGERS_PATH}/") and len(path.split("/")) == 4:
            high, low = path.split("/")[-2:]
            self._ledger(int(high, 16) << 16 | int(low, 16))

    def _ledger(self, ledger_id: int) -> None:
        before = self.versions.latest(ledger_id)
        self.versions.changed(ledger_id)
        self._truth.metadata_changed(ledger_id)
        self.repairs.metadata_changed(before, self._history.latest(ledger_id))

    def _value(self, path: str) -> bytes | None:
        try:
            return self._tree.get(path).value
        except FencelogError:
            return None

    # -- registrations and marks -----------------------------------------------------------------

    def _registered(self, bookie: str, *, is_there: bool) -> None:
        now = asyncio.get_running_loop().time()
        presence = self._present.setdefault(bookie, _Presence())
        if not is_there:
            if presence.absences and now - presence.absences[-1][1] < UNSEEN_S:
                presence.absent_since = presence.absences.pop()[0]
            elif presence.absent_since is None:
                presence.absent_since = now
        elif presence.absent_since is not None:
            presence.absences.append((presence.absent_since, now))
            presence.absent_since = None
        self._history.absent_since.pop(bookie, None)
        if presence.absent_since is not None:
            self._history.absent_since[bookie] = presence.absent_since

    def _was_absent(self, bookie: str) -> bool:
        """Tell whether it has been absent for the grace time, now or not long ago."""
        now = asyncio.get_running_loop().time()
        presence = self._present.get(bookie, _Presence())
        if presence.absent_since is not None and now - presence.absent_since >= self._grace_s:
            return True
        return any(
            end - begin >= self._grace_s and now - end <= self._late_s
            for begin, end in presence.absences
        )

    def _mark(self, ledger_id: int, value: bytes | None) -> None:
        if value is None:
            self._history.marked_since.pop(ledger_id, None)
            self._truth.removed(ledger_id)
            return
        self._history.marked_since.setdefault(ledger_id, asyncio.get_running_loop().time())
        missing = json.loads(value)["missing"]
        self._truth.written(ledger_id, missing)
        for bookie, causes in missing.items():
            known = self._history.causes.setdefault((ledger_id, bookie), set())
            for cause in set(causes) - known:
                known.add(cause)
                self._history.counts[f"marks {cause}"] += 1
                is_lost = cause != Cause.LOST_BOOKIE.value or self._was_absent(bookie)
                if not is_lost and (ledger_id, bookie) not in self._history.marked_at_random:
                    self._history.violate(
                        38, f"ledger {ledger_id} is marked: {bookie} is lost; it was not"
                    )
        self._history.on_event("marked")

    # -- decommissions ---------------------------------------------------------------------------

    def _decommission(self, bookie: str, value: bytes | None) -> None:
        before = self._jobs.pop(bookie, None)
        if value is None:
            return
        job = self._jobs[bookie] = decode_decommission(bookie, value)
        if before is None or before.phase is not job.phase:
            self._history.counts[f"decommission {job.phase.value}"] += 1
            self._history.on_event(job.phase.value)

    def phase(self, bookie: str) -> Phase | None:
        job = self._jobs.get(bookie)
        return None if job is None else job.phase

    def _cookie(self, bookie: str, value: bytes | None) -> None:
        if value is not None:
            self._incarnations[bookie] = decode_cookie(bookie, value).incarnation
            return
        violate, job = self._history.violate, self._jobs.get(bookie)
        self._history.counts["cookies removed"] += 1
        if job is None or job.phase is not Phase.REMOVING:
            violate(38, f"the cookie of {bookie} is removed, which is not to go: {job}")
        elif job.incarnation != self._incarnations.get(bookie):
            violate(38, f"the cookie of {bookie} is removed, which began anew meanwhile")
        machine = self._cluster.bookies.get(bookie)
        is_registered = self._value(f"{BOOKIES_PATH}/{bookie}") is not None
        if is_registered and machine is not None and machine.bookie is not None:
            violate(38, f"the cookie of {bookie} is removed, which serves")
        for ledger_id, versions in sorted(self._history.metadata.items()):
            if any(bookie in fragment.bookies for fragment in versions[-1].fragments):
                violate(38, f"the cookie of {bookie} is removed, which ledger {ledger_id} names")
                return
