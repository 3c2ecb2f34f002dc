"""Mutants of the simulator, by the test of the part that they break.

    python -m tests.sim.mutants.unit_layer NAME        # run its tests over the mutant of that name

``TESTS`` says which file is known to fail. It runs in a process of its own over the mutant.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.sim.mutants.catalogue import MUTANTS, UNIT_MUTANTS
from tests.sim.mutants.mutation import Mutant, applied

ROOT = Path(__file__).parents[3]
SECONDS = 300.0

CAUGHT = 64
"""The exit code where tests failed. That of an interpreter that fails is another one."""

OPTIONS = (
    *("-q", "-x", "-p", "no:cacheprovider", "-p", "no:unraisableexception"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
"""Options of pytest, which warns of plugins that the mutant's modules have imported already, and
would end with an error of its own for what a failed test leaves behind."""

TESTS = {
    "tests/ledgers/writer/test_core.py": (
        "acknowledged-below-qa",
        "lac-over-a-hole",
        "write-set-off-by-one",
        "timeout-is-an-ack",
        "acks-of-replaced-bookies-kept",
        "not-drained-after-a-change",
        "acknowledged-while-changing",
        "late-replies-counted",
        "fragment-at-lac",
    ),
    "tests/ledgers/writer/test_writer.py": (
        "entries-carry-a-lac-too-high",
        "close-does-not-wait",
    ),
    "tests/ledgers/writer/test_explicit_lac.py": ("explicit-lac-too-high",),
    "tests/ledgers/placement/test_placement.py": ("bookie-twice-in-an-ensemble",),
    "tests/ledgers/test_client.py": ("deleted-without-a-fence",),
    "tests/ledgers/ledger_metadata/test_ids.py": ("id-given-twice",),
    "tests/ledgers/format/test_run.py": ("damage-is-passed-on",),
    "tests/ledgers/ledger_metadata/test_transitions.py": (
        "ensemble-change-in-recovery",
        "recoverer-closes-over-closed",
        "recovered-ensembles-forgotten",
    ),
    "tests/ledgers/recovery/test_rules.py": (
        "recovery-starts-above-the-lac",
        "unknown-is-no",
        "first-no-ends-the-ledger",
        "recovery-closes-on-doubt",
    ),
    "tests/ledgers/recovery/test_machine.py": (
        "recovery-reads-do-not-fence",
        "recovered-entries-not-rewritten",
        "recovery-closes-before-it-has-rewritten",
        "takeover-takes-limbo-for-no",
    ),
    "tests/ledgers/recovery/test_scenarios.py": ("last-entry-of-another-end",),
    "tests/ledgers/recovery/test_recovery.py": (
        "lac-reads-do-not-fence",
        "recovery-does-not-fence",
    ),
    "tests/ledgers/reader/test_core.py": (
        "silence-is-no",
        "limbo-is-no",
        "any-no-is-absence",
        "reader-past-lac",
    ),
    "tests/ledgers/ledger_metadata/test_update.py": ("lost-reply-is-no",),
    "tests/ledgers/ledger_metadata/test_store.py": ("metadata-without-cas",),
    "tests/bookie/engine/test_bookie.py": (
        "fenced-ledger-takes-adds",
        "recovery-adds-refused",
    ),
    "tests/bookie/engine/test_limbo.py": (
        "limbo-not-set",
        "limbo-not-flushed",
    ),
    "tests/bookie/format/test_control_records.py": (
        "replayed-fence-not-flushed",
        "replayed-limbo-not-flushed",
        "replayed-lac-not-flushed",
    ),
    "tests/bookie/engine/test_boot.py": (
        "replay-skips-a-record",
        "boot-forgets-recoveries",
    ),
    "tests/bookie/engine/test_recovery_add_dedup.py": ("overlap-stored-twice",),
    "tests/bookie/engine/test_adds.py": (
        "acknowledged-before-the-journal",
        "held-add-taken-after-the-fence",
        "rest-behind-the-end-stays",
    ),
    "tests/bookie/journal/test_damage.py": ("journal-damage-is-its-end",),
    "tests/bookie/identity/test_claim.py": ("own-identity-is-believed",),
    "tests/bookie/gc/test_core.py": (
        "open-ledger-is-over-replicated",
        "live-log-removed",
    ),
    "tests/bookie/gc/test_collector.py": ("removed-before-the-index",),
    "tests/bookie/storage/test_compaction.py": ("compacted-not-synced",),
    "tests/bookie/storage/test_flush.py": ("cache-freed-before-the-index",),
    "tests/bookie/repair/test_integrity.py": (
        "repaired-without-a-copy",
        "unanswered-is-no",
    ),
    "tests/bookie/repair/test_scrubber.py": (
        "replaced-behind-the-damage",
        "run-across-the-end-stays-damaged",
    ),
    "tests/broker/registry/test_topics.py": (
        "opened-without-a-topic",
        "deleted-unmarked",
        "opened-on-the-word-of-the-list",
    ),
    "tests/broker/log/test_core.py": (
        "second-roll-early",
        "fenced-is-a-refusal",
        "serves-while-opening",
        "roll-forgets-a-failure",
        "roll-seals-nothing",
        "held-after-the-roll",
        "a-lost-log-says-no",
        "terminated-and-open",
    ),
    "tests/broker/log/test_core_ends.py": (
        "repaired-into-no-list",
        "refuses-after-the-repair",
        "a-deadline-says-no",
    ),
    "tests/broker/log/test_retention_core.py": ("retention-past-a-cursor",),
    "tests/broker/ledger_list/test_state_log.py": (
        "state-log-stops-for-good",
        "state-ledger-deleted-early",
        "confirmed-before-the-state-ledger-is-listed",
        "cursor-acknowledged-early",
        "snapshot-before-the-ledger",
    ),
    "tests/broker/subscriptions/test_subscriptions.py": (
        "seek-keeps-old-ids",
        "confirmed-past-a-seek",
        "retention-by-acks-in-memory",
        "cumulative-ack-from-before-a-seek",
        "a-cursor-in-memory-begins-at-the-tail",
        "a-cursor-in-memory-holds",
        "later-partitions-from-their-end",
    ),
    "tests/broker/dispatch/test_dispatch.py": (
        "key-shared-two-owners",
        "lease-given-twice",
        "expired-lease-forgotten",
        "failover-to-two",
        "refused-out-of-order",
        "buried-a-delivery-early",
    ),
    "tests/broker/subscriptions/test_pull.py": (
        "a-pull-that-was-given-up-keeps-its-messages",
        "a-seek-goes-on-where-it-was",
        "buried-though-it-failed",
        "buried-before-it-is-there",
        "replayed-for-everybody",
        "a-rewound-pull-goes-on",
        "replayed-for-nobody",
    ),
    "tests/api/routing/test_forward.py": (
        "lost-answer-is-a-refusal",
        "broken-is-unreachable",
        "body-lost-is-not-owner",
        "passed-on-twice",
        "sent-again-after-a-loss",
        "sent-counts-as-unsent",
    ),
    "tests/api/routing/test_moving_partitions.py": ("asked-again-of-the-next-owner",),
    "tests/sim/disk/test_failed_sync.py": ("replayed-after-a-failed-sync",),
    "tests/broker/partition/test_owner_races.py": (
        "one-ledger-fenced",
        "growth-reuses-a-list",
    ),
    "tests/broker/partition/test_opening.py": ("owner-by-lock-alone",),
    "tests/broker/ledger_list/test_ledger_list.py": (
        "served-before-the-cas",
        "two-takeovers-of-one-version",
        "a-lost-log-goes-on",
        "conflict-not-read-back",
        "foreign-change-taken-for-own",
        "unlisted-ledger-deleted-unread",
        "base-of-an-unsealed-ledger",
        "terminated-until-a-takeover",
    ),
    "tests/broker/partition/test_takeover.py": (
        "empty-because-not-found",
        "unrecovered-ledger-ends-as-read",
    ),
    "tests/broker/log/test_roll.py": (
        "used-before-it-is-listed",
        "ranges-of-a-ledger-up-to-the-tail",
    ),
    "tests/broker/log/test_repair.py": (
        "resent-without-learning-the-end",
        "acknowledged-above-recovery",
        "failed-ledger-ends-at-its-acks",
    ),
    "tests/broker/partition/test_ownership_check.py": (
        "producers-not-restored",
        "refused-by-who-was-replaced",
        "looked-at-a-server-that-lags",
    ),
    "tests/broker/append/test_conditional_appends.py": (
        "duplicate-answered-early",
        "settled-when-sent",
        "offset-judged-by-the-tail",
    ),
    "tests/broker/append/test_producer_table.py": (
        "former-epoch-accepted",
        "gap-accepted",
    ),
    "tests/broker/append/test_once.py": (
        "key-forgotten-at-a-takeover",
        "claim-confirmed-early",
        "former-partitions-not-asked",
        "former-routes-accepted",
    ),
    "tests/broker/ledger_list/test_state_core.py": ("snapshot-incomplete",),
    "tests/broker/partition/test_transfer.py": ("state-ledger-not-fenced",),
    "tests/broker/dispatch/test_cursor_core.py": (
        "snapshot-without-holes",
        "generations-of-owners-meet",
    ),
    "tests/broker/log/test_retention.py": (
        "trim-deletes-before-the-cas",
        "all-is-too-old",
        "trim-past-a-cursor",
        "trim-kept-in-memory",
        "retention-before-the-view",
    ),
    "tests/broker/background/test_cursor_reconciler.py": (
        "missing-cursor-never-opened",
        "dropped-as-a-lagging-server-says",
        "dropped-from-memory",
        "cursors-completed-from-a-stale-registry",
        "cursors-never-dropped",
    ),
    "tests/broker/log/test_terminate.py": ("terminated-unsealed",),
    "tests/broker/background/test_sweep.py": (
        "sweep-takes-the-present-epoch",
        "sweep-skips-deleted-topics",
        "subscriptions-outlive-the-topic",
    ),
    "tests/broker/registry/test_subscription_registry.py": ("delete-of-unknown-outcome-is-done",),
    "tests/broker/compaction/test_compaction.py": (
        "view-without-the-former",
        "view-with-old-and-new",
        "removal-not-shown",
        "removal-stays-for-good",
        "removal-removes-nothing",
        "view-lost-at-a-takeover",
        "tail-goes-back-at-a-roll",
    ),
    "tests/broker/append/test_producer_access.py": (
        "claims-forgotten-by-snapshots",
        "claim-without-settling",
        "epoch-given-twice",
        "former-holder-comes-back",
        "token-not-compared",
    ),
    "tests/broker/read/test_time_index.py": (
        "time-of-the-message-before",
        "time-in-the-next-ledger",
    ),
    "tests/broker/read/test_reading.py": ("ranges-beyond-what-is-confirmed",),
    "tests/api/routing/test_link_core.py": ("answer-of-another-request",),
    "tests/api/subscriptions/test_exclusive_lease.py": (
        "held-for-less-than-the-leases",
        "arbiter-not-asked",
        "refused-after-it-was-taken",
        "arbiter-says-yes",
        "lost-acknowledgement-is-a-refusal",
        "silent-owner-is-passed-over",
    ),
    "tests/bookie/format/test_ledger_state.py": (
        "last-entry-forgotten",
        "lac-forgotten",
        "fence-not-flushed",
    ),
    "tests/bookie/engine/test_unsynced.py": (
        "fence-answered-early",
        "fence-not-journaled",
    ),
    "tests/broker/append/test_pipeline.py": (
        "publish-time-goes-back",
        "no-hold-at-the-roll",
    ),
    "tests/broker/background/test_missing_cursors.py": ("trimmed-before-cursors-are-complete",),
    "tests/broker/append/test_admission.py": (
        "evicted-to-the-tail",
        "let-in-over-the-quota",
        "written-while-held",
    ),
    "tests/broker/partition/test_incarnations.py": (
        "versions-begin-anew",
        "update-of-whatever-is-there",
    ),
    "tests/api/subscriptions/test_http.py": (
        "confirmed-without-cursors",
        "partly-done-is-refused",
    ),
    "tests/broker/subscriptions/test_owners.py": ("cursor-of-another-creator",),
    "tests/api/subscriptions/test_dead_letters.py": ("delivered-before-its-time",),
    "tests/broker/commits/test_commits.py": (
        "batch-committed-again",
        "abort-without-the-marker",
        "claim-of-a-later-owner-ignored",
        "segments-behind-the-pipelines-back",
        "appends-not-held-for-a-commit",
        "publish-time-of-the-writer",
        "tail-cache-across-a-commit",
        "commits-forgotten-at-a-takeover",
        "ledger-left-out-by-a-commit",
        "commit-at-the-old-tail-only",
        "abort-by-what-is-remembered",
    ),
    "tests/api/produce/test_access.py": ("terms-stay-behind",),
}
"""Names of mutants, by the file of tests that catches them."""


def judge(jobs: int) -> Iterator[tuple[Mutant, bool]]:
    """Each mutant of ``TESTS``, and whether its tests fail over it."""
    by_name = {mutant.name: mutant for mutant in (*MUTANTS, *UNIT_MUTANTS)}
    names = [name for some in TESTS.values() for name in some]
    with ThreadPoolExecutor(jobs) as pool:
        for name, caught in zip(names, pool.map(fails, names), strict=True):
            yield by_name[name], caught


def fails(name: str) -> bool:
    """Tell whether the tests of a mutant fail over it. A run that ends otherwise, say because
    nothing was collected, or does not end, catches nothing."""
    command = (sys.executable, "-m", "tests.sim.mutants.unit_layer", name)
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == CAUGHT


def main(name: str) -> int:
    (mutant,) = (mutant for mutant in (*MUTANTS, *UNIT_MUTANTS) if mutant.name == name)
    (path,) = (path for path, names in TESTS.items() if name in names)
    with applied(mutant):
        code = pytest.main([*OPTIONS, str(ROOT / path)])
    return CAUGHT if code == pytest.ExitCode.TESTS_FAILED else int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
