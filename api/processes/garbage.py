"""The garbage collector of a process that serves.

Reference counts free nearly all objects; the collector finds the cycles that they leave, and stops
the process meanwhile. Its full collections would walk all objects, again and again: a tenth of a
second for each 1,000 open topics, so that with 60,000 a broker would lose its session. So only new
objects are walked, once; those that are still in use are set apart, where counts alone free them.

What becomes garbage among these stays, until they are twice as many as were in use at the last
look: then one collection walks all, which takes as long as a full one. Growth brings it about, too.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping

_NEW_OBJECTS = 20_000
"""New objects before a collection, which takes 10 to 20 ms. Requests leave hardly any cycles: a
collection every 700 objects would be one part in 25 of an append; one every 20,000 bounds them to a
few MB."""

_NEVER = 1_000_000
"""Collections of new objects before one of the next generation, which is always empty."""

LEAST_GARBAGE = 500_000
"""Objects beyond those in use for which all are walked, at least: some 100 MB."""

_FEWEST_BETWEEN_COUNTS = 500_000
"""Objects that are set apart before all of them are counted, which takes 0.1 s for a million: at
least so many, and as many as there were at the last count. Most are freed long before."""


class GarbageCollection:
    """The collector's settings while a process serves. ``soon`` has something called later, from
    any thread: within a collection there cannot be another one."""

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], object],
        *,
        least_garbage: int = LEAST_GARBAGE,
        fewest_between_counts: int = _FEWEST_BETWEEN_COUNTS,
    ) -> None:
        self._soon = soon
        self._least_garbage = least_garbage
        self._fewest_between_counts = fewest_between_counts
        self._thresholds = gc.get_threshold()
        self._in_use = 0
        """Objects that were set apart and in use, by the last walk of all."""
        self._counted = 0
        """Objects that were set apart, by the last count."""
        self._added = 0
        """The most by which their number may have grown since."""
        self._is_asked = False

    def start(self) -> None:
        """Begin once the service has started: what its start has made is set apart."""
        gc.freeze()
        if sys.version_info >= (3, 14):
            gc.set_threshold(_NEW_OBJECTS)  # It walks old objects in parts, by itself.
            return
        gc.set_threshold(_NEW_OBJECTS, _NEVER, _NEVER)
        self._in_use = self._counted = gc.get_freeze_count()
        gc.callbacks.append(self.on_collection)

    def stop(self) -> None:
        """Leave the collector as it was before."""
        if self.on_collection in gc.callbacks:
            gc.callbacks.remove(self.on_collection)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        """Take note of a collection that begins or has ended; the interpreter calls it."""
        if phase != "stop":
            return
        gc.freeze()
        self._added += _NEW_OBJECTS
        if self._added <= max(self._fewest_between_counts, self._counted):
            return
        self._counted, self._added = gc.get_freeze_count(), 0
        if self._counted > self._in_use + max(self._in_use, self._least_garbage):
            if not self._is_asked:
                self._soon(self._walk_all)
            self._is_asked = True

    def _walk_all(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # A collection that another thread had begun would have left that undone.
        self._in_use = self._counted = gc.get_freeze_count()
        self._added = 0
        self._is_asked = False
