"""Histories of readers that ask owners for ranges all the time, also those that do not know that
they were replaced, while ledgers are moved, and other readers ask for what comes next.

Drawn by streams of their own, over the plan that the others have made.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from tests.sim.plan.plan import Moment
from tests.sim.plan.topic_owners import BROKERS, one_partition, producer, rarely_drawn, usurpers
from tests.sim.plan.topic_plan import DirectPlan, ReaderPlan, TopicPlan

EVERY, AT = 80, (25, 54)
"""The places, in so many seeds in a row, of these histories."""

RETENTION: tuple[dict[str, int], ...] = ({}, {"retention_bytes": 1}, {"retention_bytes": 500})

SHAPE = {"ensemble_size": 2, "write_quorum": 2, "ack_quorum": 2}
"""Of three bookies, so that there is one that a ledger may be moved to."""


def with_direct_readers(plan: TopicPlan) -> TopicPlan:
    """The same plan, or that of a staged history."""
    if plan.seed % EVERY not in AT:
        return plan
    return _asked(Random(f"topic direct {plan.seed}"), one_partition(plan))


def _asked(random: Random, plan: TopicPlan) -> TopicPlan:
    """Readers ask any owner for ranges and times, or for what comes next. That is all that a
    previous one hears after it was replaced: producers stay with the newest owner."""
    start, plan = Moment("start", 0, 0), replace(plan, brokers=BROKERS)
    over_http = [
        replace(one, machine=f"h{number + 1}", over_http=True)
        for number, one in enumerate(draw_direct_readers(random, 2))
    ]
    return replace(
        plan,
        overrides={
            **plan.overrides,
            **random.choice(RETENTION),
            **SHAPE,
            "roll_entries": random.choice((2, 5, 20, 1_000)),
        },
        producers=tuple(
            replace(producer(random, f"p{n}", "none", wanders=0.0), follows=True) for n in (1, 2)
        ),
        readers=tuple(ReaderPlan(f"t{n}", 0, start, 100, strays=True) for n in (1, 2)),
        direct=(*draw_direct_readers(random, 3), *over_http),
        moves=True,
        faults=(*usurpers(random, plan), *rarely_drawn(plan)),
    )


def draw_direct_readers(random: Random, count: int) -> tuple[DirectPlan, ...]:
    return tuple(
        DirectPlan(
            f"d{number + 1}",
            pause_ms=random.choice((10, 30)),
            confirmed=random.choice((0.2, 0.5, 0.8)),
            times=random.choice((0.1, 0.3)),
            strays=random.choice((0.3, 0.6)),
        )
        for number in range(count)
    )
