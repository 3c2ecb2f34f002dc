"""The options of a stream: those of a read, and what bounds a micro-batch.

Names and defaults are Kafka's where Kafka has one; so a stream begins at the end of its topics
unless it is told otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fencelog.spark_connector.planning.offsets import End
from fencelog.spark_connector.planning.option_values import GivenOptions, wrong
from fencelog.spark_connector.planning.options import (
    OPTION_NAMES,
    STREAM_OPTION_NAMES,
    ReadOptions,
    parse_options,
)
from fencelog.spark_connector.stream.admission_core import DEFAULT_MAX_DELAY_MS, TriggerLimits

BATCH_ONLY = ("endingOffsets", "endingTimestamp", "targetPartitionBytes")

MAX_OFFSETS = 1 << 62
"""The largest limit, beyond any backlog."""

MAX_DELAY_MS = 7 * 24 * 3600 * 1000
"""The largest ``maxTriggerDelay``: who waits for a week has made a mistake."""

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d{1,12})\s*([a-z]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a streaming query. ``subscription``: the durable one whose cursor follows the
    query."""

    read: ReadOptions
    limits: TriggerLimits
    subscription: str | None = None


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Parse options. Raises FencelogError(BAD_REQUEST) naming the option that is wrong, missing or
    unknown, or that streams do not have."""
    given = GivenOptions(options, (*OPTION_NAMES, *STREAM_OPTION_NAMES))
    for name in BATCH_ONLY:
        if given.text(name) is not None:
            raise wrong(
                f"option {name!r} is for batch reads; a stream has no end, and cuts tasks "
                f"by number of messages (see minPartitions)"
            )
    read = parse_options(options, start=End.LATEST)
    if read.is_compacted:
        raise wrong("option 'view' is for batch reads; a stream reads the log")
    if read.push_filters:
        raise wrong("option 'pushFilters' is for batch reads; Spark pushes no filters to streams")
    return StreamOptions(
        read=read,
        limits=_limits(given),
        subscription=given.text("subscription"),
    )


def _limits(given: GivenOptions) -> TriggerLimits:
    max_offsets = given.integer("maxOffsetsPerTrigger", low=1, high=MAX_OFFSETS)
    min_offsets = given.integer("minOffsetsPerTrigger", low=1, high=MAX_OFFSETS)
    if max_offsets is not None and min_offsets is not None and min_offsets > max_offsets:
        raise wrong(
            f"option 'minOffsetsPerTrigger' is {min_offsets}, more than maxOffsetsPerTrigger "
            f"{max_offsets}"
        )
    delay = given.text("maxTriggerDelay")
    if delay is not None and min_offsets is None:
        raise wrong("option 'maxTriggerDelay' has no effect without minOffsetsPerTrigger")
    return TriggerLimits(
        max_offsets=max_offsets,
        max_bytes=given.integer("maxBytesPerTrigger", low=1, high=MAX_OFFSETS),
        min_offsets=min_offsets,
        max_delay_ms=DEFAULT_MAX_DELAY_MS if delay is None else _duration_ms(delay),
    )


def _duration_ms(text: str) -> int:
    """Parse a time such as 15m, 30s or 1 h; a bare number is milliseconds."""
    match = _DURATION.fullmatch(text.lower())
    unit = _UNITS_MS.get(match[2] or "ms") if match else None
    if match is None or unit is None or not 0 < int(match[1]) * unit <= MAX_DELAY_MS:
        raise wrong(f"option 'maxTriggerDelay' is no time up to a week such as 15m, 30s: {text!r}")
    return int(match[1]) * unit
