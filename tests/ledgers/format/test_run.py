"""Runs: what goes in comes out, and nothing damaged does."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.format import run as run_module
from fencelog.ledgers.format.digest import DigestType, crc32c
from fencelog.ledgers.format.run import (
    RUN_HEADER,
    Payload,
    Pieces,
    Run,
    build_run,
    merge_runs,
    read_run,
    read_run_header,
    run_lac,
    run_length,
    run_of,
    run_starts,
    slice_run,
    verify_digests,
    verify_entries,
    verify_run,
)

PAYLOADS = st.lists(st.binary(max_size=60), min_size=1, max_size=20)


def make(payloads: list[bytes], first: int = 5, lac: int = 3) -> bytes:
    return build_run(7, first, payloads, lac=lac, length_before=100)


@given(PAYLOADS)
def test_entries_come_back_as_they_were(payloads: list[bytes]) -> None:
    run = make(payloads)
    header = verify_run(run)
    entries = verify_entries(run)
    assert [bytes(entry.payload) for entry in entries] == payloads
    assert [entry.entry_id for entry in entries] == list(range(5, 5 + len(payloads)))
    assert header.last_entry_id == entries[-1].entry_id
    assert run_lac(run, header) == 3
    assert read_run(run) == run_of(run) == Run(header, 3, run)
    assert run_length(run, header) == 100 + sum(map(len, payloads)) == entries[-1].length


PIECES = st.lists(st.binary(max_size=9) | st.just(b"x" * 5_000), max_size=20)


@given(st.lists(PIECES, min_size=1, max_size=4), st.sampled_from(DigestType))
def test_payloads_in_pieces_are_the_same_run(found: list[list[bytes]], kind: DigestType) -> None:
    def build(payloads: Sequence[Payload]) -> bytes:
        return build_run(7, 5, payloads, lac=3, length_before=9, digest_type=kind, key=b"key")

    whole = [b"".join(parts) for parts in found]
    assert build([Pieces.of(*parts) for parts in found]) == build(whole)
    assert [len(Pieces.of(*parts)) for parts in found] == [len(payload) for payload in whole]
    assert [bytes(Pieces.of(*parts)) for parts in found] == whole


@given(PAYLOADS)
def test_payloads_are_aligned(payloads: list[bytes]) -> None:
    run = make(payloads)
    assert len(run) % 8 == 0
    for start in run_starts(run, read_run_header(run)):
        assert start % 8 == 0


@given(PAYLOADS, st.data())
def test_slice_and_merge_are_inverse(payloads: list[bytes], data: st.DataObject) -> None:
    run = make(payloads)
    cut = data.draw(st.integers(5, 4 + len(payloads)))
    parts = [slice_run(run, 0, cut)]
    if cut < 4 + len(payloads):
        parts.append(slice_run(run, cut + 1, 10_000))
    for part in parts:
        verify_run(part)
        verify_entries(part)
    assert merge_runs(parts) == run


@given(PAYLOADS, st.data())
def test_any_flipped_bit_is_noticed(payloads: list[bytes], data: st.DataObject) -> None:
    run = bytearray(make(payloads))
    position = data.draw(st.integers(0, len(run) - 1))
    run[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(FencelogError) as caught:
        verify_run(bytes(run))
    assert caught.value.code is ErrorCode.BAD_FRAME


@given(PAYLOADS, st.data())
def test_any_truncation_is_noticed(payloads: list[bytes], data: st.DataObject) -> None:
    run = make(payloads)
    with pytest.raises(FencelogError):
        verify_run(run[: data.draw(st.integers(0, len(run) - 1))])


@given(st.binary(max_size=300))
def test_garbage_is_a_protocol_error_and_nothing_else(garbage: bytes) -> None:
    with pytest.raises(FencelogError) as caught:
        verify_run(garbage)
    assert caught.value.code is ErrorCode.BAD_FRAME


def with_checksum(run: bytearray) -> bytes:
    """The run with a checksum that holds, whatever else it says."""
    struct.pack_into("<I", run, 24, crc32c(run[32:], crc32c(run[:24])))
    return bytes(run)


def test_a_run_that_is_longer_or_shorter_than_it_says_is_refused() -> None:
    run = make([b"abc", b"de"])
    for other in (run + bytes(8), run[:-8]):
        with pytest.raises(ProtocolError, match=f"says {len(run)} bytes"):
            verify_run(other)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (48, 96),  # the first entry does not begin behind the index
        (40, 40),  # two entries at one place
        (40, 32),  # not in order
        (40, 136),  # no room for an entry
    ],
)
def test_an_index_that_cannot_be_is_refused(first: int, second: int) -> None:
    run = bytearray(make([b"abc", b"de"]))
    struct.pack_into("<II", run, 32, first, second)
    with pytest.raises(ProtocolError, match="run index"):
        verify_run(with_checksum(run))


@pytest.mark.parametrize(
    ("offset", "form", "value"),
    [(0, "<Q", 8), (8, "<Q", 6), (32, "<I", 99), (36, "<B", 2)],
    ids=["another ledger", "another entry", "more payload than there is", "another digest"],
)
def test_an_entry_whose_header_is_not_its_own_is_corrupt(
    offset: int, form: str, value: int
) -> None:
    run = bytearray(make([b"abc"]))
    struct.pack_into(form, run, 40 + offset, value)
    verify_run(with_checksum(run))
    with pytest.raises(FencelogError, match="entry 5 of ledger 7 has a header") as caught:
        verify_entries(run)
    assert caught.value.code is ErrorCode.CORRUPT


def test_an_entry_that_is_cut_off_is_corrupt() -> None:
    run = bytearray(make([b"abc", b"de"]))
    struct.pack_into("<I", run, 36, len(run) - 8)
    with pytest.raises(FencelogError, match="entry 6 of ledger 7 is cut off"):
        verify_entries(run)


def outcome(check: Callable[[bytes], object], run: bytes) -> str:
    try:
        check(run)
    except FencelogError as error:
        return f"{error.code} of entry {error.extra['entry_id']}"
    return "valid"


def test_digests_are_verified_as_entries_are() -> None:
    """Whatever bit is flipped, and wherever an entry is said to begin."""
    good = make([b"abc", b"", b"x" * 20])
    assert outcome(verify_digests, good) == "valid"
    damaged = []
    for bit in range(RUN_HEADER.size * 8, len(good) * 8):
        run = bytearray(good)
        run[bit // 8] ^= 1 << (bit % 8)
        damaged.append(bytes(run))
    for start in range(0, len(good) + 8, 8):
        run = bytearray(good)
        struct.pack_into("<I", run, 40, start)
        damaged.append(bytes(run))
    for each in damaged:
        assert outcome(verify_digests, each) == outcome(verify_entries, each)
    assert sum(outcome(verify_digests, each) == "valid" for each in damaged) < len(damaged) // 10


def test_digests_of_another_type_are_verified_with_the_key() -> None:
    run = build_run(7, 5, [b"abc"], lac=-1, length_before=0,
                    digest_type=DigestType.HMAC_SHA256, key=b"key")  # fmt: skip
    verify_digests(run, digest_type=DigestType.HMAC_SHA256, key=b"key")
    for wrong in ({"key": b"other", "digest_type": DigestType.HMAC_SHA256}, {}):
        with pytest.raises(FencelogError) as caught:
            verify_digests(run, **wrong)  # type: ignore[arg-type]  # what one of them is not
        assert caught.value.code is ErrorCode.CORRUPT


def test_a_run_is_not_cut_where_it_has_no_entries() -> None:
    run = make([b"abc", b"de"])
    for first, last in ((0, 4), (7, 9)):
        with pytest.raises(ValueError, match=f"no entry of {first}..{last}"):
            slice_run(run, first, last)


def test_the_index_is_little_endian_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of the other order swaps on the way in and on the way out."""
    values = [1, 2**31, 40]
    native = run_module._u32_bytes(values)
    other = "big" if sys.byteorder == "little" else "little"
    monkeypatch.setattr("fencelog.ledgers.format.run.sys.byteorder", other)
    swapped = run_module._u32_bytes(values)
    assert [swapped[i : i + 4] for i in (0, 4, 8)] == [native[i : i + 4][::-1] for i in (0, 4, 8)]
    assert list(run_module._u32_array(swapped)) == values


def test_entry_digest_is_checked_even_where_the_run_checksum_holds() -> None:
    """A bookie, or whoever sits between, can make a valid run; it cannot make a valid entry."""
    key = b"the ledger's key"
    run = build_run(7, 0, [b"pay 10"], lac=-1, length_before=0,
                    digest_type=DigestType.HMAC_SHA256, key=key)  # fmt: skip
    forged = build_run(7, 0, [b"pay 99"], lac=-1, length_before=0,
                       digest_type=DigestType.HMAC_SHA256, key=b"another")  # fmt: skip
    assert (
        bytes(verify_entries(run, digest_type=DigestType.HMAC_SHA256, key=key)[0].payload)
        == b"pay 10"
    )
    with pytest.raises(FencelogError) as caught:
        verify_entries(forged, digest_type=DigestType.HMAC_SHA256, key=key)
    assert caught.value.code is ErrorCode.CORRUPT
    assert caught.value.extra["entry_id"] == 0


def test_golden_bytes() -> None:
    """The format is for ever: these bytes were written by its first version."""
    run = build_run(1, 2, [b"abc", b""], lac=1, length_before=10)
    assert run.hex() == (
        "0100000000000000" "0200000000000000" "02000000" "90000000" "4276749f" "00000000"
        "28000000" "60000000"
        "0100000000000000" "0200000000000000" "0100000000000000" "0d00000000000000"
        "03000000" "01000000" "0ef5af1100000000" "6162630000000000"
        "0100000000000000" "0300000000000000" "0100000000000000" "0d00000000000000"
        "00000000" "01000000" "af35931800000000"
    )  # fmt: skip
