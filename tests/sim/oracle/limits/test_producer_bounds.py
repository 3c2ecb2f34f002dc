"""The verdicts of the oracle of producers whose number is changed, on histories made by hand."""

from __future__ import annotations

from collections import Counter

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_SEQUENCE, SequenceRange
from tests.sim.oracle.limits.producer_bounds import ProducerBounds


class Producers:
    """A partition that remembers as many producers as ``least`` says, or more."""

    def __init__(self, least: int) -> None:
        self.least = least
        self.said: list[str] = []
        self.counts: Counter[str] = Counter()
        self.bounds = ProducerBounds(
            0, lambda _, text: self.said.append(text), [], lambda: self.least, self._count
        )
        self._written: dict[int, SequenceRange] = {}

    def _count(self, what: str) -> None:
        self.counts[what] += 1

    def write(
        self, name: str, sequence: int, *, epoch: int = 0, settled: int | None = None
    ) -> None:
        sequences, end = _run(name, sequence, epoch), len(self._written)
        self.bounds.tried(sequences, 1, end if settled is None else settled)
        self._written[end] = sequences

    def refuse(self, name: str, sequence: int, *, expected: int) -> None:
        tried = self.bounds.tried(_run(name, sequence, 0), 1, len(self._written))
        assert tried is not None
        tried.answered(FencelogError(ErrorCode.SEQUENCE_MISMATCH, "no", expected_sequence=expected))

    def judged(self) -> str:
        self.bounds.check(self._written)
        return " ".join(self.said)


def _run(name: str, sequence: int, epoch: int) -> SequenceRange:
    return SequenceRange(1, RANGE_SEQUENCE, name.encode().ljust(16), epoch, sequence)


def test_who_may_be_forgotten_goes_on_or_begins_again() -> None:
    for on in (1, 0):
        one = Producers(least=1)
        one.write("a", 0)
        one.write("b", 0)
        one.write("a", on)
        one.write("b", 0, epoch=1)
        assert one.judged() == ""
        assert one.counts == ({} if on else {"producers began again": 1})


def test_who_has_to_be_remembered_does_not_begin_again() -> None:
    one = Producers(least=2)
    one.write("a", 0)
    one.write("b", 0)
    one.write("b", 1)
    one.write("a", 0)
    assert "0 of epoch 0 is at 3, and does not follow" in one.judged()


def test_a_gap_is_seen_whoever_is_forgotten() -> None:
    one = Producers(least=1)
    one.write("a", 0)
    one.write("b", 0)
    one.write("a", 2)
    assert "2 of epoch 0 is at 2, and does not follow" in one.judged()


def test_what_was_in_flight_is_followed() -> None:
    one = Producers(least=1)
    one.write("a", 0)
    one.write("b", 0, settled=0)
    one.write("a", 1, settled=0)
    assert one.judged() == ""
    again = Producers(least=1)
    again.write("a", 0)
    again.write("b", 0, settled=0)
    again.write("a", 0, settled=0)
    assert "does not follow" in again.judged()


def test_refusals_are_judged_by_the_number_that_was_set() -> None:
    right, early, strange = Producers(least=2), Producers(least=2), Producers(least=2)
    for one in (right, early, strange):
        one.write("a", 0)
        one.write("b", 0)
    right.refuse("a", 2, expected=1)
    right.least = 1
    right.refuse("a", 2, expected=0)
    right.refuse("c", 1, expected=0)
    assert right.judged() == ""
    assert right.counts == {"producers refused as forgotten": 1}
    early.refuse("a", 2, expected=0)
    early.least = 1
    assert "is refused, 0 is expected, not of {1}" in early.judged()
    strange.least = 1
    strange.refuse("a", 3, expected=2)
    assert "is refused, 2 is expected" in strange.judged()
