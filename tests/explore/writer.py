"""The writer of a small world: the real core and the real hold on metadata, its shell played."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import build_run
from fencelog.ledgers.ledger_metadata.model import NO_ENTRY, LedgerMetadata
from fencelog.ledgers.metastore.port import Version
from fencelog.ledgers.writer.core import ChangeEnsemble, Effect, PendingRun, Send, WriterCore
from fencelog.ledgers.writer.metadata import WriterMetadata
from tests.explore.config import World
from tests.explore.messages import LEDGER_ID, Add, Outcome, Request, WriteLac
from tests.explore.metadata import FIRST, Paused, drive
from tests.explore.party import LOOK_AGAIN, Move, Party, Scene, Unresolved, error_of

NO_CHANGE = (
    ErrorCode.NOT_ENOUGH_BOOKIES,
    ErrorCode.METADATA_UNAVAILABLE,
    ErrorCode.BAD_REQUEST,
)
"""The errors after which an ensemble stays as it is, as in ``ledgers/writer/writer.py``."""


def payload(entry_id: int) -> bytes:
    return bytes((ord("a") + entry_id,))


@dataclass
class Writer(Party):
    """``metadata``, ``version`` and ``incarnations`` are what ``WriterMetadata`` keeps."""

    core: WriterCore
    metadata: LedgerMetadata
    version: Version
    incarnations: dict[str, str]
    to_push: int
    in_one_run: bool
    closes: bool
    tells_lac: bool
    runs: dict[int, PendingRun] = field(default_factory=dict)
    change: ChangeEnsemble | None = None
    unresolved: Unresolved | None = None
    looks_again: bool = False
    reported_lac: int = NO_ENTRY
    is_closing: bool = False
    closed_at: int | None = None
    broken: str = ""

    @classmethod
    def of(cls, world: World, metadata: LedgerMetadata, incarnations: dict[str, str]) -> Writer:
        core = WriterCore(metadata, lac=NO_ENTRY, length=0, delay_changes=world.delays_changes)
        return cls(
            core,
            metadata,
            FIRST,
            incarnations,
            world.entries,
            world.one_run,
            world.closes,
            world.tells_lac,
        )

    @property
    def is_over(self) -> bool:
        return self.core.finished is not None or self.closed_at is not None

    def moves(self) -> list[Move]:
        if self.is_over:
            return []
        core, moves = self.core, list[Move]()
        if self.to_push and not self.is_closing:
            moves.append(("push",))
        if self.change is not None:
            moves.append(("change",))
        elif self.closes and not self.to_push and not core.has_pending:
            moves.append(("close",))
        if self.looks_again and not core.changing and not self.is_closing:
            moves.append(LOOK_AGAIN)
        if self.tells_lac and not core.has_pending and core.lac > self.reported_lac:
            moves.append(("tell",))
        return moves

    def perform(self, move: Move, scene: Scene) -> None:
        match move[0]:
            case "push":
                self._push(scene)
            case "change":
                self._change(scene)
            case "close":
                self._close(scene)
            case "look again":
                self.looks_again = False
                self._carry_out(self.core.change_ensemble(), scene)
            case "tell":
                self.reported_lac = self.core.lac
                for bookie_id in self.core.ensemble:
                    word = WriteLac(self.core.lac, self.incarnations[bookie_id])
                    scene.send(bookie_id, word)

    def cares(self, request: Request, bookie_id: str) -> bool:
        return not (self.is_over or self.is_closing)

    def hear(self, bookie_id: str, request: Request, outcome: Outcome, scene: Scene) -> None:
        error = error_of(outcome)
        if isinstance(request, Add):
            run = self.runs[request.first]
            self._carry_out(self.core.reply(run, request.index, bookie_id, error), scene)
        else:
            self._carry_out(self.core.on_lac_reply(bookie_id, error), scene)

    def hangs(self) -> str:
        if self.is_over or not self.core.has_pending:
            return ""
        return f"the writer waits for entry {self.core.lac + 1} for ever"

    def _push(self, scene: Scene) -> None:
        core, first = self.core, self.core.last_add_pushed + 1
        count = self.to_push if self.in_one_run else 1
        self.to_push -= count
        payloads = [payload(entry_id) for entry_id in range(first, first + count)]
        run = build_run(LEDGER_ID, first, payloads, lac=core.lac, length_before=first)
        self._carry_out(core.push(run, count=count, length=first + count), scene)

    def _carry_out(self, effects: Iterable[Effect], scene: Scene) -> None:
        for effect in effects:
            match effect:
                case Send(run, index, bookie_id):
                    self.runs[run.first_entry_id] = run
                    known = self.incarnations[bookie_id]
                    add = Add(index, run.first_entry_id, run.data, False, known)
                    scene.send(bookie_id, add)
                case ChangeEnsemble():
                    self.change = effect

    def _own(self, scene: Scene) -> WriterMetadata:
        if self.unresolved is not None:
            self.unresolved.restore(scene)
        return WriterMetadata(
            self.metadata,
            self.version,
            ledgers=scene.ledgers,
            bookies=scene,  # type: ignore[arg-type]  # a fake with the methods used
            placement=scene,  # type: ignore[arg-type]  # a fake with the methods used
            incarnations=self.incarnations,
            now_us=lambda: 0,
        )

    def _keep(self, own: WriterMetadata) -> None:
        self.metadata, self.version = own.metadata, own._version
        self.incarnations = own.incarnations

    def _change(self, scene: Scene) -> None:
        """Change the ensemble as ``LedgerWriter._change_ensemble``."""
        if self.change is None:
            raise AssertionError("no change was asked for")
        own = self._own(scene)
        try:
            effects = self.core.ensemble_changed(drive(own.change_ensemble(self.change)))
        except Paused:
            self.unresolved = Unresolved.of(scene)
            return
        except FencelogError as error:
            if error.code in NO_CHANGE:
                effects = self.core.ensemble_unchanged()
                self.looks_again = True
            else:
                effects = self.core.fail(error)
        self._keep(own)
        self.change = self.unresolved = None
        self._carry_out(effects, scene)

    def _close(self, scene: Scene) -> None:
        """End the close as ``LedgerWriter.close``."""
        if not self.is_closing:
            self.core.seal()
            self.is_closing = True
        own = self._own(scene)
        try:
            drive(own.close(last_entry_id=self.core.lac, length=self.core.length))
            self.closed_at = self.core.lac
        except Paused:
            self.unresolved = Unresolved.of(scene)
            return
        except FencelogError as error:
            if error.code is ErrorCode.LEDGER_FENCED:
                self.core.fail(error)
        self._keep(own)
        self.unresolved = None
