"""The observations from which findings follow: values, with their absence among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fencelog.bookie.identity.cookies import Cookie
from fencelog.broker.partition.stats.troubles import Troubles
from fencelog.ledgers.metastore.zookeeper_tls import Certificate
from fencelog.ledgers.rpc.bookie_port import BookieInfo

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NotAnswered:
    """The reason why something is not known: it could not be asked, or did not answer."""

    why: str


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The clock of a process compared with that of the observer, to within ``error_us``."""

    offset_us: int
    error_us: int


@dataclass(frozen=True, slots=True)
class Membership:
    """The bookies of the cluster by the metadata store. ``instance``: the id of the cluster;
    ``cookies``, ``registered``: None for one that is not valid."""

    instance: str | None
    cookies: Mapping[str, Cookie | None]
    registered: Mapping[str, BookieInfo | None]


@dataclass(frozen=True, slots=True)
class BookieState:
    """The answer of a bookie to ``status``. ``certificates``: on which its connection to the
    metadata store depends."""

    clock: ClockOffset
    status: Mapping[str, Any]
    certificates: Sequence[Certificate] = ()


@dataclass(frozen=True, slots=True)
class BrokerState:
    """The answer of a broker. ``certificates``: on which its connection to the metadata store
    depends."""

    clock: ClockOffset
    is_draining: bool
    troubles: Troubles
    certificates: Sequence[Certificate] = ()


@dataclass(frozen=True, slots=True)
class HealingState:
    """The state of self-healing, as ``AutorecoveryAdmin`` answers: ``status``, ``checks``, the
    first of the ``marks`` and their ``marked`` number, the bookies that are ``leaving``."""

    status: Mapping[str, Any]
    checks: Mapping[str, Any]
    marks: Sequence[Mapping[str, Any]]
    marked: int
    leaving: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class TopicReplication:
    """The replication of a topic's new ledgers."""

    name: str
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    created_us: int


@dataclass(frozen=True, slots=True)
class UnownedPartition:
    """A partition without an owner whose last ledgers are not sealed. ``since_us``: when the oldest
    of them was begun."""

    topic: str
    partition: int
    ledgers: tuple[int, ...]
    since_us: int


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The result of a look at every ledger and every partition: what belongs to nothing
    (``ledgers``, ``topic_ids``), and what nobody has sealed."""

    ledgers: Sequence[int]
    topic_ids: Sequence[str]
    unsealed: Sequence[UnownedPartition]


@dataclass(frozen=True, slots=True)
class Observations:
    """All that an examination knows. ``bookies`` and ``brokers`` are those that are registered;
    ``leftovers``: None if nobody looked for any."""

    now_us: int
    membership: Membership | NotAnswered
    healing: HealingState | NotAnswered
    topics: Sequence[TopicReplication] | NotAnswered
    brokers: Mapping[str, BrokerState | NotAnswered] | NotAnswered
    bookies: Mapping[str, BookieState | NotAnswered] = field(default_factory=dict)
    leftovers: Leftovers | NotAnswered | None = None
