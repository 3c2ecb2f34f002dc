"""The unit tests that catch mutants of single parts of brokers."""

from __future__ import annotations

TESTS = {
    "tests/api/http/test_request_spans.py": ("known-head-is-never-sampled",),
    "tests/api/produce/test_known_heads.py": ("known-form-with-any-bytes",),
    "tests/api/server/test_known_heads.py": (
        "known-form-of-the-last-request",
        "known-form-of-any-framing",
        "known-form-with-a-large-body",
        "known-head-after-a-refusal",
        "blank-lines-are-a-head",
        "known-head-with-any-body",
        "known-head-after-the-last-request",
        "known-head-with-an-id",
    ),
    "tests/cli/client/test_client.py": ("misspelt-condition-is-none",),
    "tests/cli/client/test_client_consumer.py": ("consumer-that-sends-nothing",),
    "tests/cli/client/test_client_producer.py": ("count-of-another-batch",),
    "tests/cli/client/test_client_retry.py": ("no-patience-after-a-long-poll",),
    "tests/broker/append/test_admission.py": (
        "debts-are-forgiven",
        "rates-of-the-takeover",
    ),
    "tests/broker/append/test_contents.py": (
        "route-lost-with-the-contents",
        "token-lost-with-the-contents",
    ),
    "tests/broker/append/test_once.py": ("growth-forgets-the-counts-before",),
    "tests/broker/append/test_pending.py": (
        "messages-of-nobody-become-the-producers",
        "one-offset-for-a-group",
        "repeat-is-at-the-entrys-first-offset",
    ),
    "tests/broker/append/test_pipeline.py": (
        "all-groups-in-flight",
        "handed-over-is-a-refusal",
        "numbers-of-what-was-not-taken",
        "unknown-is-sent-again",
    ),
    "tests/broker/append/test_producer_table.py": ("epochs-become-one-range",),
    "tests/broker/append/test_producers.py": ("producers-by-the-takeovers-settings",),
    "tests/broker/append/test_queue.py": ("joins-what-was-given-up",),
    "tests/broker/cluster/test_balance_core.py": ("moved-into-a-circle",),
    "tests/broker/cluster/test_event_recorder.py": (
        "keys-of-brokers-meet",
        "refused-report-is-sent-again",
        "settled-beside-a-refused-report",
        "unknown-since-the-last-attempt",
    ),
    "tests/broker/cluster/test_events_core.py": ("released-though-it-crashed",),
    "tests/broker/commits/test_pending_core.py": (
        "ledger-of-another-partition",
        "messages-as-the-committer-says",
        "producers-behind-the-logs-back",
    ),
    "tests/broker/dispatch/test_ack_ranges.py": ("between-two-ranges-is-acknowledged",),
    "tests/broker/dispatch/test_dispatch.py": (
        "an-earlier-one-after-a-later",
        "overtaken-while-it-backs-off",
    ),
    "tests/broker/dispatch/test_leases.py": (
        "last-of-a-range-is-left",
        "presence-of-the-last-request-alone",
    ),
    "tests/broker/ledger_list/test_ledger_list.py": (
        "a-later-format-is-read",
        "flags-of-a-commit-exchanged",
        "producers-left-out-of-the-list",
    ),
    "tests/broker/log/test_backlog_core.py": ("the-laxer-quota-holds",),
    "tests/broker/log/test_core_adoption.py": ("an-adoption-under-way-is-refused",),
    "tests/broker/log/test_core_ends.py": ("acknowledged-after-the-failure",),
    "tests/broker/log/test_retention.py": ("retention-of-the-takeover",),
    "tests/broker/partition/test_opening.py": ("opening-of-unknown-outcome-is-a-maybe",),
    "tests/broker/partition/test_partition_log.py": (
        "lost-and-in-flight",
        "released-though-it-was-not",
    ),
    "tests/broker/partition/test_partition_slot.py": (
        "given-up-and-not-released",
        "settings-of-before-the-opening",
    ),
    "tests/broker/partition/test_transfer.py": ("partitions-for-who-drains",),
    "tests/broker/partition/test_transfer_races.py": (
        "ended-twice-balances-twice",
        "on-its-way-is-gone",
    ),
    "tests/broker/read/test_direct_readers.py": ("read-after-the-log-is-lost",),
    "tests/broker/read/test_read_fairness.py": ("granted-to-who-has-left",),
    "tests/broker/read/test_reading.py": (
        "not-woken-while-others-are",
        "trimmed-and-still-read",
    ),
    "tests/broker/read/test_rows.py": ("view-is-read-on-by-counting",),
    "tests/broker/read/test_time_index.py": (
        "remembered-time-is-passed-over",
        "time-of-the-oldest-in-memory",
    ),
    "tests/broker/registry/test_namespaces.py": (
        "deleted-before-it-was-read",
        "first-to-leave-ends-the-watch",
        "namespace-of-another-creator",
        "replication-of-the-takeover",
        "settings-do-not-reach-the-open",
        "unreadable-is-gone",
        "unreadable-namespace-has-no-settings",
    ),
    "tests/broker/registry/test_topic_cache.py": (
        "namesake-taken-for-the-topic",
        "settings-go-back",
    ),
    "tests/broker/subscriptions/test_consumers.py": ("gone-after-its-wait",),
    "tests/broker/subscriptions/test_subscriptions.py": ("failures-in-memory-only",),
    "tests/broker/test_policy.py": (
        "fewer-copies-than-a-level-asks",
        "one-of-several-copies-unasked",
    ),
}
"""Names of mutants, by the file of tests that catches them."""
