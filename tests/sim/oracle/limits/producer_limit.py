"""The producers that a partition remembers, of those with sequence numbers: the oracle of
``max_producers`` (17).

Which of them an owner remembers follows from the log alone: those that wrote last, whoever the
owner was, and wherever it took that from. So, when everything was read, every append that is in the
log, and every refusal of a sequence number, is compared with a walk through the log.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_SEQUENCE, SequenceRange

Known = tuple[int, int]
"""A producer's epoch and next sequence number."""


@dataclass(slots=True, eq=False)
class Try:
    """An append as an instance was asked for it. ``settled``: so far that one knew the log."""

    sequences: SequenceRange
    settled: int
    expected: int | None = None
    """The sequence number that it was told to be the next one, if it was refused for that."""

    def answered(self, error: FencelogError | None) -> None:
        if error is not None and error.code is ErrorCode.SEQUENCE_MISMATCH:
            self.expected = int(error.extra["expected_sequence"])


@dataclass(slots=True)
class ProducerLimit:
    """The oracle of one partition, which remembers ``most`` producers."""

    most: int
    violate: Callable[[int, str], None]
    tries: list[Try] = field(default_factory=list)

    def tried(self, sequences: SequenceRange | None, rows: int, settled: int) -> Try | None:
        """An append begins at an instance."""
        if sequences is None or sequences.kind != RANGE_SEQUENCE:
            return None
        self.tries.append(Try(sequences._replace(rows=rows), settled))
        return self.tries[-1]

    def may_come_again(self, sequences: SequenceRange | None) -> bool:
        """Tell whether it may be written once more: its producer's appends, from the first on, if
        that was forgotten. ``check`` says whether it was."""
        return sequences is not None and sequences.kind == RANGE_SEQUENCE

    def check(self, written: dict[int, SequenceRange]) -> None:
        """Check the whole log. ``written``: the appends with sequence numbers, by offset."""
        walk = _Walk(self.most, written)
        for offset, sequences in written.items():
            settled = [one.settled for one in self.tries if one.sequences == sequences]
            if not any(walk.admits(sequences, at, offset) for at in settled if at <= offset):
                self.violate(
                    17,
                    f"{_named(sequences)} is at {offset}, {walk.known(sequences, offset)} is known",
                )
        for one in self.tries:
            epoch, following = walk.known(one.sequences, one.settled) or (one.sequences.epoch, 0)
            due = following if epoch == one.sequences.epoch else 0
            if one.expected not in (None, due):
                self.violate(
                    17,
                    f"{_named(one.sequences)} is refused, {one.expected} is expected and not {due}",
                )


class _Walk:
    """The producers that are known after each append of the log."""

    def __init__(self, most: int, written: dict[int, SequenceRange]) -> None:
        self._written = written
        self._states: list[tuple[int, dict[bytes, Known]]] = [(0, {})]
        latest: OrderedDict[bytes, Known] = OrderedDict()
        for offset, sequences in written.items():
            latest[sequences.id] = _after(sequences)
            latest.move_to_end(sequences.id)
            if len(latest) > most:
                latest.popitem(last=False)
            self._states.append((offset + sequences.rows, dict(latest)))

    def known(self, sequences: SequenceRange, settled: int) -> Known | None:
        """Return what is known of the producer of a range where the log is settled so far."""
        state = next(state for end, state in reversed(self._states) if end <= settled)
        return state.get(sequences.id)

    def admits(self, sequences: SequenceRange, settled: int, offset: int) -> bool:
        """Tell whether it may have been let in then, to be written there: it follows what was in
        flight of its producer, or what was known, or begins."""
        before = [
            earlier
            for at, earlier in self._written.items()
            if settled <= at < offset and earlier.id == sequences.id
        ]
        known = _after(before[-1]) if before else self.known(sequences, settled)
        if known is None:
            return sequences.sequence == 0
        epoch, following = known
        return (
            sequences.sequence == (following if sequences.epoch == epoch else 0)
            and sequences.epoch >= epoch
        )


def _after(sequences: SequenceRange) -> Known:
    return sequences.epoch, sequences.sequence + sequences.rows


def _named(sequences: SequenceRange) -> str:
    return f"{sequences.id.hex()[:6]}'s {sequences.sequence} of epoch {sequences.epoch}"
