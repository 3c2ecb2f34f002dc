"""Drawing a plan of the theme ADMINISTRATION from a seed (see ``plan/admin_plan.py``)."""

from __future__ import annotations

from dataclasses import replace
from random import Random  # noqa: TID251 - seeded by the plan's own seed
from typing import Any

from tests.sim.plan.admin_plan import (
    ADMIN_EVENTS,
    EVERY,
    RECONCILE_MS,
    AdminPlan,
    AdminStep,
    GroupPlan,
    WriterPlan,
)
from tests.sim.plan.admin_staged import staged_story
from tests.sim.plan.admin_stories import STORIES, UNSUBSCRIBED, UNSUBSCRIBED_SHARE, Story
from tests.sim.plan.plan import Fault, Moment
from tests.sim.plan.topic_forwards import CUT_ANSWERS
from tests.sim.plan.topic_owners import BROKERS, usurpers
from tests.sim.plan.topic_plan import TOPIC_TARGETS, ReaderPlan, late_servers
from tests.sim.topics.direct.plan import draw_direct_readers

DAY_MS = 24 * 3600 * 1000


def is_administered(seed: int) -> bool:
    """Tell whether a seed of the topics' kind is of this theme."""
    return seed % EVERY == 0


def draw_admin_plan(seed: int) -> AdminPlan:
    """Draw everything that the seed decides in advance."""
    is_unsubscribed = Random(f"admin unsubscribed {seed}").random() < UNSUBSCRIBED_SHARE
    story = staged_story(seed) or (UNSUBSCRIBED if is_unsubscribed else None)
    plan = _Draw(Random(f"admin plan {seed}"), story).plan(seed)
    return with_breaks(with_removals(with_replaced_owners(plan)))


def with_replaced_owners(plan: AdminPlan) -> AdminPlan:
    """The same plan, with owners that are replaced, one after the other, where writers look for
    those that do not know it yet."""
    if not any(writer.strays for writer in plan.writers):
        return plan
    plan = replace(plan, brokers=BROKERS)
    faults = usurpers(Random(f"admin owners {plan.seed}"), plan)
    return replace(plan, faults=(*plan.faults, *faults))


def with_breaks(plan: AdminPlan) -> AdminPlan:
    """The same plan, with connections that break where changes go over some: those of clients, and
    the links between brokers within what the owner answers."""
    if not plan.posts:
        return plan
    random = Random(f"admin breaks {plan.seed}")
    start = Moment("start", 0, 0)
    breaks = [
        Fault(start, kind, f"k{number + 1}", plan.length_ms, random.choice((0.05, 0.1, 0.2)))
        for number in range(plan.brokers)
        for kind in ("connections break", "connections refused", CUT_ANSWERS)
    ]
    return replace(plan, faults=(*plan.faults, *breaks))


def with_removals(plan: AdminPlan) -> AdminPlan:
    """The same plan, with writers that remove keys where there is a compacted view."""
    random = Random(f"admin removals {plan.seed}")
    if not plan.compacts:
        return plan
    return replace(
        plan,
        writers=tuple(
            replace(writer, removes=random.choice((0.0, 0.2, 0.5))) for writer in plan.writers
        ),
    )


class _Draw:
    """One plan in the making. The order of the calls is part of what a seed means."""

    def __init__(self, random: Random, story: Story | None) -> None:
        """``story`` None: one of ``STORIES``."""
        self._random = random
        drawn = random.choice((*STORIES, STORIES[3], STORIES[4], STORIES[5]))
        self._story = drawn if story is None else story
        self._length_ms = random.choice(self._story.lengths_ms)
        self._brokers = [f"k{n + 1}" for n in range(random.choice((2, 2, 3)))]
        self._partitions = random.choice(self._story.partitions)

    def plan(self, seed: int) -> AdminPlan:
        random, story = self._random, self._story
        return AdminPlan(
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
            brokers=len(self._brokers),
            partitions=self._partitions,
            overrides=self._overrides(),
            session_ms=random.choice((1_200, 2_500)),
            producers=(),
            readers=(),
            subscriptions=(),
            consumers=(),
            faults=tuple(self._faults()),
            length_ms=self._length_ms,
            steps=tuple(self._steps()),
            writers=tuple(self._writer(n + 1) for n in range(random.choice(story.writers))),
            groups=tuple(self._group(n + 1) for n in range(random.choice(story.groups))),
            followers=tuple(self._reader(n + 1) for n in range(random.choice((0, 1)))),
            compacts=story.compacts,
            posts=story.posts,
            sweep_s=story.sweep_s,
            direct=draw_direct_readers(Random(f"admin direct {seed}"), story.direct),
            waiting=Random(f"admin waiting {seed}").choice(story.waiting),
            claimants=Random(f"admin claimants {seed}").choice(story.claimants),
        )

    def _overrides(self) -> dict[str, Any]:
        random, story = self._random, self._story
        names = ("ensemble_size", "write_quorum", "ack_quorum")
        overrides: dict[str, Any] = {
            **dict(zip(names, random.choice(story.shapes), strict=True)),
            "roll_entries": random.choice(story.rolls),
            "idempotency_window_ms": DAY_MS,
        }
        if random.random() < story.retention:
            overrides |= random.choice(
                ({"retention_bytes": 1}, {"retention_bytes": 400}, {"retention_ms": 50})
            )
        if story.compacts:
            overrides["compaction_ms"] = random.choice(story.compaction_ms)
        return overrides

    def _writer(self, number: int) -> WriterPlan:
        random, story = self._random, self._story
        return WriterPlan(
            f"w{number}",
            random.randrange(3) if random.random() < story.writes_elsewhere else 0,
            random.choice((0, random.randint(0, 300))),
            tuple(
                random.randint(0, random.choice(story.pauses_ms))
                for _ in range(random.choice((8, 16, 30)))
            ),
            tuple(random.choice((0, 0, 1, 3)) for _ in range(random.choice((1, 1, 2, 3)))),
            random.choice(story.conditions),
            random.choice(story.releases),
            strays=story.strays,
            insists=story.insists,
        )

    def _reader(self, number: int) -> ReaderPlan:
        random = self._random
        start = Moment("start", 0, random.randint(0, 500))
        return ReaderPlan(f"t{number}", random.randrange(2), start, random.choice((2, 20)))

    def _group(self, number: int) -> GroupPlan:
        random = self._random
        return GroupPlan(
            f"s{number}",
            random.choice(("earliest", "earliest", "latest")),
            random.randint(0, 500),
            random.choice(self._story.pulls),
            random.choice(self._story.thinks_ms),
            self._story.leaves,
        )

    def _steps(self) -> list[AdminStep]:
        random, story = self._random, self._story
        kinds = [*story.first, *random.choices(story.steps, k=random.choice(story.step_counts))]
        if story.compacts:
            kinds = [kind for kind in kinds if kind != "trim"]
        steps = [
            AdminStep(
                self._moment(is_early=number < len(story.first) and kind != "subscribe, die"),
                kind,
                self._partition(),
                random.random(),
            )
            for number, kind in enumerate(kinds)
        ]
        twins = [replace(s, size=random.random()) for s in steps if s.kind == "settings"]
        return [*steps, *twins]  # two operators at once

    def _partition(self) -> int:
        """Draw the partition of a step; perhaps one that the topic does not have yet."""
        random = self._random
        is_elsewhere = random.random() < self._story.steps_elsewhere
        return random.randrange(self._partitions + 1) if is_elsewhere else 0

    def _moment(self, *, is_early: bool = False, ahead_ms: int = 300) -> Moment:
        """``ahead_ms``: at most so long before the next look, if it is tied to looks."""
        random = self._random
        if is_early or random.random() < self._story.early:
            until_ms = self._length_ms // 2 if is_early else self._length_ms
            return Moment("start", 0, random.randint(0, until_ms))
        event = random.choice(self._story.events)
        nth = 2 if event == "made" else random.choice(self._story.nths)
        if event == "looking":
            return Moment(event, nth, RECONCILE_MS - random.randint(0, ahead_ms))
        if event == "sweeping":  # it takes some requests, one after the other
            return Moment(event, random.randint(1, 5), random.randint(0, 1_500))
        if event not in ADMIN_EVENTS:
            nth = random.choice((1, 2, 5, random.randint(1, 30)))
        return Moment(event, nth, random.choice(self._story.delays_ms))

    def _faults(self) -> list[Fault]:
        random = self._random
        kinds = random.choices(self._story.faults, k=random.choice(self._story.fault_counts))
        kinds += ["believe"] * random.choice(self._story.usurpers)
        standing = []
        if self._story.is_slow:
            size = random.choice((0.05, 0.1, 0.2, 0.4))
            target = self._target("slow metadata")
            start = Moment("start", 0, 0)
            standing.append(Fault(start, "slow metadata", target, self._length_ms, size))
        if self._story.has_late_servers:
            standing += late_servers(len(self._brokers), self._length_ms)
        if self._story.has_slow_bookie:
            bookie, size = self._target("slow bookie"), random.choice((0.01, 0.03, 0.06))
            start = Moment("start", 0, 0)
            standing += [
                Fault(start, "clog", f"{broker}>{bookie}", self._length_ms, size)
                for broker in self._brokers
            ]
        return standing + [
            Fault(
                self._moment(ahead_ms=600),
                kind,
                self._target(kind),
                random.choice((1, 20, 300, 1_500, 3_000)),
                random.random(),
            )
            for kind in kinds
        ]

    def _target(self, kind: str) -> str:
        random = self._random
        bookies = ["b1", "b2", "b3"]
        match TOPIC_TARGETS[kind]:
            case "broker":
                return random.choice(self._brokers)
            case "bookie":
                return random.choice(bookies)
            case "anyone":
                return random.choice([*self._brokers, *bookies])
            case "metadata link":
                pair = [random.choice(self._brokers), "zk"]
            case _:
                pair = [random.choice(self._brokers), random.choice(bookies)]
        random.shuffle(pair)
        return ">".join(pair)
