"""The bits of verified ledgers outlive their process, and two processes add to them."""

from __future__ import annotations

import base64
import json
import zlib

import pytest

from fencelog.bookie.recent.core import VerifiedLedgers
from fencelog.bookie.recent.verified_store import VERIFIED_PATH, VerifiedStore
from tests.bookie.auditor.audit_stage import AuditStage


def of(*ledger_ids: int) -> VerifiedLedgers:
    verified = VerifiedLedgers()
    for ledger_id in ledger_ids:
        verified.add(ledger_id)
    return verified


async def test_two_processes_add_their_bits(stage: AuditStage) -> None:
    store = VerifiedStore(stage.store)
    await store.save(of(1, 5), 0)
    await store.save(of(5, 65_535), 0)
    await store.save(of(70_000), 1)
    found = VerifiedLedgers()
    for directory in (0, 1, 2):
        await store.load(found, directory)
    assert [i for i in (0, 1, 4, 5, 65_535, 65_536, 70_000) if i in found] == [1, 5, 65_535, 70_000]
    assert found.changed == set(), "what was loaded need not be saved"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b'{"v": 2, "bits": ""}',
        b'{"v": 1, "bits": "????"}',
        json.dumps({"v": 1, "bits": base64.b64encode(zlib.compress(b"1")).decode()}).encode(),
    ],
)
async def test_a_node_that_cannot_be_read_counts_as_empty(stage: AuditStage, value: bytes) -> None:
    await stage.store.create(f"{VERIFIED_PATH}/0", value)
    store, found = VerifiedStore(stage.store), VerifiedLedgers()
    await store.load(found, 0)
    assert found.directory(0) == bytes(VerifiedLedgers.SIZE)
    await store.save(of(3), 0)
    await store.load(found, 0)
    assert 3 in found


async def test_a_node_that_unpacks_to_more_takes_no_more_memory(stage: AuditStage) -> None:
    bomb = base64.b64encode(zlib.compress(b"\xff" * (1 << 24))).decode()
    await stage.store.create(f"{VERIFIED_PATH}/0", json.dumps({"v": 1, "bits": bomb}).encode())
    found = VerifiedLedgers()
    await VerifiedStore(stage.store).load(found, 0)
    assert len(found.directory(0)) == VerifiedLedgers.SIZE
