"""The writing half of a partition's log: the present ledger, its roll, and its replacement.

One task, the keeper, does everything that changes the chain, one thing at a time; appends and
acknowledgements pass it by. Whatever it meets, these hold:

* a roll lists the new ledger while the old one is still written, then holds appends until the old
  one is drained, switches, and closes it; the next roll begins only after that;
* a ledger that failed is recovered first; what recovery found in it is acknowledged, the rest is
  sent to the next ledger;
* a chain that somebody else has changed is never fought over: the instance is finished.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from fencelog.broker.chain import MAX_SEGMENTS, Sealed
from fencelog.broker.chain_node import ChainLost, ChainNode
from fencelog.broker.config import BrokerConfig
from fencelog.broker.ledger_steps import LedgerSteps
from fencelog.broker.log_reader import LogReader
from fencelog.broker.open_ledger import LedgerFactory, OpenLedger
from fencelog.broker.pipeline import AppendPipeline
from fencelog.broker.policy import Policy
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metadata import LedgerMetadata

FENCE_GRACE_S = 0.25
"""Who fenced our ledger is most likely taking over: give it time to write the chain."""

ROLL_RETRY_S = 5.0
"""Pause after a roll that could not begin; the old ledger goes on meanwhile."""

log = logging.getLogger(__name__)


class LogWriter:
    """Writes one partition. ``lost`` is set once the instance is finished."""

    def __init__(
        self,
        node: ChainNode,
        factory: LedgerFactory,
        ledger: OpenLedger,
        pipeline: AppendPipeline,
        reader: LogReader,
        *,
        policy: Policy,
        config: BrokerConfig,
        is_leader: Callable[[], Awaitable[bool]],
        on_lost: Callable[[FencelogError], None],
    ) -> None:
        """Serve at once, in the ledger that the takeover has listed."""
        self._node = node
        self._factory = factory
        self._host = factory.host
        self._ledger = ledger
        self._pipeline = pipeline
        self._reader = reader
        self._policy = policy
        self._config = config
        self._steps = LedgerSteps(node, factory, ledger, is_leader)
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._stopping = False
        self._roll_not_before = 0.0
        self._age_timer: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self.lost: FencelogError | None = None
        node.on_lost = self._finish  # whichever part of the log has met another owner's change
        self._switch(ledger)
        self._keeper = self._loop.create_task(self._keep(), name=f"keeper of {node.path}")

    @property
    def is_serving(self) -> bool:
        return self.lost is None and not self._stopping

    def apply_policy(self, policy: Policy) -> None:
        """From now on; the present ledger rolls by it too."""
        self._policy = policy
        self._factory.replication = policy.replication
        self._watch_age()
        self._news.set()

    async def close(self) -> None:
        """Let appends under way finish, seal the log's last ledger, and end. Never raises.

        What is not finished within ``close_timeout_s`` ends as after a crash: the next owner
        recovers it.
        """
        refusal = FencelogError(ErrorCode.DRAINING, f"{self._node.path} is being closed")
        self._pipeline.refusal = refusal
        self._stopping = True
        self._news.set()
        await asyncio.wait((self._keeper,), timeout=self._config.close_timeout_s)
        await self.abandon(refusal)

    async def abandon(self, error: FencelogError) -> None:
        """End at once. Appends in flight are of unknown outcome. Never raises."""
        self._finish(error)
        self._keeper.cancel()
        await asyncio.wait((self._keeper,))
        await self._node.close()
        await self._steps.abandon_all()

    # -- news from the ledger --------------------------------------------------------------------

    def on_ack(self, ledger: OpenLedger) -> None:
        if ledger is not self._ledger or self.lost is not None:
            return
        self._pipeline.acknowledged(ledger.last_confirmed)
        self._reader.confirm(ledger.last_confirmed)
        if self._pipeline.held or self._stopping or self._is_roll_due():
            self._news.set()

    def on_failure(self, ledger: OpenLedger) -> None:
        if ledger is not self._ledger or self.lost is not None:
            return
        self._pipeline.held = True
        self._patience = self._loop.call_later(self._config.repair_patience_s, self._lose_patience)
        self._news.set()

    # -- the keeper ------------------------------------------------------------------------------

    async def _keep(self) -> None:
        try:
            while not (self._stopping and self._pipeline.is_idle):
                if self._ledger.failure is not None:
                    await self._replace_failed()
                elif self._is_roll_due() and not self._stopping:
                    await self._roll()
                else:
                    self._news.clear()
                    await self._news.wait()
            await self._seal_last()
        except ChainLost as lost:
            log.info("%s: %s", self._node.path, lost)
            self._finish(lost)
        except FencelogError as error:
            log.error("%s: gives up its log: %s", self._node.path, error)
            self._finish(error)
        except Exception:
            # A broken invariant, or a mistake of ours: nothing may be acknowledged any more.
            log.exception("%s: stops", self._node.path)
            self._finish(FencelogError(ErrorCode.INTERNAL, f"{self._node.path} has stopped"))

    def _is_roll_due(self) -> bool:
        now = self._loop.time()
        return (
            now >= self._roll_not_before
            and self._policy.is_roll_due(
                entries=self._ledger.entries,
                size=self._ledger.writer.length,
                age_s=now - self._ledger.opened_at_s,
            )
            and len(self._node.chain.segments) < MAX_SEGMENTS
        )

    async def _roll(self) -> None:
        """Create, list, hold until the old ledger is drained, switch, close the old one."""
        try:
            following = await self._steps.create()
            await self._steps.list(following)
        except ChainLost:
            raise
        except FencelogError as error:
            log.warning("%s: cannot roll now: %s", self._node.path, error)
            self._roll_not_before = self._loop.time() + ROLL_RETRY_S
            self._loop.call_later(ROLL_RETRY_S, self._news.set)
            return
        old, pipeline = self._ledger, self._pipeline
        pipeline.held = True
        while old.failure is None and not pipeline.is_drained:
            self._news.clear()
            await self._news.wait()
        if old.failure is None:
            facts = self._facts_of_present(old.writer.metadata)
            self._switch(following)
            metadata = await self._steps.close(old)
            sealed = replace(facts, size=metadata.length)
            self._reader.seal(metadata, messages=sealed.messages)
        else:
            metadata = await self._resolve(old)
            sealed = self._facts_of_present(metadata)
            self._switch(following)
        await self._steps.mark_sealed(metadata.ledger_id, sealed)

    async def _replace_failed(self) -> None:
        """Recover the ledger that failed, tell its appends apart, and go on in a new one."""
        metadata = await self._resolve(self._ledger)
        sealed = self._facts_of_present(metadata)
        following = await self._steps.insist(self._steps.create)
        await self._steps.list(
            following, after=lambda chain: chain.with_sealed(metadata.ledger_id, sealed)
        )
        self._switch(following)

    async def _seal_last(self) -> None:
        """The graceful end: close the ledger and say so in the chain, to spare the next owner."""
        metadata = await self._steps.close(self._ledger)
        await self._steps.mark_sealed(metadata.ledger_id, self._facts_of_present(metadata))

    def _switch(self, ledger: OpenLedger) -> None:
        """Everything in the old ledger is settled: go on in this one."""
        if self._patience is not None:
            self._patience.cancel()
        if not self._stopping:
            self._pipeline.refusal = None
        self._ledger = ledger
        self._watch_age()
        self._reader.begin(ledger.writer)
        ledger.listener = self
        self._pipeline.start_ledger(ledger.writer)
        if ledger.failure is not None:
            self.on_failure(ledger)

    def _watch_age(self) -> None:
        if self._age_timer is not None:
            self._age_timer.cancel()
        due_s = self._ledger.opened_at_s + self._policy.roll_age_ms / 1000
        if self.lost is None:
            self._age_timer = self._loop.call_at(due_s, self._news.set)

    async def _resolve(self, failed: OpenLedger) -> LedgerMetadata:
        """Recover a failed ledger; acknowledge what is in it, take back what is not.

        If somebody else has fenced it, the chain says in a moment whether the log is still ours.
        """
        log.warning("%s: ledger %d: %s", self._node.path, failed.ledger_id, failed.failure)
        if failed.failure is not None and failed.failure.code is ErrorCode.LEDGER_FENCED:
            await asyncio.sleep(FENCE_GRACE_S)
        await self._steps.check_still_ours()
        metadata = await self._steps.recover(failed)
        failed.last_confirmed = metadata.last_entry_id
        self._pipeline.resolve(metadata.last_entry_id)
        self._reader.confirm(metadata.last_entry_id)
        self._reader.seal(metadata, messages=self._pipeline.messages_in_ledger)
        return metadata

    def _facts_of_present(self, metadata: LedgerMetadata) -> Sealed:
        """What the chain records of the present ledger, in which everything is settled."""
        return Sealed(
            entries=self._ledger.entries,
            messages=self._pipeline.messages_in_ledger,
            size=metadata.length,
            last_publish_us=self._pipeline.settled_publish_us,
            sealed_us=self._host.now_us(),
        )

    # -- the end ---------------------------------------------------------------------------------

    def _lose_patience(self) -> None:
        """A failed ledger is not replaced yet: callers are told, new ones refused meanwhile."""
        error = FencelogError(
            ErrorCode.BOOKIE_UNAVAILABLE,
            f"{self._node.path} cannot be written: its ledger failed and is being replaced",
        )
        self._pipeline.give_up(error, self._unknown("its ledger failed"))
        if self._pipeline.refusal is None:
            self._pipeline.refusal = error

    def _finish(self, error: FencelogError) -> None:
        """This instance serves no more, for good."""
        if self.lost is not None:
            return
        self.lost = error
        for timer in (self._age_timer, self._patience):
            if timer is not None:
                timer.cancel()
        pipeline = self._pipeline
        pipeline.held = True
        pipeline.refusal = error
        pipeline.give_up(error, self._unknown(error.detail))
        pipeline.discard()
        self._reader.close(error)
        self._on_lost(error)

    def _unknown(self, why: str) -> FencelogError:
        return FencelogError(
            ErrorCode.APPEND_UNKNOWN,
            f"the append reached bookies, but its outcome is not known: {why}",
        )
