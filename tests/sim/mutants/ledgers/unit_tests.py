"""The unit tests that catch mutants of ledgers and bookies."""

from __future__ import annotations

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
        "drained-while-resending",
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
        "recovery-not-announced",
        "announced-over-a-change",
    ),
    "tests/ledgers/recovery/test_rules.py": (
        "recovery-starts-above-the-lac",
        "unknown-is-no",
        "first-no-ends-the-ledger",
        "recovery-closes-on-doubt",
        "one-write-set-fenced",
        "recovery-below-the-last-fragment",
        "nothing-above-a-missing-entry",
    ),
    "tests/ledgers/recovery/test_machine.py": (
        "recovery-reads-do-not-fence",
        "recovered-entries-not-rewritten",
        "recovery-closes-before-it-has-rewritten",
        "takeover-takes-limbo-for-no",
        "coverage-one-short",
    ),
    "tests/ledgers/recovery/test_scenarios.py": (
        "lac-reads-do-not-fence",
        "last-entry-of-another-end",
        "recovery-reads-its-own-ensembles",
    ),
    "tests/ledgers/recovery/test_find_end.py": ("rewritten-unannounced",),
    "tests/bookie/engine/test_fence_answers.py": (
        "answers-without-a-fence",
        "recovery-does-not-fence",
        "doubt-at-the-end-is-no",
        "fence-answers-in-another-order",
    ),
    "tests/ledgers/recovery/test_recovery.py": (
        "damage-is-no",
        "recovery-commits-ensembles-early",
        "recovered-entries-carry-the-recoverers-lac",
    ),
    "tests/ledgers/reader/test_core.py": (
        "silence-is-no",
        "limbo-is-no",
        "any-no-is-absence",
        "reader-past-lac",
    ),
    "tests/ledgers/ledger_metadata/test_update.py": (
        "lost-reply-is-no",
        "unknown-change-forgotten",
    ),
    "tests/ledgers/ledger_metadata/test_store.py": ("metadata-without-cas",),
    "tests/bookie/engine/test_bookie.py": (
        "fenced-ledger-takes-adds",
        "recovery-adds-refused",
        "unknown-ledger-not-fenced",
    ),
    "tests/bookie/engine/test_limbo.py": (
        "limbo-not-set",
        "limbo-not-flushed",
        "replaced-bookie-without-its-fence",
        "limbo-not-set-where-fenced",
        "limbo-looked-at-last",
    ),
    "tests/bookie/format/test_control_records.py": (
        "replayed-fence-not-flushed",
        "replayed-limbo-not-flushed",
        "replayed-lac-not-flushed",
        "replayed-removal-not-flushed",
    ),
    "tests/bookie/engine/test_boot.py": (
        "replay-skips-a-record",
        "boot-forgets-recoveries",
        "replaced-bookie-knows-nothing",
    ),
    "tests/bookie/engine/test_recovery_add_dedup.py": (
        "overlap-stored-twice",
        "looked-up-across-a-flush",
        "first-piece-answers-for-all",
    ),
    "tests/bookie/engine/test_adds.py": (
        "acknowledged-before-the-journal",
        "held-add-taken-after-the-fence",
        "rest-behind-the-end-stays",
        "added-amid-a-removal",
    ),
    "tests/bookie/journal/test_damage.py": ("journal-damage-is-its-end",),
    "tests/bookie/identity/test_claim.py": (
        "own-identity-is-believed",
        "remade-directory-is-ready",
    ),
    "tests/bookie/gc/test_core.py": (
        "open-ledger-is-over-replicated",
        "live-log-removed",
    ),
    "tests/bookie/gc/test_collector.py": (
        "removed-before-the-index",
        "indexed-runs-stay",
    ),
    "tests/bookie/storage/test_compaction.py": (
        "compacted-not-synced",
        "compacted-name-not-synced",
    ),
    "tests/bookie/storage/test_flush.py": (
        "cache-freed-before-the-index",
        "journals-stay",
        "entry-log-not-synced",
    ),
    "tests/bookie/repair/test_integrity.py": (
        "repaired-without-a-copy",
        "unanswered-is-no",
    ),
    "tests/bookie/repair/test_scrubber.py": (
        "replaced-behind-the-damage",
        "run-across-the-end-stays-damaged",
        "replacement-not-stored",
    ),
    "tests/sim/disk/test_failed_sync.py": ("replayed-after-a-failed-sync",),
    "tests/bookie/format/test_ledger_state.py": (
        "last-entry-forgotten",
        "lac-forgotten",
        "fence-not-flushed",
        "indexed-limbo-not-repaired",
        "tombstone-not-flushed",
    ),
    "tests/bookie/engine/test_unsynced.py": (
        "fence-answered-early",
        "fence-not-journaled",
    ),
    "tests/ledgers/writer/test_end.py": ("writer-closes-over-closed",),
    "tests/bookie/faults/test_faults.py": (
        "acknowledged-before-the-sync",
        "negatives-do-not-wait-for-the-fence",
        "barrier-does-not-wait",
        "checkpoint-before-the-flush",
        "failed-index-is-absence",
        "flush-says-too-much",
    ),
    "tests/bookie/engine/test_entry_list.py": (
        "list-without-limbo",
        "list-of-the-index-alone",
    ),
    "tests/bookie/gc/test_ledgers.py": (
        "broken-listing-is-whole",
        "instance-ignored",
        "stale-listing",
        "created-during-the-listing",
        "deleted-ledger-takes-adds",
        "cached-runs-stay",
    ),
    "tests/bookie/maintenance/test_disk_watch.py": ("flush-dropped-without-room",),
    "tests/bookie/engine/test_lacs.py": (
        "lac-is-the-last-entry",
        "lac-of-an-add-told-early",
        "explicit-lac-told-early",
    ),
    "tests/bookie/faults/test_damage.py": ("damage-is-absence",),
    "tests/bookie/journal/test_journal.py": (
        "fsync-retried",
        "journal-name-not-synced",
        "replayed-but-not-synced",
    ),
    "tests/bookie/engine/test_opening.py": (
        "replay-flushes-ahead",
        "replayed-removal-keeps-the-cache",
    ),
    "tests/ledgers/reader/test_tail.py": ("readers-lac-goes-back",),
}
"""Names of mutants, by the file of tests that catches them."""
