"""A batch is in the log once or not at all, whoever dies when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import pytest

from fencelog.broker.append.conditions import AppendConditions
from fencelog.broker.commits.commits import Committed
from fencelog.broker.limits import MAX_WAITING_COMMITS
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.policy import Policy
from fencelog.broker.read.stored import ReadLimits
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_SEQUENCE, SequenceRange, pack_entry
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metastore.port import Change, Version
from fencelog.ledgers.record_batch import Message, check_batch, encode_values
from tests.support.broker_stage import ReadAll, Stage
from tests.support.scripted_ledgers import ScriptedLedgers

Q = "query"


async def written(
    log: PartitionLog, ledgers: ScriptedLedgers, *values: bytes, committer: str = Q
) -> tuple[int, int]:
    """Have a ledger made and write an entry for each value; return its id and its messages."""
    made = await log.commits.create(committer)
    ledger_id = made.metadata.ledger_id
    ledgers.writers[ledger_id].payloads += [
        pack_entry(encode_values([value]), count=1, first_number=number, publish_time_us=2**60)
        for number, value in enumerate(values)
    ]
    return ledger_id, len(values)


class DeafStore(MemoryMetadataStore):
    """A store that makes changes, and loses the answers once it is deaf."""

    is_deaf = False

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster)
        self.has_changed = asyncio.Event()

    async def commit(self, changes: Sequence[Change]) -> list[Version]:
        done = await super().commit(changes)
        if self.is_deaf:
            self.has_changed.set()
            raise FencelogError(ErrorCode.METADATA_UNKNOWN, "the answer is lost")
        return done


async def code_of(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(FencelogError) as raised:
        await work
    return raised.value.code


def place(done: Committed) -> tuple[int, int, int, bool]:
    commit = done.commit
    return commit.batch, commit.offset, commit.messages, done.duplicate


async def test_segments_are_messages_like_any_other(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    log = await stage.open()
    await log.append_message(Message(b"a"))
    waiting = asyncio.create_task(log.read(1, ReadLimits(1, 1 << 20, wait_ms=60_000)))
    await asyncio.sleep(0)
    segments = [await written(log, ledgers, b"b", b"c"), await written(log, ledgers, b"d")]
    stage.host.clock_us += 1_000
    assert place(await log.commits.commit(Q, 1, segments, 4)) == (1, 1, 3, False)
    assert [each.base_offset for each in (await waiting).entries] == [1]
    assert (await log.append_message(Message(b"e"))).offset == 4
    assert await read_all(log) == [b"a", b"b", b"c", b"d", b"e"]
    ranges = (await log.segments())["segments"]
    assert [(each["base_offset"], each["messages"]) for each in ranges] == [
        (0, 1), (1, 2), (3, 1), (4, 1),
    ]  # fmt: skip
    times = [each.get("publish_time") for each in ranges]
    assert times == [None, stage.host.clock_us, stage.host.clock_us, None]
    again = await stage.open()
    assert await read_all(again) == [b"a", b"b", b"c", b"d", b"e"]
    commit = again.commits.last(Q)
    assert commit is not None
    assert (commit.batch, commit.offset, commit.partitions) == (1, 1, 4)
    assert again.internals()["commits"][Q]["messages"] == 3


async def test_the_publish_time_of_a_segment_is_that_of_its_commit(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open()
    first = stage.host.clock_us
    await log.append_message(Message(b"a"))
    segment = await written(log, ledgers, b"b", b"c")
    stage.host.clock_us += 1_000
    await log.commits.commit(Q, 1, [segment])
    stage.host.clock_us -= 500  # the clock goes back, publish times never do
    await log.append_message(Message(b"d"))
    for found in (log, await stage.open()):
        result = await found.read(1, ReadLimits(10, 1 << 20))
        times = [each.publish_time_us for each in result.entries]
        assert set(times) == {first + 1_000}
        assert await found.offset_for_time(first + 1) == 1
        assert await found.offset_for_time(first + 1_001) == 4
        limits = found.retention.extents()
        assert [each.last_publish_us for each in limits][:2] == [first, first + 1_000]
    assert (await stage.node()).ledger_list.last_publish_us == first + 1_000


async def test_an_empty_ledger_before_the_segments_leaves_the_list_and_is_deleted(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open()
    empty = (await stage.node()).ledger_list.segments[-1].ledger_id
    segment = await written(log, ledgers, b"a")
    await log.commits.commit(Q, 1, [segment])
    listed = [each.ledger_id for each in (await stage.node()).ledger_list.segments]
    assert listed[0] == segment[0]
    assert empty in ledgers.deleted - set(listed)


async def test_a_batch_that_comes_again_changes_nothing(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    log = await stage.open()
    first, again = await written(log, ledgers, b"a"), await written(log, ledgers, b"a")
    assert place(await log.commits.commit(Q, 7, [first])) == (7, 0, 1, False)
    assert not (await log.commits.commit("other", 7, [])).duplicate
    for owner in (log, await stage.open()):
        assert place(await owner.commits.commit(Q, 7, [again])) == (7, 0, 1, True)
        assert place(await owner.commits.commit(Q, 6, [again])) == (7, 0, 1, True)
        assert await read_all(owner) == [b"a"]
        assert (await owner.commits.commit("other", 7, [])).duplicate


async def test_a_batch_without_messages_here_is_noted(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open()
    await log.append_message(Message(b"a"))
    before = len(ledgers.writers)
    assert place(await log.commits.commit(Q, 1, [])) == (1, 1, 0, False)
    assert len(ledgers.writers) == before


async def test_an_aborted_batch_stays_out_and_its_number_may_be_used_again(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    log = await stage.open()
    left, right = await written(log, ledgers, b"a"), await written(log, ledgers, b"b")
    assert await log.commits.abort(Q, 1, [left[0]]) is None
    assert left[0] in ledgers.deleted
    assert await log.commits.abort(Q, 1, [left[0]]) is None
    assert await code_of(log.commits.commit(Q, 1, [right, left])) is ErrorCode.LEDGER_NOT_FOUND
    assert await read_all(log) == []
    assert place(await log.commits.commit(Q, 1, [right])) == (1, 0, 1, False)


async def test_an_abort_after_the_commit_undoes_nothing(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    log = await stage.open()
    segment = await written(log, ledgers, b"a")
    done = await log.commits.commit(Q, 1, [segment])
    assert await log.commits.abort(Q, 1, [segment[0]]) == done.commit
    assert await code_of(log.commits.abort(Q, 2, [segment[0]])) is ErrorCode.BAD_REQUEST
    assert await read_all(log) == [b"a"]
    assert segment[0] not in ledgers.deleted


async def test_ledgers_of_others_and_of_other_sizes_are_refused_and_kept(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open()
    good = await written(log, ledgers, b"a")
    stranger = await written(log, ledgers, b"b", committer="other")
    own = (await stage.node()).ledger_list.segments[-1].ledger_id
    for wrong in ([stranger], [(good[0], 2)], [good, good], [(own, 1)]):
        assert await code_of(log.commits.commit(Q, 1, [good, *wrong])) is ErrorCode.BAD_REQUEST
    assert await code_of(log.commits.commit(Q, 1, [(999, 1)])) is ErrorCode.LEDGER_NOT_FOUND
    assert stranger[0] not in ledgers.fenced
    assert own not in ledgers.fenced
    assert (await log.append_message(Message(b"x"))).offset == 0


async def test_a_ledger_gets_into_the_log_once_whatever_batch_names_it(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    log = await stage.open()
    segment = await written(log, ledgers, b"a")
    await log.commits.commit(Q, 1, [segment])
    assert await code_of(log.commits.commit(Q, 2, [segment])) is ErrorCode.BAD_REQUEST
    await log.append_message(Message(b"b"))
    assert await read_all(log) == [b"a", b"b"]


async def test_appends_meanwhile_wait_and_keep_their_order(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    log = await stage.open()
    ledgers.newest.auto_ack = False
    segment = await written(log, ledgers, b"s")
    first = log.append_message(Message(b"a"))
    await asyncio.sleep(0.01)
    committing = asyncio.create_task(log.commits.commit(Q, 1, [segment]))
    await asyncio.sleep(0.01)
    batch = encode_values([b"b"])
    second = log.append_batch(batch, check_batch(batch))
    third = log.append_message(Message(b"c"), AppendConditions(if_offset=2))
    fourth = log.append_message(Message(b"d"), AppendConditions(if_offset=3))
    await asyncio.sleep(0.01)
    assert not committing.done()
    ledgers.writer_of(min(ledgers.writers)).ack(0)
    assert place(await committing) == (1, 1, 1, False)
    assert [(await each).offset for each in (first, second, fourth)] == [0, 2, 3]
    assert await code_of(third) is ErrorCode.PRECONDITION_FAILED
    assert await read_all(log) == [b"a", b"s", b"b", b"d"]


async def test_producers_are_remembered_across_segments(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open()

    def numbered(sequence: int) -> AppendConditions:
        return AppendConditions(SequenceRange(1, RANGE_SEQUENCE, b"p" * 16, 0, sequence))

    await log.append_message(Message(b"a"), numbered(0))
    await log.commits.commit(Q, 1, [await written(log, ledgers, b"s")])
    await log.append_message(Message(b"b"), numbered(1))
    again = await stage.open()
    assert (await again.append_message(Message(b"b"), numbered(1))).offset == 2
    assert (await again.append_message(Message(b"c"), numbered(2))).offset == 3


async def test_limits_of_who_and_how_much_hold_for_commits_too(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open(policy=Policy(backlog_quota_bytes=1, backlog_action="refuse"))
    segment = await written(log, ledgers, b"a")
    await log.access.fence("token")
    assert await code_of(log.commits.commit(Q, 1, [segment])) is ErrorCode.PRECONDITION_FAILED
    await log.access.fence(None)
    epoch = await log.access.claim("p", "exclusive", wait_ms=0)
    assert await code_of(log.commits.commit(Q, 1, [segment])) is ErrorCode.PRODUCER_BUSY
    await log.access.release("p", epoch)
    log._admission.over_quota(True)
    full = ErrorCode.BACKLOG_QUOTA_EXCEEDED
    assert await code_of(log.commits.commit(Q, 1, [segment])) is full
    log._admission.over_quota(False)
    assert not (await log.commits.commit(Q, 1, [segment])).duplicate


async def test_one_committer_too_many_is_refused_before_anything_is_done(
    stage: Stage,
    ledgers: ScriptedLedgers,
    read_all: ReadAll,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fencelog.broker.ledger_list.ledger_list.MAX_COMMITTERS", 1)
    log = await stage.open()
    await log.commits.commit("first", 1, [])
    segment = await written(log, ledgers, b"a")
    before = (await stage.node()).ledger_list
    assert await code_of(log.commits.commit(Q, 1, [segment])) is ErrorCode.LIMIT_REACHED
    assert (await stage.node()).ledger_list == before
    assert "epoch" not in ledgers.writers[segment[0]].metadata.properties
    await log.commits.commit("first", 2, [], ends=True)
    assert place(await log.commits.commit(Q, 1, [segment])) == (1, 0, 1, False)
    assert log.commits.last("first") is None
    assert await read_all(log) == [b"a"]


async def test_a_batch_that_is_appended_takes_no_ledgers(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    """Those of an attempt that wrote ledgers, whose commit comes late, would double the rows."""
    log = await stage.open()
    segment = await written(log, ledgers, b"late")
    refused = log.commits.commit(Q, 1, [segment], by_appends=True)
    assert await code_of(refused) is ErrorCode.BAD_REQUEST
    assert log.commits.last(Q) is None
    noted = await log.commits.commit(Q, 1, [], 4, by_appends=True)
    await log.append_message(Message(b"a"))
    for owner in (log, await stage.open()):
        late = await owner.commits.commit(Q, 1, [segment])
        assert (late.commit, late.duplicate) == (noted.commit, True)
        assert late.commit.by_appends
        assert await read_all(owner) == [b"a"]
    assert not (await owner.commits.commit(Q, 2, [segment])).commit.by_appends


async def test_who_was_replaced_counts_no_committers_that_its_successor_has_forgotten(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.broker.ledger_list.ledger_list.MAX_COMMITTERS", 1)
    previous = await stage.open()
    await previous.commits.commit("first", 1, [])
    segment = await written(previous, ledgers, b"a")
    for batch in ([segment], []):
        assert await code_of(previous.commits.commit(Q, 1, batch)) is ErrorCode.LIMIT_REACHED
    new = await stage.open()
    await new.commits.commit("first", 2, [], ends=True)
    assert await code_of(previous.commits.commit(Q, 1, [segment])) is ErrorCode.NO_OWNER
    assert not previous.is_serving
    assert place(await new.commits.commit(Q, 1, [segment])) == (1, 0, 1, False)


async def test_who_was_replaced_counts_no_ledgers_that_its_successor_has_trimmed(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.broker.ledger_list.ledger_list.MAX_SEGMENTS", 3)
    previous = await stage.open()
    await previous.append_message(Message(b"a"))
    first, second = await written(previous, ledgers, b"b"), await written(previous, ledgers, b"c")
    assert not (await previous.commits.commit(Q, 1, [first])).duplicate
    await previous.append_message(Message(b"d"))
    before = (await stage.node()).ledger_list
    for _ in range(3):
        assert await code_of(previous.commits.commit(Q, 2, [second])) is ErrorCode.LIMIT_REACHED
    assert (await stage.node()).ledger_list == before  # which no refusal makes longer
    new = await stage.open()
    await new.retention.trim(new.tail_offset)
    assert await code_of(previous.commits.commit(Q, 2, [second])) is ErrorCode.NO_OWNER
    assert not previous.is_serving
    assert not (await new.commits.commit(Q, 2, [second])).duplicate


async def test_an_owner_that_cannot_tell_refuses_no_committer_for_good(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.broker.ledger_list.ledger_list.MAX_COMMITTERS", 1)
    store = await stage.store()
    log = await stage.open(store=store, timeout_s=0.02)
    await log.commits.commit("first", 1, [])
    store.disconnect()
    assert await code_of(log.commits.commit(Q, 1, [])) is ErrorCode.NO_OWNER
    store.reconnect()
    assert await code_of(log.commits.commit(Q, 1, [])) is ErrorCode.LIMIT_REACHED
    assert log.is_serving


async def test_an_owner_that_was_replaced_commits_and_withdraws_nothing(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    old = await stage.open()
    segment, other = await written(old, ledgers, b"a"), await written(old, ledgers, b"b")
    new = await stage.open()
    lost = await code_of(old.commits.commit(Q, 1, [other]))
    assert lost in (ErrorCode.METADATA_UNKNOWN, ErrorCode.NO_OWNER)
    assert place(await new.commits.commit(Q, 1, [segment])) == (1, 0, 1, False)
    newest = await stage.open()
    assert await code_of(new.commits.abort(Q, 9, [other[0]])) is ErrorCode.NO_OWNER
    assert other[0] not in ledgers.deleted
    assert await newest.commits.abort(Q, 9, [other[0]]) is None
    assert await read_all(newest) == [b"a"]


async def test_an_abort_after_a_commit_that_nobody_heard_of_deletes_nothing(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    """The change is made, its answer is lost, and the next owner has written the list already."""
    store = DeafStore(stage.cluster)
    await store.start()
    stage.stores.append(store)
    old = await stage.open(store=store)
    segment = await written(old, ledgers, b"a")
    store.is_deaf = True
    committing = asyncio.create_task(old.commits.commit(Q, 1, [segment]))
    await store.has_changed.wait()
    new = await stage.open()
    assert await code_of(committing) is ErrorCode.METADATA_UNKNOWN
    assert await code_of(old.commits.abort(Q, 1, [segment[0]])) is ErrorCode.NO_OWNER
    assert segment[0] not in ledgers.deleted
    assert await read_all(new) == [b"a"]


async def test_an_abort_leaves_what_a_later_owner_has_claimed(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    old = await stage.open()
    segment = await written(old, ledgers, b"a")
    new = await stage.open()
    await new.commits.commit(Q, 1, [segment])
    assert await code_of(old.commits.abort(Q, 1, [segment[0]])) is ErrorCode.NO_OWNER
    assert segment[0] not in ledgers.deleted
    assert await read_all(new) == [b"a"]


async def test_a_terminated_log_takes_no_segments_and_tells_what_it_has(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open()
    segment, late = await written(log, ledgers, b"a"), await written(log, ledgers, b"b")
    await log.commits.commit(Q, 1, [segment])
    await log.terminate()
    assert (await log.commits.commit(Q, 1, [segment])).duplicate
    for work in (log.commits.commit(Q, 2, [late]), log.commits.create(Q)):
        assert await code_of(work) is ErrorCode.TOPIC_TERMINATED


async def test_a_commit_continues_without_its_caller(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    log = await stage.open()
    segment = await written(log, ledgers, b"a")
    asking = asyncio.create_task(log.commits.commit(Q, 1, [segment]))
    await asyncio.sleep(0)
    asking.cancel()
    assert (await log.commits.commit(Q, 1, [segment])).duplicate
    assert await read_all(log) == [b"a"]


async def test_so_many_commits_wait_and_no_more(stage: Stage, ledgers: ScriptedLedgers) -> None:
    log = await stage.open()
    waiting = [
        asyncio.create_task(log.commits.commit(Q, number, []))
        for number in range(MAX_WAITING_COMMITS)
    ]
    await asyncio.sleep(0)
    assert await code_of(log.commits.commit(Q, 0, [])) is ErrorCode.OVERLOADED
    await asyncio.gather(*waiting)


async def test_a_ledger_that_fails_under_the_commit_loses_nothing(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    log = await stage.open()
    await log.append_message(Message(b"a"))
    segment = await written(log, ledgers, b"s")
    ledgers.writer_of(min(ledgers.writers)).close_error = FencelogError(
        ErrorCode.APPEND_UNKNOWN, "two bookies are gone"
    )
    assert place(await log.commits.commit(Q, 1, [segment])) == (1, 1, 1, False)
    assert (await log.append_message(Message(b"b"))).offset == 2
    assert await read_all(log) == [b"a", b"s", b"b"]


async def test_where_no_ledger_can_be_created_nothing_is_committed(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open()
    segment = await written(log, ledgers, b"s")
    ledgers.create_errors.append(FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "one is left"))
    assert await code_of(log.commits.commit(Q, 1, [segment])) is ErrorCode.NOT_ENOUGH_BOOKIES
    assert (await log.append_message(Message(b"a"))).offset == 0
    assert place(await log.commits.commit(Q, 1, [segment])) == (1, 1, 1, False)
