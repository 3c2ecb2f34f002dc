"""The record format and where a journal ends, without a disk: pure functions over bytes."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.disk.port import Buffer
from fencelog.bookie.format.records import (
    FILE_HEADER_BYTES,
    JOURNAL_MAGIC,
    Fetch,
    FileHeader,
    Record,
    RecordType,
    all_record_bytes,
    decode_file_header,
    encode_records,
    find_durable_record,
    read_record,
    record_bytes,
)
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.format.run import build_run

HEADER = FileHeader(JOURNAL_MAGIC, 3, 1, b"i" * 16, b"s" * 16)


def fetch_from(data: bytes) -> Fetch:
    return lambda offset, size: data[offset : offset + size]


def journal_of(groups: list[list[int]]) -> tuple[bytes, list[int]]:
    """A journal file with the groups of records (a number is a run's entries, 0 a fence), and the
    offset at which each record begins; the end is the last offset."""
    data = HEADER.encode()
    offsets: list[int] = []
    sequence = 1
    for group in groups:
        durable = sequence - 1
        records: list[tuple[RecordType, Buffer]] = []
        for number, count in enumerate(group, sequence):
            kind, body = RecordType.FENCE, (7).to_bytes(8, "little")
            if count:
                kind = RecordType.RUN
                body = build_run(7, number * 100, [b"x" * 9] * count, lac=-1, length_before=0)
            records.append((kind, body))
        sizes = [record_bytes(len(body)) for _, body in records]
        offsets += accumulate(sizes[:-1], initial=len(data))
        data += b"".join(
            encode_records(records, sequence=sequence, durable=durable, seed=HEADER.seed)
        )
        sequence += len(group)
    return data, [*offsets, len(data)]


def replay(data: bytes) -> tuple[list[Record], bool]:
    """Return what a start would take back, and whether it would refuse the rest as damaged."""
    fetch = fetch_from(data)
    records: list[Record] = []
    offset = FILE_HEADER_BYTES
    while True:
        sequence = len(records) + 1
        record = read_record(fetch, offset, seed=HEADER.seed)
        if record is None or record.sequence != sequence:
            proof = find_durable_record(
                fetch, offset, size=len(data), seed=HEADER.seed, sequence=sequence
            )
            return records, proof is not None
        records.append(record)
        offset = record.end


groups = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=4)


@given(groups)
def test_what_was_written_is_read_back(shape: list[list[int]]) -> None:
    data, offsets = journal_of(shape)
    records, refused = replay(data + bytes(4096))
    assert not refused
    assert [r.sequence for r in records] == list(range(1, len(offsets)))
    assert [r.end for r in records] == offsets[1:]


@given(groups, st.data())
def test_a_tail_cut_anywhere_ends_replay_before_it(
    shape: list[list[int]], draw: st.DataObject
) -> None:
    data, offsets = journal_of(shape)
    cut = draw.draw(st.integers(offsets[-2], offsets[-1] - 1))
    for torn in (data[:cut], data[:cut] + bytes(offsets[-1] - cut + 512)):
        records, refused = replay(torn)
        assert not refused
        # A run may end in bytes that are zero anyway: then nothing was cut off.
        whole = torn[: offsets[-1]] == data
        assert len(records) == len(offsets) - 1 - (0 if whole else 1)


@pytest.mark.parametrize("window", [32, 64, 4096])
def test_a_proof_behind_many_windows_of_zeros_is_found(window: int) -> None:
    data, offsets = journal_of([[1], [1], [1]])
    first, last = offsets[0], offsets[-2]
    gap = bytes(3 * 4096)
    damaged = data[:first] + bytes(last - first) + gap + data[last:]
    proof = find_durable_record(
        fetch_from(damaged),
        first,
        size=len(damaged),
        seed=HEADER.seed,
        sequence=1,
        window=window,
    )
    assert proof == last + len(gap)


@given(groups, st.data())
def test_a_flipped_bit_never_gives_other_bytes_and_what_was_synced_is_not_dropped(
    shape: list[list[int]], draw: st.DataObject
) -> None:
    data, _offsets = journal_of(shape)
    at = draw.draw(st.integers(FILE_HEADER_BYTES, len(data) - 1))
    damaged = bytearray(data)
    damaged[at] ^= 1 << draw.draw(st.integers(0, 7))
    expected, _ = replay(data)
    records, refused = replay(bytes(damaged))
    assert [(r.type, r.sequence, r.body) for r in records] == [
        (r.type, r.sequence, r.body) for r in expected[: len(records)]
    ]
    in_last_group = len(records) >= len(expected) - len(shape[-1])
    assert refused or in_last_group or len(records) == len(expected)


@given(groups, st.data())
def test_lost_pages_of_an_unsynced_group_do_not_stop_a_start(
    shape: list[list[int]], draw: st.DataObject
) -> None:
    """Any subset of the last group's bytes may be missing after a power failure."""
    data, offsets = journal_of(shape)
    begin = offsets[-1 - len(shape[-1])]
    torn = bytearray(data)
    for start in range(begin, len(torn), 64):
        if draw.draw(st.booleans()):
            end = min(start + 64, len(torn))
            torn[start:end] = bytes(end - start)
    records, refused = replay(bytes(torn))
    assert not refused
    assert len(records) >= len(offsets) - 1 - len(shape[-1])


def test_records_of_another_file_are_not_taken() -> None:
    data, _ = journal_of([[2]])
    other = FileHeader(JOURNAL_MAGIC, 3, 1, b"i" * 16, b"t" * 16)
    assert read_record(fetch_from(data), FILE_HEADER_BYTES, seed=other.seed) is None


def test_a_file_shorter_than_its_header_has_none() -> None:
    assert decode_file_header(HEADER.encode()[:-1]) is None


def test_a_mark_within_a_payload_proves_nothing() -> None:
    """The bytes behind a torn record look like the begin of one, on a place of eight and
    elsewhere."""
    data, offsets = journal_of([[1]])
    torn = data[: offsets[0]] + bytes(5) + b"FLR" + bytes(4) + b"FLR" + bytes(200)
    assert replay(torn) == ([], False)


@given(st.integers(0, FILE_HEADER_BYTES * 8 - 1))
def test_any_flipped_bit_of_a_file_header_is_seen(bit: int) -> None:
    damaged = bytearray(HEADER.encode())
    damaged[bit // 8] ^= 1 << bit % 8
    assert decode_file_header(bytes(damaged)) is None
    assert decode_file_header(HEADER.encode()) == HEADER


def test_a_whole_header_of_another_version_is_refused_by_name() -> None:
    data = bytearray(HEADER.encode())
    data[4] = 2
    data[56:60] = crc32c(bytes(data[:56])).to_bytes(4, "little")
    with pytest.raises(FencelogError, match="version 2"):
        decode_file_header(bytes(data))


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_records_take_the_bytes_that_are_written(bodies: list[bytes]) -> None:
    records = [(RecordType.LAC, body) for body in bodies]
    written = encode_records(records, sequence=1, durable=1, seed=0)
    size = sum(map(len, written))
    assert all_record_bytes(bodies) == sum(record_bytes(len(body)) for body in bodies) == size
