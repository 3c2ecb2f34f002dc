"""The recovery core against a naive model: random histories, failures and orders of answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import (
    build_run,
    merge_runs,
    read_run_header,
    slice_run,
    verify_entries,
)
from fencelog.ledgers.ledger_metadata.model import Fragment, LedgerMetadata, new_metadata
from fencelog.ledgers.quorum import coverage_threshold, write_set
from fencelog.ledgers.recovery.machine import (
    Close,
    ReadCopy,
    RecoveryCore,
    RecoveryEffect,
)
from fencelog.ledgers.recovery.rules import Copy
from fencelog.ledgers.writer.core import ChangeEnsemble, Send

DOWN = FencelogError(ErrorCode.REQUEST_TIMEOUT, "down")
ABSENT = FencelogError(ErrorCode.NO_SUCH_ENTRY, "not here")

ENTRIES = [
    build_run(1, n, [b"x" * (n % 3)], lac=n - 1, length_before=sum(i % 3 for i in range(n)))
    for n in range(16)
]


@dataclass
class World:
    """Bookies with what they hold, some of which answer no reads, or take no entries."""

    metadata: LedgerMetadata
    start_lac: int
    last_acknowledged: int
    random: Any
    silent: set[str]
    refusing: set[str]
    spare: list[str]
    held: dict[str, set[int]] = field(default_factory=dict)

    def members(self, metadata: LedgerMetadata, entry_id: int) -> list[str]:
        ensemble = metadata.fragment_of(entry_id).bookies
        indices = write_set(
            entry_id, ensemble_size=len(ensemble), write_quorum=metadata.write_quorum
        )
        return [ensemble[index] for index in indices]

    def read(self, ask: ReadCopy) -> Copy | FencelogError:
        if ask.bookie_id in self.silent:
            return DOWN
        held = self.held.get(ask.bookie_id, set())
        wanted = range(ask.entry_id, ask.entry_id + min(ask.max_entries, 4))
        count = next((i for i, n in enumerate(wanted) if n not in held), len(wanted))
        if not count:
            return ABSENT
        run = merge_runs(ENTRIES[ask.entry_id : ask.entry_id + count])
        return Copy(run, verify_entries(run))

    def write(self, send: Send) -> FencelogError | None:
        if send.bookie_id in self.refusing:
            return DOWN
        header = read_run_header(send.run.data)
        for n in range(header.first_entry_id, header.last_entry_id + 1):
            assert slice_run(send.run.data, n, n) == ENTRIES[n]  # byte for byte
        stored = self.held.setdefault(send.bookie_id, set())
        stored.update(range(header.first_entry_id, header.last_entry_id + 1))
        return None

    def replace(self, core: RecoveryCore, change: ChangeEnsemble) -> tuple[str, ...] | None:
        ensemble = list(core.writer.ensemble)
        for index in change.failed:
            if self.spare:
                ensemble[index] = self.spare.pop()
        return tuple(ensemble) if ensemble != list(core.writer.ensemble) else None

    def run(self) -> RecoveryCore:
        """Carry out effects in random order until nothing is left to do."""
        core = RecoveryCore(self.metadata, start_lac=self.start_lac)
        todo: list[RecoveryEffect] = core.start()
        while todo:
            effect = todo.pop(self.random.randrange(len(todo)))
            if isinstance(effect, ReadCopy):
                todo += core.read_answer(effect.entry_id, effect.bookie_id, self.read(effect))
            elif isinstance(effect, Send):
                error = self.write(effect)
                todo += core.write_reply(effect.run, effect.member, effect.bookie_id, error)
            elif isinstance(effect, ChangeEnsemble):
                todo += core.ensemble_chosen(effect, self.replace(core, effect))
        return core


@st.composite
def worlds(draw: st.DrawFn) -> World:
    size = draw(st.integers(1, 5))
    write = draw(st.integers(1, size))
    ack = draw(st.integers(1, write))
    ensemble = tuple(f"b{n}" for n in range(size))
    metadata = new_metadata(1, ensemble=ensemble, write_quorum=write, ack_quorum=ack, token="t")
    first = draw(st.sampled_from([0, 0, 3]))
    if first:
        old = tuple(f"o{n}" for n in range(size))
        metadata = new_metadata(1, ensemble=old, write_quorum=write, ack_quorum=ack, token="t")
        metadata = metadata.with_ensemble(first, ensemble)
    last_acknowledged = draw(st.integers(first - 1, 8))
    bookies = sorted({b for fragment in metadata.fragments for b in fragment.bookies})
    spare = draw(st.lists(st.sampled_from(["r1", "r2", "r3"]), unique=True))
    few = st.sets(st.sampled_from([*bookies, *spare]), max_size=2)
    world = World(
        metadata,
        draw(st.integers(first - 1, last_acknowledged)),
        last_acknowledged,
        draw(st.randoms(use_true_random=False)),
        draw(few),
        draw(few),
        spare,
    )
    for entry_id in range(12):
        copies = ack if entry_id <= last_acknowledged else 0
        members = st.sets(st.sampled_from(world.members(metadata, entry_id)), min_size=copies)
        for bookie in draw(members):
            world.held.setdefault(bookie, set()).add(entry_id)
    return world


def holders(world: World, held: dict[str, set[int]], entry_id: int) -> list[str]:
    """Return who of its write set answers reads and holds the entry."""
    members = set(world.members(world.metadata, entry_id)) - world.silent
    return [bookie for bookie in members if entry_id in held.get(bookie, set())]


@settings(max_examples=200)
@given(worlds())
def test_a_recovery_never_truncates_never_passes_a_hole_and_always_ends(world: World) -> None:
    before = {bookie: set(entries) for bookie, entries in world.held.items()}
    core = world.run()
    metadata = world.metadata
    assert core.finished is not None
    if not isinstance(core.finished, Close):
        missing = set(core.finished.error.extra["missing_bookies"])
        assert core.finished.error.code is ErrorCode.RECOVERY_INCOMPLETE
        assert missing & (world.silent | world.refusing)
        return
    last, fragments = core.finished.last_entry_id, core.finished.fragments
    assert last >= world.last_acknowledged
    for entry_id in range(world.start_lac + 1, last + 1):
        assert holders(world, before, entry_id)
    end = set(world.members(metadata, last + 1)) - world.silent
    absent = len(end) - len(holders(world, before, last + 1))
    need = coverage_threshold(cohort=metadata.write_quorum, ack_quorum=metadata.ack_quorum)
    assert absent >= need
    assert core.finished.length == sum(n % 3 for n in range(last + 1))
    check_durable(world, fragments, last)


def check_durable(world: World, fragments: tuple[Fragment, ...], last: int) -> None:
    """Every recovered entry has Qa copies where the metadata written at the end says it lies."""
    firsts = [fragment.first_entry_id for fragment in fragments]
    assert firsts == sorted(set(firsts))
    assert fragments[: len(world.metadata.fragments) - 1] == world.metadata.fragments[:-1]
    closed = new_metadata(
        1,
        ensemble=fragments[0].bookies,
        write_quorum=world.metadata.write_quorum,
        ack_quorum=world.metadata.ack_quorum,
        token="t",
    )
    for fragment in fragments[1:]:
        closed = closed.with_ensemble(fragment.first_entry_id, fragment.bookies)
    for entry_id in range(world.start_lac + 1, last + 1):
        copies = [b for b in world.members(closed, entry_id) if entry_id in world.held.get(b, ())]
        assert len(copies) >= world.metadata.ack_quorum


@settings(max_examples=50)
@given(worlds())
def test_with_all_bookies_there_every_recovery_closes(world: World) -> None:
    world.silent.clear()
    world.refusing.clear()
    assert isinstance(world.run().finished, Close)
