"""The entries that a ledger check reads, out of those that a bookie should have. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fencelog.ledgers.format.availability import Range

_MIN_SHARE = 1e-12
"""A smaller share is none: no ledger has so many entries."""


def sampled(wanted: Iterable[Range], *, share: float, start: float) -> Iterator[Range]:
    """Yield the first and the last entry of the ranges, and a share (0 … 1) of the others, evenly
    spaced: ascending, each once, as ranges.

    ``start``: a fraction, 0 <= it < 1, that says where the spacing begins, so that one check after
    the other reads other entries.
    """
    ranges = list(wanted)
    if not ranges:
        return
    if share >= 1:
        yield from ranges
        return
    first, last = ranges[0][0], ranges[-1][1]
    yield first, first
    if share > _MIN_SHARE:
        step = 1 / share
        passed, number = 0, 0
        for low, high in ranges:
            size = high - low + 1
            # The sample with this number is entry floor((start + number) * step) of all of them.
            while (at := int((start + number) * step)) < passed + size:
                number += 1
                entry_id = low + at - passed
                if first < entry_id < last:
                    yield entry_id, entry_id
            passed += size
    if last > first:
        yield last, last
