"""The verdicts of the limit oracles on histories made by hand: quotas that hold or refuse appends,
partitions that forget producers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fencelog.broker.append.conditions import AppendFuture, AppendResult
from fencelog.broker.ledger_list.ledger_list import Segment
from fencelog.broker.policy import BACKLOG_HOLD, BACKLOG_REFUSE
from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.ledgers.client import Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_SEQUENCE, SequenceRange, pack_entry
from tests.sim.engine.engine import Engine
from tests.sim.oracle.history import History, WrittenLedger
from tests.sim.oracle.limits.producer_limit import ProducerLimit
from tests.sim.oracle.limits.quota_watch import LATE_S, QuotaWatch
from tests.sim.oracle.log_history import LogHistory
from tests.sim.oracle.owner_view import View
from tests.sim.oracle.state_watch import DurableCursor
from tests.sim.oracle.subscription_history import SubscriptionHistory
from tests.sim.plan.topic_draw import draw_topic_plan
from tests.sim.plan.topic_limits import EVERY, FORGOTTEN_AT, QUOTAS_AT, RARE, RARE_AT
from tests.sim.plan.topic_plan import TopicPlan

# -- producers -------------------------------------------------------------------------------------


class Producers:
    """A partition that remembers one producer, or so many."""

    def __init__(self, most: int = 1) -> None:
        self.said: list[str] = []
        self.limit = ProducerLimit(most, lambda _, text: self.said.append(text))
        self._written: dict[int, SequenceRange] = {}

    def write(
        self, name: str, sequence: int, *, settled: int | None = None, epoch: int = 0
    ) -> None:
        """The next message, let in by an instance that knew so much of the log: all of it."""
        sequences, end = run_of(name, sequence, epoch), len(self._written)
        self.limit.tried(sequences, 1, end if settled is None else settled)
        self._written[end] = sequences

    def refuse(self, name: str, sequence: int, *, expected: int) -> None:
        tried = self.limit.tried(run_of(name, sequence), 1, len(self._written))
        assert tried is not None
        error = FencelogError(ErrorCode.SEQUENCE_MISMATCH, "no", expected_sequence=expected)
        tried.answered(error)

    def judged(self) -> str:
        self.limit.check(self._written)
        return " ".join(self.said)


def run_of(name: str, sequence: int, epoch: int = 0) -> SequenceRange:
    return SequenceRange(1, RANGE_SEQUENCE, name.encode().ljust(16), epoch, sequence)


def test_a_producer_goes_on_while_it_is_remembered() -> None:
    one = Producers(most=2)
    for sequence in range(3):
        one.write("a", sequence)
        one.write("b", sequence)
    one.write("a", 0, epoch=1)
    assert one.judged() == ""


def test_a_forgotten_producer_begins_again_or_is_refused() -> None:
    right, wrong, early = Producers(), Producers(), Producers(most=2)
    for one in (right, wrong, early):
        one.write("a", 0)
        one.write("b", 0)
    right.refuse("a", 1, expected=0)
    right.write("a", 0)
    right.write("a", 1)
    assert right.judged() == ""
    wrong.write("a", 1)
    assert "1 of epoch 0 is at 2, None is known" in wrong.judged()
    early.refuse("a", 1, expected=0)  # of two that are remembered
    assert "0 is expected and not 1" in early.judged()


def test_what_is_in_flight_is_not_forgotten() -> None:
    one = Producers()
    one.write("a", 0)
    one.write("b", 0, settled=0)
    one.write("a", 1, settled=0)
    assert one.judged() == ""


def test_an_older_epoch_does_not_go_on() -> None:
    one = Producers()
    one.write("a", 0, epoch=1)
    one.write("a", 0)
    assert "is at 1" in one.judged()


# -- quotas ----------------------------------------------------------------------------------------

ENTRIES = 4
HOLD_S = 0.4


class Admission:
    """Is told what a check has found."""

    is_over_quota = _closed = False

    def over_quota(self, is_over: bool) -> None:
        self.is_over_quota = is_over


class Conditional:
    """Refuses every append after a check of the owner."""

    def __init__(self) -> None:
        self.checked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def _check_owner(self) -> asyncio.Future[bool]:
        return self.checked

    def _decide(self, append: Any) -> bool:
        self._check_owner().add_done_callback(lambda _: append.future.set_exception(MISMATCH))
        return True


class Instance:
    """Has four messages of the same size in one ledger."""

    epoch, earliest_offset, tail_offset = 1, 0, ENTRIES

    def __init__(self) -> None:
        self._admission = Admission()
        self._pipeline = SimpleNamespace(conditional=Conditional())
        self.retention = SimpleNamespace(_over_quota=None)
        segments = (Segment(7, 0, 0),)
        self._node = SimpleNamespace(ledger_list=SimpleNamespace(segments=segments))


class Quotas:
    """``quota``: so many messages; ``acked_to``: of the only subscription."""

    def __init__(self, action: str, quota: float = 2, acked_to: int = 0) -> None:
        self.history = History()
        log = LogHistory(self.history, 0)
        payload = pack_entry(b"x" * 50, count=1, first_number=0, publish_time_us=1)
        ledger = WrittenLedger(7, Replication(3, 3, 2), [payload] * ENTRIES)
        self.history.ledgers[7] = ledger
        self.instance: Any = Instance()
        info = SubscriptionInfo("s", "5" * 24, SubscriptionConfig(), "earliest")
        subscription = SubscriptionHistory(log, info)
        subscription.views[self.instance] = View(1, acked_to)
        state: Any = log.state
        state.cursors = lambda: {info.subscription_id: DurableCursor(acked_to)}
        self._watch = QuotaWatch(log, action, int(quota * len(payload)), HOLD_S, [subscription])
        self._loop = asyncio.get_running_loop()
        self.append().set_result(RESULT)  # from now on the instance is observed

    def append(self) -> AppendFuture:
        future: AppendFuture = self._loop.create_future()
        return self._watch.append(self.instance, lambda: future)

    def append_out_of_sequence(self) -> AppendFuture:
        """Append what is refused as soon as the owner has been checked."""
        future: AppendFuture = self._loop.create_future()

        def append() -> AppendFuture:
            self.instance._pipeline.conditional._decide(SimpleNamespace(future=future))
            return future

        return self._watch.append(self.instance, append)

    def refuse(self) -> None:
        """An append is refused before it is waited for."""
        future: AppendFuture = self._loop.create_future()
        future.set_exception(EXCEEDED)
        self._watch.append(self.instance, lambda: future)

    def check(self, *, is_over: bool) -> None:
        """Report the result of the instance's check of its quota."""
        self.instance.retention._over_quota(is_over)

    async def said(self) -> str:
        await asyncio.sleep(0)
        return " ".join(self.history.violations)


RESULT = AppendResult(0, 0, 1, 0)
EXCEEDED = FencelogError(ErrorCode.BACKLOG_QUOTA_EXCEEDED, "no")
MISMATCH = FencelogError(ErrorCode.SEQUENCE_MISMATCH, "no")


@pytest.mark.parametrize(
    ("acked_to", "is_over", "says"),
    [
        (0, True, ""),
        (0, False, "are within the quota"),
        (2, False, ""),
        (2, True, "are over the quota"),
        (4, True, "0 bytes are over the quota"),
    ],
)
async def test_what_an_instance_finds_is_the_backlog(
    acked_to: int, is_over: bool, says: str
) -> None:
    one = Quotas(BACKLOG_REFUSE, acked_to=acked_to)
    one.check(is_over=is_over)
    said = await one.said()
    assert says in said
    assert bool(says) is bool(said)


async def test_a_quota_refuses_while_it_is_exceeded_and_not_otherwise() -> None:
    right, lax, strict = (Quotas(BACKLOG_REFUSE) for _ in range(3))
    for one in (right, lax):
        one.check(is_over=True)
    right.refuse()
    assert await right.said() == ""
    lax.append()
    assert "let in over the quota" in await lax.said()
    strict.refuse()
    assert "refused within the quota" in await strict.said()


def test_a_quota_holds_for_its_time_and_then_refuses() -> None:
    Engine(1).run(_hold_in_virtual_time(), budget_s=10)


async def _hold_in_virtual_time() -> None:
    right, hasty, written, late = (Quotas(BACKLOG_HOLD) for _ in range(4))
    for one in (right, hasty, written, late):
        one.check(is_over=True)
    futures = [one.append() for one in (right, hasty, written, late)]
    futures[1].set_exception(EXCEEDED)
    futures[2].set_result(RESULT)
    assert "refused after 0.0" in await hasty.said()
    assert "acknowledged while appends are held" in await written.said()
    await asyncio.sleep(HOLD_S)
    futures[0].set_exception(EXCEEDED)
    assert await right.said() == ""
    await asyncio.sleep(2 * LATE_S)
    late.check(is_over=False)
    assert "was held for" in await late.said()


@pytest.mark.parametrize("is_over", [True, False])
def test_a_check_of_the_owner_may_take_longer_than_a_quota_holds(is_over: bool) -> None:
    async def refused_late() -> None:
        one = Quotas(BACKLOG_HOLD)
        one.check(is_over=True)
        refused = one.append_out_of_sequence()
        await asyncio.sleep(HOLD_S + 2 * LATE_S)
        one.check(is_over=is_over)
        one.instance._pipeline.conditional.checked.set_result(True)
        with pytest.raises(FencelogError, match="no"):
            await refused
        said = await one.said()
        assert "was held for" not in said

    Engine(1).run(refused_late(), budget_s=10)


async def test_what_is_let_go_may_be_written() -> None:
    one = Quotas(BACKLOG_HOLD)
    one.check(is_over=True)
    future = one.append()
    one.instance._admission.over_quota(False)
    future.set_result(RESULT)
    assert await one.said() == ""


# -- plans -----------------------------------------------------------------------------------------


def test_plans_of_limits_have_what_they_are_for() -> None:
    plans = [draw_topic_plan(seed) for seed in range(1, 1_000)]
    by_place: dict[int, list[TopicPlan]] = {}
    for plan in plans:
        by_place.setdefault(plan.seed % EVERY, []).append(plan)
    actions = {plan.overrides["backlog_action"] for plan in by_place[QUOTAS_AT]}
    assert actions == {BACKLOG_HOLD, BACKLOG_REFUSE}
    assert all("max_producers" in plan.overrides for plan in by_place[FORGOTTEN_AT])
    for number, plan in enumerate(by_place[RARE_AT]):
        assert RARE[number % len(RARE)] in {fault.kind for fault in plan.faults}
