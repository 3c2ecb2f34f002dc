"""Which bookies a new ensemble, or a replacement, is taken from.

Random among the registered ones. For a new ensemble, bookies that failed lately come last, so that
a bookie which is registered but dead does not slow down every new ledger; as replacements they are
not taken at all, or dead ones would replace each other without end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from fencelog.ledgers.bookie_port import BookieDirectory
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host

SUSPECT_S = 30.0
"""How long a bookie that failed is passed over while others are to be had."""


class Placement:
    """Chooses bookies. One per process, shared by all ledgers, so that failures are remembered."""

    def __init__(self, bookies: BookieDirectory, *, host: Host) -> None:
        self._bookies = bookies
        self._host = host
        self._suspect_until: dict[str, float] = {}

    def report_failure(self, bookie_id: str) -> None:
        self._suspect_until[bookie_id] = asyncio.get_running_loop().time() + SUSPECT_S

    def report_success(self, bookie_id: str) -> None:
        self._suspect_until.pop(bookie_id, None)

    def choose(self, count: int, *, exclude: Collection[str] = ()) -> tuple[str, ...]:
        """``count`` different registered bookies, none of ``exclude``, in random order.

        Raises FencelogError(NOT_ENOUGH_BOOKIES), which says how many there are.
        """
        now = asyncio.get_running_loop().time()
        available = [b for b in self._bookies.available() if b not in exclude]
        if len(available) < count:
            raise FencelogError(
                ErrorCode.NOT_ENOUGH_BOOKIES,
                f"need {count} bookies, {len(available)} are registered"
                + (f" besides {sorted(exclude)}" if exclude else ""),
            )
        shuffled = self._host.shuffled(available)
        shuffled.sort(key=lambda bookie: self._is_suspect(bookie, now))
        return tuple(shuffled[:count])

    def replace(
        self, ensemble: tuple[str, ...], failed: Iterable[int], *, exclude: Collection[str] = ()
    ) -> tuple[str, ...]:
        """The ensemble with as many failed members replaced, at their index, as can be.

        Raises FencelogError(NOT_ENOUGH_BOOKIES) if not one replacement is to be had.
        """
        members = list(ensemble)
        now = asyncio.get_running_loop().time()
        suspects = {bookie for bookie in self._suspect_until if self._is_suspect(bookie, now)}
        for index in failed:
            try:
                (members[index],) = self.choose(
                    1, exclude={*ensemble, *members, *suspects, *exclude}
                )
            except FencelogError:
                if members == list(ensemble):
                    raise
                break
        return tuple(members)

    def _is_suspect(self, bookie_id: str, now: float) -> bool:
        return self._suspect_until.get(bookie_id, 0.0) > now
