"""The verdicts of the oracle of calls on histories made by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fencelog.broker.registry.subscription_config import TYPES
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.sim.kinds import TOPIC_FAULTS
from tests.sim.oracle.call_history import Call, CallHistory, Leased
from tests.sim.oracle.history import History
from tests.sim.oracle.log_history import LogHistory
from tests.sim.plan.caller_plan import draw_call_plan, has_calls


class Calls:
    """Two partitions of an exclusive subscription."""

    def __init__(self) -> None:
        self.history = History()
        logs = [LogHistory(self.history, partition) for partition in range(2)]
        self.calls = CallHistory(logs, has_arbiter=True)

    def pull(
        self,
        consumer: str,
        partition: int,
        from_s: float,
        *,
        arbiter: Any = "k1",
        lease_s: float = 1,
    ) -> None:
        """Pull message 0 of the partition, or whichever comes then."""
        call = Call(f"a pull of {consumer}", consumer)
        if arbiter is not None:
            self.hold(call, arbiter, from_s, lease_s)
        self.lease(call, partition, from_s, lease_s)
        self.calls.told_messages(call, messages(call), from_s)

    def hold(
        self, call: Call, arbiter: Any, now_s: float, lease_s: float, *, renews: bool = False
    ) -> None:
        self.calls.held(call, arbiter, began_s=now_s, now_s=now_s, lease_s=lease_s, renews=renews)

    def lease(self, call: Call, partition: int, from_s: float, lease_s: float) -> None:
        lease = Leased(call.consumer, partition, 0, from_s, from_s + lease_s, None)
        self.calls.leased(call, {f"{call.name}/{partition}": lease})

    @property
    def said(self) -> str:
        return " ".join(self.history.violations)


def messages(call: Call) -> list[dict[str, Any]]:
    return [
        {"ack_id": ack_id, "partition": one.partition, "offset": one.offset, "text": "x"}
        for ack_id, one in call.leased.items()
    ]


def test_one_consumer_after_the_other_is_right() -> None:
    one = Calls()
    one.pull("c1", 0, 0.0)
    one.pull("c1", 1, 0.5)
    one.pull("c2", 1, 1.5)
    assert one.said == ""


def test_another_arbiter_may_have_another_consumer() -> None:
    one = Calls()
    one.pull("c1", 0, 0.0)
    one.pull("c2", 1, 0.5, arbiter="k2")
    assert one.said == ""


def test_two_at_a_time_are_seen_at_the_arbiter_and_by_their_leases() -> None:
    one, late, nobody = Calls(), Calls(), Calls()
    one.pull("c1", 0, 0.0)
    one.pull("c2", 1, 0.5)
    assert "c2 is the one consumer while ['c1'] are there" in one.said
    assert "c2 has 1/0 from 0.500000 to 1.500000, c1 0/0" in one.said
    call = Call("a slow pull", "c1")
    late.hold(call, "k1", 0.0, 1.0)
    late.lease(call, 0, 0.9, 1.0)
    late.calls.told_messages(call, messages(call), 0.95)
    late.pull("c2", 1, 1.1)
    assert "c2 has 1/0 from 1.100000 to 2.100000, c1 0/0" in late.said
    nobody.pull("c1", 0, 0.0, arbiter=None)
    assert "no arbiter has been asked" in nobody.said


def test_a_consumer_has_a_message_from_when_it_is_told() -> None:
    """Another consumer may have had the subscription, and lost it, since the lease began."""
    for told_s, is_right in ((0.9, False), (1.6, True)):
        one, slow = Calls(), Call("a slow pull", "c1")
        one.hold(slow, "k1", 0.0, 0.1)
        one.lease(slow, 0, 0.6, 2.0)
        one.pull("c2", 1, 0.5)
        one.hold(slow, "k1", 1.55, 1.0)
        one.calls.told_messages(slow, messages(slow), told_s)
        assert (one.said == "") is is_right


def test_an_extension_goes_on_unless_the_consumer_has_ended() -> None:
    for is_acked in (False, True):
        one = Calls()
        one.pull("c1", 0, 0.0)
        call = Call("an extension", "c1")
        one.hold(call, "k1", 0.9, 0.05, renews=True)
        one.calls.extended(call, ["a pull of c1/0"], 3.0)
        one.calls.told_extended(call)
        if is_acked:
            one.calls.ends(["a pull of c1/0"], 1.0)
        one.pull("c2", 1, 2.0)
        assert ("c2 has 1/0" in one.said) is not is_acked


def test_what_was_leased_is_told() -> None:
    hidden, lost, strange = Calls(), Calls(), Calls()
    for one in (hidden, lost):
        call = Call("a pull", "c1", lost=Counter({0: int(one is lost)}))
        one.hold(call, "k1", 0.0, 1.0)
        one.lease(call, 0, 0.0, 1.0)
        one.calls.told_messages(call, [], 0.0)
    assert "and is not told" in hidden.said
    assert lost.said == ""
    strange.calls.told_messages(
        Call("a pull", "c1"), [{"ack_id": "?", "partition": 0, "offset": 0, "text": "x"}], 0.0
    )
    assert "nobody gave it that" in strange.said


def test_a_part_is_taken_again_only_if_it_was_let_go() -> None:
    let_go, kept = Calls(), Calls()
    for one, code in ((let_go, ErrorCode.NO_OWNER), (kept, ErrorCode.STATE_UNKNOWN)):
        call = Call("an ack", "c1")
        one.calls.takes(call, 0)
        one.calls.failed(call, 0, FencelogError(code, "gone"))
        one.calls.takes(call, 0)
        one.calls.did(call, 0, ["stale"])
        one.calls.told_done(call, ["stale"], [0])
    assert let_go.said == ""
    assert "passed on again in 0" in kept.said


def test_an_answer_says_what_was_done() -> None:
    def told(*failed: tuple[int, str], code: ErrorCode = ErrorCode.STATE_UNKNOWN) -> str:
        one, call = Calls(), Call("an ack", "c1")
        one.calls.takes(call, 0)
        one.calls.did(call, 0, [])
        one.calls.takes(call, 1)
        parts = [{"partition": partition, "code": slug} for partition, slug in failed]
        extra = {"failed": parts} if parts else {}
        one.calls.told_error(call, FencelogError(code, "why", **extra))
        return one.said

    assert told() == told((1, "state_unknown")) == ""
    assert "is refused (no_owner)" in told(code=ErrorCode.NO_OWNER)
    assert "is refused in {1}" in told((1, "no_owner"))
    assert "is not said to have failed in {1}" in told((2, "no_owner"))
    one, call = Calls(), Call("an ack", "c1")
    one.calls.takes(call, 0)
    one.calls.did(call, 0, ["a"])
    one.calls.told_done(call, [], [0, 1])
    assert "nobody did it in {1}" in one.said
    assert "owners said ['a'], the client is told []" in one.said


def test_plans_of_calls_differ_and_play_every_type() -> None:
    plans = [draw_call_plan(seed) for seed in range(1, 3000) if has_calls(seed)]
    assert len({str(plan) for plan in plans}) == len(plans) == 200
    assert {plan.config.type for plan in plans} == set(TYPES)
    assert {fault.kind for plan in plans for fault in plan.faults} <= TOPIC_FAULTS.keys()
