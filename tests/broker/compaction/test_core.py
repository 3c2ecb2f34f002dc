"""The messages that a compacted view keeps, and the entries that hold it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.broker.compaction.compacted_entry import pack_compacted, read_compacted
from fencelog.broker.compaction.core import NewestOffsets, ViewEntry
from fencelog.broker.limits import COMPACTED_ENTRY_BYTES, COMPACTED_ENTRY_MESSAGES
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import KIND_COMPACTED, pack_entry, read_entry_header
from fencelog.ledgers.record_batch import Message, encode_values

Rows = list[tuple[int, Message]]

MESSAGES = st.lists(
    st.builds(
        Message, st.sampled_from((b"", b"x", b"y")), st.sampled_from((None, b"", b"a", b"b"))
    ),
    max_size=40,
)


def compact(
    previous: Rows, part: Rows, *, limit: int = 1000, began: int | None = None
) -> tuple[Rows, Rows]:
    """One pass: the new view, and what is left of the part for the next one. ``began``: where the
    compaction did, if this is not its first pass."""
    newest = NewestOffsets(limit, tombstones_from=begin_of(part) if began is None else began)
    stop = newest.add(part[0][0], [message for _, message in part]) if part else None
    taken = part if stop is None else [row for row in part if row[0] < stop]
    view = [row for row in previous if newest.keeps_previous(*row)]
    view += [row for row in taken if newest.keeps(*row)]
    return view, part[len(taken) :]


def begin_of(part: Rows) -> int:
    return part[0][0] if part else 1 << 60


def naive(previous: Rows, part: Rows, began: int) -> Rows:
    """A dictionary of what is newest, and everything without a key."""
    newest: dict[bytes, tuple[int, Message]] = {}
    unkeyed = []
    kept = [row for row in previous if row[1].value or row[1].key is None or row[0] >= began]
    for row in kept + part:
        if row[1].key is None:
            unkeyed.append(row)
        else:
            newest[row[1].key] = row
    return sorted([*unkeyed, *newest.values()])


@given(MESSAGES, st.lists(st.integers(0, 15), max_size=6), st.integers(1, 4))
def test_a_view_is_what_a_dictionary_would_hold(
    messages: list[Message], cuts: list[int], limit: int
) -> None:
    """Whatever parts the log is compacted in, and however few keys there is room for."""
    rows = list(enumerate(messages))
    view: Rows = []
    for cut in [*cuts, len(rows)]:
        part, rows = rows[:cut], rows[cut:]
        began = begin_of(part)
        while True:
            expected_of = part
            new, part = compact(view, part, limit=limit, began=began)
            expected_of = expected_of[: len(expected_of) - len(part)]
            assert new == naive(view, expected_of, began)
            view = new
            if not part:
                break


def test_a_tombstone_is_seen_until_the_next_compaction() -> None:
    value, tombstone, other = Message(b"1", b"k"), Message(b"", b"k"), Message(b"2", b"o")
    view, _ = compact([(0, value)], [(1, tombstone)])
    assert view == [(1, tombstone)]
    assert compact(view, [(2, other)], began=1)[0] == [(1, tombstone), (2, other)]  # the same one
    view, _ = compact(view, [(2, other)])
    assert view == [(2, other)]


def test_a_part_ends_where_one_key_more_would_be_too_many() -> None:
    keys = [b"a", b"b", b"a", None, b"c", b"a"]
    newest = NewestOffsets(2, tombstones_from=0)
    assert newest.add(10, [Message(b"x", key) for key in keys]) == 14
    assert NewestOffsets(3, tombstones_from=0).add(10, [Message(b"x", key) for key in keys]) is None


def test_an_entry_of_the_view_is_closed_in_time() -> None:
    entry = ViewEntry()
    full = [entry.is_full]
    nearly = Message(bytes(COMPACTED_ENTRY_BYTES - 4), b"key")
    for offset, message in ((1, nearly), (2, Message(b"", None, None, (("a", b""),)))):
        entry.add(offset, 5, message)
        full.append(entry.is_full)
    assert full == [False, False, True]
    many = ViewEntry()
    for number in range(COMPACTED_ENTRY_MESSAGES):
        assert not many.is_full
        many.add(number, 0, Message(b""))
    assert many.is_full
    assert len(many) == COMPACTED_ENTRY_MESSAGES


def test_an_entry_of_the_view_comes_back_as_it_was() -> None:
    entry = ViewEntry()
    rows = [
        (3, 100, Message(b"v", b"k", 7, (("h", b"1"),))),
        (9, 100, Message(b"")),
        (10, 105, Message(b"z")),
    ]
    for row in rows:
        entry.add(*row)
    payload = memoryview(entry.pack())
    header = read_entry_header(payload)
    assert (header.kind, header.count) == (KIND_COMPACTED, 3)
    assert (header.first_number, header.publish_time_us) == (3, 105)
    batch = read_compacted(payload, header)
    assert (list(batch.offsets), list(batch.publish_times)) == ([3, 9, 10], [100, 100, 105])
    assert (batch.base_offset, batch.end_offset) == (3, 11)
    assert [batch.messages_from(offset) for offset in (0, 3, 4, 10, 11)] == [3, 3, 2, 1, 0]


@pytest.mark.parametrize(
    "payload",
    [
        pack_entry(encode_values([b"x"]), count=1, first_number=0, publish_time_us=0),
        pack_entry(bytes(16) + encode_values([b"x"]), count=1, first_number=0, publish_time_us=0),
        pack_entry(b"12345", count=1, first_number=0, publish_time_us=0, kind=KIND_COMPACTED),
        pack_entry(
            bytes(32) + encode_values([b"x"]),
            count=2,
            first_number=0,
            publish_time_us=0,
            kind=KIND_COMPACTED,
        ),
    ],
)
def test_another_entry_is_no_entry_of_a_view(payload: bytes) -> None:
    with pytest.raises(FencelogError) as raised:
        read_compacted(memoryview(payload), read_entry_header(payload))
    assert raised.value.code is ErrorCode.CORRUPT


def test_a_batch_too_large_for_the_format_is_refused() -> None:
    with pytest.raises(FencelogError):
        pack_compacted([1 << 63], [0], [Message(b"x")])
