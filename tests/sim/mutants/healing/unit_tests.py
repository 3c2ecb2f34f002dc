"""The unit tests that catch mutants of self-healing."""

from __future__ import annotations

TESTS = {
    "tests/bookie/engine/test_entry_list.py": ("listed-before-durable",),
    "tests/bookie/repair/test_copier.py": ("named-before-durable",),
    "tests/bookie/repair/test_parts.py": ("rows-copied-without-a-digest",),
    "tests/bookie/replication/test_core.py": (
        "open-last-fragment-copied",
        "changed-during-a-recovery",
        "unavailable-is-missing",
        "first-fragment-alone",
        "recovering-is-repaired",
        "cut-off-is-back",
    ),
    "tests/bookie/replication/test_damaged_copies.py": (
        "copied-without-a-digest",
        "unread-is-damaged",
    ),
    "tests/bookie/replication/test_repair.py": (
        "named-before-copied",
        "not-compared-after-copying",
        "any-incarnation-of-the-target",
        "copied-by-the-old-ensemble",
        "empty-fragments-forgotten",
        "replaced-by-a-member",
        "marked-ledgers-collected",
        "marked-is-no-target",
        "repaired-by-a-lagging-server",
        "replaced-without-a-mark",
        "unproven-target-forgotten",
    ),
    "tests/bookie/gc/test_ledgers.py": ("collected-when-just-named",),
    "tests/bookie/replication/test_worker.py": (
        "metadata-not-read-again",
        "old-fragments-keep-a-ledger-open",
        "ensemble-change-undone",
        "unmarked-before-repaired",
        "writer-ended-at-once",
        "writer-ended-for-nothing",
        "lock-of-an-ended-session",
    ),
    "tests/bookie/replication/test_moves.py": (
        "moved-before-copied",
        "moved-to-a-member",
        "move-outlives-lost-copies",
        "dropped-move-stays-marked",
        "moves-without-a-rate",
    ),
    "tests/bookie/balance/test_core.py": (
        "moves-overshoot",
        "moves-worsen-the-spread",
        "moves-without-a-bound",
    ),
    "tests/bookie/balance/test_balancer.py": (
        "moved-although-copies-are-lacking",
        "moved-while-a-bookie-is-away",
    ),
    "tests/bookie/replication/test_store.py": ("unmarked-at-any-version",),
    "tests/bookie/replication/test_locks.py": ("lock-kept-for-ever", "lock-of-another-taken"),
    "tests/ledgers/reader/test_reader.py": ("denied-by-outdated-metadata",),
    "tests/ledgers/ledger_metadata/test_transitions.py": ("any-end-of-a-fragment",),
    "tests/bookie/engine/test_boot_recoveries.py": (
        "boot-forgets-marks",
        "boot-fences-open-ledgers",
    ),
}
