"""The bookies from which a new ensemble, or a replacement, is chosen; ``core`` decides.

The choice is random by free disk space, over as many racks as possible. Bookies that failed
recently are in quarantine, which grows with every failure and ends by itself: for a new ensemble
they come last, so that a bookie which is registered but dead does not slow down every new ledger;
as replacements they are taken only as a last resort, or dead ones would replace each other without
end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.placement.core import (
    Quarantine,
    after_failure,
    choose_ensemble,
    choose_replacement,
    is_as_spread,
    spread_of,
)
from fencelog.ledgers.rpc.bookie_port import BookieDirectory, BookieInfo


class Placement:
    """The chooser of bookies. One per process, shared by all ledgers, so that failures are
    remembered. ``host``: the machine's chance and clock."""

    def __init__(self, bookies: BookieDirectory, *, host: Host) -> None:
        self._bookies = bookies
        self.host = host
        self._quarantine: dict[str, Quarantine] = {}

    def report_failure(self, bookie_id: str) -> None:
        """Record that a request to this bookie failed; many that fail together count as one
        failure."""
        now = asyncio.get_running_loop().time()
        previous = self._quarantine.get(bookie_id)
        renewed = after_failure(previous, now)
        if renewed is not previous:
            kept = self._quarantine.items()
            self._quarantine = {b: q for b, q in kept if not q.is_forgotten(now)}
            self._quarantine[bookie_id] = renewed

    def choose(self, count: int, *, exclude: Collection[str] = ()) -> tuple[str, ...]:
        """Return ``count`` different writable bookies, none of ``exclude``.

        Raises FencelogError as ``check``.
        """
        available = self._available(exclude)
        self.check(count, exclude=exclude)
        now = asyncio.get_running_loop().time()
        return choose_ensemble(
            [bookie for bookie in available if self._is_well(bookie, now)],
            [bookie for bookie in available if not self._is_well(bookie, now)],
            fractions=[self.host.fraction() for _ in range(count)],
            start=self.host.fraction(),
        )

    def check(self, count: int, *, exclude: Collection[str] = ()) -> None:
        """Check that there are ``count`` writable bookies, none of ``exclude``.

        Raises FencelogError: OUT_OF_SPACE if there would be, had their disks space for adds;
        NOT_ENOUGH_BOOKIES. Both say how many there are, and which take no adds.
        """
        available = self._available(exclude)
        if len(available) >= count:
            return
        read_only = [
            self._bookies.describe(bookie)
            for bookie in self._bookies.read_only()
            if bookie not in exclude
        ]
        full = [bookie for bookie in read_only if bookie.is_full]
        is_full = len(available) + len(full) >= count
        refusing = ", ".join(
            f"{bookie.bookie_id} ({'its disk is full' if bookie.is_full else 'read-only'})"
            for bookie in read_only
        )
        raise FencelogError(
            ErrorCode.OUT_OF_SPACE if is_full else ErrorCode.NOT_ENOUGH_BOOKIES,
            f"need {count} bookies that take adds, there are {len(available)}"
            + (f" besides {sorted(exclude)}" if exclude else "")
            + (f"; no adds are taken by {refusing}" if refusing else ""),
        )

    def replace(
        self,
        ensemble: tuple[str, ...],
        failed: Iterable[int],
        *,
        write_quorum: int,
        exclude: Collection[str] = (),
    ) -> tuple[str, ...]:
        """Return the ensemble with as many failed members as possible replaced, each at its index,
        by bookies that are not in ``exclude``.

        ``write_quorum``: that of the ledger, for each write set's racks. Raises
        FencelogError(NOT_ENOUGH_BOOKIES) if there is not one replacement.
        """
        members, indices = list(ensemble), list(failed)
        racks: list[str | None] = [self._bookies.describe(bookie).rack for bookie in ensemble]
        for index in indices:
            racks[index] = None
        available = self._available({*ensemble, *exclude})
        for index in indices:
            bookie = choose_replacement(
                racks,
                index,
                self._replacements(available),
                write_quorum=write_quorum,
                fraction=self.host.fraction(),
            )
            if bookie is None:
                break
            available.remove(bookie)
            members[index], racks[index] = bookie.bookie_id, bookie.rack
        if members == list(ensemble):
            others = (
                f"the {len(available)} others failed lately" if available else "no other is there"
            )
            raise FencelogError(
                ErrorCode.NOT_ENOUGH_BOOKIES,
                f"no replacement for {[ensemble[index] for index in indices]}: {others}",
            )
        return tuple(members)

    def spread(
        self,
        ensemble: tuple[str, ...],
        failed: Iterable[int],
        *,
        write_quorum: int,
        exclude: Collection[str] = (),
    ) -> tuple[str, ...] | None:
        """Return the ensemble as ``replace`` does, if its write sets then stand in more racks; None
        if they do not."""
        try:
            changed = self.replace(ensemble, failed, write_quorum=write_quorum, exclude=exclude)
        except FencelogError:
            return None
        before, after = (
            spread_of([self._bookies.describe(bookie).rack for bookie in bookies], write_quorum)
            for bookies in (ensemble, changed)
        )
        return changed if after > before else None

    def moved(
        self, ensemble: tuple[str, ...], index: int, target: str, *, write_quorum: int
    ) -> tuple[str, ...] | None:
        """Return the ensemble with ``target`` at ``index``; None where that bookie takes no adds,
        is a member already, failed lately, or would leave the write sets in fewer racks."""
        now = asyncio.get_running_loop().time()
        if target in ensemble or target not in self._bookies.available():
            return None
        changed = (*ensemble[:index], target, *ensemble[index + 1 :])
        before, after = (
            [self._bookies.describe(bookie).rack for bookie in bookies]
            for bookies in (ensemble, changed)
        )
        is_fit = self._is_well(self._bookies.describe(target), now)
        return changed if is_fit and is_as_spread(before, after, write_quorum) else None

    def _available(self, exclude: Collection[str]) -> list[BookieInfo]:
        ids = self._bookies.available()
        return [self._bookies.describe(bookie) for bookie in ids if bookie not in exclude]

    def _replacements(self, available: Collection[BookieInfo]) -> list[BookieInfo]:
        """Return the bookies that are not in quarantine; if there are none, those that may be a
        last resort."""
        now = asyncio.get_running_loop().time()
        return [bookie for bookie in available if self._is_well(bookie, now)] or [
            bookie for bookie in available if self._quarantine[bookie.bookie_id].barred_until <= now
        ]

    def _is_well(self, bookie: BookieInfo, now: float) -> bool:
        quarantine = self._quarantine.get(bookie.bookie_id)
        return quarantine is None or quarantine.until <= now
