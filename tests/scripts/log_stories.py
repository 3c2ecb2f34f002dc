"""Transcripts of an open log: what ``LogCore`` is told, and under it what it asks for.

    L1 acknowledges 9
    ----
    acknowledged up to 9
    create a ledger
    [rolling] appends are sent

The story is the shell: it keeps the step under way, and calls ``advance`` when there is none, as
the log's keeper does. The last line of a block says what the log is doing and what appends meet,
where that has changed. ``LN`` are ledgers. A second ``the log opens`` begins with a new instance.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fencelog.broker.log.core import LogCore
from fencelog.broker.log.effects import (
    Acknowledge,
    Adopted,
    CheckOwnership,
    CloseLedger,
    CreateLedger,
    Drain,
    Effect,
    EndLog,
    ListLedger,
    Lost,
    Recover,
    RefuseAppends,
    RestoreState,
    Seal,
    SetRollTimer,
    Settle,
    StartDeadline,
    Step,
    StopDeadline,
    TakeOver,
    Terminated,
    Wake,
    Write,
)
from fencelog.broker.policy import Policy
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.scripts.transcripts import NOTHING, RULE, Commands, blocks, commands_of, play

command = Commands()


def play_script(script: Path) -> str:
    """The transcript as it is in truth, of whichever kind."""
    told = script.read_text("utf-8")
    return play_log(told) if script.stem.startswith("log_") else play(told)


def play_log(transcript: str) -> str:
    """The transcript as it is in truth. Raises ValueError for a command that nobody knows."""
    story = LogStory()
    return "\n\n".join(story.play_block(block) for block in blocks(transcript)) + "\n"


class LogStory:
    """One transcript being played."""

    def __init__(self) -> None:
        self.core = LogCore("the log", Policy())
        self.now_s = 0.0
        self.is_idle = True
        self.tail = 0
        self.step: Effect | None = None
        self.seen: list[str] = []
        self.shown = ""

    def play_block(self, block: str) -> str:
        """Carry its commands out, and tell what came of them."""
        commands = commands_of(block)
        if all(line.startswith("#") for line in commands):
            return block
        self.seen = []
        for line in commands:
            if not line.startswith("#"):
                try:
                    self.take(command.carry_out(self, line))
                except Exception as error:
                    error.add_note(f"in the command: {line}")
                    raise
        shown = f"[{self.core.state.value}] appends {self.appends()}"
        if shown != self.shown:
            self.shown = shown
            self.seen.append(shown)
        return "\n".join([*commands, RULE, *(self.seen or [NOTHING])])

    def take(self, effects: list[Effect]) -> None:
        """Carry out effects as the shells do."""
        for effect in effects:
            text = in_words(effect, self.now_s)
            if text is not None:
                self.seen.append(text)
            if isinstance(effect, Step):
                self.step = effect
            if isinstance(effect, Lost):
                self.step = None
        if self.step is None:
            following = self.core.advance(now_s=self.now_s, segments=2, is_idle=self.is_idle)
            if following:
                self.take(following)

    def appends(self) -> str:
        """Return what they meet."""
        mode = self.core.mode
        if mode.refusal is None:
            return "are sent" if mode.may_send else "wait"
        waiting = "; those that wait are sent" if mode.may_send else ""
        return f"are refused: {mode.refusal.code.slug}{waiting}"

    def reported(self) -> Effect:
        """The step under way, which has ended."""
        step, self.step = self.step, None
        if step is None:
            raise ValueError("no step is under way")
        return step

    # -- requests --------------------------------------------------------------------------------

    @command("the log opens, unsealed are {ledgers}")
    def open(self, ledgers: str) -> list[Effect]:
        return self._open([int(name[1:]) for name in ledgers.split()], is_terminated=False)

    @command("the log opens, terminated")
    def open_terminated(self) -> list[Effect]:
        return self._open([], is_terminated=True)

    @command("the log serves L{ledger:n}")
    def serve(self, ledger: str) -> list[Effect]:
        """Begin with a log that is open."""
        self._open([], is_terminated=False)
        self.core.restored()
        self.core.created(int(ledger), opened_at_s=0.0)
        return self.core.taken_over(tail_offset=0)

    def _open(self, previous: list[int], *, is_terminated: bool) -> list[Effect]:
        self.core = LogCore("the log", Policy(roll_entries=10))
        self.now_s, self.tail, self.is_idle, self.step = 0.0, 0, True, None
        return self.core.open(previous, is_terminated=is_terminated)

    @command("terminate")
    def terminate(self) -> list[Effect]:
        return self._unless_refused(self.core.terminate)

    @command("segments are to be adopted")
    def adopt(self) -> list[Effect]:
        return self._unless_refused(self.core.adopt)

    @command("close")
    def close(self) -> list[Effect]:
        return self.core.close()

    @command("retention wants a roll")
    def want_roll(self) -> list[Effect]:
        return self.core.want_roll()

    @command("ledgers hold {entries:n} entries from now on")
    def apply_policy(self, entries: str) -> list[Effect]:
        return self.core.apply_policy(Policy(roll_entries=int(entries)))

    @command("a quota holds appends back")
    def pause(self) -> list[Effect]:
        self.core.mode.pause(True)
        return []

    @command("the quota holds no more")
    def go_on(self) -> list[Effect]:
        self.core.mode.pause(False)
        return []

    def _unless_refused(self, ask: Callable[[], list[Effect]]) -> list[Effect]:
        try:
            return ask()
        except FencelogError as error:
            self.seen.append(f"refused: {error.code.slug}")
            return []

    # -- news ------------------------------------------------------------------------------------

    @command("appends are in flight")
    def in_flight(self) -> list[Effect]:
        self.is_idle = False
        return []

    @command("nothing is in flight")
    def idle(self) -> list[Effect]:
        self.is_idle = True
        return []

    @command("L{ledger:n} acknowledges {entry:n}")
    def acknowledge(self, ledger: str, entry: str) -> list[Effect]:
        self.tail = int(entry) + 1
        return self.core.acknowledged(int(ledger), int(entry), size=0, now_s=self.now_s, segments=2)

    @command("L{ledger:n} fails: {slug}")
    def fail_ledger(self, ledger: str, slug: str) -> list[Effect]:
        return self.core.ledger_failed(int(ledger), _error(slug))

    @command("{seconds:n} s pass")
    def pass_time(self, seconds: str) -> list[Effect]:
        self.now_s += int(seconds)
        return self.core.roll_timer_fired()

    @command("the deadline passes")
    def pass_deadline(self) -> list[Effect]:
        return self.core.deadline_passed()

    @command("another owner has written the list")
    def lose(self) -> list[Effect]:
        self.step = None
        return self.core.lose(_error("no_owner"))

    # -- outcomes of the step under way ----------------------------------------------------------

    @command("it fails: {slug}")
    def fail_step(self, slug: str) -> list[Effect]:
        self.reported()
        return self.core.step_failed(_error(slug), now_s=self.now_s)

    @command("it is recovered up to {entry:n}")
    def recovered(self, entry: str) -> list[Effect]:
        self.reported()
        return self.core.recovered(int(entry))

    @command("it is L{ledger:n}")
    def created(self, ledger: str) -> list[Effect]:
        self.reported()
        return self.core.created(int(ledger), opened_at_s=self.now_s)

    @command("it is done")
    def done(self) -> list[Effect]:
        core = self.core
        match self.reported():
            case RestoreState():
                return core.restored()
            case TakeOver():
                return core.taken_over(tail_offset=self.tail)
            case ListLedger():
                return core.listed()
            case Drain():
                return core.drained()
            case CloseLedger():
                return core.closed()
            case CheckOwnership():
                return core.owned()
            case Settle(_, last_entry_id):
                self.tail = last_entry_id + 1
                return core.settled()
            case Seal():
                return core.sealed()
            case EndLog():
                return core.ended(tail_offset=self.tail)
            case step:
                raise ValueError(f"how {step} ended has to be said")


def _error(slug: str) -> FencelogError:
    return FencelogError(ErrorCode[slug.upper()], "the story says so")


def in_words(effect: Effect, now_s: float) -> str | None:
    """Return an effect as transcripts tell it; None: it goes without saying."""
    match effect:
        case Recover(ledger_id):
            return f"recover L{ledger_id}"
        case RestoreState():
            return "restore the state"
        case TakeOver(ledger_id):
            what = "terminated as it is" if ledger_id is None else f"and L{ledger_id}"
            return f"write the list: a new owner, {what}"
        case CreateLedger():
            return "create a ledger"
        case ListLedger(ledger_id, seals, adopts):
            also = "" if seals is None else f", L{seals} sealed"
            also += ", the segments between them" if adopts else ""
            return f"write the list: L{ledger_id} added{also}"
        case Drain(ledger_id):
            return f"drain L{ledger_id}"
        case CloseLedger(ledger_id):
            return f"close L{ledger_id}"
        case CheckOwnership(after_s):
            return f"{f'in {after_s:g} s ' if after_s else ''}check that the log is ours"
        case Settle(ledger_id, last_entry_id):
            return f"settle L{ledger_id}: it ends at {last_entry_id}"
        case Seal(ledger_id, closes):
            return f"write the list: L{ledger_id} {'closed and ' if closes else ''}sealed"
        case EndLog(ledger_id):
            return f"write the list: L{ledger_id} sealed, terminated"
        case Acknowledge(last_entry_id):
            return f"acknowledged up to {last_entry_id}"
        case Write(ledger_id):
            return f"write to L{ledger_id}"
        case RefuseAppends(waiting, handed):
            return f"fail what waits: {waiting.code.slug}; in flight: {handed.code.slug}"
        case StartDeadline():
            return "the deadline begins"
        case StopDeadline():
            return "the deadline is off"
        case SetRollTimer(times):
            at_s = min((time_s for time_s in times if time_s > now_s), default=None)
            return None if at_s is None else f"a roll may be due at {at_s:g} s"
        case Terminated(error):
            return "terminate: " + ("done" if error is None else error.code.slug)
        case Adopted(error):
            return "adopt: " + ("done" if error is None else error.code.slug)
        case Lost(error):
            return f"lost: {error.code.slug}"
        case Wake():
            return None
