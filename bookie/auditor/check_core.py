"""The comparison of a closed ledger's metadata with the lists of its bookies (BP-34). Pure.

The time is linear in fragments and groups of the lists, never in entries. Of a striped ledger, the
entries of one remainder modulo E share a write set. Numbered 0, 1, 2, … among themselves, they are
a ledger without stripes: a group of a bookie's list, which repeats every E entries, is one range of
each remainder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import merge
from itertools import pairwise
from typing import Any

from fencelog.ledgers.format.availability import Availability, Range, SequenceGroup
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.quorum import write_set

MAX_NAMED_GROUPS = 64
"""The groups of entries that a violation names; more are counted. A dead disk is one group, and
scattered damage of more is not read by a person."""

MAX_NAMED_RANGES = 16
"""The ranges into which they are written out, in logs and answers."""

MAX_VIOLATIONS_OF_LEDGER = 1_000
"""The violations of one ledger that are described; more are counted. Each is a few hundred bytes,
and a ledger has up to 10,000 fragments."""


class Answer(Enum):
    """The conclusion from the answer of a bookie about an entry that its list lacks."""

    COMPLETE = "complete"
    """The bookie does not have the entry."""
    IN_LIMBO = "in_limbo"
    """The bookie may have lost the entry, or have it still: unknown."""
    UNAVAILABLE = "unavailable"
    """The bookie did not answer: unknown."""
    GONE = "gone"
    """The bookie has no cookie any more and is not registered: an operator has given up its
    copies."""

    @property
    def is_definite(self) -> bool:
        return self in (Answer.COMPLETE, Answer.GONE)


@dataclass(frozen=True, slots=True)
class ListedEntries:
    """The entries of a ledger that a bookie has, and what their absence means."""

    answer: Answer
    listed: Availability = field(default_factory=Availability)


class ViolationKind(Enum):
    """The categories in which violations are counted."""

    PLACEMENT = "placement"
    """A write set has fewer racks than it could."""
    BELOW_WRITE_QUORUM = "below_write_quorum"
    """Entries have fewer than Qw copies, but possibly Qa."""
    BELOW_ACK_QUORUM = "below_ack_quorum"
    """Entries have fewer than Qa copies, whatever the bookies that could not tell have."""
    NO_COPY = "no_copy"
    """Entries have no copy: their write set is lost as a whole."""
    UNDER_REPLICATED_TOO_LONG = "under_replicated_too_long"
    """The ledger has been marked for longer than is acceptable."""
    REGISTERED_BUT_UNREACHABLE = "registered_but_unreachable"
    """A bookie that is registered did not answer, time after time."""
    UNREADABLE_METADATA = "unreadable_metadata"
    """The metadata is no metadata of this ledger."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation, completely. ``groups`` are the first groups of entries, ``entries`` is the
    number of all. ``absent``: the bookies that lack them; ``unknown``: those that could not
    tell."""

    kind: ViolationKind
    ledger_id: int
    detail: str
    fragment: int | None = None
    groups: tuple[SequenceGroup, ...] = ()
    entries: int = 0
    absent: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the violation as JSON-compatible values, without members that do not apply."""
        entries = {
            "entries": [list(named) for named in named_ranges(self.groups)],
            "entry_count": self.entries,
        }
        return {
            "kind": self.kind.value,
            "ledger_id": self.ledger_id,
            "detail": self.detail,
            **({} if self.fragment is None else {"fragment": self.fragment}),
            **(entries if self.groups else {}),
            **({"absent": list(self.absent)} if self.absent else {}),
            **({"unknown": list(self.unknown)} if self.unknown else {}),
        }


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Entries of one fragment that not all members of their write set are known to have."""

    fragment: int
    entries: SequenceGroup
    present: tuple[str, ...]
    absent: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def count(self) -> int:
        return self.entries.sequences * self.entries.size


def shortfalls(
    metadata: LedgerMetadata, first: int, last: int, held: Mapping[str, ListedEntries]
) -> Iterator[Shortfall]:
    """Yield the shortfalls among the entries ``first`` … ``last``, up to the end of a closed
    ledger. ``held`` has an answer of every bookie of these fragments, complete for these
    entries."""
    last = min(last, metadata.last_entry_id)
    for number, fragment in enumerate(metadata.fragments):
        following = metadata.fragments[number + 1 : number + 2]
        low = max(first, fragment.first_entry_id)
        high = min([last, *(f.first_entry_id - 1 for f in following)])
        if low > high:
            continue
        if metadata.ensemble_size == metadata.write_quorum:
            stripes: Iterable[_Stripe] = [
                _Stripe(low, 1, high - low + 1, fragment.bookies, _ranges_of)
            ]
        else:
            stripes = _stripes(metadata, fragment.bookies, low, high)
        for stripe in stripes:
            yield from _compare(fragment.first_entry_id, stripe, held)


def verdict(shortfall: Shortfall, *, ack_quorum: int) -> ViolationKind | None:
    """Return the violation of the durability contract that a shortfall certainly is; None where
    the bookies that could not tell may have all copies that are missing."""
    if not shortfall.absent:
        return None
    possible = len(shortfall.present) + len(shortfall.unknown)
    if possible == 0:
        return ViolationKind.NO_COPY
    if possible < ack_quorum:
        return ViolationKind.BELOW_ACK_QUORUM
    return ViolationKind.BELOW_WRITE_QUORUM


class DurabilityFindings:
    """The shortfalls of one ledger, summed up as violations and unknown entries."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        self._metadata = metadata
        self._found: dict[_Key, _Sum] = {}
        self._further = Counter[ViolationKind]()
        self.unknown_entries = 0
        """The entries of which no member certainly lacks a copy, but some could not tell."""
        self.missing: dict[str, int] = {}
        """The bookies that certainly lack copies, and how many."""

    def add(self, found: Iterable[Shortfall]) -> None:
        for shortfall in found:
            kind = verdict(shortfall, ack_quorum=self._metadata.ack_quorum)
            if kind is None:
                self.unknown_entries += shortfall.count
                continue
            for bookie in shortfall.absent:
                self.missing[bookie] = self.missing.get(bookie, 0) + shortfall.count
            key = (shortfall.fragment, kind, shortfall.absent, shortfall.unknown)
            if key not in self._found and len(self._found) >= MAX_VIOLATIONS_OF_LEDGER:
                self._further[kind] += 1
                continue
            self._found.setdefault(key, _Sum()).add(shortfall)

    @property
    def counts(self) -> Counter[ViolationKind]:
        """Return the number of violations of each kind, described or not."""
        return Counter(kind for _, kind, _, _ in self._found) + self._further

    def violations(self) -> Iterator[Violation]:
        """Yield the violations, the first MAX_VIOLATIONS_OF_LEDGER of them."""
        for (fragment, kind, absent, unknown), total in self._found.items():
            yield Violation(
                kind,
                self._metadata.ledger_id,
                _describe(kind, total, absent, unknown),
                fragment,
                tuple(total.groups),
                total.entries,
                absent,
                unknown,
            )


def named_ranges(groups: Sequence[SequenceGroup]) -> list[Range]:
    """Return the first MAX_NAMED_RANGES ranges of the entries of groups, in ascending order,
    adjacent ones joined."""
    ranges: list[Range] = []
    for low, high in merge(*map(_sequences, groups)):
        if ranges and low == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], high)
        elif len(ranges) == MAX_NAMED_RANGES:
            break
        else:
            ranges.append((low, high))
    return ranges


def ranges_text(groups: Sequence[SequenceGroup], entries: int) -> str:
    """Return the ranges of groups for a person, ``entries`` being the number of all."""
    ranges = named_ranges(groups)
    named = ", ".join(str(low) if low == high else f"{low}..{high}" for low, high in ranges)
    more = ", …" if sum(high - low + 1 for low, high in ranges) < entries else ""
    return f"{'entry' if entries == 1 else 'entries'} {named}{more}"


_Key = tuple[int, ViolationKind, tuple[str, ...], tuple[str, ...]]


@dataclass(slots=True)
class _Sum:
    groups: list[SequenceGroup] = field(default_factory=list)
    entries: int = 0

    def add(self, shortfall: Shortfall) -> None:
        self.entries += shortfall.count
        if len(self.groups) < MAX_NAMED_GROUPS:
            self.groups.append(shortfall.entries)


def _describe(
    kind: ViolationKind, total: _Sum, absent: tuple[str, ...], unknown: tuple[str, ...]
) -> str:
    lacking = f"not on {', '.join(absent)}"
    if kind is ViolationKind.NO_COPY:
        lacking = f"lost with their whole write set, {', '.join(absent)}"
    told = f", not known of {', '.join(unknown)}" if unknown else ""
    return f"{ranges_text(total.groups, total.entries)}: {lacking}{told}"


_Positions = Callable[["_Stripe", Availability], Iterator[Range]]


@dataclass(frozen=True, slots=True)
class _Stripe:
    """The entries ``first``, ``first + step``, …, ``count`` of them, which have the same write set
    ``members``. ``positions`` lists which of them, counted from 0, are in a list."""

    first: int
    step: int
    count: int
    members: tuple[str, ...]
    positions: _Positions


def _stripes(
    metadata: LedgerMetadata, bookies: tuple[str, ...], low: int, high: int
) -> Iterator[_Stripe]:
    """Yield the entries of a striped fragment, one remainder modulo E after the other."""
    size = metadata.ensemble_size
    cache: dict[int, list[list[Range]]] = {}

    def positions(stripe: _Stripe, listed: Availability) -> Iterator[Range]:
        # The lists of a bookie are taken apart once for all remainders.
        parts = cache.get(id(listed))
        if parts is None:
            parts = cache[id(listed)] = _by_remainder(listed, size, low, high)
        return iter(parts[stripe.first - low])

    for first in range(low, min(low + size, high + 1)):
        members = write_set(first, ensemble_size=size, write_quorum=metadata.write_quorum)
        count = (high - first) // size + 1
        yield _Stripe(first, size, count, tuple(bookies[i] for i in members), positions)


def _ranges_of(stripe: _Stripe, listed: Availability) -> Iterator[Range]:
    for low, high in listed.ranges(stripe.first, stripe.first + stripe.count - 1):
        yield low - stripe.first, high - stripe.first


def _by_remainder(listed: Availability, size: int, low: int, high: int) -> list[list[Range]]:
    """Return the positions of the listed entries of ``low`` … ``high`` within each of the ``size``
    stripes, ascending."""
    parts: list[list[Range]] = [[] for _ in range(size)]
    for group in listed.groups:
        if group.first > high or group.last < low:
            continue
        if group.period == size:
            for offset in range(group.size):
                _put(parts, size, low, high, group.first + offset, group.start + offset)
            continue
        for begin, end in _clipped(group, low, high):
            for first in range(begin, min(begin + size, end + 1)):
                _put(parts, size, low, high, first, end - (end - first) % size)
    return parts


def _put(parts: list[list[Range]], size: int, low: int, high: int, first: int, last: int) -> None:
    """Add the entries ``first``, ``first + size``, …, ``last`` to their stripe, as far as they are
    in ``low`` … ``high``."""
    number = (first - low) % size
    begin = max(0, (first - low - number) // size)
    end = (min(last, high) - low - number) // size
    if begin > end:
        return
    part = parts[number]
    if part and begin <= part[-1][1] + 1:
        part[-1] = (part[-1][0], max(end, part[-1][1]))
    else:
        part.append((begin, end))


def _clipped(group: SequenceGroup, low: int, high: int) -> Iterator[Range]:
    """Yield the sequences of a group, as far as they are in ``low`` … ``high``; one that has no
    gaps as one range."""
    return Availability((group,)).ranges(low, high)


def _sequences(group: SequenceGroup) -> Iterator[Range]:
    for start in range(group.first, group.start + 1, group.period or group.size):
        yield start, start + group.size - 1


def _compare(
    fragment: int, stripe: _Stripe, held: Mapping[str, ListedEntries]
) -> Iterator[Shortfall]:
    """Yield the shortfalls of a stripe: its positions are cut where a list begins or ends."""
    everything = [(0, stripe.count - 1)]
    have: dict[str, list[Range]] = {}
    for bookie in stripe.members:
        listed = held[bookie].listed
        have[bookie] = list(stripe.positions(stripe, listed)) if listed.groups else []
    if all(ranges == everything for ranges in have.values()):
        return
    changes = {0: set[str](), stripe.count: set[str]()}
    for bookie, ranges in have.items():
        for low, high in ranges:
            changes.setdefault(low, set()).symmetric_difference_update({bookie})
            changes.setdefault(high + 1, set()).symmetric_difference_update({bookie})
    points = sorted(changes)
    present: set[str] = set()
    for begin, following in pairwise(points):
        present ^= changes[begin]
        lacking = [bookie for bookie in stripe.members if bookie not in present]
        if lacking:
            yield Shortfall(
                fragment,
                _group(stripe, begin, following - 1),
                tuple(bookie for bookie in stripe.members if bookie in present),
                tuple(b for b in lacking if held[b].answer.is_definite),
                tuple(b for b in lacking if not held[b].answer.is_definite),
            )


def _group(stripe: _Stripe, begin: int, end: int) -> SequenceGroup:
    """Return the positions ``begin`` … ``end`` of a stripe as a group of entries."""
    first, last = stripe.first + begin * stripe.step, stripe.first + end * stripe.step
    if stripe.step == 1:
        return SequenceGroup(first, first, last - first + 1, 0)
    return SequenceGroup(first, last, 1, 0 if begin == end else stripe.step)
