"""The single steps by which a log's ledgers change: create, list, recover, close, mark sealed.

Each either succeeds or leaves things so that the next attempt, or the next owner, gets them right.
Steps that must succeed are tried until they do; before every new attempt the ledger list is read
again and the leadership is asked for. A ledger list that another owner has changed, or is about to,
is never fought over: LedgerListLost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fencelog.broker.ledger_list.ledger_list import LedgerList, Sealed
from fencelog.broker.ledger_list.open_ledger import LedgerFactory, OpenLedger
from fencelog.broker.ledger_list.store import LedgerListLost, LedgerListStore
from fencelog.ledgers.errors import FencelogError, check
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata

T = TypeVar("T")

RETRY_MIN_S, RETRY_MAX_S = 0.1, 2.0
"""Pauses between attempts, doubling."""

log = logging.getLogger(__name__)


class LedgerSteps:
    """``is_leader`` answers False only if another broker is the leader for certain."""

    def __init__(
        self,
        node: LedgerListStore,
        factory: LedgerFactory,
        ledger: OpenLedger | None,
        is_leader: Callable[[], Awaitable[bool]],
    ) -> None:
        self._node = node
        self._factory = factory
        self._is_leader = is_leader
        self._open = [] if ledger is None else [ledger]

    async def create(self) -> OpenLedger:
        """A new ledger, on no list yet."""
        ledger = await self._factory.create(self._node.ledger_list.epoch)
        self._open.append(ledger)
        return ledger

    async def list(
        self,
        ledger: OpenLedger,
        *,
        after: Callable[[LedgerList], LedgerList] = lambda ledger_list: ledger_list,
    ) -> None:
        """Put a new ledger on the list (``after`` another change of it); it may be used once this
        has returned. Raises LedgerListLost; BAD_REQUEST if the list has grown too long."""
        created_us = self._factory.host.now_us()
        try:
            await self._node.change(
                lambda ledger_list: after(ledger_list).with_next(
                    ledger_id=ledger.ledger_id, created_us=created_us
                )
            )
        except LedgerListLost as lost:
            await self._factory.discard(ledger, lost)
            raise

    async def recover(self, ledger: OpenLedger) -> LedgerMetadata:
        """Fence and close a ledger that failed, and learn its last entry."""
        await self._let_go(ledger)
        metadata = await self.retry_until_done(
            lambda: self._factory.ledgers.recover(ledger.ledger_id)
        )
        check(
            metadata.last_entry_id >= ledger.last_confirmed,
            f"ledger {ledger.ledger_id} was recovered below an acknowledged entry",
        )
        return metadata

    async def close(self, ledger: OpenLedger) -> LedgerMetadata:
        """Close a ledger in which nothing is outstanding, by recovery if it has to be.

        Either way it ends at ``ledger.last_confirmed``, the last entry that it was given. A writer
        closes at its LAC, and takes no other end for its own (``closed_by_writer``). A recovery
        ends no lower, or ``recover`` raises, and no higher: there is no entry behind.
        """
        try:
            metadata = await ledger.writer.close()
        except FencelogError as error:
            log.warning("%s: ledger %d: %s", self._node.path, ledger.ledger_id, error)
            metadata = await self.recover(ledger)
        await self._let_go(ledger)
        return metadata

    async def mark_sealed(self, ledger_id: int, sealed: Sealed) -> None:
        """Say in the ledger list what a closed ledger holds."""
        await self._node.change(lambda ledger_list: ledger_list.with_sealed(ledger_id, sealed))

    async def retry_until_done(self, step: Callable[[], Awaitable[T]]) -> T:
        """The result of ``step``, tried until it works. Raises LedgerListLost only."""
        pause_s = RETRY_MIN_S
        while True:
            try:
                return await step()
            except FencelogError as error:
                log.warning("%s: tries again in %.1f s: %s", self._node.path, pause_s, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)
            await self.check_still_ours()

    async def check_still_ours(self) -> None:
        """Raises LedgerListLost where another owner has changed the ledger list, or is about to."""
        await self._node.check_unchanged()
        if not await self._is_leader():
            raise LedgerListLost(self._node.path, self._node.ledger_list)

    async def abandon_all(self) -> None:
        """Let every ledger go as it is; the next owner recovers them."""
        while self._open:
            await self._open.pop().writer.abandon()

    async def _let_go(self, ledger: OpenLedger) -> None:
        if ledger in self._open:
            self._open.remove(ledger)
            await ledger.writer.abandon()
