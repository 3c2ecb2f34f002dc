"""Every metric by name: its kind, labels and meaning, and its samples in Prometheus' text format.
``METRICS.md`` shows this table.

Units are the last word of a name; a counter is exposed with ``_total`` behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import cache, lru_cache
from typing import NamedTuple

from fencelog.ledgers.metrics import Histogram


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Row(NamedTuple):
    """One metric. ``labels``: their names, with blanks between them."""

    kind: MetricKind
    labels: str
    meaning: str


_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

HTTP = {
    "fencelog_http_append_requests": Row(_C, "", "Append requests answered with 201"),
    "fencelog_http_appended_messages": Row(_C, "", "Messages in them"),
    "fencelog_http_appended_bytes": Row(_C, "", "Bytes of their bodies"),
    "fencelog_http_read_requests": Row(_C, "", "Read answers and pieces of streams"),
    "fencelog_http_read_messages": Row(_C, "", "Messages in them"),
    "fencelog_http_read_bytes": Row(_C, "", "Bytes of their bodies"),
    "fencelog_http_problems": Row(_C, "code", "Requests answered with a problem"),
    "fencelog_http_streams": Row(_G, "", "Event streams open"),
    "fencelog_http_append_seconds": Row(
        _H, "", "From request to durable, for requests with success"
    ),
}
"""The metrics of what clients of this process see."""

BROKER = {
    "fencelog_broker_appended_messages": Row(
        _C, "", "Messages acknowledged in partitions owned here"
    ),
    "fencelog_broker_appended_bytes": Row(_C, "", "Bytes of their record batches"),
    "fencelog_broker_appended_entries": Row(_C, "", "Entries of ledgers that hold them"),
    "fencelog_broker_append_stage_seconds": Row(
        _H,
        "stage",
        "Of one entry: `queue`, from its first message until it is handed to its ledger; `ledger`, "
        "until enough bookies have it. Of one request: `reply`, from there until its answer is "
        "given to the network. The rest of `fencelog_http_append_seconds` is receiving",
    ),
    "fencelog_broker_pending_bytes": Row(_G, "", "Appends that are not acknowledged yet"),
    "fencelog_broker_reads": Row(
        _C, "from", "Reads of partitions: `memory`, the newest batches; `ledger`, all others"
    ),
    "fencelog_broker_partitions": Row(_G, "", "Partitions open here"),
    "fencelog_broker_takeover_seconds": Row(
        _H, "", "Takeovers that succeeded, from the claim of the ownership to the first request"
    ),
    "fencelog_broker_takeovers_failed": Row(_C, "", "Takeovers that ended with an error"),
    "fencelog_broker_lost_partitions": Row(
        _C, "", "Partitions that ended here although nobody asked for it"
    ),
    "fencelog_broker_rolls": Row(_C, "", "Ledgers begun since the one before was full or old"),
    "fencelog_broker_replaced_ledgers": Row(
        _C, "", "Ledgers begun since the one before had failed"
    ),
    "fencelog_broker_fenced_ledgers": Row(
        _C, "", "Ledgers that another broker fenced while they were written here"
    ),
    "fencelog_broker_ledger_list_conflicts": Row(
        _C, "", "Changes of a ledger list refused since another broker had changed it (CAS)"
    ),
    "fencelog_broker_trimmed_ledgers": Row(_C, "", "Ledgers that retention has deleted"),
    "fencelog_broker_delivered_messages": Row(
        _C, "", "Messages delivered to consumers of subscriptions"
    ),
    "fencelog_broker_redelivered_messages": Row(_C, "", "Of these, delivered before"),
    "fencelog_broker_dead_lettered_messages": Row(
        _C, "", "Messages forwarded to a dead letter topic"
    ),
    "fencelog_broker_recorded_events": Row(_C, "", "Events of the timeline that are durable"),
    "fencelog_broker_dropped_events": Row(
        _C, "", "Events of the timeline that were dropped, or of unknown outcome"
    ),
}
"""The metrics of one broker, over all its partitions."""

TOPICS = {
    "fencelog_topic_partitions": Row(_G, "topic", "Its partitions open here"),
    "fencelog_topic_in_bytes_per_second": Row(_G, "topic", "Written, over some 15 s"),
    "fencelog_topic_out_bytes_per_second": Row(_G, "topic", "Read, over some 15 s"),
    "fencelog_topic_pending_bytes": Row(_G, "topic", "Appends not acknowledged yet"),
    "fencelog_topic_stored_bytes": Row(_G, "topic", "Payload in its ledgers; not for `_other`"),
    "fencelog_subscription_backlog_messages": Row(
        _G, "topic subscription", "Messages not acknowledged: the lag in messages"
    ),
    "fencelog_subscription_leased_messages": Row(
        _G, "topic subscription", "Of these, with consumers"
    ),
    "fencelog_subscription_dead_letter_messages": Row(
        _G, "topic subscription", "Of these, on the way to the dead letter topic"
    ),
    "fencelog_subscription_redelivering_messages": Row(
        _G,
        "topic subscription",
        "Of these, refused before, or not acknowledged in time; not for `_other`",
    ),
    "fencelog_subscription_lag_bytes": Row(
        _G, "topic subscription", "Bytes from the first of them on, estimated; not for `_other`"
    ),
    "fencelog_subscription_lag_seconds": Row(
        _G,
        "topic subscription",
        "Age of the first of them: exact while it is in memory, else estimated from the times of "
        "its ledger; 0: there is none. Not for `_other`",
    ),
}
"""The rows of the busiest topics and longest backlogs; ``_other`` is the sum of the rest."""

PARTITIONS = {
    "fencelog_partition_in_bytes_per_second": Row(_G, "topic partition", "Written, over some 15 s"),
    "fencelog_partition_out_bytes_per_second": Row(_G, "topic partition", "Read, over some 15 s"),
    "fencelog_partition_pending_bytes": Row(_G, "topic partition", "Appends not acknowledged yet"),
    "fencelog_partition_stored_bytes": Row(
        _G, "topic partition", "Payload in its ledgers; not for `_other`"
    ),
}
"""The rows of the busiest partitions, where they are asked for; ``_other`` is the sum of the
rest."""

LEDGERS = {
    "fencelog_ledger_created": Row(_C, "", "Ledgers begun"),
    "fencelog_ledger_ensemble_changes": Row(
        _C, "", "Bookies replaced in the ensemble of a ledger that is written"
    ),
    "fencelog_ledger_ensemble_changes_refused": Row(
        _C, "", "Attempts that found no other bookie, or no metadata store; repeated each second"
    ),
    "fencelog_ledger_fenced_writers": Row(
        _C, "", "Writers that were fenced, of message ledgers and state logs"
    ),
    "fencelog_ledger_recoveries": Row(_C, "", "Ledgers fenced and closed for another writer"),
    "fencelog_ledger_recoveries_failed": Row(
        _C, "", "Attempts that ended with an error, such as too few bookies that answer"
    ),
    "fencelog_ledger_speculative_reads": Row(
        _C, "", "Reads sent to another bookie since the first had not answered in time"
    ),
}
"""The metrics of the ledger client of a broker."""

BOOKIE = {
    "fencelog_bookie_read_only": Row(_G, "bookie", "1: it takes no new entries"),
    "fencelog_bookie_ledgers": Row(_G, "bookie", "Ledgers of which it holds entries"),
    "fencelog_bookie_limbo_ledgers": Row(_G, "bookie", "Ledgers of which it may have lost entries"),
    "fencelog_bookie_disk_bytes": Row(
        _G, "bookie directory", "Size of the disk of a directory with journal or ledgers"
    ),
    "fencelog_bookie_disk_free_bytes": Row(_G, "bookie directory", "Free on that disk"),
    "fencelog_bookie_journal_records": Row(_C, "bookie", "Records made durable: runs and fences"),
    "fencelog_bookie_journal_bytes": Row(_C, "bookie", "Bytes of them"),
    "fencelog_bookie_journal_waiting_bytes": Row(
        _G, "bookie", "Records that no write has begun for"
    ),
    "fencelog_bookie_journal_queue_seconds": Row(
        _H, "bookie", "From a record until its group is handed to the disk"
    ),
    "fencelog_bookie_journal_sync_seconds": Row(
        _H, "bookie", "From there until the group is written and synced"
    ),
    "fencelog_bookie_write_cache_bytes": Row(_G, "bookie", "Runs that wait for a flush"),
    "fencelog_bookie_flush_seconds": Row(_H, "bookie", "Flushes of the write cache"),
    "fencelog_bookie_entry_log_bytes": Row(_C, "bookie", "Bytes that flushes wrote"),
    "fencelog_bookie_reads": Row(
        _C,
        "bookie from",
        "Reads from `write_cache`, `read_cache` or `disk`, and by clients from the files (`local`)",
    ),
    "fencelog_bookie_garbage_passes": Row(_C, "bookie", "Passes of the garbage collector"),
    "fencelog_bookie_removed_ledgers": Row(_C, "bookie", "Ledgers that they removed"),
    "fencelog_bookie_removed_entry_logs": Row(_C, "bookie", "Entry logs that they removed"),
    "fencelog_bookie_compacted_bytes": Row(_C, "bookie", "Bytes that compaction copied"),
    "fencelog_bookie_scrub_passes": Row(_C, "bookie", "Complete passes of the scrubber"),
    "fencelog_bookie_scrubbed_bytes": Row(_C, "bookie", "Bytes that it read and checked"),
    "fencelog_bookie_damaged_runs": Row(_G, "bookie", "Runs found damaged, and not replaced yet"),
    "fencelog_bookie_damaged_runs_found": Row(_C, "bookie", "Runs found damaged"),
    "fencelog_bookie_repaired_ledgers": Row(_C, "bookie", "Ledgers that left limbo"),
    "fencelog_bookie_copied_bytes": Row(_C, "bookie", "Copied from other bookies for that"),
}
"""The metrics of one bookie."""

HEALING = {
    "fencelog_autorecovery_enabled": Row(_G, "", "1: self-healing is on"),
    "fencelog_auditor": Row(_G, "process", "1: this process is it"),
    "fencelog_underreplicated_ledgers": Row(_G, "", "Ledgers that are marked as lacking copies"),
    "fencelog_underreplicated_oldest_seconds": Row(
        _G, "", "The time since when the oldest of them is marked"
    ),
    "fencelog_recent_check_missing_copies_ledgers": Row(
        _G, "", "Ledgers that lacked copies when the auditor last looked at them"
    ),
    "fencelog_recent_check_waiting_ledgers": Row(_G, "", "Ledgers not looked at yet"),
    "fencelog_recent_check_open_ledgers": Row(
        _G, "", "Ledgers that are open, and looked at when they change"
    ),
    "fencelog_recent_check_behind_seconds": Row(
        _G, "", "The time since when the next look has been due"
    ),
    "fencelog_recent_check_looks": Row(_C, "", "Looks at a ledger"),
    "fencelog_recent_check_marked": Row(_C, "", "Marks of a ledger"),
    "fencelog_rereplicated_ledgers": Row(_C, "process", "Ledgers repaired"),
    "fencelog_rereplicated_bytes": Row(_C, "process", "Bytes copied to other bookies"),
    "fencelog_rereplication_bytes_per_second": Row(_G, "process", "Over the last minute"),
    "fencelog_rereplication_waiting_ledgers": Row(_G, "process", "Cannot be repaired now"),
    "fencelog_rereplication_lost_ledgers": Row(_G, "process", "Entries without a copy"),
    "fencelog_balance_ledgers_to_move": Row(
        _G, "", "Ledgers that are marked for a better balance alone"
    ),
    "fencelog_balance_distance_ratio": Row(
        _G, "", "How much fuller the fullest bookie is than the emptiest, as a share of the mean"
    ),
    "fencelog_balance_ledger_bytes": Row(
        _G, "bookie", "Bytes of closed ledgers by metadata, when it was last read for the balance"
    ),
    "fencelog_balance_marked_ledgers": Row(_C, "", "Ledgers chosen to be moved"),
    "fencelog_balance_moved_fragments": Row(_C, "process", "Copies of a fragment that were moved"),
    "fencelog_balance_moved_bytes": Row(_C, "process", "Bytes copied for that"),
    "fencelog_balance_dropped_moves": Row(
        _C, "process", "Moves that were not possible any more, or have failed"
    ),
    "fencelog_check_finished_timestamp_seconds": Row(
        _G, "check", "When it was last made to its end, without an error"
    ),
    "fencelog_check_violations": Row(
        _G, "category", "Violations that the last cluster check found"
    ),
}
"""Self-healing of the whole cluster: every broker shows the same."""

TABLE = HTTP | BROKER | TOPICS | PARTITIONS | LEDGERS | BOOKIE | HEALING

Labelled = tuple[tuple[str, ...], float]
"""The values of the labels, and the figure."""


class Metric(NamedTuple):
    """A metric with its samples, as text."""

    name: str
    text: str


def samples(name: str, values: Iterable[Labelled]) -> Metric:
    """Return a metric of the table with these figures."""
    exposed, labels = _exposed_name(name), _label_names(name)
    lines = [f"{exposed}{_labels(labels, words)} {float(value)}\n" for words, value in values]
    return Metric(name, _head(name) + "".join(lines))


def sample(name: str, value: float) -> Metric:
    """Return a metric of the table that has no labels."""
    return samples(name, (((), value),))


def times(name: str, values: Iterable[tuple[tuple[str, ...], Histogram]]) -> Metric:
    """Return a histogram of the table."""
    labels, lines = _label_names(name), [_head(name)]
    for words, histogram in values:
        buckets, total = histogram.cumulative()
        for bound, count in buckets:
            found = _labels((*labels, "le"), (*words, bound))
            lines.append(f"{name}_bucket{found} {count}\n")
        found = _labels(labels, words)
        lines.append(f"{name}_count{found} {buckets[-1][1]}\n{name}_sum{found} {total}\n")
    return Metric(name, "".join(lines))


def _exposed_name(name: str) -> str:
    return name + "_total" * (TABLE[name].kind is MetricKind.COUNTER)


@cache
def _label_names(name: str) -> tuple[str, ...]:
    return tuple(TABLE[name].labels.split())


@cache
def _head(name: str) -> str:
    """Return what stands before the samples of a metric."""
    exposed, (kind, _, meaning) = _exposed_name(name), TABLE[name]
    return f"# HELP {exposed} {meaning}\n# TYPE {exposed} {kind}\n"


@lru_cache(maxsize=4_096)  # the same few hundred rows, for several metrics, in every scrape
def _labels(names: tuple[str, ...], words: tuple[str, ...]) -> str:
    """Return the labels of a sample with their values."""
    if not names:
        return ""
    pairs = zip(names, words, strict=True)
    return "{" + ",".join([f'{name}="{_escaped(word)}"' for name, word in pairs]) + "}"


def _escaped(word: str) -> str:
    if "\\" in word or '"' in word or "\n" in word:
        return word.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return word
