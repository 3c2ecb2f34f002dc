"""The producers that a partition remembers while operators change their number: the oracle of
``max_producers`` where nobody can say which number an owner went by (17).

A producer is surely remembered as long as fewer others have written since than the smallest number
that was ever set. Otherwise it may be forgotten: then it begins again, or is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fencelog.ledgers.format.entry_header import RANGE_SEQUENCE, SequenceRange
from tests.sim.oracle.limits.producer_limit import Known, ProducerLimit, Try, _after, _named


@dataclass(slots=True, eq=False)
class BoundTry(Try):
    """``least``: the smallest number that had been set when it was asked for."""

    least: int = 1


@dataclass(slots=True)
class ProducerBounds(ProducerLimit):
    """``least`` gives the smallest number that was ever set; ``on_forgotten`` is told of each
    refusal of a producer that was forgotten, and of each that began again."""

    least: Callable[[], int] = lambda: 1
    on_forgotten: Callable[[str], None] = lambda what: None

    def tried(self, sequences: SequenceRange | None, rows: int, settled: int) -> Try | None:
        """An append begins at an instance."""
        if sequences is None or sequences.kind != RANGE_SEQUENCE:
            return None
        self.tries.append(BoundTry(sequences._replace(rows=rows), settled, None, self.least()))
        return self.tries[-1]

    def check(self, written: dict[int, SequenceRange]) -> None:
        """Check the whole log. ``written``: the appends with sequence numbers, by offset."""
        for offset, sequences in written.items():
            tries = [one for one in self.tries if one.sequences == sequences]
            if not any(_admits(one, written, offset) for one in tries if one.settled <= offset):
                self.violate(17, f"{_named(sequences)} is at {offset}, and does not follow")
            latest = _latest(written, sequences, offset)
            if latest is not None and latest[1][0] == sequences.epoch and not sequences.sequence:
                self.on_forgotten("producers began again")
        for one in self.tries:
            if one.expected is None:
                continue
            due = {
                0 if known is None or known[0] != one.sequences.epoch else known[1]
                for known in _may_be_known(one, written)
            }
            if one.expected not in due:
                self.violate(
                    17,
                    f"{_named(one.sequences)} is refused, {one.expected} is expected, not of {due}",
                )
            latest = _latest(written, one.sequences, one.settled)
            if latest is not None and latest[1][0] == one.sequences.epoch and not one.expected:
                self.on_forgotten("producers refused as forgotten")


def _latest(
    written: dict[int, SequenceRange], sequences: SequenceRange, settled: int
) -> tuple[int, Known] | None:
    """Return where the latest append of its producer ends that is settled, and what it leaves."""
    found = None
    for at, earlier in written.items():
        if earlier.id == sequences.id and at + earlier.rows <= settled:
            found = (at + earlier.rows, _after(earlier))
    return found


def _may_be_known(one: Try, written: dict[int, SequenceRange]) -> Iterator[Known | None]:
    """Yield what may be known of the producer: the latest, and nothing if it may be forgotten."""
    latest = _latest(written, one.sequences, one.settled)
    if latest is not None:
        yield latest[1]
        others = {
            later.id
            for at, later in written.items()
            if latest[0] <= at and at + later.rows <= one.settled
        }
        if isinstance(one, BoundTry) and len(others - {one.sequences.id}) < one.least:
            return
    yield None


def _admits(one: Try, written: dict[int, SequenceRange], offset: int) -> bool:
    """Tell whether it may have been let in then, to be written there: it follows what was in flight
    of its producer, or what may be known, or begins."""
    sequences = one.sequences
    before = [
        earlier
        for at, earlier in written.items()
        if one.settled <= at < offset and earlier.id == sequences.id
    ]
    states = [_after(before[-1])] if before else _may_be_known(one, written)
    for known in states:
        if known is None:
            if sequences.sequence == 0:
                return True
            continue
        epoch, following = known
        if sequences.epoch >= epoch and sequences.sequence == (
            following if sequences.epoch == epoch else 0
        ):
            return True
    return False
