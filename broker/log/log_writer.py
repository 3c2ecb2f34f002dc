"""The writing half of a partition's log, which carries out the decisions of ``LogCore``.

One task makes all changes of the list of ledgers, one step at a time; appends and acknowledgements
bypass it. There is one only while there is a step: a broker has a hundred thousand idle logs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from fencelog.broker.append.pipeline import AppendPipeline
from fencelog.broker.cluster.event_recorder import PartitionEvents, short
from fencelog.broker.cluster.events_core import EventKind
from fencelog.broker.config import BrokerConfig
from fencelog.broker.ledger_list.open_ledger import LedgerFactory, OpenLedger
from fencelog.broker.ledger_list.store import LedgerListLost, LedgerListStore
from fencelog.broker.log.core import LogCore
from fencelog.broker.log.effects import (
    Acknowledge,
    Adopted,
    CheckOwnership,
    Effect,
    LogState,
    Lost,
    RefuseAppends,
    SetRollTimer,
    StartDeadline,
    Step,
    StopDeadline,
    Terminated,
    Wake,
    Write,
)
from fencelog.broker.log.step_runner import Adoption, StepRunner
from fencelog.broker.log.wakeup import Wakeup
from fencelog.broker.metrics import BrokerCounts
from fencelog.broker.policy import Policy
from fencelog.broker.read.log_reader import LogReader
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.port import Change

_ORDERLY = frozenset({ErrorCode.NO_OWNER, ErrorCode.TOPIC_NOT_FOUND, ErrorCode.DRAINING})
"""Codes with which an instance ends in the normal course of events; they need no investigation."""

_ENDED_HERE = frozenset({ErrorCode.TOPIC_NOT_FOUND, ErrorCode.DRAINING})
"""Codes with which this broker, or whoever deletes the topic, ends an instance."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class UnfinishedStep:
    """The step at which a log is. ``began_s``: the first attempt, on the loop's clock; ``error``:
    why the last attempt has failed (empty: none has)."""

    name: str
    began_s: float
    error: str = ""


class LogWriter:
    """Writes one partition, from the takeover until the core is LOST."""

    def __init__(
        self,
        core: LogCore,
        node: LedgerListStore,
        factory: LedgerFactory,
        ledger: OpenLedger | None,
        pipeline: AppendPipeline,
        reader: LogReader,
        *,
        config: BrokerConfig,
        is_leader: Callable[[], Awaitable[bool]],
        on_lost: Callable[[], None],
        metrics: BrokerCounts,
        events: PartitionEvents,
    ) -> None:
        """Serve at once, in the ledger that the takeover has listed (None: terminated)."""
        self._metrics = metrics
        self._events = events
        self._core = core
        self._node = node
        self._factory = factory
        self._pipeline = pipeline
        self._reader = reader
        self._config = config
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._wakeup = Wakeup()
        self._runner = StepRunner(
            core, node, factory, ledger, pipeline, reader, is_leader, self._wakeup, metrics, events
        )
        self._step: Step | None = None
        self.unfinished: UnfinishedStep | None = None
        """The step that is being carried out, or waits for its next attempt."""
        self._complaint = ""
        """The report of the last step that failed: a step that fails again for the same reason is
        not reported again."""
        self._terminated: asyncio.Future[None] | None = None
        self._adopted: asyncio.Future[None] | None = None
        self._lost: asyncio.Future[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._roll_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        node.call_when_lost(self._list_lost)  # any part of the log may meet another owner's change
        self._execute(core.taken_over(tail_offset=pipeline.tail_offset))

    @property
    def is_serving(self) -> bool:
        return self._core.is_serving

    def apply_policy(self, policy: Policy) -> None:
        """Apply the policy from now on; the current ledger rolls by it too."""
        self._factory.replication = policy.replication
        self._execute(self._core.apply_policy(policy))

    def want_roll(self) -> None:
        """Continue in a new ledger soon, so that the current one can be deleted."""
        self._execute(self._core.want_roll())

    @property
    def ledger(self) -> OpenLedger | None:
        """The ledger that is written; None: the log is terminated."""
        written = self._core.ledger
        return None if written is None else self._runner.ledgers.get(written.ledger_id)

    async def terminate(self) -> None:
        """Stop accepting appends, for good; on return the log's end is durable. Appends that had
        reached a ledger are still acknowledged. Termination continues if the caller is cancelled.
        Raises FencelogError: why the log has ended; METADATA_UNKNOWN if it has ended meanwhile."""
        self._execute(self._core.terminate())
        if not self._core.is_terminated:
            if self._terminated is None:
                self._terminated = self._loop.create_future()
            await asyncio.wait((self._terminated,))
            self._terminated.result()

    @property
    def is_at_rest(self) -> bool:
        """True if no step is under way."""
        return self._task is None

    async def rest(self) -> None:
        """Wait until no step is under way; one may begin at any time after it."""
        while self._task is not None:
            await asyncio.wait((self._task,))

    async def adopt(self, adoption: Adoption) -> None:
        """Add sealed segments to the log; on return they are in it. Nothing may wait or be in
        flight, and one adoption is asked for at a time. It continues if the caller is cancelled.

        Raises FencelogError: METADATA_UNKNOWN (they may be in the log); the others: they are not.
        """
        self._runner.adoption = adoption
        effects = self._core.adopt()
        self._adopted = self._loop.create_future()
        self._execute(effects)
        await asyncio.wait((self._adopted,))
        self._adopted.result()

    async def close(self, release: Sequence[Change] = ()) -> bool:
        """Let appends in flight finish, seal the log's last ledger, and end. Never raises.
        ``release``: changes to be made together with that of the list; return whether they were.

        Appends that are not finished within ``close_timeout_s`` end as after a crash: the next
        owner recovers them.
        """
        self._runner.released = release
        self._execute(self._core.close())
        if self._core.state is not LogState.LOST:
            # Not for the task alone: there is none while appends in flight are waited for.
            if self._lost is None:
                self._lost = self._loop.create_future()
            await asyncio.wait((self._lost,), timeout=self._config.close_timeout_s)
        await self.abandon(FencelogError(ErrorCode.DRAINING, "the partition is being closed"))
        return self._runner.has_released

    async def abandon(self, error: FencelogError) -> None:
        """End at once. The outcome of appends in flight is unknown. Never raises."""
        self.finish(error)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self._node.close()
        await self._runner.abandon_all()

    def finish(self, error: FencelogError) -> None:
        """Stop serving for good. The next instance takes the log over."""
        self._execute(self._core.lose(error))

    def _list_lost(self, lost: LedgerListLost) -> None:
        if lost.code is ErrorCode.NO_OWNER:
            self._metrics.ledger_list_conflicts += 1
            self._record(EventKind.CONFLICT, error=short(lost))
        self.finish(lost)

    # -- events of the ledger --------------------------------------------------------------------

    def on_ack(self, ledger: OpenLedger) -> None:
        self._execute(
            self._core.acknowledged(
                ledger.ledger_id,
                ledger.last_confirmed,
                size=ledger.writer.length,
                now_s=self._loop.time(),
                segments=len(self._node.ledger_list.segments),
            )
        )

    def on_failure(self, ledger: OpenLedger) -> None:
        assert ledger.failure is not None
        if ledger.failure.code is ErrorCode.LEDGER_FENCED:
            self._metrics.fenced_ledgers += 1
            self._record(EventKind.FENCED, ledger.ledger_id)
        log.warning("%s: ledger %d: %s", self._node.path, ledger.ledger_id, ledger.failure)
        self._execute(self._core.ledger_failed(ledger.ledger_id, ledger.failure))

    # -- the task --------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Have a task look for the next step: the one that carries out a step, or a new one."""
        self._wakeup.set()
        if self._task is None:
            name = f"writer of {self._node.path}"
            self._task = self._loop.create_task(self._take_steps(), name=name)

    async def _take_steps(self) -> None:
        """Take one step after the other, until there is none or the log is lost."""
        core, path = self._core, self._node.path
        try:
            while True:
                self._wakeup.clear()
                if self._step is None:
                    self._execute(self._advance())
                step, self._step = self._step, None
                if step is None or core.state is LogState.LOST:
                    self.unfinished = None
                    return
                self._execute(await self._carry_out(step))
        except LedgerListLost as lost:
            self.finish(lost)
        except Exception:
            # A broken invariant, or a programming error: nothing may be acknowledged any more.
            log.exception("%s: stops", path)
            self.finish(FencelogError(ErrorCode.INTERNAL, f"{path} has stopped"))
        finally:
            self._task = None

    async def _carry_out(self, step: Step) -> list[Effect]:
        unfinished = self.unfinished
        if unfinished is None:
            unfinished = UnfinishedStep(type(step).__name__, self._loop.time())
            self.unfinished = unfinished
        try:
            effects = await self._runner.carry_out(step)
            if not isinstance(step, CheckOwnership):  # which comes between two attempts
                self.unfinished = None
            return effects
        except LedgerListLost:
            raise
        except FencelogError as error:
            unfinished.error = error.detail
            complaint = f"{step}: {error}"
            if complaint != self._complaint:
                log.warning("%s: %s", self._node.path, complaint)
            self._complaint = complaint
            return self._core.step_failed(error, now_s=self._loop.time())

    def _advance(self) -> list[Effect]:
        return self._core.advance(
            now_s=self._loop.time(),
            segments=len(self._node.ledger_list.segments),
            is_idle=self._pipeline.is_idle,
        )

    # -- effects ---------------------------------------------------------------------------------

    def _execute(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Acknowledge():  # the hot path: no pattern that takes it apart
                    self._pipeline.acknowledged(effect.last_entry_id)
                    self._reader.confirm(effect.last_entry_id)
                case Wake():
                    self._wake()
                case Write(ledger_id):
                    self._write(self._runner.ledgers[ledger_id])
                case RefuseAppends(waiting, handed):
                    self._pipeline.give_up(waiting, handed)
                case StartDeadline():
                    self._deadline = self._loop.call_later(
                        self._config.append_timeout_s, self._on_append_timeout
                    )
                case StopDeadline():
                    if self._deadline is not None:
                        self._deadline.cancel()
                case SetRollTimer(times):
                    self._set_roll_timer(times)
                case Terminated(error):
                    self._answer_terminate(error)
                case Adopted(error):
                    self._answer_adopt(error)
                case Lost(error):
                    self._end(error)
                case _:
                    self._step = effect

    def _end(self, error: FencelogError) -> None:
        if error.code not in _ENDED_HERE:
            self._metrics.lost_partitions += 1
            self._record(EventKind.LOST, error=short(error))
        level = logging.INFO if error.code in _ORDERLY else logging.ERROR
        log.log(level, "%s: gives up its log: %s", self._node.path, error)
        self._pipeline.discard()
        self._reader.close(error)
        self._on_lost()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)

    def _record(self, kind: EventKind, ledger_id: int | None = None, **detail: str) -> None:
        epoch = self._node.ledger_list.epoch
        self._events.record(kind, epoch=epoch, ledger_id=ledger_id, **detail)

    def _write(self, ledger: OpenLedger) -> None:
        self._reader.begin(ledger.writer)
        self._pipeline.start_ledger(ledger.writer)
        ledger.notify(self)

    def _on_append_timeout(self) -> None:
        self._execute(self._core.deadline_passed())

    def _set_roll_timer(self, times: Iterable[float]) -> None:
        if self._roll_timer is not None:
            self._roll_timer.cancel()
            self._roll_timer = None
        now_s = self._loop.time()
        at_s = min((time_s for time_s in times if time_s > now_s), default=None)
        if at_s is not None:
            self._roll_timer = self._loop.call_at(at_s, self._on_roll_timer)

    def _on_roll_timer(self) -> None:
        self._execute(self._core.roll_timer_fired())

    def _answer_terminate(self, error: FencelogError | None) -> None:
        if error is None:
            self._reader.end()
        if self._terminated is not None:
            _answer(self._terminated, error)

    def _answer_adopt(self, error: FencelogError | None) -> None:
        assert self._adopted is not None
        _answer(self._adopted, error)


def _answer(answer: asyncio.Future[None], error: FencelogError | None) -> None:
    if error is None:
        answer.set_result(None)
    else:
        answer.set_exception(error)
        answer.exception()  # the caller may have gone away
