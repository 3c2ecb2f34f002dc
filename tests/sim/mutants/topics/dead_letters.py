"""Wrong brokers: dead letters that are dropped, replays that go astray, messages that are early."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

DEAD_LETTERS = "fencelog.broker.subscriptions.dead_letters"
DISPATCH = "fencelog.broker.dispatch.base"
PULL = "fencelog.broker.subscriptions.pull"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "buried-though-it-failed",
        "SEMANTICS.md, dead letters",
        "A message that could not be appended to the dead letters counts as forwarded.",
        (
            Edit(
                DEAD_LETTERS,
                "DeadLetterForwarder._forward",
                "            return None if error.code is ErrorCode.OFFSET_TRIMMED else error\n",
                "            return None\n",
            ),
        ),
    ),
    Mutant(
        "buried-before-it-is-there",
        "SEMANTICS.md, dead letters",
        "A message is acknowledged while it is on its way to the dead letters.",
        (
            Edit(
                DEAD_LETTERS,
                "DeadLetterForwarder._forward",
                "            await letters.forward(subscription.info, self._partition, dead)\n",
                "            asyncio.ensure_future(\n"
                "                letters.forward(subscription.info, self._partition, dead)\n"
                "            )\n",
            ),
        ),
    ),
    Mutant(
        "buried-a-delivery-early",
        "SEMANTICS.md, dead letters",
        "A message goes to the dead letters one failure too soon.",
        (
            Edit(
                DISPATCH,
                "Dispatch._max_deliveries_exceeded",
                "self.cursor.failures.get(offset, 0) >= most",
                "self.cursor.failures.get(offset, 0) >= most - 1 > 0",
            ),
        ),
    ),
    Mutant(
        "replayed-for-nobody",
        "SEMANTICS.md, replay",
        "What is replayed for a subscription is passed over by that one too.",
        (
            Edit(
                PULL,
                "PullOperation._is_for_another",
                "bool(names) and self._subscription.info.name.encode() not in names\n",
                "bool(names)\n",
            ),
        ),
    ),
    Mutant(
        "replayed-for-everybody",
        "SEMANTICS.md, replay",
        "What is replayed for one subscription is handed out by all.",
        (
            Edit(
                PULL,
                "PullOperation._is_for_another",
                "bool(names) and self._subscription.info.name.encode() not in names\n",
                "False\n",
            ),
        ),
    ),
    Mutant(
        "replayed-though-it-failed",
        "SEMANTICS.md, replay",
        "A dead letter that could not be appended where it came from counts as replayed.",
        (
            Edit(
                "fencelog.api.subscriptions.replay",
                "DeadLetterReplay._send_back",
                "done += [ack_id for ack_id, error in outcomes.items() if error is None]",
                "done += list(outcomes)",
            ),
        ),
    ),
    Mutant(
        "letter-of-unknown-outcome-is-there",
        "SEMANTICS.md, dead letters",
        "An append of unknown outcome counts as a dead letter that is there, or is back.",
        (
            Edit(
                "fencelog.api.subscriptions.dead_letters",
                "Appending.append",
                "if error.code is not ErrorCode.IDEMPOTENCY_KEY_REUSED:",
                "known = ErrorCode.IDEMPOTENCY_KEY_REUSED, ErrorCode.APPEND_UNKNOWN\n"
                "            if error.code not in known:",
            ),
        ),
    ),
    Mutant(
        "replayed-under-its-delivery",
        "SEMANTICS.md, replay",
        "Each delivery of a dead letter to a replay has another key, so that it comes back twice.",
        (
            Edit(
                "fencelog.api.subscriptions.replay",
                "DeadLetterReplay._append",
                "{letter.partition}/{letter.offset}",
                "{letter.ack_id}",
            ),
        ),
    ),
    Mutant(
        "letter-forwarded-without-its-key",
        "SEMANTICS.md, dead letters",
        "A dead letter whose owner is another broker is appended there without a key.",
        (
            Edit(
                "fencelog.api.subscriptions.dead_letters",
                "Appending._append_at",
                '(b"content-type", BATCH), (IDEMPOTENCY_KEY, key.encode())',
                '(b"content-type", BATCH)',
            ),
        ),
    ),
    Mutant(
        "delivered-before-its-time",
        "SEMANTICS.md, delayed delivery",
        "A time of delivery in microseconds is taken for one in nanoseconds.",
        (
            Edit(
                PULL,
                "PullOperation._due",
                "self._subscription.now() + left_us / 1e6 if",
                "self._subscription.now() + left_us / 1e9 if",
            ),
        ),
    ),
)

GROWN = (
    Mutant(
        # Histories have the dead letters in a partition of the same topic, by a port of their own.
        "buried-where-it-belongs-now",
        "SEMANTICS.md, dead letters",
        "A burial is repeated in the partition that is chosen now, wherever the first attempt was.",
        (
            Edit(
                "fencelog.api.subscriptions.dead_letters",
                "DeadLetterTopics.forward",
                "routed = await self._once.route(target, _keyed(key), partition)",
                "routed = (partition % target.config.partitions, _keyed(key))",
            ),
        ),
    ),
    Mutant(
        # Histories have one partition of dead letters.
        "replayed-by-the-offset-alone",
        "SEMANTICS.md, dead letters",
        "Of two dead letters at the same offset of two partitions, one goes back.",
        (
            Edit(
                "fencelog.api.subscriptions.replay",
                "DeadLetterReplay._append",
                "{letters.topic.topic_id}/{letter.partition}/{letter.offset}",
                "{letters.topic.topic_id}/{letter.offset}",
            ),
        ),
    ),
)
"""A test of the part has to detect these."""
