"""Wrong parts of Spark's data source: a batch that is written in part, twice or in two modes, and a
stream that passes over messages."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

_SEGMENTS = "fencelog.spark_connector.write.segments"
_TARGET = "fencelog.spark_connector.write.target"
_DRIVER = "fencelog.spark_connector.stream.driver"

_WRITTEN_ONCE = "SPARK.md: Batches that are written again"
_READ_ONCE = "STREAMS.md: Guarantees"

WRITES: tuple[Mutant, ...] = (
    Mutant(
        "batch-known-to-others-before-partition-0",
        _WRITTEN_ONCE,
        "Partitions get a batch before partition 0 remembers over how many it is spread.",
        (
            Edit(
                _SEGMENTS,
                "commit",
                "for first in in_order[:1]:\n            await commit_one(first)\n"
                "        await map_concurrently(commit_one, in_order[1:],",
                "await map_concurrently(commit_one, in_order,",
            ),
        ),
    ),
    Mutant(
        "batch-that-partition-0-does-not-remember",
        _WRITTEN_ONCE,
        "A batch without rows for partition 0 is not remembered there.",
        (Edit(_SEGMENTS, "commit", "if is_stream:", "if not by_partition:"),),
    ),
    Mutant(
        "fewer-rows-are-the-same-rows",
        _WRITTEN_ONCE,
        "An attempt with fewer rows than an earlier one has committed completes the batch.",
        (
            Edit(
                _SEGMENTS,
                "commit.commit_one",
                'done["messages"] != messages',
                'done["messages"] < messages',
            ),
        ),
    ),
    Mutant(
        "finished-before-its-last-entry",
        _WRITTEN_ONCE,
        "A task ends before the last entry of a ledger is acknowledged.",
        (
            Edit(
                _SEGMENTS,
                "_OpenLedger.finish",
                "self._writer.last_add_confirmed < self._last_entry:",
                "self._writer.last_add_confirmed < self._last_entry - 1:",
            ),
        ),
    ),
    Mutant(
        "appended-behind-what-failed",
        _WRITTEN_ONCE,
        "Rows are appended with the numbers of those before them, whose append was refused.",
        (
            Edit(
                "fencelog.spark_connector.write.appends",
                "_OrderedAppends._in_turn",
                "        await self._append(partition, batch, count)\n        done.set()\n",
                "        try:\n            await self._append(partition, batch, count)\n"
                "        finally:\n            done.set()\n",
            ),
        ),
    ),
    Mutant(
        "spread-as-the-batch-before",
        _WRITTEN_ONCE,
        "A batch is spread over as many partitions as the batch before it.",
        (
            Edit(
                _TARGET,
                "partitions_of_batch",
                'last is None or last["batch"] < job.batch',
                "last is None",
            ),
        ),
    ),
    Mutant(
        "dedup-over-segments",
        _WRITTEN_ONCE,
        "A batch that was committed as ledgers is appended once more, by numbers.",
        (
            Edit(
                _TARGET,
                "spread_of_batch",
                "check_attempt(last, job, ExactlyOnce.DEDUP)",
                "pass",
            ),
        ),
    ),
    Mutant(
        "segments-over-dedup",
        _WRITTEN_ONCE,
        "A batch that was appended by numbers is committed once more, as ledgers.",
        (
            Edit(
                _TARGET,
                "check_attempt",
                "begun is not mode",
                "begun is not mode and mode is ExactlyOnce.DEDUP",
            ),
        ),
    ),
    Mutant(
        "dedup-under-another-name",
        _WRITTEN_ONCE,
        "A commit of segments that comes late does not find that dedup has begun the batch.",
        (
            Edit(
                _TARGET,
                "spread_of_batch",
                "commits.commit(job.batch",
                'PartitionCommits(client, target.options.topic, 0, "spread").commit(job.batch',
            ),
        ),
    ),
)
"""Mutants of the sink, which its tests detect."""

READS: tuple[Mutant, ...] = (
    Mutant(
        "planned-by-answers-from-elsewhere",
        _READ_ONCE,
        "A repeated micro-batch is planned by what the service has told of a later place.",
        (
            Edit(
                _DRIVER,
                "StreamDriver.tasks",
                "self._asked_from != start or not covers",
                "not covers",
            ),
        ),
    ),
    Mutant(
        "cursor-that-keeps-nothing",
        _READ_ONCE,
        "A stream moves a cursor that keeps no message from being trimmed.",
        (
            Edit(
                "fencelog.spark_connector.stream.service",
                "TopicFollower._ensure_subscription",
                'if not found["durable"]:',
                "if not found:",
            ),
        ),
    ),
    Mutant(
        "planned-short-of-its-end",
        _READ_ONCE,
        "A repeated micro-batch is planned up to the end that was there at the last look.",
        (
            Edit(
                _DRIVER,
                "StreamDriver.tasks",
                "self._asked_from != start or not covers(self._answers, end)",
                "self._asked_from != start",
            ),
        ),
    ),
)
"""Mutants of streams, which their tests detect."""
