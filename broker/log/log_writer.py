"""The writing half of a partition's log: the present ledger, its roll, and its replacement.

One task does everything that changes the ledger list, one thing at a time; appends and
acknowledgements pass it by. Whatever it meets, these hold:

* a roll lists the new ledger while the old one is still written, then holds appends until the old
  one is drained, switches, and closes it; the next roll begins only after that;
* a ledger that failed is recovered first; what recovery found in it is acknowledged, the rest is
  sent to the next ledger;
* a ledger list that somebody else has changed is never fought over: the instance is finished;
* a log that is terminated has no present ledger any more, and the task only waits for the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from fencelog.broker.append.pipeline import AppendPipeline
from fencelog.broker.config import BrokerConfig
from fencelog.broker.ledger_list.ledger_list import MAX_SEGMENTS
from fencelog.broker.ledger_list.ledger_steps import LedgerSteps
from fencelog.broker.ledger_list.open_ledger import LedgerFactory, OpenLedger
from fencelog.broker.ledger_list.store import LedgerListLost, LedgerListStore
from fencelog.broker.log.deadline import Deadline
from fencelog.broker.log.ledger_closer import LedgerCloser
from fencelog.broker.log.roll_clock import RollClock
from fencelog.broker.policy import Policy
from fencelog.broker.read.log_reader import LogReader
from fencelog.ledgers.errors import ErrorCode, FencelogError, copy_of

log = logging.getLogger(__name__)


class LogWriter:
    """Writes one partition. ``lost`` is set once the instance is finished."""

    def __init__(
        self,
        node: LedgerListStore,
        factory: LedgerFactory,
        ledger: OpenLedger | None,
        pipeline: AppendPipeline,
        reader: LogReader,
        *,
        policy: Policy,
        config: BrokerConfig,
        is_leader: Callable[[], Awaitable[bool]],
        on_lost: Callable[[FencelogError], None],
    ) -> None:
        """Serve at once, in the ledger that the takeover has listed (None: terminated)."""
        self._node = node
        self._factory = factory
        self._ledger = ledger
        self._pipeline = pipeline
        self._reader = reader
        self._config = config
        self._steps = LedgerSteps(node, factory, ledger, is_leader)
        self._closer = LedgerCloser(node, self._steps, pipeline, reader, host=factory.host)
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._wakeup = asyncio.Event()
        self._stopping = False
        self._clock = RollClock(policy, self._wakeup.set)
        self._terminating: asyncio.Future[None] | None = None
        self._deadline = Deadline(config.append_timeout_s, self._on_append_timeout)
        self.lost: FencelogError | None = None
        node.on_lost = self.finish  # whichever part of the log has met another owner's change
        if ledger is None:
            self._end()
        else:
            self._switch(ledger)
        self._task = self._loop.create_task(self._keep(), name=f"writer of {node.path}")

    @property
    def is_serving(self) -> bool:
        return self.lost is None and not self._stopping

    def apply_policy(self, policy: Policy) -> None:
        """From now on; the present ledger rolls by it too."""
        self._factory.replication = policy.replication
        self._clock.apply_policy(policy)

    def want_roll(self) -> None:
        """Go on in a new ledger soon, so that the present one can be let go."""
        self._clock.want()

    @property
    def ledger(self) -> OpenLedger | None:
        """The one that is written; None: the log is terminated."""
        return self._ledger

    async def terminate(self) -> None:
        """Take no append any more, for good; on return the log's end is durable. What had reached
        a ledger is still acknowledged. It goes on if the caller is cancelled. Raises FencelogError:
        why the log has ended; METADATA_UNKNOWN if that was meanwhile.
        """
        if self._ledger is None:
            return
        if self.lost is not None or self._stopping:
            raise copy_of(self.lost or self._closing())
        if self._terminating is None:
            self._terminating = self._loop.create_future()
            self._wakeup.set()
        await asyncio.wait((self._terminating,))
        self._terminating.result()

    async def close(self) -> None:
        """Let appends under way finish, seal the log's last ledger, and end. Never raises.

        What is not finished within ``close_timeout_s`` ends as after a crash: the next owner
        recovers it.
        """
        refusal = self._closing()
        if self._ledger is not None:
            self._pipeline.refusal = refusal
        self._stopping = True
        self._wakeup.set()
        await asyncio.wait((self._task,), timeout=self._config.close_timeout_s)
        await self.abandon(refusal)

    async def abandon(self, error: FencelogError) -> None:
        """End at once. Appends in flight are of unknown outcome. Never raises."""
        self.finish(error)
        self._task.cancel()
        await asyncio.wait((self._task,))
        await self._node.close()
        await self._steps.abandon_all()

    # -- news from the ledger --------------------------------------------------------------------

    def on_ack(self, ledger: OpenLedger) -> None:
        if ledger is not self._ledger or self.lost is not None:
            return
        self._pipeline.acknowledged(ledger.last_confirmed)
        self._reader.confirm(ledger.last_confirmed)
        if self._pipeline.sends_blocked or self._stopping or self._is_roll_due():
            self._wakeup.set()

    def on_failure(self, ledger: OpenLedger) -> None:
        if ledger is not self._ledger or self.lost is not None:
            return
        self._pipeline.sends_blocked = True
        self._deadline.begin()
        self._wakeup.set()

    # -- the task --------------------------------------------------------------------------------

    async def _keep(self) -> None:
        try:
            while not (self._stopping and self._pipeline.is_idle):
                ledger = self._ledger
                if ledger is not None and self._terminating is not None:
                    await self._terminate(ledger)
                elif ledger is not None and ledger.failure is not None:
                    await self._replace_failed(ledger)
                elif ledger is not None and self._is_roll_due() and not self._stopping:
                    await self._roll(ledger)
                else:
                    self._wakeup.clear()
                    await self._wakeup.wait()
            await self._seal_last()
        except LedgerListLost as lost:
            log.info("%s: %s", self._node.path, lost)
            self.finish(lost)
        except FencelogError as error:
            log.error("%s: gives up its log: %s", self._node.path, error)
            self.finish(error)
        except Exception:
            # A broken invariant, or a mistake of ours: nothing may be acknowledged any more.
            log.exception("%s: stops", self._node.path)
            self.finish(FencelogError(ErrorCode.INTERNAL, f"{self._node.path} has stopped"))

    def _is_roll_due(self) -> bool:
        return self._clock.is_due() and len(self._node.ledger_list.segments) < MAX_SEGMENTS

    async def _roll(self, old: OpenLedger) -> None:
        """Create, list, hold until the old ledger is drained, switch, close the old one."""
        try:
            following = await self._steps.create()
            await self._steps.list(following)
        except LedgerListLost:
            raise
        except FencelogError as error:
            log.warning("%s: cannot roll now: %s", self._node.path, error)
            self._clock.postpone()
            return
        await self._closer.drain(old, self._wakeup)
        if old.failure is None:
            facts = self._closer.facts_of(old)
            self._switch(following)
            sealed = await self._closer.close(old, facts)
        else:
            sealed = await self._closer.resolve(old)
            self._switch(following)
        await self._steps.mark_sealed(old.ledger_id, sealed)

    async def _terminate(self, ledger: OpenLedger) -> None:
        """Hold appends, settle what is on its way, close the last ledger and, in one change of the
        ledger list, mark it sealed and the log terminated."""
        self._deadline.begin()
        await self._closer.drain(ledger, self._wakeup)
        if ledger.failure is None:
            sealed = await self._closer.close(ledger, self._closer.facts_of(ledger))
        else:
            sealed = await self._closer.resolve(ledger)
        await self._node.change(
            lambda ledger_list: ledger_list.with_sealed(ledger.ledger_id, sealed).as_terminated()
        )
        self._end()

    def _end(self) -> None:
        """The ledger list says that the log is terminated."""
        self._clock.stop()
        self._deadline.stop()
        self._ledger = None
        error = FencelogError(
            ErrorCode.TOPIC_TERMINATED,
            f"{self._node.path} ends at offset {self._pipeline.tail_offset}",
            tail_offset=self._pipeline.tail_offset,
        )
        self._pipeline.sends_blocked = True
        self._pipeline.refusal = error
        self._pipeline.give_up(error, error)
        self._reader.end()
        if self._terminating is not None:
            self._terminating.set_result(None)

    async def _replace_failed(self, failed: OpenLedger) -> None:
        """Recover the ledger that failed, tell its appends apart, and go on in a new one."""
        sealed = await self._closer.resolve(failed)
        following = await self._steps.retry_until_done(self._steps.create)
        await self._steps.list(
            following, after=lambda ledger_list: ledger_list.with_sealed(failed.ledger_id, sealed)
        )
        self._switch(following)

    async def _seal_last(self) -> None:
        """The graceful end: close the ledger and say so in the ledger list, to spare the next
        owner."""
        ledger = self._ledger
        if ledger is not None:
            sealed = await self._closer.close(ledger, self._closer.facts_of(ledger))
            await self._steps.mark_sealed(ledger.ledger_id, sealed)

    def _switch(self, ledger: OpenLedger) -> None:
        """Everything in the old ledger is settled: go on in this one."""
        self._node.check_held()  # another part of the log may have met another owner meanwhile
        self._deadline.stop()
        if not self._stopping:
            self._pipeline.refusal = None
        self._ledger = ledger
        self._clock.begin(ledger)
        self._reader.begin(ledger.writer)
        ledger.listener = self
        self._pipeline.start_ledger(ledger.writer)
        if ledger.failure is not None:
            self.on_failure(ledger)

    # -- the end ---------------------------------------------------------------------------------

    def _on_append_timeout(self) -> None:
        """The ledger has failed and is not replaced yet, or the log is not terminated yet: callers
        are told, new ones refused meanwhile."""
        terminating = self._terminating is not None
        why = "it is being terminated" if terminating else "its ledger failed and is being replaced"
        detail = f"{self._node.path} cannot be written: {why}"
        error = FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, detail)
        self._pipeline.give_up(error, self._unknown(why))
        if self._pipeline.refusal is None:
            self._pipeline.refusal = error

    def finish(self, error: FencelogError) -> None:
        """Stop serving for good. The next instance takes the log over."""
        if self.lost is not None:
            return
        self.lost = error
        self._clock.stop()
        self._deadline.stop()
        self._pipeline.sends_blocked = True
        self._pipeline.refusal = error
        self._pipeline.give_up(error, self._unknown(error.detail))
        self._pipeline.discard()
        self._reader.close(error)
        if self._terminating is not None and not self._terminating.done():
            why = f"the log may be terminated, or not: {error.detail}"
            self._terminating.set_exception(FencelogError(ErrorCode.METADATA_UNKNOWN, why))
            self._terminating.exception()  # whoever asked may have gone away
        self._on_lost(error)

    def _unknown(self, why: str) -> FencelogError:
        return FencelogError(
            ErrorCode.APPEND_UNKNOWN,
            f"the append reached bookies, but its outcome is not known: {why}",
        )

    def _closing(self) -> FencelogError:
        return FencelogError(ErrorCode.DRAINING, f"{self._node.path} is being closed")
