"""Wrong parts of brokers, which tests of these parts detect."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

CONSUMER = "fencelog.api.client.consumer"
CACHE = "fencelog.broker.read.tail_cache"
QUEUE = "fencelog.broker.append.queue"
REPLAY = "fencelog.broker.append.producer_replay"
SNAPSHOT = "fencelog.broker.append.producer_snapshot"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        # The consumers of histories pull when they have treated all that they got.
        "unused-is-given-back-as-failed",
        "SEMANTICS.md, nacked messages",
        "A consumer that ends reports what it has not come to as failed.",
        (
            Edit(
                CONSUMER,
                "Consumer._send_all",
                "partial(client.nack, topic, name, ids, failed=False)",
                "partial(client.nack, topic, name, ids)",
            ),
        ),
    ),
    Mutant(
        "consumer-goes-back-for-a-late-nack",
        "SEMANTICS.md: exclusive, failover",
        "A consumer throws away what it has for a message that the service does not go back to.",
        (
            Edit(
                CONSUMER,
                "Consumer.nack",
                "if was_held and self._is_ordered:",
                "if self._is_ordered:",
            ),
        ),
    ),
    Mutant(
        "consumer-goes-on-behind-a-failure",
        "SEMANTICS.md: exclusive, failover",
        "After a failure in order, a consumer pulls on before its owner knows of the failure.",
        (
            Edit(
                CONSUMER,
                "Consumer.nack",
                "partition, self._goes_back = message.partition, True",
                "partition = message.partition",
            ),
        ),
    ),
    Mutant(
        # It takes 200 committers, or 30 days, and a deletion that fails.
        "trimmed-ledger-joins-again",
        "SEMANTICS.md: Commits of ledgers",
        "A ledger that joined the log is trimmed, and may join it again until it is deleted.",
        (
            Edit(
                "fencelog.broker.log.retention",
                "Retention._withdraw",
                "await self._ledgers.describe(ledger_id, withdrawn_properties)",
                "pass",
            ),
        ),
    ),
    Mutant(
        # The successor has to trim the batch before its repetition reaches the previous owner.
        "a-ledger-is-gone-at-who-was-replaced",
        "SEMANTICS.md: Commits of ledgers",
        "A replaced owner refuses for good a commit that its successor has made, and trimmed.",
        (
            Edit(
                "fencelog.broker.commits.commits",
                "Commits._commit",
                "self._reader.refusing_as_owner(*_BY_OWNER)",
                "self._reader.refusing_as_owner(ErrorCode.LIMIT_REACHED)",
            ),
        ),
    ),
    Mutant(
        "list-of-fewer-messages-is-served",
        "SEMANTICS.md: Takeover, step by step",
        "A takeover serves a log whose list counts fewer messages than the ledger has.",
        (
            Edit(
                "fencelog.broker.partition.takeover",
                "_Takeover._recover",
                "segment.sealed.messages != sealed.messages",
                "segment.sealed.messages > sealed.messages",
            ),
        ),
    ),
    Mutant(
        "changed-after-the-end",
        "SEMANTICS.md: The state log",
        "A state log that was closed takes the next change, and writes it to a new ledger.",
        (
            Edit(
                "fencelog.broker.ledger_list.state_log",
                "StateLog._put",
                "if self._refusal is not None:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "commit-opens-an-unsettled-partition",
        "SEMANTICS.md: Commits of ledgers",
        "A commit joins, and opens the partition, while the last change of access is unknown.",
        (
            Edit(
                "fencelog.broker.append.access_changes",
                "AccessChanges.held",
                "self._appends.check_settled()",
                "pass",
            ),
        ),
    ),
    Mutant(
        "producers-replayed-backwards",
        "SEMANTICS.md, exactly once",
        "A takeover counts the appends of a producer from the last one on.",
        (Edit(REPLAY, "replay_producers", "in reversed(found):", "in found:"),),
    ),
    Mutant(
        "replay-stops-at-the-snapshots-entry",
        "SEMANTICS.md, exactly once",
        "The entry that begins where the snapshot ends is left out of the replay.",
        (
            Edit(
                REPLAY,
                "_entries_with_ranges",
                "if header.next_number <= known:",
                "if header.first_number <= known:",
            ),
        ),
    ),
    Mutant(
        "persisted-with-what-came-meanwhile",
        "SEMANTICS.md, exactly once",
        "Producers count as persisted that have appended while the others were being persisted.",
        (
            Edit(
                SNAPSHOT,
                "ProducerSnapshot.ensure_persisted",
                "self._persisted_offset = end",
                "self._persisted_offset = self._producers.end_offset",
            ),
        ),
    ),
    Mutant(
        "message-joins-a-group-before-a-batch",
        "SEMANTICS.md, for producers: order",
        "A message that comes after a batch joins the group that waits before it.",
        (
            Edit(
                QUEUE,
                "AppendQueue.add_entry",
                "        if self.gathering is not None:\n"
                "            self._end_group(self.gathering)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "group-counted-twice",
        "SEMANTICS.md, for producers: conditions",
        "Offsets that are counted again count the group that messages still join twice.",
        (
            Edit(
                QUEUE,
                "AppendQueue.recount",
                "offset + count - (self.gathering.count if self.gathering else 0)",
                "offset + count",
            ),
        ),
    ),
    Mutant(
        "batches-before-a-gap-are-returned",
        "SEMANTICS.md, readers",
        "The tail cache returns its last batch for an offset behind it.",
        (
            Edit(
                CACHE,
                "TailCache.read",
                "return taken if offset < taken[-1].end_offset else []",
                "return taken",
            ),
        ),
    ),
)
