"""Wrong recent checks, and the tests that detect them.

They mark at first sight, by old metadata or what is unknown, call open ledgers verified, or forget
what changed.
"""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

CORE = "fencelog.bookie.recent.core"
CHECK = "fencelog.bookie.recent.check"

_RECENT = "MAINTENANCE.md: the recent check"

MUTANTS = (
    Mutant(
        "recent-accused-at-first-sight",
        _RECENT,
        "A copy in flight is marked as missing at the first look.",
        (Edit(CORE, "after_look", "look.missing & before.missing", "look.missing"),),
    ),
    Mutant(
        "recent-unknown-taken-for-missing",
        _RECENT,
        "A bookie that could not tell counts as one that lacks the entries.",
        (
            Edit(
                CHECK,
                "RecentCheck._compare",
                "missing = frozenset(durability.missing)",
                "missing = frozenset({*durability.missing, *unknown})",
            ),
        ),
    ),
    Mutant(
        "recent-unknown-taken-for-whole",
        _RECENT,
        "A ledger is verified although one of its bookies could not tell.",
        (
            Edit(
                CORE,
                "Look.is_whole",
                "return not (self.missing or self.unknown)",
                "return not self.missing",
            ),
        ),
    ),
    Mutant(
        "recent-open-ledger-verified",
        _RECENT,
        "An open ledger whose closed fragments are whole is never looked at again.",
        (Edit(CORE, "after_look", "if look.is_whole and look.is_closed:", "if look.is_whole:"),),
    ),
    Mutant(
        "recent-open-fragment-compared",
        _RECENT,
        "Entries of an open fragment, which are in flight, are compared like others.",
        (
            Edit(
                CHECK,
                "RecentCheck._compare",
                "part = closed_part(metadata)",
                "part = metadata if metadata.is_closed else metadata.closed(\n"
                "            last_entry_id=metadata.last_fragment.first_entry_id + 9, length=0)",
            ),
        ),
    ),
    Mutant(
        "recent-changed-ensembles-skipped",
        _RECENT,
        "What a writer left behind in a fragment before the last one is not compared.",
        (
            Edit(
                CHECK,
                "RecentCheck._compare",
                "found = list(shortfalls(part, window.first, window.last, window.held))",
                "last = part.last_fragment.first_entry_id\n"
                "            found = list(shortfalls(part, max(window.first, last), window.last, "
                "window.held))",
            ),
        ),
    ),
    Mutant(
        "recent-marked-is-verified",
        _RECENT,
        "A ledger is never looked at again once it is marked.",
        (
            Edit(
                CORE,
                "after_look",
                "    return tracked, accused\n",
                "    return None if accused else tracked, accused\n",
            ),
        ),
    ),
    Mutant(
        "recent-successor-forgets",
        _RECENT,
        "A new auditor takes the ledgers that were there before it for verified.",
        (
            Edit(
                CORE,
                "RecentLedgers.listed",
                "self._backlog[ledger_id] = None",
                "self.verified.add(ledger_id)",
            ),
        ),
    ),
    Mutant(
        "recent-marks-renewed",
        _RECENT,
        "A mark is renewed at every look, so that no worker can remove it.",
        (
            Edit(
                CHECK,
                "RecentCheck._mark",
                "if Cause.MISSING_COPIES not in marked.get(b, ())",
                "if b",
            ),
        ),
    ),
)

RARE = (
    Mutant(
        "recent-compared-during-a-recovery",
        _RECENT,
        "A ledger is marked during its recovery, when workers remove the mark in vain.",
        (
            Edit(
                CHECK,
                "RecentCheck._compare",
                "if metadata.state is LedgerState.IN_RECOVERY:",
                "if metadata.ledger_id < 0:",
            ),
            Edit(
                CHECK,
                "RecentCheck._mark",
                "latest.state is LedgerState.IN_RECOVERY",
                "latest.ledger_id < 0",
            ),
        ),
    ),
    Mutant(
        "recent-change-during-a-look-lost",
        _RECENT,
        "A change that is seen while the ledger is being looked at is forgotten.",
        (Edit(CORE, "after_look", "if before.is_stale:", "if before.attempts < 0:"),),
    ),
    Mutant(
        "recent-marked-without-reading-again",
        _RECENT,
        "A ledger is marked by the metadata with which its comparison began.",
        (
            Edit(
                CHECK,
                "RecentCheck._mark",
                "if latest.fragments != seen.fragments or latest.state is LedgerState.IN_RECOVERY:",
                "if latest.ledger_id != seen.ledger_id:",
            ),
        ),
    ),
    Mutant(
        "recent-successor-looks-at-all",
        _RECENT,
        "What was verified is not read, so that each new auditor looks at all ledgers again.",
        (
            Edit(
                CHECK,
                "RecentCheck._list_directory",
                "if directory not in self._loaded:",
                "if directory < 0:",
            ),
        ),
    ),
    Mutant(
        "recent-looks-without-a-limit",
        _RECENT,
        "All ledgers that are due are looked at at once.",
        (
            Edit(
                CHECK,
                "RecentCheck._turn",
                "most = max(1, round(self._config.looks_per_s * _TURN_S))",
                "most = 1_000_000",
            ),
        ),
    ),
    Mutant(
        "recent-late-ids-missed",
        _RECENT,
        "Only the newest directory of ledgers is ever listed.",
        (
            Edit(
                CHECK,
                "RecentCheck._list",
                "if not self._recent.has_backlog:",
                "if self._recent.has_backlog:",
            ),
        ),
    ),
)
"""Mutants that no history shows: they cost looks alone (``looks-at-all``, ``without-a-limit``) or a
mark that a worker removes or that has a recovery finished (``without-reading-again``,
``during-a-recovery``), need more ledgers than a history has (``late-ids``), or a change in the
middle of a last look (``during-a-look``). A test of the part has to detect them."""

TESTS = {
    "tests/bookie/recent/test_core.py": (
        "recent-accused-at-first-sight",
        "recent-unknown-taken-for-whole",
        "recent-open-ledger-verified",
        "recent-change-during-a-look-lost",
        "recent-marked-is-verified",
        "recent-successor-forgets",
    ),
    "tests/bookie/recent/test_check.py": (
        "recent-unknown-taken-for-missing",
        "recent-changed-ensembles-skipped",
        "recent-marked-without-reading-again",
        "recent-open-fragment-compared",
        "recent-compared-during-a-recovery",
        "recent-marks-renewed",
        "recent-successor-looks-at-all",
        "recent-looks-without-a-limit",
        "recent-late-ids-missed",
    ),
}
