"""The state log: what was recorded is there after a takeover, whatever failed on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Protocol

import pytest

from fencelog.broker.append.producer_table import ProducerTable
from fencelog.broker.ledger_list.open_ledger import LedgerFactory
from fencelog.broker.ledger_list.state_core import Event, PartitionState
from fencelog.broker.ledger_list.state_log import StateLog
from fencelog.broker.ledger_list.store import LedgerListStore
from fencelog.broker.log.core import LogCore
from fencelog.broker.partition.takeover import take_over
from fencelog.broker.policy import Policy
from fencelog.ledgers.client import Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import Entry
from tests.support.broker_stage import Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers, ScriptedReader


class Sums:
    """The simplest section: named numbers."""

    kinds = ("set",)

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def apply(self, event: Event) -> None:
        _, name, value = event
        self.values[name] = int(value)

    def snapshot(self) -> Iterable[Event]:
        return [["set", name, value] for name, value in self.values.items()]


class Instance:
    """One owner of the stage's partition, with its state."""

    def __init__(self, node: LedgerListStore, log: StateLog, sums: Sums) -> None:
        self.node, self.log, self.sums = node, log, sums

    def set(self, name: str, value: int) -> Awaitable[None]:
        self.log.admit()
        self.sums.values[name] = value
        return self.log.record(["set", name, value])


async def ended(change: Awaitable[None]) -> None:
    """Wait for a change that was recorded."""
    await change


class Own(Protocol):
    """Takes the partition over."""

    async def __call__(self, timeout_s: float = 5.0) -> Instance: ...


@pytest.fixture
def own(stage: Stage, ledgers: ScriptedLedgers) -> Own:
    """Take the partition over."""

    async def own(timeout_s: float = 5.0) -> Instance:
        node = await stage.node()
        factory = LedgerFactory(ledgers, Replication(), stage.host, "t1/0")
        sums = Sums()
        state = PartitionState([sums])
        core = LogCore(node.path, Policy())
        await take_over(core, node, factory, state, ProducerTable(), owner="a")
        log = StateLog(node, factory, state, timeout_s=timeout_s)
        return Instance(node, log, sums)

    return own


def refuse_changes(node: LedgerListStore, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store refuses the next changes of the list, for a reason that nobody has foreseen."""
    commit, left = node._set, [count]

    async def refused(*change: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise FencelogError(ErrorCode.BAD_REQUEST, "the list is too long")
        return await commit(*change)

    monkeypatch.setattr(node, "_set", refused)


async def test_a_log_without_events_has_no_ledger(own: Own, ledgers: ScriptedLedgers) -> None:
    first = await own()
    await first.log.close()
    assert first.node.ledger_list.state_ledger is None
    assert len(ledgers.writers) == 1


async def test_what_was_recorded_is_there_after_a_takeover(
    own: Own, ledgers: ScriptedLedgers
) -> None:
    first = await own()
    await first.set("a", 1)
    await first.set("b", 2)
    second = await own()
    assert second.sums.values == {"a": 1, "b": 2}
    state_ledger = second.node.ledger_list.state_ledger
    assert f"recover {state_ledger}" in ledgers.log
    await second.set("a", 3)  # goes on in a ledger of its own
    assert second.node.ledger_list.state_ledger != state_ledger
    assert state_ledger in ledgers.deleted
    assert (await own()).sums.values == {"a": 3, "b": 2}


async def test_a_state_ledger_is_read_to_its_end(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await own()
    for number in range(4):
        await first.set(f"n{number}", number)
    read = ScriptedReader.read

    async def one_entry(self: ScriptedReader, entry_id: int, last: int) -> list[Entry]:
        return (await read(self, entry_id, last))[:1]

    monkeypatch.setattr(ScriptedReader, "read", one_entry)
    assert (await own()).sums.values == {f"n{number}": number for number in range(4)}


async def test_events_that_wait_leave_together(own: Own, ledgers: ScriptedLedgers) -> None:
    first = await own()
    await first.set("a", 0)
    writer = ledgers.writer_of(first.node.ledger_list.state_ledger)
    before = len(writer.payloads)
    await asyncio.gather(*(first.set("a", n) for n in range(50)))
    assert len(writer.payloads) - before <= 3


async def test_a_former_owner_cannot_record_any_more(own: Own) -> None:
    first = await own()
    await first.set("a", 1)
    second = await own()
    with pytest.raises(FencelogError) as caught:
        await first.set("a", 2)
    assert caught.value.code is ErrorCode.STATE_UNKNOWN
    assert second.sums.values == {"a": 1}
    with pytest.raises(FencelogError) as refused:
        first.log.admit()
    assert refused.value.code is ErrorCode.NO_OWNER


async def test_a_failed_ledger_is_followed_by_one_that_knows_everything(
    own: Own, ledgers: ScriptedLedgers
) -> None:
    first = await own()
    await first.set("a", 1)
    writer = ledgers.writer_of(first.node.ledger_list.state_ledger)
    writer.auto_ack = False
    waiting = [first.set("a", 2), first.set("b", 3)]
    await asyncio.sleep(0)  # the scribe sends
    writer.fail(FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "gone"))
    await asyncio.gather(*waiting)
    assert first.node.ledger_list.state_ledger != writer.ledger_id
    assert (await own()).sums.values == {"a": 2, "b": 3}


async def test_a_state_that_cannot_be_written_is_unknown_in_time(
    own: Own, stage: Stage, ledgers: ScriptedLedgers
) -> None:
    first = await own(timeout_s=0.05)
    ledgers.create_errors += [FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "none")] * 2
    with pytest.raises(FencelogError) as caught:
        await first.set("a", 1)
    assert caught.value.code is ErrorCode.STATE_UNKNOWN
    await first.log.close()  # goes on trying meanwhile
    assert (await own()).sums.values == {"a": 1}


async def test_a_snapshot_that_fails_leaves_the_former_ledger_listed(
    own: Own, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.broker.ledger_list.state_log.STATE_LEDGER_BYTES", 1)
    monkeypatch.setattr("fencelog.broker.ledger_list.state_log.RETRY_S", 0.01)
    first = await own()
    await first.set("a", 1)
    listed = first.node.ledger_list.state_ledger
    for number in range(8):
        await first.set("a", number)
    assert first.node.ledger_list.state_ledger != listed  # it has grown
    ledgers.create_errors.append(FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "none"))
    for number in range(6, 12):
        await first.set("a", number)
    assert (await own()).sums.values == {"a": 11}


async def test_a_ledger_that_has_grown_is_used_until_there_is_another(
    own: Own, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No ledger is created while the metadata are away, and acknowledgements need not wait for
    one."""
    monkeypatch.setattr("fencelog.broker.ledger_list.state_log.STATE_LEDGER_BYTES", 1)
    first = await own(timeout_s=0.5)
    await first.set("a", 0)
    listed = first.node.ledger_list.state_ledger
    ledgers.create_gate.clear()
    for number in range(9):
        await first.set("a", number)
    assert first.node.ledger_list.state_ledger == listed
    ledgers.create_gate.set()
    await asyncio.sleep(0.01)
    await first.set("b", 1)
    assert first.node.ledger_list.state_ledger != listed
    assert (await own()).sums.values == {"a": 8, "b": 1}


async def test_a_list_that_cannot_be_changed_now_is_changed_later(
    own: Own, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the store says: a partition whose state log has stopped would serve on, and take no
    acknowledgement any more."""
    monkeypatch.setattr("fencelog.broker.ledger_list.state_log.RETRY_S", 0.01)
    first = await own()
    await first.set("a", 1)
    previous = ledgers.writer_of(first.node.ledger_list.state_ledger)
    refuse_changes(first.node, 2, monkeypatch)
    previous.fail(FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "gone"))
    await first.set("a", 2)
    first.log.admit()
    await first.set("b", 3)
    assert (await own()).sums.values == {"a": 2, "b": 3}


async def test_the_former_ledger_stays_until_the_list_names_the_next(
    own: Own, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner may die in between."""
    monkeypatch.setattr("fencelog.broker.ledger_list.state_log.RETRY_S", 0.01)
    first = await own()
    await first.set("a", 1)
    previous = first.node.ledger_list.state_ledger
    commit, there = first.node._set, list[bool]()

    async def noted(*change: Any) -> Any:
        there.append(previous not in ledgers.deleted)
        return await commit(*change)

    monkeypatch.setattr(first.node, "_set", noted)
    ledgers.writer_of(previous).fail(FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "gone"))
    await first.set("a", 2)
    assert first.node.ledger_list.state_ledger != previous
    assert there == [True]


async def test_what_is_recorded_while_a_ledger_is_created_is_in_it(
    own: Own, ledgers: ScriptedLedgers
) -> None:
    first = await own()
    ledgers.create_gate.clear()
    earlier = first.set("a", 1)
    await asyncio.sleep(0)  # the scribe has the ledger created
    later = first.set("b", 2)
    ledgers.create_gate.set()
    await asyncio.gather(earlier, later)
    assert (await own()).sums.values == {"a": 1, "b": 2}


async def test_what_is_recorded_while_a_snapshot_is_written_comes_after_it(
    own: Own, ledgers: ScriptedLedgers, until: Until
) -> None:
    first = await own()
    data, ledgers.auto_ack = ledgers.newest, False
    earlier = asyncio.create_task(ended(first.set("a", 1)))
    await until(lambda: ledgers.newest is not data and len(ledgers.newest.payloads) == 1)
    state = ledgers.newest
    later = asyncio.create_task(ended(first.set("b", 2)))
    await asyncio.sleep(0)
    state.ack(0)
    await earlier
    await until(lambda: len(state.payloads) == 2)
    assert not later.done()
    state.ack(1)
    await later
    assert (await own()).sums.values == {"a": 1, "b": 2}


async def test_of_two_ledgers_that_may_be_listed_none_is_written(
    own: Own, stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change took effect, its reply was lost, and then the store refused to say: what is
    written to the previous ledger would be forgotten by a takeover."""
    monkeypatch.setattr("fencelog.broker.ledger_list.state_log.STATE_LEDGER_BYTES", 1)
    monkeypatch.setattr("fencelog.broker.ledger_list.state_log.RETRY_S", 0.01)
    first = await own()
    await first.set("a", 0)
    listed = first.node.ledger_list.state_ledger
    commit, landing = first.node._set, ["once"]

    async def landed(*change: Any) -> Any:
        version = await commit(*change)
        if landing:
            landing.clear()
            raise FencelogError(ErrorCode.CORRUPT, "the node cannot be read back")
        return version

    monkeypatch.setattr(first.node, "_set", landed)
    said = [0]

    async def until_refused() -> None:
        for number in range(1, 12):
            await first.set("a", number)
            said.append(number)

    with pytest.raises(FencelogError) as caught:
        await until_refused()
    assert caught.value.code is ErrorCode.STATE_UNKNOWN
    second = await own()
    assert second.node.ledger_list.state_ledger != listed
    assert second.sums.values["a"] >= said[-1]


async def test_a_state_log_that_stops_takes_its_log_with_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: list[bool] = []
    log = await stage.open(on_lost=lambda: gone.append(True))

    def broken() -> bool:
        raise AssertionError("an invariant")

    monkeypatch.setattr(log._state_log, "_is_roll_due", broken)
    with pytest.raises(FencelogError) as caught:
        await log._state_log.record(["fencing_token", "one"])
    assert caught.value.code is ErrorCode.STATE_UNKNOWN
    assert gone == [True]
    assert not log.is_serving


async def test_abandoned_changes_are_of_unknown_outcome_at_once(
    own: Own, ledgers: ScriptedLedgers, until: Until
) -> None:
    first = await own(timeout_s=60)
    await first.set("a", 1)
    writer = ledgers.writer_of(first.node.ledger_list.state_ledger)
    writer.auto_ack = False
    sent = first.set("a", 2)
    await until(lambda: len(writer.payloads) == 2)
    await first.log.abandon(FencelogError(ErrorCode.NO_OWNER, "lost"))
    async with asyncio.timeout(5):
        with pytest.raises(FencelogError) as caught:
            await sent
    assert caught.value.code is ErrorCode.STATE_UNKNOWN


async def test_a_change_after_the_end_is_of_unknown_outcome_at_once(own: Own) -> None:
    """A task that had begun before the end changes the state after it: it waits for nobody."""
    first = await own(timeout_s=60)
    await first.set("a", 1)
    await first.log.close()
    with pytest.raises(FencelogError) as caught:
        async with asyncio.timeout(5):
            await first.log.record(["set", "a", 2])
    assert caught.value.code is ErrorCode.STATE_UNKNOWN
    first.log.note(["set", "a", 3])
    second = await own()
    assert second.sums.values == {"a": 1}
