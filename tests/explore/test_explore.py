"""Small worlds as part of the suite: searched, walked, and that both can be trusted."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.explore import local as world_local
from tests.explore.config import FAULTS, World
from tests.explore.model import Model, State, is_end
from tests.explore.mutants import BEYOND, CANDIDATES, JUDGED, judge
from tests.explore.run_explore import main
from tests.explore.search import Search
from tests.explore.values import fork, picture
from tests.explore.walks import Walker, play
from tests.explore.worlds import HUGE, LARGE, ONE_ENTRY, SMALL, WALKED
from tests.explore.writer import Writer
from tests.sim.mutants.mutation import applied

WALKS_CPU_S = 60.0

TINY = World("tiny", spares=0)
PAIR = World("pair", ensemble=2, write_quorum=2, spares=0, closes=True)
PAIR_CUT = replace(PAIR, name="pair, one cut", budget=1, faults={"cut": 1})


def say(lines: Sequence[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("world", SMALL, ids=lambda world: world.name)
def test_no_state_of_a_small_world_is_wrong(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Search(world).run()
    with capsys.disabled():
        say(["", str(found)])
    assert (found.violation, found.story) == ("", [])
    assert found.is_complete
    assert found.ends > 1


@pytest.mark.timeout(1500)
def test_no_walk_through_a_larger_world_goes_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    """The walks are as many as fit into that time of CPU."""
    played = play(WALKED, cpu_s=WALKS_CPU_S)
    with capsys.disabled():
        say(["", str(played)])
    assert played.violation is None
    assert set(played.befell) == set(FAULTS)


def test_a_walk_is_the_same_each_time() -> None:
    seeds = range(1, 40)
    first, second = Walker(WALKED), Walker(WALKED)
    assert [first.walk(n) for n in seeds] == [second.walk(n) for n in seeds]
    assert len({first.walk(n).steps for n in seeds}) > 10


# -- the reductions --------------------------------------------------------------------------------


def states_of(model: Model) -> list[State]:
    """All, told apart by the names of bookies as well."""
    known, queue = {model.initial}, deque([model.initial])
    while queue:
        state = queue.popleft()
        for step in [*model.steps(state), *model.fault_steps(state)]:
            new = [after for after in model.after(state, step) if after not in known]
            known.update(new)
            queue.extend(new)
    return list(known)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "world", [TINY, World("one spare", recoverers=0, budget=1, faults={"cut": 1})]
)
def test_what_symmetry_leaves_out_is_the_same_by_other_names(world: World) -> None:
    """Each state has a twin among those that were searched, and only twins are left out."""
    model = Model(world)
    states = states_of(model)
    keys = {model.key(state) for state in states}
    assert len(keys) == Search(world).run().states
    assert len(keys) < len(states) < 7 * len(keys)


def ends_of(world: World) -> set[object]:
    """Return what becomes of the ledger, of its writer and of what bookies hold, wherever it
    ends."""
    model = Model(world)
    ends = set[object]()
    for state in states_of(model):
        if is_end(model.steps(state)):
            node, writer = model.value(state, 0), model.value(state, 1)
            held = [model.value(state, at).ledgers for at in model.bookies]
            ends.add(repr((node, writer.core.lac, writer.core.finished, held)))
    return ends


@pytest.mark.timeout(300)
@pytest.mark.parametrize("world", [PAIR, PAIR_CUT], ids=lambda world: world.name)
def test_what_is_settled_at_once_ends_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reduced = ends_of(world)
    monkeypatch.setattr(world_local, "is_settled", lambda *_: False)
    monkeypatch.setattr(world_local, "still_matters", lambda *_: True)
    assert ends_of(world) == reduced
    assert len(reduced) > 3


def test_a_copy_of_a_party_is_one_world_of_objects() -> None:
    """A run that is pending and may be answered is one object, in the copy as well."""
    model = Model(ONE_ENTRY)
    (after,) = model.after(model.initial, ("move", 0, ("push",), ""))
    writer: Writer = model.value(after, 1)
    copy: Writer = fork(writer)
    assert copy.runs[0] is copy.core._pending[0] is not writer.runs[0]
    assert copy.metadata is writer.metadata
    same = ONE_ENTRY.renamings()[0]
    assert picture(copy, same) == picture(writer, same)
    copy.core._pending[0].acks.add(1)
    assert picture(copy, same) != picture(writer, same)
    by_other_names = [picture(copy, renaming) for renaming in ONE_ENTRY.renamings()]
    assert len(set(by_other_names)) == 3  # the one that has it may be any of three


# -- that it sees what is wrong --------------------------------------------------------------------


def test_every_wrong_core_is_judged_or_it_is_said_why_not() -> None:
    names = [mutant.name for mutant in CANDIDATES]
    assert set(BEYOND) <= set(names)
    assert len(JUDGED) + len(BEYOND) == len(names)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [
        "acknowledged-below-qa",
        "acks-of-replaced-bookies-kept",
        "fragment-at-lac",
        "lac-over-a-hole",
        "timeout-is-an-ack",
        "write-set-off-by-one",
        pytest.param("recovery-closes-on-doubt", marks=pytest.mark.thorough),
    ],
)
def test_a_wrong_core_shows(name: str) -> None:
    mutant = next(one for one in JUDGED if one.name == name)
    verdict = judge(mutant, walk_s=60, search_states=0)
    assert verdict.how
    assert verdict.story[0].startswith("  1. ")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    ["lost-reply-is-no", pytest.param("any-no-is-absence", marks=pytest.mark.thorough)],
)
def test_a_wrong_core_that_is_rarely_met_shows_in_a_small_world(name: str) -> None:
    mutant = next(one for one in JUDGED if one.name == name)
    verdict = judge(mutant, walk_s=0, search_states=20_000, worlds=SMALL)
    assert verdict.how


def test_the_shortest_story_is_told() -> None:
    """A timeout that counts as an ack: push, two connections given up, and nobody has it."""
    mutant = next(one for one in JUDGED if one.name == "timeout-is-an-ack")
    world = World("two cuts", recoverers=0, budget=2, faults={"cut": 2})
    with applied(mutant):
        found = Search(world).run()
    assert found.violation == "entry 0 counts, and of its write set nobody has it"
    assert [line.partition("  [")[0] for line in found.story[:3]] == [
        "  1. the writer: push",
        "  2. the writer gives up its connection to b1",
        "  3. the writer gives up its connection to b2",
    ]
    assert found.story[3:] == [
        "     metadata: open [0: b1 b2 b3]",
        "     b1: L1 unknown",
        "     b2: L1 unknown",
        "     b3: L1 unknown",
        "     b4: L1 unknown",
    ]


def test_names_of_worlds_are_theirs_alone() -> None:
    worlds = [*SMALL, *LARGE, *HUGE, *WALKED]
    assert len({world.name for world in worlds}) == len(worlds)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--world", "one entry"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("one entry")
    assert " complete: " in out
    assert out.endswith("1 passed, 0 failed\n")
    assert main(["--walk", "5"]) == 0
    assert capsys.readouterr().out.splitlines()[1:3][0] == "nothing is wrong"
