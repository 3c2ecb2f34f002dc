"""Carries out the steps that ``LogCore`` asks for while a log is open.

Each step either succeeds or leaves a state from which the next attempt, or the next owner, can
complete it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from fencelog.broker.append.pipeline import AppendPipeline
from fencelog.broker.cluster.event_recorder import PartitionEvents
from fencelog.broker.cluster.events_core import EventKind
from fencelog.broker.ledger_list.ledger_list import Commit, LedgerList, Sealed, Segment
from fencelog.broker.ledger_list.open_ledger import LedgerFactory, OpenLedger
from fencelog.broker.ledger_list.store import LedgerListLost, LedgerListStore
from fencelog.broker.log.core import LogCore
from fencelog.broker.log.effects import (
    CheckOwnership,
    CloseLedger,
    CreateLedger,
    Drain,
    Effect,
    EndLog,
    ListLedger,
    LogState,
    Recover,
    Seal,
    Settle,
    Step,
)
from fencelog.broker.log.wakeup import Wakeup
from fencelog.broker.metrics import BrokerCounts
from fencelog.broker.read.log_reader import LogReader
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.metastore.port import Change

_TOO_LONG = (ErrorCode.BAD_REQUEST, ErrorCode.LIMIT_REACHED)
"""Refusals of a list before anything is sent to the metadata store."""


@dataclass(slots=True, eq=False)
class Adoption:
    """The sealed segments that are to join the log with one commit, and the metadata of their
    ledgers; base and publish time follow from the moment at which they do."""

    committer: str
    commit: Commit
    segments: tuple[Segment, ...]
    ledgers: tuple[LedgerMetadata, ...]
    dropped: int | None = None
    """The empty ledger that has left the list with it: to be deleted."""


class StepRunner:
    """Carries out the steps of one log. ``wakeup`` is set when something that a waiting task
    depends on may have changed.

    ``is_leader`` returns False only if another broker is certainly the leader.
    """

    def __init__(
        self,
        core: LogCore,
        node: LedgerListStore,
        factory: LedgerFactory,
        ledger: OpenLedger | None,
        pipeline: AppendPipeline,
        reader: LogReader,
        is_leader: Callable[[], Awaitable[bool]],
        wakeup: Wakeup,
        metrics: BrokerCounts,
        events: PartitionEvents,
    ) -> None:
        self._metrics = metrics
        self._events = events
        self._core = core
        self._node = node
        self._factory = factory
        self._pipeline = pipeline
        self._reader = reader
        self._is_leader = is_leader
        self._wakeup = wakeup
        self.ledgers = {} if ledger is None else {ledger.ledger_id: ledger}
        """The ledgers that the core refers to, by id."""
        self.adoption: Adoption | None = None
        """The segments that the core asks for when it lists a ledger that ``adopts``."""
        self.released: Sequence[Change] = ()
        """The changes to be made when the log is closed, with that of the list."""
        self.has_released = False
        """True once they are made."""
        self._open = list(self.ledgers.values())
        self._listing: OpenLedger | None = None
        """The ledger whose listing was begun, and which is to be deleted if it was refused."""

    async def carry_out(self, step: Step) -> list[Effect]:
        """Carry out the step and report it; return the effects that follow. Raises LedgerListLost,
        or the step's own failure."""
        core = self._core
        match step:
            case CreateLedger():
                ledger = await self._factory.create(self._node.ledger_list.epoch)
                self.ledgers[ledger.ledger_id] = ledger
                self._open.append(ledger)
                return core.created(ledger.ledger_id, opened_at_s=ledger.opened_at_s)
            case ListLedger(ledger_id, seals, adopts):
                adoption = self.adoption if adopts else None
                await self._list(self.ledgers[ledger_id], seals, adoption)
                return core.listed()
            case Drain(ledger_id):
                await self._drain(self.ledgers[ledger_id])
                return core.drained()
            case CloseLedger(ledger_id):
                await self._close(self.ledgers[ledger_id])
                return core.closed()
            case CheckOwnership(after_s):
                if after_s:
                    await asyncio.sleep(after_s)
                await self._check_ownership()
                return core.owned()
            case Recover(ledger_id):
                return await self._recover(self.ledgers[ledger_id])
            case Settle(ledger_id, last_entry_id):
                self._settle(self.ledgers[ledger_id], last_entry_id)
                return core.settled()
            case Seal(ledger_id, closes):
                await self._seal(self.ledgers[ledger_id], closes=closes)
                return core.sealed()
            case EndLog(ledger_id):
                sealed = self._facts_of(ledger_id)
                await self._node.change(
                    lambda ledger_list: ledger_list.with_sealed(ledger_id, sealed).as_terminated()
                )
                self._record(EventKind.TERMINATE, end_offset=self._pipeline.tail_offset)
                return core.ended(tail_offset=self._pipeline.tail_offset)
            case _:
                raise TypeError(f"no step of an open log: {step}")

    async def abandon_all(self) -> None:
        """Abandon every ledger as it is; the next owner recovers them. One whose listing was
        refused is deleted: whoever made that change may have been cancelled when it was."""
        if self._node.lost is not None:
            await self._discard(self._node.lost)
        while self._open:
            await self._open.pop().writer.abandon()

    async def _list(self, ledger: OpenLedger, seals: int | None, adoption: Adoption | None) -> None:
        """Append the ledger to the list. Raises LedgerListLost; BAD_REQUEST, LIMIT_REACHED if the
        list has grown too long."""
        created_us = self._factory.host.now_us()
        if adoption is not None:
            self._complete(adoption)

        def next_of(ledger_list: LedgerList) -> LedgerList:
            if seals is not None:
                ledger_list = ledger_list.with_sealed(seals, self._facts_of(seals))
            if adoption is not None:
                ledger_list = ledger_list.with_adopted(adoption.segments)
                ledger_list = ledger_list.with_commit(adoption.committer, adoption.commit)
            return ledger_list.with_next(ledger_id=ledger.ledger_id, created_us=created_us)

        self._listing = ledger
        try:
            await self._node.change(next_of)
        except LedgerListLost as lost:
            await self._discard(lost)
            raise
        except FencelogError as error:  # it was not made, and may be made again
            self._listing = None
            if seals is None and error.code in _TOO_LONG:  # a roll, for which another follows
                await self._drop(ledger)
            raise
        self._listing = None
        if adoption is None:
            self._metrics.rolls += seals is None
            self._metrics.replaced_ledgers += seals is not None
            kind = EventKind.ROLL if seals is None else EventKind.REPAIR
            self._record(kind, ledger.ledger_id, previous_ledger=self._ledger_before(ledger))
        if seals is not None:
            del self.ledgers[seals]
        if adoption is not None:
            self._adopted(adoption)
            if seals not in self._node.ledger_list.ledgers:
                adoption.dropped = seals

    async def _drop(self, ledger: OpenLedger) -> None:
        """Delete a new ledger that the core forgets."""
        self._open.remove(ledger)
        del self.ledgers[ledger.ledger_id]
        await self._factory.drop(ledger)

    async def _discard(self, lost: LedgerListLost) -> None:
        if self._listing is not None:
            await self._factory.discard(self._listing, lost)
            self._listing = None

    def _complete(self, adoption: Adoption) -> None:
        """Set the offset and the publish time of the segments: they join at the tail, now."""
        pipeline = self._pipeline
        publish_us = max(self._factory.host.now_us(), pipeline.last_publish_us)
        adoption.commit = replace(adoption.commit, offset=pipeline.tail_offset)
        adoption.segments = tuple(
            replace(segment, sealed=replace(segment.sealed, last_publish_us=publish_us))
            for segment in adoption.segments
            if segment.sealed is not None
        )

    def _adopted(self, adoption: Adoption) -> None:
        """Notify readers and the pipeline: the segments are in the log."""
        facts = [segment.sealed for segment in adoption.segments if segment.sealed is not None]
        self._pipeline.adopt(sum(each.messages for each in facts), facts[-1].last_publish_us)
        self._reader.adopt(zip(adoption.segments, adoption.ledgers, strict=True))

    async def _drain(self, ledger: OpenLedger) -> None:
        while ledger.failure is None and not self._pipeline.is_drained:
            self._wakeup.clear()
            await self._wakeup.wait()
        if ledger.failure is None:
            self._note(ledger)

    async def _close(self, ledger: OpenLedger) -> None:
        """Close a drained ledger by its writer.

        It ends at ``last_confirmed``, the last entry that was sent to it: a writer closes at its
        LAC, and accepts no other end as its own. A recovery that closes it instead ends no lower,
        or the core stops, and no higher: there is no later entry.
        """
        metadata = await ledger.writer.close()
        await self._let_go(ledger)
        self._ended(ledger, metadata)

    async def _seal(self, ledger: OpenLedger, *, closes: bool) -> None:
        """Mark a ledger sealed in the list; with ``closes``, close it in the same change, at the
        end that ``_close`` describes, and make the changes of ``released`` with it. Raises
        LedgerListLost; otherwise the list was not changed."""
        ledger_id, also, metadata = ledger.ledger_id, list[Change](), None
        sealed = self._facts_of(ledger_id)
        if closes:
            metadata, change = await ledger.writer.prepare_close()
            sealed = replace(sealed, size=metadata.length)
            also = [] if change is None else [change]
            if self._core.state is LogState.CLOSING:
                also += self.released
        await self._node.change(
            lambda ledger_list: ledger_list.with_sealed(ledger_id, sealed), also=also
        )
        if metadata is not None:
            self.has_released = bool(self.released) and self._core.state is LogState.CLOSING
            await self._let_go(ledger)
            self._ended(ledger, metadata)
        del self.ledgers[ledger_id]

    async def _recover(self, ledger: OpenLedger) -> list[Effect]:
        await self._let_go(ledger)
        metadata = await self._factory.ledgers.recover(ledger.ledger_id)
        effects = self._core.recovered(metadata.last_entry_id)
        self._record(EventKind.RECOVERY, ledger.ledger_id, last_entry=metadata.last_entry_id)
        if ledger.facts is None:
            ledger.closed = metadata
        else:  # it was drained
            self._ended(ledger, metadata)
        return effects

    def _settle(self, failed: OpenLedger, last_entry_id: int) -> None:
        failed.last_confirmed = last_entry_id
        self._pipeline.resolve(last_entry_id)
        self._reader.confirm(last_entry_id)
        self._note(failed)
        assert failed.closed is not None
        self._ended(failed, failed.closed)

    def _note(self, ledger: OpenLedger) -> None:
        """Record the facts that the list will contain about the current ledger, in which everything
        is settled; its size is known when it is closed."""
        pipeline = self._pipeline
        ledger.facts = Sealed(
            entries=ledger.entries,
            messages=pipeline.messages_in_ledger,
            size=0,
            last_publish_us=pipeline.settled_publish_us,
            sealed_us=self._factory.host.now_us(),
            has_producers=pipeline.has_producers,
        )

    def _ended(self, ledger: OpenLedger, metadata: LedgerMetadata) -> None:
        """Complete the facts of a ledger that was closed, and seal it for readers."""
        facts = ledger.facts = replace(self._facts_of(ledger.ledger_id), size=metadata.length)
        self._reader.seal(metadata, messages=facts.messages)

    def _ledger_before(self, ledger: OpenLedger) -> int | None:
        ids = [segment.ledger_id for segment in self._node.ledger_list.segments]
        place = ids.index(ledger.ledger_id)
        return ids[place - 1] if place else None

    def _record(self, kind: EventKind, ledger_id: int | None = None, **detail: int | None) -> None:
        epoch = self._node.ledger_list.epoch
        self._events.record(kind, epoch=epoch, ledger_id=ledger_id, **detail)

    def _facts_of(self, ledger_id: int) -> Sealed:
        facts = self.ledgers[ledger_id].facts
        assert facts is not None
        return facts

    async def _check_ownership(self) -> None:
        """Make sure that this instance still owns the log. Raises LedgerListLost where another
        owner has changed the list, or is about to."""
        await self._node.check_unchanged()
        if not await self._is_leader():
            raise LedgerListLost(self._node.path, self._node.ledger_list)

    async def _let_go(self, ledger: OpenLedger) -> None:
        if ledger in self._open:
            self._open.remove(ledger)
            await ledger.writer.abandon()
