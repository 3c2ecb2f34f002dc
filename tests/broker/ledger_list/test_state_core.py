"""Events and their encoding: what is told is rebuilt, and what cannot be one is refused."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from fencelog.broker.ledger_list.state_core import (
    Event,
    PartitionState,
    decode_events,
    encode_events,
)
from fencelog.broker.limits import STATE_ENTRY_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError


class Numbers:
    """The simplest section: named numbers, under a kind of its own."""

    def __init__(self, kind: str = "set") -> None:
        self.kinds = (kind,)
        self.values: dict[str, int] = {}

    def apply(self, event: Event) -> None:
        _, name, value = event
        self.values[name] = int(value)

    def snapshot(self) -> Iterable[Event]:
        return [[self.kinds[0], name, value] for name, value in self.values.items()]


def test_a_snapshot_tells_every_section_in_its_order() -> None:
    first, second = Numbers("a"), Numbers("b")
    state = PartitionState([first, second])
    for event in (["b", "x", 1], ["a", "y", 2], ["b", "x", 3]):
        state.apply(event)
    told = list(state.snapshot())
    assert told == [["a", "y", 2], ["b", "x", 3]]
    copies = Numbers("a"), Numbers("b")
    copy = PartitionState(copies)
    for event in told:
        copy.apply(event)
    assert [c.values for c in copies] == [first.values, second.values]


def test_no_events_take_no_entry() -> None:
    assert list(encode_events([])) == []


def test_large_snapshots_take_several_entries() -> None:
    events: list[Event] = [["set", "x" * 1000, number] for number in range(2500)]
    parts = list(encode_events(events))
    assert len(parts) == 3
    assert all(len(data) <= STATE_ENTRY_BYTES for _, data in parts)
    assert [event for _, data in parts for event in decode_events(data)] == events
    assert sum(count for count, _ in parts) == len(events)


@pytest.mark.parametrize("event", [["other"], [], ["set"], ["set", "a", "b"], [[]], ["set", [], 1]])
def test_an_event_that_cannot_be_is_corrupt(event: Event) -> None:
    with pytest.raises(FencelogError) as caught:
        PartitionState([Numbers()]).apply(event)
    assert caught.value.code is ErrorCode.CORRUPT


def test_bytes_that_are_no_events_are_corrupt() -> None:
    for data in (b"", b"[", b"{}", b'["set","a",1]\n'):
        with pytest.raises(FencelogError) as caught:
            decode_events(data)
        assert caught.value.code is ErrorCode.CORRUPT
