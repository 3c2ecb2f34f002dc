"""The options of a read, parsed once into a value; an unknown option is refused by name.

Names are Kafka's where Kafka has one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from fencelog.ledgers.limits import MIB
from fencelog.spark_connector.planning.offsets import AtTime, Bound, End, Position
from fencelog.spark_connector.planning.option_values import (
    GivenOptions,
    json_object,
    time_us,
    whole_number,
    wrong,
)

DEFAULT_NAMESPACE = "default"
DEFAULT_TARGET_PARTITION_BYTES = 64 * MIB
"""The default size of a Spark partition. Each costs 26 to 72 ms whatever it holds; reading 64 MiB
takes a few times that."""

MAX_MIN_PARTITIONS = 100_000
"""The largest number of partitions. Spark's driver slows down long before it."""

OPTION_NAMES = (
    "server",
    "topic",
    "topics",
    "topicsPattern",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "minPartitions",
    "targetPartitionBytes",
    "failOnDataLoss",
    "includeHeaders",
    "readMode",
    "localReads",
    "view",
    "pushFilters",
    "secretFile",
)

STREAM_OPTION_NAMES = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "subscription",
)
"""The options of streams alone."""

_KAFKA_LATEST, _KAFKA_EARLIEST = -1, -2
_ENDS: Mapping[int, Position] = {_KAFKA_LATEST: End.LATEST, _KAFKA_EARLIEST: End.EARLIEST}
_BY_PARTITION = 'JSON like {"0": 42} or {"shop/orders": {"0": 42}}'


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a query. Any one of ``servers`` will do. The topics, NAMESPACE/NAME, are those
    that are named or those whose whole name ``topics_pattern`` matches; without a slash in it, the
    name within the default namespace."""

    servers: tuple[str, ...]
    topics: tuple[str, ...] = ()
    topics_pattern: str | None = None
    shows_topic: bool = False
    """The table has a column ``topic`` unless its schema says otherwise."""
    starting: Bound = field(default_factory=lambda: Bound(End.EARLIEST))
    ending: Bound = field(default_factory=lambda: Bound(End.LATEST))
    min_partitions: int = 1
    """The number of Spark partitions that is asked for, about; more if they would be too large."""
    target_partition_bytes: int = DEFAULT_TARGET_PARTITION_BYTES
    fail_on_data_loss: bool = True
    include_headers: bool = True
    through_brokers: bool = False
    """Executors ask brokers, not bookies."""
    reads_locally: bool = True
    """Executors read what bookies of their machine have from the files."""
    is_compacted: bool = False
    """The compacted view is read, which only brokers have."""
    push_filters: bool = False
    """The filters of the query narrow what is read."""
    secret_file: str | None = None
    """The file on each executor with the secret that bookies ask for."""

    @property
    def what(self) -> str:
        """The topics, for messages."""
        if self.topics_pattern is not None:
            return f"topics like {self.topics_pattern}"
        return f"topic{'s' * (len(self.topics) > 1)} {', '.join(self.topics)}"

    def selects(self, topic: str) -> bool:
        """Tell whether a topic of this name, NAMESPACE/NAME, is one of them."""
        if self.topics_pattern is None:
            return topic in self.topics
        if "/" not in self.topics_pattern:
            namespace, _, topic = topic.partition("/")
            if namespace != DEFAULT_NAMESPACE:
                return False
        return re.fullmatch(self.topics_pattern, topic) is not None


def parse_batch_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse the options of a read that ends. Raises as ``parse_options``, and for an option of
    streams."""
    given = GivenOptions(options, (*OPTION_NAMES, *STREAM_OPTION_NAMES))
    for name in STREAM_OPTION_NAMES:
        if given.text(name) is not None:
            raise wrong(f"option {name!r} is for streams (readStream)")
    return parse_options(options)


def parse_options(options: Mapping[str, str], *, start: End = End.EARLIEST) -> ReadOptions:
    """Parse the options of a read; those of streams are ignored. Without any of its own it begins
    at ``start``. Raises FencelogError(BAD_REQUEST) naming the option that is wrong, missing or
    unknown."""
    given = GivenOptions(options, (*OPTION_NAMES, *STREAM_OPTION_NAMES))
    given.only_one_of("topic", "topics", "topicsPattern")
    topics, pattern = _topics(given), _pattern(given)
    return ReadOptions(
        servers=_servers(given.required("server")),
        topics=topics,
        topics_pattern=pattern,
        shows_topic=given.text("topic") is None,
        starting=_bound(given, "starting", topics, default=start, omitted=End.EARLIEST),
        ending=_bound(given, "ending", topics, default=End.LATEST, omitted=End.LATEST),
        min_partitions=given.integer("minPartitions", low=1, high=MAX_MIN_PARTITIONS) or 1,
        target_partition_bytes=(
            given.integer("targetPartitionBytes", low=1, high=1 << 62)
            or DEFAULT_TARGET_PARTITION_BYTES
        ),
        fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
        include_headers=given.boolean("includeHeaders", default=True),
        through_brokers=given.word("readMode", ("direct", "broker"), default="direct") == "broker",
        reads_locally=given.boolean("localReads", default=True),
        is_compacted=given.word("view", ("log", "compacted"), default="log") == "compacted",
        push_filters=given.boolean("pushFilters", default=False),
        secret_file=given.text("secretFile"),
    )


def _servers(value: str) -> tuple[str, ...]:
    servers = tuple(server.strip().rstrip("/") for server in value.split(","))
    for server in servers:
        if not _is_url(server):
            raise wrong(f"option 'server' is no URL like http://127.0.0.1:8080: {server!r}")
    return servers


def _is_url(server: str) -> bool:
    try:
        parts = urlsplit(server)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of an address or a port
        return False


def _topics(given: GivenOptions) -> tuple[str, ...]:
    """Return the named topics, each once and sorted."""
    if (several := given.text("topics")) is not None:
        return tuple(sorted({_topic("topics", name.strip()) for name in several.split(",")}))
    if given.text("topicsPattern") is not None:
        return ()
    return (_topic("topic", given.required("topic")),)


def _topic(option: str, value: str) -> str:
    """Return the topic, NAMESPACE/NAME; the server decides whether both are valid names."""
    namespace, slash, name = value.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise wrong(f"option {option!r} is neither NAME nor NAMESPACE/NAME: {value!r}")
    return f"{namespace or DEFAULT_NAMESPACE}/{name}"


def _pattern(given: GivenOptions) -> str | None:
    """Return the pattern as it was given: inline flags such as ``(?i)`` are its beginning."""
    value = given.text("topicsPattern")
    if value is None:
        return None
    try:
        re.compile(value)
    except re.error as error:
        raise wrong(
            f"option 'topicsPattern' is no regular expression: {value!r} ({error})"
        ) from None
    return value


# -- bounds ----------------------------------------------------------------------------------------


def _bound(
    given: GivenOptions, side: str, topics: tuple[str, ...], *, default: End, omitted: End
) -> Bound:
    """Return one end of the read: by offset or by time, for all partitions or for each that a JSON
    object names. ``default``: without any of these options; ``omitted``: of partitions that the
    object does not name, such as those that were added after somebody wrote it."""
    offsets, times = f"{side}Offsets", f"{side}Timestamp"
    given.only_one_of(offsets, times)
    if (value := given.text(times)) is not None:
        if (moment := time_us(value)) is not None:
            return Bound(AtTime(moment))
        form = f"a time (milliseconds since 1970, or ISO 8601 with its offset) or {_BY_PARTITION}"
        return Bound(omitted, _by_topic(times, value, topics, form, _at_time))
    value = given.text(offsets)
    if value is None:
        return Bound(default)
    if (word := value.lower()) in (End.EARLIEST.value, End.LATEST.value):
        return Bound(End(word))
    form = f"earliest, latest or {_BY_PARTITION}"
    return Bound(omitted, _by_topic(offsets, value, topics, form, _at_offset))


def _by_topic(
    name: str, value: str, topics: tuple[str, ...], form: str, position: Any
) -> dict[str, dict[int, Position]]:
    members = json_object(name, value, form=form)
    if not any(isinstance(member, dict) for member in members.values()):
        if len(topics) != 1:
            raise wrong(f"option {name!r} names no topic: {value!r}")
        members = {topics[0]: members}
    by_topic: dict[str, dict[int, Position]] = {}
    for given_topic, partitions in members.items():
        topic = _topic(name, given_topic)
        if topics and topic not in topics:
            raise wrong(f"option {name!r} names topic {topic}, which is not read: {value!r}")
        if not isinstance(partitions, dict):
            raise wrong(f"option {name!r} is not {form}: topic {topic} has {partitions!r}")
        if topic in by_topic:
            raise wrong(f"option {name!r} names topic {topic} twice: {value!r}")
        by_topic[topic] = {}
        for partition, item in partitions.items():
            found, number = position(item), whole_number(partition)
            if found is None or number is None:
                raise wrong(f"option {name!r} is not {form}: partition {partition!r} has {item!r}")
            if number in by_topic[topic]:
                raise wrong(f"option {name!r} names partition {number} twice: {value!r}")
            by_topic[topic][number] = found
    return by_topic


def _at_offset(value: object) -> Position | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if value >= 0 else _ENDS.get(value)


def _at_time(value: object) -> Position | None:
    moment = time_us(value)
    return None if moment is None else AtTime(moment)
