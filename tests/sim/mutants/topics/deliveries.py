"""Wrong owners of leases and epochs: ids of other deliveries count, or what is not settled yet."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

ACCESS = "fencelog.broker.append.access_changes"
BATCH = "fencelog.broker.subscriptions.batch"
CURSOR_LOG = "fencelog.broker.subscriptions.cursors"
CURSORS = "fencelog.broker.dispatch.cursor_core"
FORMAT = "fencelog.ledgers.record_batch.format"
ROWS = "fencelog.broker.read.rows"
RECONCILER = "fencelog.broker.background.cursor_reconciler"
STATE = "fencelog.broker.subscriptions.state"
STATE_LOG = "fencelog.broker.ledger_list.state_log"
SUBSCRIPTIONS = "fencelog.broker.subscriptions.subscriptions"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "unused-counts-as-failed",
        "SEMANTICS.md, nacked messages",
        "Messages that a consumer gives back unused count as failed.",
        (
            Edit(
                SUBSCRIPTIONS,
                "Subscriptions.nack",
                "        if offsets and not failed:\n",
                "        if offsets and failed is None:\n",
            ),
        ),
    ),
    Mutant(
        "refused-by-an-earlier-delivery",
        "SEMANTICS.md, leases",
        "Who had a message before takes it from the consumer that has it now.",
        (
            Edit(
                SUBSCRIPTIONS,
                "Subscriptions._leased",
                "                and lease.delivery == ack_id.delivery\n",
                "",
            ),
        ),
    ),
)

NOT_AGAIN: tuple[Mutant, ...] = (
    Mutant(
        "what-was-leased-does-not-come-again",
        "SEMANTICS.md, at least once",
        "Messages count as acknowledged when the lease of their consumer ends.",
        (
            Edit(
                STATE,
                "SubscriptionState.refresh",
                "            self.failed(expired)\n",
                "            self.skip([(offset, offset + 1) for offset in expired])\n",
            ),
        ),
    ),
    Mutant(
        "one-more-is-acknowledged",
        "SEMANTICS.md, at least once",
        "An acknowledgement counts for the message behind its last one, too.",
        (
            Edit(
                SUBSCRIPTIONS,
                "Subscriptions.ack",
                "ranges_of(offsets))",
                "[(first, end + 1) for first, end in ranges_of(offsets)])",
            ),
        ),
    ),
    Mutant(
        "a-lost-acknowledgement-is-a-refusal",
        "SEMANTICS.md, subscriptions",
        "A change of a cursor that may be durable is told to have had no effect.",
        (
            Edit(
                STATE_LOG,
                "_state_unknown",
                'ErrorCode.STATE_UNKNOWN, f"the change',
                'ErrorCode.NO_OWNER, f"the change',
            ),
        ),
    ),
    Mutant(
        "a-refused-acknowledgement-counts",
        "SEMANTICS.md, subscriptions",
        "A change of a cursor that is refused, as too many wait, is made in the owner's memory.",
        (
            Edit(
                CURSOR_LOG,
                "CursorLog.change",
                "            self._state_log.admit()\n",
                "            try:\n"
                "                self._state_log.admit()\n"
                "            except FencelogError:\n"
                "                self._durable.apply(event)\n"
                "                raise\n",
            ),
        ),
    ),
    Mutant(
        "snapshot-closes-holes",
        "SEMANTICS.md, at least once",
        "A snapshot has a cursor's mark behind the last that was acknowledged.",
        (
            Edit(
                CURSORS,
                "Cursors.snapshot",
                '["cursor", name, cursor.acks.acked_to,',
                '["cursor", name, cursor.acks.end,',
            ),
        ),
    ),
    Mutant(
        "a-missing-cursor-begins-at-the-tail",
        "SEMANTICS.md, subscriptions",
        "A cursor that its creator did not come to open misses what the log has by now.",
        (
            Edit(
                RECONCILER,
                "_begin_missing",
                "await subscriptions.begin(registered)",
                "await subscriptions.open(info, start_offset=1 << 40)",
            ),
        ),
    ),
)

RARE: tuple[Mutant, ...] = (
    Mutant(
        # Pulls of two owners have to have the same number, and the same messages.
        "refused-by-a-delivery-of-another-owner",
        "SEMANTICS.md, leases",
        "Ids of a previous owner change leases of the present one.",
        (
            Edit(
                SUBSCRIPTIONS,
                "Subscriptions._leased",
                "                and ack_id.epoch == self._epoch\n",
                "",
            ),
        ),
    ),
    Mutant(
        # No owner gives such an id out.
        "acknowledged-beyond-the-tail",
        "SEMANTICS.md, subscriptions",
        "An id beyond the tail acknowledges a message that will come.",
        (
            Edit(
                SUBSCRIPTIONS,
                "Subscriptions._is_known",
                "            and ack_id.offset < self._reader.tail_offset\n",
                "",
            ),
        ),
    ),
    Mutant(
        # Retention has to look between the ends of two writes to the state log.
        "later-acks-count-as-durable",
        "SEMANTICS.md, retention; I10",
        "When an acknowledgement is durable, retention goes by all that are in memory.",
        (
            Edit(
                CURSOR_LOG,
                "_confirm",
                "max(cursor.confirmed_to, acked_to)",
                "cursor.acks.acked_to",
            ),
        ),
    ),
    Mutant(
        # The first append under an epoch has to be on its way when the same producer claims.
        "claimed-before-the-drain",
        "SEMANTICS.md, who may append",
        "A claim does not count the epochs of appends that are on their way.",
        (
            Edit(
                ACCESS,
                "AccessChanges._carry_out",
                "                await self._appends.drain()\n                event = decide()\n",
                "                event = decide()\n                await self._appends.drain()\n",
            ),
        ),
    ),
    Mutant(
        # Simulated entries are not damaged where they pass their digests.
        "damaged-batch-hides-those-before",
        "SEMANTICS.md, subscriptions",
        "What is before a batch that cannot be read, in the same group, is not delivered.",
        (
            Edit(
                BATCH,
                "opened_together",
                "        if group:\n            yield _joined(group)\n        raise",
                "        raise",
            ),
        ),
    ),
    Mutant(
        "opened-over-a-gap",
        "SEMANTICS.md, subscriptions",
        "Batches that are not adjacent are opened as if they were: messages get other offsets.",
        (
            Edit(
                BATCH,
                "opened_together",
                "stored.base_offset != group[-1].end_offset",
                "stored.base_offset < group[-1].end_offset",
            ),
        ),
    ),
    Mutant(
        "plain-value-not-verified",
        "SEMANTICS.md, subscriptions",
        "The value of a single message is delivered without a look at its checksum.",
        (
            Edit(
                FORMAT,
                "value_of_one",
                "crc32c(memoryview(data)[12:], _START_OF_ONE_CRC) != checksum",
                "checksum < 0",
            ),
        ),
    ),
    Mutant(
        "unpacked-without-a-limit",
        "Limits: what a pull holds",
        "Small batches that are large when they are unpacked are unpacked together.",
        (Edit(BATCH, "opened_together", "or size > STEP_BYTES", "or size > 1 << 40"),),
    ),
    Mutant(
        "rendered-without-a-limit",
        "Limits: what an answer holds",
        "Small batches that are large when they are unpacked are one step of an answer.",
        (Edit(ROWS, "rows_in_steps", "or size > STEP_BYTES", "or size > 1 << 40"),),
    ),
)
"""Mutants that one history in thousands would meet, or none."""
