"""Recoverers of a small world, and whoever deletes the ledger: the real cores, their shells played.

One that dies is one that makes no further step: the next may begin at any moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import slice_run
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.ledger_metadata.transitions import begin_recovery, closed_by_recoverer
from fencelog.ledgers.ledger_metadata.update import update_metadata
from fencelog.ledgers.metastore.port import Version
from fencelog.ledgers.reader.entry_reads import verified_reply
from fencelog.ledgers.recovery.fencing import told_by
from fencelog.ledgers.recovery.machine import (
    Abort,
    Close,
    ReadCopy,
    RecoveryCore,
    RecoveryEffect,
)
from fencelog.ledgers.recovery.rules import Copy, FenceRound, Verdict
from fencelog.ledgers.rpc.bookie_port import FenceAnswer, ReadReply
from fencelog.ledgers.writer.core import ChangeEnsemble, PendingRun, Send
from tests.explore.messages import LEDGER_ID, Add, Fence, Outcome, Read, ReadLac, Request
from tests.explore.metadata import FIRST, Paused, drive
from tests.explore.party import Move, Party, Scene, Unresolved, error_of


@dataclass
class Fencer(Party):
    """Ends what the writer may do: the state, then fencing LAC reads to the last ensemble."""

    phase: str = "idle"
    base: LedgerMetadata | None = None
    version: Version = FIRST
    fence: FenceRound | None = None
    unresolved: Unresolved | None = None
    broken: str = ""

    def moves(self) -> list[Move]:
        return [("begin",)] if self.phase == "idle" else []

    def perform(self, move: Move, scene: Scene) -> None:
        if self.unresolved is not None:
            self.unresolved.restore(scene)
        try:
            self._perform(move, scene)
        except Paused:
            self.unresolved = Unresolved.of(scene)
            return
        except FencelogError as error:
            self._give_up(error)
        self.unresolved = None

    def cares(self, request: Request, bookie_id: str) -> bool:
        return self.phase == "fencing" and isinstance(request, ReadLac | Fence)

    def hear(self, bookie_id: str, request: Request, outcome: Outcome, scene: Scene) -> None:
        if not isinstance(request, ReadLac | Fence) or self.fence is None:
            raise AssertionError(f"an answer to {request} while it was fencing")
        if isinstance(outcome, FenceAnswer):
            told = told_by(outcome, self.fence, bookie_id, b"")
            self.fence.answer(request.index, outcome.lac, told)
        elif isinstance(outcome, int):
            self.fence.answer(request.index, outcome)
        elif (error := error_of(outcome)) is not None:
            self.fence.error(request.index, error)
        if self.fence.verdict is Verdict.POSITIVE:
            self._fenced(self.fence, scene)
        elif self.fence.verdict is Verdict.UNKNOWN:
            self._give_up(self.fence.incomplete())

    def hangs(self) -> str:
        busy = self.phase in ("fencing", "working")
        return f"somebody who ends the ledger waits for ever ({self.phase})" if busy else ""

    def _perform(self, move: Move, scene: Scene) -> None:
        """The first step of ``recover_ledger``."""
        self.base, self.version = drive(_begun(scene))
        if self.base.is_closed:
            self._is_closed(self.base)
            return
        self.phase, self.fence = "fencing", FenceRound(self.base)
        for index, bookie_id in enumerate(self.fence.members):
            scene.send(bookie_id, self._fence_request(index, self.fence))

    def _fence_request(self, index: int, fence: FenceRound) -> Request:
        return ReadLac(index, True)

    def _fenced(self, fence: FenceRound, scene: Scene) -> None:
        raise NotImplementedError

    def _is_closed(self, metadata: LedgerMetadata) -> None:
        raise NotImplementedError

    def _give_up(self, error: FencelogError) -> None:
        self.phase = "aborted"


async def _begun(scene: Scene) -> tuple[LedgerMetadata, Version]:
    base, version = await scene.ledgers.get(LEDGER_ID)
    return await update_metadata(scene.ledgers, base, version, begin_recovery)


@dataclass
class Recoverer(Fencer):
    """``end``: the closed metadata with which it came to its end, its own or somebody else's."""

    core: RecoveryCore | None = None
    runs: dict[int, PendingRun] = field(default_factory=dict)
    close: Close | None = None
    end: LedgerMetadata | None = None

    def _fence_request(self, index: int, fence: FenceRound) -> Request:
        if not fence.asks_for_entries:
            return super()._fence_request(index, fence)
        return Fence(index, fence.above)

    def moves(self) -> list[Move]:
        if self.phase == "closing":
            return [("close",)]
        return [("adopt",)] if self.phase == "incomplete" else super().moves()

    def cares(self, request: Request, bookie_id: str) -> bool:
        if self.phase != "working" or self.core is None:
            return super().cares(request, bookie_id)
        if isinstance(request, Read):
            return self.core.is_reading(request.entry_id)
        return isinstance(request, Add)

    def hear(self, bookie_id: str, request: Request, outcome: Outcome, scene: Scene) -> None:
        core = self.core
        if core is None:
            super().hear(bookie_id, request, outcome, scene)
        elif isinstance(request, Read):
            copy = self._copy(bookie_id, request, outcome)
            self._carry_out(core.read_answer(request.entry_id, bookie_id, copy), scene)
        elif isinstance(request, Add):
            run, error = self.runs[request.first], error_of(outcome)
            self._carry_out(core.write_reply(run, request.index, bookie_id, error), scene)

    def _perform(self, move: Move, scene: Scene) -> None:
        match move[0]:
            case "begin":
                super()._perform(move, scene)
            case "close":
                self._close(scene)
            case "adopt":
                metadata, _ = drive(scene.ledgers.get(LEDGER_ID))
                self.phase = "aborted"
                if metadata.is_closed:
                    self._is_closed(metadata)

    def _is_closed(self, metadata: LedgerMetadata) -> None:
        self.phase, self.end = "done", metadata

    def _give_up(self, error: FencelogError) -> None:
        """Read the metadata once more, later, since a recoverer that cannot finish may be too
        late."""
        may_adopt = error.code is ErrorCode.RECOVERY_INCOMPLETE and self.close is None
        self.phase = "incomplete" if may_adopt else "aborted"

    def _fenced(self, fence: FenceRound, scene: Scene) -> None:
        self.phase = "working"
        self.core = RecoveryCore(fence.metadata, start_lac=fence.start_lac, told=fence.told)
        self._carry_out(self.core.start(), scene)

    def _carry_out(self, effects: Iterable[RecoveryEffect], scene: Scene) -> None:
        for effect in effects:
            match effect:
                case ReadCopy(entry_id, bookie_id, max_entries, fence):
                    scene.send(bookie_id, Read(entry_id, max_entries, fence))
                case Send(run, index, bookie_id):
                    self.runs[run.first_entry_id] = run
                    scene.send(bookie_id, Add(index, run.first_entry_id, run.data, True, None))
                case ChangeEnsemble():
                    self._replace(effect, scene)
                case Close():
                    self.phase, self.close = "closing", effect
                case Abort(error):
                    self._give_up(error)

    def _replace(self, change: ChangeEnsemble, scene: Scene) -> None:
        if self.core is None:
            raise AssertionError("a change before anything was written")
        chosen: tuple[str, ...] | None
        try:
            ensemble, quorum = self.core.writer.ensemble, self.core.writer.metadata.write_quorum
            chosen = scene.replace(ensemble, change.failed, write_quorum=quorum)
        except FencelogError:
            chosen = None
        self._carry_out(self.core.ensemble_chosen(change, chosen), scene)

    def _copy(self, bookie_id: str, ask: Read, outcome: Outcome) -> Copy | FencelogError:
        """Read as ``_Recovery._read``."""
        if not isinstance(outcome, ReadReply) or self.base is None:
            return error_of(outcome) or FencelogError(ErrorCode.INTERNAL, "no answer to a read")
        try:
            entries = verified_reply(outcome, self.base, ask.entry_id, bookie_id=bookie_id, key=b"")
        except FencelogError as error:
            return error
        run = slice_run(outcome.run, ask.entry_id, ask.entry_id + ask.max_entries - 1)
        return Copy(run, entries[: ask.max_entries])

    def _close(self, scene: Scene) -> None:
        """The last step of ``recover_ledger``."""
        if self.close is None or self.base is None:
            raise AssertionError("nothing to close with")
        close = partial(
            closed_by_recoverer,
            snapshot=self.base,
            fragments=self.close.fragments,
            last_entry_id=self.close.last_entry_id,
            length=self.close.length,
        )
        closed, _ = drive(update_metadata(scene.ledgers, self.base, self.version, close))
        self._is_closed(closed)


@dataclass
class Deleter(Fencer):
    """The deletion of a ledger as in ``LedgerClient.delete``."""

    def moves(self) -> list[Move]:
        return [("delete",)] if self.phase == "deleting" else super().moves()

    def _perform(self, move: Move, scene: Scene) -> None:
        if move[0] == "begin":
            super()._perform(move, scene)
        else:
            drive(scene.ledgers.delete(LEDGER_ID))
            self.phase = "done"

    def _fenced(self, fence: FenceRound, scene: Scene) -> None:
        self.phase = "deleting"

    def _is_closed(self, metadata: LedgerMetadata) -> None:
        self.phase = "deleting"
