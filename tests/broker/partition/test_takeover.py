"""Opening a log: what is fenced, when serving begins, and that only one of many owners wins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from fencelog.broker.append.conditions import AppendConditions
from fencelog.broker.ledger_list import store as store_of_lists
from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.broker.ledger_list.open_ledger import LedgerFactory
from fencelog.broker.ledger_list.store import LedgerChanged, LedgerListLost
from fencelog.ledgers.client import NewLedger, Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_SEQUENCE, SequenceRange, producer_digest
from fencelog.ledgers.metastore.port import MetadataStore, Set, Version
from fencelog.ledgers.record_batch import Message, check_batch, encode_values
from fencelog.ledgers.recovery.recovery import FoundEnd
from tests.support.broker_stage import ReadAll, Stage
from tests.support.metadata_nodes import overwrite, plain
from tests.support.scripted_ledgers import ScriptedLedgers, ScriptedReader, ScriptedWriter


async def test_nothing_is_served_before_the_list_is_written(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    store = await stage.store()
    node = await stage.node(store)
    ledgers.before_create = store.disconnect
    opening = asyncio.create_task(stage.open(node=node))
    await asyncio.sleep(0.05)
    assert not opening.done()
    assert ledgers.writers == {}
    store.reconnect()
    log = await opening
    assert (await log.append_message(Message(b"x"))).offset == 0


async def test_the_last_two_ledgers_are_recovered_before_one_is_created(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    first = await stage.open(max_entries=1)
    for number in range(3):
        await first.append_message(Message(b"%d" % number))
        await asyncio.sleep(0.02)
    before = len(ledgers.log)
    await stage.open()
    steps = ledgers.log[before:]
    created = next(step for step in steps if step.startswith("create"))
    assert steps[: steps.index(created)] == ["recover 3", "recover 4"]


async def test_the_ends_of_all_ledgers_are_looked_for_at_the_same_time(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await stage.open(max_entries=1)
    for number in range(3):
        await first.append_message(Message(b"%d" % number))
        await asyncio.sleep(0.02)
    await first.access.fence("one")
    asked: list[int] = []
    find_end = ledgers.find_end

    async def asking(ledger_id: int) -> FoundEnd:
        asked.append(ledger_id)
        return await find_end(ledger_id)

    monkeypatch.setattr(ledgers, "find_end", asking)
    ledgers.recover_gate.clear()
    opening = asyncio.create_task(stage.open())
    await asyncio.sleep(0.02)
    assert sorted(asked) == [3, 4, (await stage.node()).ledger_list.state_ledger]
    ledgers.recover_gate.set()
    second = await opening
    assert second.tail_offset == 3
    assert second.access.shown()["fencing_token"] == "one"


async def test_nothing_is_served_before_the_state_is_read(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await stage.open()
    await first.append_message(Message(b"x"))
    await first.access.fence("one")
    state, held, find_end = first._node.ledger_list.state_ledger, asyncio.Event(), ledgers.find_end

    async def late(ledger_id: int) -> FoundEnd:
        if ledger_id == state:
            await held.wait()
        return await find_end(ledger_id)

    monkeypatch.setattr(ledgers, "find_end", late)
    opening = asyncio.create_task(stage.open())
    await asyncio.sleep(0.05)
    assert not opening.done()
    held.set()
    assert (await opening).access.shown()["fencing_token"] == "one"


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_takeover_that_ends_early_looks_for_no_end_any_more(
    stage: Stage,
    ledgers: ScriptedLedgers,
    monkeypatch: pytest.MonkeyPatch,
    is_cancelled: bool,
) -> None:
    first = await stage.open()
    await first.access.fence("one")
    hung, ended = asyncio.Event(), asyncio.Event()

    async def half(ledger_id: int) -> FoundEnd:
        if ledger_id == 1 and not is_cancelled:
            await hung.wait()
            raise FencelogError(ErrorCode.RECOVERY_INCOMPLETE, "too few bookies")
        hung.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError("it was not cancelled")

    monkeypatch.setattr(ledgers, "find_end", half)
    opening = asyncio.create_task(stage.open())
    async with asyncio.timeout(10):
        await hung.wait()
        if is_cancelled:
            opening.cancel()
        outcome = (await asyncio.gather(opening, return_exceptions=True))[0]
    assert ended.is_set()
    if is_cancelled:
        assert isinstance(outcome, asyncio.CancelledError)
    else:
        assert isinstance(outcome, FencelogError)
        assert outcome.code is ErrorCode.RECOVERY_INCOMPLETE


async def test_offsets_go_on_after_a_takeover(stage: Stage, read_all: ReadAll) -> None:
    first = await stage.open()
    for number in range(5):
        await first.append_message(Message(b"%d" % number))
    second = await stage.open()
    assert second.tail_offset == 5
    assert (await second.append_message(Message(b"5"))).offset == 5
    assert second.epoch == first.epoch + 1
    assert await read_all(second) == [b"%d" % number for number in range(6)]


async def test_the_recovered_ledger_decides_what_is_in_the_log(
    stage: Stage, ledgers: ScriptedLedgers, read_all: ReadAll
) -> None:
    """Unacknowledged messages of a dead owner may appear or not; what recovery finds is the log."""
    ledgers.auto_ack = False
    first = await stage.open()
    futures = [first.append_message(Message(b"%d" % n)) for n in range(3)]
    await asyncio.sleep(0.01)
    assert len(ledgers.newest.payloads) == 1
    batch = encode_values([b"3"])
    futures.append(first.append_batch(batch, check_batch(batch)))
    await asyncio.sleep(0.01)
    assert len(ledgers.newest.payloads) == 2
    ledgers.stored[1] = 0
    ledgers.auto_ack = True
    second = await stage.open()
    assert second.tail_offset == 3
    assert await read_all(second) == [b"0", b"1", b"2"]
    ledgers.writers[1].ack(1)  # the zombie learns only now that it was fenced
    errors = await asyncio.gather(*futures, return_exceptions=True)
    assert {error.code for error in errors if isinstance(error, FencelogError)} == {
        ErrorCode.APPEND_UNKNOWN
    }
    assert not any(future.exception() is None for future in futures)


async def test_of_two_that_open_at_once_one_gets_the_log(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    nodes = [await stage.node(), await stage.node()]
    outcomes = await asyncio.gather(
        *(stage.open(node=node) for node in nodes), return_exceptions=True
    )
    lost = [outcome for outcome in outcomes if isinstance(outcome, LedgerListLost)]
    assert len(lost) == 1
    # The loser's ledger is on no list, and that is proved: it is gone.
    (winner,) = stage.logs
    ledger_list = (await stage.node()).ledger_list
    listed = {segment.ledger_id for segment in ledger_list.segments}
    assert ledgers.deleted == set(ledgers.writers) - listed
    assert (await winner.append_message(Message(b"x"))).offset == 0


async def test_a_listed_ledger_is_never_deleted_after_a_lost_reply(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    """Pravega#4721: the change had landed, the client's own retry met a conflict."""
    store = await stage.store()
    node = await stage.node(store)
    ledgers.before_create = lambda: store.lose_replies(1)
    log = await stage.open(node=node)
    assert ledgers.deleted == set()
    assert (await log.append_message(Message(b"x"))).offset == 0


@pytest.mark.parametrize(("listed", "deleted"), [(True, set()), (False, {1})])
async def test_a_refused_ledger_is_deleted_only_if_the_list_does_not_hold_it(
    stage: Stage, ledgers: ScriptedLedgers, listed: bool, deleted: set[int]
) -> None:
    """Its listing had landed, and somebody else changed the list before that was known."""
    factory = LedgerFactory(ledgers, Replication(), stage.host, "t1/0")
    ledger = await factory.create(1)
    found = LedgerList().taken_over({}, ledger_id=1 if listed else 2, created_us=0, owner="a")
    await factory.discard(ledger, LedgerListLost("/logs/t1/0", found))
    assert ledgers.deleted == deleted
    assert ledgers.newest.abandoned


async def test_empty_ledgers_are_dropped_on_durable_proof_only(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    for _ in range(4):
        log = await stage.open()
        assert log.retention.is_due() == (log.epoch > 1)
        await log.retention.tend()
    ledger_list = (await stage.node()).ledger_list
    assert [segment.ledger_id for segment in ledger_list.segments] == [4]
    assert ledger_list.epoch == 4
    assert ledgers.deleted == {1, 2, 3}
    # A ledger that cannot be found is not an empty one: the log does not open, nothing is dropped.
    ledgers.deleted.add(4)
    with pytest.raises(FencelogError) as raised:
        await stage.open()
    assert raised.value.code is ErrorCode.LEDGER_NOT_FOUND
    assert (await stage.node()).ledger_list == ledger_list


async def test_an_opening_that_cannot_recover_leaves_the_list_alone(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    first = await stage.open()
    await first.append_message(Message(b"x"))
    before = (await stage.node()).ledger_list
    ledgers.recover_errors = [FencelogError(ErrorCode.RECOVERY_INCOMPLETE, "b1 is away")]
    with pytest.raises(FencelogError) as raised:
        await stage.open()
    assert raised.value.code is ErrorCode.RECOVERY_INCOMPLETE
    assert (await stage.node()).ledger_list == before
    assert (await stage.open()).tail_offset == 1


async def test_publish_time_never_falls(stage: Stage, ledgers: ScriptedLedgers) -> None:
    first = await stage.open()
    stage.host.clock_us = 5_000_000
    assert (await first.append_message(Message(b"a"))).publish_time_us == 5_000_000
    stage.host.clock_us = 4_000_000
    assert (await first.append_message(Message(b"b"))).publish_time_us == 5_000_000
    second = await stage.open()
    assert (await second.append_message(Message(b"c"))).publish_time_us == 5_000_000
    third = await stage.open()
    fourth = await stage.open()
    del third
    assert (await fourth.append_message(Message(b"d"))).publish_time_us == 5_000_000


async def test_ledgers_are_tagged_with_log_and_epoch(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    await stage.open()
    await stage.open()
    assert [dict(w.metadata.properties) for w in ledgers.writers.values()] == [
        {"log": "t1/0", "epoch": "1"},
        {"log": "t1/0", "epoch": "2"},
    ]


@pytest.mark.parametrize("listed", [0, 7])
async def test_a_list_that_disagrees_with_its_ledger_is_not_served(
    stage: Stage, ledgers: ScriptedLedgers, listed: int
) -> None:
    first = await stage.open()
    await first.append_message(Message(b"x"))
    await first.close()
    node = await stage.node()
    wrong = node.ledger_list.segments[0].sealed
    assert wrong is not None
    segment = replace(node.ledger_list.segments[0], sealed=replace(wrong, messages=listed))
    await node.change(lambda ledger_list: replace(ledger_list, segments=(segment,)))
    with pytest.raises(FencelogError) as raised:
        await stage.open()
    assert raised.value.code is ErrorCode.CORRUPT


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_ledger_that_is_gone_means_that_somebody_was_faster(
    stage: Stage, ledgers: ScriptedLedgers, deleted: bool
) -> None:
    """The ledger was empty, so the winner dropped it, or the topic was deleted: after the list was
    read."""
    await stage.open()
    winner, slow = await stage.node(), await stage.node()
    if deleted:
        await winner.change(LedgerList.as_deleted)
        await ledgers.delete(1)
    else:
        await stage.open(node=winner)
    with pytest.raises(LedgerListLost) as raised:
        await stage.open(node=slow)
    assert raised.value.code is (ErrorCode.TOPIC_NOT_FOUND if deleted else ErrorCode.NO_OWNER)


async def test_a_listed_ledger_that_is_gone_is_reported_as_such(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    await stage.open()
    await ledgers.delete(1)
    with pytest.raises(FencelogError) as raised:
        await stage.open()
    assert raised.value.code is ErrorCode.LEDGER_NOT_FOUND


class OpenEnds(ScriptedLedgers):
    """Ledgers whose ends are found and left to be closed by a commit, as the real client does;
    ``node`` stands for the metadata of the recovered ledger."""

    node = "/ledgers/0/0001"

    def __init__(self, store: MetadataStore) -> None:
        super().__init__()
        self._store = store
        self.begun: list[Version | None] = []
        self.after_end: Callable[[], Awaitable[object]] = self._nothing

    async def find_end(self, ledger_id: int) -> FoundEnd:
        found = await super().find_end(ledger_id)
        change = Set(self.node, b"closed", (await self._store.get(self.node)).version)
        await self.after_end()
        return FoundEnd(found.metadata, change=change)

    async def begin(
        self,
        new: NewLedger,
        version: Version | None,
        *,
        on_ack: Callable[[int], None],
        on_failure: Callable[[FencelogError], None],
    ) -> ScriptedWriter:
        self.begun.append(version)
        return await super().begin(new, version, on_ack=on_ack, on_failure=on_failure)

    async def _nothing(self) -> None: ...


@pytest.fixture
async def ends(stage: Stage) -> OpenEnds:
    """A log that was written by an owner that is gone."""
    ledgers = stage.ledgers = OpenEnds(await stage.store())
    log = await stage.open()
    await log.append_message(Message(b"x"))
    return ledgers


async def test_ledgers_are_closed_and_created_with_the_list(stage: Stage, ends: OpenEnds) -> None:
    store = await stage.store()
    seen: list[bool] = []
    stage.cluster.subscribe(
        lambda path: seen.append(stage.cluster.get(ends.node).value == b"closed")
    )
    commits = stage.cluster.transactions
    log = await stage.open(store=store)
    assert stage.cluster.transactions == commits + 1
    assert all(seen)
    assert len(seen) == 3  # the list, and two ledgers
    created = await store.get("/ledgers/0/0002")
    assert ends.begun[-1] == created.version
    assert (await log.append_message(Message(b"y"))).offset == 1


async def test_ledgers_are_closed_before_the_list_where_one_commit_cannot_hold_both(
    stage: Stage, ends: OpenEnds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_of_lists, "MAX_COMMIT_BYTES", 100)
    store = await stage.store()
    commits = stage.cluster.transactions
    log = await stage.open(store=store)
    assert stage.cluster.transactions == commits + 2
    assert (await store.get(ends.node)).value == b"closed"
    assert ends.begun[-1] == (await store.get("/ledgers/0/0002")).version
    assert (await log.append_message(Message(b"y"))).offset == 1


async def test_a_ledger_that_was_changed_meanwhile_is_not_taken_for_closed(
    stage: Stage, ends: OpenEnds
) -> None:
    """By its writer, or another recoverer: then the end that was found proves nothing."""
    other = await stage.store()
    before = (await stage.node()).ledger_list
    ends.after_end = lambda: overwrite(other, ends.node, b"changed")
    with pytest.raises(LedgerChanged) as raised:
        await stage.open()
    assert raised.value.code is ErrorCode.NO_OWNER
    assert (await stage.node()).ledger_list == before
    assert plain(await other.get(ends.node)) == (b"changed", 1, 0)
    with pytest.raises(FencelogError) as missing:  # nothing is left behind
        await other.get("/ledgers/0/0002")
    assert missing.value.code is ErrorCode.METADATA_NOT_FOUND
    ends.after_end = ends._nothing
    assert (await stage.open()).tail_offset == 1


async def test_the_answer_to_the_commit_may_be_lost(stage: Stage, ends: OpenEnds) -> None:
    store = await stage.store()
    node = await stage.node(store)
    ends.before_create = lambda: store.lose_replies(1)
    log = await stage.open(node=node)
    assert ends.begun[-1] is None
    assert (await store.get(ends.node)).value == b"closed"
    assert (await log.append_message(Message(b"y"))).offset == 1


async def test_producers_are_read_from_a_ledger_that_is_not_closed_yet(
    stage: Stage, ends: OpenEnds, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log,) = stage.logs
    numbered = SequenceRange(0, RANGE_SEQUENCE, producer_digest(b"p"), 0, 0)
    await log.append_message(Message(b"y"), AppendConditions(numbered))

    async def not_closed(ledger_id: int) -> ScriptedReader:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"ledger {ledger_id} is open")

    monkeypatch.setattr(ends, "open", not_closed)
    log = await stage.open()
    again = await log.append_message(Message(b"y"), AppendConditions(numbered))
    assert (again.offset, again.duplicate) == (1, True)


async def test_of_two_commits_one_is_made(stage: Stage, ends: OpenEnds) -> None:
    nodes = [await stage.node(), await stage.node()]
    outcomes = await asyncio.gather(
        *(stage.open(node=node) for node in nodes), return_exceptions=True
    )
    lost = [outcome for outcome in outcomes if isinstance(outcome, FencelogError)]
    assert [type(error) for error in lost] == [LedgerListLost]
    assert (await stage.node()).ledger_list.epoch == 2
    assert len(ends.begun) == 2  # the first owner's, and the winner's
