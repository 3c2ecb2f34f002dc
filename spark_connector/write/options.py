"""The options of a write, parsed once into a value, and the columns that are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from fencelog.spark_connector.planning.option_values import GivenOptions, wrong
from fencelog.spark_connector.planning.options import parse_options

OPTION_NAMES = ("server", "topic", "exactlyOnce", "secretFile")

SPARKS_OPTION_NAMES = ("checkpointLocation",)
"""Spark's own options, which it hands on with the others."""

BYTES = ("binary", "string")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "value": BYTES,
    "key": BYTES,
    "headers": ("array<struct<name:string,value:binary>>",),
    "event_time": ("timestamp",),
    "partition": ("int",),
}
"""The columns that are written, with the types that each may have."""


class ExactlyOnce(Enum):
    """The way in which rows that are written again are kept from being in the topic twice."""

    NONE = "none"
    DEDUP = "dedup"
    SEGMENTS = "segments"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write. Any one of ``servers`` will do."""

    servers: tuple[str, ...]
    topic: str
    exactly_once: ExactlyOnce = ExactlyOnce.NONE
    secret_file: str | None = None
    """The file on each executor with the secret that bookies ask for."""


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a write. Raises FencelogError(BAD_REQUEST) naming the option that is
    wrong, missing or unknown."""
    spark = {name.lower() for name in SPARKS_OPTION_NAMES}
    ours = {name: value for name, value in options.items() if name.lower() not in spark}
    given = GivenOptions(ours, OPTION_NAMES)
    read = parse_options(
        {name: given.required(name) for name in ("server", "topic")}
    )  # a topic and its servers are named as in a read
    words = [each.value for each in ExactlyOnce]
    mode = ExactlyOnce(given.word("exactlyOnce", words, default=ExactlyOnce.NONE.value))
    return WriteOptions(read.servers, read.topics[0], mode, given.text("secretFile"))


def check_columns(columns: Sequence[tuple[str, str]]) -> None:
    """Check the names and Spark types of the rows' columns. Raises FencelogError(BAD_REQUEST)
    naming what cannot be written."""
    names = [name for name, _ in columns]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise wrong(f"the rows have several columns {repeated[0]!r}; a topic is written from one")
    known = ", ".join(f"{name} {' or '.join(kinds)}" for name, kinds in COLUMNS.items())
    for name, kind in columns:
        if kind not in COLUMNS.get(name, ()):
            raise wrong(f"a topic cannot be written from column {name} {kind}; only from {known}")
    if "value" not in dict(columns):
        raise wrong("a topic is written from a column 'value', which the rows do not have")
