"""Runs verified by columns: the same entries and the same errors as one entry after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import DigestType
from fencelog.ledgers.format.entry_header import pack_entry
from fencelog.ledgers.format.run import (
    ENTRY_HEADER,
    Entry,
    build_run,
    run_starts,
    verify_entries,
    verify_run,
)
from fencelog.ledgers.record_batch import encode_values
from fencelog.spark_connector.read.entry_table import EntryTable
from fencelog.spark_connector.read.verified_run import VerifiedRun, verified_runs

Run = bytes | bytearray


def verified_run(
    run: Run, *, digest_type: DigestType = DigestType.CRC32C, key: bytes = b""
) -> Sequence[Entry]:
    return verified_runs(run, [(0, len(run))], digest_type=digest_type, key=key)


PAYLOADS = st.lists(st.binary(max_size=40), min_size=1, max_size=12)


@given(PAYLOADS, st.integers(0, 2**62))
def test_the_entries_are_those_of_the_run(payloads: list[bytes], first: int) -> None:
    run = build_run(7, first, payloads, lac=first - 1, length_before=100)
    entries = verified_run(run)
    assert isinstance(entries, VerifiedRun)
    assert list(entries) == verify_entries(run)
    assert list(entries[1:3]) == verify_entries(run)[1:3]
    assert entries[-1].entry_id == first + len(payloads) - 1


@given(PAYLOADS, st.data())
def test_damage_is_the_same_error_as_of_any_reader(
    payloads: list[bytes], data: st.DataObject
) -> None:
    run = bytearray(build_run(7, 3, payloads, lac=-1, length_before=0))
    starts = run_starts(run, verify_run(run))
    places = [
        n
        for start, p in zip(starts, payloads, strict=True)
        for n in range(start, start + 48 + len(p))
    ]
    at = data.draw(st.sampled_from(places))
    run[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(FencelogError) as expected:
        verify_entries(run)
    with pytest.raises(FencelogError) as raised:
        verified_run(run)
    assert raised.value.code is ErrorCode.CORRUPT
    assert raised.value.detail == expected.value.detail


def test_a_payload_that_would_end_behind_the_run_is_refused() -> None:
    run = bytearray(build_run(7, 3, [b"abc"], lac=-1, length_before=0))
    (start,) = run_starts(run, verify_run(run))
    run[start + 32 : start + 36] = (1 << 31).to_bytes(4, "little")
    with pytest.raises(FencelogError, match="header that is not its own"):
        verified_run(run)
    assert ENTRY_HEADER.size == 40


def test_entries_with_a_mac_are_verified_one_by_one() -> None:
    key = b"k" * 16
    run = build_run(
        7, 0, [b"a", b"b"], lac=-1, length_before=0, digest_type=DigestType.HMAC_SHA256, key=key
    )
    entries = verified_run(run, digest_type=DigestType.HMAC_SHA256, key=key)
    assert [bytes(entry.payload) for entry in entries] == [b"a", b"b"]
    with pytest.raises(FencelogError):
        verified_run(run, digest_type=DigestType.HMAC_SHA256, key=b"other")
    with pytest.raises(FencelogError):
        verified_run(run)


def test_a_table_of_a_run_is_that_of_its_entries() -> None:
    batches = [encode_values([b"v" * n] * 3) for n in range(1, 9)]
    payloads = [
        pack_entry(batch, count=3, first_number=3 * n, publish_time_us=n)
        for n, batch in enumerate(batches)
    ]
    run = build_run(7, 5, payloads, lac=-1, length_before=0)
    indices = np.array([0, 3, 7])
    for entries in (verified_run(run), verify_entries(run)):
        table = EntryTable(entries)
        assert table.check_sequence(0) == 24
        assert [bytes(batch) for batch in table.batches(indices)] == [batches[n] for n in indices]
        sizes = table.batch_bytes(indices)
        assert sizes == [len(batches[n]) - 72 for n in indices]
        assert table[-1].entry_id == 12


def test_an_entry_without_a_batch_is_named() -> None:
    payloads = [pack_entry(b"x" * 19, count=1, first_number=n, publish_time_us=0) for n in range(2)]
    table = EntryTable(verified_run(build_run(7, 5, payloads, lac=-1, length_before=0)))
    with pytest.raises(FencelogError, match="entry 6 of ledger 7 is not valid: it has no batch"):
        table.batch_bytes(np.array([1]))
