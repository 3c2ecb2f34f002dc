"""One partition's log, as its owner serves it: append at the tail, read anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from fencelog.broker.append.access_changes import AccessChanges
from fencelog.broker.append.conditions import AppendFuture
from fencelog.broker.append.pending_bytes import PendingBytes
from fencelog.broker.append.rates import DispatchLimit
from fencelog.broker.cluster.event_recorder import NO_EVENTS, PartitionEvents
from fencelog.broker.commits.commits import Commits
from fencelog.broker.compaction.compacted_view import CompactedView
from fencelog.broker.compaction.compaction import LogCompaction
from fencelog.broker.config import BrokerConfig
from fencelog.broker.ledger_list.ledger_port import Ledgers
from fencelog.broker.ledger_list.open_ledger import LedgerFactory
from fencelog.broker.ledger_list.store import LedgerListLost, LedgerListStore
from fencelog.broker.limits import MAX_VIEWED_SUBSCRIPTIONS
from fencelog.broker.log.backlog_core import bytes_from, published_about_us
from fencelog.broker.log.log_writer import UnfinishedStep
from fencelog.broker.metrics import BrokerCounts
from fencelog.broker.partition.describe import describe_log
from fencelog.broker.partition.factory import LogParts, TakenLog, make_parts, write_state
from fencelog.broker.partition.ledger_view_core import OpenPart, describe_ledgers
from fencelog.broker.policy import Policy
from fencelog.broker.read.read_ahead import BrokerReads
from fencelog.broker.read.stored import ReadLimits, ReadResult
from fencelog.broker.read.tail_cache import TailCaches
from fencelog.broker.subscriptions.table import SubscriptionTable
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.request_context import Contexts
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.model import to_json
from fencelog.ledgers.metastore.port import Change


async def _always() -> bool:
    return True


async def _has_all(subscriptions: SubscriptionTable) -> None:
    """Return at once: without a registry the cursors in the log are all."""


class PartitionLog:
    """An open log. Made by ``open``; ended by ``close`` or, when it lost its ledger list, by
    itself."""

    def __init__(
        self,
        node: LedgerListStore,
        parts: LogParts,
        bookie_addresses: Callable[[], dict[str, str]],
        *,
        close_timeout_s: float,
    ) -> None:
        self._close_timeout_s = close_timeout_s
        self._closing = False
        self.retention = parts.retention
        self.policy = parts.retention.policy
        self._admission = parts.admission
        self._dispatch = parts.dispatch
        self._bookie_addresses = bookie_addresses
        self._node = node
        pipeline = self._pipeline = parts.pipeline
        self._reader = parts.reader
        self._writer = parts.writer
        self._state_log = parts.state_log
        self.subscriptions = parts.subscriptions
        self._factory = parts.factory
        self._reads = parts.reads
        # Most logs never need these.
        self._compaction: LogCompaction | None = None
        self._access: AccessChanges | None = None
        self._commits: Commits | None = None
        self._ownership_check = parts.ownership_check
        self.quiet_check = parts.quiet
        self.check_owner = parts.reader.check_owner
        """Verify that this is still the owner, see ``LogReader.check_owner``."""
        self.terminate = parts.writer.terminate
        """Terminate the log for good, see ``LogWriter.terminate``."""
        # The hot path, bound once.
        self.fetch = parts.reader.read
        """Read as ``read`` does, without a rate limit."""
        self.append_message = pipeline.append_message
        """Append one message, if its conditions hold. The future gives ``AppendResult`` once the
        message is durable, in log order. It fails with FencelogError: APPEND_UNKNOWN (it may be in
        the log); OVERLOADED, NO_OWNER, DRAINING, BOOKIE_UNAVAILABLE, TOPIC_NOT_FOUND,
        PAYLOAD_TOO_LARGE, SEQUENCE_MISMATCH, PRODUCER_FENCED, PRODUCER_BUSY, PRECONDITION_FAILED
        (it is not)."""
        self.append_batch = pipeline.append_batch
        """Append a record batch that passed ``check_batch``: all of it at consecutive offsets, or
        nothing. Futures as for ``append_message``; ``AppendResult.count`` is the batch's."""

    @classmethod
    async def open(
        cls,
        node: LedgerListStore,
        ledgers: Ledgers,
        *,
        partition: int,
        policy: Policy,
        host: Host,
        config: BrokerConfig,
        broker_pending: PendingBytes | None = None,
        broker_caches: TailCaches | None = None,
        broker_reads: BrokerReads | None = None,
        bookie_addresses: Callable[[], dict[str, str]] = dict,
        is_leader: Callable[[], Awaitable[bool]] = _always,
        on_lost: Callable[[], None] = lambda: None,
        complete_cursors: Callable[[SubscriptionTable], Awaitable[None]] = _has_all,
        metrics: BrokerCounts | None = None,
        events: PartitionEvents = NO_EVENTS,
        claim: Sequence[Change] = (),
    ) -> PartitionLog:
        """Take the log over (``takeover``) and serve it.

        ``node`` was loaded; ``claim`` is made together with the change of the list. ``is_leader``
        is called before a failed ledger is replaced, ``on_lost`` is called once when the log has
        ended; ``complete_cursors`` opens the cursors that the registry of subscriptions has and the
        log has not. Raises FencelogError: LedgerListLost when another owner was faster,
        RECOVERY_INCOMPLETE, NOT_ENOUGH_BOOKIES, METADATA_….
        """
        factory = LedgerFactory(ledgers, policy.replication, host, node.path.removeprefix("/logs/"))
        taken = TakenLog(node, factory, policy, metrics or BrokerCounts(), events)
        await taken.take(config.broker_id, claim)
        parts = make_parts(
            taken,
            partition=partition,
            config=config,
            pending=broker_pending or PendingBytes(),
            caches=broker_caches or TailCaches(),
            reads=broker_reads or BrokerReads(),
            is_leader=is_leader,
            on_lost=on_lost,
            complete_cursors=complete_cursors,
        )
        log = cls(node, parts, bookie_addresses, close_timeout_s=config.close_timeout_s)
        await write_state(taken, parts, log.abandon)
        return log

    def apply_policy(self, policy: Policy) -> None:
        """Apply these settings from now on; their replication is that of ledgers created from now
        on."""
        if policy != self.policy:
            self.policy = policy
            self.subscriptions.policy = policy
            self.retention.policy = policy
            self._admission.apply_policy(policy)
            self._dispatch.apply_policy(policy)
            self._writer.apply_policy(policy)
            self._pipeline.conditional.producers.policy = policy

    def follow(self, future: AppendFuture, contexts: Contexts) -> None:
        """Name the requests of an append that was made just now, see ``AppendPipeline.follow``."""
        self._pipeline.follow(future, contexts)

    @property
    def compaction(self) -> LogCompaction:
        """The compaction of the log."""
        if self._compaction is None:
            node, factory, reader, reads = self._node, self._factory, self._reader, self._reads
            view = CompactedView(node, factory.ledgers, reader, reads, self._dispatch)
            self._compaction = LogCompaction(node, factory, reader, view, reads.steps)
        return self._compaction

    @property
    def access(self) -> AccessChanges:
        """The fencing token and exclusive producer, and their changes."""
        if self._access is None:
            self._access = AccessChanges(self._pipeline.conditional, self._state_log)
        return self._access

    @property
    def commits(self) -> Commits:
        """The ledgers that others write for the log."""
        if self._commits is None:
            self._commits = Commits(
                self._node,
                self._factory,
                self._writer,
                self._pipeline,
                self._reader,
                self.access,
                self._admission,
            )
        return self._commits

    @property
    def partition(self) -> int:
        return self._pipeline.partition

    @property
    def name(self) -> str:
        """The name of the log, ``TOPIC_ID/PARTITION``."""
        return self._node.path.removeprefix("/logs/")

    @property
    def epoch(self) -> int:
        """The epoch, which grows with every takeover of the log."""
        return self._node.ledger_list.epoch

    @property
    def is_serving(self) -> bool:
        """Tell whether the log serves: False once it was lost or is being closed; it never becomes
        true again."""
        return self._writer.is_serving and not self._closing

    @property
    def topic_id(self) -> str:
        return self._node.topic_id

    @property
    def earliest_offset(self) -> int:
        return self._reader.earliest_offset

    @property
    def tail_offset(self) -> int:
        """The offset that the next message will get: everything below is durable."""
        return self._reader.tail_offset

    @property
    def bytes_in(self) -> int:
        """The bytes of batches that were acknowledged since the log was opened."""
        return self._reader.bytes_in

    @property
    def bytes_out(self) -> int:
        """The bytes of batches that were read through this broker since the log was opened."""
        return self._reader.bytes_out

    @property
    def pending_bytes(self) -> int:
        return self._pipeline.pending_bytes

    async def read(self, offset: int, limits: ReadLimits) -> ReadResult:
        """Return batches from the one that holds ``offset``; see ``LogReader.read``. The rate of
        reads counts no more than ``max_messages`` from ``offset`` on.

        Raises OFFSET_BEYOND_TAIL, OFFSET_TRIMMED, RATE_LIMITED, READ_UNKNOWN, CORRUPT, NO_OWNER,
        DRAINING.
        """
        asked, dispatch = limits, self._dispatch.limit
        if dispatch is not None:
            limits = await dispatch.admit(asked)
        result = await self._reader.read(offset, limits)
        if dispatch is not None:
            dispatch.charge(result, offset, asked.max_messages)
        return result

    @property
    def dispatch_limit(self) -> DispatchLimit | None:
        """The limit of the rate of reads, for who reads by ``fetch``; None: there is none."""
        return self._dispatch.limit

    @property
    def is_terminated(self) -> bool:
        """Tell whether no message is ever appended again: ``tail_offset`` is the end."""
        return self._reader.has_ended

    def internals(self) -> dict[str, Any]:
        """Return a description of the log, JSON-compatible, see ``describe_log``."""
        return {"compaction": self.compaction.status()} | describe_log(
            self._node.ledger_list,
            self.retention.extents(),
            self._pipeline,
            self._admission,
            self.subscriptions,
        )

    def view(self, *, limit: int, before: int | None) -> dict[str, Any]:
        """Return the ledgers of the log for people, JSON-compatible: a window of them
        (``describe_ledgers``), what retention cuts next, and the subscriptions by id, the slowest
        first, with what is left out of them as ``more_subscriptions``."""
        ledger, tail = self._writer.ledger, self.tail_offset
        written = None
        if ledger is not None:
            length = ledger.writer.length
            written = OpenPart(ledger.ledger_id, ledger.last_confirmed, length)
        ledger_list = self._node.ledger_list
        slowest = sorted(self.subscriptions.backlogs(), key=lambda each: each.acked_to)
        extents = self.retention.extents()
        return {
            "owner": ledger_list.owner,
            "epoch": ledger_list.epoch,
            "earliest_offset": self.earliest_offset,
            "tail_offset": tail,
            "last_publish_us": self._pipeline.settled_publish_us,
            "terminated": ledger_list.terminated,
            "size": sum(part.size for part in extents),
            "pending_bytes": self.pending_bytes,
            **describe_ledgers(ledger_list, written, tail_offset=tail, limit=limit, before=before),
            "next_cut": asdict(self.retention.next_cut()),
            "compaction": self.compaction.status(),
            "subscriptions": [
                self.subscriptions.cursor_view(each.subscription_id)
                | {"backlog_bytes": bytes_from(extents, each.acked_to)}
                for each in slowest[:MAX_VIEWED_SUBSCRIPTIONS]
            ],
            "more_subscriptions": max(0, len(slowest) - MAX_VIEWED_SUBSCRIPTIONS),
        }

    async def check_unchanged(self) -> None:
        """Check whether another owner has taken the log over; it ends here if so. Waits out a store
        that cannot be reached."""
        with suppress(LedgerListLost):  # on_lost has reported the end already
            await self._node.check_unchanged()

    async def offset_for_time(self, time_us: int) -> int:
        """Return the first offset whose publish time is at or after ``time_us`` (µs since 1970
        UTC), the tail if there is none, in O(log n) reads. Raises FencelogError as ``read``."""
        return await self._reader.offset_for_time(time_us)

    def stored_bytes(self) -> int:
        """Return the payload bytes of the messages' ledgers."""
        return sum(part.size for part in self.retention.extents())

    def backlog_of(self, offset: int) -> tuple[int, int | None]:
        """Return the bytes from ``offset`` on, and when the message there was published: both
        estimated by ``backlog_core`` where memory does not say."""
        parts, segments = self.retention.extents(), self._node.ledger_list.segments
        published_us = self._reader.publish_us_in_memory(offset)
        if published_us is None and segments:
            began_us = segments[0].created_us
            published_us = published_about_us(parts, offset, began_us=began_us)
        return bytes_from(parts, offset), published_us

    @property
    def unfinished_step(self) -> UnfinishedStep | None:
        """The change of the list of ledgers that is not finished: a roll, a repair, an end."""
        return self._writer.unfinished

    async def segments(
        self, from_offset: int = 0, *, confirmed: bool = False, refresh: int | None = None
    ) -> dict[str, Any]:
        """Return the ranges for readers that read from the bookies directly, JSON-compatible:
        ``topic_id``, ``partition``, ``earliest_offset``, ``end_offset`` (everything below is
        confirmed), ``segments`` (ranges of ledger entries with ``from_offset`` and what follows)
        and ``bookies`` (addresses by id).

        ``confirmed``: nothing that was acknowledged before the call is missing, because the owner
        verifies that it is one. ``refresh``: read the metadata of this ledger anew. Raises
        FencelogError: NO_OWNER, DRAINING, TOPIC_NOT_FOUND, METADATA_….
        """
        if confirmed:
            await self.check_owner()
        if refresh is not None:
            await self._reader.refresh(refresh)
        ranges = await self._reader.segments(from_offset)
        return {
            "topic_id": self.topic_id,
            "partition": self.partition,
            **ranges,
            "bookies": self._bookie_addresses(),
        }

    async def lend_ledger(self, committer: str) -> dict[str, Any]:
        """Make a ledger for a committer to write (``Commits.create``); return, JSON-compatible, its
        metadata ``ledger``, the ``incarnations`` of its ensemble, and ``bookies`` (addresses by
        id)."""
        made = await self.commits.create(committer)
        return {
            "ledger": to_json(made.metadata),
            "incarnations": made.incarnations,
            "bookies": self._bookie_addresses(),
        }

    async def close(self, release: Sequence[Change] = ()) -> bool:
        """Let appends in flight finish, seal the last ledger, close the state ledger, end: one
        change, since the partition's requests wait for it. Never raises. ``release``: see
        ``LogWriter.close``."""
        self._closing = True
        self._admission.close()
        await self._ownership_check.close()
        if self._compaction is not None:
            await self._compaction.close()
        closed = FencelogError(ErrorCode.DRAINING, "the log was closed")
        closes_state: Sequence[Change] = ()
        try:
            async with asyncio.timeout(self._close_timeout_s):
                closes_state = await self._state_log.prepare_close()
        except TimeoutError:
            await self._state_log.abandon(closed)
        if self._access is not None:
            self._access.close()
        is_made = await self._writer.close([*release, *closes_state])
        if not is_made:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._close_timeout_s):
                    await self._state_log.close()
        await self._state_log.abandon(closed)
        await self.subscriptions.close()
        return is_made and bool(release)

    async def abandon(self, error: FencelogError) -> None:
        """End at once, as after a crash; callers get ``error`` or APPEND_UNKNOWN. Never raises."""
        self._admission.close()
        await self._ownership_check.close()
        if self._compaction is not None:
            await self._compaction.close()
        await self._state_log.abandon(error)
        if self._access is not None:
            self._access.close()
        await self._writer.abandon(error)
        await self.subscriptions.close()
