"""The lag of a subscription over time: the samples of its partitions added up. Decisions on values
alone."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from fencelog.broker.background.samples import Samples
from fencelog.broker.limits import LAG_SAMPLE_MS, RECENT_LAG_SAMPLES

_US_PER_MS = 1000


class Lag(Struct, frozen=True):
    """The messages that were not acknowledged, in samples taken every ``interval_ms`` from
    ``since_us`` on; null: not sampled. ``since_us``: null without any sample, as when a partition's
    owner is a new one."""

    interval_ms: int
    since_us: int | None
    backlog_messages: list[int | None]


NO_LAG = Lag(LAG_SAMPLE_MS, None, [])


def lag_of(samples: Samples | None) -> Lag:
    """Return the lag in one partition."""
    if samples is None:
        return NO_LAG
    messages = samples.values()
    since = samples.newest - len(messages) + 1
    return Lag(LAG_SAMPLE_MS, since * LAG_SAMPLE_MS * _US_PER_MS, messages)


def recent_part(lag: Lag) -> Lag:
    """Return the last minutes of a lag."""
    left_out = max(0, len(lag.backlog_messages) - RECENT_LAG_SAMPLES)
    if lag.since_us is None or not left_out:
        return lag
    since_us = lag.since_us + left_out * lag.interval_ms * _US_PER_MS
    return Lag(lag.interval_ms, since_us, lag.backlog_messages[left_out:])


def added_up(parts: Sequence[Lag]) -> Lag:
    """Return the lag in all partitions, for as long as every owner has samples; null where one of
    them missed its sample."""
    interval_us = LAG_SAMPLE_MS * _US_PER_MS
    begins = [part.since_us // interval_us for part in parts if part.since_us is not None]
    if not parts or len(begins) < len(parts):
        return NO_LAG
    ends = [begin + len(part.backlog_messages) for begin, part in zip(begins, parts, strict=True)]
    first, end = max(begins), min(ends)
    if end <= first:
        return NO_LAG
    columns = [
        part.backlog_messages[first - begin : end - begin]
        for begin, part in zip(begins, parts, strict=True)
    ]
    return Lag(
        LAG_SAMPLE_MS, first * interval_us, [_sum(row) for row in zip(*columns, strict=True)]
    )


def _sum(row: Sequence[int | None]) -> int | None:
    known = [each for each in row if each is not None]
    return sum(known) if len(known) == len(row) else None
