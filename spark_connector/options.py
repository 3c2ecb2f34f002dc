"""The options of a read, parsed once into a value; an unknown option is refused by name.

Spark compares option names without regard to case and passes every value as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import urlsplit

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB

DEFAULT_NAMESPACE = "default"
DEFAULT_TARGET_PARTITION_BYTES = 64 * MIB
"""The default size of a Spark partition. Each costs 26 to 72 ms whatever it holds; reading 64 MiB
takes a few times that."""

MAX_PARTITIONS_ASKED = 100_000
"""The largest number of partitions. Spark's driver slows down long before it."""

EARLIEST, LATEST = "earliest", "latest"

OPTION_NAMES = (
    "server",
    "topic",
    "startingOffsets",
    "endingOffsets",
    "partitions",
    "targetPartitionBytes",
    "includeHeaders",
)


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of the wanted offsets: a number for the partitions that are named, otherwise ``rest``
    (``earliest`` or ``latest``)."""

    rest: str
    by_partition: Mapping[int, int] = field(default_factory=dict)

    def of(self, partition: int, *, earliest: int, latest: int) -> int:
        fallback = earliest if self.rest == EARLIEST else latest
        return self.by_partition.get(partition, fallback)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a query. Any one of ``servers`` will do; ``topic`` is NAMESPACE/NAME."""

    servers: tuple[str, ...]
    topic: str
    starting: Bound = field(default_factory=lambda: Bound(EARLIEST))
    ending: Bound = field(default_factory=lambda: Bound(LATEST))
    partitions: int | None = None
    """The number of Spark partitions requested; None: ``target_partition_bytes`` decides."""
    target_partition_bytes: int = DEFAULT_TARGET_PARTITION_BYTES
    include_headers: bool = True


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse options. Raises FencelogError(BAD_REQUEST) naming the option that is wrong, missing or
    unknown."""
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given)
    partitions = given.get("partitions")
    target = given.get("targetpartitionbytes")
    return ReadOptions(
        servers=_servers(_required(given, "server")),
        topic=_topic(_required(given, "topic")),
        starting=_bound("startingOffsets", given.get("startingoffsets", EARLIEST), rest=EARLIEST),
        ending=_bound("endingOffsets", given.get("endingoffsets", LATEST), rest=LATEST),
        partitions=(
            None
            if partitions is None
            else _integer("partitions", partitions, low=1, high=MAX_PARTITIONS_ASKED)
        ),
        target_partition_bytes=(
            DEFAULT_TARGET_PARTITION_BYTES
            if target is None
            else _integer("targetPartitionBytes", target, low=1, high=1 << 62)
        ),
        include_headers=_boolean("includeHeaders", given.get("includeheaders", "true")),
    )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in OPTION_NAMES}
    for name in given.keys() - known.keys():
        close = get_close_matches(name, known, n=1)
        hint = f"; did you mean {known[close[0]]}?" if close else ""
        raise _wrong(f"unknown option {name!r}{hint} (options: {', '.join(OPTION_NAMES)})")


def _required(given: Mapping[str, str], name: str) -> str:
    value = given.get(name, "").strip()
    if not value:
        raise _wrong(f"option {name!r} is missing")
    return value


def _servers(value: str) -> tuple[str, ...]:
    servers = tuple(server.strip().rstrip("/") for server in value.split(","))
    for server in servers:
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _wrong(f"option 'server' is no URL like http://127.0.0.1:8080: {server!r}")
    return servers


def _topic(value: str) -> str:
    """Return the topic, NAMESPACE/NAME; the server decides whether both are valid names."""
    namespace, slash, name = value.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise _wrong(f"option 'topic' is neither NAME nor NAMESPACE/NAME: {value!r}")
    return f"{namespace or DEFAULT_NAMESPACE}/{name}"


def _bound(name: str, value: str, *, rest: str) -> Bound:
    """Parse ``earliest``, ``latest`` or a JSON object; ``rest`` holds for partitions that the
    object leaves out."""
    word = value.strip().lower()
    if word in (EARLIEST, LATEST):
        return Bound(word)
    form = f'option {name!r} is neither earliest, latest nor JSON like {{"0": 42}}'
    try:
        offsets = json.loads(value)
    except ValueError:
        raise _wrong(f"{form}: {value!r}") from None
    if not isinstance(offsets, dict):
        raise _wrong(f"{form}: {value!r}")
    by_partition = {}
    for partition, offset in offsets.items():
        is_offset = isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0
        if not (partition.isascii() and partition.isdigit() and is_offset):
            raise _wrong(f"{form}: partition {partition!r} has offset {offset!r}")
        by_partition[int(partition)] = offset
    return Bound(rest, by_partition)


def _integer(name: str, value: str, *, low: int, high: int) -> int:
    text = value.strip()
    if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
        raise _wrong(f"option {name!r} is no whole number from {low} to {high}: {value!r}")
    return int(text)


def _boolean(name: str, value: str) -> bool:
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise _wrong(f"option {name!r} is neither true nor false: {value!r}")
    return word == "true"


def _wrong(detail: str) -> FencelogError:
    return FencelogError(ErrorCode.BAD_REQUEST, f"fencelog data source: {detail}")
