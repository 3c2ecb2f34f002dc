"""Wrong auditors and checkers, and the tests that detect them.

They take what is unknown for missing, accuse or mark by what is old, forget the grace time, or take
a bookie out too early.
"""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

ABSENCES = "fencelog.bookie.auditor.absence_core"
CHECK = "fencelog.bookie.auditor.cluster_check"
DECOMMISSION = "fencelog.bookie.auditor.decommission"
LISTS = "fencelog.bookie.auditor.entry_lists"
LOST = "fencelog.bookie.auditor.lost_bookies"
REGISTERED = "fencelog.bookie.auditor.registered"

_CHECKER = "MAINTENANCE.md: the cluster metadata checker"
_AUDITOR = "MAINTENANCE.md: the auditor"
_REMOVAL = "MAINTENANCE.md: taking a bookie out"

MUTANTS = (
    Mutant(
        "unavailable-taken-for-missing",
        _CHECKER,
        "A bookie that does not answer counts as one without any entry.",
        (
            Edit(
                LISTS,
                "EntryLists._held",
                "return ListedEntries(Answer.UNAVAILABLE)",
                "return ListedEntries(Answer.COMPLETE)",
            ),
        ),
    ),
    Mutant(
        "accused-at-first-sight",
        _CHECKER,
        "Missing copies are a violation at the first look, while an add is in flight.",
        (
            Edit(
                CHECK,
                "ClusterCheck._check",
                "if not self._is_last and (seen.failures or seen.durability.counts):",
                "if not self._is_last and seen.failures:",
            ),
        ),
    ),
    Mutant(
        "grace-ignored",
        _AUDITOR,
        "A bookie is lost as soon as it is absent.",
        (Edit(ABSENCES, "Absences.lost", "now >= since + grace_s", "now >= since"),),
    ),
    Mutant(
        "several-lost-at-once-do-not-wait",
        _AUDITOR,
        "Two bookies that are absent at once are lost without the grace time.",
        (
            Edit(
                ABSENCES,
                "Absences.lost",
                "now >= since + grace_s",
                "now >= since + grace_s or len(self.since) > 1",
            ),
        ),
    ),
    Mutant(
        "cookie-removed-first",
        _REMOVAL,
        "The cookie goes although metadata names the bookie.",
        (
            Edit(DECOMMISSION, "Decommissioner.step", "if not remainder.is_empty:", "if False:"),
            Edit(
                DECOMMISSION,
                "Decommissioner._drain",
                "elif remainder.is_empty:",
                "elif not is_running:",
            ),
        ),
    ),
    Mutant(
        "cookie-of-a-successor-removed",
        _REMOVAL,
        "The cookie of a new bookie with the same name goes.",
        (
            Edit(
                DECOMMISSION,
                "Decommissioner._remove_cookie",
                "if cookie.incarnation == job.incarnation:",
                "if cookie.bookie_id == job.bookie_id:",
            ),
        ),
    ),
    Mutant(
        "decommission-counts-marks",
        _REMOVAL,
        "A ledger without a mark does not count as one that names the bookie.",
        (
            Edit(
                DECOMMISSION,
                "Decommissioner._remainder",
                "if job.bookie_id not in bookies_of(metadata):",
                "if await self._marks.get(metadata.ledger_id) is None:",
            ),
        ),
    ),
    Mutant(
        "limbo-taken-for-missing",
        _CHECKER,
        "What a bookie in limbo does not list counts as missing.",
        (
            Edit(
                LISTS,
                "EntryLists._held",
                "Answer.IN_LIMBO if page.in_limbo else Answer.COMPLETE",
                "Answer.COMPLETE",
            ),
        ),
    ),
    Mutant(
        "accused-without-reading-again",
        _CHECKER,
        "A ledger is accused by the metadata with which its comparison began.",
        (
            Edit(
                CHECK,
                "ClusterCheck._check",
                "latest, _ = await self._ledgers.get_latest(ledger_id)",
                "latest = metadata",
            ),
        ),
    ),
    Mutant(
        "accused-although-marked",
        _CHECKER,
        "A ledger that was marked since the check began is accused all the same.",
        (
            Edit(
                CHECK,
                "ClusterCheck._check",
                "            if await self._is_skipped(ledger_id):\n"
                "                return _Outcome.DONE\n"
                "            try:\n",
                "            try:\n",
            ),
        ),
    ),
    Mutant(
        "decommission-renews-marks",
        _REMOVAL,
        "Each step marks all ledgers again, so that no worker can remove a mark.",
        (
            Edit(
                DECOMMISSION,
                "Decommissioner._mark",
                "if mark is not None and Cause.DECOMMISSION in mark.missing.get(bookie_id, ()):",
                "if mark is not None and mark.ledger_id < 0:",
            ),
        ),
    ),
)

RARE = (
    Mutant(
        # The clocks of an auditor that stood still begin anew: it goes by no old look, and a
        # mark may be late by the time that requests take.
        "marked-although-back",
        _AUDITOR,
        "The registrations are not read again before ledgers are marked.",
        (
            Edit(
                LOST,
                "_still_lost",
                "return candidates - (await read_bookies(store)).registered.keys()",
                "return candidates",
            ),
        ),
    ),
    Mutant(
        # Whoever loses a session does not look for a while either: its clocks begin anew by that.
        "absence-of-another-session",
        _AUDITOR,
        "The clocks go on when the auditor has lost its own session.",
        (
            Edit(
                ABSENCES,
                "Absences.after_look",
                "session_id == self.session_id and ",
                "",
            ),
            Edit(
                "fencelog.bookie.auditor.auditor",
                "Auditor._on_session",
                "if state is not SessionState.CONNECTED:",
                "if state is None:",
            ),
        ),
    ),
    Mutant(
        "newcomer-taken-for-gone",
        _CHECKER,
        "A bookie that joined after the check began counts as one that was given up.",
        (
            Edit(
                CHECK,
                "ClusterCheck._came_back",
                "return not all(map(self._known.is_gone, gone))",
                "return False",
            ),
        ),
    ),
    Mutant(
        "lost-by-a-lagging-server",
        _AUDITOR,
        "Registrations are read from a server that may lag behind.",
        (
            Edit(
                REGISTERED,
                "read_bookies",
                "await CookieRegistry(store).names()",
                'await store.children("/cookies")',
            ),
        ),
    ),
    Mutant(
        "no-last-scan",
        _REMOVAL,
        "The cookie goes by what was counted before the bookie was seen to be stopped.",
        (Edit(DECOMMISSION, "Decommissioner.step", "if not remainder.is_empty:", "if False:"),),
    ),
    Mutant(
        "cookie-of-a-running-bookie-removed",
        _REMOVAL,
        "The cookie goes although the bookie has registered meanwhile.",
        (
            Edit(
                DECOMMISSION,
                "Decommissioner._remove_cookie",
                "if held.registered.is_serving:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        # An auditor has to be suspended between a look and a check of bookies.
        "lost-by-a-look-of-long-ago",
        _AUDITOR,
        "An auditor that was suspended goes by its last look when it goes on.",
        (Edit(ABSENCES, "Absences.lost", "now - self.seen_at > MAX_LOOK_GAP_S", "False"),),
    ),
    Mutant(
        "unreadable-metadata-names-no-bookie",
        _REMOVAL,
        "Metadata that cannot be read does not hold a decommission up.",
        (
            Edit(
                DECOMMISSION,
                "Decommissioner._remainder",
                "unreadable=len(unreadable)",
                "unreadable=0",
            ),
        ),
    ),
)
"""Mutants that no history shows: another part makes up for the mistake (the watch of registrations,
within half a second; a bookie that registers looks for its removal itself), or histories do not
have its occasion (metadata that is not valid; a bookie that joins amid a last look). A test of the
part has to detect them."""

_FOLDER = "tests/bookie/auditor"

TESTS = {
    f"{_FOLDER}/test_absence_core.py": (
        "grace-ignored",
        "several-lost-at-once-do-not-wait",
        "absence-of-another-session",
        "lost-by-a-look-of-long-ago",
    ),
    f"{_FOLDER}/test_auditor.py": ("lost-by-a-lagging-server", "marked-as-far-as-it-went"),
    f"{_FOLDER}/test_cluster_check.py": (
        "unavailable-taken-for-missing",
        "limbo-taken-for-missing",
        "accused-without-reading-again",
        "accused-at-first-sight",
        "accused-although-marked",
        "newcomer-taken-for-gone",
    ),
    f"{_FOLDER}/test_decommission.py": (
        "cookie-removed-first",
        "no-last-scan",
        "cookie-of-a-running-bookie-removed",
        "cookie-of-a-successor-removed",
        "decommission-counts-marks",
        "decommission-renews-marks",
        "unreadable-metadata-names-no-bookie",
        "cancelled-while-it-marks",
        "cancelled-and-looked-for-in-vain",
        "half-cancelled-is-not-cancelled",
    ),
    f"{_FOLDER}/test_lost_bookies.py": ("marked-although-back",),
}
"""Names of mutants, by the file of tests that catches them."""
