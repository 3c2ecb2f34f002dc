"""The list of topics with totals: those of several brokers added up, sorted and cut into pages.
Decisions on values alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fencelog.broker.partition.stats.topic_totals import TOTALS, TopicTotals


class SortBy(StrEnum):
    """The order of topics: by their names, or a figure, the largest first."""

    NAME = "name"
    IN = "in_bytes_per_s"
    OUT = "out_bytes_per_s"
    SIZE = "size"
    MESSAGES = "messages"
    BACKLOG = "backlog_messages"


@dataclass(slots=True)
class TopicRow:
    """A topic that is open somewhere: its figures, and the brokers that own partitions of it."""

    totals: TopicTotals = field(default_factory=TopicTotals)
    brokers: list[str] = field(default_factory=list)


def to_wire(totals: Mapping[str, TopicTotals]) -> dict[str, list[float]]:
    """Return the figures of one broker for another one: numbers in the order of ``TOTALS``."""
    return {topic: [getattr(each, name) for name in TOTALS] for topic, each in totals.items()}


def from_wire(answer: Mapping[str, Any]) -> dict[str, TopicTotals]:
    """Return the figures that another broker has sent. Raises ValueError."""
    try:
        return {
            topic: TopicTotals(**dict(zip(TOTALS, numbers, strict=True)))
            for topic, numbers in answer["topics"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no figures of topics: {error!r}") from error


def added_up(of_brokers: Mapping[str, Mapping[str, TopicTotals]]) -> dict[str, TopicRow]:
    """Return the figures of all brokers by topic."""
    rows: dict[str, TopicRow] = {}
    for broker_id, totals in sorted(of_brokers.items()):
        for topic, each in totals.items():
            row = rows.setdefault(topic, TopicRow())
            row.totals.add(each)
            row.brokers.append(broker_id)
    return rows


def ordered(
    names: Iterable[str], rows: Mapping[str, TopicRow], *, contains: str, by: SortBy
) -> Sequence[str]:
    """Return the names that contain a text, whatever its case, in order. Topics without figures,
    which are not open anywhere, come last; equal ones follow their names."""
    text = contains.casefold()
    found = sorted(name for name in names if text in name.casefold())
    if by is SortBy.NAME:
        return found

    def place(name: str) -> tuple[bool, float]:
        row = rows.get(name)
        return row is None, 0.0 if row is None else -getattr(row.totals, by)

    return sorted(found, key=place)
