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

OPTIONS = ("-q", "-x", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Of pytest, which warns of plugins that the mutant's modules have imported already."""

TESTS = {
    "tests/ledgers/writer/test_core.py": (
        "acknowledged-below-qa",
        "lac-over-a-hole",
        "acks-of-replaced-bookies-kept",
        "acknowledged-while-changing",
        "late-replies-counted",
        "not-drained-after-a-change",
        "fragment-at-lac",
        "write-set-off-by-one",
        "timeout-is-an-ack",
    ),
    "tests/ledgers/writer/test_writer.py": ("close-does-not-wait",),
    "tests/ledgers/writer/test_explicit_lac.py": ("explicit-lac-too-high",),
    "tests/ledgers/placement/test_placement.py": ("bookie-twice-in-an-ensemble",),
    "tests/ledgers/test_client.py": ("deleted-without-a-fence",),
    "tests/ledgers/ledger_metadata/test_ids.py": ("id-given-twice",),
    "tests/ledgers/format/test_run.py": ("damage-is-passed-on",),
    "tests/ledgers/ledger_metadata/test_transitions.py": (
        "recoverer-closes-over-closed",
        "recovered-ensembles-forgotten",
        "ensemble-change-in-recovery",
    ),
    "tests/ledgers/recovery/test_rules.py": (
        "recovery-starts-above-the-lac",
        "unknown-is-no",
        "first-no-ends-the-ledger",
        "recovery-closes-on-doubt",
    ),
    "tests/ledgers/recovery/test_machine.py": (
        "recovered-entries-not-rewritten",
        "recovery-reads-do-not-fence",
        "recovery-closes-before-it-has-rewritten",
    ),
    "tests/ledgers/recovery/test_recovery.py": (
        "lac-reads-do-not-fence",
        "recovery-does-not-fence",
    ),
    "tests/ledgers/reader/test_core.py": (
        "any-no-is-absence",
        "reader-past-lac",
        "limbo-is-no",
        "silence-is-no",
    ),
    "tests/ledgers/ledger_metadata/test_update.py": ("lost-reply-is-no",),
    "tests/ledgers/ledger_metadata/test_store.py": ("metadata-without-cas",),
    "tests/bookie/engine/test_bookie.py": (
        "fenced-ledger-takes-adds",
        "recovery-adds-refused",
    ),
    "tests/bookie/engine/test_limbo.py": ("limbo-not-set", "limbo-not-flushed"),
    "tests/bookie/format/test_control_records.py": (
        "replayed-fence-not-flushed",
        "replayed-limbo-not-flushed",
        "replayed-lac-not-flushed",
    ),
    "tests/bookie/engine/test_boot.py": ("boot-forgets-recoveries",),
    "tests/bookie/engine/test_recovery_add_dedup.py": ("overlap-stored-twice",),
    "tests/bookie/engine/test_adds.py": ("acknowledged-before-the-journal",),
    "tests/bookie/journal/test_damage.py": ("journal-damage-is-its-end",),
    "tests/bookie/identity/test_claim.py": ("own-identity-is-believed",),
    "tests/bookie/gc/test_core.py": ("live-log-removed", "open-ledger-is-over-replicated"),
    "tests/bookie/gc/test_collector.py": ("removed-before-the-index",),
    "tests/bookie/storage/test_compaction.py": ("compacted-not-synced",),
    "tests/bookie/repair/test_integrity.py": ("repaired-without-a-copy", "unanswered-is-no"),
    "tests/bookie/repair/test_scrubber.py": ("replaced-behind-the-damage",),
    "tests/broker/registry/test_topics.py": ("opened-on-the-word-of-the-list",),
    "tests/broker/log/test_core.py": (
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
    "tests/broker/ledger_list/test_state_log.py": ("cursor-acknowledged-early",),
    "tests/broker/subscriptions/test_subscriptions.py": (
        "seek-keeps-old-ids",
        "cumulative-ack-from-before-a-seek",
    ),
    "tests/broker/dispatch/test_dispatch.py": ("key-shared-two-owners", "failover-to-two"),
    "tests/broker/subscriptions/test_pull.py": ("a-rewound-pull-goes-on",),
    "tests/api/routing/test_forward.py": ("lost-answer-is-a-refusal", "passed-on-twice"),
    "tests/api/routing/test_moving_partitions.py": ("asked-again-of-the-next-owner",),
    "tests/sim/disk/test_failed_sync.py": ("replayed-after-a-failed-sync",),
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
    nothing was collected, catches nothing."""
    command = (sys.executable, "-m", "tests.sim.mutants.unit_layer", name)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=SECONDS, check=False)
    return done.returncode == CAUGHT


def main(name: str) -> int:
    (mutant,) = (mutant for mutant in (*MUTANTS, *UNIT_MUTANTS) if mutant.name == name)
    (path,) = (path for path, names in TESTS.items() if name in names)
    with applied(mutant):
        code = pytest.main([*OPTIONS, str(ROOT / path)])
    return CAUGHT if code == pytest.ExitCode.TESTS_FAILED else int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
