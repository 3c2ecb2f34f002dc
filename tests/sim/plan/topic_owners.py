"""Staged histories of owners that are replaced and do not know it yet, and of owners that stay.

A broker that *believes* takes a log over and says nothing to its owner, who learns of it by the
next entry or the next change of the ledger list. What is asked of it before that, and what waits
for the change, is what most of these histories are about. In the others the owner stays: it does
not learn what became of its own changes of the list, a seek meets acknowledgements that are not
durable yet, or its bookies are gone for longer than appends wait.

Drawn by a stream of its own, over the plan that the others have made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from fencelog.broker.registry.subscription_config import (
    EXCLUSIVE,
    SHARED,
    TYPES,
    SubscriptionConfig,
)
from tests.sim.plan.plan import Fault, Moment
from tests.sim.plan.topic_forwards import CUT_ANSWERS
from tests.sim.plan.topic_plan import (
    ConsumerPlan,
    ProducerPlan,
    Sending,
    SubscriptionPlan,
    TopicPlan,
    late_servers,
)
from tests.sim.topics.rover import SUBSCRIPTIONS, faults_of_rover

EVERY, ROVING_AT, REPLACED_AT = 20, 5, 6
"""Of so many seeds in a row those with these remainders are staged."""

MOVED_EVERY, MOVED_AT = 40, 22
"""Of the others, one in so many moves: not one that committers take (``commits/plan.py``)."""

UNANSWERED_AT, UNAWARE_AT, SOUGHT_AT = 27, 34, 38
"""Of ``MOVED_EVERY`` those in which the owner stays, or those before it are asked."""

RARELY_DRAWN = ("mute", "power loss")
"""Kinds of faults that three to six of 1,200 seeds have."""

LENGTH_MS = 3_000
BROKERS = 3
"""Enough for one that passes on, a previous owner and the present one."""

STRAYS = 2
"""The consumers of each subscription in such a history."""

ROVING_MS = 10_000
"""Long enough for several owners, each of which is replaced."""

UNANSWERED_MS = 10_000
"""Long enough for several changes that are made again, each after the connection was."""

SILENT_MS = 30
"""Long enough for some appends to reach bookies that answer no more."""


def with_owners(plan: TopicPlan) -> TopicPlan:
    """The same plan, or that of a staged history."""
    random = Random(f"topic owners {plan.seed}")
    place = plan.seed % EVERY
    if plan.seed % MOVED_EVERY == MOVED_AT:
        return _moved(random, one_partition(plan))
    if plan.seed % MOVED_EVERY == UNANSWERED_AT:
        return _unanswered(random, one_partition(plan))
    if plan.seed % MOVED_EVERY == UNAWARE_AT:
        return _unaware(random, one_partition(plan))
    if plan.seed % MOVED_EVERY == SOUGHT_AT:
        return _sought(random, one_partition(plan))
    if place == ROVING_AT:
        return _roving(random, one_partition(plan))
    if place == REPLACED_AT:
        scene = REPLACED[plan.seed // EVERY % len(REPLACED)]
        return scene(random, one_partition(plan))
    return plan


def one_partition(plan: TopicPlan) -> TopicPlan:
    """Return the plan without quotas, time to live and retention, subscriptions and readers."""
    kept = ("ensemble_size", "write_quorum", "ack_quorum", "idempotency_window_ms")
    return replace(
        plan,
        partitions=1,
        overrides={name: plan.overrides[name] for name in kept},
        readers=(),
        subscriptions=(),
        consumers=(),
        dead_letters=None,
        delays=0.0,
        hurries=0.0,
        forgets=False,
        length_ms=LENGTH_MS,
    )


def _overtaken(random: Random, plan: TopicPlan) -> TopicPlan:
    """One producer, which numbers its messages, goes to and fro between the owner and the one that
    has replaced it. Servers of metadata are late, so that the previous owner must not believe what
    it reads."""
    return replace(
        plan,
        overrides={**plan.overrides, "roll_entries": 1_000},
        producers=(producer(random, "p1", "sequence", wanders=0.5),),
        faults=(*late_servers(plan.brokers, LENGTH_MS), *usurpers(random, plan)),
    )


def usurpers(random: Random, plan: TopicPlan) -> Iterator[Fault]:
    """Yield faults by which one broker after the other believes."""
    for begin_ms in range(random.randint(100, 300), LENGTH_MS, random.choice((150, 250, 400))):
        broker = f"k{random.randint(1, plan.brokers)}"
        at_ms = begin_ms + random.randint(0, 50)
        yield Fault(Moment("start", 0, at_ms), "believe", broker, 1_000, 0.5)


def _unaware(random: Random, plan: TopicPlan) -> TopicPlan:
    """Consumers ask any owner for what one of them knows (``topics/rover.py``), those of the second
    subscription for the only place. The producer stays with the newest owner, so that the others do
    not learn from an entry that they were replaced."""
    stray = replace(_consumer(random, "c1"), strays=True)
    subscription = _subscription(random)
    shared = replace(subscription.config, type=SHARED)
    exclusive = replace(subscription.config, type=EXCLUSIVE)
    return replace(
        plan,
        brokers=BROKERS,
        overrides={
            **plan.overrides,
            "roll_entries": 1_000,
            "max_subscriptions": SUBSCRIPTIONS + 1,
        },
        producers=(producer(random, "p1", "none", wanders=0.1),),
        subscriptions=(
            replace(subscription, config=shared),
            replace(subscription, name="s2", config=exclusive),
        ),
        consumers=tuple(
            replace(stray, machine=f"c{number}", subscription=(number - 1) // STRAYS)
            for number in range(1, 2 * STRAYS + 1)
        ),
        faults=(*usurpers(random, replace(plan, brokers=BROKERS)), *rarely_drawn(plan)),
    )


def rarely_drawn(plan: TopicPlan) -> Iterator[Fault]:
    """The faults of a plan that few seeds draw: what takes the plan's place keeps them."""
    return (fault for fault in plan.faults if fault.kind in RARELY_DRAWN)


def _changing(random: Random, plan: TopicPlan) -> TopicPlan:
    """Rolls and the state log change the ledger list at once. That takes a new owner long, and
    another one takes the log over meanwhile."""
    slow_s = random.choice((0.1, 0.15, 0.2))
    often = [fault for _ in range(3) for fault in usurpers(random, plan)]
    return replace(
        plan,
        overrides={**plan.overrides, "roll_entries": random.choice((2, 5))},
        producers=tuple(producer(random, f"p{n}", "none", wanders=0.5) for n in (1, 2, 3)),
        subscriptions=(_subscription(random),),
        consumers=tuple(_consumer(random, f"c{n}") for n in (1, 2, 3, 4)),
        faults=(*often, *_after_takeovers(random, plan, slow_s)),
    )


def _after_takeovers(random: Random, plan: TopicPlan, slow_s: float) -> Iterator[Fault]:
    """Whoever took the log over reaches metadata slowly, and soon somebody else believes, or has
    lost its session."""
    for nth in range(1, 40):
        begun = Moment("takeover", nth, random.choice((0, 5)))
        for number in range(1, plan.brokers + 1):
            yield Fault(begun, "slow metadata", f"k{number}", 200, slow_s)
        soon = Moment("takeover", nth, random.choice((0, 5, 20, 50, 100, 200)))
        kind = random.choice(("believe", "session expires"))
        yield Fault(soon, kind, f"k{random.randint(1, plan.brokers)}", 1_000, 0.5)


def _roving(random: Random, plan: TopicPlan) -> TopicPlan:
    """One owner after the other is cut off from its bookies, and replaced (``topics/rover.py``)."""
    return replace(
        plan,
        overrides={**plan.overrides, "roll_entries": random.choice((5, 20, 1_000))},
        producers=(producer(random, "p1", "none", wanders=0.1, count=400),),
        subscriptions=(_subscription(random),),
        consumers=(replace(_consumer(random, "c1"), roves=True),),
        faults=tuple(faults_of_rover(random, plan.brokers, ROVING_MS)),
        length_ms=ROVING_MS,
    )


def _moved(random: Random, plan: TopicPlan) -> TopicPlan:
    """The partition moves from broker to broker, and clients send batches over HTTP to any of them,
    whose servers of metadata are late: they pass them on to the previous owner, and some of these
    connections break."""
    every_ms = random.choice((100, 200, 300))
    unloads = [
        Fault(Moment("start", 0, begin_ms + random.randint(0, 50)), "unload", f"k{number}", 1, 0.5)
        for begin_ms in range(200, LENGTH_MS, every_ms)
        for number in range(1, BROKERS + 1)
    ]
    breaks = [
        Fault(Moment("start", 0, 200), CUT_ANSWERS, f"k{number}", LENGTH_MS, 0.1)
        for number in range(1, BROKERS + 1)
    ]
    producers = [
        replace(
            producer(random, f"p{n}", random.choice(("none", "key", "sequence")), wanders=0.5),
            over_http=True,
        )
        for n in (1, 2, 3, 4)
    ]
    return replace(
        plan,
        brokers=BROKERS,
        overrides={**plan.overrides, "roll_entries": 1_000},
        producers=tuple(producers),
        faults=(*late_servers(BROKERS, LENGTH_MS), *unloads, *breaks),
    )


def _unanswered(random: Random, plan: TopicPlan) -> TopicPlan:
    """The owner does not learn at once whether its change of the ledger list was made, and hands
    the partition over meanwhile: it finishes what it has begun. So few appends come that none waits
    for long enough to end the log before that."""
    writer = producer(random, "p1", "none", wanders=0.1, count=20)
    slowly = tuple(
        replace(sending, pause_ms=random.choice((100, 300, 500))) for sending in writer.sendings
    )
    nths = sorted(random.sample(range(2, 20), random.choice((4, 8))))
    faults = [
        fault
        for nth in nths
        for when in [random.choice(("created", "created", "sealed"))]
        for delay_ms in [random.choice((0, 0, 1))]
        for later_ms in [random.choice((5, 20, 100))]
        for broker in [f"k{number}" for number in range(1, plan.brokers + 1)]
        for fault in (
            Fault(Moment(when, nth, delay_ms), "change's reply lost", broker, 1, 0.5),
            Fault(Moment(when, nth, later_ms), "unload", broker, 1, 0.5),
        )
    ]
    return replace(
        plan,
        overrides={**plan.overrides, "roll_entries": random.choice((1, 2, 3))},
        producers=(replace(writer, sendings=slowly),),
        faults=tuple(faults),
        length_ms=UNANSWERED_MS,
    )


def _sought(random: Random, plan: TopicPlan) -> TopicPlan:
    """A consumer acknowledges what it has just got and goes back to it at once; it comes for it
    again after the next look of retention, which may take whatever is acknowledged."""
    consumer = replace(
        _consumer(random, "c1"),
        pulls=random.choice((5, 20)),
        thinks_ms=random.choice((50, 100)),
        seeks=random.choice((0.3, 0.5)),
        knows_cursor=True,
    )
    slow = [
        Fault(Moment("start", 0, 0), "clog", f"k{number}>b{bookie}", LENGTH_MS, size)
        for number in range(1, plan.brokers + 1)
        for bookie in range(1, plan.bookies + 1)
        for size in [random.choice((0.001, 0.003))]
    ]
    return replace(
        plan,
        overrides={
            **plan.overrides,
            "retention_bytes": 1,
            "roll_entries": random.choice((1, 2)),
        },
        producers=(producer(random, "p1", "none", wanders=0.1),),
        subscriptions=(_subscription(random),),
        consumers=(consumer,),
        faults=tuple(slow),
    )


def _without_bookies(random: Random, plan: TopicPlan) -> TopicPlan:
    """Now and then all bookies but one fall silent, and then stop with their answers on the way.
    What they hold, and nobody has acknowledged, is in the log once the ledger is recovered; appends
    do not wait for that, since none of its bookies comes back in time."""
    faults = [
        fault
        for begin_ms in (random.randint(200, 600), random.randint(1_900, 2_100))
        for bookie in random.sample(range(1, plan.bookies + 1), plan.bookies - 1)
        for fault in _stopped_amid_answers(random, plan, f"b{bookie}", begin_ms)
    ]
    return replace(
        plan,
        overrides={**plan.overrides, "roll_entries": random.choice((20, 1_000))},
        producers=tuple(producer(random, f"p{n}", "none", wanders=0.1) for n in (1, 2, 3)),
        faults=tuple(faults),
    )


def _stopped_amid_answers(
    random: Random, plan: TopicPlan, bookie: str, begin_ms: int
) -> Iterator[Fault]:
    """Yield faults by which a bookie answers no more, loses its connections, and is down for longer
    than appends wait."""
    end = Moment("start", 0, begin_ms + SILENT_MS)
    yield Fault(Moment("start", 0, begin_ms), "mute", bookie, 2 * SILENT_MS, 0.5)
    for number in range(1, plan.brokers + 1):
        yield Fault(end, "reset", f"k{number}>{bookie}", 1, 0.5)
    yield Fault(end, "kill bookie", bookie, random.choice((900, 1_200)), 0.5)


REPLACED = (_overtaken, _changing, _without_bookies)


def producer(
    random: Random, name: str, conditions: str, wanders: float, count: int = 60
) -> ProducerPlan:
    """Return a producer of the one partition that sends all the time."""
    sendings = tuple(
        Sending(random.randint(5, 40), tuple(random.choice((0, 1)) for _ in range(2)))
        for _ in range(count)
    )
    return ProducerPlan(name, 0, 0, sendings, conditions, wanders, restarts=0.0)


def _subscription(random: Random) -> SubscriptionPlan:
    config = SubscriptionConfig(
        type=random.choice(TYPES), lease_ms=300, backoff_min_ms=0, backoff_max_ms=100
    )
    return SubscriptionPlan("s1", 0, config)


def _consumer(random: Random, name: str) -> ConsumerPlan:
    return ConsumerPlan(
        name,
        subscription=0,
        starts_ms=0,
        pulls=random.choice((1, 3)),
        thinks_ms=random.choice((1, 5)),
        through=0.5,
        vanishes=0.0,
        refuses=0.0,
        extends=0.0,
        seeks=0.0,
    )
