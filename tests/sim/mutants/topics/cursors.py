"""Wrong brokers: subscriptions that forget, or hand out what they must not; retention."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

CURSORS = "fencelog.broker.dispatch.cursor_core"
CURSOR_LOG = "fencelog.broker.subscriptions.cursors"
KEY_SHARED = "fencelog.broker.dispatch.key_shared"
ORDERED = "fencelog.broker.dispatch.ordered"
RETENTION = "fencelog.broker.log.retention"
REGISTRY = "fencelog.broker.registry.subscription_registry"
RETENTION_CORE = "fencelog.broker.log.retention_core"
SHARED = "fencelog.broker.dispatch.shared"
STATE_LOG = "fencelog.broker.ledger_list.state_log"
SUBSCRIPTIONS = "fencelog.broker.subscriptions.subscriptions"
TABLE = "fencelog.broker.subscriptions.table"
PULL = "fencelog.broker.subscriptions.pull"
RECONCILER = "fencelog.broker.background.cursor_reconciler"

CURSOR_MUTANTS = (
    Mutant(
        "cursor-acknowledged-early",
        "SEMANTICS.md, subscriptions; apache/pulsar#4849",
        "An acknowledgement is confirmed before the state log has it.",
        (
            Edit(
                STATE_LOG,
                "StateLog.settled",
                "        await asyncio.wait((future,), timeout=self._timeout_s)\n",
                "        return\n",
            ),
        ),
    ),
    Mutant(
        "snapshot-without-holes",
        "SEMANTICS.md, subscriptions; apache/pulsar#25540",
        "A snapshot has a cursor's mark, not what was acknowledged beyond it.",
        (
            Edit(
                CURSORS,
                "Cursors.snapshot",
                "            for ranges in _chunks(cursor.acks):\n",
                "            for ranges in ():\n",
            ),
        ),
    ),
    Mutant(
        "seek-keeps-old-ids",
        "SEMANTICS.md, subscriptions",
        "Ack ids from before a seek acknowledge what has to come again.",
        (
            Edit(
                SUBSCRIPTIONS,
                "Subscriptions._is_known",
                "            ack_id.generation == subscription.cursor.generation\n            and ",
                "            ",
            ),
        ),
    ),
    Mutant(
        "confirmed-past-a-seek",
        "SEMANTICS.md, retention; I10",
        "An acknowledgement that is confirmed after a seek lets go what has to come again.",
        (
            Edit(
                CURSOR_LOG,
                "_confirm",
                " and cursor.generation == generation:",
                ":",
            ),
        ),
    ),
    Mutant(
        "snapshot-before-the-ledger",
        "SEMANTICS.md, state log",
        "What is recorded while a new state ledger is created is in it or not.",
        (
            Edit(
                STATE_LOG,
                "StateLog._roll",
                "        created, self._next = self._next or self._create(), None\n",
                "        snapshot = list(self._state.snapshot())\n"
                "        created, self._next = self._next or self._create(), None\n",
            ),
            Edit(
                STATE_LOG,
                "StateLog._roll",
                "self._append(ledger, list(self._state.snapshot()))",
                "self._append(ledger, snapshot)",
            ),
        ),
    ),
)

DISPATCH = (
    Mutant(
        "key-shared-two-owners",
        "SEMANTICS.md, subscriptions",
        "A key goes to whoever asks, whoever has messages of it.",
        (
            Edit(
                KEY_SHARED,
                "KeySharedDispatch._offer",
                "        if not known.waiting and (known.out == 0 or known.holder == consumer):\n",
                "        if not known.waiting:\n",
            ),
        ),
    ),
    Mutant(
        "lease-given-twice",
        "SEMANTICS.md, subscriptions",
        "A message that is handed out again still counts as one that waits.",
        (
            Edit(
                SHARED,
                "SharedDispatch.take",
                "        self._ready.remove(taken)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "expired-lease-forgotten",
        "SEMANTICS.md, subscriptions",
        "What was not acknowledged in time does not come again.",
        (
            Edit(
                SHARED,
                "SharedDispatch.expire",
                "        self._again(self._count(expired))\n",
                "        self._count(expired)\n",
            ),
        ),
    ),
    Mutant(
        "failover-to-two",
        "SEMANTICS.md, subscriptions",
        "Of two consumers that are there both get messages.",
        (
            Edit(
                ORDERED,
                "OrderedDispatch.admit",
                "        if self.consumers.first(now) != consumer:\n            return False\n",
                "",
            ),
        ),
    ),
    Mutant(
        "refused-out-of-order",
        "SEMANTICS.md, subscriptions",
        "Behind a message that was refused an ordered subscription goes on.",
        (
            Edit(
                ORDERED,
                "OrderedDispatch.refuse",
                "        self._rewind()\n",
                "",
            ),
        ),
    ),
)

REWOUND = (
    Mutant(
        # A broker has to pause amid a pull, for as long as an earlier lease of the same consumer
        # has left: one history in ten thousand.
        "a-rewound-pull-goes-on",
        "SEMANTICS.md, subscriptions",
        "An ordered pull hands out what it had taken before an earlier message failed.",
        (
            Edit(PULL, "PullOperation._step", "        self._start_again_if_rewound()\n", ""),
            Edit(
                PULL,
                "PullOperation._leased",
                "return self._taken if self._dispatch.rewinds == self._rewinds else []\n",
                "return self._taken\n",
            ),
        ),
    ),
)

TRIMMING = (
    Mutant(
        "retention-past-a-cursor",
        "SEMANTICS.md, retention; I10",
        "Retention does not look at cursors.",
        (
            Edit(
                RETENTION_CORE,
                "_is_unacknowledged",
                "        unacknowledged is not None\n        and ",
                "        False and ",
            ),
        ),
    ),
    Mutant(
        "retention-by-acks-in-memory",
        "SEMANTICS.md, retention; I10",
        "Messages go by acknowledgements that are not durable yet.",
        (
            Edit(
                CURSOR_LOG,
                "CursorLog.slowest_offset",
                "c.confirmed_to for c",
                "c.acks.acked_to for c",
            ),
        ),
    ),
    Mutant(
        "trim-deletes-before-the-cas",
        "SEMANTICS.md, retention; I9",
        "Ledgers are deleted, and then taken off the list.",
        (
            Edit(
                RETENTION,
                "Retention._let_go",
                "        await self._ensure_persisted(settled)\n",
                "        await self._ensure_persisted(settled)\n"
                "        for early in self._trimmable(self._node.ledger_list):\n"
                "            await self._ledgers.delete(early)\n",
            ),
        ),
    ),
)

GENERATIONS = (
    Mutant(
        "generations-of-owners-meet",
        "SEMANTICS.md, subscriptions",
        "A seek raises the generation by one, whoever the owner is: ids that an owner gave out "
        "after a seek that was lost acknowledge after the next owner's seek.",
        (
            Edit(
                CURSORS,
                "next_generation",
                "    return max(generation + 1, epoch * GENERATIONS_AN_EPOCH)\n",
                "    return generation + 1\n",
            ),
        ),
    ),
    Mutant(
        "cumulative-ack-from-before-a-seek",
        "SEMANTICS.md, subscriptions",
        "A cumulative acknowledgement counts whatever generation its id is of.",
        (
            Edit(
                SUBSCRIPTIONS,
                "Subscriptions.ack_through",
                "        if not self._is_known(subscription, parsed):\n",
                "        if False:\n",
            ),
        ),
    ),
)

MISSING_CURSORS = (
    Mutant(
        "trimmed-before-cursors-are-complete",
        "SEMANTICS.md, retention",
        "Retention takes a partition that has no cursor yet for one that nobody needs.",
        (
            Edit(
                RETENTION,
                "Retention._let_go",
                "        if not self._has_all_cursors:\n",
                "        if False:\n",
            ),
        ),
    ),
    Mutant(
        "missing-cursor-never-opened",
        "SEMANTICS.md, subscriptions",
        "A partition that was seen without a cursor is not looked at again, neither by the "
        "reconciler nor by retention.",
        (
            Edit(
                RECONCILER,
                "CursorReconciler.reconcile",
                "if topic_id not in subscribed and not opened.subscriptions.all():",
                "if not opened.subscriptions.all():",
            ),
            Edit(
                RETENTION,
                "Retention._let_go",
                "        if not self._has_all_cursors:\n",
                "        if False:\n",
            ),
        ),
    ),
    Mutant(
        "cursors-completed-from-a-stale-registry",
        "SEMANTICS.md, retention",
        "The registry that cursors are completed from may be read from a server that lags.",
        (
            Edit(
                REGISTRY,
                "SubscriptionRegistry.list_latest",
                "        session_id = await catch_up(self._store)\n",
                "        session_id = self._store.session_id\n",
            ),
        ),
    ),
)

ENDS = (
    Mutant(
        "all-is-too-old",
        "SEMANTICS.md, time to live",
        "Time to live acknowledges what is not that old.",
        (
            Edit(
                RETENTION,
                "Retention._expire",
                "await self._older_than(self.policy.ttl_ms)",
                "self._reader.tail_offset",
            ),
        ),
    ),
    Mutant(
        "evicted-to-the-tail",
        "SEMANTICS.md, quotas",
        "Over its quota a subscription loses all of its backlog.",
        (
            Edit(
                RETENTION,
                "Retention._check_quota",
                "            await self._evict_below(bound)\n",
                "            await self._evict_below(self._reader.tail_offset)\n",
            ),
        ),
    ),
    Mutant(
        "a-cursor-in-memory-begins-at-the-tail",
        "SEMANTICS.md, not durable",
        "A subscription that is not durable misses what it has not seen yet.",
        (
            Edit(
                TABLE,
                "SubscriptionTable.open",
                "self._start_of(info) if start_offset is None else start_offset\n",
                "self._start_of(info) if info.config.durable else self._reader.tail_offset\n",
            ),
        ),
    ),
    Mutant(
        "a-cursor-in-memory-holds",
        "SEMANTICS.md, not durable",
        "A subscription that is not durable keeps messages from going.",
        (
            Edit(
                CURSOR_LOG,
                "CursorLog.slowest_offset",
                "self._durable.by_id.values()",
                "{**self._durable.by_id, **self._volatile.by_id}.values()",
            ),
        ),
    ),
    Mutant(
        "a-pull-that-was-given-up-keeps-its-messages",
        "SEMANTICS.md, leases",
        "What a pull had taken when its client went away stays with that client.",
        (
            Edit(
                PULL,
                "PullOperation.run",
                "self._dispatch.give_back([message.offset for message in self._taken])\n",
                "pass\n",
            ),
        ),
    ),
    Mutant(
        "a-seek-goes-on-where-it-was",
        "SEMANTICS.md, subscriptions",
        "After a seek messages are handed out from where they were.",
        (
            Edit(
                SUBSCRIPTIONS,
                "Subscriptions.seek",
                "        subscription.restart()\n",
                "",
            ),
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = (
    *CURSOR_MUTANTS,
    *DISPATCH,
    *TRIMMING,
    *GENERATIONS,
    *MISSING_CURSORS,
    *ENDS,
)
