"""Staged histories of logs that roll while the metadata store is slow, of dead letters that do not
get through, of consumers that give back what others have by then, of pulls that are given up, of
cursors that are kept in memory alone, and of adds that bookies do not answer.

Drawn by a stream of its own, over the plan that the others have made.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from fencelog.broker.registry.subscription_config import (
    KEY_SHARED,
    SHARED,
    TYPES,
    SubscriptionConfig,
)
from tests.sim.plan.plan import Fault, Moment
from tests.sim.plan.topic_owners import (
    BROKERS,
    LENGTH_MS,
    one_partition,
    producer,
    rarely_drawn,
    usurpers,
)
from tests.sim.plan.topic_plan import (
    ConsumerPlan,
    ReaderPlan,
    Sending,
    SubscriptionPlan,
    TopicPlan,
)

EVERY, AT = 20, 19
"""The place, in so many seeds in a row, of the staged one."""

LATE_EVERY, LATE_AT = 40, 21
"""That of consumers that are late."""


GIVEN_UP_EVERY, GIVEN_UP_AT = 40, 30
"""That of pulls that are given up."""

IN_MEMORY_EVERY, IN_MEMORY_AT = 40, 35
"""That of subscriptions that are not durable."""

UNANSWERED_EVERY, UNANSWERED_AT = 40, 14
"""That of adds that bookies do not answer."""


def with_stages(plan: TopicPlan) -> TopicPlan:
    """The same plan, or that of a staged history."""
    if plan.seed % LATE_EVERY == LATE_AT:
        return _late(Random(f"topic stages {plan.seed}"), one_partition(plan))
    if plan.seed % GIVEN_UP_EVERY == GIVEN_UP_AT:
        return _given_up(Random(f"topic stages {plan.seed}"), one_partition(plan))
    if plan.seed % IN_MEMORY_EVERY == IN_MEMORY_AT:
        return _in_memory(Random(f"topic stages {plan.seed}"), one_partition(plan))
    if plan.seed % UNANSWERED_EVERY == UNANSWERED_AT:
        return _unanswered(Random(f"topic stages {plan.seed}"), one_partition(plan))
    if plan.seed % EVERY != AT:
        return plan
    scene = SCENES[plan.seed // EVERY % len(SCENES)]
    return scene(Random(f"topic stages {plan.seed}"), one_partition(plan))


def _rolling(random: Random, plan: TopicPlan) -> TopicPlan:
    """Whoever owns the log reaches metadata slowly: messages go on in the next ledger for long
    before the one before it is closed, while readers ask for the ranges of both."""
    readers = tuple(
        ReaderPlan(f"t{n}", 0, Moment("start", 0, 0), random.choice((1, 7, 100))) for n in (1, 2)
    )
    return replace(
        plan,
        overrides={**plan.overrides, "roll_entries": random.choice((2, 3, 5))},
        producers=tuple(producer(random, f"p{n}", "none", wanders=0.1) for n in (1, 2)),
        readers=readers,
        faults=_on_brokers(plan, "slow metadata", random.choice((0.02, 0.05))),
    )


def _dead_letters(random: Random, plan: TopicPlan) -> TopicPlan:
    """Messages fail all the time, and of the answers to those who forward them to the dead letters
    many are lost. What comes back for one subscription passes by another one of the partition."""
    config = SubscriptionConfig(
        type=random.choice(TYPES),
        lease_ms=random.choice((100, 300)),
        backoff_min_ms=0,
        backoff_max_ms=20,
        max_deliveries=random.choice((1, 2)),
    )
    other = replace(config, max_deliveries=None)
    reads_on = replace(_refuser("c3"), subscription=1, pulls=20, refuses=0.0)
    return replace(
        plan,
        partitions=2,
        dead_letters=1,
        producers=(producer(random, "p1", "none", wanders=0.1),),
        subscriptions=(SubscriptionPlan("s1", 0, config), SubscriptionPlan("s2", 0, other)),
        consumers=(_refuser("c1"), _refuser("c2"), reads_on),
        faults=_on_brokers(plan, "answers lost", random.choice((0.2, 0.4))),
    )


def _late(random: Random, plan: TopicPlan) -> TopicPlan:
    """Consumers keep messages for longer than their leases, refuse and extend them by ids of
    earlier deliveries, and of owners that were replaced."""
    config = SubscriptionConfig(
        type=random.choice(TYPES),
        lease_ms=random.choice((100, 200)),
        backoff_min_ms=0,
        backoff_max_ms=20,
    )
    late = replace(
        _refuser("c1"),
        refuses=0.0,
        thinks_ms=random.choice((20, 50, 150)),
        late=random.choice((0.3, 1.0)),  # the last: each owner begins with the same messages
    )
    faults = tuple(usurpers(random, plan)) if random.random() < 0.7 else ()
    return replace(
        plan,
        producers=(producer(random, "p1", "none", wanders=0.1),),
        subscriptions=(SubscriptionPlan("s1", 0, config),),
        consumers=tuple(replace(late, machine=f"c{n}") for n in (1, 2, 3)),
        faults=faults,
    )


def _given_up(random: Random, plan: TopicPlan) -> TopicPlan:
    """Each owner begins with the same messages, and reads them from slow bookies, ledger by ledger:
    consumers give up pulls that have taken some and wait for others."""
    config = SubscriptionConfig(
        type=random.choice((SHARED, KEY_SHARED)),
        lease_ms=random.choice((300, 1_000)),
        backoff_min_ms=0,
        backoff_max_ms=20,
    )
    slow_s = random.choice((0.002, 0.004, 0.006))
    hoarder = replace(_refuser("c1"), pulls=20, thinks_ms=10, refuses=0.0, late=0.7)
    return replace(
        plan,
        overrides={**plan.overrides, "roll_entries": random.choice((1, 2))},
        producers=tuple(producer(random, f"p{n}", "none", wanders=0.1) for n in (1, 2)),
        subscriptions=(SubscriptionPlan("s1", 0, config),),
        consumers=tuple(
            replace(hoarder, machine=f"c{n}", starts_ms=random.randint(300, 1_500))
            for n in (1, 2, 3)
        ),
        hurries=random.choice((0.3, 0.6)),
        faults=(
            *(
                unload
                for at_ms in range(400, LENGTH_MS, random.choice((200, 400)))
                for unload in _on_brokers(plan, "unload", 0.5, at_ms=at_ms)
            ),
            *(
                Fault(Moment("start", 0, 0), "clog", f"{broker}>b{bookie}", LENGTH_MS, slow_s)
                for broker in _brokers(plan)
                for bookie in range(1, plan.bookies + 1)
            ),
        ),
    )


def _in_memory(random: Random, plan: TopicPlan) -> TopicPlan:
    """Retention takes all that is not held, and one of two subscriptions at least is not durable:
    whatever its consumers do, it holds nothing. Mostly its owner stays, so that its cursor does."""
    config = SubscriptionConfig(
        type=random.choice(TYPES), lease_ms=300, backoff_min_ms=0, backoff_max_ms=20, durable=False
    )
    other = replace(config, type=random.choice(TYPES), durable=random.random() < 0.5)
    consumer = replace(
        _refuser("c1"),
        pulls=random.choice((3, 20)),
        refuses=random.choice((0.0, 0.1)),
        seeks=random.choice((0.0, 0.1)),
    )
    return replace(
        plan,
        overrides={
            **plan.overrides,
            "retention_bytes": 1,
            "roll_entries": random.choice((1, 2, 5)),
        },
        producers=tuple(producer(random, f"p{n}", "none", wanders=0.1) for n in (1, 2)),
        subscriptions=(SubscriptionPlan("s1", 0, config), SubscriptionPlan("s2", 0, other)),
        consumers=tuple(
            replace(consumer, machine=f"c{n + 1}", subscription=n % 2) for n in range(3)
        ),
        faults=plan.faults if random.random() < 0.3 else tuple(rarely_drawn(plan)),
    )


def _unanswered(random: Random, plan: TopicPlan) -> TopicPlan:
    """Bookies lose their power one after the other, and are back soon, while a broker has adds of
    several ledgers in flight at each."""
    moments = range(random.randint(2, 6), 120, random.choice((6, 9, 13)))
    partitions = 3
    return replace(
        plan,
        brokers=BROKERS,
        partitions=partitions,
        overrides={**plan.overrides, "roll_entries": 1_000},
        producers=tuple(
            replace(
                producer(random, f"p{n}", "none", wanders=0.0),
                partition=n % partitions,
                sendings=tuple(
                    Sending(random.choice((0, 0, 1, 5)), (0,) * random.choice((1, 3)))
                    for _ in range(40)
                ),
            )
            for n in range(2 * partitions)
        ),
        readers=(),
        subscriptions=(),
        consumers=(),
        faults=tuple(
            Fault(
                Moment("append ack", nth, random.choice((0, 0, 1))),
                "silent power loss",
                f"b{random.randint(1, plan.bookies)}",
                random.choice((20, 100, 300)),
                random.random(),
            )
            for nth in moments
        ),
    )


def _refuser(name: str) -> ConsumerPlan:
    """Return a consumer of the one subscription that refuses most of what it gets."""
    return ConsumerPlan(
        name,
        subscription=0,
        starts_ms=0,
        pulls=3,
        thinks_ms=20,
        through=0.0,
        vanishes=0.1,
        refuses=0.7,
        extends=0.0,
        seeks=0.0,
    )


def _on_brokers(plan: TopicPlan, kind: str, size: float, *, at_ms: int = 0) -> tuple[Fault, ...]:
    """Return the fault that befalls all brokers, from then to the end."""
    moment = Moment("start", 0, at_ms)
    return tuple(Fault(moment, kind, broker, LENGTH_MS, size) for broker in _brokers(plan))


def _brokers(plan: TopicPlan) -> list[str]:
    return [f"k{number}" for number in range(1, plan.brokers + 1)]


SCENES = (_rolling, _dead_letters)
