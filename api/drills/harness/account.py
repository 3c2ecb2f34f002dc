"""The account of every message of a drill: pure arithmetic over what clients saw and the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attempt:
    """Consecutive messages of one client that were sent together and not refused.

    ``offset``: the acknowledged offset; below 0: the answer did not say which; None: the outcome is
    unknown.
    """

    client: int
    first_sequence: int
    count: int
    offset: int | None


@dataclass(slots=True)
class Account:
    """The number of messages by outcome. ``foreign`` ones are in the log and were never sent, or
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
    """Return the bytes of one message: they name it, and are ``size`` long."""
    return (b"%d:%d:" % (client, sequence)).ljust(size, b".")


def message_name(value: bytes) -> tuple[int, int]:
    """Return the client and the sequence number of a message. Raises ValueError if it is not of
    this drill."""
    client, sequence, _ = value.split(b":", 2)
    return int(client), int(sequence)


def account(attempts: Iterable[Attempt], log: Sequence[bytes]) -> Account:
    """Compare attempts, each client's in the order in which it made them, with the whole log
    (values by offset, from 0 on).

    Lost: acknowledged and nowhere in the log. Duplicated: every occurrence after the first. Out of
    order: acknowledged and not at the offset that was acknowledged, or before a message that its
    client had been acknowledged earlier. A message of unknown outcome may come late: a request that
    a client has given up may still be in flight.
    """
    result = Account()
    places: dict[tuple[int, int], int] = {}
    for offset, value in enumerate(log):
        if places.setdefault(message_name(value), offset) != offset:
            result.duplicated += 1
    newest: dict[int, int] = {}
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
                continue
            before = newest.get(attempt.client, -1)
            elsewhere = attempt.offset >= 0 and place != attempt.offset + index
            result.out_of_order += elsewhere or place < before
            newest[attempt.client] = max(place, before)
    result.foreign = len(places) - expected
    return result
