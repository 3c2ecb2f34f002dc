"""The small worlds: who is there, what may be done, and what may go wrong how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import permutations

from tests.explore.values import Renaming

FAULTS = ("cut", "refuse", "kill", "lose", "damage", "lost reply", "away")
"""A connection is given up; a bookie fails a request; it dies, and comes back; it comes back
without its data; a copy is damaged; the answer to a change of metadata is lost; metadata cannot be
reached."""


@dataclass(frozen=True, slots=True)
class World:
    """A configuration. ``faults`` says how often each kind may happen, ``budget`` how many faults
    together. Payloads are one byte, so the length of a ledger is its number of entries."""

    name: str
    entries: int = 1
    ensemble: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2
    spares: int = 1
    recoverers: int = 1
    readers: int = 0
    """Rounds of the one reader: look, ask for the LAC, read."""
    deleter: bool = False
    closes: bool = False
    """The writer closes the ledger once all is acknowledged."""
    one_run: bool = False
    """All entries leave as one run."""
    delays_changes: bool = False
    tells_lac: bool = False
    budget: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)

    @property
    def bookies(self) -> tuple[str, ...]:
        return tuple(f"b{number}" for number in range(1, self.ensemble + self.spares + 1))

    @property
    def members(self) -> tuple[str, ...]:
        """The first ensemble."""
        return self.bookies[: self.ensemble]

    @property
    def is_striped(self) -> bool:
        return self.ensemble > self.write_quorum

    def renamings(self) -> tuple[Renaming, ...]:
        """All that leave the beginning as it is, the first one changes nothing. Where the ledger is
        striped, positions mean something: an entry's write set is computed from its id."""
        spares = self.bookies[self.ensemble :]
        orders = [tuple(range(self.ensemble))]
        if not self.is_striped:
            orders = list(permutations(range(self.ensemble)))
        made = []
        for order in orders:
            for others in permutations(spares):
                names = {self.members[i]: self.members[order[i]] for i in range(self.ensemble)}
                names |= dict(zip(spares, others, strict=True))
                made.append(Renaming(names, order))
        return tuple(made)
