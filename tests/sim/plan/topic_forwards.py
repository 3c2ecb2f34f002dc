"""Producers that send over HTTP, and what befalls their requests and those that are passed on.

Drawn by a stream of its own, over the plan that the others have made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from tests.sim.plan.plan import Fault, Moment
from tests.sim.plan.topic_plan import ProducerPlan, TopicPlan
from tests.sim.topics.http import Http

HTTP_TARGETS = {
    "connections break": "broker",
    "connections refused": "broker",
    "no connections": "broker",
}
"""Kinds of faults, of the connections to a broker, and what they befall."""

CUT_ANSWERS = "links break within answers"
"""A fault of staged histories."""

SHARE = 0.35
"""The share of all histories."""

REFUSALS = 0.2
"""The share of histories with subscriptions."""

EVENTS = ("append", "append ack", "append ack", "takeover", "rolling", "recovering", "sealed")

OWNERS_GO = ("kill broker", "lose broker's power", "pause broker", "unload", "drain broker")
"""Owners that change, or go silent, while requests are on the way to them."""


SILENT = ("pause broker", "pause broker", "lose broker's power")


def with_http(plan: TopicPlan) -> TopicPlan:
    """The same plan, in some histories with producers that any broker serves."""
    random = Random(f"topic forwards {plan.seed}")
    if random.random() >= SHARE:
        return plan
    return replace(
        plan,
        producers=tuple(_over_http(random, producer) for producer in plan.producers),
        faults=(
            *plan.faults,
            *(_fault(random, plan, tuple(HTTP_TARGETS)) for _ in range(random.choice((0, 1, 2)))),
            *(_fault(random, plan, OWNERS_GO) for _ in range(random.choice((0, 1, 2)))),
            *(_silence(random, plan) for _ in range(random.choice((0, 0, 1)))),
        ),
    )


def with_refusals(plan: TopicPlan) -> TopicPlan:
    """The same plan, in some histories with stores that refuse what owners change soon after a
    takeover: mostly the first state ledger is listed then."""
    random = Random(f"topic refusals {plan.seed}")
    if not plan.subscriptions or random.random() >= REFUSALS:
        return plan
    moment = Moment("takeover", random.choice((1, 2, 3)), random.choice((0, 1, 5, 20)))
    brokers = [f"k{n + 1}" for n in range(plan.brokers)]
    refusals = [Fault(moment, "changes refused", broker, 20, 0.1) for broker in brokers]
    return replace(plan, faults=(*plan.faults, *refusals))


def befall(http: Http, fault: Fault) -> Callable[[], None]:
    """Carry a fault out; returns how to undo it."""
    shares = {
        "connections break": http.breaking,
        "connections refused": http.refusing,
        "no connections": http.unreachable,
        CUT_ANSWERS: http.cutting,
    }[fault.kind]
    shares[fault.target] = fault.size

    def undo() -> None:
        shares.pop(fault.target, None)

    return undo


def _over_http(random: Random, producer: ProducerPlan) -> ProducerPlan:
    """Half of those that send again do not: it is for the others to see what is done twice."""
    conditions = producer.conditions if random.random() < 0.5 else "none"
    return replace(
        producer, over_http=True, wanders=random.choice((0.1, 0.4)), conditions=conditions
    )


def _silence(random: Random, plan: TopicPlan) -> Fault:
    """A broker that neither answers nor refuses for longer than its session lives: only the end of
    that says that it is the owner no more."""
    moment = Moment(random.choice(("append", "append ack")), random.randint(1, 20), 0)
    broker = f"k{random.randint(1, plan.brokers)}"
    return Fault(moment, random.choice(SILENT), broker, 3_500, 0.5)


def _fault(random: Random, plan: TopicPlan, kinds: tuple[str, ...]) -> Fault:
    nth = random.choice((1, 2, 3, 5, random.randint(1, 30)))
    moment = Moment(random.choice(EVENTS), nth, random.choice((0, 0, 1, 5, 20)))
    if random.random() < 0.3:
        moment = Moment("start", 0, random.randint(0, plan.length_ms))
    return Fault(
        moment,
        random.choice(kinds),
        f"k{random.randint(1, plan.brokers)}",
        random.choice((20, 300, 2_000)),
        random.choice((0.1, 0.3, 0.6, 1.0)),
    )
