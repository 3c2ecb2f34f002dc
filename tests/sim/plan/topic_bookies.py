"""The faults of the bookies under topics: disks that are lost, rot or fill up, and five machines.

Drawn by a stream of its own, over the plan that ``plan/topic_draw.py`` has made. As in histories of
ledgers one bookie at most, the victim, loses data for good; every shape has Qa 2 at least, so what
was acknowledged has a copy elsewhere, and nothing of it may ever be missed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from tests.sim.plan.plan import Fault, Moment
from tests.sim.plan.topic_plan import TopicPlan

DISK_TARGETS = {
    "silent power loss": "bookie",
    "die at an effect": "bookie",
    "die at an effect, crash": "bookie",
    "crash twice": "bookie",
    "disk full": "bookie",
    "disk fills": "bookie",
    "write error": "bookie",
    "sync error": "bookie",
    "read error": "bookie",
    "sync error, power loss": "bookie",
    "sync error, crash": "bookie",
    "bad memory": "victim",
    "replace disk": "victim",
    "replace disk, crash": "victim",
    "replace disk, others down": "victim",
    "rot entry log": "victim",
    "rot journal": "victim",
    "rot journal, crash": "victim",
}
"""Kinds of faults, and what they befall."""

ENSEMBLES = (3, 3, 3, 4, 5)
"""The ensemble sizes, with three copies on five bookies: some striped, some with spare bookies."""


@dataclass(frozen=True, slots=True)
class DiskTheme:
    """Kinds of faults that meet each other, and when. ``takeovers``: how many brokers are made to
    contend besides; ``bookies``: how many there are."""

    kinds: tuple[str, ...]
    events: tuple[str, ...]
    bookies: tuple[int, ...]
    faults: tuple[int, ...] = (1, 2, 4)
    takeovers: tuple[int, ...] = (0, 1, 2)
    unsynced: float = 0.2
    doubts: float = 0.0
    """The share of histories whose faults are those of ``_Draw._ownership_check`` alone."""
    away_ms: tuple[int, ...] = (1_000, 2_000, 3_500)
    """The time for which the bookies with the last entries are away in these histories."""
    lengths_ms: tuple[int, ...] = ()
    """The lengths of the histories, if any; otherwise as they were drawn."""
    settings: tuple[tuple[str, int], ...] = ()
    """The settings of the topic."""


DISKS = DiskTheme(
    kinds=(*DISK_TARGETS, "rot entry log", "rot journal", "replace disk"),
    events=("append ack", "append ack", "append", "created", "fence", "rolling", "takeover"),
    bookies=(3, 3, 5),
)

LIMBO = DiskTheme(
    kinds=(
        "replace disk",
        "replace disk",
        "replace disk, crash",
        "replace disk, others down",
    ),
    events=("append ack", "append ack", "created", "takeover", "rolling"),
    bookies=(3, 5, 5),
    faults=(1, 2),
    takeovers=(1, 2, 3),
    unsynced=0.1,
    doubts=0.6,
)
"""The victim comes back with an empty disk, and owners change meanwhile: whoever recovers the
log's ledgers meets one that does not know what it has forgotten."""

THEMES = (DISKS, DISKS, LIMBO)

DOUBTED = replace(
    LIMBO,
    bookies=(3,),
    unsynced=0.0,
    doubts=1.0,
    away_ms=(4_500,),
    lengths_ms=(5_000,),
    settings=(
        ("ensemble_size", 3),
        ("write_quorum", 3),
        ("ack_quorum", 2),
        ("roll_entries", 1_000),
    ),
)
"""The sessions of dead brokers end, and others take the log over, long before anybody is back who
knows where it ends."""

STAGED_EVERY = 20
"""The number of seeds in a row of which one has the theme DOUBTED."""
DOUBTED_AT = 11

SELDOM_EVERY, SELDOM_AT = 100, (49, 57, 69, 89, 97)
"""The places, in so many seeds in a row, of those with faults of one kind alone: a kind that is
seldom drawn, or seldom finds what it befalls. Each has its turn in four hundred of them."""

SELDOM = tuple(DISK_TARGETS)

SHARE = 0.35
"""The share of all histories."""

TAKEOVERS = ("believe", "believe", "kill broker", "unload", "pause broker")


def with_bookies(plan: TopicPlan) -> TopicPlan:
    """The same plan, in some histories with bad disks and more bookies."""
    random = Random(f"topic bookies {plan.seed}")
    if plan.seed % STAGED_EVERY == DOUBTED_AT:
        return _Draw(random, DOUBTED, plan).plan()
    place = plan.seed % SELDOM_EVERY
    if place in SELDOM_AT:
        turn = plan.seed // SELDOM_EVERY * len(SELDOM_AT) + SELDOM_AT.index(place)
        kind = SELDOM[turn % len(SELDOM)]
        theme = replace(DISKS, kinds=(kind,), events=("append ack",), faults=(2,))
        return _Draw(random, theme, plan).plan()
    if random.random() >= SHARE:
        return plan
    return _Draw(random, random.choice(THEMES), plan).plan()


class _Draw:
    """The order of the calls is part of what a seed means."""

    def __init__(self, random: Random, theme: DiskTheme, plan: TopicPlan) -> None:
        self._random = random
        self._theme = theme
        self._plan = plan
        self._bookies = [f"b{n + 1}" for n in range(random.choice(theme.bookies))]
        self._victim = random.choice(self._bookies)

    def plan(self) -> TopicPlan:
        random, theme, plan = self._random, self._theme, self._plan
        kept = [fault for fault in plan.faults if random.random() < 0.5]
        kinds = random.sample(theme.kinds, min(3, len(theme.kinds)))
        disks = [self._fault(random.choice(kinds)) for _ in range(random.choice(theme.faults))]
        takeovers = [self._takeover(disks) for _ in range(random.choice(theme.takeovers))]
        if random.random() < theme.doubts:
            kept, disks, takeovers = [], self._ownership_check(), []
        overrides = dict(plan.overrides)
        if len(self._bookies) > 3 and overrides["write_quorum"] == 3:
            overrides["ensemble_size"] = random.choice(ENSEMBLES)
        return replace(
            plan,
            bookies=len(self._bookies),
            write_cache_bytes=random.choice((4, 16)) * 1024,
            flush_ms=random.choice((100, 100, 1_000, 5_000)),
            victim=self._victim,
            is_victim_synced=random.random() >= theme.unsynced,
            scrub_ms=random.choice((4_000, 20_000)),
            repairs_itself=random.random() < 0.7,
            overrides=overrides | dict(theme.settings),
            faults=(*kept, *disks, *takeovers),
            length_ms=random.choice(theme.lengths_ms) if theme.lengths_ms else plan.length_ms,
        )

    def _fault(self, kind: str) -> Fault:
        random = self._random
        is_victim = DISK_TARGETS[kind] == "victim"
        return Fault(
            self._moment(),
            kind,
            self._victim if is_victim else random.choice(self._bookies),
            random.choice((1, 20, 300, 2_000, 3_500)),
            random.random(),
        )

    def _moment(self) -> Moment:
        random = self._random
        if random.random() < 0.3:
            return Moment("start", 0, random.randint(0, self._plan.length_ms))
        nth = random.choice((1, 1, 2, 3, 5, random.randint(1, 30)))
        return Moment(random.choice(self._theme.events), nth, random.choice((0, 0, 1, 5, 20, 300)))

    def _takeover(self, disks: list[Fault]) -> Fault:
        """Let a broker take the log over soon after a disk failed."""
        random = self._random
        broker = f"k{random.randint(1, self._plan.brokers)}"
        after, kind = random.choice(disks), random.choice(TAKEOVERS)
        later = random.choice((5, 100, 400, 700, 1_200)) + random.choice((0, after.duration_ms))
        moment = replace(after.moment, delay_ms=after.moment.delay_ms + later)
        return Fault(moment, kind, broker, random.choice((300, 2_000)), random.random())

    def _ownership_check(self) -> list[Fault]:
        """Stage three bookies: one never got the last entries, one loses them, and one holds them
        and is away while the log is taken over: only who waits for it learns where the log ends."""
        random = self._random
        brokers = [f"k{n + 1}" for n in range(self._plan.brokers)]
        ignorant, holder = random.sample([b for b in self._bookies if b != self._victim], 2)
        nth = random.choice((1, 2, 3, 5, 10, 20))
        before = Moment("append ack", nth, 0)
        moment = Moment("append ack", nth + random.choice((1, 1, 2, 4)), 0)
        away_ms = random.choice(self._theme.away_ms)
        back_ms = random.choice((300, 300, 700))
        return [
            *(Fault(before, "cut", f"{broker}>{ignorant}", back_ms, 0.5) for broker in brokers),
            *(Fault(moment, "lose broker's power", broker, back_ms, 0.5) for broker in brokers),
            Fault(moment, "replace disk", self._victim, random.choice((1, 20)), 0.5),
            Fault(
                moment, random.choice(("pause bookie", "kill bookie", "deaf")), holder, away_ms, 0.5
            ),
        ]
