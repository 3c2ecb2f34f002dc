"""The plan of some seeds of topics: consumers call a subscription of all partitions of the topic
over HTTP, through any broker, while partitions change their owners.

Each twelfth seed is such a history (23, 35, …), but for those of ``plan/topic_bookies.py`` and
``topics/calls/lost_pulls.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from fencelog.broker.registry.subscription_config import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    SubscriptionConfig,
)
from tests.sim.plan.plan import Fault, Moment
from tests.sim.plan.topic_bookies import DOUBTED_AT, STAGED_EVERY
from tests.sim.plan.topic_draw import SHAPES
from tests.sim.plan.topic_forwards import HTTP_TARGETS, OWNERS_GO, SILENT
from tests.sim.plan.topic_plan import ProducerPlan, Sending, TopicPlan

EVERY, REST = 12, 11
"""The number of seeds of which the one with this remainder is such a history."""

DAY_MS = 24 * 3600 * 1000

TYPES = (EXCLUSIVE, EXCLUSIVE, EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED)

MOVES = (*OWNERS_GO, "unload", "unload", "kill broker", "believe", "session expires")
"""A partition changes its owner; and so does the arbiter of an exclusive subscription."""

DELAYS = ("slow metadata", "slow bookie", "clog", "changes refused", "cut off", "kill bookie")

SILENCE_MS = 4_000
"""Long enough for the session of a silent owner to end, and whoever waits for it to learn that."""

STAGES, BROKEN, ONE_CONSUMER, SILENT_AMID = 4, 1, 2, 3
"""The stages of four such histories in a row: one in which all connections break now and then, one
in which consumers contend for an exclusive subscription, and one in which an owner falls silent
amid changes of cursors, which take it long."""

EVENTS = ("append ack", "append ack", "takeover", "rolling", "recovering", "created")


@dataclass(frozen=True, slots=True)
class CallerPlan:
    """A consumer. ``rests``: how often it does nothing for longer than a lease; ``keeps``: … it
    keeps what it got until the leases end; the last ones say how often it does so with what it got,
    instead of acknowledging all of it one by one."""

    machine: str
    starts_ms: int
    pulls: int
    thinks_ms: int
    one_partition: float
    rests: float
    keeps: float
    through: float
    refuses: float
    extends: float
    seeks: float
    gives_back: bool = False
    """True if it is an ``OrderedCaller``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan(TopicPlan):
    """``readers``, ``subscriptions`` and ``consumers`` are empty."""

    config: SubscriptionConfig
    callers: tuple[CallerPlan, ...]
    replays: bool = False
    """True if dead letters are replayed (``letters/plan.py``)."""


def has_calls(seed: int) -> bool:
    """Tell whether a seed of the topics' kind is such a history."""
    return seed % EVERY == REST and seed % STAGED_EVERY != DOUBTED_AT


def draw_call_plan(seed: int) -> CallPlan:
    """Draw everything that the seed decides in advance."""
    plan = plain_call_plan(Random(f"call plan {seed}"), seed)
    random = Random(f"call plan {seed}, staged")
    stage = seed // EVERY % STAGES
    if stage == BROKEN:
        return _broken(random, plan)
    if stage == ONE_CONSUMER:
        return _one_consumer(random, plan)
    return _silent_amid(random, plan) if stage == SILENT_AMID else plan


def plain_call_plan(random: Random, seed: int) -> CallPlan:
    """Draw a plan without a stage."""
    return _Draw(random).plan(seed)


def _broken(random: Random, plan: CallPlan) -> CallPlan:
    """The same, with connections that break, and now and then cannot be made again; changes of
    cursors and batches of messages are on the way."""
    moment = Moment("start", 0, random.randint(100, 300))
    brokers = [f"k{n + 1}" for n in range(plan.brokers)]
    breaks = random.choice((0.1, 0.2, 0.3))
    faults = [
        Fault(moment, kind, broker, plan.length_ms, share)
        for kind, share in (("connections break", breaks), ("no connections", 0.7))
        for broker in brokers
    ]
    producers = [
        replace(
            producer,
            over_http=True,
            conditions="none",
            wanders=0.4,
            sendings=tuple(replace(each, sizes=(0, 1, 2)) for each in producer.sendings),
        )
        for producer in plan.producers
    ]
    return replace(
        plan,
        producers=tuple(producers),
        callers=_eager(random, plan),
        faults=(*plan.faults, *faults),
    )


def _one_consumer(random: Random, plan: CallPlan) -> CallPlan:
    """The same, with consumers that take one message at a time, and often keep it for as long as
    they may."""
    lease_ms = random.choice((100, 300))
    callers = [
        replace(plan.callers[0], machine=f"c{n + 1}", pulls=1, rests=0.3, keeps=0.6, seeks=0.0)
        for n in range(4)
    ]
    return replace(
        plan,
        config=replace(plan.config, type=EXCLUSIVE, lease_ms=lease_ms),
        callers=tuple(callers),
        faults=tuple(fault for fault in plan.faults if random.random() < 0.3),
    )


def _silent_amid(random: Random, plan: CallPlan) -> CallPlan:
    """The same, with owners that fall silent, one after the other, or lose their logs, while all
    bookies are slow."""
    slow = [
        Fault(Moment("start", 0, 300), "slow bookie", f"b{n + 1}", SILENCE_MS, 0.05)
        for n in range(plan.bookies)
    ]
    brokers = ("k1", random.choice(("k2", "k3")))  # k1 has the first partition
    first, count = plan.callers[0], len(plan.callers)
    more = [replace(first, machine=f"c{count + n + 1}") for n in range(8)]
    kinds = ("pause broker", random.choice((*SILENT, "believe", "believe")))
    gone = [
        Fault(
            Moment("append ack", random.randint(3, 30), random.choice((0, 5, 20, 50))),
            kind,
            broker,
            random.choice((2_500, 3_000)),
            0.5,
        )
        for broker, kind in zip(brokers, kinds, strict=True)
    ]
    return replace(
        plan,
        brokers=3,
        callers=_eager(random, replace(plan, callers=(*plan.callers, *more))),
        faults=(*slow, *gone, *(fault for fault in plan.faults if random.random() < 0.3)),
        length_ms=SILENCE_MS,
        session_ms=1_200,
        config=replace(
            plan.config,
            type=random.choice((EXCLUSIVE, SHARED, SHARED, KEY_SHARED)),
            lease_ms=random.choice((300, 800)),
        ),
    )


def _eager(random: Random, plan: CallPlan) -> tuple[CallerPlan, ...]:
    """Consumers that mostly change cursors."""
    return tuple(
        replace(
            caller,
            rests=0.0,
            keeps=0.0,
            pulls=random.choice((1, 3)),
            thinks_ms=random.choice((1, 20)),
            refuses=0.1,
            seeks=random.choice((0.1, 0.3)),
        )
        for caller in plan.callers
    )


class _Draw:
    """The order of the calls is part of what a seed means."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._is_silent = random.random() < 0.35
        self._length_ms = SILENCE_MS if self._is_silent else random.choice((1_500, 2_500, 3_500))
        self._brokers = random.choice((2, 3, 3))
        self._partitions = random.choice((2, 2, 3))

    def plan(self, seed: int) -> CallPlan:
        random = self._random
        return CallPlan(
            bookies=3,
            write_cache_bytes=16 * 1024,
            flush_ms=5_000,
            file_bytes=64 * 1024,
            victim="",
            is_victim_synced=True,
            garbage_ms=15_000,
            scrub_ms=20_000,
            repairs_itself=True,
            seed=seed,
            brokers=self._brokers,
            partitions=self._partitions,
            overrides=self._overrides(),
            session_ms=random.choice((1_200, 1_200, 2_500)),
            producers=tuple(self._producer(n + 1) for n in range(random.choice((2, 3, 4)))),
            readers=(),
            subscriptions=(),
            consumers=(),
            config=self._config(),
            callers=tuple(self._caller(n + 1) for n in range(random.choice((2, 2, 3)))),
            faults=tuple(self._faults()),
            length_ms=self._length_ms,
            hurries=random.choice((0.0, 0.0, 0.1)),
        )

    def _overrides(self) -> dict[str, int | str]:
        random = self._random
        names = ("ensemble_size", "write_quorum", "ack_quorum")
        overrides: dict[str, int | str] = {
            **dict(zip(names, random.choice(SHAPES), strict=True)),
            "roll_entries": random.choice((2, 5, 20, 1000)),
            "idempotency_window_ms": DAY_MS,
        }
        if random.random() < 0.3:
            overrides |= {"retention_bytes": random.choice((1, 500))}
        return overrides

    def _config(self) -> SubscriptionConfig:
        random = self._random
        return SubscriptionConfig(
            type=random.choice(TYPES),
            lease_ms=random.choice((30, 100, 300, 800)),
            backoff_min_ms=random.choice((0, 20)),
            backoff_max_ms=100,
        )

    def _producer(self, number: int) -> ProducerPlan:
        random = self._random
        return ProducerPlan(
            f"p{number}",
            random.randrange(self._partitions),
            random.choice((0, random.randint(0, self._length_ms // 2))),
            tuple(
                Sending(
                    random.randint(0, random.choice((20, 100, 200))), (0,) * random.choice((1, 3))
                )
                for _ in range(random.choice((10, 20, 30)))
            ),
            conditions=random.choice(("none", "key")),
            wanders=0.1,
            restarts=0.0,
            over_http=random.random() < 0.3,
        )

    def _caller(self, number: int) -> CallerPlan:
        random = self._random
        return CallerPlan(
            f"c{number}",
            starts_ms=random.randint(0, 200),
            pulls=random.choice((1, 3, 20)),
            thinks_ms=random.choice((1, 20, 60)),
            one_partition=random.choice((0.0, 0.0, 0.3)),
            rests=random.choice((0.1, 0.3)),
            keeps=random.choice((0.1, 0.4)),
            through=random.choice((0.0, 0.3)),
            refuses=random.choice((0.0, 0.2)),
            extends=random.choice((0.0, 0.3)),
            seeks=random.choice((0.0, 0.0, 0.1)),
        )

    def _faults(self) -> list[Fault]:
        random = self._random
        faults = [
            self._fault(kind)
            for kinds, counts in (
                (MOVES, (1, 2, 4)),
                (tuple(HTTP_TARGETS), (1, 3, 6)),
                (DELAYS, (0, 1, 2)),
            )
            for kind in random.choices(kinds, k=random.choice(counts))
        ]
        if self._is_silent:
            silent = replace(self._fault(random.choice(SILENT)), duration_ms=SILENCE_MS)
            faults.append(replace(silent, moment=Moment("start", 0, random.randint(200, 1_000))))
        slow = [
            replace(self._fault("clog"), size=random.choice((0.003, 0.01, 0.03, 0.1)))
            for _ in range(random.choice((0, 0, 2, 4)))
        ]
        start = Moment("start", 0, random.randint(0, 300))
        return faults + [replace(each, moment=start, duration_ms=self._length_ms) for each in slow]

    def _fault(self, kind: str) -> Fault:
        random = self._random
        brokers = [f"k{n + 1}" for n in range(self._brokers)]
        target = random.choice(brokers)
        if kind in ("slow bookie", "kill bookie"):
            target = random.choice(("b1", "b2", "b3"))
        elif kind == "clog":
            one, other = random.sample([*brokers, random.choice(("b1", "b2", "b3"))], 2)
            target = f"{one}>{other}"
        moment = Moment(
            random.choice(EVENTS), random.randint(1, 30), random.choice((0, 0, 1, 5, 20))
        )
        if random.random() < 0.5:
            moment = Moment("start", 0, random.randint(0, self._length_ms))
        duration_ms = random.choice((100, 300, 1_000, 1_000, 2_000))
        return Fault(moment, kind, target, duration_ms, random.choice((0.1, 0.3, 0.6, 1.0)))
