"""Wrong appends and reads of one log: callers that are told something else than what is stored,
limits that nothing keeps, and places that are not where they are said to be."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

BACKLOG = "fencelog.broker.log.backlog_core"
CACHE = "fencelog.broker.read.tail_cache"
CONDITIONS = "fencelog.broker.append.conditions"
CORE = "fencelog.broker.log.core"
FAIRNESS = "fencelog.broker.read.read_fairness"
PENDING = "fencelog.broker.append.pending"
PIPELINE = "fencelog.broker.append.pipeline"
QUEUE = "fencelog.broker.append.queue"
RATES = "fencelog.broker.append.rates"
READER = "fencelog.broker.read.log_reader"
ROWS = "fencelog.broker.read.rows"
TIMES = "fencelog.broker.read.time_index"
WRITER = "fencelog.broker.log.log_writer"

_COMMITS = "SEMANTICS.md, commits of ledgers"
_ONCE = "SEMANTICS.md, exactly once"
_PRODUCERS = "SEMANTICS.md, producers"
_QUOTAS = "SEMANTICS.md, quotas"
_RATES = "SEMANTICS.md, limits: rates"
_READERS = "SEMANTICS.md, readers"
_RETENTION = "SEMANTICS.md, retention"
_WHO = "SEMANTICS.md, who may append"

APPENDS = (
    Mutant(
        "one-offset-for-a-group",
        _PRODUCERS,
        "All callers of a group are told the offset of its first message.",
        (
            Edit(
                PENDING,
                "PendingEntry.succeed",
                "AppendResult(partition, place, 1,",
                "AppendResult(partition, offset, 1,",
            ),
        ),
    ),
    Mutant(
        "unknown-is-sent-again",
        "SEMANTICS.md, for producers: never twice",
        "An append whose callers were told that its outcome is unknown goes to the next ledger.",
        (
            Edit(
                PIPELINE,
                "AppendPipeline.resolve",
                "            if entry.is_given_up:\n",
                "            if not entry.count:\n",
            ),
        ),
    ),
    Mutant(
        "handed-over-is-a-refusal",
        _PRODUCERS,
        "Appends that reached a ledger whose end is not known are refused like those that wait.",
        (Edit(PIPELINE, "AppendPipeline.give_up", "entry.fail(handed)", "entry.fail(waiting)"),),
    ),
    Mutant(
        "numbers-of-what-was-not-taken",
        _READERS,
        "Messages that a ledger did not take are counted among those before the next ones in it.",
        (
            Edit(
                PIPELINE,
                "AppendPipeline._push",
                "            previous_range_entry=self._last_range_entry,\n        )\n",
                "            previous_range_entry=self._last_range_entry,\n        )\n"
                "        self._next_number += entry.count\n",
            ),
            Edit(
                PIPELINE,
                "AppendPipeline._push",
                "            return False\n        self._next_number += entry.count\n",
                "            return False\n",
            ),
        ),
    ),
    Mutant(
        "all-groups-in-flight",
        "SEMANTICS.md, limits",
        "Any number of groups is in flight at a time.",
        (
            Edit(
                PIPELINE,
                "AppendPipeline._has_capacity",
                "under_way < ENTRIES_IN_FLIGHT and groups < limit",
                "groups < limit",
            ),
            Edit(
                PIPELINE,
                "AppendPipeline._has_capacity",
                "return under_way < ENTRIES_IN_FLIGHT\n",
                "return True\n",
            ),
        ),
    ),
    Mutant(
        "joins-what-was-given-up",
        _PRODUCERS,
        "A message joins the group that was refused as a whole, and is never sent.",
        (
            Edit(
                QUEUE,
                "AppendQueue.give_up",
                "        self.items = ()\n        self.gathering = None\n",
                "        self.items = ()\n",
            ),
        ),
    ),
)

CONDITIONAL = (
    Mutant(
        "repeat-is-at-the-entrys-first-offset",
        _ONCE,
        "Who repeats an append in flight is told the offset of the first message of its entry.",
        (
            Edit(
                CONDITIONS,
                "SequenceRanges.succeed",
                "offset + tracked.row",
                "offset",
            ),
        ),
    ),
    Mutant(
        "epochs-become-one-range",
        _ONCE,
        "Messages of a producer's next epoch are written under the epoch before it.",
        (Edit(CONDITIONS, "_follows", "        and last.epoch == sequences.epoch\n", ""),),
    ),
    Mutant(
        "messages-of-nobody-become-the-producers",
        _ONCE,
        "The range of a producer begins at the first message that belongs to nobody.",
        (
            Edit(
                CONDITIONS,
                "SequenceRanges.add",
                "        self.cover(tracked.row)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "token-lost-with-the-contents",
        _WHO,
        "Conditions that remember their contents forget the fencing token.",
        (
            Edit(
                CONDITIONS,
                "AppendConditions.with_contents",
                "self.if_offset, self.fencing_token, self.routed_by)",
                "self.if_offset, None, self.routed_by)",
            ),
        ),
    ),
    Mutant(
        "route-lost-with-the-contents",
        _ONCE,
        "Conditions that remember their contents forget by how many partitions they were routed.",
        (
            Edit(
                CONDITIONS,
                "AppendConditions.with_contents",
                "self.if_offset, self.fencing_token, self.routed_by)",
                "self.if_offset, self.fencing_token)",
            ),
        ),
    ),
)

LIMITS = (
    Mutant(
        "debts-are-forgiven",
        _RATES,
        "A batch that is larger than a second's worth leaves no debt.",
        (
            Edit(
                RATES,
                "TokenBucket.take",
                "self._tokens = self.tokens - count",
                "self._tokens = max(0.0, self.tokens - count)",
            ),
        ),
    ),
    Mutant(
        "the-laxer-quota-holds",
        _QUOTAS,
        "Of a quota of bytes and one of age the one that allows more holds.",
        (Edit(BACKLOG, "quota_bound", "max(bound, _within(", "min(bound, _within("),),
    ),
    Mutant(
        "granted-to-who-has-left",
        "SEMANTICS.md, limits",
        "Bytes that were granted to a reader in the moment in which it left are never given back.",
        (
            Edit(
                FAIRNESS,
                "FairByteSemaphore._wait",
                "                self.give_back(size)  # the",
                "                self._wake()  # the",
            ),
        ),
    ),
)

STEPS = (
    Mutant(
        "an-adoption-under-way-is-refused",
        _COMMITS,
        "A log that is closed says of segments on their way into it that they are not in it.",
        (
            Edit(
                CORE,
                "LogCore.close",
                "is_under_way = self.state is LogState.ADOPTING",
                "is_under_way = False",
            ),
        ),
    ),
    Mutant(
        "acknowledged-after-the-failure",
        "SEMANTICS.md, when bookies fail",
        "A ledger that has failed acknowledges appends before recovery has found its end.",
        (
            Edit(
                CORE,
                "LogCore.acknowledged",
                "ledger.ledger_id != ledger_id or ledger.failure is not None:",
                "ledger.ledger_id != ledger_id:",
            ),
        ),
    ),
    Mutant(
        "replication-of-the-takeover",
        _RETENTION,
        "Ledgers have as many copies as the topic asked for when its log was opened.",
        (
            Edit(
                WRITER,
                "LogWriter.apply_policy",
                "        self._factory.replication = policy.replication\n",
                "",
            ),
        ),
    ),
    Mutant(
        "read-after-the-log-is-lost",
        _READERS,
        "An owner that has lost its log goes on answering reads from memory.",
        (
            Edit(
                WRITER,
                "LogWriter._end",
                "        self._reader.close(error)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "lost-and-in-flight",
        _PRODUCERS,
        "A log that has ended counts what was in flight in it for ever.",
        (
            Edit(
                WRITER,
                "LogWriter._end",
                "        self._pipeline.discard()\n",
                "",
            ),
        ),
    ),
)

READS = (
    Mutant(
        "time-of-the-oldest-in-memory",
        _READERS,
        "A search for a time finds the oldest batch in memory, whatever is before it.",
        (
            Edit(
                CACHE,
                "TailCache.offset_for_time",
                "if head == len(self._offsets) or self._batches[head].publish_time_us >= time_us:",
                "if head == len(self._offsets):",
            ),
        ),
    ),
    Mutant(
        "not-woken-while-others-are",
        _READERS,
        "Who began to wait while others were being woken is not woken by the next append.",
        (
            Edit(
                CACHE,
                "TailNotifier.notify",
                "            self._ringing += waiting\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "remembered-time-is-passed-over",
        _READERS,
        "A search for the very time of an entry that is remembered finds what follows it.",
        (
            Edit(
                TIMES,
                "TimeIndex.first_at",
                "position = bisect_left(self._places, time_us, key=_time)",
                "position = bisect_left(self._places, time_us + 1, key=_time)",
            ),
        ),
    ),
    Mutant(
        "trimmed-and-still-read",
        _READERS,
        "A read that waits for its turn is not refused when its ledger is trimmed meanwhile.",
        (Edit(READER, "LogReader._load", "        self._check(offset)  # the", "        # the"),),
    ),
    Mutant(
        "view-is-read-on-by-counting",
        "SEMANTICS.md, the compacted view",
        "A read of the view goes on at its first offset and the number of messages it had.",
        (
            Edit(
                ROWS,
                "end_of_rows",
                "            if isinstance(batch, CompactedBatch):\n"
                "                return batch.offsets[row] + 1\n",
                "",
            ),
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*APPENDS, *CONDITIONAL, *LIMITS, *STEPS, *READS)
