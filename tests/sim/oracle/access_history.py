"""Access to append to one partition, as its clients were answered: the oracle of fencing tokens and
claims. What is confirmed is durable in that moment, and stays so (``oracle/durable_access.py``).

A change is a write to a register. An append is right if some value that the register may have had
between its beginning and its acknowledgement admits it. A value is over once a later change was
confirmed: one that began after it was answered, or that a later epoch made (an owner that was
followed cannot make any more).

Who was followed stays shut out as long as the partition remembers its claim: as long as fewer
others than it remembers may have claimed it since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf, nextafter

from fencelog.broker.append.conditions import AppendConditions
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_SEQUENCE, producer_digest
from tests.sim.oracle.durable_access import DurableAccess, remembered_claims


@dataclass(frozen=True, slots=True)
class Held:
    """``epoch`` None: the claim was not answered, so any may have been given."""

    producer: bytes
    epoch: int | None


Value = str | Held | None


@dataclass(slots=True, eq=False)
class Change:
    """``epoch`` is of the log's owner; ``tail`` where the log ended when it was confirmed."""

    value: Value
    epoch: int
    began_s: float
    ended_s: float = inf
    is_confirmed: bool = False
    tail: int = 0


class Register:
    """The token, or the holder. Nobody has either at first."""

    def __init__(self) -> None:
        self.changes = [Change(None, 0, -1.0, -1.0, is_confirmed=True)]

    def begin(self, value: Value, epoch: int, now_s: float) -> Change:
        change = Change(value, epoch, now_s)
        self.changes.append(change)
        return change

    def refused(self, change: Change) -> None:
        """Withdraw a change that has done nothing."""
        self.changes.remove(change)

    def unknown(self, change: Change, now_s: float) -> None:
        change.ended_s = now_s

    def confirmed(self, change: Change, now_s: float, *, tail: int) -> None:
        change.ended_s, change.is_confirmed, change.tail = now_s, True, tail

    def before(self, change: Change) -> Iterator[Change]:
        """Confirmed ones that are certainly older."""
        return (c for c in self.changes if c.is_confirmed and _follows(change, c))

    def admits(
        self, admits: Callable[[Value], bool], began_s: float, offset: int, now_s: float
    ) -> bool:
        """An append that began then was acknowledged now, at this offset. What was waiting when a
        change was made was judged by it: such an append began, in effect, after the change."""
        for change in self.changes:
            if change.is_confirmed and change.ended_s <= now_s and change.tail <= offset:
                began_s = max(began_s, nextafter(change.ended_s, inf))
        return any(
            admits(change.value)
            for change in self.changes
            if change.began_s <= now_s and not self._is_over(change, began_s)
        )

    def may_hold(self, admits: Callable[[Value], bool]) -> bool:
        """Tell whether it may have such a value now: no later one was confirmed."""
        return any(admits(one.value) and not self._is_over(one, inf) for one in self.changes)

    def may_have_been(
        self,
        condition: Callable[[Value], bool],
        began_s: float,
        now_s: float,
        *,
        besides: Change | None = None,
    ) -> bool:
        """Tell whether it may have had such a value at some time between these two, if this change
        was not made."""
        return any(
            condition(one.value)
            for one in self.changes
            if one is not besides and one.began_s <= now_s and not self._is_over(one, began_s)
        )

    def _is_over(self, change: Change, at_s: float) -> bool:
        return any(
            later.is_confirmed and later.ended_s < at_s and _follows(later, change)
            for later in self.changes
        )


@dataclass(slots=True)
class AccessHistory:
    token: Register = field(default_factory=Register)
    holder: Register = field(default_factory=Register)

    def claimed(self, change: Change, producer: bytes, epoch: int) -> str | None:
        """The claim is about to be confirmed with this epoch: what is wrong with that."""
        change.value = Held(producer, epoch)
        for previous in self.holder.before(change):
            held = previous.value
            if isinstance(held, Held) and held.epoch is not None and held.epoch >= epoch:
                return f"a claim gives epoch {epoch} after one that gave {held.epoch}"
        return None

    def check_durable(self, durable: DurableAccess) -> str | None:
        """Return what is wrong with the access in the state log: it has to be the one that was
        confirmed last, or one that is requested now, since the next owner goes by it."""
        if not self.token.may_hold(lambda token: token == durable.token):
            return f"the fencing token is durably {durable.token!r}, another one was confirmed"
        if not self.holder.may_hold(lambda held: _is_same(held, durable.holder)):
            return f"the partition is durably held by {durable.holder}, this is over"
        return None

    def appended(
        self, conditions: AppendConditions, offset: int, began_s: float, now_s: float
    ) -> str | None:
        """Return what is wrong with an acknowledged append that is no duplicate."""
        if not self.token.admits(
            lambda token: token == conditions.fencing_token, began_s, offset, now_s
        ):
            return f"written at {offset} with the token {conditions.fencing_token!r}, which is over"
        if not self.holder.admits(lambda held: _holds(held, conditions), began_s, offset, now_s):
            return f"written at {offset} by who does not hold the partition"
        if self._is_shut_out(conditions, began_s) and not self.has_forgotten(
            conditions, began_s, now_s
        ):
            return f"written at {offset} by {_named(conditions)}, which was shut out"
        return None

    def refused(
        self, conditions: AppendConditions, error: FencelogError, began_s: float, now_s: float
    ) -> str | None:
        """Return what is wrong with a definite refusal by token or claim: there was none meanwhile
        that does not admit the append."""
        token, sequences = conditions.fencing_token, conditions.sequences
        if error.code is ErrorCode.PRECONDITION_FAILED and "next_offset" not in error.extra:
            if not self.token.may_have_been(lambda value: value != token, began_s, now_s):
                return f"refused with the token {token!r}, which was the partition's"
        elif error.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_BUSY):

            def is_another(held: Value) -> bool:
                exact = isinstance(held, Held) and held.epoch is not None
                return not exact or not _holds(held, conditions)

            if sequences is not None and not self.holder.may_have_been(is_another, began_s, now_s):
                return f"refused with epoch {sequences.epoch}, which held the partition"
        return None

    def not_released(self, change: Change, held: Held, error: FencelogError) -> str | None:
        """Return what is wrong with a release that was refused just now: who holds the partition
        all the time is never forgotten."""
        if error.code is not ErrorCode.PRODUCER_FENCED or self.holder.may_have_been(
            lambda value: value != held, change.began_s, inf, besides=change
        ):
            return None
        return f"a release with epoch {held.epoch} is refused, which holds the partition"

    def has_forgotten(self, conditions: AppendConditions, began_s: float, now_s: float) -> bool:
        """Tell whether the append was shut out by a claim, and the partition need not have known it
        any more: so many others may have claimed it since."""
        if not self._is_shut_out(conditions, began_s) or conditions.sequences is None:
            return False
        producer, most = conditions.sequences.id, remembered_claims()
        claims = [
            (change, change.value.producer)
            for change in self.holder.changes
            if isinstance(change.value, Held) and change.began_s <= now_s
        ]
        return not any(
            len(
                {other for later, other in claims if other != producer and not _follows(own, later)}
            )
            < most
            for own, claimant in claims
            if claimant == producer and own.is_confirmed and own.ended_s < began_s
        )

    def _is_shut_out(self, conditions: AppendConditions, began_s: float) -> bool:
        """Tell whether a previous holder is shut out, because there was a later claim."""
        sequences = conditions.sequences
        if sequences is None or sequences.kind != RANGE_SEQUENCE:
            return False
        later = [
            change
            for change in self.holder.changes
            if isinstance(change.value, Held) and change.is_confirmed and change.ended_s < began_s
        ]
        previous = (held.value for change in later for held in self.holder.before(change))
        return any(
            isinstance(held, Held)
            and held.producer == sequences.id
            and sequences.epoch <= (held.epoch or 0)
            for held in previous
        )

    def newest_token(self) -> str | None:
        confirmed = [change for change in self.token.changes if change.is_confirmed]
        value = max(confirmed, key=lambda change: (change.epoch, change.ended_s)).value
        return value if isinstance(value, str) else None


def _follows(later: Change, previous: Change) -> bool:
    return later is not previous and (
        later.began_s > previous.ended_s or later.epoch > previous.epoch
    )


def _is_same(held: Value, durable: tuple[str, int] | None) -> bool:
    if durable is None or not isinstance(held, Held):
        return durable is None and held is None
    name, epoch = durable
    return held.producer == producer_digest(name.encode()) and held.epoch in (None, epoch)


def _named(conditions: AppendConditions) -> str:
    sequences = conditions.sequences
    return "nobody" if sequences is None else f"{sequences.id.hex()[:6]}'s epoch {sequences.epoch}"


def _holds(held: Value, conditions: AppendConditions) -> bool:
    if held is None:
        return True
    sequences = conditions.sequences
    return (
        isinstance(held, Held)
        and sequences is not None
        and sequences.kind == RANGE_SEQUENCE
        and sequences.id == held.producer
        and (held.epoch is None or held.epoch == sequences.epoch)
    )
