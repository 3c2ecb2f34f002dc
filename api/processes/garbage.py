"""The garbage collector of a process that serves.

Reference counts free nearly all objects; the collector finds the cycles that they leave, and stops
the process meanwhile. Its full collections walk all objects, again and again: a tenth of a second
for each 1,000 open topics, so that with 60,000 a broker would lose its session. So what a full
collection has left is set apart, and the next one walks only what came since. What becomes garbage
among the objects set apart stays, until it may be more than all else: then one collection walks all
of them.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

LEAST_OBJECTS = 500_000
"""The number of objects that may be garbage in any process: some 100 MB."""

_THRESHOLDS = (20_000, 5, 20)
"""New objects before a collection of the youngest, of these before one of the next generation, of
which before a full one. Requests leave hardly any cycles: a collection every 700 objects would be
one part in 25 of an append; one every 20,000 bounds them to a few MB, and 120,000 objects are
walked in some 40 ms."""

_FULL = 2
"""The generation that a full collection walks, with those below it."""


class GarbageCollection:
    """The collector's settings while a process serves."""

    def __init__(self, *, least_objects: int = LEAST_OBJECTS) -> None:
        self._least_objects = least_objects
        self._live = 0
        """Objects that were set apart and known to be in use, by the last walk of all."""
        self._added = 0
        """An upper bound of those that were set apart since."""

    def start(self) -> None:
        """Begin once the service has started: what its start has made is set apart."""
        gc.set_threshold(*_THRESHOLDS)
        gc.freeze()
        self._live = gc.get_freeze_count()
        gc.callbacks.append(self.on_collection)

    def on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        """Take note of a collection that begins or has ended; the interpreter calls it."""
        if info["generation"] != _FULL:
            return
        if phase == "start":
            if self._may_be_garbage():
                gc.unfreeze()
                self._live = self._added = 0
        else:
            self._set_apart()

    def _set_apart(self) -> None:
        """Set apart what a full collection has left."""
        count = len(gc.get_objects(_FULL))
        gc.freeze()
        if self._live:
            self._added += count
        else:
            self._live = count

    def _may_be_garbage(self) -> bool:
        """Tell whether more than half of the objects set apart may be garbage. They are counted
        only where the bound tells nothing: most of them may have been freed long ago."""
        most = max(self._live, self._least_objects)
        if self._added > most:
            self._added = gc.get_freeze_count() - self._live
        return self._added > most
