"""Ledgers and metadata as a broker sees them, and the broker as the oracle sees it.

``Ledgers`` is the port between them, so each ledger that a broker writes is checked like those of
the ledgers' own histories, and an acknowledgement in a ledger that is on no list is seen (I1). A
list of ledgers is changed by one instance at a time, and never by one that has lost it (I3).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from fencelog.broker.broker import Broker
from fencelog.broker.ledger_list.store import LedgerListStore
from fencelog.ledgers.client import LedgerClient, NewLedger, Replication
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.entry_header import KIND_MESSAGES
from fencelog.ledgers.format.request_context import NO_CONTEXTS, Contexts
from fencelog.ledgers.format.run import Payload
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.metastore.port import Change, Version
from fencelog.ledgers.recovery.recovery import FoundEnd
from fencelog.ledgers.writer.metadata import PreparedClose
from fencelog.ledgers.writer.writer import LedgerWriter
from tests.sim.oracle.history import History, WrittenLedger
from tests.sim.oracle.list_watch import LedgerListWatch


class ObservedLedgers:
    """Implements ``Ledgers`` by the real client."""

    def __init__(
        self, client: LedgerClient, history: History, ledger_lists: LedgerListWatch
    ) -> None:
        self._client = client
        self._history = history
        self._ledger_lists = ledger_lists

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def create(
        self,
        replication: Replication,
        *,
        on_ack: Callable[[int], None],
        on_failure: Callable[[FencelogError], None],
        properties: Mapping[str, str] | None = None,
    ) -> ObservedWriter:
        return await self._observed(
            replication,
            on_ack,
            on_failure,
            lambda acknowledged, failed: self._client.create(
                replication, on_ack=acknowledged, on_failure=failed, properties=properties
            ),
        )

    async def begin(
        self,
        new: NewLedger,
        version: Version | None,
        *,
        on_ack: Callable[[int], None],
        on_failure: Callable[[FencelogError], None],
    ) -> ObservedWriter:
        metadata = new.metadata
        return await self._observed(
            Replication(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum),
            on_ack,
            on_failure,
            lambda acknowledged, failed: self._client.begin(
                new, version, on_ack=acknowledged, on_failure=failed
            ),
        )

    async def _observed(
        self,
        replication: Replication,
        on_ack: Callable[[int], None],
        on_failure: Callable[[FencelogError], None],
        make: Callable[
            [Callable[[int], None], Callable[[FencelogError], None]], Awaitable[LedgerWriter]
        ],
    ) -> ObservedWriter:
        ledger = WrittenLedger(0, replication)

        def acknowledged(lac: int) -> None:
            self._history.acknowledged(ledger, lac)
            if ledger.ledger_id not in self._ledger_lists.listed and _has_messages(ledger):
                self._history.violate(
                    16, f"entry {lac} of ledger {ledger.ledger_id}, on no list, is acked (I1)"
                )
            on_ack(lac)

        def failed(error: FencelogError) -> None:
            ledger.failure = error.code.slug
            on_failure(error)

        writer = await make(acknowledged, failed)
        ledger.ledger_id = writer.ledger_id
        if self._history.ledgers.setdefault(writer.ledger_id, ledger) is not ledger:
            self._history.violate(3, f"ledger id {writer.ledger_id} was given twice")
        return ObservedWriter(writer, ledger, self._history)

    def check_placement(self, bookies: int) -> None:
        self._client.check_placement(bookies)

    async def recover(self, ledger_id: int) -> LedgerMetadata:
        metadata = await self._client.recover(ledger_id)
        self._history.told_closed("a broker", metadata)
        return metadata

    async def find_end(self, ledger_id: int) -> FoundEnd:
        found = await self._client.find_end(ledger_id)
        if found.change is None:
            self._history.told_closed("a broker", found.metadata)
        else:
            self._history.found_end(found.metadata)
        return found


class ObservedWriter:
    """Implements ``EntryWriter`` by the real one."""

    def __init__(self, writer: LedgerWriter, ledger: WrittenLedger, history: History) -> None:
        self._writer = writer
        self._ledger = ledger
        self._history = history

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def append(self, payload: Payload, contexts: Contexts = NO_CONTEXTS) -> int:
        entry_id = self._writer.append(payload, contexts)
        self._history.appended(self._ledger, entry_id, bytes(payload))
        return entry_id

    async def close(self) -> LedgerMetadata:
        self._ledger.is_closing = True
        metadata = await self._writer.close()
        self._history.told_closed("its writer", metadata)
        return metadata

    async def prepare_close(self) -> PreparedClose:
        self._ledger.is_closing = True
        return await self._writer.prepare_close()


def _has_messages(ledger: WrittenLedger) -> bool:
    """Tell whether it is a ledger of messages: that of the state log is written before it is
    listed."""
    return ledger.payloads[0][1] == KIND_MESSAGES


class ObservedChanges:
    """The metadata store as one hold on a list of ledgers sees it."""

    def __init__(self, node: LedgerListStore, history: History) -> None:
        self._node = node
        self._store = node._store
        self._history = history
        self._is_changing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, changes: Sequence[Change]) -> list[Version]:
        path = self._node.path
        if self._is_changing:
            self._history.violate(16, f"two changes of {path} at once (I3)")
        if self._node.lost is not None:
            self._history.violate(16, f"{path} is changed by an instance that has lost it (I3)")
        self._is_changing = True
        try:
            return await self._store.commit(changes)
        finally:
            self._is_changing = False


def observe_changes(broker: Broker, history: History) -> None:
    """Observe all ledger lists that the broker opens from now on."""
    topics: Any = broker.topics
    open_ledger_list = topics.open_ledger_list

    async def opened(*args: Any, **options: Any) -> LedgerListStore:
        node: LedgerListStore = await open_ledger_list(*args, **options)
        changes: Any = ObservedChanges(node, history)
        node._store = changes
        return node

    topics.open_ledger_list = opened


def observe_looks(broker: Broker, history: History) -> None:
    """Moments can be tied to when its reconciler begins to compare cursors."""
    reconciler: Any = broker._cursor_reconciler
    look = reconciler.reconcile

    async def looked() -> None:
        history.on_event("looking")
        await look()

    reconciler.reconcile = looked
