"""The takeover of a log (seed 001, "Opening a log"), which makes any number of would-be owners
safe.

1. Read the list of ledgers and its version, and then whether the partition has an owner.
2. Recover, that is fence and close, every ledger that is not marked sealed and at least the last
   two: the previous owner may be writing to either. Recover the state ledger too, whose events
   rebuild the state of the partition; for producers, the entries after its last snapshot supply
   the rest. The ends of all these ledgers are looked for at the same time.
3. Prepare a ledger.
4. In one step, on the versions that were read in steps 1 and 2: close the ledgers of step 2 where
   they were found to end, create the new ledger, put it on the list with the sizes learnt, and
   create the owner's node. If another instance was faster, this one has lost, or starts again;
   nothing is left behind. What is too large for one step closes the ledgers first, which is safe:
   they end there whoever is faster.

Nothing may be served before step 4 has returned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from fencelog.broker.append.producer_replay import replay_producers
from fencelog.broker.append.producer_table import ProducerTable
from fencelog.broker.ledger_list.ledger_list import Sealed
from fencelog.broker.ledger_list.ledger_port import EntryReader, Ledgers
from fencelog.broker.ledger_list.open_ledger import LedgerFactory, OpenLedger
from fencelog.broker.ledger_list.state_core import PartitionState, decode_events
from fencelog.broker.ledger_list.store import LedgerListLost, LedgerListStore
from fencelog.broker.log.core import LogCore
from fencelog.broker.log.effects import CreateLedger, Effect, Recover, RestoreState, TakeOver
from fencelog.broker.partition.rewound import rewound
from fencelog.ledgers.client import NewLedger
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import KIND_STATE, read_entry_header
from fencelog.ledgers.format.run import Entry
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.metastore.port import Change
from fencelog.ledgers.recovery.recovery import FoundEnd

_log = logging.getLogger(__name__)

_DELETED_MEANWHILE = (ErrorCode.LEDGER_NOT_FOUND, ErrorCode.READ_UNKNOWN, ErrorCode.CORRUPT)
"""The errors that reading a ledger may end with if it is deleted at the same moment."""

_NO_COPY = (ErrorCode.NO_SUCH_ENTRY, ErrorCode.READ_UNKNOWN)
"""The errors of a read of which no bookie gave a copy."""


async def take_over(
    core: LogCore,
    node: LedgerListStore,
    factory: LedgerFactory,
    state: PartitionState,
    producers: ProducerTable,
    *,
    owner: str,
    claim: Sequence[Change] = (),
) -> OpenLedger | None:
    """Take over a ledger list that was just loaded, by steps 2 to 4, as ``core`` asks for them.
    ``claim``: the changes by which the owner's node becomes this broker's.

    Afterwards ``node.ledger_list`` is the new one; ``state``, which was empty, contains what the
    state log says; ``producers``, a section of it, is brought up to the end of the log. A
    terminated log gets no ledger: None. Ledgers that the new ledger list does not list any more
    were proved empty; the caller is to delete them.

    Raises LedgerListLost, LedgerChanged, RECOVERY_INCOMPLETE, NOT_ENOUGH_BOOKIES, READ_UNKNOWN,
    CORRUPT, METADATA_….
    """
    takeover = _Takeover(core, node, factory, state, producers, owner, claim)
    try:
        await takeover.run()
    except FencelogError as error:
        core.lose(error)
        if error.code in _DELETED_MEANWHILE:
            await node.check_unchanged()  # its owner has trimmed it, or another one is faster
        raise
    return takeover.ledger


class _Takeover:
    """The shell of a core that opens."""

    def __init__(
        self,
        core: LogCore,
        node: LedgerListStore,
        factory: LedgerFactory,
        state: PartitionState,
        producers: ProducerTable,
        owner: str,
        claim: Sequence[Change],
    ) -> None:
        self._claim = claim
        self._core = core
        self._node = node
        self._factory = factory
        self._state = state
        self._producers = producers
        self._owner = owner
        self._loaded = node.ledger_list
        self._segments = {segment.ledger_id: segment for segment in self._loaded.to_recover}
        self._ends: dict[int, asyncio.Task[tuple[FoundEnd, Sealed]]] = {}
        """The search for the end of each ledger of the log that is to be recovered."""
        self._restored: asyncio.Task[FoundEnd] | None = None
        """The recovery of the state ledger, which reads it too; None: there is none."""
        self._sealed: dict[int, Sealed] = {}
        self._ended: dict[int, LedgerMetadata] = {}
        """The metadata of the recovered ledgers, closed."""
        self._closes: list[Change] = []
        """The changes that close the recovered ledgers."""
        self._new: NewLedger | None = None
        self.ledger: OpenLedger | None = None

    async def run(self) -> None:
        """Return when the list names this owner; the caller continues from there."""
        loaded = self._loaded
        if loaded.deleted:
            raise LedgerListLost(self._node.path, loaded)
        tasks = self._look_for_ends()
        try:
            effects = self._core.open(self._segments, is_terminated=loaded.terminated)
            while effects:
                (step,) = effects
                effects = await self._carry_out(step)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _look_for_ends(self) -> Sequence[asyncio.Task[Any]]:
        """Begin with all ledgers at the same time: none depends on another one, and the requests of
        the partition wait for all of them."""
        create_task, state = asyncio.get_running_loop().create_task, self._loaded.state_ledger
        for ledger_id in self._segments:
            self._ends[ledger_id] = create_task(self._find_end(ledger_id))
        if state is None:
            return list(self._ends.values())
        self._restored = create_task(self._recover_state(state))
        return [*self._ends.values(), self._restored]

    async def _find_end(self, ledger_id: int) -> tuple[FoundEnd, Sealed]:
        """Fence a ledger of the log; return its end, and its facts. Those of a closed ledger never
        change: where no bookie gives its last entry, they are what the list says. Bookies may be
        away, or have deleted it since the backup from which the metadata was restored."""
        factory, sealed = self._factory, self._segments[ledger_id].sealed
        end = await factory.ledgers.find_end(ledger_id)
        now_us = factory.host.now_us()
        try:
            facts = await _facts_of(factory.ledgers, end.metadata, end.last, now_us=now_us)
        except FencelogError as error:
            was_closed = end.change is None and end.metadata.is_closed
            if error.code not in _NO_COPY or not was_closed or sealed is None:
                raise
            if end.metadata.last_entry_id != sealed.entries - 1:
                raise
            return end, sealed
        return end, facts

    async def _recover_state(self, ledger_id: int) -> FoundEnd:
        """Fence the state ledger, and apply its events, as far as they are about messages of this
        log."""
        ledgers = self._factory.ledgers
        end = await ledgers.find_end(ledger_id)
        log_end = await self._log_end()
        await _read_state(ledgers, end.metadata, self._state, log_end)
        if self._state.is_rewound:
            _log.error(
                "%s: its state ledger %d knows of messages behind the end of the log at offset %d, "
                "which are forgotten: was the metadata restored from a backup?",
                self._node.path,
                ledger_id,
                log_end,
            )
        return end

    async def _log_end(self) -> int:
        """Return the offset at which the log ends, once that is found."""
        loaded = self._loaded
        segments = loaded.segments
        end = (segments[0].base_offset or 0) if segments else loaded.start_offset
        for segment in segments:
            facts = segment.sealed or (await self._ends[segment.ledger_id])[1]
            end += facts.messages
        return end

    async def _carry_out(self, step: Effect) -> list[Effect]:
        core = self._core
        match step:
            case Recover(ledger_id):
                return core.recovered(await self._recover(ledger_id))
            case RestoreState():
                await self._restore()
                return core.restored()
            case CreateLedger():
                new = self._new = await self._factory.prepare(self._loaded.epoch + 1)
                now_s = asyncio.get_running_loop().time()
                return core.created(new.ledger_id, opened_at_s=now_s)
            case TakeOver():
                await self._write_list()
                return []
            case _:
                raise TypeError(f"no step of a takeover: {step}")

    async def _recover(self, ledger_id: int) -> int:
        """Note the end of a ledger and its facts; return its last entry."""
        segment = self._segments[ledger_id]
        end, sealed = await self._ends[ledger_id]
        self._note(end)
        if segment.sealed is not None and segment.sealed.messages != sealed.messages:
            raise FencelogError(
                ErrorCode.CORRUPT,
                f"{self._node.path} lists ledger {ledger_id} with {segment.sealed.messages} "
                f"messages, it holds {sealed.messages}",
            )
        if segment.is_adopted and segment.sealed is not None:
            sealed = segment.sealed  # its messages have the publish time of their commit
        self._sealed[ledger_id] = sealed
        return end.metadata.last_entry_id

    async def _restore(self) -> None:
        """Wait for the state; read what the recovered ledgers say of producers beyond it."""
        if self._restored is not None:
            self._note(await self._restored)
        await replay_producers(self._open, self._loaded, self._sealed, self._producers)

    def _note(self, end: FoundEnd) -> None:
        """Keep a ledger that was fenced, with its end; it is closed when the list is written."""
        if end.change is not None:
            self._closes.append(end.change)
        self._ended[end.metadata.ledger_id] = end.metadata

    async def _open(self, ledger_id: int) -> EntryReader:
        """Return the reader of a ledger; one that was recovered is not closed in the store yet."""
        ledgers, metadata = self._factory.ledgers, self._ended.get(ledger_id)
        return await ledgers.open(ledger_id) if metadata is None else ledgers.reader(metadata)

    async def _write_list(self) -> None:
        """Close the ledgers, create the new one, own the partition, and write the list, all in one
        step. If another instance was faster with any of them, nothing is changed, except that
        ledgers may be closed where one step was too small for all, and nothing is left behind."""
        factory, new = self._factory, self._new
        created_us = factory.host.now_us()
        created = [] if new is None else [new.change]
        versions = await self._node.change(
            lambda ledger_list: ledger_list.taken_over(
                self._sealed,
                ledger_id=None if new is None else new.ledger_id,
                created_us=created_us,
                owner=self._owner,
            ),
            also=[*created, *self._closes, *self._claim],
        )
        if new is not None:
            self.ledger = await factory.begin(new, None if versions is None else versions[0])


async def _read_state(
    ledgers: Ledgers, metadata: LedgerMetadata, state: PartitionState, log_end: int
) -> None:
    """Apply all events of a closed state ledger to the state of a log that ends there. Raises
    READ_UNKNOWN, CORRUPT, …."""
    reader = ledgers.reader(metadata)
    next_entry = 0
    while next_entry <= metadata.last_entry_id:
        for entry in await reader.read(next_entry, metadata.last_entry_id):
            header = read_entry_header(entry.payload)
            if header.kind != KIND_STATE:
                raise FencelogError(
                    ErrorCode.CORRUPT,
                    f"entry {entry.entry_id} of state ledger {metadata.ledger_id} has kind "
                    f"{header.kind}",
                )
            for event in decode_events(entry.payload[header.header_bytes :]):
                true = rewound(event, log_end)
                state.is_rewound |= true is not event
                state.apply(true)
            next_entry = entry.entry_id + 1


async def _facts_of(
    ledgers: Ledgers, metadata: LedgerMetadata, last: Entry | None, *, now_us: int
) -> Sealed:
    """Return the facts of a closed ledger for the ledger list, computed from its last entry, which
    is read unless it is known."""
    last = last or await ledgers.reader(metadata).read_last()
    if last is None:
        return Sealed(entries=0, messages=0, size=0, last_publish_us=0, sealed_us=now_us)
    header = read_entry_header(last.payload)
    return Sealed(
        entries=metadata.last_entry_id + 1,
        messages=header.next_number,
        size=metadata.length,
        last_publish_us=header.publish_time_us,
        sealed_us=now_us,
        has_producers=header.range_count > 0 or header.previous_range_entry >= 0,
    )
