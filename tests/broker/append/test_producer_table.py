"""The table of producers as a core: every answer, and that a rebuilt table is the same one."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from random import Random  # noqa: TID251 - seeded, so that a failure can be repeated

import pytest

from fencelog.broker.append import producer_table as module
from fencelog.broker.append.conditions import (
    FORGOTTEN,
    AppendConditions,
    Repeated,
    SequenceRanges,
    Tracked,
)
from fencelog.broker.append.producer_table import ProducerTable, RecentAppend
from fencelog.broker.ledger_list.state_core import PartitionState
from fencelog.broker.limits import RECENT_APPENDS
from fencelog.broker.policy import Policy
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import (
    RANGE_KEY,
    RANGE_NO_PRODUCER,
    RANGE_SEQUENCE,
    SequenceRange,
    producer_digest,
)

A, B, C = (producer_digest(name) for name in (b"a", b"b", b"c"))


def sequences(sequence: int, rows: int = 1, epoch: int = 0, producer: bytes = A) -> SequenceRange:
    return SequenceRange(rows, RANGE_SEQUENCE, producer, epoch, sequence)


def key(name: str, rows: int = 1) -> SequenceRange:
    return SequenceRange(rows, RANGE_KEY, producer_digest(name.encode()))


def settle(table: ProducerTable, *ranges: SequenceRange, offset: int = 0, at_us: int = 5) -> int:
    """The offset behind them."""
    table.commit(ranges, offset, at_us, 100)
    return offset + sum(each.rows for each in ranges)


def refused(table: ProducerTable, wanted: SequenceRange) -> tuple[ErrorCode, dict[str, int]]:
    with pytest.raises(FencelogError) as caught:
        table.find(wanted, now_us=0)
    return caught.value.code, caught.value.extra


def rebuilt(
    *sources: ProducerTable,
    changes: list[list[object]] | None = None,
    policy: Policy | None = None,
) -> ProducerTable:
    table = ProducerTable(policy)
    state = PartitionState([table])
    events = [event for source in sources for event in source.snapshot()] + (changes or [])
    for event in json.loads(json.dumps(events)):
        state.apply(event)
    return table


def told(table: ProducerTable) -> str:
    return json.dumps(list(table.snapshot()))


def test_nothing_is_known_at_first() -> None:
    table = ProducerTable()
    assert table.find(sequences(0), now_us=0) is None
    assert table.find(key("k"), now_us=0) is None
    assert refused(table, sequences(1)) == (ErrorCode.SEQUENCE_MISMATCH, {"expected_sequence": 0})
    assert (table.get(A), table.last_tracked(A), table.count) == (None, None, 0)
    assert list(table.snapshot()) == []


def test_what_is_settled_is_found_by_any_part_of_it() -> None:
    table = ProducerTable()
    settle(table, sequences(0, 3), sequences(0, 2, producer=B), sequences(3, 2), offset=10)
    assert table.find(sequences(0, 3), now_us=0) == RecentAppend(0, 10, 3, 5)
    assert table.find(sequences(1, 2), now_us=0) == RecentAppend(1, 11, 2, 5)
    assert table.find(sequences(4, 1), now_us=0) == RecentAppend(4, 16, 1, 5)
    assert table.find(sequences(2, 2), now_us=0) == RecentAppend(2, FORGOTTEN, 2, FORGOTTEN)
    assert table.find(sequences(5, 9), now_us=0) is None
    assert refused(table, sequences(4, 2)) == (
        ErrorCode.SEQUENCE_MISMATCH,
        {"expected_sequence": 5},
    )
    assert (table.end_offset, table.count) == (17, 2)
    found = table.get(A)
    assert found is not None
    assert (found.epoch, found.next_sequence, found.end_offset) == (0, 5, 17)


def test_only_the_latest_appends_are_kept() -> None:
    table = ProducerTable()
    for sequence in range(RECENT_APPENDS + 1):
        settle(table, sequences(sequence), offset=sequence)
    assert table.find(sequences(0), now_us=0) == RecentAppend(0, FORGOTTEN, 1, FORGOTTEN)
    assert table.find(sequences(1), now_us=0) == RecentAppend(1, 1, 1, 5)


def test_what_is_pushed_is_shared_and_decides_what_follows() -> None:
    table = ProducerTable()
    settle(table, sequences(0, 2))
    first, second = Tracked(sequences(2, 2)), Tracked(sequences(4, 1))
    for tracked in (first, second):
        assert table.find(tracked.sequences, now_us=0) is None
        table.track(tracked)
    assert table.find(sequences(2, 2), now_us=0) is first
    assert table.find(sequences(1, 2), now_us=0) is first
    assert table.find(sequences(3, 2), now_us=0) is second
    assert table.find(sequences(0, 1), now_us=0) == RecentAppend(0, 0, 1, 5)
    assert table.find(sequences(5), now_us=0) is None
    assert table.last_tracked(A) is second
    # What is expected is told by what is in the log alone.
    assert refused(table, sequences(6)) == (ErrorCode.SEQUENCE_MISMATCH, {"expected_sequence": 2})
    settle(table, sequences(2, 2), offset=2)
    assert table.find(sequences(4), now_us=0) is second
    settle(table, sequences(4), offset=4)
    assert table.last_tracked(A) is None


def test_pushed_epochs_fence_and_end_in_order() -> None:
    table = ProducerTable()
    old, new = Tracked(sequences(0, 2)), Tracked(sequences(0, 1, epoch=3))
    table.track(old)
    table.track(new)
    assert refused(table, sequences(2)) == (ErrorCode.PRODUCER_FENCED, {"epoch": 3})
    assert refused(table, sequences(1, epoch=4)) == (
        ErrorCode.SEQUENCE_MISMATCH,
        {"expected_sequence": 0},
    )
    assert table.find(sequences(0, 1, epoch=3), now_us=0) is new
    settle(table, sequences(0, 2))
    assert table.find(sequences(1, epoch=3), now_us=0) is None
    settle(table, sequences(0, 1, epoch=3), offset=2)
    assert refused(table, sequences(2)) == (ErrorCode.PRODUCER_FENCED, {"epoch": 3})
    assert table.find(sequences(0, 1, epoch=3), now_us=0) == RecentAppend(0, 2, 1, 5)


def test_what_vanished_is_pushed_no_more() -> None:
    table = ProducerTable()
    stays, goes, named = Tracked(sequences(0)), Tracked(sequences(1)), Tracked(key("k"))
    for tracked in (stays, goes, named):
        table.track(tracked)
    assert table.find(key("k"), now_us=0) is named
    table.retrack([stays])
    assert table.find(key("k"), now_us=0) is None
    assert table.find(sequences(1), now_us=0) is None
    table.retrack([])
    assert table.find(sequences(0), now_us=0) is None


def test_who_was_silent_longest_goes() -> None:
    table = ProducerTable(replace(Policy(), max_producers=1))
    end = settle(table, sequences(0, 3))
    settle(table, sequences(0, producer=B), offset=end)
    assert table.get(A) is None
    assert refused(table, sequences(3)) == (ErrorCode.SEQUENCE_MISMATCH, {"expected_sequence": 0})
    assert next(event[1] for event in table.changes())[0][0] == B.hex()


def test_who_goes_on_writing_stays_however_long_it_is_known() -> None:
    table = ProducerTable(replace(Policy(), max_producers=2))
    end = settle(table, sequences(0))
    end = settle(table, sequences(0, producer=B), offset=end)
    end = settle(table, sequences(1), offset=end)
    settle(table, sequences(0, producer=C), offset=end)
    known = {name for name, of in (("a", A), ("b", B), ("c", C)) if table.get(of) is not None}
    assert known == {"a", "c"}


def test_keys_end_with_their_window_or_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ProducerTable(replace(Policy(), idempotency_window_ms=1))
    end = settle(table, key("k", 2), at_us=5000)
    assert table.find(key("k"), now_us=5999) == RecentAppend(0, 0, 2, 5000)
    assert table.find(key("k"), now_us=6000) is None
    in_flight = Tracked(key("k"))
    table.track(in_flight)
    assert table.find(key("k"), now_us=6000) is in_flight
    end = settle(table, key("k"), key("l"), offset=end, at_us=6000)
    assert table.find(key("k"), now_us=6001) == RecentAppend(0, 2, 1, 6000)
    monkeypatch.setattr(module, "MAX_IDEMPOTENCY_KEYS", 2)
    end = settle(table, key("m"), offset=end, at_us=6000)
    assert table.find(key("k"), now_us=6001) is None
    assert table.find(key("l"), now_us=6001) is not None
    settle(table, key("n"), offset=end, at_us=8000)
    assert table.find(key("m"), now_us=6001) is None


def test_the_state_log_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, value in (("ENTRIES", 2), ("RANGES", 4), ("BYTES", 200)):
        with monkeypatch.context() as patch:
            patch.setattr(module, f"MAX_REPLAY_{limit}", value)
            table = ProducerTable()
            end = settle(table, sequences(0), key("k"))
            due = [table.is_change_due]
            settle(table, sequences(1), SequenceRange(2, RANGE_NO_PRODUCER), offset=end)
            due.append(table.is_change_due)
            assert len(list(table.changes())) == 3
            due.append(table.is_change_due)
            assert due == [False, True, False]


def test_a_rebuilt_table_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_PER_EVENT", 2)
    table = ProducerTable()
    end = 0
    for number in range(7):
        end = settle(
            table,
            sequences(0, 2, producer=producer_digest(b"%d" % number)),
            key(str(number)),
            offset=end,
        )
    noted = list(table.changes())
    assert len(noted) == 4 + 4 + 1
    settled = (sequences(2, producer=producer_digest(b"3")), key("x"))
    copies = [rebuilt(table), rebuilt(changes=noted)]
    for each in (table, *copies):
        settle(each, *settled, offset=end)
    assert told(copies[0]) == told(copies[1]) == told(table)
    assert rebuilt(table).end_offset == table.end_offset == end + 2
    later = [event for event in table.changes() if event[1] or event[2]]
    assert [len(event[1]) + len(event[2]) for event in later] == [1, 1]


def test_parts_of_a_snapshot_are_not_taken_for_the_whole() -> None:
    """A snapshot without its last part counts for nothing: the log is read from the place before
    it, and changes nothing twice."""
    table = ProducerTable()
    entries = [
        (sequences(0, 2), key("k")),
        (sequences(2, 1), sequences(0, producer=B)),
        (sequences(3),),
    ]
    end = 0
    for entry in entries:
        end = settle(table, *entry, offset=end)
    *parts, _ = table.snapshot()
    half = rebuilt(changes=parts)
    assert half.end_offset == 0
    end = 0
    for entry in entries:
        end = settle(half, *entry, offset=end)
    assert told(half) == told(table)


@pytest.mark.parametrize("seed", range(20))
def test_events_that_were_cut_off_forget_nobody_else(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A takeover has any part of the last changes, and reads the entries after those before: it
    remembers whoever the previous owner remembered, in the same order."""
    monkeypatch.setattr(module, "ROWS_PER_EVENT", 1)
    monkeypatch.setattr(module, "MAX_IDEMPOTENCY_KEYS", 3)
    chance, policy = Random(seed), replace(Policy(), max_producers=3)
    table, counts = ProducerTable(policy), Counter[bytes]()
    entries: list[tuple[int, SequenceRange, SequenceRange]] = []

    def write(number: int) -> None:
        producer = producer_digest(b"%d" % chance.randrange(6))
        if table.get(producer) is None:
            counts[producer] = 0
        ranges = sequences(counts[producer], producer=producer), key(str(chance.randrange(6)))
        counts[producer] += 1
        entries.append((2 * number, *ranges))
        settle(table, *ranges, offset=2 * number)

    for number in range(12):
        write(number)
    events = list(table.snapshot())
    list(table.changes())
    known = len(entries)
    for number in range(known, known + 8):
        write(number)
    changes = list(table.changes())
    for cut in range(len(changes) + 1):
        half = rebuilt(changes=[*events, *changes[:cut]], policy=policy)
        for offset, *ranges in entries[half.end_offset // 2 :]:
            settle(half, *ranges, offset=offset)
        assert remembered(half) == remembered(table)


def remembered(table: ProducerTable) -> tuple[list[list[object]], list[list[object]]]:
    """The producers and keys in their order; of producers how far they are."""
    events = list(table.snapshot())
    producers = [row[:3] for event in events for row in event[1]]
    return producers, [row for event in events for row in event[2]]


@pytest.mark.parametrize("event", [["producers"], ["producers", [["zz", 0, 0, []]], [], 1]])
def test_an_event_that_is_none_is_refused(event: list[object]) -> None:
    with pytest.raises(FencelogError, match="not valid"):
        PartitionState([ProducerTable()]).apply(event)


# -- ranges and shared outcomes --------------------------------------------------------------------


def test_ranges_cover_all_messages_of_an_entry() -> None:
    ranges = SequenceRanges()
    for row, each in (
        (0, sequences(0)),
        (1, sequences(1, 2)),
        (4, sequences(3)),
        (5, sequences(4, epoch=1)),
        (6, sequences(0, producer=B)),
        (7, key("k")),
        (8, key("k")),
    ):
        tracked = Tracked(each)
        tracked.row = row
        ranges.add(tracked)
    ranges.cover(9)
    ranges.cover(11)
    assert ranges.found == [
        sequences(0, 3),
        SequenceRange(1, RANGE_NO_PRODUCER),
        sequences(3),
        sequences(4, epoch=1),
        sequences(0, producer=B),
        key("k"),
        key("k"),
        SequenceRange(2, RANGE_NO_PRODUCER),
    ]
    assert [tracked.row for tracked in ranges.tracked] == [0, 1, 4, 5, 6, 7, 8]


async def test_sharers_are_told_once_and_by_their_own_place() -> None:
    loop = asyncio.get_running_loop()
    tracked = Tracked(sequences(5, 3))
    inside, before, gone = loop.create_future(), loop.create_future(), loop.create_future()
    for future, wanted in (
        (inside, sequences(6, 2)),
        (before, sequences(4, 4)),
        (gone, sequences(5, 3)),
    ):
        tracked.add_waiter(future, wanted)
    gone.cancel()
    tracked.succeed(7, 100, 9)
    assert inside.result() == Repeated(7, 101, 2, 9)
    assert before.result() == Repeated(7, FORGOTTEN, 4, 9)
    tracked.succeed(7, 100, 9)
    failing = loop.create_future()
    tracked.add_waiter(failing, sequences(5))
    tracked.fail(FencelogError(ErrorCode.APPEND_UNKNOWN, "who knows"))
    assert isinstance(failing.exception(), FencelogError)
    named, same = Tracked(key("k", 4)), loop.create_future()
    named.add_waiter(same, key("k", 1))
    named.succeed(7, 3, 9)
    assert same.result() == Repeated(7, 3, 4, 9)


def test_conditions_without_a_sequence_remember_no_contents() -> None:
    conditions = AppendConditions(if_offset=3)
    assert conditions.of(b"batch") is conditions
    assert conditions.with_contents(b"digest") is conditions
