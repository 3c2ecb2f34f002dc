"""One partition as one broker sees it: owned and open here, owned elsewhere, or without an
owner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from fencelog.broker.cluster.event_recorder import short
from fencelog.broker.cluster.events_core import EventKind
from fencelog.broker.cluster.load import Meter
from fencelog.broker.ledger_list.store import LedgerChanged, LedgerListLost
from fencelog.broker.partition.broker_services import BrokerServices
from fencelog.broker.partition.forwards import ForwardedAppends
from fencelog.broker.partition.owner_node import OwnerNode
from fencelog.broker.partition.ownership import NotOwner
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.registry.topics import TopicInfo
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError, copy_of

T = TypeVar("T")


@dataclass(slots=True)
class Opening:
    """The attempts to open a partition since the last success. ``began_us``: the first one;
    ``error``: why the last one has failed (empty: none has)."""

    began_us: int
    error: str = ""


TAKEOVER_ATTEMPTS = 4
"""Attempts of one opening. A previous owner changes the list at most once more before it meets the
fence."""

_ELSEWHERE = (ErrorCode.NOT_OWNER, ErrorCode.DRAINING, ErrorCode.TOPIC_NOT_FOUND)
"""The errors of an opening that is no business of this broker."""

log = logging.getLogger(__name__)


class PartitionSlot:
    """The place of one partition in a broker: opens it once for all simultaneous callers, and
    closes it.

    A failed opening is forgotten: the next request tries again. ``meter`` and ``opened_at_s`` (on
    the loop's clock) are of the open log.
    """

    __slots__ = (
        "_closed",
        "_disposing",
        "_events",
        "_is_offering",
        "_log",
        "_move",
        "_moved",
        "_opening",
        "_owner",
        "_services",
        "info",
        "meter",
        "opened_at_s",
        "opening",
        "partition",
    )

    def __init__(self, info: TopicInfo, partition: int, services: BrokerServices) -> None:
        self.info = info
        self.partition = partition
        self.meter = Meter()
        self.opened_at_s = 0.0
        self.opening: Opening | None = None
        """The attempts to open it that have not succeeded yet."""
        self._services = services
        self._events = services.events.of_partition(info.name, info.topic_id, partition)
        self._owner = OwnerNode(
            services.ownership,
            info.topic_id,
            partition,
            holder=self,
            is_registered=services.others.is_registered,
        )
        self._log: PartitionLog | None = None
        self._opening: asyncio.Task[PartitionLog] | None = None
        self._is_offering = False
        """True while another broker is asked to open it."""
        self._disposing: asyncio.Task[None] | None = None
        self._move: asyncio.Task[str | None] | None = None
        self._moved: asyncio.Event | None = None
        self._closed: FencelogError | None = None

    def __str__(self) -> str:
        return f"partition {self.partition} of {self.info.name}"

    @property
    def open_log(self) -> PartitionLog | None:
        """The log, if it is open and serves."""
        found = self._log
        return found if found is not None and found.is_serving else None

    @property
    def held_log(self) -> PartitionLog | None:
        """The log, if it is held here. It may have ended in this turn of the event loop: for
        figures of all partitions, of which each costs as little as can be."""
        return self._log

    @property
    def is_here(self) -> bool:
        """Tell whether the log is open here, or being opened."""
        return self._log is not None or self._opening is not None

    @property
    def is_moving(self) -> bool:
        """Tell whether it is on its way to another broker."""
        return self._move is not None

    @property
    def forwarded_appends(self) -> ForwardedAppends | None:
        """The single messages in flight to the owner, if that is another broker and known."""
        if self._moved is not None or self._closed is not None or self.is_here:
            return None
        return self._owner.forwarded_appends

    async def log(self, *, take: bool = False) -> PartitionLog:
        """Return the open log. ``take``: another broker has chosen this one, so this broker does
        not choose again. Raises NotOwner, or why it could not be opened: two brokers that offer the
        partition to each other do not wait for each other (NO_OWNER)."""
        while self._moved is not None:
            await self._moved.wait()
        if self._closed is not None:
            raise copy_of(self._closed)
        found = self.open_log
        if found is not None:
            return found
        if self._owner.other is not None and not take:  # the result of the watch may be out of date
            raise NotOwner(str(self), self._owner.other)
        if take and self._is_offering:
            raise FencelogError(ErrorCode.NO_OWNER, f"{self} is being offered to another broker")
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.get_running_loop().create_task(
                self._open(take=take), name=f"opening {self}"
            )
            opening.add_done_callback(self._opened)
        # The caller may go away; the others, and the next, still want the log.
        await asyncio.wait((opening,))
        if opening.cancelled():
            raise copy_of(self._closed or self._let_go())
        return opening.result()

    def topic_changed(self, info: TopicInfo) -> None:
        """Apply the topic's settings, its own or those it inherits, which have changed."""
        self.info = info
        if self._log is not None:
            self._log.apply_policy(info.policy)

    async def transfer(self, to: str | None = None) -> str | None:
        """Finish appends, seal the log, give up the owner node, and have another broker open it.

        Return the id of the broker that took it, None if none did: then the next request may open
        it. Requests wait meanwhile, until another owner is seen. The transfer continues if the
        caller is cancelled; another call waits for the same transfer. Never raises FencelogError.
        """
        move = self._move
        if move is None:
            if self._closed is not None:
                return None
            self._moved = asyncio.Event()
            move = self._move = asyncio.get_running_loop().create_task(
                self._transfer(to), name=f"handing over {self}"
            )
        await asyncio.wait((move,))
        return None if move.cancelled() else move.result()

    async def _transfer(self, to: str | None) -> str | None:
        try:
            if self._opening is not None:
                await asyncio.wait((self._opening,))
            open_log = self._give_up_log()
            if open_log is None and self._owner.other is not None:
                return await self._owner.find_other()  # the opening has found it; its watch stays
            is_released, release = False, self._owner.releasing()
            self._owner.close()  # of what follows here, nothing need be reported
            if open_log is not None:
                try:
                    is_released = await open_log.close(release)
                except asyncio.CancelledError:
                    await open_log.abandon(self._let_go())
                    raise
            taker = None
            if self._owner.other is None:
                await self._owner.release(is_done=is_released)
                taker = await self._services.others.offer(self.info.name, self.partition, to=to)
            # A request of another caller may have reached another one.
            return taker or await self._owner.find_other()
        finally:
            self._move = None
            self.owner_seen()

    async def check_free(self) -> None:
        """Check that no other broker owns the partition. Raises NotOwner if one does;
        METADATA_UNAVAILABLE."""
        await self._owner.check_free()

    async def close(self, error: FencelogError | None = None) -> None:
        """Release the partition: finish appends (or, with ``error``, drop them), seal the log, give
        up the owner node. Never raises."""
        self._closed = error or self._let_go()
        is_released, release = False, self._owner.releasing()
        self._owner.close()
        for task in (self._opening, self._move):
            if task is not None:
                task.cancel()
                await asyncio.wait((task,))
        self.owner_seen()  # a move that was cancelled before it began has notified no request
        open_log = self._give_up_log()
        if open_log is not None:
            if error is None:
                is_released = await open_log.close(release)
            else:
                await open_log.abandon(error)
        if self._disposing is not None:
            await asyncio.wait((self._disposing,))
        await self._owner.release(is_done=is_released)

    def forget_owner(self, url: str) -> None:
        """Forget the owner at ``url``, which is dead or answers that it is none: the metadata are
        read again at the next request."""
        self._owner.forget(url)

    async def while_owner(self, url: str, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``work()``, see ``OwnerNode.while_owner``."""
        return await self._owner.while_owner(url, work)

    def _let_go(self) -> FencelogError:
        return FencelogError(ErrorCode.NO_OWNER, f"{self} was closed here")

    def _hold(self, log: PartitionLog) -> None:
        """Take this log, which was opened just now, as the slot's own."""
        self._give_up_log()
        self._log = log
        self.meter.restart()
        self._services.open_partitions.opened(self, log)

    def _give_up_log(self) -> PartitionLog | None:
        """Return the log, which is this slot's no longer; None: there is none."""
        found, self._log = self._log, None
        if found is not None:
            self._services.open_partitions.closed(self, found)
        return found

    # -- opening ---------------------------------------------------------------------------------

    def _opened(self, opening: asyncio.Task[PartitionLog]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # the callers get it; there may be none any more

    async def _open(self, *, take: bool) -> PartitionLog:
        services = self._services
        timeout_s = services.config.open_timeout_s
        opening = self.opening = self.opening or Opening(services.host.now_us())
        try:
            async with services.gate.turn(), asyncio.timeout(timeout_s):
                if self._disposing is not None:  # it releases the node, not a later one
                    await asyncio.wait((self._disposing,))
                await self._choose(take=take)
                began_us = services.host.now_us()
                try:
                    opened = await self._win()
                except BaseException as error:
                    services.metrics.takeovers_failed += not isinstance(error, NotOwner)
                    if isinstance(error, FencelogError) and error.code not in _ELSEWHERE:
                        self._failed(opening, error)
                    await self._owner.release()
                    raise
                self._hold(opened)
        except TimeoutError:
            late = f"it could not be opened within {timeout_s:g} s"
            self._failed(opening, FencelogError(ErrorCode.NO_OWNER, late))
            raise FencelogError(ErrorCode.NO_OWNER, f"{self}: {opening.error}") from None
        except FencelogError as error:
            opening.error = error.detail
            if error.code in _ELSEWHERE:
                self.opening = None
            if error.code.effects is Effects.NONE:
                raise
            # The outcome of the opening is unknown; of the caller's request, nothing is done.
            raise FencelogError(
                ErrorCode.NO_OWNER, f"{self} could not be opened: {error.detail}"
            ) from error
        self.opening = None
        services.metrics.takeover_time.observe_us(services.host.now_us() - began_us)
        opened.apply_policy(self.info.policy)  # it may have changed meanwhile
        self.opened_at_s = asyncio.get_running_loop().time()
        services.others.taken()
        self._owner.keep()
        log.info("%s: opened, epoch %d", self, opened.epoch)
        return opened

    def _failed(self, opening: Opening, error: FencelogError) -> None:
        """Note why an attempt has failed. The first one since the last success is an event: the
        next request tries again, a thousand times if need be."""
        if not opening.error:
            self._events.record(EventKind.TAKEOVER_FAILED, error=short(error))
        opening.error = error.detail

    async def _choose(self, *, take: bool) -> None:
        """Have another broker open the partition, if it has no owner and another broker should own
        it.

        Raises NotOwner if it has an owner now; DRAINING if it has none and may not be taken here.
        """
        others = self._services.others
        if not take and others.is_elsewhere:
            await self._owner.check_free()
            self._is_offering = True
            try:
                await others.offer(self.info.name, self.partition)
            finally:
                self._is_offering = False
            await self._owner.check_free()
        others.check_may_take()

    async def _win(self) -> PartitionLog:
        """Take the log over; if its list changed meanwhile, or another broker came to own the
        partition, start again (seed 001): the previous owner was rolling, or it has lost the log,
        or the owner that is found now gets the request. Raises NotOwner."""
        for _ in range(TAKEOVER_ATTEMPTS - 1):
            try:
                return await self._take_over()
            except (LedgerListLost, LedgerChanged) as error:
                self._services.metrics.ledger_list_conflicts += 1
                self._events.record(EventKind.CONFLICT, error=short(error))
                if error.code is not ErrorCode.NO_OWNER:
                    raise
                log.info("%s: starts again: %s", self, error)
        return await self._take_over()

    async def _take_over(self) -> PartitionLog:
        services = self._services
        node = await services.topics.open_ledger_list(self.info, self.partition)
        # In this order: an owner's node appears together with its ledger. So if there is no node
        # now, this list has no ledger of an owner that has one, and what is fenced here disturbs
        # none, however many brokers do the same, and however far behind the store's server is.
        claim = await self._owner.claiming()
        taken = await PartitionLog.open(
            node,
            services.ledgers,
            partition=self.partition,
            policy=self.info.policy,
            host=services.host,
            config=services.config,
            broker_pending=services.pending,
            broker_caches=services.caches,
            broker_reads=services.reads,
            bookie_addresses=services.bookie_addresses,
            is_leader=self._is_leader,
            on_lost=self._on_lost,
            complete_cursors=partial(services.complete_cursors, self.info.topic_id),
            metrics=services.metrics,
            events=self._events,
            claim=claim,
        )
        self._owner.claimed()
        return taken

    async def _is_leader(self) -> bool:
        return await self._owner.is_ours_as_far_as_known()

    # -- events of other brokers -----------------------------------------------------------------

    @property
    def is_serving(self) -> bool:
        return self.open_log is not None and self._closed is None

    def owner_seen(self) -> None:
        """Release the requests that wait for a transfer, since another broker owns the partition:
        they are sent there."""
        if self._moved is not None:
            self._moved.set()
            self._moved = None

    async def check_log(self) -> None:
        if self._log is not None:
            await self._log.check_unchanged()

    def lost_to(self, error: NotOwner) -> None:
        """Close the log: another broker's node has replaced ours."""
        self._dispose(error)

    def _on_lost(self) -> None:
        """Dispose of the log, which has ended by itself or is being closed."""
        self._dispose(FencelogError(ErrorCode.NO_OWNER, f"{self} was lost"))

    def _dispose(self, error: FencelogError) -> None:
        lost = self._give_up_log()
        if lost is not None:
            self._disposing = asyncio.get_running_loop().create_task(self._abandon(lost, error))

    async def _abandon(self, lost: PartitionLog, error: FencelogError) -> None:
        await lost.abandon(error)
        await self._owner.release()
