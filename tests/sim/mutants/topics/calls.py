"""Wrong calls: requests to subscriptions over several partitions and owners, and the one consumer
of an exclusive subscription, against the rules of broker/SEMANTICS.md."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

HOLDS = "fencelog.api.subscriptions.exclusive_lease"
OWNERS = "fencelog.api.subscriptions.owners"
PULL = "fencelog.api.subscriptions.pull"
PROXY = "fencelog.api.routing.owner_proxy"
FORWARD = "fencelog.api.routing.forward"
SUBSCRIPTIONS = "fencelog.broker.subscriptions.subscriptions"

EXCLUSIVE = (
    Mutant(
        "held-for-less-than-the-leases",
        "SEMANTICS.md, exclusive: one consumer",
        "A consumer is the only one for half the time of what it leases.",
        (
            Edit(
                HOLDS,
                "ExclusiveLease._hold",
                "longer_ms = min(lease_ms + lease_ms // MARGIN",
                "longer_ms = min(lease_ms // 2",
            ),
        ),
    ),
    Mutant(
        "leased-and-not-held-is-a-refusal",
        "SEMANTICS.md, exclusive: one consumer",
        "A consumer has leases that the answer denies, since another one was admitted meanwhile.",
        (
            Edit(
                HOLDS,
                "ExclusiveLease.while_held",
                "raise FencelogError(ErrorCode.STATE_UNKNOWN, error.detail) from error",
                "raise",
            ),
        ),
    ),
    Mutant(
        "arbiter-not-asked",
        "SEMANTICS.md, exclusive: one consumer",
        "Only what was passed on makes sure of its consumer.",
        (
            Edit(
                HOLDS,
                "ExclusiveLease._hold",
                "OVER_LINK in exchange.scope",
                "OVER_LINK not in exchange.scope",
            ),
        ),
    ),
    Mutant(
        "arbiter-says-yes",
        "SEMANTICS.md, exclusive: one consumer",
        "The arbiter takes note of consumers, and refuses none.",
        (
            Edit(
                SUBSCRIPTIONS,
                "Subscriptions.hold",
                "subscription.dispatch.admit(check_consumer(consumer), now, lease_s)",
                "subscription._consumers.arrive(check_consumer(consumer), now, now + lease_s)",
            ),
        ),
    ),
)

PASSED_ON = (
    Mutant(
        "lost-acknowledgement-is-a-refusal",
        "SEMANTICS.md, for subscribers: state_unknown",
        "An acknowledgement that was passed on and not answered counts as not done.",
        (
            Edit(
                OWNERS,
                "SubscriptionOwners._at_owner",
                "lost = ErrorCode.READ_UNKNOWN if is_view else ErrorCode.STATE_UNKNOWN",
                "lost = ErrorCode.READ_UNKNOWN",
            ),
        ),
    ),
    Mutant(
        "partly-done-is-refused",
        "SEMANTICS.md, for subscribers: state_unknown",
        "What some partitions have done is answered with the error of another one.",
        (
            Edit(
                OWNERS,
                "all_or_problem",
                "if not done and (len(errors) == 1 or",
                "if (len(errors) == 1 or",
            ),
        ),
    ),
    Mutant(
        "messages-lost-in-a-pull",
        "SEMANTICS.md, for subscribers: leases",
        "A pull that one partition has failed gives nothing, though others have leased messages.",
        (
            Edit(
                PULL,
                "PullService.pull",
                "if errors and not found:",
                "if errors:",
            ),
        ),
    ),
)

TWICE = (
    Mutant(
        "silent-owner-is-passed-over",
        "SEMANTICS.md, for subscribers: state_unknown",
        "A change of a cursor that an owner has not answered until its session ended goes to the "
        "next owner.",
        (
            Edit(
                PROXY,
                "OwnerProxy._ask",
                "if exchange.method not in READING or exchange.started or not began:",
                'if (exchange.method not in READING and "/subscriptions/" not in exchange.path) '
                "or exchange.started or not began:",
            ),
        ),
    ),
    Mutant(
        "unknown-change-goes-to-the-next-owner",
        "SEMANTICS.md, for subscribers: state_unknown",
        "A change of a cursor that a lost log leaves unknown is made by the next owner.",
        (
            Edit(
                PROXY,
                "OwnerProxy.at_owner",
                "if error.code not in LET_GO or",
                "if error.code not in (*LET_GO, ErrorCode.STATE_UNKNOWN) or",
            ),
        ),
    ),
    Mutant(
        "broken-answer-is-asked-for-again",
        "SEMANTICS.md, for subscribers: state_unknown",
        "A change of a cursor whose answer breaks off is asked for again.",
        (
            Edit(
                FORWARD,
                "Forwarder.ask",
                "raise FencelogError(lost, error.detail) from error",
                "raise FencelogError(ErrorCode.NOT_OWNER, error.detail) from error",
            ),
        ),
    ),
)
"""Changes of cursors that are made once more, by whoever is the owner then."""

MUTANTS = EXCLUSIVE + PASSED_ON + TWICE
