"""One partition as one broker sees it: owned and open here, owned elsewhere, or nobody's yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fencelog.broker.chain_node import ChainLost
from fencelog.broker.config import BrokerConfig
from fencelog.broker.ledger_port import Ledgers
from fencelog.broker.ownership import NotOwner, Owner, Ownership
from fencelog.broker.partition_log import PartitionLog
from fencelog.broker.pending import PendingBytes, copy_of
from fencelog.broker.tail_cache import TailCaches
from fencelog.broker.topics import TopicInfo, TopicRegistry
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metadata_store import Watch

RECLAIM_RETRY_S = 1.0
"""Pause between attempts to put a lost owner node back."""

TAKEOVER_ATTEMPTS = 4
"""Of one opening. A former owner changes the list once more at most before it meets the fence."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """What the partitions of one broker share."""

    topics: TopicRegistry
    ledgers: Ledgers
    ownership: Ownership
    host: Host
    config: BrokerConfig
    bookie_addresses: Callable[[], dict[str, str]]
    pending: PendingBytes = field(default_factory=PendingBytes)
    caches: TailCaches = field(default_factory=TailCaches)


class PartitionSlot:
    """Opens a partition once for all who ask at the same time, and looks after its owner node.

    A failed opening is forgotten: the next request tries again.
    """

    def __init__(self, info: TopicInfo, partition: int, services: BrokerServices) -> None:
        self.info = info
        self.partition = partition
        self._services = services
        self._log: PartitionLog | None = None
        self._opening: asyncio.Task[PartitionLog] | None = None
        self._other: Owner | None = None
        self._watch: Watch | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_disowned = False
        self._closed: FencelogError | None = None

    @property
    def open_log(self) -> PartitionLog | None:
        """The log, if it is open and serves."""
        found = self._log
        return found if found is not None and found.is_serving else None

    async def log(self) -> PartitionLog:
        """The open log. Raises NotOwner, or why it could not be opened."""
        if self._closed is not None:
            raise copy_of(self._closed)
        found = self.open_log
        if found is not None:
            return found
        if self._other is not None:
            raise NotOwner(str(self), self._other)
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.get_running_loop().create_task(
                self._open(), name=f"opening {self}"
            )
            opening.add_done_callback(self._opened)
        # Whoever asked may go away; the others, and the next, still want the log.
        await asyncio.wait((opening,))
        if opening.cancelled():
            raise copy_of(self._closed or self._let_go())
        return opening.result()

    async def close(self, error: FencelogError | None = None) -> None:
        """Hand the partition over: finish appends (or, with ``error``, drop them), seal the log,
        give up the owner node. Never raises."""
        self._closed = error or self._let_go()
        if self._watch is not None:
            self._watch.close()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
        open_log, self._log = self._log, None
        if open_log is not None:
            await (open_log.close() if error is None else open_log.abandon(error))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._watch is not None:
            await self._release()

    def forget_owner(self, url: str) -> None:
        """The owner at ``url`` was reported dead: ask the metadata again at the next request."""
        if self._other is not None and self._other.url == url:
            self._other = None

    def _let_go(self) -> FencelogError:
        return FencelogError(ErrorCode.NO_OWNER, f"{self} was let go")

    def __str__(self) -> str:
        return f"partition {self.partition} of {self.info.name}"

    # -- opening ---------------------------------------------------------------------------------

    def _opened(self, opening: asyncio.Task[PartitionLog]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # whoever waits is told; nobody may be waiting any more

    async def _open(self) -> PartitionLog:
        services = self._services
        timeout_s = services.config.open_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                other = await services.ownership.claim(self.info.topic_id, self.partition)
                self._begin_watching()
                if other is not None:
                    self._other = other
                    raise NotOwner(str(self), other)
                try:
                    self._log = await self._win()
                except BaseException:
                    await self._release()
                    raise
        except TimeoutError:
            raise FencelogError(
                ErrorCode.NO_OWNER, f"{self} could not be opened within {timeout_s:g} s"
            ) from None
        except FencelogError as error:
            if error.code.effects is Effects.NONE:
                raise
            # It is not known what became of the opening; of what the caller wants, nothing is done.
            raise FencelogError(
                ErrorCode.NO_OWNER, f"{self} could not be opened: {error.detail}"
            ) from error
        if self._is_disowned:
            self._start(self._reclaim())  # the node went while the log was being opened
        log.info("%s: opened, epoch %d", self, self._log.epoch)
        return self._log

    async def _win(self) -> PartitionLog:
        """Take the log over; if its list changed meanwhile and the leadership is still ours, start
        again (seed 001): the former owner was rolling, or is another broker that has lost it."""
        for _ in range(TAKEOVER_ATTEMPTS - 1):
            try:
                return await self._take_over()
            except ChainLost as lost:
                if lost.code is not ErrorCode.NO_OWNER or not await self._is_leader():
                    raise
                log.info("%s: starts again: %s", self, lost)
        return await self._take_over()

    async def _take_over(self) -> PartitionLog:
        services = self._services
        node = await services.topics.open_chain(self.info, self.partition)
        return await PartitionLog.open(
            node,
            services.ledgers,
            partition=self.partition,
            replication=self.info.config.replication,
            host=services.host,
            config=services.config,
            broker_pending=services.pending,
            broker_caches=services.caches,
            bookie_addresses=services.bookie_addresses,
            is_leader=self._is_leader,
            on_lost=self._on_lost,
        )

    async def _is_leader(self) -> bool:
        """False only if another broker's node stands there for certain."""
        try:
            owner = await self._services.ownership.get(self.info.topic_id, self.partition)
        except FencelogError:
            return True
        return owner is None or owner.broker_id == self._services.config.broker_id

    async def _release(self) -> None:
        with suppress(FencelogError):  # the session's end removes it
            await self._services.ownership.release(self.info.topic_id, self.partition)

    # -- what others do --------------------------------------------------------------------------

    def _begin_watching(self) -> None:
        if self._watch is None:
            self._watch = self._services.ownership.watch(
                self.info.topic_id, self.partition, self._on_owner
            )

    def _on_owner(self, owner: Owner | None) -> None:
        ours = owner is not None and self._services.ownership.is_ours(owner)
        self._other = None if ours else owner
        self._is_disowned = not ours
        if not ours and self.open_log is not None and self._closed is None:
            self._start(self._reclaim())

    async def _reclaim(self) -> None:
        """The node of an open log is gone (the session expired, or somebody took us for dead): put
        it back. The log served on meanwhile; it ends only if another owner stands there."""
        while self.open_log is not None:
            try:
                other = await self._services.ownership.claim(self.info.topic_id, self.partition)
            except FencelogError as error:
                log.warning("%s: owner node not restored yet: %s", self, error)
                await asyncio.sleep(RECLAIM_RETRY_S)
                continue
            lost, self._other = self._log, other
            if other is not None and lost is not None:
                log.info("%s: now owned by %s", self, other.broker_id)
                await lost.abandon(NotOwner(str(self), other))
            return

    def _on_lost(self) -> None:
        """The log has ended by itself, or is being closed."""
        if self._closed is None and self._log is not None:
            lost, self._log = self._log, None
            self._start(self._bury(lost))

    async def _bury(self, lost: PartitionLog) -> None:
        await lost.abandon(FencelogError(ErrorCode.NO_OWNER, f"{self} was lost"))
        await self._release()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
