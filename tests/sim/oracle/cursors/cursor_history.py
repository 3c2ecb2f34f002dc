"""The promises to one subscription in one partition, by any owner (invariants 18, 20): from where
on it has to see everything, and what it has seen and acknowledged.

Of each offset it is known whether an acknowledgement was confirmed, is possible (asked for, and not
refused for certain), or was refused: what was refused, or never asked for, has to come again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.sim.oracle.state_watch import DurableCursor


@dataclass(slots=True)
class CursorHistory:
    name: str
    begin: int | None = None
    """The offset from which on it has to see everything; None: nothing was promised."""
    opened_at: int | None = None
    """The offset at which a cursor was last seen, durable or not."""
    is_dropped: bool = False
    delivered: set[int] = field(default_factory=set)
    since: set[int] = field(default_factory=set)
    """What was delivered since this was emptied last."""
    asks: int = 0
    asked: dict[int, set[int]] = field(default_factory=dict)
    """Requests to acknowledge it that have not been refused, by offset."""
    confirmed: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Epoch and time at which an acknowledgement was confirmed, by offset."""
    ended: set[int] = field(default_factory=set)
    """What has become durably acknowledged without a request, lawfully."""
    lawful: Callable[[int], bool] = lambda offset: False
    """Tells whether a message may count as acknowledged though nobody has asked for it."""

    def protect(self, offset: int) -> None:
        """Record that there is a cursor at this offset, or has to be. A promise is permanent."""
        if self.begin is None and not self.is_dropped:
            self.begin = offset

    def drop(self) -> None:
        """The subscription is deleted: nothing is promised any more."""
        self.is_dropped, self.begin = True, None

    def needed(self, end: int) -> int | None:
        """Return the first offset that is certainly not acknowledged, ``end`` at most; None: it is
        owed nothing."""
        if self.begin is None:
            return None
        offsets = range(self.begin, end)
        return next((o for o in offsets if not self.may_be_over(o)), max(self.begin, end))

    def may_be_over(self, offset: int) -> bool:
        """Tell whether it need not come again: an acknowledgement is confirmed or possible, or it
        is lawful without."""
        return bool(self.asked.get(offset)) or offset in self.ended or self.lawful(offset)

    def unasked(self, offsets: Iterable[int]) -> list[int]:
        """Return those of these acknowledged offsets that nobody may have acknowledged. A deleted
        subscription is owed nothing."""
        return [] if self.is_dropped else [o for o in offsets if not self.may_be_over(o)]

    def passed(self, acked_to: int) -> list[int]:
        """Return what a cursor that is opened there leaves out."""
        if self.begin is None:
            return []
        return [o for o in range(self.begin, acked_to) if not self.may_be_over(o)]

    def missed(self, end: int, before: DurableCursor | None, possible: Iterable[int]) -> list[int]:
        """Return what has not been delivered since ``since`` was emptied, below ``end``, though it
        was not acknowledged ``before``, nor is one of the ``possible``."""
        if self.begin is None:
            return []
        over = self.since.union(possible, self.ended)
        return [
            offset
            for offset in range(self.begin, end)
            if offset not in over
            and (before is None or offset not in before)
            and not self.lawful(offset)
        ]

    def acknowledging(self, offsets: Iterable[int]) -> int:
        """An acknowledgement begins. Return its number, for ``refused``."""
        self.asks += 1
        for offset in offsets:
            self.asked.setdefault(offset, set()).add(self.asks)
        return self.asks

    def refused(self, offsets: Iterable[int], number: int) -> None:
        """Record that a request had no effect on these."""
        for offset in offsets:
            self.asked[offset].discard(number)

    @property
    def possible(self) -> set[int]:
        """The offsets whose acknowledgement is confirmed or possible."""
        return {offset for offset, numbers in self.asked.items() if numbers}

    def handed_out(self, offsets: Iterable[int], epoch: int, began_s: float) -> list[int]:
        """Note a delivery by an owner of this epoch, to a request that began then. Return the
        offsets that had been acknowledged to this owner or a previous one. A deleted subscription
        may begin again where the owner reads a registry that lags."""
        offsets = list(offsets)
        self.delivered.update(offsets)
        self.since.update(offsets)
        if self.is_dropped:
            return []
        never = (epoch + 1, 0.0)
        known = {offset: self.confirmed.get(offset, never) for offset in offsets}
        return [o for o, (by, when_s) in known.items() if by <= epoch and when_s < began_s]

    def acknowledged_at(self, offsets: Iterable[int], epoch: int, now_s: float) -> None:
        """Record that it was confirmed."""
        for offset in offsets:
            self.confirmed.setdefault(offset, (epoch, now_s))

    def not_durable(self, offsets: Iterable[int], durable: DurableCursor | None) -> list[int]:
        """Return which of these confirmed offsets the next owner would not know of."""
        if self.is_dropped:
            return []
        return [offset for offset in offsets if durable is None or offset not in durable]
