"""Commits that meet a trim, the end of the log, or a change of who may append."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.broker.ledger_list.withdrawal import withdrawn_properties
from fencelog.broker.policy import Policy
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.record_batch import Message
from tests.broker.commits.test_commits import Q, code_of, place, written
from tests.support.broker_stage import ReadAll, Stage
from tests.support.scripted_ledgers import ScriptedLedgers
from tests.support.until import until


@pytest.mark.parametrize("is_deletion_slow", [False, True])
async def test_a_ledger_that_was_trimmed_joins_the_log_no_more(
    stage: Stage,
    ledgers: ScriptedLedgers,
    read_all: ReadAll,
    monkeypatch: pytest.MonkeyPatch,
    is_deletion_slow: bool,
) -> None:
    """Its committer was forgotten, and repeats its batch before the ledger is deleted."""
    monkeypatch.setattr("fencelog.broker.ledger_list.ledger_list.MAX_COMMITTERS", 1)
    log = await stage.open()
    segment = await written(log, ledgers, b"a")
    assert place(await log.commits.commit(Q, 1, [segment], ends=True)) == (1, 0, 1, False)
    await log.append_message(Message(b"b"))
    await log.commits.commit("other", 1, [], ends=True)
    assert log.commits.last(Q) is None
    delete, deleting, may_go_on = ledgers.delete, asyncio.Event(), asyncio.Event()

    async def delete_late(ledger_id: int, *, unfenced: bool = False) -> None:
        deleting.set()
        if not is_deletion_slow:
            raise FencelogError(ErrorCode.RECOVERY_INCOMPLETE, "bookies are missing")
        await may_go_on.wait()
        await delete(ledger_id, unfenced=unfenced)

    monkeypatch.setattr(ledgers, "delete", delete_late)
    trim = asyncio.create_task(log.retention.trim(1))
    await deleting.wait()
    repeated = await code_of(log.commits.commit(Q, 1, [segment], ends=True))
    assert repeated is ErrorCode.LEDGER_NOT_FOUND
    may_go_on.set()
    await trim
    assert segment[0] not in (await stage.node()).ledger_list.ledgers
    assert await read_all(await stage.open()) == [b"b"]


async def test_a_ledger_that_is_withdrawn_while_it_is_checked_joins_no_log(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await stage.open()
    segment = await written(log, ledgers, b"a")
    recover = ledgers.recover

    async def recover_and_withdraw(ledger_id: int) -> LedgerMetadata:
        metadata = await recover(ledger_id)
        await ledgers.describe(ledger_id, withdrawn_properties)
        return metadata

    monkeypatch.setattr(ledgers, "recover", recover_and_withdraw)
    assert await code_of(log.commits.commit(Q, 1, [segment])) is ErrorCode.LEDGER_NOT_FOUND
    assert segment[0] not in (await stage.node()).ledger_list.ledgers
    assert log.commits.last(Q) is None


async def test_a_joined_ledger_that_cannot_be_withdrawn_stays_in_the_log(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await stage.open()
    await log.append_message(Message(b"a"))
    segment = await written(log, ledgers, b"b")
    await log.commits.commit(Q, 1, [segment])
    await log.append_message(Message(b"c"))
    describe = ledgers.describe

    async def away(*args: object) -> object:
        raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "away")

    monkeypatch.setattr(ledgers, "describe", away)
    assert await code_of(log.retention.trim(2)) is ErrorCode.METADATA_UNAVAILABLE
    assert len((await stage.node()).ledger_list.segments) == 3
    monkeypatch.setattr(ledgers, "describe", describe)
    assert (await log.retention.trim(2)).earliest_offset == 2
    assert len((await stage.node()).ledger_list.segments) == 1


async def test_a_commit_without_messages_that_meets_the_end_of_the_log_is_refused(
    stage: Stage,
) -> None:
    log = await stage.open()
    terminating = asyncio.create_task(log._writer.terminate())
    commits = []
    for batch in range(1, 13):
        commits.append(asyncio.create_task(log.commits.commit(Q, batch, [])))
        await asyncio.sleep(0)
    await terminating
    refused = [
        error
        for error in await asyncio.gather(*commits, return_exceptions=True)
        if isinstance(error, BaseException)
    ]
    assert refused
    assert {error.code for error in refused if isinstance(error, FencelogError)} == {
        ErrorCode.TOPIC_TERMINATED
    }
    assert all(isinstance(error, FencelogError) for error in refused)


async def test_a_commit_opens_no_partition_whose_last_change_of_access_is_unknown(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await stage.open(timeout_s=0.05)
    segment = await written(log, ledgers, b"a")
    await log.access.fence("old")
    state, record = ledgers.newest, log._state_log.recorded

    def unanswered(event: list[object]) -> object:
        if event == ["fencing_token", None]:
            state.auto_ack = False
        return record(event)

    monkeypatch.setattr(log._state_log, "recorded", unanswered)
    assert await code_of(log.access.fence(None)) is ErrorCode.STATE_UNKNOWN
    for work in (log.append_message(Message(b"x")), log.commits.commit(Q, 1, [segment])):
        assert await code_of(work) is ErrorCode.BOOKIE_UNAVAILABLE
    assert await code_of(log.append_message(Message(b"y"))) is ErrorCode.BOOKIE_UNAVAILABLE


async def test_a_commit_that_meets_the_end_as_it_is_stored_is_refused(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await stage.open()
    segment = await written(log, ledgers, b"s")
    await log.append_message(Message(b"a"))
    commit, commits = log._node._commit, list[asyncio.Task[object]]()

    async def and_commit(ledger_list: LedgerList, *rest: Any) -> Any:
        done = await commit(ledger_list, *rest)
        if ledger_list.terminated:
            commits.append(asyncio.create_task(log.commits.commit(Q, 1, [segment])))
        return done

    monkeypatch.setattr(log._node, "_commit", and_commit)
    await log.terminate()
    (refused,) = commits
    assert await code_of(refused) is ErrorCode.TOPIC_TERMINATED


async def test_an_owner_that_was_replaced_does_not_say_that_a_ledger_is_gone(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    """Its successor has made the commit, and trimmed it since."""
    old = await stage.open()
    segment = await written(old, ledgers, b"a")
    new = await stage.open()
    assert place(await new.commits.commit(Q, 1, [segment])) == (1, 0, 1, False)
    await new.append_message(Message(b"b"))
    await new.retention.trim(1)
    assert old.is_serving
    assert await code_of(old.commits.commit(Q, 1, [segment])) is ErrorCode.NO_OWNER
    assert place(await new.commits.commit(Q, 1, [segment])) == (1, 0, 1, True)


async def test_an_owner_that_was_replaced_does_not_say_that_its_quota_is_exceeded(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    old = await stage.open(policy=Policy(backlog_quota_bytes=1, backlog_action="refuse"))
    segment = await written(old, ledgers, b"a")
    old._admission.over_quota(True)
    refused = await code_of(old.commits.commit(Q, 1, [segment]))
    assert refused is ErrorCode.BACKLOG_QUOTA_EXCEEDED
    new = await stage.open()
    assert place(await new.commits.commit(Q, 1, [segment])) == (1, 0, 1, False)
    assert await code_of(old.commits.commit(Q, 1, [segment])) is ErrorCode.NO_OWNER


async def test_appends_do_not_wait_for_a_commit_that_waits_for_a_roll(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    """The roll waits for the metadata store, which has gone away."""
    store = await stage.store()
    log = await stage.open(store=store, max_entries=2)
    segment = await written(log, ledgers, b"s")
    ledgers.create_gate.clear()
    for value in (b"a", b"b"):
        await log.append_message(Message(value))
    await until(lambda: not log._writer.is_at_rest)
    committing = asyncio.create_task(log.commits.commit(Q, 1, [segment]))
    await asyncio.sleep(0.02)
    store.disconnect()
    ledgers.create_gate.set()
    await asyncio.sleep(0.02)
    assert (await log.append_message(Message(b"c"))).offset == 2
    assert not committing.done()
    store.reconnect()
    assert (await committing).commit.messages == 1
    assert await read_all(log) == [b"a", b"b", b"c", b"s"]
