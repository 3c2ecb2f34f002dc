"""Wrong limits: quotas that let in what they must not, or hold what they must let in, and producers
that are forgotten, against the rules of broker/SEMANTICS.md."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

DISPATCH = "fencelog.broker.dispatch.base"
COMPACTION = "fencelog.broker.compaction.compaction"
ADMISSION = "fencelog.broker.append.admission"
MODE = "fencelog.broker.append.mode"
PRODUCERS = "fencelog.broker.append.producer_table"
PRODUCER_ACCESS = "fencelog.broker.append.producer_access"
RETENTION = "fencelog.broker.log.retention"

QUOTAS = (
    Mutant(
        "let-in-over-the-quota",
        "SEMANTICS.md, quotas",
        "Over its quota a subscription refuses nothing.",
        (
            Edit(
                ADMISSION,
                "Admission.over_quota",
                "refuses = is_over and self._policy.backlog_action == BACKLOG_REFUSE",
                "refuses = False",
            ),
        ),
    ),
    Mutant(
        "written-while-held",
        "SEMANTICS.md, quotas",
        "Appends that a quota holds are written with the next one that comes.",
        (
            Edit(
                MODE,
                "AppendMode.pause",
                "        self.hold(self.is_held)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "held-for-ever",
        "SEMANTICS.md, quotas",
        "What a quota holds is not refused until the quota is kept again.",
        (
            Edit(
                ADMISSION,
                "Admission.over_quota",
                "            self._timer = self._loop.call_later(HOLD_S, self._give_up)\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "held-only-once",
        "SEMANTICS.md, quotas",
        "What comes after the first appends were refused is held until the quota is kept again.",
        (
            Edit(
                ADMISSION,
                "Admission._give_up",
                "        self._timer = self._loop.call_later(HOLD_S, self._give_up)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "refused-instead-of-held",
        "SEMANTICS.md, quotas",
        "A quota that holds refuses at once.",
        (
            Edit(
                ADMISSION,
                "Admission.over_quota",
                "refuses = is_over and self._policy.backlog_action == BACKLOG_REFUSE",
                "refuses = is_over",
            ),
        ),
    ),
    Mutant(
        "quota-of-the-whole-log",
        "SEMANTICS.md, quotas",
        "What every subscription has acknowledged counts as backlog.",
        (
            Edit(
                RETENTION,
                "Retention._check_quota",
                "self._over_quota(self._is_slowest_below(bound))",
                "self._over_quota(self._cursors.slowest_offset() is not None and bound > 0)",
            ),
        ),
    ),
    Mutant(
        "present-ledger-is-no-backlog",
        "SEMANTICS.md, quotas",
        "Messages count once their ledger is sealed.",
        (
            Edit(
                RETENTION,
                "Retention._check_quota",
                "quota_bound(self.extents(), policy",
                "quota_bound(extents(self._node.ledger_list, None), policy",
            ),
        ),
    ),
)

PRODUCERS_FORGOTTEN = (
    Mutant(
        "nobody-is-forgotten",
        "SEMANTICS.md, exactly once: max_producers",
        "A partition remembers all producers.",
        (
            Edit(
                PRODUCERS,
                "ProducerTable._forget_silent",
                "while len(self._producers) > self.policy.max_producers:",
                "while len(self._producers) > 10_000:",
            ),
        ),
    ),
    Mutant(
        "whoever-came-first-is-forgotten",
        "SEMANTICS.md, exactly once: max_producers",
        "The producer that has been known longest is forgotten, though it writes.",
        (
            Edit(
                PRODUCERS,
                "ProducerTable._commit_sequence",
                "        self._producers.move_to_end(sequences.id)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "takeover-forgets-in-another-order",
        "SEMANTICS.md, exactly once: max_producers",
        "The next owner takes the producers of later events for those that wrote earlier.",
        (
            Edit(
                PRODUCERS,
                "ProducerTable.apply",
                "self._producers.move_to_end(id_)",
                "self._producers.move_to_end(id_, last=False)",
            ),
        ),
    ),
    Mutant(
        "forgotten-with-its-epoch-only",
        "SEMANTICS.md, exactly once: max_producers",
        "A producer that nobody knows may begin with any number.",
        (
            Edit(
                PRODUCERS,
                "ProducerTable.find",
                "        if sequences.sequence == following:\n",
                "        if sequences.sequence == following or (\n"
                "            known is None and not in_flight\n"
                "        ):\n",
            ),
        ),
    ),
)

RANGES = (
    Mutant(
        "acknowledged-beyond-the-ranges",
        "SEMANTICS.md, limits of subscriptions",
        "Beyond the limit of ranges what is acknowledged stays leased, and is delivered again.",
        (
            Edit(
                DISPATCH,
                "Dispatch.acked",
                "        ended = within(self.leases.by_offset, first, end)\n",
                "        if len(self.cursor.acks) >= MAX_ACK_RANGES:\n"
                "            return\n"
                "        ended = within(self.leases.by_offset, first, end)\n",
            ),
        ),
    ),
    Mutant(
        "holes-not-read-again",
        "SEMANTICS.md, limits of subscriptions",
        "An owner that finds too many ranges does not deliver what lies between them either.",
        (
            Edit(
                DISPATCH,
                "Dispatch.may_read",
                " and acks.next_unacked(self.next_offset) >= acks.end:",
                ":",
            ),
        ),
    ),
    Mutant(
        "read-on-beyond-the-ranges",
        "SEMANTICS.md, limits of subscriptions",
        "New messages are delivered however many ranges are acknowledged.",
        (
            Edit(
                DISPATCH,
                "Dispatch.may_read",
                "            return False\n",
                "            pass\n",
            ),
        ),
    ),
)

CLAIMS = (
    Mutant(
        "latest-claim-is-forgotten",
        "SEMANTICS.md, who may append: remembered claims",
        "Beyond the limit a partition forgets the claim that is made, and not the oldest one.",
        (
            Edit(
                PRODUCER_ACCESS,
                "Access._raise_lowest",
                "self._lowest.popitem(last=False)",
                "self._lowest.popitem()",
            ),
        ),
    ),
    Mutant(
        "claim-forgotten-too-early",
        "SEMANTICS.md, who may append: remembered claims",
        "A partition remembers the claims of one producer less than it may.",
        (
            Edit(
                PRODUCER_ACCESS,
                "Access._raise_lowest",
                "if len(self._lowest) > MAX_CLAIMED_PRODUCERS:",
                "if len(self._lowest) >= MAX_CLAIMED_PRODUCERS:",
            ),
        ),
    ),
    Mutant(
        "forgotten-by-the-first-claim",
        "SEMANTICS.md, who may append: remembered claims",
        "The producer is forgotten that claimed first, though it has claimed again since.",
        (
            Edit(
                PRODUCER_ACCESS,
                "Access._raise_lowest",
                "        self._lowest.move_to_end(producer_id)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "claims-in-the-order-of-names",
        "SEMANTICS.md, who may append: remembered claims",
        "A snapshot has the claims by name, so the next owner forgets others than the oldest.",
        (
            Edit(
                PRODUCER_ACCESS,
                "Access.snapshot",
                "in self._lowest.items():",
                "in sorted(self._lowest.items()):",
            ),
        ),
    ),
    Mutant(
        "epochs-of-forgotten-claims-are-given-again",
        "SEMANTICS.md, who may append: remembered claims",
        "A snapshot has the epochs of remembered claims alone, not the highest that was given.",
        (
            Edit(
                PRODUCER_ACCESS,
                "Access.snapshot",
                "        if self._given_epoch:\n"
                '            yield ["given_epoch", self._given_epoch]\n',
                "",
            ),
        ),
    ),
    Mutant(
        "claim-of-who-was-forgotten-is-its-first",
        "SEMANTICS.md, who may append: remembered claims",
        "A producer whose claim was forgotten gets the epoch after the one in the log.",
        (
            Edit(
                PRODUCER_ACCESS,
                "Access.claim",
                "max(self._given_epoch, seen_epoch) + 1",
                "max(self._given_epoch if producer_id in self._lowest else 0, seen_epoch) + 1",
            ),
        ),
    ),
)

CHANGED = (
    Mutant(
        "a-quota-that-is-gone-keeps-appends-out",
        "SEMANTICS.md, quotas",
        "What was over a quota stays so when there is no quota any more.",
        (
            Edit(
                ADMISSION,
                "Admission.over_quota",
                "is_over and self._policy.has_backlog_quota and not self._closed",
                "is_over and not self._closed",
            ),
        ),
    ),
    Mutant(
        "evicted-instead-of-refused",
        "SEMANTICS.md, quotas",
        "A quota that holds or refuses appends acknowledges the oldest messages, too.",
        (
            Edit(
                RETENTION,
                "Retention._check_quota",
                "        if policy.backlog_action == BACKLOG_EVICT:\n",
                "        if policy.backlog_action:\n",
            ),
        ),
    ),
    Mutant(
        "one-producer-fewer-is-remembered",
        "SEMANTICS.md, exactly once: max_producers",
        "A partition forgets a producer as soon as it knows as many as it may.",
        (
            Edit(
                PRODUCERS,
                "ProducerTable._forget_silent",
                "len(self._producers) > self.policy.max_producers",
                "len(self._producers) > max(1, self.policy.max_producers - 1)",
            ),
        ),
    ),
    Mutant(
        "a-gap-ends-the-view",
        "SEMANTICS.md, the compacted view",
        "A view that was not kept up waits for messages that are gone.",
        (
            Edit(
                COMPACTION,
                "LogCompaction._pass",
                "            begin = max(begin, previous.end_offset)\n",
                "            begin = previous.end_offset\n",
            ),
        ),
    ),
)
"""Mutants of limits, and of a view, that operators change."""

MUTANTS = QUOTAS + PRODUCERS_FORGOTTEN + RANGES + CLAIMS + CHANGED

FORGOTTEN_BY_NAME = (
    Mutant(
        "shut-out-though-it-is-forgotten",
        "SEMANTICS.md, who may append: remembered claims",
        "An owner forgets who claimed the partition by name only, and shuts it out as before.",
        (
            Edit(
                PRODUCER_ACCESS,
                "Access._raise_lowest",
                "            del self._lowest_of[producer_digest(oldest.encode())]\n",
                "",
            ),
        ),
    ),
)
"""A producer that is shut out for too long meets an error that may come at any time: a test of the
part detects it."""

CUT_OFF = (
    Mutant(
        "known-before-keeps-its-place",
        "SEMANTICS.md, exactly once: max_producers",
        "A takeover that finds a part of the last events forgets who wrote before others, by them.",
        (
            Edit(
                PRODUCERS,
                "ProducerTable._commit_sequence",
                "        self._producers.move_to_end(sequences.id)\n"
                "        self._forget_silent()\n",
                "        if known is None or known.end_offset <= recent.offset:\n"
                "            self._producers.move_to_end(sequences.id)\n"
                "            self._forget_silent()\n",
            ),
        ),
    ),
)
"""A mutant that one history in thousands would meet: a takeover has to find a part of what was
recorded together."""
