"""The outcomes of requests to a subscription that any broker serves, over all of its partitions:
the oracle of calls (26), and of who is the one consumer of an exclusive subscription (18).

A request of a client is a *call*. Brokers ask each other for its parts, one for each partition. An
owner that has taken a part has done it, or may have, unless it has let it go for certain: then
another owner may take it, else nobody, and the answer must not say that nothing was done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from fencelog.api.subscriptions.dead_letters import REPLAY_FOR
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from tests.sim.oracle.log_history import AGAIN, LogHistory
from tests.sim.topics.calls.order_history import OrderHistory


@dataclass(slots=True, eq=False)
class Leased:
    """A message that a call has leased, for its consumer: certainly until ``until_s``. The consumer
    has it from ``from_s`` on: not before it was told, though its lease began at the owner.
    ``arbiter``: who had made that the one consumer before."""

    consumer: str
    partition: int
    offset: int
    from_s: float
    until_s: float
    arbiter: object | None


@dataclass(slots=True, eq=False)
class Call:
    """``name``: of the consumer, and a number."""

    name: str
    consumer: str
    taken: Counter[int] = field(default_factory=Counter)
    """Owners, by partition, that have taken the call and have not certainly dropped it."""
    done: dict[int, list[Any]] = field(default_factory=dict)
    """Results by partition: the ids that its owner has reported as stale, or the target of a
    seek."""
    leased: dict[str, Leased] = field(default_factory=dict)
    """Leases that owners have given, by ack id."""
    arbiter: object | None = None
    """The arbiter that has last admitted its consumer to the subscription."""
    lost: Counter[int] = field(default_factory=Counter)
    """Pulls, by partition, that another broker was asked for and has not answered."""


def may_be_leased(error: FencelogError) -> bool:
    """Tell whether a pull that ended so may have leased messages, for all its consumer knows."""
    return error.may_have_effect or error.code is ErrorCode.DRAINING


CALL: ContextVar[Call | None] = ContextVar("CALL", default=None)
"""The call that is being served, wherever that is."""


def is_replayed(message: Mapping[str, Any]) -> bool:
    """Tell whether a message, as clients are told it, is a dead letter that came back."""
    return REPLAY_FOR in message.get("headers", ())


class CallHistory:
    """The calls of one subscription of a topic. ``has_arbiter``: there is one consumer of all
    partitions."""

    def __init__(self, logs: list[LogHistory], *, has_arbiter: bool) -> None:
        self._logs = logs
        self._has_arbiter = has_arbiter
        self._there: dict[object, dict[str, float]] = {}
        """By instance of the arbiter: until when each consumer is there at least."""
        self._told: dict[str, Leased] = {}
        """By ack id: what consumers have got."""
        self.order: OrderHistory | None = None
        """What consumers see, where they give back what was lost."""

    def violate(self, invariant: int, text: str) -> None:
        self._logs[0].history.violate(invariant, text)

    def count(self, what: str) -> None:
        self._logs[0].counts[what] += 1

    # -- at owners -------------------------------------------------------------------------------

    def takes(self, call: Call, partition: int) -> None:
        """An owner begins."""
        if call.taken[partition]:
            self.violate(
                26, f"{call.name} is passed on again in {partition}, and may have been done there"
            )
        call.taken[partition] += 1

    def did(self, call: Call, partition: int, result: Iterable[Any]) -> None:
        call.done[partition] = list(result)

    def failed(self, call: Call, partition: int, error: FencelogError) -> None:
        if error.code.effects is Effects.NONE:
            call.taken[partition] -= 1

    def leased(self, call: Call, given: Mapping[str, Leased]) -> None:
        """An owner hands these out."""
        if given and self._has_arbiter and call.arbiter is None:
            self.violate(18, f"{call.name} gets messages, and no arbiter has been asked")
        call.leased.update(given)

    def extended(self, call: Call, ack_ids: Iterable[str], until_s: float) -> None:
        """An owner keeps these until then. Whether the consumer hears of it is not known yet."""
        for ack_id in ack_ids:
            previous = self._told.get(ack_id)
            if previous is not None:
                call.leased[ack_id] = Leased(
                    call.consumer,
                    previous.partition,
                    previous.offset,
                    previous.from_s,
                    until_s,
                    None,
                )

    def held(
        self,
        call: Call,
        arbiter: object,
        *,
        began_s: float,
        now_s: float,
        lease_s: float,
        renews: bool,
    ) -> None:
        """An arbiter has just said that the call's consumer is the only one."""
        there = self._there.setdefault(arbiter, {})
        if renews:
            if there.get(call.consumer, 0.0) <= now_s:
                return  # it may have been forgotten, and then it is nobody
        else:
            others = [name for name, until_s in there.items() if until_s > now_s]
            if set(others) - {call.consumer}:
                self.violate(18, f"{call.consumer} is the one consumer while {others} are there")
        there[call.consumer] = max(there.get(call.consumer, 0.0), began_s + lease_s)
        call.arbiter = arbiter

    # -- what clients are told -------------------------------------------------------------------

    def told_messages(
        self, call: Call, messages: Iterable[Mapping[str, Any]], now_s: float
    ) -> None:
        """All that was leased for it, and nothing else, as the answer arrived now."""
        self.count("calls answered")
        told = {message["ack_id"]: message for message in messages}
        for ack_id, message in told.items():
            partition, offset = message["partition"], message["offset"]
            lease = call.leased.get(ack_id)
            if lease is None or (lease.partition, lease.offset) != (partition, offset):
                self.violate(26, f"{call.name} is told {partition}/{offset}, nobody gave it that")
                continue
            lease.arbiter, lease.from_s = call.arbiter, max(lease.from_s, now_s)
            payload = message["text"].encode()
            if is_replayed(message):
                payload = AGAIN + payload
            self._logs[partition].seen(offset, (payload,), "told")
            self._tells(ack_id, lease)
        if self.order is not None:
            self.order.told(told)
            self.order.known(call.name)
        missing = self._not_lost(call) - told.keys()
        if missing:
            self.violate(26, f"{call.name} has leased {sorted(missing)}, and is not told")

    def _not_lost(self, call: Call) -> set[str]:
        """Return what was leased by owners whose answers came."""
        return {one for one, lease in call.leased.items() if not call.lost[lease.partition]}

    def told_done(self, call: Call, result: Iterable[Any], partitions: Iterable[int]) -> None:
        """Record that a call is done in all of these partitions."""
        self.count("calls answered")
        undone = set(partitions) - call.done.keys()
        if undone:
            self.violate(26, f"{call.name} is done, it says; nobody did it in {undone}")
        said = sorted(str(one) for part in call.done.values() for one in part)
        if said != sorted(map(str, result)):
            self.violate(26, f"{call.name}: owners said {said}, the client is told {result}")

    def told_extended(self, call: Call) -> None:
        """The leases that it was told of go on, as owners said."""
        for ack_id, lease in call.leased.items():
            lease.arbiter = call.arbiter or self._told[ack_id].arbiter
            self._tells(ack_id, lease)

    def told_error(self, call: Call, error: FencelogError) -> None:
        """Check that the answer names everything that was done."""
        self.count(f"call: {error.code.slug}")
        if self.order is not None and not may_be_leased(error):
            self.order.known(call.name)
        failed = {one["partition"]: one["code"] for one in error.extra.get("failed", ())}
        maybe = {
            partition
            for partition, code in failed.items()
            if ErrorCode[code.upper()].effects is Effects.MAYBE
        }
        if not failed and error.code.effects is Effects.MAYBE:
            return
        touched = {partition for partition, count in call.taken.items() if count} | (
            call.done.keys() - call.taken.keys()
        )
        if failed:
            self._check_parts(call, touched - maybe, failed)
        elif touched:
            self.violate(26, f"{call.name} is refused ({error.code.slug}), {touched} have taken it")
        elif self._not_lost(call):
            self.violate(26, f"{call.name} is refused ({error.code.slug}), and has leased messages")

    def _check_parts(self, call: Call, touched: set[int], failed: Mapping[int, str]) -> None:
        """Check an answer that reports partition by partition."""
        if wrong := touched & failed.keys():
            self.violate(26, f"{call.name} is refused in {wrong} ({failed}), they have taken it")
        if wrong := touched - failed.keys() - call.done.keys():
            self.violate(26, f"{call.name} is not said to have failed in {wrong}, nor done there")

    # -- two at once -----------------------------------------------------------------------------

    def _tells(self, ack_id: str, lease: Leased) -> None:
        """No two consumers have messages at a time, unless another arbiter has decided since."""
        self._told[ack_id] = lease
        if not self._has_arbiter:
            return
        for other in self._told.values():
            if (
                other.consumer != lease.consumer
                and other.arbiter is lease.arbiter
                and max(other.from_s, lease.from_s) < min(other.until_s, lease.until_s)
            ):
                self.violate(
                    18,
                    f"{lease.consumer} has {lease.partition}/{lease.offset} from {lease.from_s:.6f}"
                    f" to {lease.until_s:.6f}, {other.consumer} {other.partition}/{other.offset}"
                    f" from {other.from_s:.6f} to {other.until_s:.6f}",
                )
                return

    def ends(self, ack_ids: Iterable[str], now_s: float) -> None:
        """A consumer works on these no more."""
        for ack_id in ack_ids:
            lease = self._told.get(ack_id)
            if lease is not None:
                lease.until_s = min(lease.until_s, now_s)

    def sought(self, partition: int, now_s: float) -> None:
        """All leases of a partition may end."""
        self.ends([i for i, lease in self._told.items() if lease.partition == partition], now_s)
