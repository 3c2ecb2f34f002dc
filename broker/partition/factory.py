"""The parts of an open log, and how they are put together after a takeover."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fencelog.broker.append.admission import Admission
from fencelog.broker.append.pending_bytes import PendingBytes
from fencelog.broker.append.pipeline import AppendPipeline
from fencelog.broker.append.producer_access import Access
from fencelog.broker.append.producer_snapshot import ProducerSnapshot
from fencelog.broker.append.producer_table import ProducerTable
from fencelog.broker.append.rates import DispatchRate
from fencelog.broker.cluster.event_recorder import PartitionEvents
from fencelog.broker.config import BrokerConfig
from fencelog.broker.dispatch.cursor_core import Cursors
from fencelog.broker.ledger_list.open_ledger import LedgerFactory, OpenLedger
from fencelog.broker.ledger_list.state_core import PartitionState
from fencelog.broker.ledger_list.state_log import StateLog
from fencelog.broker.ledger_list.store import LedgerListStore
from fencelog.broker.log.core import LogCore
from fencelog.broker.log.log_writer import LogWriter
from fencelog.broker.log.retention import Retention
from fencelog.broker.metrics import BrokerCounts
from fencelog.broker.partition.ownership_check import OwnershipCheck
from fencelog.broker.partition.quiet_check import QuietCheck
from fencelog.broker.partition.takeover import take_over
from fencelog.broker.policy import Policy
from fencelog.broker.read.log_reader import LogReader
from fencelog.broker.read.read_ahead import BrokerReads
from fencelog.broker.read.tail_cache import TailCaches
from fencelog.broker.subscriptions.subscriptions import Subscriptions
from fencelog.broker.subscriptions.table import SubscriptionTable
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.port import Change


class TakenLog:
    """A log that was taken over: its ledger list, the ledger to write (None: it is terminated), and
    the state of the partition."""

    def __init__(
        self,
        node: LedgerListStore,
        factory: LedgerFactory,
        policy: Policy,
        metrics: BrokerCounts,
        events: PartitionEvents,
    ) -> None:
        self.metrics = metrics
        self.events = events
        self.node = node
        self.factory = factory
        self.policy = policy
        self.core = LogCore(node.path, policy)
        self.producers = ProducerTable(policy)
        self.access = Access()
        self.cursors = Cursors()
        self.state = PartitionState((self.producers, self.access, self.cursors))
        self.ledger: OpenLedger | None = None
        self.dropped: frozenset[int] = frozenset()
        """The ledgers that were in the list before the takeover and no longer are: to be
        deleted."""

    async def take(self, owner: str, claim: Sequence[Change]) -> None:
        """Take the log over, see ``take_over``."""
        before, began_us = self.node.ledger_list, self.factory.host.now_us()
        try:
            self.ledger = await take_over(
                self.core,
                self.node,
                self.factory,
                self.state,
                self.producers,
                owner=owner,
                claim=claim,
            )
        except BaseException:
            await self.node.close()
            raise
        after, took_us = self.node.ledger_list, self.factory.host.now_us() - began_us
        self.dropped = before.ledgers - after.ledgers
        self.events.taken_over(before, after, took_us=took_us)


@dataclass(frozen=True, slots=True)
class LogParts:
    """The parts of one open log."""

    pipeline: AppendPipeline
    reader: LogReader
    writer: LogWriter
    state_log: StateLog
    subscriptions: Subscriptions
    retention: Retention
    admission: Admission
    ownership_check: OwnershipCheck
    dispatch: DispatchRate
    quiet: QuietCheck
    factory: LedgerFactory
    reads: BrokerReads


def make_parts(
    log: TakenLog,
    *,
    partition: int,
    config: BrokerConfig,
    pending: PendingBytes,
    caches: TailCaches,
    reads: BrokerReads,
    is_leader: Callable[[], Awaitable[bool]],
    on_lost: Callable[[], None],
    complete_cursors: Callable[[SubscriptionTable], Awaitable[None]],
) -> LogParts:
    """Make the parts of a log; they serve at once."""
    node, factory, policy = log.node, log.factory, log.policy
    ledgers, timeout_s = factory.ledgers, config.append_timeout_s
    state_log = StateLog(node, factory, log.state, timeout_s=timeout_s)
    check = OwnershipCheck(node, timeout_s=timeout_s)
    dispatch = DispatchRate(policy, asyncio.get_running_loop().time)
    reader = LogReader(
        ledgers,
        node.ledger_list,
        caches,
        reads,
        metrics=log.metrics,
    )
    reader.verify_owner_by(check.check_soon)
    subscriptions = _subscriptions(log, reader, state_log, dispatch, partition=partition)
    reader.call_when_tail_moves(subscriptions.tail_moved)
    pipeline = _pipeline(log, reader, state_log, check, partition=partition, pending=pending)
    writer = LogWriter(
        log.core,
        node,
        factory,
        log.ledger,
        pipeline,
        reader,
        config=config,
        is_leader=is_leader,
        on_lost=on_lost,
        metrics=log.metrics,
        events=log.events,
    )
    state_log.call_when_stopped(writer.finish)
    admission = Admission(pipeline, policy)
    retention = _retention(
        log, writer, pipeline, reader, subscriptions, state_log, admission, complete_cursors
    )
    log_parts = (pipeline, reader, writer, state_log, subscriptions)
    checks = (retention, admission, check, dispatch, QuietCheck(node, reader))
    return LogParts(*log_parts, *checks, factory, reads)


async def write_state(
    log: TakenLog, parts: LogParts, abandon: Callable[[FencelogError], Awaitable[None]]
) -> None:
    """Write the state anew if the state log says something of messages that the log does not have:
    before anything can be appended in their place. Raises STATE_UNKNOWN; ``abandon`` has ended the
    log then."""
    if not log.state.is_rewound:
        return
    try:  # any event does: the snapshot with which a new owner begins contains it
        await parts.state_log.record(["producers", [], [], log.producers.end_offset])
    except BaseException as error:
        gone = FencelogError(ErrorCode.NO_OWNER, f"{log.node.path} was not opened")
        await abandon(error if isinstance(error, FencelogError) else gone)
        raise


def _subscriptions(
    log: TakenLog,
    reader: LogReader,
    state_log: StateLog,
    rate: DispatchRate,
    *,
    partition: int,
) -> Subscriptions:
    return Subscriptions(
        reader,
        state_log,
        log.cursors,
        log.policy,
        log.factory.host,
        partition=partition,
        epoch=log.node.ledger_list.epoch,
        rate=rate,
        metrics=log.metrics,
    )


def _pipeline(
    log: TakenLog,
    reader: LogReader,
    state_log: StateLog,
    ownership_check: OwnershipCheck,
    *,
    partition: int,
    pending: PendingBytes,
) -> AppendPipeline:
    return AppendPipeline(
        partition,
        log.core.mode,
        tail_offset=reader.tail_offset,
        last_publish_us=log.node.ledger_list.last_publish_us,
        now_us=log.factory.host.now_us,
        on_stored=reader.stored,
        broker_pending=pending,
        producers=log.producers,
        access=log.access,
        record=state_log.recorded,
        check_owner=ownership_check.check_soon,
        metrics=log.metrics,
    )


def _retention(
    log: TakenLog,
    writer: LogWriter,
    pipeline: AppendPipeline,
    reader: LogReader,
    subscriptions: Subscriptions,
    state_log: StateLog,
    admission: Admission,
    complete_cursors: Callable[[SubscriptionTable], Awaitable[None]],
) -> Retention:
    return Retention(
        log.node,
        writer,
        pipeline,
        reader,
        log.factory.ledgers,
        policy=log.policy,
        host=log.factory.host,
        cursors=subscriptions,
        ensure_persisted=ProducerSnapshot(log.producers, state_log).ensure_persisted,
        over_quota=admission.over_quota,
        complete_cursors=partial(complete_cursors, subscriptions),
        unlisted=log.dropped,
        metrics=log.metrics,
        events=log.events,
    )
