"""What became of every message of a drill: pure arithmetic over what clients saw and the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Attempt:
    """Consecutive messages of one client that were sent together and not refused.

    ``offset``: where they were acknowledged; None: the outcome is unknown.
    """

    client: int
    first_sequence: int
    count: int
    offset: int | None


@dataclass(slots=True)
class Account:
    """Messages by what became of them. ``foreign`` ones stand in the log and were never sent, or
    were refused with the promise that nothing was written."""

    acknowledged: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    foreign: int = 0
    unknown: int = 0
    unknown_present: int = 0

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.out_of_order or self.foreign)


def message_value(client: int, sequence: int, *, size: int) -> bytes:
    """The bytes of one message: they name it, and are ``size`` long."""
    return (b"%d:%d:" % (client, sequence)).ljust(size, b".")


def message_name(value: bytes) -> tuple[int, int]:
    """Client and sequence number of a message. ValueError if it is none of ours."""
    client, sequence, _ = value.split(b":", 2)
    return int(client), int(sequence)


def account(attempts: Iterable[Attempt], log: Sequence[bytes]) -> Account:
    """Compare attempts with the whole log (values by offset, from 0 on).

    Lost: acknowledged and nowhere in the log. Duplicated: every occurrence after the first. Out of
    order: acknowledged and not at the offset that was acknowledged, or, within one client's
    messages, after one that was sent later.
    """
    result = Account()
    names = [message_name(value) for value in log]
    places: dict[tuple[int, int], int] = {}
    newest: dict[int, int] = {}
    for offset, (client, sequence) in enumerate(names):
        if (client, sequence) in places:
            result.duplicated += 1
            continue
        places[client, sequence] = offset
        result.out_of_order += sequence < newest.get(client, -1)
        newest[client] = max(sequence, newest.get(client, -1))
    expected = 0
    for attempt in attempts:
        for index in range(attempt.count):
            place = places.get((attempt.client, attempt.first_sequence + index))
            expected += place is not None
            if attempt.offset is None:
                result.unknown += 1
                result.unknown_present += place is not None
                continue
            result.acknowledged += 1
            if place is None:
                result.lost += 1
            elif place != attempt.offset + index:
                result.out_of_order += 1
    result.foreign = len(places) - expected
    return result


@dataclass(frozen=True, slots=True)
class DrillReport:
    """A drill's outcome. ``failover_ms``: from the kill to the first acknowledged append that was
    sent after it; None: there was none."""

    drill: str
    account: Account
    failover_ms: float | None
    notes: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return self.account.is_clean and self.failover_ms is not None

    def as_json(self) -> dict[str, object]:
        """The shape that every drill prints."""
        return {
            "drill": self.drill,
            "acknowledged": self.account.acknowledged,
            "lost": self.account.lost,
            "duplicated": self.account.duplicated,
            "out_of_order": self.account.out_of_order,
            "failover_ms": self.failover_ms,
            "notes": self.notes,
        }
