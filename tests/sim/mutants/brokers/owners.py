"""Wrong owners and lists: a list that forgets what it says, partitions that go where they must not
be, logs that are opened or given up with something missing, and a record that misleads."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

BALANCE = "fencelog.broker.cluster.balance_core"
CODEC = "fencelog.broker.ledger_list.codec"
DIRECTORY = "fencelog.broker.cluster.broker_directory"
EVENTS = "fencelog.broker.cluster.events_core"
BALANCER = "fencelog.broker.background.balancer"
LOG = "fencelog.broker.partition.partition_log"
PENDING = "fencelog.broker.commits.pending_core"
RECORDER = "fencelog.broker.cluster.event_recorder"
SLOT = "fencelog.broker.partition.partition_slot"
UNLOADING = "fencelog.broker.background.unloading"

_BALANCE = "SEMANTICS.md, when a broker fails: balance"
_COMMITS = "SEMANTICS.md, commits of ledgers"
_EVENTS = "HTTP.md, events"
_FAILS = "SEMANTICS.md, when a broker fails"
_LIST = "SEMANTICS.md, list of ledgers"
_ONCE = "SEMANTICS.md, exactly once"
_SETTINGS = "SEMANTICS.md, retention and deletion: settings"
_SHUTDOWN = "SEMANTICS.md, when a broker fails, graceful shutdown"

LISTS = (
    Mutant(
        "producers-left-out-of-the-list",
        _ONCE,
        "The list does not say which ledgers name producers, so no takeover reads them.",
        (
            Edit(
                CODEC,
                "_segment_to_json",
                '            fields["sealed"]["producers"] = 1\n',
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "flags-of-a-commit-exchanged",
        _COMMITS,
        "A committer that appends its batch is read as one that has ended.",
        (
            Edit(
                CODEC,
                "_commit_from_json",
                "    ends, by_appends = (",
                "    by_appends, ends = (",
            ),
        ),
    ),
    Mutant(
        "a-later-format-is-read",
        _LIST,
        "A list in a format that is not known is read as far as it is understood.",
        (
            Edit(
                CODEC,
                "decode_ledger_list",
                'if fields["v"] != FORMAT_VERSION:',
                'if fields["v"] < FORMAT_VERSION:',
            ),
        ),
    ),
    Mutant(
        "messages-as-the-committer-says",
        _COMMITS,
        "A ledger with more messages than its committer names joins with as many as it names.",
        (
            Edit(
                PENDING,
                "facts_of",
                "last is None or found != messages or",
                "last is None or found < messages or",
            ),
        ),
    ),
    Mutant(
        "producers-behind-the-logs-back",
        _ONCE,
        "A ledger whose earlier entries name producers joins the log.",
        (
            Edit(
                PENDING,
                "facts_of",
                "if last.range_count or last.previous_range_entry >= 0:",
                "if last.range_count:",
            ),
        ),
    ),
    Mutant(
        "ledger-of-another-partition",
        _COMMITS,
        "A ledger that was made for another partition joins the log.",
        (
            Edit(
                PENDING,
                "_check_made_for",
                'if (properties.get("log"), properties.get("committer")) != (log, committer):',
                'if log and properties.get("committer") != committer:',
            ),
        ),
    ),
)

OPENED = (
    Mutant(
        "settings-of-before-the-opening",
        _SETTINGS,
        "Settings that were changed while a partition was being opened do not reach it.",
        (
            Edit(
                SLOT,
                "PartitionSlot._open",
                "        opened.apply_policy(self.info.policy)  # it may have changed meanwhile\n",
                "",
            ),
        ),
    ),
    Mutant(
        "settings-do-not-reach-the-open",
        _SETTINGS,
        "Settings that are changed do not reach partitions that are open.",
        (
            Edit(
                SLOT,
                "PartitionSlot.topic_changed",
                "            self._log.apply_policy(info.policy)\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "retention-of-the-takeover",
        _SETTINGS,
        "Retention goes by the settings with which the partition was opened.",
        (
            Edit(
                LOG,
                "PartitionLog.apply_policy",
                "            self.retention.policy = policy\n",
                "",
            ),
        ),
    ),
    Mutant(
        "producers-by-the-takeovers-settings",
        _SETTINGS,
        "How many producers are remembered, and keys for how long, changes with the next owner.",
        (
            Edit(
                LOG,
                "PartitionLog.apply_policy",
                "            self._pipeline.conditional.producers.policy = policy\n",
                "",
            ),
        ),
    ),
    Mutant(
        "rates-of-the-takeover",
        _SETTINGS,
        "Reads and deliveries go by the rate with which the partition was opened.",
        (
            Edit(
                LOG,
                "PartitionLog.apply_policy",
                "            self._dispatch.apply_policy(policy)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "released-though-it-was-not",
        _SHUTDOWN,
        "A partition whose node could not be removed with the seal counts as given up.",
        (
            Edit(
                LOG,
                "PartitionLog.close",
                "return is_made and bool(release)",
                "return bool(release)",
            ),
        ),
    ),
    Mutant(
        "given-up-and-not-released",
        _FAILS,
        "A broker that has lost a log keeps its node: nobody else opens the partition.",
        (
            Edit(
                SLOT,
                "PartitionSlot._abandon",
                "        await self._owner.release()\n",
                "",
            ),
        ),
    ),
    Mutant(
        "opening-of-unknown-outcome-is-a-maybe",
        _FAILS,
        "A request for a partition that could not be opened may have taken effect.",
        (
            Edit(
                SLOT,
                "PartitionSlot._open",
                "            if error.code.effects is Effects.NONE:\n                raise\n",
                "            if error.code.effects:\n                raise\n",
            ),
        ),
    ),
)

MOVED = (
    Mutant(
        "partitions-for-who-drains",
        _SHUTDOWN,
        "Partitions are transferred to brokers that drain.",
        (
            Edit(
                DIRECTORY,
                "BrokerDirectory.views",
                'not json.loads(value).get("draining")',
                'not json.loads(value).get("is_draining")',
            ),
        ),
    ),
    Mutant(
        "moved-into-a-circle",
        _BALANCE,
        "A partition moves to a broker that is then more loaded than the one it leaves.",
        (
            Edit(
                BALANCE,
                "plan",
                "if target.score + view.score > source.score - view.score:",
                "if target.score + view.score > source.score:",
            ),
        ),
    ),
    Mutant(
        "on-its-way-is-gone",
        _SHUTDOWN,
        "A drain ends while partitions are on their way to others.",
        (
            Edit(
                UNLOADING,
                "Unloading._transfer_all.left",
                "                or slot.is_moving\n",
                "",
            ),
        ),
    ),
    Mutant(
        "ended-twice-balances-twice",
        _BALANCE,
        "A drain that is ended before it has stopped the balancer, or by two requests, leaves two.",
        (
            Edit(
                BALANCER,
                "Balancer.start",
                "if self._task is None or self._task.done() or self._task.cancelling():",
                "if True:",
            ),
        ),
    ),
)

RECORDED = (
    Mutant(
        "keys-of-brokers-meet",
        _EVENTS,
        "Two brokers append their events under the same keys: those of the second are not written.",
        (
            Edit(
                RECORDER,
                "EventRecorder._run",
                'f"events/{process}/{self._batches}"',
                'f"events/{self._batches}"',
            ),
        ),
    ),
    Mutant(
        "unknown-since-the-last-attempt",
        _EVENTS,
        "An append of events is repeated after its key was forgotten, and written twice.",
        (
            Edit(
                RECORDER,
                "EventRecorder._append",
                "if error.code.effects is Effects.MAYBE and unknown_since_s is None:",
                "if error.code.effects is Effects.MAYBE:",
            ),
        ),
    ),
    Mutant(
        "refused-report-is-sent-again",
        _EVENTS,
        "A report of lost events that is refused for good is sent again without a pause.",
        (
            Edit(
                RECORDER,
                "EventRecorder._run",
                "                if not (is_told or self._queue) and is_report(batch):\n"
                "                    break  # it would be refused again at once: "
                "it goes with the next event\n",
                "",
            ),
        ),
    ),
    Mutant(
        "settled-beside-a-refused-report",
        _EVENTS,
        "Events that come while the report of a loss is refused wait for the next one.",
        (
            Edit(
                RECORDER,
                "EventRecorder._run",
                "if not (is_told or self._queue) and",
                "if not is_told and",
            ),
        ),
    ),
    Mutant(
        "released-though-it-crashed",
        _EVENTS,
        "An owner that has left a ledger open counts as one that has released the partition.",
        (
            Edit(
                EVENTS,
                "previous_owner",
                "if all(segment.sealed is not None for segment in before.segments):",
                "if any(segment.sealed is not None for segment in before.segments):",
            ),
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*LISTS, *OPENED, *MOVED, *RECORDED)
