"""The comparison of lists with metadata: against rule 1, entry by entry, and its limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.auditor.check_core import (
    MAX_NAMED_GROUPS,
    MAX_NAMED_RANGES,
    MAX_VIOLATIONS_OF_LEDGER,
    Answer,
    DurabilityFindings,
    ListedEntries,
    Shortfall,
    Violation,
    ViolationKind,
    _put,
    named_ranges,
    ranges_text,
    shortfalls,
    verdict,
)
from fencelog.ledgers.format.availability import Availability, SequenceGroup
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.quorum import write_set

NAMES = [f"b{n}" for n in range(1, 9)]


def ledger(
    ensemble: str = "b1 b2 b3", write_quorum: int = 3, *, qa: int = 2, last: int = 9
) -> LedgerMetadata:
    metadata = new_metadata(
        6, ensemble=tuple(ensemble.split()), write_quorum=write_quorum, ack_quorum=qa, token="t"
    )
    return metadata.closed(last_entry_id=last, length=0)


def holding(entries: Iterable[int], answer: Answer = Answer.COMPLETE) -> ListedEntries:
    return ListedEntries(answer, Availability.of((n, n) for n in sorted(set(entries))))


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    size = draw(st.integers(1, 6))
    copies = draw(st.integers(1, size))
    metadata = new_metadata(
        6,
        ensemble=tuple(draw(st.permutations(NAMES))[:size]),
        write_quorum=copies,
        ack_quorum=draw(st.integers(1, copies)),
        token="t",
    )
    for first in sorted(draw(st.sets(st.integers(1, 60), max_size=2))):
        metadata = metadata.with_ensemble(first, tuple(draw(st.permutations(NAMES))[:size]))
    return metadata.closed(last_entry_id=draw(st.integers(-1, 80)), length=0)


@st.composite
def lists(draw: st.DrawFn, metadata: LedgerMetadata) -> dict[str, ListedEntries]:
    """The share of each bookie by rule 1, of which some entries, some periods or everything may be
    missing, and what it has beyond that."""
    held = {}
    for name in NAMES:
        share = {n for n in range(metadata.last_entry_id + 1) if name in write_set_of(metadata, n)}
        lost = draw(st.sets(st.integers(0, 80), max_size=4))
        step = draw(st.sampled_from([0, 0, 2, 3, 5, 7]))
        if step:
            lost |= set(range(draw(st.integers(0, 6)), 81, step))
        extra = draw(st.sets(st.integers(0, 90), max_size=4))
        answer = draw(st.sampled_from(Answer))
        if answer in (Answer.UNAVAILABLE, Answer.GONE) or draw(st.integers(0, 5)) == 0:
            share, extra = set(), set()
        held[name] = holding((share - lost) | extra, answer)
    return held


def write_set_of(metadata: LedgerMetadata, entry_id: int) -> list[str]:
    """Rule 1, word by word."""
    ensemble = metadata.fragment_of(entry_id).bookies
    members = write_set(
        entry_id, ensemble_size=metadata.ensemble_size, write_quorum=metadata.write_quorum
    )
    return [ensemble[index] for index in members]


def plainly(
    metadata: LedgerMetadata, first: int, last: int, held: Mapping[str, ListedEntries]
) -> dict[int, tuple[set[str], set[str], set[str]]]:
    """Entry by entry: who has it, who lacks it, who cannot tell."""
    found = {}
    for entry_id in range(first, min(last, metadata.last_entry_id) + 1):
        members = write_set_of(metadata, entry_id)
        present = {b for b in members if entry_id in held[b].listed}
        lacking = set(members) - present
        sure = {b for b in lacking if held[b].answer in (Answer.COMPLETE, Answer.GONE)}
        if lacking:
            found[entry_id] = (present, sure, lacking - sure)
    return found


def entries_of(group: SequenceGroup) -> list[int]:
    starts = range(group.first, group.start + 1, group.period or group.size)
    return [start + k for start in starts for k in range(group.size)]


@given(st.data())
def test_shortfalls_are_those_that_rule_1_gives_entry_by_entry(data: st.DataObject) -> None:
    metadata = data.draw(ledgers())
    held = data.draw(lists(metadata))
    first = data.draw(st.integers(0, 40))
    last = data.draw(st.integers(first - 1, 90))
    found: dict[int, tuple[set[str], set[str], set[str]]] = {}
    for shortfall in shortfalls(metadata, first, last, held):
        entries = entries_of(shortfall.entries)
        assert len(entries) == shortfall.count
        for entry_id in entries:
            assert entry_id not in found
            assert metadata.fragment_of(entry_id).first_entry_id == shortfall.fragment
            found[entry_id] = (
                set(shortfall.present),
                set(shortfall.absent),
                set(shortfall.unknown),
            )
    assert found == plainly(metadata, first, last, held)


@given(st.data())
def test_verdicts_hold_whatever_the_unknown_bookies_have(data: st.DataObject) -> None:
    """The kind is the mildest one among all that the bookies that cannot tell might say."""
    metadata = data.draw(ledgers())
    held = data.draw(lists(metadata))
    order = [
        None,
        ViolationKind.BELOW_WRITE_QUORUM,
        ViolationKind.BELOW_ACK_QUORUM,
        ViolationKind.NO_COPY,
    ]
    for shortfall in shortfalls(metadata, 0, 90, held):
        copies = len(shortfall.present) + len(shortfall.unknown)
        if copies == metadata.write_quorum:
            mildest = 0
        elif copies >= metadata.ack_quorum and copies > 0:
            mildest = 1
        else:
            mildest = 2 if copies else 3
        assert verdict(shortfall, ack_quorum=metadata.ack_quorum) is order[mildest]


@given(st.data())
def test_findings_add_up_to_the_entries_that_lack_copies(data: st.DataObject) -> None:
    metadata = data.draw(ledgers())
    held = data.draw(lists(metadata))
    findings = DurabilityFindings(metadata)
    middle = data.draw(st.integers(0, 90))  # two pages of lists
    findings.add(shortfalls(metadata, 0, middle, held))
    findings.add(shortfalls(metadata, middle + 1, 90, held))
    plain = plainly(metadata, 0, 90, held)
    violations = list(findings.violations())
    assert sum(v.entries for v in violations) == sum(1 for _, lack, _ in plain.values() if lack)
    assert findings.unknown_entries == sum(1 for _, lack, _ in plain.values() if not lack)
    assert findings.missing == Counter(b for _, lack, _ in plain.values() for b in lack)
    assert findings.counts == Counter(v.kind for v in violations)
    for violation in violations:
        named = [entry for group in violation.groups for entry in entries_of(group)]
        assert violation.entries == len(named) == len(set(named))
        assert all(set(violation.absent) == plain[entry][1] for entry in named)
        assert violation.to_json()["entry_count"] == violation.entries


def test_the_categories_of_three_copies_with_two_to_wait_for() -> None:
    metadata = ledger(last=3)
    held = {
        "b1": holding([0, 1, 2]),
        "b2": holding([0, 1]),
        "b3": holding([0]),
    }
    findings = DurabilityFindings(metadata)
    findings.add(shortfalls(metadata, 0, 3, held))
    assert [(v.kind, v.absent, v.detail) for v in findings.violations()] == [
        (ViolationKind.BELOW_WRITE_QUORUM, ("b3",), "entry 1: not on b3"),
        (ViolationKind.BELOW_ACK_QUORUM, ("b2", "b3"), "entry 2: not on b2, b3"),
        (
            ViolationKind.NO_COPY,
            ("b1", "b2", "b3"),
            "entry 3: lost with their whole write set, b1, b2, b3",
        ),
    ]


@pytest.mark.parametrize("answer", [Answer.IN_LIMBO, Answer.UNAVAILABLE])
def test_a_bookie_that_cannot_tell_lacks_nothing(answer: Answer) -> None:
    metadata = ledger()
    held = {"b1": holding(range(10)), "b2": holding(range(5), answer), "b3": holding(range(10))}
    findings = DurabilityFindings(metadata)
    findings.add(shortfalls(metadata, 0, 9, held))
    assert list(findings.violations()) == []
    assert findings.counts == {}
    assert findings.missing == {}
    assert findings.unknown_entries == 5


def test_a_write_set_of_bookies_that_are_gone_is_lost_as_a_whole() -> None:
    metadata = ledger("b1 b2 b3 b4", 2, qa=2, last=7)
    held = {
        "b1": ListedEntries(Answer.GONE),
        "b2": ListedEntries(Answer.GONE),
        "b3": holding(n for n in range(8) if n % 4 in (1, 2)),
        "b4": holding(n for n in range(8) if n % 4 in (2, 3)),
    }
    findings = DurabilityFindings(metadata)
    findings.add(shortfalls(metadata, 0, 7, held))
    by_kind = {(v.kind, v.absent): named_ranges(v.groups) for v in findings.violations()}
    assert by_kind == {
        (ViolationKind.NO_COPY, ("b1", "b2")): [(0, 0), (4, 4)],
        (ViolationKind.BELOW_ACK_QUORUM, ("b2",)): [(1, 1), (5, 5)],
        (ViolationKind.BELOW_ACK_QUORUM, ("b1",)): [(3, 3), (7, 7)],
    }


def test_a_large_striped_ledger_takes_as_many_steps_as_it_has_groups() -> None:
    """A million million entries: nothing may go through them one by one."""
    last = 10**12
    metadata = ledger("b1 b2 b3 b4 b5", 3, last=last)
    held = {}
    for index, name in enumerate(["b1", "b2", "b3", "b4", "b5"]):
        start = (index - 2) % 5
        first = [SequenceGroup(0, 0, start - 2, 0)] if start > 2 else []
        if name == "b3":  # nothing in the second half
            group = SequenceGroup(start, start + 5 * 10**11, 3, 5)
        else:
            group = SequenceGroup(start, start + (last // 5 + 1) * 5, 3, 5)
        held[name] = ListedEntries(Answer.COMPLETE, Availability((*first, group)))
    findings = DurabilityFindings(metadata)
    findings.add(shortfalls(metadata, 0, last, held))
    assert set(findings.missing) == {"b3"}
    assert findings.missing["b3"] == 3 * (10**12 // 5 - 10**11) - 2
    for violation in findings.violations():
        assert len(violation.to_json()["entries"]) == MAX_NAMED_RANGES


def test_what_a_violation_names_is_bounded() -> None:
    metadata = ledger(last=999)
    everything = holding(range(1000))
    held = {"b1": everything, "b2": everything, "b3": holding(range(0, 1000, 2))}
    findings = DurabilityFindings(metadata)
    findings.add(shortfalls(metadata, 0, 999, held))
    (violation,) = findings.violations()
    assert violation.entries == 500
    assert len(violation.groups) == MAX_NAMED_GROUPS
    assert violation.detail.endswith("31, …: not on b3")
    assert len(named_ranges(violation.groups)) == MAX_NAMED_RANGES


def test_the_violations_that_are_described_are_bounded() -> None:
    metadata = new_metadata(6, ensemble=("b1",), write_quorum=1, ack_quorum=1, token="t")
    for first in range(1, MAX_VIOLATIONS_OF_LEDGER + 5):
        metadata = metadata.with_ensemble(first, (f"b{1 + first % 2}",))
    metadata = metadata.closed(last_entry_id=MAX_VIOLATIONS_OF_LEDGER + 4, length=0)
    findings = DurabilityFindings(metadata)
    findings.add(shortfalls(metadata, 0, 2**62, {"b1": holding([]), "b2": holding([])}))
    assert len(list(findings.violations())) == MAX_VIOLATIONS_OF_LEDGER
    assert findings.counts == {ViolationKind.NO_COPY: MAX_VIOLATIONS_OF_LEDGER + 5}


def test_ranges_are_written_out_ascending_and_joined() -> None:
    groups = [SequenceGroup(3, 13, 2, 5), SequenceGroup(0, 10, 2, 5)]
    assert named_ranges(groups) == [(0, 1), (3, 6), (8, 11), (13, 14)]
    assert ranges_text(groups, 12) == "entries 0..1, 3..6, 8..11, 13..14"
    assert ranges_text([SequenceGroup(5, 5, 1, 0)], 1) == "entry 5"
    assert ranges_text([SequenceGroup(5, 5, 1, 0)], 2) == "entries 5, …"


def test_entries_beyond_a_fragment_are_in_none_of_its_stripes() -> None:
    parts: list[list[tuple[int, int]]] = [[], []]
    _put(parts, 2, 0, 4, 6, 8)
    assert parts == [[], []]
    _put(parts, 2, 0, 4, 2, 8)
    assert parts == [[(1, 2)], []]


def test_json_has_the_members_that_apply() -> None:
    plain = Violation(ViolationKind.PLACEMENT, 7, "one rack", 0)
    assert plain.to_json() == {
        "kind": "placement",
        "ledger_id": 7,
        "detail": "one rack",
        "fragment": 0,
    }
    full = Violation(
        ViolationKind.NO_COPY, 7, "lost", None, (SequenceGroup(2, 2, 3, 0),), 3, ("b1",), ("b2",)
    )
    assert full.to_json() == {
        "kind": "no_copy",
        "ledger_id": 7,
        "detail": "lost",
        "entries": [[2, 4]],
        "entry_count": 3,
        "absent": ["b1"],
        "unknown": ["b2"],
    }


def test_a_shortfall_counts_its_entries() -> None:
    assert Shortfall(0, SequenceGroup(0, 10, 1, 5), (), (), ()).count == 3
