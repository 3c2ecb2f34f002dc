"""Times of several works that are compared: in turn, so that a busy moment hits all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter

ROUNDS = 3


def best_s(works: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the shortest of several times of each work, in seconds; one before them does not
    count."""
    for work in works.values():
        work()
    best = dict.fromkeys(works, float("inf"))
    for _ in range(ROUNDS):
        for name, work in works.items():
            begin = perf_counter()
            work()
            best[name] = min(best[name], perf_counter() - begin)
    return best
