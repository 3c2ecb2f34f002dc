"""The promises to one subscription in one partition, by any owner (invariants 18, 20): from where
on it has to see everything, and what it has seen and acknowledged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class CursorHistory:
    name: str
    begin: int | None = None
    """The offset from which on it has to see everything; None: nothing was promised."""
    opened_at: int | None = None
    """The offset at which a cursor was last seen, durable or not."""
    is_dropped: bool = False
    delivered: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    """Acknowledged offsets, attempts included; those that were refused are taken back."""

    confirmed: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Epoch and time at which an acknowledgement was confirmed, by offset."""

    def protect(self, offset: int) -> None:
        """Record that there is a cursor at this offset, or has to be. A promise is permanent."""
        if self.begin is None and not self.is_dropped:
            self.begin = offset

    def drop(self) -> None:
        """The subscription is deleted: nothing is promised any more."""
        self.is_dropped, self.begin = True, None

    @property
    def needed(self) -> int | None:
        """The first offset that nobody has tried to acknowledge."""
        offset = self.begin
        while offset is not None and offset in self.acknowledged:
            offset += 1
        return offset

    def missed(self, end: int) -> list[int]:
        """Return what it has never been given, below ``end``."""
        if self.begin is None:
            return []
        return [offset for offset in range(self.begin, end) if offset not in self.delivered]

    def acknowledging(self, offsets: Iterable[int]) -> set[int]:
        """An acknowledgement begins. What it adds, to be taken back if it is refused."""
        fresh = set(offsets) - self.acknowledged
        self.acknowledged |= fresh
        return fresh

    def refused(self, fresh: set[int]) -> None:
        self.acknowledged -= fresh

    def handed_out(self, offsets: Iterable[int], epoch: int, began_s: float) -> list[int]:
        """Note a delivery by an owner of this epoch, to a request that began then. Return the
        offsets that had been acknowledged to this owner or a previous one. A deleted subscription
        may begin again where the owner reads a registry that lags."""
        offsets = list(offsets)
        self.delivered.update(offsets)
        if self.is_dropped:
            return []
        never = (epoch + 1, 0.0)
        known = {offset: self.confirmed.get(offset, never) for offset in offsets}
        return [o for o, (by, when_s) in known.items() if by <= epoch and when_s < began_s]

    def acknowledged_at(self, offsets: Iterable[int], epoch: int, now_s: float) -> None:
        """Record that it was confirmed."""
        for offset in offsets:
            self.confirmed.setdefault(offset, (epoch, now_s))
