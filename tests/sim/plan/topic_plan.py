"""The plan of one seed of topics: brokers that contend for a topic, its clients, faults.

Drawn before the history begins (``plan/topic_draw.py``), like the plans of ledgers
(``plan/plan.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fencelog.broker.registry.subscription_config import SubscriptionConfig
from tests.sim.plan.plan import BookiePlan, Fault, Moment

TOPIC_EVENTS = (
    "ack",
    "append",
    "append ack",
    "created",
    "recovering",
    "closed",
    "fence",
    "takeover",
    "rolling",
    "sealed",
)
"""The events that a moment can be tied to: those of ledgers, appends, and changes of a partition's
ledger list."""


@dataclass(frozen=True, slots=True)
class Sending:
    """Some requests sent together after a pause. ``sizes``: messages in each; 0 is one message
    outside of a batch."""

    pause_ms: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """``conditions``: the conditions of its appends. ``wanders``: how often it goes to another
    broker though the last one answered; ``restarts``: … it begins anew with a higher epoch."""

    machine: str
    partition: int
    starts_ms: int
    sendings: tuple[Sending, ...]
    conditions: str
    """``none``; ``sequence`` and ``key``: what was not acknowledged is sent again; ``offset``: each
    append expects the offset that it will get."""
    wanders: float
    restarts: float
    over_http: bool = False
    """True if it sends over HTTP to brokers, which forward what belongs to others."""
    follows: bool = False
    """True if it goes to each new owner at once, so that the previous one gets nothing that would
    tell it."""


@dataclass(frozen=True, slots=True)
class ReaderPlan:
    machine: str
    partition: int
    moment: Moment
    max_messages: int
    strays: bool = False
    """True if it asks any broker, each time, for what comes after all that is known, or later."""


@dataclass(frozen=True, slots=True)
class DirectPlan:
    """The plan of a reader that asks owners for ranges. ``confirmed``: the share of its requests
    whose answer the owner has to confirm; ``times``: … that look up a time instead; ``strays``: …
    that go to an owner that was replaced, if there is one, and otherwise to any broker."""

    machine: str
    pause_ms: int
    confirmed: float
    times: float
    strays: float
    over_http: bool = False
    """True if it asks for ranges over HTTP, which any broker answers or passes on."""


@dataclass(frozen=True, slots=True)
class SubscriptionPlan:
    name: str
    partition: int
    config: SubscriptionConfig


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """The plan of a consumer of the subscription with this index. ``pulls``: messages at a time.
    ``through``: how often it acknowledges all up to a message, where that is possible; the last
    four say how often it does so, instead of acknowledging in time."""

    machine: str
    subscription: int
    starts_ms: int
    pulls: int
    thinks_ms: int
    through: float
    vanishes: float
    refuses: float
    extends: float
    seeks: float
    roves: bool = False
    """True if it is a ``Rover``."""
    knows_cursor: bool = False
    """True if it asks an owner that has told it of the cursor for nothing else first: what it asks
    for does not wait then until earlier changes are durable."""
    strays: bool = False
    """True if it is a ``Stray``."""
    late: float = 0.0
    """How often it refuses or extends what it got before, which others may have by then."""


@dataclass(frozen=True, slots=True)
class CommitterPlan:
    """The plan of a committer, whose ledgers join one partition, a batch after the other."""

    machine: str
    partition: int
    starts_ms: int
    pause_ms: int
    batches: int
    ends: bool = False
    """Its last batch says that it commits nothing more, so it may be forgotten."""
    over_http: bool = False
    """True if it is a Spark query's own code, which asks any broker over HTTP."""
    gives_up_s: float = 0.0
    """The time for which that repeats a commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan(BookiePlan):
    """``overrides``: the topic's settings."""

    seed: int
    brokers: int
    partitions: int
    overrides: Mapping[str, int | str]
    session_ms: int
    producers: tuple[ProducerPlan, ...]
    readers: tuple[ReaderPlan, ...]
    subscriptions: tuple[SubscriptionPlan, ...]
    consumers: tuple[ConsumerPlan, ...]
    faults: tuple[Fault, ...]
    length_ms: int
    delays: float = 0.0
    """The share of messages with a later time of delivery."""
    dead_letters: int | None = None
    """The partition that they go to, and come back from."""
    hurries: float = 0.0
    """The share of requests that a producer or a consumer cancels almost at once."""
    committers: tuple[CommitterPlan, ...] = ()
    direct: tuple[DirectPlan, ...] = ()
    moves: bool = False
    """Closed ledgers are moved to other bookies meanwhile."""
    forgets: bool = False
    """Brokers keep hardly any messages in memory."""


TOPIC_TARGETS = {
    "kill broker": "broker",
    "lose broker's power": "broker",
    "pause broker": "broker",
    "drain broker": "broker",
    "unload": "broker",
    "believe": "broker",
    "believe, cut off": "broker",
    "cut off": "broker",
    "change's reply lost": "broker",
    "changes refused": "broker",
    "clock jumps": "broker",
    "answers lost": "broker",
    "swizzle": "all",
    "slow network": "all",
    "cut": "link",
    "clog": "link",
    "reset": "link",
    "isolate": "anyone",
    "deaf": "anyone",
    "mute": "anyone",
    "kill bookie": "bookie",
    "power loss": "bookie",
    "power loss everywhere": "all",
    "pause bookie": "bookie",
    "restart cleanly": "bookie",
    "slow bookie": "bookie",
    "read only": "bookie",
    "slow disk": "bookie",
    "slow metadata": "broker",
    "metadata cut": "metadata link",
    "metadata refuses": "broker",
    "metadata reply lost": "broker",
    "metadata lags": "broker",
    "session expires": "broker",
}
"""Every kind of fault of these histories, and what it befalls."""


def late_servers(brokers: int, length_ms: int) -> Iterator[Fault]:
    """Yield faults by which each broker reads from a server of metadata that is late, all the
    time."""
    for begin_ms in range(0, length_ms, 100):
        for number in range(1, brokers + 1):
            yield Fault(Moment("start", 0, begin_ms), "metadata lags", f"k{number}", 1, 0.5)
