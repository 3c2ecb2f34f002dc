"""The list of ledgers: its legal changes, its encoding, and its hold by compare-and-set."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.broker.ledger_list.codec import decode_ledger_list, encode_ledger_list
from fencelog.broker.ledger_list.ledger_list import (
    MAX_SEGMENTS,
    Commit,
    Compacted,
    LedgerList,
    Sealed,
    Segment,
    Takeover,
)
from fencelog.broker.ledger_list.store import LedgerListLost
from fencelog.broker.limits import IDLE_COMMITTER_S, MAX_COMMITTERS, MAX_LISTED_TAKEOVERS
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_METADATA_BYTES
from fencelog.ledgers.metastore.port import Change, Version
from tests.support.broker_stage import Stage
from tests.support.scripted_ledgers import ScriptedLedgers


def sealed(messages: int) -> Sealed:
    return Sealed(
        entries=messages, messages=messages, size=10 * messages, last_publish_us=7, sealed_us=8
    )


def opened(*messages: int) -> LedgerList:
    """A ledger list with sealed ledgers 1, 2, … of so many messages, and an open one."""
    ledger_list = LedgerList().taken_over({}, ledger_id=1, created_us=0, owner="a")
    for number, count in enumerate(messages, 1):
        ledger_list = ledger_list.with_next(ledger_id=number + 1, created_us=0)
        ledger_list = ledger_list.with_sealed(number, sealed(count))
    return ledger_list


def test_offsets_are_dense_over_rolls_and_takeovers() -> None:
    ledger_list = opened(5, 0, 3)
    assert [segment.base_offset for segment in ledger_list.segments] == [0, 5, 5, 8]
    taken = ledger_list.taken_over(
        {4: sealed(2), 3: sealed(3)}, ledger_id=9, created_us=1, owner="a"
    )
    assert [(s.ledger_id, s.base_offset) for s in taken.segments] == [
        (1, 0),
        (3, 5),
        (4, 8),
        (9, 10),
    ]
    assert taken.epoch == ledger_list.epoch + 1
    assert taken.last_publish_us == 7


def test_the_newest_takeovers_are_remembered() -> None:
    ledger_list = opened(5)
    assert ledger_list.takeovers == (Takeover(1, "a", 0),)
    for number in range(MAX_LISTED_TAKEOVERS):
        ledger_list = ledger_list.taken_over(
            {ledger_list.segments[-1].ledger_id: sealed(1)},
            ledger_id=100 + number,
            created_us=number,
            owner="b",
        )
    assert len(ledger_list.takeovers) == MAX_LISTED_TAKEOVERS
    assert ledger_list.takeovers[0] == Takeover(2, "b", 0)
    assert ledger_list.takeovers[-1].epoch == ledger_list.epoch
    assert decode_ledger_list(encode_ledger_list(ledger_list)) == ledger_list


def test_the_base_is_unknown_until_the_former_ledger_is_sealed() -> None:
    ledger_list = opened(5).with_next(ledger_id=7, created_us=0)
    assert ledger_list.segments[-1].base_offset is None
    assert ledger_list.with_sealed(2, sealed(4)).segments[-1].base_offset == 9


def test_a_second_roll_before_the_first_is_finished_is_a_mistake() -> None:
    rolling = opened(5).with_next(ledger_id=7, created_us=0)
    with pytest.raises(AssertionError, match="second roll"):
        rolling.with_next(ledger_id=8, created_us=0)


def test_takeover_recovers_every_unsealed_ledger_and_at_least_the_last_two() -> None:
    assert [s.ledger_id for s in opened(1, 1, 1).to_recover] == [3, 4]
    rolling = opened(1, 1).with_next(ledger_id=9, created_us=0)
    assert [s.ledger_id for s in rolling.to_recover] == [3, 9]
    closed = opened(1, 1).with_sealed(3, sealed(2))
    assert [s.ledger_id for s in closed.to_recover] == [2, 3]


def test_a_log_of_empty_ledgers_only_keeps_its_place() -> None:
    ledger_list = opened(4).taken_over(
        {1: sealed(4), 2: sealed(0)}, ledger_id=5, created_us=0, owner="a"
    )
    again = ledger_list.taken_over(
        {1: sealed(4), 5: sealed(0)}, ledger_id=6, created_us=0, owner="a"
    )
    assert [(s.ledger_id, s.base_offset) for s in again.segments] == [(1, 0), (6, 4)]


def test_trimming_takes_sealed_ledgers_from_the_beginning_only() -> None:
    ledger_list = opened(5, 2, 3)
    trimmed = ledger_list.trimmed([1, 2])
    assert [s.ledger_id for s in trimmed.segments] == [3, 4]
    assert trimmed.start_offset == 7
    assert trimmed.with_start(3).start_offset == 7
    assert trimmed.with_start(9).start_offset == 9
    for wrong, why in (([2], "not the oldest"), ([1, 2, 3, 4], "not sealed"), ([9], "not the")):
        with pytest.raises(AssertionError, match=why):
            ledger_list.trimmed(wrong)
    closed = ledger_list.with_sealed(4, sealed(1))
    with pytest.raises(AssertionError, match="the last ledger"):
        closed.trimmed([1, 2, 3, 4])


def test_a_terminated_log_may_lose_all_its_ledgers_and_keeps_its_end() -> None:
    with pytest.raises(AssertionError, match="not sealed yet"):
        opened(5).as_terminated()
    ended = opened(5).with_sealed(2, sealed(4)).as_terminated()
    with pytest.raises(AssertionError, match="terminated"):
        ended.with_next(ledger_id=9, created_us=0)
    empty = ended.trimmed([1, 2])
    assert (empty.segments, empty.start_offset, empty.next_base) == ((), 9, 9)
    taken = empty.taken_over({}, ledger_id=None, created_us=0, owner="b")
    assert (taken.segments, taken.epoch, taken.owner) == ((), 2, "b")
    with pytest.raises(AssertionError, match="gets no ledger"):
        empty.taken_over({}, ledger_id=7, created_us=0, owner="b")


def joining(*ids: int, messages: int = 2) -> list[Segment]:
    return [Segment(ledger_id, 5, None, sealed(messages)) for ledger_id in ids]


def test_segments_join_at_the_end_and_an_empty_ledger_before_them_leaves() -> None:
    ledger_list = opened(5).with_sealed(2, sealed(4))
    joined = ledger_list.with_adopted(joining(8, 9)).with_next(ledger_id=10, created_us=0)
    assert [(s.ledger_id, s.base_offset, s.is_adopted, s.epoch) for s in joined.segments] == [
        (1, 0, False, 1),
        (2, 5, False, 1),
        (8, 9, True, 1),
        (9, 11, True, 1),
        (10, 13, False, 1),
    ]
    emptied = joined.with_sealed(10, sealed(0)).with_adopted(joining(11))
    assert [s.ledger_id for s in emptied.segments] == [1, 2, 8, 9, 11]
    assert emptied.next_base == 15
    with pytest.raises(AssertionError, match="before the last ledger is sealed"):
        joined.with_adopted(joining(11))


def test_a_ledger_joins_once_and_no_more_than_the_list_holds() -> None:
    ledger_list = opened(5).with_sealed(2, sealed(4))
    with pytest.raises(FencelogError) as raised:
        ledger_list.with_adopted(joining(8, 1))
    assert raised.value.code is ErrorCode.BAD_REQUEST
    with pytest.raises(FencelogError, match="retention, and commit fewer") as raised:
        ledger_list.with_adopted(joining(*range(10, 10 + MAX_SEGMENTS)))
    assert raised.value.code is ErrorCode.LIMIT_REACHED


def test_the_longest_list_fits_its_node_with_space_for_takeovers() -> None:
    """With large numbers, in segments that name producers or have joined, and all commits."""
    day_us, base = 1_700_000_000_000_000, 10**12
    facts = Sealed(10**6, 10**8, 10**10, day_us, day_us, has_producers=True)
    segments = tuple(
        Segment(10**9 + n, day_us, base + n * 10**8, facts, epoch=10**4, is_adopted=True)
        for n in range(MAX_SEGMENTS)
    )
    commits = {
        f"{n:0100}": Commit(10**6, base, 10**8, day_us, 1000, ends=True, by_appends=True)
        for n in range(MAX_COMMITTERS)
    }
    taken = [Takeover(10**4 + n, "b" * 64, day_us) for n in range(MAX_LISTED_TAKEOVERS)]
    full = LedgerList(10**4, "a" * 32, "b" * 64, segments, commits=commits, takeovers=tuple(taken))
    assert len(encode_ledger_list(full)) < 0.93 * MAX_METADATA_BYTES


def test_what_certainly_cannot_join_is_known_before_anything_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{LIST}.MAX_SEGMENTS", 4)
    ledger_list = opened(5)
    assert len(ledger_list.segments) == 2
    ledger_list.check_adoptable([8, 9])  # the last one may be empty
    for ledger_ids, code in (
        ([8, 9, 10], ErrorCode.LIMIT_REACHED),
        ([8, 2], ErrorCode.BAD_REQUEST),
    ):
        with pytest.raises(FencelogError) as raised:
            ledger_list.check_adoptable(ledger_ids)
        assert raised.value.code is code


LIST = "fencelog.broker.ledger_list.ledger_list"
IDLE_US = int(IDLE_COMMITTER_S * 1e6)


def committed(**times_us: int) -> LedgerList:
    """Return a list with a commit of each of these committers; those of two letters have ended."""
    ledger_list = opened()
    for name, time_us in times_us.items():
        commit = Commit(1, 0, 0, time_us, ends=len(name) == 2)
        ledger_list = ledger_list.with_commit(name, commit)
    return ledger_list


@pytest.mark.parametrize(
    ("times_us", "kept"),
    [
        ({"a": 10, "b": 11, "c": IDLE_US + 10}, {"b", "c"}),
        ({"a": 10, "bb": 11, "c": 12}, {"a", "c"}),
        ({"a": 10, "bb": IDLE_US, "c": IDLE_US + 10}, {"a", "c"}),
        ({"aa": 11, "bb": 10, "c": 12}, {"aa", "c"}),
    ],
)
def test_a_committer_is_forgotten_once_it_repeats_nothing(
    monkeypatch: pytest.MonkeyPatch, times_us: dict[str, int], kept: set[str]
) -> None:
    """One that has ended goes first, however long others were silent."""
    monkeypatch.setattr(f"{LIST}.MAX_COMMITTERS", 2)
    assert set(committed(**times_us).commits) == kept


def test_a_committer_that_may_repeat_its_batch_is_not_forgotten_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{LIST}.MAX_COMMITTERS", 2)
    ledger_list = committed(a=10, b=11)
    with pytest.raises(FencelogError) as raised:
        ledger_list.with_commit("c", Commit(1, 0, 0, IDLE_US + 9))
    assert raised.value.code is ErrorCode.LIMIT_REACHED
    assert set(ledger_list.with_commit("a", Commit(2, 0, 0, 12)).commits) == {"a", "b"}


def test_a_batch_is_committed_once() -> None:
    with pytest.raises(AssertionError, match="again"):
        committed(a=10).with_commit("a", Commit(1, 0, 0, 14))


def test_every_ledger_of_the_partition_is_known() -> None:
    view = Compacted((7, 8), end_offset=3, messages=2, size=20, created_us=1)
    ledger_list = opened(5).with_state(9).with_compacted(view)
    assert ledger_list.ledgers == {1, 2, 7, 8, 9}
    with pytest.raises(AssertionError, match="goes back"):
        ledger_list.with_compacted(Compacted((10,), end_offset=2, messages=0, size=0, created_us=2))


@given(st.lists(st.integers(0, 5), max_size=6), st.booleans(), st.booleans(), st.booleans())
def test_what_is_encoded_is_decoded(
    counts: list[int], rolling: bool, deleted: bool, extras: bool
) -> None:
    ledger_list = opened(*counts)
    if extras:
        view = Compacted((7, 8), end_offset=3, messages=2, size=20, created_us=1)
        ledger_list = ledger_list.with_state(55).with_compacted(view).with_start(2)
        last = ledger_list.segments[-1].ledger_id
        ledger_list = ledger_list.with_sealed(last, replace(sealed(1), has_producers=True))
        ledger_list = ledger_list.with_adopted([Segment(70, 3, None, sealed(2))])
        ledger_list = ledger_list.with_commit("q", Commit(4, 1, 2, 9, partitions=3))
        ledger_list = ledger_list.with_commit("r", Commit(0, 1, 2, 9, ends=True))
        ledger_list = ledger_list.with_commit("s", Commit(0, 1, 0, 9, by_appends=True))
        if not rolling:
            ledger_list = ledger_list.as_terminated()
    if rolling:
        ledger_list = ledger_list.with_next(ledger_id=99, created_us=3)
    if deleted:
        ledger_list = ledger_list.as_deleted()
    assert decode_ledger_list(encode_ledger_list(ledger_list)) == ledger_list


LATER = encode_ledger_list(LedgerList()).replace(b'"v":2', b'"v":3')
"""A list in a later format, which may say more than can be understood here."""


@pytest.mark.parametrize(
    "data",
    [b"", LATER, b"[]", b'{"v":1}', b'{"v":2}', b'{"v":2,"epoch":1,"token":"","segments":[1]}'],
)
def test_a_node_that_is_no_ledger_list_is_refused(data: bytes) -> None:
    with pytest.raises(FencelogError) as raised:
        decode_ledger_list(data)
    assert raised.value.code is ErrorCode.CORRUPT


def test_a_list_that_has_outgrown_its_node_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger_list = opened(1, 2, 3)
    monkeypatch.setattr(
        "fencelog.broker.ledger_list.codec.MAX_METADATA_BYTES", len(encode_ledger_list(ledger_list))
    )
    assert decode_ledger_list(encode_ledger_list(ledger_list)) == ledger_list
    with pytest.raises(FencelogError, match="a list of 5 ledgers") as raised:
        encode_ledger_list(ledger_list.with_next(ledger_id=99, created_us=0))
    assert raised.value.code is ErrorCode.BAD_REQUEST


async def test_a_lost_reply_is_read_back_and_taken_for_what_it_is(stage: Stage) -> None:
    store = await stage.store()
    node = await stage.node(store)
    store.lose_replies(2)
    await node.change(lambda _: opened())
    assert node.ledger_list.segments[0].ledger_id == 1
    # The version is right again: the next change lands.
    await node.change(lambda ledger_list: ledger_list.with_next(ledger_id=2, created_us=0))
    fresh = await stage.node()
    assert [s.ledger_id for s in fresh.ledger_list.segments] == [1, 2]


async def test_a_change_that_may_arrive_late_is_sent_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the list does not show it says nothing: neither that it was lost, nor who owns it."""
    store = await stage.store()
    node = await stage.node(store)
    commit = store.commit

    async def unanswered(changes: Sequence[Change]) -> list[Version]:
        monkeypatch.setattr(store, "commit", commit)
        raise FencelogError(ErrorCode.METADATA_UNKNOWN, "no answer")

    monkeypatch.setattr(store, "commit", unanswered)
    await node.change(lambda _: opened())
    assert (await stage.node()).ledger_list == node.ledger_list


async def test_a_store_that_lets_nobody_in_says_nothing_of_a_change_before(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change has landed; until that is seen it is neither made nor refused."""
    store = await stage.store()
    node = await stage.node(store)
    commit, get = store.commit, store.get
    store.lose_replies(1)
    shut_out: list[str] = []

    async def refused(what: object) -> NoReturn:
        shut_out.append("commit" if isinstance(what, list) else "get")
        if len(shut_out) == 2:
            monkeypatch.setattr(store, "commit", commit)
        if len(shut_out) == 4:
            monkeypatch.setattr(store, "get", get)
        raise FencelogError(ErrorCode.METADATA_UNAUTHORIZED, "for others")

    async def landed(changes: Sequence[Change]) -> list[Version]:
        monkeypatch.setattr(store, "commit", refused)
        monkeypatch.setattr(store, "get", refused)
        return await commit(changes)

    monkeypatch.setattr(store, "commit", landed)
    await node.change(lambda _: opened())
    assert shut_out == ["commit", "commit", "get", "get"]
    assert (await stage.node()).ledger_list == node.ledger_list


async def test_a_change_by_another_is_a_loss_for_good(stage: Stage) -> None:
    mine, other = await stage.node(), await stage.node()
    await other.change(lambda _: opened())
    with pytest.raises(LedgerListLost) as raised:
        await mine.change(lambda _: opened(3))
    assert raised.value.code is ErrorCode.NO_OWNER
    assert raised.value.ledger_list == other.ledger_list
    with pytest.raises(LedgerListLost):
        await mine.check_unchanged()


async def test_who_has_lost_the_list_sends_no_other_change(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the change that waited while another one met the new owner, nor a later one."""
    store = await stage.store()
    mine, other = await stage.node(store), await stage.node()
    await other.change(lambda _: opened())
    commit, sent = store.commit, list[str]()

    async def noted(changes: Sequence[Change]) -> list[Version]:
        sent.extend(change.path for change in changes)
        return await commit(changes)

    monkeypatch.setattr(store, "commit", noted)
    changes = [mine.change(lambda _: opened(3)), mine.change(lambda _: opened(4))]
    errors = await asyncio.gather(*changes, return_exceptions=True)
    assert [type(error) for error in errors] == [LedgerListLost] * 2
    with pytest.raises(LedgerListLost):
        await mine.change(lambda _: opened(5))
    assert sent == [mine.path]


async def test_a_lost_reply_and_a_change_by_another_are_told_apart(stage: Stage) -> None:
    """The write landed, the reply was lost, another took over before the retry: still a loss."""
    store = await stage.store()
    mine, other = await stage.node(store), await stage.node()
    store.lose_replies(1)
    committing = asyncio.create_task(mine.change(lambda _: opened()))
    await asyncio.sleep(0.05)
    await other.load()
    assert [s.ledger_id for s in other.ledger_list.segments] == [1]
    await other.change(
        lambda ledger_list: ledger_list.taken_over(
            {1: sealed(0)}, ledger_id=2, created_us=0, owner="b"
        )
    )
    with pytest.raises(LedgerListLost):
        await committing


async def test_a_change_waits_out_a_store_that_is_away(stage: Stage) -> None:
    store = await stage.store()
    node = await stage.node(store)
    store.disconnect()
    committing = asyncio.create_task(node.change(lambda _: opened()))
    await asyncio.sleep(0.05)
    assert not committing.done()
    store.reconnect()
    await committing
    assert (await stage.node()).ledger_list == node.ledger_list


async def test_a_deleted_ledger_list_cannot_be_changed(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    node, deleter = await stage.node(), await stage.node()
    await deleter.change(LedgerList.as_deleted)
    with pytest.raises(LedgerListLost) as raised:
        await node.change(lambda _: opened())
    assert raised.value.code is ErrorCode.TOPIC_NOT_FOUND
    with pytest.raises(FencelogError) as refused:
        await stage.open()
    assert refused.value.code is ErrorCode.TOPIC_NOT_FOUND
    assert ledgers.writers == {}


async def test_changes_of_one_ledger_list_take_turns(stage: Stage) -> None:
    node = await stage.node()
    await node.change(lambda _: opened(3))
    async with asyncio.TaskGroup() as group:
        group.create_task(node.change(lambda ledger_list: ledger_list.with_state(8)))
        group.create_task(node.change(lambda ledger_list: ledger_list.with_start(2)))
        group.create_task(node.change(lambda ledger_list: ledger_list.trimmed([1])))
    fresh = await stage.node()
    assert (fresh.ledger_list.state_ledger, fresh.ledger_list.start_offset) == (8, 3)
    assert fresh.ledger_list == node.ledger_list


async def test_a_change_whose_caller_has_gone_is_finished_before_the_next(stage: Stage) -> None:
    store = await stage.store()
    node = await stage.node(store)
    store.disconnect()
    first = asyncio.create_task(node.change(lambda _: opened()))
    await asyncio.sleep(0.01)
    first.cancel()
    second = asyncio.create_task(node.change(lambda ledger_list: ledger_list.with_state(8)))
    await asyncio.sleep(0.01)
    store.reconnect()
    await second
    assert [s.ledger_id for s in node.ledger_list.segments] == [1]
    assert (await stage.node()).ledger_list == node.ledger_list


async def test_a_loss_is_told_once_and_ends_every_later_change(stage: Stage) -> None:
    mine, other = await stage.node(), await stage.node()
    told: list[LedgerListLost] = []
    mine.call_when_lost(told.append)
    await other.change(lambda _: opened())
    for _ in range(2):
        with pytest.raises(LedgerListLost):
            await mine.change(lambda _: opened(3))
    with pytest.raises(LedgerListLost):
        await mine.check_unchanged()
    assert len(told) == 1


async def test_nothing_is_changed_by_whoever_has_let_go(stage: Stage) -> None:
    """Retention or compaction may still be at work when the log is closed: not as its owner."""
    store = await stage.store()
    node = await stage.node(store)
    await node.change(lambda _: opened())
    store.disconnect()
    change = asyncio.create_task(node.change(lambda ledger_list: ledger_list.with_state(8)))
    await asyncio.sleep(0.01)
    await node.close()
    with pytest.raises(FencelogError) as raised:
        await change
    assert raised.value.code is ErrorCode.METADATA_UNKNOWN
    store.reconnect()
    with pytest.raises(FencelogError) as raised:
        await node.change(lambda ledger_list: ledger_list.with_state(9))
    assert raised.value.code is ErrorCode.NO_OWNER
    assert (await stage.node()).ledger_list.state_ledger is None
