"""Paths of the hot endpoints, parsed once: ``/v1/topics/{ns}/{topic}/…`` -> Target.

Parsed paths are remembered, so a producer's path costs one dictionary look-up per request.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fencelog.api.http.read_request import MAX_OFFSET
from fencelog.broker.limits import MAX_PARTITIONS
from fencelog.broker.names import TopicName, check_name
from fencelog.ledgers.errors import ErrorCode, FencelogError

PREFIX = "/v1/topics/"

MAX_REMEMBERED_PATHS = 4096
"""The limit of remembered paths: topics times endpoints that one broker serves at a time; beyond it
the memory starts anew."""

_MAX_OFFSET_DIGITS = 19


class Endpoint(Enum):
    """The endpoints that are served without a framework."""

    PRODUCE = "produce"
    PRODUCE_BATCH = "produce_batch"
    READ = "read"
    READ_ONE = "read_one"
    SEGMENTS = "segments"
    OFFSETS = "offsets"
    TOPIC_OFFSETS = "topic_offsets"
    COMPACT = "compact"
    COMPACTION = "compaction"
    INTERNALS = "internal"
    LEDGER_VIEW = "chain"
    TRIM = "trim"
    TERMINATE = "terminate"
    TERMINATE_ALL = "terminate-all"
    FENCE = "fence"
    FIND_KEY = "find-key"
    PRODUCERS = "producers"
    PRODUCER = "producer"
    CLAIM = "claim"
    COMMITTER = "committer"
    CREATE_LEDGER = "create-ledger"
    COMMIT = "commit"
    ABORT = "abort"
    PULL = "pull"
    WAIT = "wait"
    HOLD = "hold"
    ACK = "ack"
    NACK = "nack"
    EXTEND = "extend"
    SEEK = "seek"
    REPLAY = "replay-dead-letters"
    OPEN_CURSOR = "open-cursor"
    DROP_CURSOR = "drop-cursor"
    SUBSCRIPTION_EVENTS = "events"
    SUBSCRIPTION_STATS = "stats"
    SUBSCRIPTION_LAG = "lag"


SUBSCRIPTION_VERBS = {
    endpoint.value: endpoint
    for endpoint in (
        Endpoint.PULL,
        Endpoint.WAIT,
        Endpoint.HOLD,
        Endpoint.ACK,
        Endpoint.NACK,
        Endpoint.EXTEND,
        Endpoint.SEEK,
        Endpoint.REPLAY,
        Endpoint.OPEN_CURSOR,
        Endpoint.DROP_CURSOR,
    )
}
"""The endpoints of ``POST …/subscriptions/NAME:VERB``."""

_PARTITION_VERBS = {
    endpoint.value: endpoint
    for endpoint in (
        Endpoint.FENCE,
        Endpoint.FIND_KEY,
        Endpoint.TRIM,
        Endpoint.TERMINATE,
        Endpoint.COMPACT,
    )
}
"""The endpoints of ``POST …/partitions/P:VERB``."""

_COMMITTER_VERBS = {
    endpoint.value: endpoint
    for endpoint in (Endpoint.CREATE_LEDGER, Endpoint.COMMIT, Endpoint.ABORT)
}
"""The endpoints of ``POST …/partitions/P/committers/NAME:VERB``."""

_PARTITION_VIEWS = {
    "messages": Endpoint.READ,
    "segments": Endpoint.SEGMENTS,
    "offsets": Endpoint.OFFSETS,
    "compaction": Endpoint.COMPACTION,
    "internal": Endpoint.INTERNALS,
    "chain": Endpoint.LEDGER_VIEW,
}
"""The endpoints of ``GET …/partitions/P/VIEW``."""

_SUBSCRIPTION_VIEWS = {
    endpoint.value: endpoint
    for endpoint in (
        Endpoint.SUBSCRIPTION_EVENTS,
        Endpoint.SUBSCRIPTION_STATS,
        Endpoint.SUBSCRIPTION_LAG,
    )
}


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a path. ``partition`` is -1 where the path names none; ``offset`` likewise, and
    ``subscription``, ``producer`` and ``committer`` are empty."""

    endpoint: Endpoint
    topic: TopicName
    partition: int = -1
    offset: int = -1
    subscription: str = ""
    producer: str = ""
    committer: str = ""


class Targets:
    """A parser of paths that remembers its results."""

    def __init__(self) -> None:
        self._known: dict[str, Target] = {}

    def find(self, path: str) -> Target | None:
        """Return the target of a path, or None if the path is none of these.

        Raises FencelogError: INVALID_NAME, BAD_REQUEST for a partition or offset that is no number.
        """
        target = self._known.get(path)
        if target is None:
            target = parse_path(path)
            if target is not None and target.endpoint is not Endpoint.READ_ONE:
                if len(self._known) >= MAX_REMEMBERED_PATHS:
                    self._known.clear()
                self._known[path] = target
        return target


def parse_path(path: str) -> Target | None:
    """Parse a path: see ``Targets.find``."""
    if not path.startswith(PREFIX):
        return None
    match path.split("/")[3:]:
        case [namespace, topic, "messages"]:
            return Target(Endpoint.PRODUCE, TopicName.of(namespace, topic))
        case [namespace, topic, "messages:batch"]:
            return Target(Endpoint.PRODUCE_BATCH, TopicName.of(namespace, topic))
        case [namespace, topic, "offsets"]:
            return Target(Endpoint.TOPIC_OFFSETS, TopicName.of(namespace, topic))
        case [namespace, topic, "partitions", named, *view]:
            return _of_partition(namespace, topic, named, view)
        case [namespace, topic, "subscriptions", subscription, *view]:
            return _subscription(namespace, topic, subscription, view)
        case [namespace, ended] if ended.endswith(":terminate"):
            name = TopicName.of(namespace, ended.removesuffix(":terminate"))
            return Target(Endpoint.TERMINATE_ALL, name)
        case _:
            return None


def _of_partition(namespace: str, topic: str, named: str, view: list[str]) -> Target | None:
    if not view:
        partition, _, verb = named.partition(":")
        endpoint = _PARTITION_VERBS.get(verb)
        if endpoint is None:
            return None
        return Target(endpoint, TopicName.of(namespace, topic), _partition(partition))
    match view:
        case [shown] if shown in _PARTITION_VIEWS:
            place = _partition(named)
            return Target(_PARTITION_VIEWS[shown], TopicName.of(namespace, topic), place)
        case ["messages", offset]:
            name = TopicName.of(namespace, topic)
            return Target(Endpoint.READ_ONE, name, _partition(named), _offset(offset))
        case ["producers", *producer]:
            return _producer(TopicName.of(namespace, topic), _partition(named), producer)
        case ["committers", committer]:
            return _committer(TopicName.of(namespace, topic), _partition(named), committer)
        case _:
            return None


def _committer(topic: TopicName, partition: int, named: str) -> Target | None:
    name, colon, verb = named.partition(":")
    endpoint = _COMMITTER_VERBS.get(verb) if colon else Endpoint.COMMITTER
    if endpoint is None:
        return None
    return Target(endpoint, topic, partition, committer=check_name("committer", name))


def _producer(topic: TopicName, partition: int, names: list[str]) -> Target | None:
    match names:
        case []:
            return Target(Endpoint.PRODUCERS, topic, partition)
        case [name]:
            producer = name.removesuffix(":claim")
            endpoint = Endpoint.PRODUCER if producer == name else Endpoint.CLAIM
            check_name("producer", producer)
            return Target(endpoint, topic, partition, producer=producer)
        case _:
            return None


def _subscription(namespace: str, topic: str, subscription: str, view: list[str]) -> Target | None:
    """Return the target of a subscription's path, or None for the subscription itself, which is the
    framework's."""
    if len(view) == 1:
        name, endpoint = subscription, _SUBSCRIPTION_VIEWS.get(view[0])
    else:
        name, _, verb = subscription.partition(":")
        endpoint = None if view else SUBSCRIPTION_VERBS.get(verb)
    if endpoint is None:
        return None
    check_name("subscription", name)
    return Target(endpoint, TopicName.of(namespace, topic), subscription=name)


def _partition(text: str) -> int:
    if not _is_number(text) or int(text) >= MAX_PARTITIONS:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"partition {text[:40]!r} is no partition number"
        )
    return int(text)


def _offset(text: str) -> int:
    if not _is_number(text) or int(text) > MAX_OFFSET:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"offset {text[:40]!r} is no offset")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_OFFSET_DIGITS
