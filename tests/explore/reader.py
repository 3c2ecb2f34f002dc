"""A reader of a small world: what ``LedgerReader`` and its rounds make of answers.

In each round it looks at metadata, asks for the LAC, and reads one entry up to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import NO_ENTRY, LedgerMetadata
from fencelog.ledgers.quorum import write_set
from fencelog.ledgers.reader.core import LacRound, ReadRound, ReadVerdict
from fencelog.ledgers.reader.entry_reads import verified_reply
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.rpc.bookie_port import ReadReply
from tests.explore.messages import LEDGER_ID, Outcome, Read, ReadLac, Request
from tests.explore.metadata import drive
from tests.explore.party import Move, Party, Scene, error_of


@dataclass
class Reader(Party):
    """``confirmed`` is what a ``LedgerReader`` keeps, ``shown`` the highest that it ever told.

    ``denied``: entries of which it was told that they are not there.
    """

    rounds: int
    phase: str = "idle"
    metadata: LedgerMetadata | None = None
    confirmed: int = NO_ENTRY
    shown: int = NO_ENTRY
    lac_round: LacRound | None = None
    read_round: ReadRound | None = None
    entry_id: int = NO_ENTRY
    read_entries: set[int] = field(default_factory=set)
    denied: set[int] = field(default_factory=set)
    broken: str = ""

    @property
    def last_confirmed(self) -> int:
        metadata = self.metadata
        return metadata.last_entry_id if metadata and metadata.is_closed else self.confirmed

    def moves(self) -> list[Move]:
        if self.phase == "idle":
            return [("look",)] if self.rounds else []
        if self.phase == "ready":
            return [("read", entry_id) for entry_id in range(self.last_confirmed + 1)]
        is_slow = self.phase == "reading" and self.read_round and self.read_round.has_more
        return [("ask another",)] if is_slow else []

    def perform(self, move: Move, scene: Scene) -> None:
        match move:
            case ("look",):
                self._look(scene)
            case ("read", int(entry_id)):
                self._read(entry_id, scene)
            case ("ask another",) if self.read_round is not None:
                self._ask(self.read_round.overdue(), scene)

    def cares(self, request: Request, bookie_id: str) -> bool:
        if self.phase == "asking":
            return isinstance(request, ReadLac)
        return self.phase == "reading" and isinstance(request, Read)

    def hear(self, bookie_id: str, request: Request, outcome: Outcome, scene: Scene) -> None:
        if isinstance(request, ReadLac):
            self._hear_lac(request, outcome)
        elif isinstance(request, Read):
            self._hear_entry(bookie_id, request, outcome, scene)

    def hangs(self) -> str:
        return f"the reader waits for ever ({self.phase})" if self.phase != "idle" else ""

    def _reader(self) -> LedgerReader:
        if self.metadata is None:
            raise AssertionError("nothing was looked at")
        reader = LedgerReader(self.metadata, bookies=None)  # type: ignore[arg-type]  # reads nothing
        reader._confirmed = self.confirmed
        return reader

    def _keep(self, reader: LedgerReader) -> None:
        self.metadata, self.confirmed = reader.metadata, reader._confirmed
        self.shown = max(self.shown, self.last_confirmed)

    def _end_round(self) -> None:
        self.phase, self.lac_round, self.read_round = "idle", None, None

    # -- the LAC ---------------------------------------------------------------------------------

    def _look(self, scene: Scene) -> None:
        self.rounds -= 1
        try:
            metadata, _ = drive(scene.ledgers.get(LEDGER_ID))
        except FencelogError as error:
            if error.code is ErrorCode.LEDGER_NOT_FOUND:
                self.rounds = 0
            return
        if self.metadata is None:
            self.metadata = metadata
            self._keep(LedgerReader(metadata, bookies=None))  # type: ignore[arg-type]  # reads nothing
        else:
            reader = self._reader()
            reader.update(metadata)
            self._keep(reader)
        if metadata.is_closed:
            self._be_ready()
            return
        self.phase, self.lac_round = "asking", LacRound(metadata)
        for index, bookie_id in enumerate(self.lac_round.members):
            scene.send(bookie_id, ReadLac(index, False))

    def _hear_lac(self, request: ReadLac, outcome: Outcome) -> None:
        round_ = self.lac_round
        if round_ is None:
            raise AssertionError("no LAC was asked for")
        answer = outcome if isinstance(outcome, int) else error_of(outcome)
        if answer is None:
            raise AssertionError("no answer to a LAC read")
        round_.answer(request.index, answer)
        if not (round_.is_covered or round_.is_over):
            return
        if round_.unknown() is not None:
            self._end_round()
            return
        reader = self._reader()
        reader.confirm(round_.highest)
        self._keep(reader)
        self._be_ready()

    def _be_ready(self) -> None:
        self._end_round()
        if self.last_confirmed >= 0:
            self.phase = "ready"

    # -- an entry --------------------------------------------------------------------------------

    def _read(self, entry_id: int, scene: Scene) -> None:
        metadata = self.metadata
        if metadata is None:
            raise AssertionError("nothing was looked at")
        ensemble = metadata.fragment_of(entry_id).bookies
        members = write_set(
            entry_id, ensemble_size=metadata.ensemble_size, write_quorum=metadata.write_quorum
        )
        order = [ensemble[index] for index in members]
        scene.choices = len(order)
        turned = order[scene.choice :] + order[: scene.choice]
        self.phase, self.entry_id = "reading", entry_id
        self.read_round = ReadRound(tuple(turned), metadata.is_closed)
        self._ask(self.read_round.ask_next(), scene)

    def _ask(self, bookie_id: str | None, scene: Scene) -> None:
        if bookie_id is not None:
            scene.send(bookie_id, Read(self.entry_id, 1, False))

    def _hear_entry(self, bookie_id: str, ask: Read, outcome: Outcome, scene: Scene) -> None:
        round_, metadata = self.read_round, self.metadata
        if round_ is None or metadata is None:
            raise AssertionError("no entry was asked for")
        error = error_of(outcome)
        if isinstance(outcome, ReadReply):
            try:
                verified_reply(outcome, metadata, ask.entry_id, bookie_id=bookie_id, key=b"")
            except FencelogError as damage:
                error = damage
            else:
                reader = self._reader()
                reader.confirm(outcome.lac)
                self._keep(reader)
        round_.answer(bookie_id, error)
        match round_.verdict:
            case ReadVerdict.FOUND:
                self.read_entries.add(ask.entry_id)
                self._end_round()
            case ReadVerdict.ABSENT:
                self.denied.add(ask.entry_id)
                self._end_round()
            case ReadVerdict.UNKNOWN:
                self._end_round()
            case ReadVerdict.WAITING if error is not None:
                self._ask(round_.ask_next(), scene)
