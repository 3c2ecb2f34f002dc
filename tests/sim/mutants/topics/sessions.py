"""Wrong brokers: what a new session's server shows counts as the newest. A session has to end
between two requests, and the server of the next one has to lag: a test of the part detects it."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

LIST_STORE = "fencelog.broker.ledger_list.store"
SUBSCRIPTIONS = "fencelog.broker.registry.subscription_registry"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "ours-by-another-session",
        "SEMANTICS.md, producers",
        "An owner that looks whether the log is still its own believes a session that is new.",
        (
            Edit(
                LIST_STORE,
                "LedgerListStore._latest_node_at",
                '                check_session(self._store, session_id, f"read {path}")\n',
                "",
            ),
        ),
    ),
    Mutant(
        "subscriptions-by-another-session",
        "SEMANTICS.md, retention",
        "The subscriptions whose cursors hold messages back are listed by a session that is new.",
        (
            Edit(
                SUBSCRIPTIONS,
                "SubscriptionRegistry.list_latest",
                "        check_session(self._store, session_id, "
                'f"list the subscriptions of topic {topic_id}")\n',
                "",
            ),
        ),
    ),
    Mutant(
        "gone-by-another-session",
        "SEMANTICS.md, retention",
        "A subscription that a new session does not show counts as deleted.",
        (
            Edit(
                SUBSCRIPTIONS,
                "SubscriptionRegistry._get_latest",
                'check_session(self._store, session_id, f"find subscription {name}")',
                "pass",
            ),
        ),
    ),
)
