"""The choice of bookies for a ledger: weights, racks and quarantine, without clock or randomness.

Randomness comes in as fractions (0 <= each < 1), time as seconds of any clock that does not go
back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from statistics import median_low

from fencelog.ledgers.quorum import write_set
from fencelog.ledgers.rpc.bookie_port import BookieInfo

MAX_WEIGHT_RATIO = 3
"""The largest ratio of weights: a bookie is chosen at most so many times as often as the fullest
one. Otherwise an empty new bookie would receive every new ledger, and all reads of the newest data
with them."""

FIRST_QUARANTINE_S = 1.0
MAX_QUARANTINE_S = 60.0
"""The longest quarantine. A bookie is passed over for FIRST_QUARANTINE_S after its first failure,
and twice as long after each further one: a lost connection costs it little, and one that is dead
but registered is tried rarely."""

LAST_RESORT_S = 5.0
"""The time after its last failure at which a bookie in quarantine may be a replacement if there is
no other. After an outage of all bookies writers find them again in seconds, and dead bookies
replace each other no faster than that."""

FORGET_S = 60.0
"""The time without a failure, after its quarantine, after which a bookie's next quarantine is short
again. Longer than a request's timeout: only then is it known that the bookie does answer."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The consequence of a bookie's failures. ``until``: other bookies are preferred;
    ``barred_until``: not chosen even as a last resort."""

    failures: int
    until: float
    barred_until: float

    def is_forgotten(self, now: float) -> bool:
        return now >= self.until + FORGET_S


def after_failure(previous: Quarantine | None, now: float) -> Quarantine:
    """Return the quarantine after one more failure. Failures while the bookie is barred count as
    the same one: all requests in flight to it fail together."""
    if previous is None or previous.is_forgotten(now):
        failures = 1
    elif now < previous.barred_until:
        return previous
    else:
        failures = previous.failures + 1
    # The exponent is bounded, because a float is not: 2.0 ** 1024 raises.
    length = min(FIRST_QUARANTINE_S * 2.0 ** min(failures - 1, 10), MAX_QUARANTINE_S)
    return Quarantine(failures, now + length, now + min(length, LAST_RESORT_S))


def weights(bookies: Iterable[BookieInfo]) -> dict[str, int]:
    """Return the weight of each bookie by its free disk space, at most MAX_WEIGHT_RATIO times the
    least; a bookie that does not report its space has the median of those that do."""
    free = {bookie.bookie_id: max(bookie.free_bytes, 0) for bookie in bookies}
    known = [size for size in free.values() if size]
    usual, most = (median_low(known), MAX_WEIGHT_RATIO * min(known)) if known else (1, 1)
    return {bookie_id: min(size or usual, most) for bookie_id, size in free.items()}


def choose_ensemble(
    preferred: Collection[BookieInfo],
    others: Collection[BookieInfo],
    *,
    fractions: Sequence[float],
    start: float,
) -> tuple[str, ...]:
    """Return as many different bookies as there are fractions, in an order that spreads the racks.

    Bookies of ``others`` (in quarantine) are chosen only where ``preferred`` do not suffice. The
    bookies stand in as many racks as possible, and every write set of two or more in at least two,
    if any choice achieves that. ``start`` is the fraction that says where the order begins. The
    caller makes sure that there are enough bookies.
    """
    weight = weights([*preferred, *others])
    tiers = [list(preferred), list(others)]
    used = Counter[str]()
    chosen: list[BookieInfo] = []
    for fraction in fractions:
        tier = tiers[0] or tiers[1]
        fewest = min(used[bookie.rack] for bookie in tier)
        bookie = _draw([b for b in tier if used[b.rack] == fewest], weight, fraction)
        tier.remove(bookie)
        used[bookie.rack] += 1
        chosen.append(bookie)
    ring = _spread(chosen)
    first = int(start * len(ring))
    return tuple(bookie.bookie_id for bookie in ring[first:] + ring[:first])


def choose_replacement(
    racks: Sequence[str | None],
    index: int,
    candidates: Collection[BookieInfo],
    *,
    write_quorum: int,
    fraction: float,
) -> BookieInfo | None:
    """Return the bookie to stand at ``index``; None if there is no candidate.

    ``racks``: those of the ensemble's members; None for members that are to be replaced too. The
    bookie is drawn from the candidates that leave the write sets in as many racks as possible, the
    poorest write set first.
    """
    weight = weights(candidates)
    value = {
        rack: spread_of([*racks[:index], rack, *racks[index + 1 :]], write_quorum)
        for rack in {bookie.rack for bookie in candidates}
    }
    best = max(value.values(), default=None)
    suitable = [bookie for bookie in candidates if value[bookie.rack] == best]
    return _draw(suitable, weight, fraction) if suitable else None


def _draw(bookies: Sequence[BookieInfo], weight: Mapping[str, int], fraction: float) -> BookieInfo:
    """Draw one of the bookies by weight. Weights are integers: a sum of floats might not reach its
    own total."""
    sums = list(accumulate(weight[bookie.bookie_id] for bookie in bookies))
    mark = min(int(fraction * sums[-1]), sums[-1] - 1)
    return next(bookie for bookie, end in zip(bookies, sums, strict=True) if mark < end)


def spread_of(racks: Sequence[str | None], write_quorum: int) -> tuple[int, int]:
    """Return the number of racks in the poorest write set, and in all of them together."""
    counts = [
        len({racks[index] for index in indices} - {None})
        for indices in (
            write_set(first, ensemble_size=len(racks), write_quorum=write_quorum)
            for first in range(len(racks))
        )
    ]
    return min(counts), sum(counts)


def is_as_spread(before: Sequence[str], after: Sequence[str], write_quorum: int) -> bool:
    """Tell whether an ensemble in the racks ``after`` is spread no worse than one in the racks
    ``before``: neither the poorest write set, nor all of them together."""
    was, now = spread_of(before, write_quorum), spread_of(after, write_quorum)
    return now[0] >= was[0] and now[1] >= was[1]


def _spread(chosen: Sequence[BookieInfo]) -> list[BookieInfo]:
    """Return the bookies as a ring in which a rack is repeated as late as possible.

    Rack after rack, the smallest first, is put into the gaps of the ring so far: as evenly as
    possible where it has more bookies than there are gaps; otherwise first between neighbours of
    one rack. So wherever the largest rack leaves it possible, no write set lies within one rack.
    """
    by_rack: dict[str, list[BookieInfo]] = {}
    for bookie in chosen:
        by_rack.setdefault(bookie.rack, []).append(bookie)
    ring: list[BookieInfo] = []
    for members in sorted(by_rack.values(), key=len):
        sizes, rest = _gaps(ring, len(members)), iter(members)
        ring = [
            b for old, size in zip(ring, sizes, strict=True) for b in (old, *islice(rest, size))
        ]
        ring += rest
    return ring


def _gaps(ring: Sequence[BookieInfo], count: int) -> list[int]:
    """Return how many of ``count`` bookies go into the gap after each member of a ring."""
    size = len(ring)
    if count >= size:
        return [count * (i + 1) // size - count * i // size for i in range(size)]
    same = [i for i in range(size) if ring[i].rack == ring[(i + 1) % size].rack]
    free = [i for i in range(size) if i not in same]
    more = count - len(same)
    taken = {*same, *(free[i * len(free) // more] for i in range(more))}
    return [int(i in taken) for i in range(size)]
