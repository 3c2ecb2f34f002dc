"""The account of every message that a subscription delivered: pure arithmetic over what its
consumers saw, and the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class DeliveryAccount:
    """The number of the log's messages by what consumers got. ``missed``: never delivered.
    ``forgotten``: deliveries by a request that was made after the message's acknowledgement had
    been confirmed. ``different``: delivered with other bytes than the log has at that offset."""

    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0
    missed: int = 0
    forgotten: int = 0
    different: int = 0

    @property
    def is_clean(self) -> bool:
        return not (self.missed or self.forgotten or self.different)


@dataclass(slots=True)
class Deliveries:
    """The observations of one partition's consumers, in any order. Times of one clock, in
    seconds."""

    values: dict[int, bytes] = field(default_factory=dict)
    confirmed_at: dict[int, float] = field(default_factory=dict)
    """The time at which the acknowledgement of each offset was confirmed first."""
    redelivered: int = 0
    forgotten: int = 0
    different: int = 0

    def delivered(self, offset: int, value: bytes, *, asked_at: float) -> None:
        """Record that a request made at ``asked_at`` was answered with this message, among
        others."""
        self.redelivered += offset in self.values
        self.different += self.values.setdefault(offset, value) != value
        confirmed_at = self.confirmed_at.get(offset)
        self.forgotten += confirmed_at is not None and confirmed_at <= asked_at

    def acknowledged(self, offsets: Iterable[int], *, now: float) -> None:
        """Record that the service has confirmed these acknowledgements."""
        for offset in offsets:
            self.confirmed_at.setdefault(offset, now)

    def compare(self, log: Sequence[bytes]) -> DeliveryAccount:
        """Compare the deliveries with the whole log (values by offset, from 0 on)."""
        wrong = sum(
            offset >= len(log) or log[offset] != value for offset, value in self.values.items()
        )
        return DeliveryAccount(
            delivered=len(self.values),
            redelivered=self.redelivered,
            acknowledged=len(self.confirmed_at),
            missed=sum(offset not in self.values for offset in range(len(log))),
            forgotten=self.forgotten,
            different=self.different + wrong,
        )
