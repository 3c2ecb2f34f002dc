"""The metrics of a broker, its topics, its subscriptions, and its ledger client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fencelog.api.metrics.table import Metric, sample, samples, times
from fencelog.broker.metrics import BrokerCounts
from fencelog.broker.partition.stats.broker_stats import (
    BrokerStats,
    PartitionStats,
    SubscriptionStats,
)
from fencelog.ledgers.metrics import LedgerCounts

_US_PER_S = 1e6


def broker_metrics(counted: BrokerCounts, *, pending_bytes: int) -> Iterator[Metric]:
    """Yield what a broker has counted."""
    yield sample("fencelog_broker_appended_messages", counted.appended_messages)
    yield sample("fencelog_broker_appended_bytes", counted.appended_bytes)
    yield sample("fencelog_broker_appended_entries", counted.appended_entries)
    stages = [(("queue",), counted.queue_time), (("ledger",), counted.ledger_time)]
    stages.append((("reply",), counted.reply_time))
    yield times("fencelog_broker_append_stage_seconds", stages)
    yield sample("fencelog_broker_pending_bytes", pending_bytes)
    reads = [(("memory",), counted.cached_reads), (("ledger",), counted.ledger_reads)]
    yield samples("fencelog_broker_reads", reads)
    yield times("fencelog_broker_takeover_seconds", [((), counted.takeover_time)])
    yield sample("fencelog_broker_takeovers_failed", counted.takeovers_failed)
    yield sample("fencelog_broker_lost_partitions", counted.lost_partitions)
    yield sample("fencelog_broker_rolls", counted.rolls)
    yield sample("fencelog_broker_replaced_ledgers", counted.replaced_ledgers)
    yield sample("fencelog_broker_fenced_ledgers", counted.fenced_ledgers)
    yield sample("fencelog_broker_ledger_list_conflicts", counted.ledger_list_conflicts)
    yield sample("fencelog_broker_trimmed_ledgers", counted.trimmed_ledgers)
    yield sample("fencelog_broker_delivered_messages", counted.delivered_messages)
    yield sample("fencelog_broker_redelivered_messages", counted.redelivered_messages)
    yield sample("fencelog_broker_dead_lettered_messages", counted.dead_lettered_messages)
    yield sample("fencelog_broker_recorded_events", counted.recorded_events)
    yield sample("fencelog_broker_dropped_events", counted.dropped_events)


def ledger_metrics(counted: LedgerCounts) -> Iterator[Metric]:
    """Yield what a ledger client has counted."""
    yield sample("fencelog_ledger_created", counted.created)
    yield sample("fencelog_ledger_ensemble_changes", counted.ensemble_changes)
    refused = counted.ensemble_changes_refused
    yield sample("fencelog_ledger_ensemble_changes_refused", refused)
    yield sample("fencelog_ledger_fenced_writers", counted.fenced_writers)
    yield sample("fencelog_ledger_recoveries", counted.recoveries)
    yield sample("fencelog_ledger_recoveries_failed", counted.recoveries_failed)
    yield sample("fencelog_ledger_speculative_reads", counted.speculative_reads)


def topic_metrics(measured: BrokerStats, *, now_us: int) -> Iterator[Metric]:
    """Yield the rows of topics and subscriptions."""
    yield sample("fencelog_broker_partitions", measured.partitions)
    topics = measured.topics

    def of_topics(name: str, value: str) -> Metric:
        rows = (((row.topic,), getattr(row, value)) for row in topics)
        return samples(f"fencelog_topic_{name}", (row for row in rows if row[1] is not None))

    yield of_topics("partitions", "partitions")
    yield of_topics("in_bytes_per_second", "in_bytes_per_s")
    yield of_topics("out_bytes_per_second", "out_bytes_per_s")
    yield of_topics("pending_bytes", "pending_bytes")
    yield of_topics("stored_bytes", "stored_bytes")
    yield from _subscription_metrics(measured, now_us)


def partition_metrics(rows: Sequence[PartitionStats]) -> Iterator[Metric]:
    """Yield the rows of partitions; all others have no number."""

    def of_all(name: str, value: str) -> Metric:
        found = ((_place(row), getattr(row, value)) for row in rows)
        shown = (each for each in found if each[1] is not None)
        return samples(f"fencelog_partition_{name}", shown)

    yield of_all("in_bytes_per_second", "in_bytes_per_s")
    yield of_all("out_bytes_per_second", "out_bytes_per_s")
    yield of_all("pending_bytes", "pending_bytes")
    yield of_all("stored_bytes", "stored_bytes")


def _place(row: PartitionStats) -> tuple[str, str]:
    return row.topic, "" if row.partition is None else str(row.partition)


def _subscription_metrics(measured: BrokerStats, now_us: int) -> Iterator[Metric]:
    rows = measured.subscriptions

    def of_all(name: str, value: str) -> Metric:
        found = ((_labels(row), getattr(row, value)) for row in rows)
        return samples(f"fencelog_subscription_{name}", found)

    yield of_all("backlog_messages", "messages")
    yield of_all("leased_messages", "leases")
    yield of_all("dead_letter_messages", "dead_letters")
    named = [row for row in rows if row.lag_bytes is not None]
    redelivering = ((_labels(row), row.redelivering or 0) for row in named)
    yield samples("fencelog_subscription_redelivering_messages", redelivering)
    lag_bytes = ((_labels(row), row.lag_bytes or 0) for row in named)
    yield samples("fencelog_subscription_lag_bytes", lag_bytes)
    lag_s = ((_labels(row), _age_s(row, now_us)) for row in named)
    yield samples("fencelog_subscription_lag_seconds", lag_s)


def _labels(row: SubscriptionStats) -> tuple[str, str]:
    return row.topic, row.subscription


def _age_s(row: SubscriptionStats, now_us: int) -> float:
    return 0.0 if row.oldest_us is None else max(0, now_us - row.oldest_us) / _US_PER_S
