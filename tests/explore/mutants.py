"""The wrong writers, recoveries and readers that small worlds have to show, or cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.explore.config import World
from tests.explore.search import Search
from tests.explore.walks import play
from tests.explore.worlds import LARGE, SMALL, WALKED
from tests.sim.mutants.ledgers import fencing as mutants_fencing
from tests.sim.mutants.ledgers import reader as mutants_reader
from tests.sim.mutants.ledgers import recovery as mutants_recovery
from tests.sim.mutants.ledgers import writer as mutants_writer
from tests.sim.mutants.mutation import Mutant, applied

SHELLS = "in a shell, which is played here and not run"
PLACED = "in placement, which is played here: any bookie may be taken"
BOOKIES = "needs the real bookie: here it is a model"
UNKNOWN = "a bookie that does not know the ledger is no negative: that takes more entries"

BEYOND = {
    "bookie-twice-in-an-ensemble": PLACED,
    "entries-carry-a-lac-too-high": SHELLS,
    "explicit-lac-too-high": SHELLS,
    "answers-without-a-fence": BOOKIES,
    "close-does-not-wait": SHELLS,
    "deleted-without-a-fence": SHELLS,
    "doubt-at-the-end-is-no": BOOKIES,
    "id-given-twice": "needs two ledgers",
    "lac-reads-do-not-fence": SHELLS,
    "limbo-is-no": "two faults show nothing: a fence tells what its bookie has",
    "recovery-commits-ensembles-early": SHELLS,
    "recovery-does-not-fence": UNKNOWN,
    "recovery-reads-do-not-fence": UNKNOWN,
    "unknown-ledger-not-fenced": BOOKIES,
    "writer-closes-over-closed": "a half of it is in a shell: here a fenced writer does not close",
}
"""The reason why each of the others cannot show here. The simulator shows them."""

CANDIDATES = (
    *mutants_writer.MUTANTS,
    *mutants_recovery.MUTANTS,
    *mutants_fencing.TOLD,
    *mutants_reader.READERS,
)
"""All wrong writers, recoveries and readers."""

JUDGED = tuple(mutant for mutant in CANDIDATES if mutant.name not in BEYOND)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one mutant. ``how`` is empty if nothing showed it."""

    mutant: Mutant
    how: str
    says: str
    story: list[str]

    def __str__(self) -> str:
        return f"{self.mutant.name:42} {self.how or 'SURVIVED':44} {self.says}"


def judge(
    mutant: Mutant,
    *,
    walk_s: float,
    search_states: int,
    worlds: Sequence[World] = (*SMALL, *LARGE),
) -> Verdict:
    """Walk for that CPU time, then search each world up to so many states, until it shows."""
    with applied(mutant):
        played = play(WALKED, cpu_s=walk_s)
        walk = played.violation
        if walk is not None:
            how = f"walk {walk.seed}, {played.cpu_s:.1f} s"
            return Verdict(mutant, how, walk.violation, walk.story)
        for world in worlds if search_states else ():
            found = Search(world).run(max_states=search_states)
            if found.violation:
                how = f"{world.name}, {found.states:,} states, {found.cpu_s:.1f} s"
                return Verdict(mutant, how, found.violation, found.story)
    return Verdict(mutant, "", f"not in {played.walks:,} walks", [])
