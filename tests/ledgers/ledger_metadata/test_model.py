"""Ledger metadata: legal transitions only, and an encoding that refuses what it does not know."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import DigestType
from fencelog.ledgers.ledger_metadata.model import (
    LedgerMetadata,
    LedgerState,
    decode_metadata,
    encode_metadata,
    new_metadata,
    to_json,
)
from fencelog.ledgers.limits import MAX_METADATA_BYTES, METADATA_RESERVE_BYTES


def ledger() -> LedgerMetadata:
    return new_metadata(
        12,
        ensemble=("b1", "b2", "b3"),
        write_quorum=3,
        ack_quorum=2,
        token="0a1b",
        created_us=1_700_000_000_000_000,
        properties={"partition": "ns/t/0"},
    )


def test_round_trip_and_golden_bytes() -> None:
    metadata = ledger().with_ensemble(10, ("b1", "b4", "b3")).closed(last_entry_id=20, length=99)
    encoded = encode_metadata(metadata)
    assert decode_metadata(encoded) == metadata
    assert encoded == (
        b'{"ack_quorum":2,"created_us":1700000000000000,"digest":"crc32c","ensemble_size":3,'
        b'"fragments":[[0,["b1","b2","b3"]],[10,["b1","b4","b3"]]],"last_entry_id":20,'
        b'"ledger_id":12,"length":99,"properties":{"partition":"ns/t/0"},"state":"closed",'
        b'"token":"0a1b","v":1,"write_quorum":3}'
    )


def test_the_time_of_an_ensemble_change_is_an_optional_field() -> None:
    changed = ledger().with_ensemble(10, ("b1", "b4", "b3"), 1_700_000_000_000_007)
    fields = json.loads(encode_metadata(changed))
    assert fields.pop("fragments_since_us") == [0, 1_700_000_000_000_007]
    assert fields == to_json(ledger().with_ensemble(10, ("b1", "b4", "b3")))
    again = decode_metadata(encode_metadata(changed))
    assert [each.since_us for each in again.fragments] == [0, 1_700_000_000_000_007]
    # It decides nothing: who compares fragments does not see it.
    assert again == ledger().with_ensemble(10, ("b1", "b4", "b3"))


def test_times_of_fragments_are_given_up_before_a_change_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed = ledger().with_ensemble(10, ("b1", "b4", "b3"), 1_700_000_000_000_007)
    plain = ledger().with_ensemble(10, ("b1", "b4", "b3"))
    limit = METADATA_RESERVE_BYTES + len(encode_metadata(plain))
    monkeypatch.setattr("fencelog.ledgers.ledger_metadata.model.MAX_METADATA_BYTES", limit)
    assert encode_metadata(changed) == encode_metadata(plain)
    monkeypatch.setattr("fencelog.ledgers.ledger_metadata.model.MAX_METADATA_BYTES", limit - 1)
    with pytest.raises(FencelogError):
        encode_metadata(changed)


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"state": "ajar"},
        {"fragments": []},
        {"fragments": [[1, ["b1", "b2", "b3"]]]},
        {"fragments": [[0, ["b1", "b2"]]]},
        {"fragments": [[0, ["b1", "b1", "b3"]]]},
        {"fragments": [[0, ["b1", "b2", "b3"]], [0, ["b1", "b2", "b3"]]]},
        {"digest": "none"},
        {"ledger_id": None},
        {"properties": 3},
        {"fragments_since_us": [1, 2]},
        {"fragments_since_us": ["noon"]},
    ],
)
def test_what_cannot_be_metadata_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(FencelogError) as caught:
        decode_metadata(json.dumps({**to_json(ledger()), **change}).encode())
    assert caught.value.code is ErrorCode.CORRUPT


@given(st.binary(max_size=200))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(FencelogError) as caught:
        decode_metadata(garbage)
    assert caught.value.code is ErrorCode.CORRUPT


def test_fragment_at_the_same_entry_replaces_the_last_one() -> None:
    metadata = ledger().with_ensemble(0, ("b4", "b2", "b3"))
    assert [f.first_entry_id for f in metadata.fragments] == [0]
    metadata = metadata.with_ensemble(7, ("b4", "b5", "b3"))
    assert [f.first_entry_id for f in metadata.fragments] == [0, 7]
    assert metadata.fragment_of(6).bookies == ("b4", "b2", "b3")
    assert metadata.fragment_of(7).bookies == metadata.fragment_of(99).bookies
    with pytest.raises(AssertionError, match="fragment at 6 after"):
        metadata.with_ensemble(6, ("b1", "b2", "b3"))
    with pytest.raises(ValueError, match="no entry -1"):
        metadata.fragment_of(-1)


def test_an_ensemble_has_the_size_of_the_ledger_and_no_bookie_twice() -> None:
    with pytest.raises(AssertionError, match="fragment at 3"):
        ledger().with_ensemble(3, ("b1", "b2"))
    with pytest.raises(AssertionError, match="bookie twice"):
        ledger().with_ensemble(3, ("b1", "b2", "b2"))
    with pytest.raises(AssertionError, match="bookie twice"):
        new_metadata(1, ensemble=("a", "a"), write_quorum=2, ack_quorum=2, token="t")
    with pytest.raises(FencelogError, match="E >= Qw >= Qa"):
        new_metadata(1, ensemble=("a", "b"), write_quorum=3, ack_quorum=2, token="t")


def test_there_is_a_limit_to_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencelog.ledgers.ledger_metadata.model.MAX_FRAGMENTS", 2)
    metadata = ledger().with_ensemble(5, ("b1", "b2", "b4"))
    assert metadata.with_ensemble(5, ("b1", "b2", "b5")).last_fragment.bookies[2] == "b5"
    with pytest.raises(FencelogError) as caught:
        metadata.with_ensemble(6, ("b1", "b2", "b5"))
    assert caught.value.code is ErrorCode.BAD_REQUEST


def test_a_closed_ledger_stays_closed() -> None:
    closed = ledger().closed(last_entry_id=3, length=10)
    assert closed.state is LedgerState.CLOSED
    with pytest.raises(AssertionError):
        closed.in_recovery()
    with pytest.raises(AssertionError):
        closed.closed(last_entry_id=4, length=11)


def test_digest_type_is_kept() -> None:
    metadata = new_metadata(
        1,
        ensemble=("a",),
        write_quorum=1,
        ack_quorum=1,
        token="t",
        digest_type=DigestType.HMAC_SHA256,
    )
    assert decode_metadata(encode_metadata(metadata)).digest_type is DigestType.HMAC_SHA256


def test_a_ledger_whose_metadata_is_full_can_still_be_ended() -> None:
    capacity = MAX_METADATA_BYTES - METADATA_RESERVE_BYTES
    capacity -= len(encode_metadata(replace(ledger(), properties={"p": ""})))
    metadata = replace(ledger(), properties={"p": "x" * capacity})
    encode_metadata(metadata)
    with pytest.raises(FencelogError) as caught:
        encode_metadata(replace(ledger(), properties={"p": "x" * (capacity + 1)}))
    assert caught.value.code is ErrorCode.BAD_REQUEST
    encode_metadata(metadata.closed(last_entry_id=1 << 62, length=1 << 62))
    recovered = metadata.in_recovery()
    for first in range(10):
        recovered = recovered.with_ensemble(first, (f"{first}-a", f"{first}-b", f"{first}-c"))
        encode_metadata(recovered)
    encode_metadata(recovered.closed(last_entry_id=1 << 62, length=1 << 62))
