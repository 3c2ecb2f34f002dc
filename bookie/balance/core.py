"""The moves that bring full and empty bookies closer to one another. Pure.

A bookie's *fill* is what metadata assigns to it of closed ledgers, as a share of its disk. By that
measure a move counts at once, whereas the disk of the bookie that gives shows it only after its
garbage collection: by the disk, too much would be moved, and back again.

Each move takes a fragment's copies from a bookie that is fuller than the mean to one that is
emptier, and leaves the giver as full as the taker, or fuller. So each one makes the sum of the
squares of what bookies have, weighted by their size, smaller: moves come to an end, and no state
comes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from fencelog.bookie.replication.core import closed_fragments
from fencelog.bookie.replication.store import FragmentMove
from fencelog.ledgers.format.run import ENTRY_HEADER
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.placement.core import is_as_spread
from fencelog.ledgers.rpc.bookie_port import BookieInfo


@dataclass(frozen=True, slots=True)
class FragmentShare:
    """A fragment of a closed ledger, and about how many bytes of it each of its bookies has."""

    first_entry_id: int
    bookies: tuple[str, ...]
    share_bytes: int


def shares(metadata: LedgerMetadata) -> Iterator[FragmentShare]:
    """Yield the fragments of a closed ledger that have entries. Of any other ledger nobody knows
    how long it is, and its writer goes on."""
    if not metadata.is_closed or metadata.last_entry_id < 0:
        return
    entries_of_all = metadata.last_entry_id + 1
    total = metadata.length + entries_of_all * ENTRY_HEADER.size
    for fragment in closed_fragments(metadata):
        entries = fragment.last - fragment.first + 1
        if entries > 0:
            copies = total * entries * metadata.write_quorum
            share = max(1, copies // (entries_of_all * metadata.ensemble_size))
            yield FragmentShare(fragment.first, fragment.bookies, share)


def stored_bytes(metadata: LedgerMetadata) -> Counter[str]:
    """Return about how many bytes of a closed ledger each bookie has by metadata."""
    stored = Counter[str]()
    for fragment in shares(metadata):
        for bookie in fragment.bookies:
            stored[bookie] += fragment.share_bytes
    return stored


class BalanceVerdict(Enum):
    """The state of the balance."""

    EVEN = "even"
    """No bookie is much fuller than another one."""
    UNEVEN = "uneven"
    """Copies are to be moved."""
    ABSENT = "absent"
    """A bookie that has copies is not registered: it restarts, or is lost. Nothing is moved."""


class Fills:
    """The registered ``bookies``, and the bytes that metadata assigns to each (``stored``). Each
    size by which bytes are weighted is that of the bookie's disk; or 1, where one of them does not
    state it. ``mean``: the fill that all would have; ``takers``: the bookies that take adds, the
    emptiest first; ``distance``: how much fuller the fullest bookie is than the first of them."""

    def __init__(self, bookies: Mapping[str, BookieInfo], stored: Mapping[str, int]) -> None:
        self.bookies = bookies
        self.stored = {**dict.fromkeys(bookies, 0), **stored}
        has_sizes = all(info.total_bytes > 0 for info in bookies.values())
        self._sizes = {b: info.total_bytes if has_sizes else 1 for b, info in bookies.items()}
        counted = [b for b, info in bookies.items() if self.stored[b] or not info.is_read_only]
        size = sum(self._sizes[bookie] for bookie in counted)
        self.mean = sum(self.stored[bookie] for bookie in counted) / size if size else 0.0
        self._compare()

    def fill(self, bookie_id: str) -> float:
        return self.stored[bookie_id] / self._sizes[bookie_id]

    def verdict(self, *, above_share: float) -> BalanceVerdict:
        """Compare fullest and emptiest; ``above_share``: of the mean."""
        if self.stored.keys() - self.bookies.keys():
            return BalanceVerdict.ABSENT
        is_uneven = self.distance > above_share * self.mean
        return BalanceVerdict.UNEVEN if is_uneven else BalanceVerdict.EVEN

    def stays_fuller(self, giver: str, taker: str, size: int) -> bool:
        """Tell whether a bookie that gives so many bytes is still as full as the one that takes
        them. By whole numbers: no rounding error makes the taker the fuller one."""
        given, taken = self.stored[giver] - size, self.stored[taker] + size
        return given * self._sizes[taker] >= taken * self._sizes[giver]

    def move(self, giver: str, taker: str, size: int) -> None:
        self.stored[giver] -= size
        self.stored[taker] += size
        self._compare()

    def _compare(self) -> None:
        writable = (b for b, info in self.bookies.items() if not info.is_read_only)
        self.takers = sorted(writable, key=lambda bookie: (self.fill(bookie), bookie))
        self.fullest = max(self.bookies, key=lambda b: (self.fill(b), b), default=None)
        self.distance = 0.0
        if self.fullest is not None and self.takers:
            self.distance = max(0.0, self.fill(self.fullest) - self.fill(self.takers[0]))


class MovePlanner:
    """The choice of moves, from one ledger after the other; ``fills`` changes with each. Ledgers
    are planned up to ``most``, and until their moves have ``most_bytes``; ``avoid``: moves (ledger,
    first entry, bookie) that are not to be planned."""

    def __init__(
        self,
        fills: Fills,
        *,
        most: int,
        most_bytes: int,
        end_share: float,
        avoid: Collection[tuple[int, int, str]] = (),
    ) -> None:
        self.fills = fills
        self._most = most
        self._most_bytes = most_bytes
        self._least_gap = end_share * fills.mean
        self._avoid = avoid
        self._given_to = Counter[str]()
        self.planned: dict[int, tuple[FragmentMove, ...]] = {}
        self.planned_bytes = 0

    @property
    def is_done(self) -> bool:
        """Tell whether no more moves are wanted."""
        is_full = len(self.planned) >= self._most or self.planned_bytes >= self._most_bytes
        return is_full or self.fills.distance <= self._least_gap

    def offer(self, metadata: LedgerMetadata) -> None:
        """Plan the moves of a ledger that bring bookies closer, one for each fragment."""
        moves = []
        for fragment in shares(metadata):
            if self.is_done or any(b not in self.fills.bookies for b in fragment.bookies):
                continue  # of a bookie that is not registered nobody knows the rack
            if (move := self._move_of(metadata, fragment)) is not None:
                moves.append(move)
                self.fills.move(move.bookie_id, move.target, fragment.share_bytes)
                self._given_to[move.target] += fragment.share_bytes
                self.planned_bytes += fragment.share_bytes
        if moves:
            self.planned[metadata.ledger_id] = tuple(moves)

    def _move_of(self, metadata: LedgerMetadata, fragment: FragmentShare) -> FragmentMove | None:
        """Return the move from the fullest member, to the emptiest taker, that is possible."""
        fills, first = self.fills, fragment.first_entry_id
        for giver in sorted(fragment.bookies, key=fills.fill, reverse=True):
            if fills.fill(giver) <= fills.mean:
                break
            if (metadata.ledger_id, first, giver) in self._avoid:
                continue
            for taker in self._takers(giver):
                if self._is_possible(metadata, fragment, giver, taker):
                    return FragmentMove(first, giver, taker)
        return None

    def _takers(self, giver: str) -> Iterator[str]:
        """Yield the bookies below the mean that are much emptier than the giver."""
        for taker in self.fills.takers:
            fill = self.fills.fill(taker)
            if fill >= self.fills.mean or self.fills.fill(giver) - fill <= self._least_gap:
                return
            yield taker

    def _is_possible(
        self, metadata: LedgerMetadata, fragment: FragmentShare, giver: str, taker: str
    ) -> bool:
        bookies, free = self.fills.bookies, self.fills.bookies[taker].free_bytes
        if taker in fragment.bookies:
            return False
        if free and free < self._given_to[taker] + fragment.share_bytes:
            return False
        if not self.fills.stays_fuller(giver, taker, fragment.share_bytes):
            return False
        before = [bookies[bookie].rack for bookie in fragment.bookies]
        after = [bookies[taker if b == giver else b].rack for b in fragment.bookies]
        return is_as_spread(before, after, metadata.write_quorum)
