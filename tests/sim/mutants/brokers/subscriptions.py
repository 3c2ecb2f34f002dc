"""Wrong subscriptions and settings: deliveries out of order or to two, acknowledgements that are
miscounted, and settings of a topic or namespace that are lost or taken for others."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

CACHE = "fencelog.broker.registry.topic_cache"
CONSUMERS = "fencelog.broker.dispatch.consumers"
KEY_SHARED = "fencelog.broker.dispatch.key_shared"
NAMESPACES = "fencelog.broker.registry.namespaces"
NODE = "fencelog.broker.registry.topic_node"
OFFSETS = "fencelog.broker.dispatch.offsets"
POLICY = "fencelog.broker.policy"
RANGES = "fencelog.broker.dispatch.ack_ranges"
STATE = "fencelog.broker.subscriptions.state"

_CONSUMERS = "SEMANTICS.md, consumers"
_KEYS = "SEMANTICS.md, key_shared"
_LEAST = "SEMANTICS.md, at least once"
_ONCE = "SEMANTICS.md, idempotency keys"
_SETTINGS = "SEMANTICS.md, retention and deletion: settings"

ACKNOWLEDGED = (
    Mutant(
        "between-two-ranges-is-acknowledged",
        _LEAST,
        "A range that ends where a later one will begin takes in the message between them.",
        (
            Edit(
                RANGES,
                "AckRanges.add",
                "high = bisect_right(self._firsts, end)",
                "high = bisect_right(self._firsts, end + 1)",
            ),
        ),
    ),
    Mutant(
        "last-of-a-range-is-left",
        _LEAST,
        "Of many messages that are taken together the last one is delivered once more.",
        (
            Edit(
                OFFSETS,
                "OffsetSet._span",
                "bisect_left(self._sorted, highest + 1)",
                "bisect_left(self._sorted, highest)",
            ),
        ),
    ),
    Mutant(
        "failures-in-memory-only",
        "SEMANTICS.md, nacked messages",
        "Failures of messages are not recorded in the state log.",
        (
            Edit(
                STATE,
                "SubscriptionState.failed",
                "        self.cursors.note_failures(self.id, offsets)\n",
                "",
            ),
        ),
    ),
)

CONSUMED = (
    Mutant(
        "an-earlier-one-after-a-later",
        _KEYS,
        "A message is delivered while its consumer has a later one of its key.",
        (
            Edit(
                KEY_SHARED,
                "KeySharedDispatch._may_take",
                "(key.holder == consumer and offset > key.latest)",
                "key.holder == consumer",
            ),
            Edit(
                KEY_SHARED,
                "KeySharedDispatch._list",
                "            elif key.waiting[0] > key.latest:\n",
                "            else:\n",
            ),
        ),
    ),
    Mutant(
        "overtaken-while-it-backs-off",
        _KEYS,
        "Later messages of its key do not wait for a message that backs off.",
        (
            Edit(
                KEY_SHARED,
                "KeySharedDispatch._back_off",
                "            self._wait(offset)\n",
                "            self._key(self._name_of[offset])\n",
            ),
        ),
    ),
    Mutant(
        "presence-of-the-last-request-alone",
        _CONSUMERS,
        "A short lease ends the presence that a longer one has given.",
        (
            Edit(
                CONSUMERS,
                "ConsumerTable.touch",
                "max(consumer.until, until)",
                "until",
            ),
        ),
    ),
    Mutant(
        "gone-after-its-wait",
        _CONSUMERS,
        "A consumer whose wait has ended is gone, whatever its lease.",
        (
            Edit(
                STATE,
                "SubscriptionState.end_wait",
                "        self.heard_of(consumer, self.now() + self.info.config.lease_ms / 1000)\n",
                "",
            ),
        ),
    ),
)

SETTINGS = (
    Mutant(
        "fewer-copies-than-a-level-asks",
        _SETTINGS,
        "Of levels that do not fit together the last one decides how many copies there are.",
        (
            Edit(
                POLICY,
                "Policy.inherited_by",
                "ensemble_size=max(policy.ensemble_size, write_quorum),",
                "ensemble_size=policy.ensemble_size,",
            ),
            Edit(
                POLICY,
                "Policy.inherited_by",
                "max(policy.write_quorum, policy.ack_quorum)",
                "min(policy.write_quorum, policy.ensemble_size)",
            ),
        ),
    ),
    Mutant(
        "one-of-several-copies-unasked",
        _SETTINGS,
        "Levels that were set one after the other acknowledge one of several copies.",
        (
            Edit(
                POLICY,
                "Policy.inherited_by",
                "            ack_quorum = 2  # nobody has consented to one of several\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "growth-forgets-the-counts-before",
        _ONCE,
        "A topic that grows again forgets by which numbers keys were routed before.",
        (
            Edit(
                NODE,
                "TopicInfo.grown_at",
                "return (*kept, PreviousCount(",
                "return (*kept[:0], PreviousCount(",
            ),
        ),
    ),
    Mutant(
        "deleted-before-it-was-read",
        "SEMANTICS.md, delete",
        "A topic counts as deleted when its namespace is known before it.",
        (
            Edit(
                NODE,
                "TopicWatch._tell",
                "if self._seen and self._node is None:",
                "if self._node is None:",
            ),
        ),
    ),
    Mutant(
        "unreadable-is-gone",
        "SEMANTICS.md, delete",
        "A topic whose node cannot be decoded counts as deleted.",
        (
            Edit(
                NODE,
                "TopicWatch._tell",
                '                log.error("%s", error)\n',
                '                log.error("%s", error)\n                self._callback(None)\n',
            ),
        ),
    ),
    Mutant(
        "namesake-taken-for-the-topic",
        "SEMANTICS.md, delete",
        "A topic that was deleted and made again goes on at a broker as the former one.",
        (
            Edit(
                CACHE,
                "TopicCache._seen",
                "if info is not None and info.topic_id == topic_id:",
                "if info is not None:",
            ),
        ),
    ),
    Mutant(
        "settings-go-back",
        _SETTINGS,
        "A late answer of an earlier change undoes what a watch has told since.",
        (
            Edit(
                CACHE,
                "TopicCache.changed",
                "if known[0].version.number < info.version.number:",
                "if known[0] != info:",
            ),
        ),
    ),
    Mutant(
        "unreadable-namespace-has-no-settings",
        _SETTINGS,
        "The topics of a namespace whose node cannot be decoded have the cluster's settings.",
        (
            Edit(
                NAMESPACES,
                "Namespaces._on_change",
                '            log.error("%s", error)\n            return\n',
                '            log.error("%s", error)\n            shared.overrides = {}\n',
            ),
        ),
    ),
    Mutant(
        "first-to-leave-ends-the-watch",
        _SETTINGS,
        "When one topic of a namespace is closed, the others hear of no change any more.",
        (
            Edit(
                NAMESPACES,
                "Namespaces.unlisten",
                "if not shared.listeners and shared.watch is not None:",
                "if shared.watch is not None:",
            ),
        ),
    ),
    Mutant(
        "namespace-of-another-creator",
        "SEMANTICS.md, delete",
        "Whoever finds a namespace with the same settings has created it.",
        (
            Edit(
                NAMESPACES,
                "Namespaces.create",
                "return found[0], found[0].created_us == wanted.created_us",
                "return found[0], True",
            ),
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*ACKNOWLEDGED, *CONSUMED, *SETTINGS)
