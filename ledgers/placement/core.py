"""Which bookies hold a ledger: weights, racks and quarantine, without clock or chance.

Chance comes in as fractions (0 <= each < 1), time as seconds of any clock that does not go back.
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
"""A bookie is chosen at most so many times as often as the fullest one: an empty new one would
otherwise take every new ledger, and all the reads of what is newest with them."""

FIRST_QUARANTINE_S = 1.0
MAX_QUARANTINE_S = 60.0
"""A bookie is passed over for so long after its first failure, and twice as long after each further
one: a lost connection costs it little, and one that is dead but registered is tried rarely."""

LAST_RESORT_S = 5.0
"""Where nothing else is to be had, a bookie in quarantine may be a replacement so long after it
failed last. After an outage that hit all bookies writers find them again in seconds; and those that
stay dead replace each other no faster than that."""

FORGET_S = 60.0
"""A bookie without a failure for so long after its quarantine begins again with a short one. Longer
than a request's timeout: only then is it known that the bookie does answer."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """What a bookie's failures come to. ``until``: others are preferred; ``barred_until``: not
    even as a last resort."""

    failures: int
    until: float
    barred_until: float

    def is_forgotten(self, now: float) -> bool:
        return now >= self.until + FORGET_S


def after_failure(former: Quarantine | None, now: float) -> Quarantine:
    """One more failure. Those that come while the bookie is barred are the same one: everything
    that had been sent to it fails together."""
    if former is None or former.is_forgotten(now):
        failures = 1
    elif now < former.barred_until:
        return former
    else:
        failures = former.failures + 1
    # The exponent is bounded, for a float is not: 2.0 ** 1024 raises.
    length = min(FIRST_QUARANTINE_S * 2.0 ** min(failures - 1, 10), MAX_QUARANTINE_S)
    return Quarantine(failures, now + length, now + min(length, LAST_RESORT_S))


def weights(bookies: Iterable[BookieInfo]) -> dict[str, int]:
    """Weight of each bookie by its free disk space, at most MAX_WEIGHT_RATIO times the least; one
    that does not say has the median of those that do."""
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
    """As many different bookies as there are fractions, in an order that spreads the racks.

    ``others`` (in quarantine) only where ``preferred`` do not suffice. The bookies stand in as many
    racks as can be, and every write set of two or more in two at least, if any choice does that.
    ``start`` is the fraction that says where the order begins. The caller makes sure that there
    are enough.
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
    """The bookie to stand at ``index``; None if there is no candidate.

    ``racks``: of the ensemble's members; None of those that are to be replaced too. Of all
    candidates those are drawn from that leave the write sets in as many racks as can be, the
    poorest write set first.
    """
    weight = weights(candidates)
    value = {
        rack: _spread_of([*racks[:index], rack, *racks[index + 1 :]], write_quorum)
        for rack in {bookie.rack for bookie in candidates}
    }
    best = max(value.values(), default=None)
    suitable = [bookie for bookie in candidates if value[bookie.rack] == best]
    return _draw(suitable, weight, fraction) if suitable else None


def _draw(bookies: Sequence[BookieInfo], weight: Mapping[str, int], fraction: float) -> BookieInfo:
    """One of them, by weight. Integers: a sum of floats might not reach its own total."""
    sums = list(accumulate(weight[bookie.bookie_id] for bookie in bookies))
    mark = min(int(fraction * sums[-1]), sums[-1] - 1)
    return next(bookie for bookie, end in zip(bookies, sums, strict=True) if mark < end)


def _spread_of(racks: Sequence[str | None], write_quorum: int) -> tuple[int, int]:
    """Racks in the poorest write set, and in all of them together."""
    counts = [
        len({racks[index] for index in indices} - {None})
        for indices in (
            write_set(first, ensemble_size=len(racks), write_quorum=write_quorum)
            for first in range(len(racks))
        )
    ]
    return min(counts), sum(counts)


def _spread(chosen: Sequence[BookieInfo]) -> list[BookieInfo]:
    """The bookies as a ring in which a rack comes again as late as can be.

    Rack after rack, the smallest first, is put into the gaps of the ring so far: as evenly as
    can be where it has more bookies than there are gaps; else first between neighbours of one rack.
    So wherever the largest rack leaves it possible, no write set lies within one rack.
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
    """How many of ``count`` bookies go into the gap behind each member of a ring."""
    size = len(ring)
    if count >= size:
        return [count * (i + 1) // size - count * i // size for i in range(size)]
    same = [i for i in range(size) if ring[i].rack == ring[(i + 1) % size].rack]
    free = [i for i in range(size) if i not in same]
    more = count - len(same)
    taken = {*same, *(free[i * len(free) // more] for i in range(more))}
    return [int(i in taken) for i in range(size)]
