"""Scanning ranges: exactly the wanted messages, in order, however entries and replies fall."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.format.entry_header import KIND_CONTROL, pack_entry
from fencelog.ledgers.format.run import Entry
from fencelog.ledgers.ledger_metadata.model import new_metadata
from fencelog.ledgers.record_batch import Message, encode_batch, encode_values
from fencelog.spark_connector.planning.planner import EntryRange
from fencelog.spark_connector.read.columns import arrow_schema
from fencelog.spark_connector.read.decode import SMALL_BATCH_ROWS
from fencelog.spark_connector.read.scan import scan_range

SCHEMA = arrow_schema(["partition", "offset", "value", "headers", "publish_time"])
BASE = 500


class MemoryLedger:
    """A ledger in memory that answers at most ``chunk`` entries a read."""

    def __init__(self, payloads: list[bytes], *, chunk: int = 1000) -> None:
        self.payloads = payloads
        self.chunk = chunk
        self.reads: list[tuple[int, int]] = []

    async def read(self, first: int, last: int) -> list[Entry]:
        await asyncio.sleep(0)
        self.reads.append((first, last))
        ids = range(first, min(last, first + self.chunk - 1) + 1)
        if not 0 <= first <= last < len(self.payloads):
            raise FencelogError(ErrorCode.NO_SUCH_ENTRY, f"ledger 7 has no entry {first}")
        return [Entry(7, n, -1, 0, memoryview(self.payloads[n])) for n in ids]


def payloads(counts: list[int], *, first: int = 0) -> list[bytes]:
    """Entries of that many messages each; every value is its message's number as text."""
    entries = []
    for number, count in enumerate(counts):
        batch = encode_values([b"%d" % n for n in range(first, first + count)])
        entries.append(pack_entry(batch, count=count, first_number=first, publish_time_us=number))
        first += count
    return entries


def with_a_name_that_is_no_text() -> bytes:
    """The second entry, of two messages, by a writer that is wrong."""
    right = encode_batch([Message(b"a", headers=(("name", b"h"),)), Message(b"b")])
    wrong = bytearray(right.replace(b"name", b"\xff\xff\xff\xff"))
    wrong[8:12] = crc32c(wrong[12:], crc32c(wrong[:8])).to_bytes(4, "little")
    return pack_entry(bytes(wrong), count=2, first_number=2, publish_time_us=0)


def whole(entries: int, messages: int) -> EntryRange:
    ledger = new_metadata(7, ensemble=("b1", "b2", "b3"), write_quorum=3, ack_quorum=2, token="t")
    return EntryRange("t", "id", 4, ledger, BASE, 0, entries - 1, BASE, BASE + messages, 1000)


async def scan(ledger: MemoryLedger, wanted: EntryRange) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = []

    async def emit(read: Iterable[pa.RecordBatch]) -> None:
        batches.extend(read)

    await scan_range(ledger, wanted, SCHEMA, emit)
    return batches


def offsets(batches: list[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


counts_of_entries = st.lists(st.integers(1, 9), min_size=1, max_size=40)


@given(counts_of_entries, st.integers(1, 7), st.data())
@settings(max_examples=60)
async def test_exactly_the_wanted_messages_come_in_order(
    counts: list[int], chunk: int, data: st.DataObject
) -> None:
    total = sum(counts)
    start = data.draw(st.integers(0, total - 1))
    end = data.draw(st.integers(start + 1, total))
    cut = data.draw(st.integers(0, len(counts)))
    wanted = replace(whole(len(counts), total), start_offset=BASE + start, end_offset=BASE + end)
    parts = wanted.cut(cut) if 0 < cut < len(counts) else (wanted,)
    ledger = MemoryLedger(payloads(counts), chunk=chunk)
    batches = [batch for part in parts for batch in await scan(ledger, part)]
    assert offsets(batches) == list(range(BASE + start, BASE + end))
    values = [value for batch in batches for value in batch["value"].to_pylist()]
    assert values == [b"%d" % n for n in range(start, end)]
    assert all(batch.num_rows for batch in batches)


async def test_a_whole_ledger_is_read_without_a_search_and_a_read_ahead() -> None:
    ledger = MemoryLedger(payloads([3] * 10), chunk=4)
    await scan(ledger, whole(10, 30))
    assert ledger.reads == [(0, 9), (4, 9), (8, 9)]


async def test_reading_begins_near_a_wanted_offset_and_ends_behind_the_last() -> None:
    ledger = MemoryLedger(payloads([10] * 1000), chunk=5)
    wanted = replace(whole(1000, 10_000), start_offset=BASE + 7005, end_offset=BASE + 7010)
    assert offsets(await scan(ledger, wanted)) == list(range(BASE + 7005, BASE + 7010))
    assert len(ledger.reads) <= 13
    assert ledger.reads[-1] == (700, 999)


async def test_small_batches_are_joined_and_large_ones_left_alone() -> None:
    large = SMALL_BATCH_ROWS
    counts = [1, 2, 3, large, 1, 1]
    batches = await scan(MemoryLedger(payloads(counts)), whole(6, sum(counts)))
    assert [batch.num_rows for batch in batches] == [6, large, 2]
    assert batches[0]["publish_time"].cast(pa.int64()).to_pylist() == [0, 1, 1, 2, 2, 2]


async def test_control_entries_have_no_rows() -> None:
    entries = payloads([2, 2])
    control = pack_entry(b"", count=0, first_number=2, publish_time_us=0, kind=KIND_CONTROL)
    ledger = MemoryLedger([entries[0], control, entries[1]])
    assert offsets(await scan(ledger, whole(3, 4))) == [500, 501, 502, 503]


class DamagedLedger(MemoryLedger):
    """A ledger whose replicas are each damaged in another entry: a reply with all of ``torn`` can
    come from no replica, nor can one with an entry that is ``lost``."""

    torn = frozenset({3, 5})
    lost = frozenset[int]()

    async def read(self, first: int, last: int) -> list[Entry]:
        ids = set(range(first, last + 1))
        if self.torn <= ids or ids & self.lost:
            raise FencelogError(ErrorCode.READ_UNKNOWN, f"ledger 7: entry {first} is unknown")
        return await super().read(first, last)


async def test_replicas_damaged_in_different_entries_are_read_together() -> None:
    counts = [2] * 10
    batches = await scan(DamagedLedger(payloads(counts)), whole(10, 20))
    assert offsets(batches) == list(range(BASE, BASE + 20))


async def test_an_entry_damaged_in_every_replica_is_named_and_nothing_after_it_is_read() -> None:
    ledger = DamagedLedger(payloads([2] * 10))
    ledger.lost = frozenset({6})
    with pytest.raises(FencelogError, match="ledger 7: entry 6 is unknown") as raised:
        await scan(ledger, whole(10, 20))
    assert raised.value.code is ErrorCode.READ_UNKNOWN


async def test_a_batch_is_decoded_as_it_is_taken() -> None:
    """What is wrong with the second entry does not take the rows of the first one away."""
    ledger = MemoryLedger([payloads([2])[0], with_a_name_that_is_no_text()], chunk=1)
    reads: list[Iterable[pa.RecordBatch]] = []

    async def emit(read: Iterable[pa.RecordBatch]) -> None:
        reads.append(read)

    await scan_range(ledger, whole(2, 4), SCHEMA, emit)
    assert offsets([*reads[0]]) == [BASE, BASE + 1]
    with pytest.raises(FencelogError, match="entry 1 of ledger 7 is not valid") as raised:
        [*reads[1]]
    assert raised.value.code is ErrorCode.CORRUPT


async def test_a_ledger_that_is_gone_is_an_error_and_not_an_end() -> None:
    ledger = MemoryLedger(payloads([2, 2]), chunk=1)
    with pytest.raises(FencelogError, match="ledger 7 has no entry 0") as raised:
        await scan(ledger, whole(3, 6))
    assert raised.value.code is ErrorCode.NO_SUCH_ENTRY


async def refused(ledger: MemoryLedger, wanted: EntryRange) -> str:
    with pytest.raises(FencelogError) as raised:
        await scan(ledger, wanted)
    assert raised.value.code is ErrorCode.CORRUPT
    return raised.value.detail


@pytest.mark.parametrize("chunk", [1, 9])
@pytest.mark.parametrize("start", [0, 7])
async def test_entries_that_end_before_the_last_wanted_message_are_no_answer(
    chunk: int, start: int
) -> None:
    """The owner said that the ledger holds them, and nobody else would miss them."""
    ledger = MemoryLedger(payloads([2, 2]), chunk=chunk)
    wanted = replace(whole(2, 8), start_offset=BASE + start)
    said = await refused(ledger, wanted)
    assert "ledger 7 (partition 4 of t, offsets" in said
    assert "ends with its entry 1, before its last offset" in said


@pytest.mark.parametrize("start", [0, 1, 5])
async def test_an_entry_that_begins_behind_the_first_wanted_message_is_no_answer(
    start: int,
) -> None:
    entries = [*payloads([2], first=2), *payloads([2], first=6)]
    wanted = replace(whole(2, 8), start_offset=BASE + start)
    said = await refused(MemoryLedger(entries), wanted)
    entry, first = (1, 6) if start == 5 else (0, 2)
    expected = f"begins at message {first}, expected {start} at the latest"
    assert said == f"entry {entry} of ledger 7 is not valid: {expected}"


async def test_parts_of_a_range_hold_their_share_of_its_messages() -> None:
    head, tail = whole(4, 8).cut(2)
    ledger = MemoryLedger(payloads([2, 2, 2, 1]))
    assert offsets(await scan(ledger, head)) == list(range(BASE, BASE + 4))
    assert "ends with its entry 3" in await refused(ledger, tail)


@pytest.mark.parametrize(
    ("damaged", "named"),
    [
        (lambda good: payloads([2], first=3)[0], "begins at message 3, expected 2"),
        (lambda good: good[:-1] + b"\x01", "checksum mismatch"),
        (lambda good: good[:-8], "its header says"),
        (
            lambda good: pack_entry(
                encode_values([b"a"]), count=2, first_number=2, publish_time_us=0
            ),
            "1 messages, its header says 2",
        ),
        (lambda good: good[:20], "entry header is not valid: 20 bytes"),
        (lambda good: good[:1] + b"\x07" + good[2:], "kind 7"),
        (lambda good: good[:32], "it has no batch"),
        (lambda _: with_a_name_that_is_no_text(), "UTF8"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 2])
async def test_damage_is_named(damaged: object, named: str, chunk: int) -> None:
    assert callable(damaged)
    good = payloads([2, 2])
    ledger = MemoryLedger([good[0], damaged(good[1])], chunk=chunk)
    with pytest.raises(FencelogError, match=named) as raised:
        await scan(ledger, whole(2, 4))
    assert raised.value.code is ErrorCode.CORRUPT
    assert raised.value.detail.startswith("entry 1 of ledger 7 is not valid: ")


async def test_a_ledger_that_a_commit_has_added_has_the_publish_time_of_that() -> None:
    ledger = MemoryLedger(payloads([2, 3]))
    batches = await scan(ledger, replace(whole(2, 5), publish_time_us=77))
    times = [time.value for batch in batches for time in batch["publish_time"]]
    assert times == [77] * 5
