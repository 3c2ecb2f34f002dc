"""The shrinking of a failed history: leave out faults, and see whether it still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

MAX_RUNS = 60


def shortened(
    faults: Sequence[T], fails: Callable[[Sequence[T]], bool], *, max_runs: int = MAX_RUNS
) -> list[T]:
    """A shorter list with which ``fails`` still says yes: halves first, then one by one.

    Leaving a fault out changes what follows, so the result is short, not always the shortest.
    """
    kept = list(faults)
    runs = 0
    size = max(1, len(kept) // 2)
    while kept and runs < max_runs:
        start, shorter = 0, False
        while start < len(kept) and runs < max_runs:
            candidate = kept[:start] + kept[start + size :]
            runs += 1
            if fails(candidate):
                kept, shorter = candidate, True
            else:
                start += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return kept
