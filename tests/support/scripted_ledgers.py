"""Ledgers in memory whose faults are scripted: the test double of the ledger client.

By default everything works and adds are acknowledged a moment later. A test decides the rest
itself: when a writer's entries are acknowledged (``auto_ack``), how many of them recovery finds
(``stored``), the errors of ``create`` and ``recover``. Several brokers may share one
``ScriptedLedgers``: fencing works between them as in the protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from fencelog.ledgers.client import NewLedger, Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.request_context import NO_CONTEXTS, Contexts
from fencelog.ledgers.format.run import Entry, Payload
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.metastore.port import Version
from fencelog.ledgers.recovery.recovery import FoundEnd
from fencelog.ledgers.writer.metadata import PreparedClose


class ScriptedWriter:
    """The writer of one ledger. ``ack``, ``fail`` and ``hang`` are for the test."""

    def __init__(
        self,
        ledgers: ScriptedLedgers,
        metadata: LedgerMetadata,
        on_ack: Callable[[int], None],
        on_failure: Callable[[FencelogError], None],
    ) -> None:
        self._ledgers = ledgers
        self.metadata = metadata
        self._on_ack = on_ack
        self._on_failure = on_failure
        self.payloads: list[bytes] = []
        self.contexts: list[Contexts] = []
        self.lac = -1
        self.finished: FencelogError | None = None
        self.closed = False
        self.abandoned = False
        self.close_error: FencelogError | None = None
        self.auto_ack = ledgers.auto_ack
        self._answer_scheduled = False

    @property
    def ledger_id(self) -> int:
        return self.metadata.ledger_id

    @property
    def incarnations(self) -> Mapping[str, str]:
        return dict.fromkeys(self.metadata.last_fragment.bookies, "")

    @property
    def length(self) -> int:
        return sum(map(len, self.payloads[: self.lac + 1]))

    def append(self, payload: Payload, contexts: Contexts = NO_CONTEXTS) -> int:
        if self.closed or self.abandoned or self.finished is not None:
            raise FencelogError(ErrorCode.LEDGER_CLOSED, "the writer is finished")
        self.payloads.append(bytes(payload))
        self.contexts.append(contexts)
        if self.auto_ack and not self._answer_scheduled:
            self._answer_scheduled = True
            asyncio.get_running_loop().call_soon(self._answer)
        return len(self.payloads) - 1

    def append_soon(self, append: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(append)

    def _answer(self) -> None:
        self._answer_scheduled = False
        if not self.abandoned and self.finished is None:
            self.ack(len(self.payloads) - 1)

    def ack(self, lac: int) -> None:
        """Acknowledge everything up to ``lac`` for the bookies, unless the ledger is fenced."""
        if self.ledger_id in self._ledgers.fenced:
            self.fail(FencelogError(ErrorCode.LEDGER_FENCED, "fenced"))
        elif lac > self.lac:
            self.lac = lac
            self._on_ack(lac)

    def fail(self, error: FencelogError) -> None:
        if self.finished is None and not self.abandoned:
            self.finished = error
            self._on_failure(error)

    async def close(self) -> LedgerMetadata:
        await asyncio.sleep(0)
        self.closed = True
        if self.close_error is not None:
            raise self.close_error
        if self.finished is not None:
            raise self.finished
        if self.ledger_id in self._ledgers.fenced:
            raise FencelogError(ErrorCode.LEDGER_FENCED, "recovered by somebody else")
        self._ledgers.log.append(f"close {self.ledger_id}")
        return self._ledgers.close_at(self, self.lac)

    async def prepare_close(self) -> PreparedClose:
        return PreparedClose(await self.close(), None)

    async def abandon(self) -> None:
        self.abandoned = True


class ScriptedReader:
    """The reader of the writer's entries, up to the confirmed end."""

    def __init__(self, writer: ScriptedWriter, metadata: LedgerMetadata) -> None:
        self._writer = writer
        self.metadata = metadata
        self._confirmed = -1
        self.reads: list[tuple[int, int]] = []

    @property
    def last_confirmed(self) -> int:
        return self.metadata.last_entry_id if self.metadata.is_closed else self._confirmed

    def confirm(self, lac: int) -> None:
        self._confirmed = max(self._confirmed, lac)

    def update(self, metadata: LedgerMetadata) -> None:
        self.metadata = metadata

    async def read(self, first: int, last: int, *, max_bytes: int = 1 << 22) -> list[Entry]:
        await asyncio.sleep(0)
        self.reads.append((first, last))
        if not 0 <= first <= min(last, self.last_confirmed):
            raise FencelogError(ErrorCode.BAD_REQUEST, f"{first}..{last} is not confirmed")
        found: list[Entry] = []
        for entry_id in range(first, min(last, self.last_confirmed) + 1):
            payload = self._writer.payloads[entry_id]
            max_bytes -= len(payload)
            if found and max_bytes < 0:
                break
            found.append(Entry(self._writer.ledger_id, entry_id, -1, 0, memoryview(payload)))
        return found

    async def read_last(self) -> Entry | None:
        last = self.last_confirmed
        return None if last < 0 else (await self.read(last, last))[0]


class ScriptedLedgers:
    """The client. ``log`` records the calls, in order: create, recover, close, delete."""

    def __init__(self) -> None:
        self.auto_ack = True
        self.create_errors: list[FencelogError] = []
        self.placement_error: FencelogError | None = None
        self.checked_placements: list[int] = []
        self.recover_errors: list[FencelogError] = []
        self.before_create: Callable[[], None] = lambda: None
        self.before_recover: Callable[[], None] = lambda: None
        self.create_gate = asyncio.Event()
        self.create_gate.set()
        self.recover_gate = asyncio.Event()
        self.recover_gate.set()
        self._last_id = 0
        self.writers: dict[int, ScriptedWriter] = {}
        self.stored: dict[int, int] = {}
        """The last entry that a recovery of each ledger finds; default: the last appended one."""
        self.closed: dict[int, LedgerMetadata] = {}
        self.fenced: set[int] = set()
        self.deleted: set[int] = set()
        self.log: list[str] = []

    @property
    def newest(self) -> ScriptedWriter:
        return self.writers[max(self.writers)]

    def writer_of(self, ledger_id: int | None) -> ScriptedWriter:
        """Return the writer of a ledger that has to exist by now, such as a list's state ledger."""
        assert ledger_id is not None
        return self.writers[ledger_id]

    async def create(
        self,
        replication: Replication,
        *,
        on_ack: Callable[[int], None],
        on_failure: Callable[[FencelogError], None],
        properties: Mapping[str, str] | None = None,
    ) -> ScriptedWriter:
        new = await self.prepare(replication, properties=properties)
        return await self.begin(new, None, on_ack=on_ack, on_failure=on_failure)

    async def prepare(
        self, replication: Replication, *, properties: Mapping[str, str] | None = None
    ) -> NewLedger:
        await asyncio.sleep(0)
        await self.create_gate.wait()
        self.before_create()
        if self.create_errors:
            raise self.create_errors.pop(0)
        self._last_id += 1
        ledger_id = self._last_id
        metadata = new_metadata(
            ledger_id,
            ensemble=tuple(f"b{n}" for n in range(replication.ensemble_size)),
            write_quorum=replication.write_quorum,
            ack_quorum=replication.ack_quorum,
            token=str(ledger_id),
            properties=properties,
        )
        return NewLedger(metadata, {})

    async def begin(
        self,
        new: NewLedger,
        version: Version | None,
        *,
        on_ack: Callable[[int], None],
        on_failure: Callable[[FencelogError], None],
    ) -> ScriptedWriter:
        self.writers[new.ledger_id] = ScriptedWriter(self, new.metadata, on_ack, on_failure)
        self.log.append(f"create {new.ledger_id}")
        return self.writers[new.ledger_id]

    def check_placement(self, bookies: int) -> None:
        self.checked_placements.append(bookies)
        if self.placement_error is not None:
            raise self.placement_error

    async def open(self, ledger_id: int) -> ScriptedReader:
        await asyncio.sleep(0)
        if ledger_id in self.deleted:
            raise FencelogError(ErrorCode.LEDGER_NOT_FOUND, f"no ledger {ledger_id}")
        metadata = self.closed.get(ledger_id, self.writers[ledger_id].metadata)
        return self.reader(metadata)

    def reader(self, metadata: LedgerMetadata) -> ScriptedReader:
        return ScriptedReader(self.writers[metadata.ledger_id], metadata)

    async def recover(self, ledger_id: int) -> LedgerMetadata:
        await asyncio.sleep(0)
        await self.recover_gate.wait()
        self.before_recover()
        self.fenced.add(ledger_id)
        if self.recover_errors:
            raise self.recover_errors.pop(0)
        if ledger_id in self.deleted:
            raise FencelogError(ErrorCode.LEDGER_NOT_FOUND, f"no ledger {ledger_id}")
        self.log.append(f"recover {ledger_id}")
        if ledger_id not in self.closed:
            writer = self.writers[ledger_id]
            last = self.stored.get(ledger_id, len(writer.payloads) - 1)
            self.close_at(writer, last)
        return self.closed[ledger_id]

    async def find_end(self, ledger_id: int) -> FoundEnd:
        return FoundEnd(await self.recover(ledger_id))

    async def describe(
        self, ledger_id: int, properties_of: Callable[[LedgerMetadata], Mapping[str, str] | None]
    ) -> LedgerMetadata:
        await asyncio.sleep(0)
        if ledger_id in self.deleted or ledger_id not in self.writers:
            raise FencelogError(ErrorCode.LEDGER_NOT_FOUND, f"no ledger {ledger_id}")
        writer = self.writers[ledger_id]
        base = self.closed.get(ledger_id, writer.metadata)
        properties = properties_of(base)
        if properties is not None:
            base = replace(base, properties=dict(properties))
            writer.metadata = replace(writer.metadata, properties=dict(properties))
            if ledger_id in self.closed:
                self.closed[ledger_id] = base
        return base

    async def delete(self, ledger_id: int, *, unfenced: bool = False) -> None:
        await asyncio.sleep(0)
        self.deleted.add(ledger_id)
        self.log.append(f"delete {ledger_id}")

    def close_at(self, writer: ScriptedWriter, last: int) -> LedgerMetadata:
        length = sum(map(len, writer.payloads[: last + 1]))
        base = replace(writer.metadata)
        self.closed[writer.ledger_id] = base.closed(last_entry_id=last, length=length)
        return self.closed[writer.ledger_id]
