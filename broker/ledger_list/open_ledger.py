"""The ledgers that a log writes: how they are created, and what is known of each."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from fencelog.broker.ledger_list.ledger_list import Sealed
from fencelog.broker.ledger_list.ledger_port import EntryWriter, Ledgers
from fencelog.broker.ledger_list.store import LedgerListLost
from fencelog.ledgers.client import NewLedger, Replication
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.metastore.port import Version


class LedgerListener(Protocol):
    """The listener that is notified of the current ledger's progress."""

    def on_ack(self, ledger: OpenLedger) -> None: ...

    def on_failure(self, ledger: OpenLedger) -> None: ...


@dataclass(slots=True, eq=False)
class OpenLedger:
    """A ledger that this instance writes, and what became of it.

    It may be created, and fail, long before it is used: events are kept until ``notify``.
    """

    opened_at_s: float
    """The time of creation, on the loop's clock."""
    ledger_id: int = field(init=False)
    writer: EntryWriter = field(init=False)
    last_confirmed: int = -1
    failure: FencelogError | None = None
    _listener: LedgerListener | None = field(default=None, init=False)
    closed: LedgerMetadata | None = None
    """The metadata with which a recovery has closed the ledger."""
    facts: Sealed | None = None
    """The facts for the list, once everything in the ledger is settled."""

    @property
    def entries(self) -> int:
        return self.last_confirmed + 1

    @property
    def size(self) -> int:
        """The payload bytes of its acknowledged entries. Its writer does not know those that only
        a recovery has found; the facts have them once the ledger is closed."""
        closed = self.facts.size if self.facts is not None else 0
        return max(self.writer.length, closed)

    def notify(self, listener: LedgerListener) -> None:
        """Notify this listener from now on, and at once of what has happened before."""
        self._listener = listener
        if self.last_confirmed >= 0:
            listener.on_ack(self)
        if self.failure is not None:
            listener.on_failure(self)

    def acknowledged(self, lac: int) -> None:
        self.last_confirmed = lac
        if self._listener is not None:
            self._listener.on_ack(self)

    def failed(self, error: FencelogError) -> None:
        self.failure = error
        if self._listener is not None:
            self._listener.on_failure(self)


@dataclass(slots=True)
class LedgerFactory:
    """Creates the ledgers of one log, tagged with it and with the epoch they belong to.
    ``replication`` may change: the new one applies to ledgers created from then on."""

    ledgers: Ledgers
    replication: Replication
    host: Host
    log_name: str

    async def create(self, epoch: int) -> OpenLedger:
        """Create a ledger. Raises FencelogError (NOT_ENOUGH_BOOKIES, OUT_OF_SPACE,
        METADATA_UNAVAILABLE, METADATA_UNKNOWN)."""
        ledger = OpenLedger(asyncio.get_running_loop().time())
        ledger.writer = await self.ledgers.create(
            self.replication,
            on_ack=ledger.acknowledged,
            on_failure=ledger.failed,
            properties=self._properties(epoch),
        )
        ledger.ledger_id = ledger.writer.ledger_id
        return ledger

    async def prepare(self, epoch: int) -> NewLedger:
        """Prepare a ledger that is created together with its place in the list. Raises
        FencelogError (NOT_ENOUGH_BOOKIES, OUT_OF_SPACE, METADATA_UNAVAILABLE)."""
        return await self.ledgers.prepare(self.replication, properties=self._properties(epoch))

    async def begin(self, new: NewLedger, version: Version | None) -> OpenLedger:
        """Return a ledger that was prepared and is created, see ``LedgerClient.begin``."""
        ledger = OpenLedger(asyncio.get_running_loop().time())
        ledger.writer = await self.ledgers.begin(
            new, version, on_ack=ledger.acknowledged, on_failure=ledger.failed
        )
        ledger.ledger_id = new.ledger_id
        return ledger

    def _properties(self, epoch: int) -> dict[str, str]:
        return {"log": self.log_name, "epoch": str(epoch)}

    async def create_pending(self, committer: str) -> EntryWriter:
        """Create a ledger for a committer to write, see ``commits.pending_core``. Raises
        FencelogError as ``create``."""
        return await self.ledgers.create(
            self.replication,
            on_ack=lambda lac: None,
            on_failure=lambda error: None,
            properties={"log": self.log_name, "committer": committer},
        )

    async def discard(self, ledger: OpenLedger, lost: LedgerListLost) -> None:
        """Remove a ledger whose listing was refused, if the list proves that it is not there.

        The refusal is final (the version has moved on), so a list without it will stay without.
        """
        if lost.ledger_list is None or ledger.ledger_id not in lost.ledger_list.ledgers:
            await self.drop(ledger)
        else:
            await ledger.writer.abandon()

    async def drop(self, ledger: OpenLedger) -> None:
        """Remove a ledger that no list names, or ever will."""
        await ledger.writer.abandon()
        with suppress(FencelogError):  # an empty ledger that is on no list may stay behind
            await self.ledgers.delete(ledger.ledger_id, unfenced=True)  # its writer is gone
