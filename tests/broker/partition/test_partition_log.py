"""The end of an open log: what is closed and given up with it, in one change."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from fencelog.broker.append.pending_bytes import PendingBytes
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.metastore.port import Delete, Set
from fencelog.ledgers.record_batch import Message
from fencelog.ledgers.writer.metadata import PreparedClose
from tests.support.broker_stage import Stage
from tests.support.metadata_nodes import overwrite
from tests.support.scripted_ledgers import ScriptedLedgers

STATE, OWNER = "/state", "/owner"
"""The nodes that stand for the metadata of the state ledger, and for the owner's node."""


@pytest.fixture
async def store(stage: Stage) -> MemoryMetadataStore:
    return await stage.store()


@pytest.fixture
async def log(
    stage: Stage,
    ledgers: ScriptedLedgers,
    store: MemoryMetadataStore,
    monkeypatch: pytest.MonkeyPatch,
) -> PartitionLog:
    """A log whose state ledger is closed by a change, as a real writer does."""
    log = await stage.open(store=store)
    await log.append_message(Message(b"x"))
    await log.access.fence("one")
    state, version = ledgers.newest, await store.create(STATE, b"open")

    async def prepare_close() -> PreparedClose:
        closed = state.metadata.closed(last_entry_id=state.lac, length=state.length)
        return PreparedClose(closed, Set(STATE, b"closed", version))

    monkeypatch.setattr(state, "prepare_close", prepare_close)
    return log


async def value_of(store: MemoryMetadataStore, path: str) -> bytes | None:
    with suppress(FencelogError):
        return (await store.get(path)).value
    return None


async def check_next_owner(stage: Stage) -> None:
    log = await stage.open()
    assert log.tail_offset == 1
    assert log.access.shown()["fencing_token"] == "one"


async def test_the_log_is_sealed_the_state_closed_and_the_node_gone_in_one_change(
    stage: Stage, ledgers: ScriptedLedgers, store: MemoryMetadataStore, log: PartitionLog
) -> None:
    owner, commits = await store.create(OWNER, b""), stage.cluster.transactions
    assert await log.close([Delete(OWNER, owner)])
    assert stage.cluster.transactions == commits + 1
    assert (await value_of(store, STATE), await value_of(store, OWNER)) == (b"closed", None)
    assert "close 1" in ledgers.log
    assert "close 2" not in ledgers.log  # not by itself
    assert ledgers.writers[2].abandoned
    await check_next_owner(stage)


async def test_the_state_is_closed_with_the_log_where_nothing_is_to_be_released(
    stage: Stage, store: MemoryMetadataStore, log: PartitionLog
) -> None:
    assert not await log.close()
    assert await value_of(store, STATE) == b"closed"
    await check_next_owner(stage)


@pytest.mark.parametrize("changed", [STATE, OWNER])
async def test_what_another_client_has_changed_is_left_out_with_all_but_the_log(
    stage: Stage,
    ledgers: ScriptedLedgers,
    store: MemoryMetadataStore,
    log: PartitionLog,
    changed: str,
) -> None:
    """The log is sealed alone; the state ledger is closed by itself."""
    owner = await store.create(OWNER, b"")
    await overwrite(store, changed, b"changed")
    assert not await log.close([Delete(OWNER, owner)])
    left = {STATE: b"open", OWNER: b""} | {changed: b"changed"}
    assert {path: await value_of(store, path) for path in left} == left
    assert "close 2" in ledgers.log
    (segment,) = (await stage.node()).ledger_list.segments
    assert segment.sealed is not None
    await check_next_owner(stage)


async def test_a_log_that_has_ended_counts_nothing_as_in_flight(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    """Its bytes would count against the other partitions of the broker for ever."""
    ledgers.auto_ack, pending = False, PendingBytes()
    log = await stage.open(broker_pending=pending)
    appended = log.append_message(Message(b"x"))
    await asyncio.sleep(0.01)
    assert pending.total > 0
    await log.abandon(FencelogError(ErrorCode.NO_OWNER, "another broker has it"))
    with pytest.raises(FencelogError) as raised:
        await appended
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
    assert pending.total == 0


async def test_the_state_of_a_terminated_log_is_closed_by_itself(
    stage: Stage, ledgers: ScriptedLedgers, store: MemoryMetadataStore, log: PartitionLog
) -> None:
    """Its log is sealed already."""
    owner = await store.create(OWNER, b"")
    await log.terminate()
    assert not await log.close([Delete(OWNER, owner)])
    assert "close 2" in ledgers.log
    await check_next_owner(stage)
