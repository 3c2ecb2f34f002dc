"""The load of a broker: measured there, published for the others, compared by them.

Loads are added up in one unit, bytes read per second, so that any two can be compared: a written
byte costs as much as WRITE_COST read bytes, an idle partition as much as PARTITION_COST. Waiting
bytes are shown to operators but not used for decisions: they are a burst, not a load.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import exp

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import KIB, MIB

WRITE_COST = 3
"""The cost of a written byte, which is sent to three bookies."""

PARTITION_COST = 4 * KIB
"""The cost of an idle partition, which takes memory and time at the next takeover: 256 of them
weigh 1 MiB/s."""

MEAN_OVER_S = 15.0
"""The time over which rates are averaged: older traffic counts for little."""

NEGLIGIBLE_BYTES_PER_S = 1.0
"""A mean below it counts as 0: a partition that is idle is soon exactly that."""

MATERIAL_SHARE = 0.1
MATERIAL_SCORE = 256 * KIB
MATERIAL_PENDING_BYTES = 8 * MIB
"""The smallest change of waiting bytes that is worth a metadata write."""


def score_of(*, partitions: int, in_bytes_per_s: float, out_bytes_per_s: float) -> float:
    """Return the score of this load, in bytes read per second."""
    return in_bytes_per_s * WRITE_COST + out_bytes_per_s + partitions * PARTITION_COST


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The load of one broker: partitions open there, bytes a second written and read, and bytes of
    waiting appends."""

    partitions: int = 0
    in_bytes_per_s: int = 0
    out_bytes_per_s: int = 0
    pending_bytes: int = 0

    @property
    def score(self) -> float:
        return score_of(
            partitions=self.partitions,
            in_bytes_per_s=self.in_bytes_per_s,
            out_bytes_per_s=self.out_bytes_per_s,
        )

    def differs_from(self, published: BrokerLoad) -> bool:
        """Tell whether the change is worth publishing."""
        by = abs(self.score - published.score)
        waiting = abs(self.pending_bytes - published.pending_bytes)
        return (
            by >= max(MATERIAL_SCORE, MATERIAL_SHARE * published.score)
            or waiting >= MATERIAL_PENDING_BYTES
            or (self.partitions == 0) != (published.partitions == 0)
        )

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> BrokerLoad:
        """Decode a load. Raises FencelogError(CORRUPT)."""
        try:
            fields = json.loads(data)
            return cls(**{name: int(fields[name]) for name in cls.__dataclass_fields__})
        except (KeyError, TypeError, ValueError) as error:
            raise FencelogError(ErrorCode.CORRUPT, f"a load is not valid: {error}") from error


class Meter:
    """Decaying means of one partition's traffic, from counters that only grow."""

    __slots__ = ("_in_bytes", "_out_bytes", "in_bytes_per_s", "out_bytes_per_s")

    def __init__(self) -> None:
        self._in_bytes = 0
        self._out_bytes = 0
        self.in_bytes_per_s = 0.0
        self.out_bytes_per_s = 0.0

    @property
    def score(self) -> float:
        return score_of(
            partitions=1,
            in_bytes_per_s=self.in_bytes_per_s,
            out_bytes_per_s=self.out_bytes_per_s,
        )

    def sample(self, in_bytes: int, out_bytes: int, elapsed_s: float) -> None:
        """Record the counters now, ``elapsed_s`` after the last call."""
        keep = exp(-elapsed_s / MEAN_OVER_S)
        fresh = (1 - keep) / elapsed_s
        into = self.in_bytes_per_s * keep + (in_bytes - self._in_bytes) * fresh
        out = self.out_bytes_per_s * keep + (out_bytes - self._out_bytes) * fresh
        self.in_bytes_per_s = into if into >= NEGLIGIBLE_BYTES_PER_S else 0.0
        self.out_bytes_per_s = out if out >= NEGLIGIBLE_BYTES_PER_S else 0.0
        self._in_bytes, self._out_bytes = in_bytes, out_bytes

    def restart(self) -> None:
        """Restart from counters at 0 (the log was opened again)."""
        self._in_bytes = self._out_bytes = 0
        self.in_bytes_per_s = self.out_bytes_per_s = 0.0
