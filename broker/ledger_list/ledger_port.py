"""The port through which a topic log uses ledgers. ``fencelog.ledgers.client.LedgerClient``
provides it; the tests use a scripted one instead, to play faults step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from fencelog.ledgers.client import NewLedger, Replication
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.request_context import NO_CONTEXTS, Contexts
from fencelog.ledgers.format.run import Entry, Payload
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.limits import MAX_READ_BYTES
from fencelog.ledgers.metastore.port import Version
from fencelog.ledgers.recovery.recovery import FoundEnd
from fencelog.ledgers.writer.metadata import PreparedClose


class EntryWriter(Protocol):
    """The writer of one open ledger, see ``LedgerWriter``."""

    @property
    def ledger_id(self) -> int: ...

    @property
    def metadata(self) -> LedgerMetadata: ...

    @property
    def incarnations(self) -> Mapping[str, str]: ...

    @property
    def length(self) -> int: ...

    def append(self, payload: Payload, contexts: Contexts = NO_CONTEXTS) -> int: ...

    def append_soon(self, append: Callable[[], None]) -> None: ...

    async def close(self) -> LedgerMetadata: ...

    async def prepare_close(self) -> PreparedClose: ...

    async def abandon(self) -> None: ...


class EntryReader(Protocol):
    """A reader of one ledger, see ``LedgerReader``."""

    @property
    def metadata(self) -> LedgerMetadata: ...

    @property
    def last_confirmed(self) -> int: ...

    def confirm(self, lac: int) -> None: ...

    def update(self, metadata: LedgerMetadata) -> None: ...

    async def read(
        self, first: int, last: int, *, max_bytes: int = MAX_READ_BYTES
    ) -> Sequence[Entry]: ...

    async def read_last(self) -> Entry | None: ...


class Ledgers(Protocol):
    """The operations on ledgers: create, recover, read and delete, see ``LedgerClient``."""

    async def create(
        self,
        replication: Replication,
        *,
        on_ack: Callable[[int], None],
        on_failure: Callable[[FencelogError], None],
        properties: Mapping[str, str] | None = None,
    ) -> EntryWriter: ...

    async def prepare(
        self, replication: Replication, *, properties: Mapping[str, str] | None = None
    ) -> NewLedger: ...

    async def begin(
        self,
        new: NewLedger,
        version: Version | None,
        *,
        on_ack: Callable[[int], None],
        on_failure: Callable[[FencelogError], None],
    ) -> EntryWriter: ...

    def check_placement(self, bookies: int) -> None: ...

    async def open(self, ledger_id: int) -> EntryReader: ...

    def reader(self, metadata: LedgerMetadata) -> EntryReader: ...

    async def recover(self, ledger_id: int) -> LedgerMetadata: ...

    async def find_end(self, ledger_id: int) -> FoundEnd: ...

    async def describe(
        self, ledger_id: int, properties_of: Callable[[LedgerMetadata], Mapping[str, str] | None]
    ) -> LedgerMetadata: ...

    async def delete(self, ledger_id: int, *, unfenced: bool = False) -> None: ...
