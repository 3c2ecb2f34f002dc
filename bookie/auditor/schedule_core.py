"""The checks that an auditor makes from time to time, and which of them is due. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class CheckName(Enum):
    """The checks of an auditor."""

    BOOKIES = "bookies"
    """All metadata is scanned for lost bookies; ledgers are marked."""
    LEDGERS = "ledgers"
    """Ledgers are compared with the bookies' lists, samples are read; ledgers are marked."""
    CLUSTER = "cluster"
    """The cluster metadata checker, which only reports."""
    PLACEMENT = "placement"
    """Fragments in too few racks are marked."""


def next_check(
    intervals_ms: Mapping[CheckName, int],
    finished_us: Mapping[CheckName, int],
    *,
    began_us: int,
    now_us: int,
) -> tuple[CheckName | None, int]:
    """Return the check that is due, the one that is most overdue first, None if none is; and the
    microseconds until the next one. ``finished_us``: the ends of the previous ones, by any auditor;
    ``began_us``: the earliest time for a first check. An interval of 0 means never. A previous
    check that lies in the future was written by another clock, and counts as none."""
    due = {}
    for name, interval_ms in intervals_ms.items():
        finished = finished_us.get(name)
        if interval_ms > 0:
            due[name] = began_us
            if finished is not None and finished <= now_us:
                due[name] = max(began_us, finished + interval_ms * 1000)
    if not due:
        return None, 86_400_000_000
    name = min(due, key=lambda check: (due[check], list(CheckName).index(check)))
    wait_us = max(0, due[name] - now_us)
    return (name if wait_us == 0 else None), wait_us
