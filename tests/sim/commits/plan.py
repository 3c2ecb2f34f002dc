"""Histories with committers, whose sealed ledgers join the log (``commits/committers.py``).

Drawn by a stream of its own, over the plan that the others have made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from tests.sim.plan.plan import Fault, Moment
from tests.sim.plan.topic_forwards import CUT_ANSWERS
from tests.sim.plan.topic_owners import one_partition
from tests.sim.plan.topic_plan import CommitterPlan, ProducerPlan, Sending, TopicPlan

EVERY, AT, DRAWN_EVERY = 40, 2, 3
"""The place, in so many seeds in a row, of the one that has committers; every third of these is as
it was drawn, besides, the others are staged."""

ROUTED_EVERY, ROUTED_AT = 80, (31, 59, 66)
"""The places of those whose committers ask any broker, over HTTP."""

LENGTH_MS = 4_000

MOVES = (
    *("believe", "unload", "unload", "unload", "session expires", "kill broker", "pause broker"),
    *("slow metadata", "change's reply lost", "changes refused", "metadata reply lost"),
)
"""What befalls owners while requests are on the way to them."""


def with_commits(plan: TopicPlan) -> TopicPlan:
    """The same plan, or with committers besides, or that of a staged history."""
    if plan.seed % ROUTED_EVERY in ROUTED_AT:
        return _routed(Random(f"topic commit routes {plan.seed}"), one_partition(plan))
    random = Random(f"topic commits {plan.seed}")
    if plan.seed % EVERY != AT:
        return plan
    if plan.seed // EVERY % DRAWN_EVERY:
        return _contended(random, plan)
    if "backlog_quota_bytes" in plan.overrides:
        return plan  # nobody could say what may be let in
    number = random.choice((1, 2))
    return replace(plan, committers=tuple(_committer(random, plan, n) for n in range(number)))


def _contended(random: Random, plan: TopicPlan) -> TopicPlan:
    """Committers and a producer at one partition, whose owner is replaced again and again."""
    kept = ("ensemble_size", "write_quorum", "ack_quorum", "idempotency_window_ms")
    staged = replace(
        plan,
        partitions=1,
        overrides={**{name: plan.overrides[name] for name in kept}, "roll_entries": 20},
        readers=(),
        subscriptions=(),
        consumers=(),
        dead_letters=None,
        delays=0.0,
        hurries=random.choice((0.0, 0.3)),
        forgets=random.random() < 0.5,
        producers=(_producer(random),),
        faults=(*plan.faults[:2], *_takers(random, plan), *_clocks(plan)),
        length_ms=LENGTH_MS,
    )
    first, *others = (_committer(random, staged, number) for number in range(3))
    # A partition remembers two (small_limits): the third is refused until the first has ended.
    return replace(
        staged, committers=(replace(first, batches=random.randint(2, 8), ends=True), *others)
    )


def _routed(random: Random, plan: TopicPlan) -> TopicPlan:
    """Committers that are a query's own code, and a producer, at one partition: any broker takes
    their requests, connections break, owners change. A third of the queries give up soon."""
    gives_up_s = random.choice((0.3, 1.0, 120.0))
    committers = [
        replace(_committer(random, plan, n), over_http=True, gives_up_s=gives_up_s)
        for n in range(random.choice((2, 3)))
    ]
    if len(committers) > 2:  # a partition remembers two, see ``_contended``
        committers[0] = replace(committers[0], batches=random.randint(2, 8), ends=True)
    return replace(
        plan,
        overrides={**plan.overrides, "roll_entries": random.choice((5, 20))},
        hurries=random.choice((0.0, 0.0, 0.1)),
        producers=(replace(_producer(random), over_http=True),),
        committers=tuple(committers),
        faults=(*_broken_connections(random, plan), *_moves(random, plan)),
        length_ms=LENGTH_MS,
    )


def _broken_connections(random: Random, plan: TopicPlan) -> Iterator[Fault]:
    """Yield faults by which connections to brokers, and links between them, break all the time, and
    now and then cannot be made."""
    shares = {
        "connections break": random.choice((0.05, 0.15, 0.3)),
        CUT_ANSWERS: random.choice((0.0, 0.05, 0.1)),
    }
    for number in range(1, plan.brokers + 1):
        broker = f"k{number}"
        for kind, share in shares.items():
            yield Fault(Moment("start", 0, 0), kind, broker, LENGTH_MS, share)
        for kind in ("connections refused", "no connections"):
            at = Moment("start", 0, random.randint(0, LENGTH_MS))
            yield Fault(at, kind, broker, random.choice((20, 300)), random.choice((0.5, 1.0)))


def _moves(random: Random, plan: TopicPlan) -> Iterator[Fault]:
    for begin_ms in range(100, LENGTH_MS, random.choice((150, 300))):
        kind, broker = random.choice(MOVES), random.randint(1, plan.brokers)
        at = Moment("start", 0, begin_ms + random.randint(0, 50))
        yield Fault(at, kind, f"k{broker}", random.choice((20, 100, 500)), 0.3)


def _takers(random: Random, plan: TopicPlan) -> Iterator[Fault]:
    """Brokers that believe, are slow to reach metadata, or do not get their answers through."""
    for begin_ms in range(100, LENGTH_MS, random.choice((100, 200, 400))):
        kind, much = random.choice(
            (("believe", 0.5), ("believe", 0.5), ("answers lost", 0.5), ("slow metadata", 0.1))
        )
        at_ms = begin_ms + random.randint(0, 50)
        broker = f"k{random.randint(1, plan.brokers)}"
        yield Fault(Moment("start", 0, at_ms), kind, broker, random.choice((100, 500)), much)


def _clocks(plan: TopicPlan) -> Iterator[Fault]:
    """Yield faults by which clocks jump ahead, and then half of that back, again and again: what is
    published last is often ahead of them."""
    for begin_ms in range(0, LENGTH_MS, 100):
        for number in range(1, plan.brokers + 1):
            for at_ms, size in ((begin_ms, 0.51), (begin_ms + 50, 0.495)):
                yield Fault(Moment("start", 0, at_ms), "clock jumps", f"k{number}", 1, size)


def _committer(random: Random, plan: TopicPlan, number: int) -> CommitterPlan:
    return CommitterPlan(
        f"q{number + 1}",
        random.randrange(plan.partitions),
        random.choice((0, 50, 300)),
        pause_ms=random.choice((0, 0, 20, 100)),
        batches=40,
    )


def _producer(random: Random) -> ProducerPlan:
    sendings = tuple(
        Sending(random.randint(5, 40), tuple(random.choice((0, 1, 2)) for _ in range(2)))
        for _ in range(60)
    )
    conditions = random.choice(("none", "sequence", "key", "offset", "offset"))
    return ProducerPlan("p1", 0, 0, sendings, conditions, wanders=0.2, restarts=0.0)
