"""The invariants of every state of a small world, in every step, and at its ends."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import verify_entries
from fencelog.ledgers.ledger_metadata.model import NO_ENTRY, LedgerMetadata, LedgerState
from fencelog.ledgers.quorum import write_set
from tests.explore.messages import LEDGER_ID
from tests.explore.model import Model, State
from tests.explore.reader import Reader
from tests.explore.recoverer import Recoverer
from tests.explore.writer import Writer, payload
from tests.scripts.playground_bookie import ModelBookie

_ORDER = (LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED)


class Judge:
    """Each answer is what is wrong, empty if nothing is. Every rule reads a few parts of the state
    and is remembered by their numbers."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._value = model.table.values
        self._world = model.world
        self._memo: dict[Any, str] = {}

    def state(self, state: State) -> str:
        """Return what is wrong with a state by itself."""
        model, node, writer = self._model, state[0], state[1]
        wrong = self._once(("ledger", node, writer), self._ledger, node, writer)
        for at in model.parties:
            wrong = wrong or self._once(
                ("party", node, writer, state[at]), self._party, node, writer, state[at]
            )
        lac = self._value[writer].core.lac
        model_bookies = state[model.bookies.start : model.bookies.stop]
        return wrong or self._once(
            ("copies", node, lac, model_bookies), self._copies, node, lac, model_bookies
        )

    def step(self, before: State, after: State) -> str:
        """Return what is wrong with going from one to the other."""
        if before[0] == after[0] and before[1] == after[1]:
            return ""
        key: Any = ("step", before[0], after[0], before[1], after[1])
        wrong = self._once(key, self._change, before, after)
        if not wrong and before[0] != after[0] and self._value[after[0]].metadata is None:
            model_bookies = before[self._model.bookies.start : self._model.bookies.stop]
            key = ("deleted", before[0], model_bookies)
            wrong = self._once(key, self._deleted, before[0], model_bookies)
        return wrong

    def end(self, state: State) -> str:
        """Return what is wrong where nothing happens any more."""
        model = self._model
        for at in model.parties:
            party = self._value[state[at]]
            if party.hangs():
                return str(party.hangs())
            nothing_failed = state[-1] == model.initial[-1] and not self._world.deleter
            if nothing_failed and isinstance(party, Recoverer) and party.phase == "aborted":
                return "a recovery was given up, and nothing had failed"
        return ""

    def _once(self, key: Any, rule: Any, *arguments: Any) -> str:
        if key not in self._memo:
            self._memo[key] = rule(*arguments)
        return self._memo[key]

    # -- one state -------------------------------------------------------------------------------

    def _ledger(self, node: int, writer: int) -> str:
        metadata: LedgerMetadata | None = self._value[node].metadata
        core = self._value[writer].core
        if core.lac > core.last_add_pushed:
            return f"entry {core.lac} is acknowledged and was never sent"
        if metadata is None:
            return ""
        firsts = [fragment.first_entry_id for fragment in metadata.fragments]
        if firsts[0] != 0 or any(later <= first for first, later in pairwise(firsts)):
            return f"fragments begin at {firsts}"
        if any(len(set(one.bookies)) != self._world.ensemble for one in metadata.fragments):
            return "a bookie stands twice in an ensemble"
        if not metadata.is_closed:
            return ""
        end = metadata.last_entry_id
        if end < core.lac:
            return f"the ledger is closed at {end}, and entry {core.lac} was acknowledged"
        if end > core.last_add_pushed:
            return f"the ledger is closed at {end}, and entry {end} was never written"
        if metadata.length != end + 1:
            return f"the ledger is closed at {end} with a length of {metadata.length}"
        return ""

    def _party(self, node: int, writer: int, number: int) -> str:
        party, metadata = self._value[number], self._value[node].metadata
        if party.broken:
            return f"{type(party).__name__.lower()}: {party.broken}"
        match party:
            case Recoverer() if party.end is not None and metadata is not None:
                ends = (party.end.fragments, party.end.last_entry_id, party.end.length)
                if ends != (metadata.fragments, metadata.last_entry_id, metadata.length):
                    return (
                        f"a recoverer was told of an end at {ends[1]}, which does not stand there"
                    )
            case Writer() if party.closed_at is not None and metadata is not None:
                if not metadata.is_closed or metadata.last_entry_id != party.closed_at:
                    return f"the writer closed at {party.closed_at}, which does not stand there"
            case Reader():
                return self._reader(party, metadata, self._value[writer].core.lac)
        return ""

    def _reader(self, reader: Reader, metadata: LedgerMetadata | None, lac: int) -> str:
        """A ledger that was closed ends where all was confirmed that it holds."""
        confirmed = lac
        known = reader.metadata
        for one in (metadata, known):
            if one is not None and one.is_closed:
                confirmed = max(confirmed, one.last_entry_id)
        if reader.shown > confirmed:
            return f"the reader takes entry {reader.shown} for confirmed, {confirmed} is"
        if reader.last_confirmed < reader.shown:
            return f"the reader's LAC goes back, from {reader.shown} to {reader.last_confirmed}"
        if reader.denied and metadata is not None:
            return f"the reader is told that there is no entry {min(reader.denied)}"
        return ""

    def _copies(self, node: int, lac: int, numbers: tuple[int, ...]) -> str:
        model_bookies: dict[str, ModelBookie] = {
            name: self._value[number]
            for name, number in zip(self._model.names, numbers, strict=True)
        }
        metadata: LedgerMetadata | None = self._value[node].metadata
        held = [
            one.ledgers[LEDGER_ID] for one in model_bookies.values() if LEDGER_ID in one.ledgers
        ]
        if any(ledger.lac > lac for ledger in held):
            told = max(ledger.lac for ledger in held)
            return f"a bookie tells of LAC {told}, entry {lac} is the last acknowledged"
        for entry_id in range(self._world.entries):
            runs = {ledger.entries[entry_id] for ledger in held if entry_id in ledger.entries}
            if len({run for run in runs if is_valid(run, entry_id)}) > 1:
                return f"entry {entry_id} was stored with different bytes"
        if metadata is None:
            return ""
        end = metadata.last_entry_id if metadata.is_closed else lac
        for entry_id in range(end + 1):
            wrong = self._few_copies(metadata, model_bookies, entry_id)
            if wrong:
                return wrong
        return ""

    def _few_copies(
        self, metadata: LedgerMetadata, model_bookies: dict[str, ModelBookie], entry_id: int
    ) -> str:
        """Qa members of the write set have an entry that counts; those that have lost theirs had
        it. And too few are left that would deny it for anybody to believe them."""
        ensemble, quorum = metadata.fragment_of(entry_id).bookies, metadata.write_quorum
        members = write_set(
            entry_id, ensemble_size=metadata.ensemble_size, write_quorum=metadata.write_quorum
        )
        good, lost = list[str](), list[str]()
        for name in (ensemble[index] for index in members):
            ledger = model_bookies[name].ledgers.get(LEDGER_ID)
            run = ledger.entries.get(entry_id) if ledger is not None else None
            if run is not None and is_valid(run, entry_id):
                good.append(name)
            elif run is not None or model_bookies[name].run > 1:
                lost.append(name)
        if len(good) + len(lost) < metadata.ack_quorum:
            has = " and ".join(good) or "nobody"
            return f"entry {entry_id} counts, and of its write set {has} has it"
        return "" if good or len(lost) == quorum else f"entry {entry_id} has no copy left"

    # -- one step --------------------------------------------------------------------------------

    def _change(self, before: State, after: State) -> str:
        previous, present = self._value[before[0]].metadata, self._value[after[0]].metadata
        old, new = self._value[before[1]].core, self._value[after[1]].core
        if new.lac < old.lac:
            return f"the writer's LAC goes back, from {old.lac} to {new.lac}"
        if previous is None or present is None:
            return "a deleted ledger is there again" if present is not None else ""
        if present == previous:
            return ""
        if previous.is_closed:
            return f"the ledger was closed at {previous.last_entry_id}, and is changed"
        if _ORDER.index(present.state) < _ORDER.index(previous.state):
            return f"the ledger goes from {previous.state.value} back to {present.state.value}"
        if present.fragments == previous.fragments or present.is_closed:
            return self._kept(previous, present)
        if previous.state is not LedgerState.OPEN:
            return "a fragment is begun in a ledger that is being recovered"
        first = present.last_fragment.first_entry_id
        if first != old.lac + 1:
            return f"a fragment is begun at entry {first}, entry {old.lac} is acknowledged"
        return self._kept(previous, present)

    def _deleted(self, node: int, numbers: tuple[int, ...]) -> str:
        """Its writer can get nothing acknowledged any more: no Qa bookies of a write set are left
        that would take an add."""
        metadata: LedgerMetadata = self._value[node].metadata
        if metadata.is_closed:
            return ""
        model_bookies = dict(zip(self._model.names, numbers, strict=True))
        taking = set()
        for index, name in enumerate(metadata.last_fragment.bookies):
            ledger = self._value[model_bookies[name]].ledgers.get(LEDGER_ID)
            if ledger is None or not ledger.fenced:
                taking.add(index)
        for first in range(metadata.ensemble_size):
            members = write_set(
                first, ensemble_size=metadata.ensemble_size, write_quorum=metadata.write_quorum
            )
            if len(taking.intersection(members)) >= metadata.ack_quorum:
                return f"the ledger is deleted, and bookies at {sorted(taking)} would take an add"
        return ""

    def _kept(self, previous: LedgerMetadata, present: LedgerMetadata) -> str:
        """Fragments before the last one stay what they were."""
        kept = previous.fragments[:-1]
        return "" if present.fragments[: len(kept)] == kept else "an old fragment was changed"


_VALID: dict[tuple[bytes, int], bool] = {}


def is_valid(run: bytes, entry_id: int) -> bool:
    """Tell whether a stored copy has the digest and the payload that were written."""
    key = (run, entry_id)
    if key not in _VALID:
        try:
            (entry,) = verify_entries(run)
            _VALID[key] = bytes(entry.payload) == payload(entry_id) and entry.lac >= NO_ENTRY
        except FencelogError:
            _VALID[key] = False
    return _VALID[key]
