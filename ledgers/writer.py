"""The writer's shell: batches appends into runs and carries out what ``WriterCore`` decides.

One writer owns one ledger. ``append`` only queues; everything queued in one turn of the event loop
leaves as one run (or a few), in one socket write per bookie, and is acknowledged together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from fencelog.ledgers.bookie_port import BookieDirectory
from fencelog.ledgers.digest import digest_size
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import (
    MAX_ENTRY_BYTES,
    MAX_RUN_ENTRIES,
    TARGET_RUN_BYTES,
    WRITER_MAX_PENDING_BYTES,
)
from fencelog.ledgers.metadata import LedgerMetadata
from fencelog.ledgers.metadata_update import Ledgers, update_metadata
from fencelog.ledgers.placement import Placement
from fencelog.ledgers.run import ENTRY_HEADER, build_run
from fencelog.ledgers.transitions import closed_by_writer, with_new_ensemble
from fencelog.ledgers.writer_core import (
    FATAL_CODES,
    Acknowledged,
    ChangeEnsemble,
    Effect,
    Failed,
    PendingRun,
    Send,
    WriterCore,
)

OnAcknowledged = Callable[[int], None]
OnFailure = Callable[[FencelogError], None]

REPLACE_RETRY_S = 1.0
"""How often a writer without a full ensemble looks for a replacement."""


class LedgerWriter:
    """The single writer of an open ledger. Made by ``LedgerClient.create``.

    ``on_ack(lac)`` is called with the new LAC whenever it grows: all entries up to it are
    acknowledged, in order. ``on_failure(error)`` is called once, when the writer is finished:
    entries above ``last_add_confirmed`` are then of unknown outcome up to ``last_add_pushed``, and
    certainly not written above it. ``incarnations`` are those of the ensemble when it was chosen.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        version: int,
        *,
        ledgers: Ledgers,
        bookies: BookieDirectory,
        placement: Placement,
        incarnations: Mapping[str, str],
        key: bytes,
        on_ack: OnAcknowledged,
        on_failure: OnFailure,
    ) -> None:
        self._core = WriterCore(metadata, lac=-1, length=0)
        self._version = version
        self._ledgers = ledgers
        self._bookies = bookies
        self._placement = placement
        self._incarnations = dict(incarnations)
        self._key = key
        self._on_ack = on_ack
        self._on_failure = on_failure
        self._queue: list[bytes] = []
        self._next_entry_id = 0
        self._length = 0
        self._length_pushed = 0
        self._flush_scheduled = False
        self._closing = False
        self._settled = asyncio.Event()
        self._change: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        striped = metadata.ensemble_size != metadata.write_quorum
        self._max_run_entries = 1 if striped else MAX_RUN_ENTRIES
        self._overhead = ENTRY_HEADER.size + digest_size(metadata.digest_type)

    @property
    def ledger_id(self) -> int:
        return self._core.metadata.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """As committed; fragments change with the ensemble."""
        return self._core.metadata

    @property
    def last_add_confirmed(self) -> int:
        return self._core.lac

    @property
    def last_add_pushed(self) -> int:
        """The last entry that was handed to bookies; later ones were never sent."""
        return self._core.last_add_pushed

    @property
    def length(self) -> int:
        """Payload bytes up to ``last_add_confirmed``."""
        return self._core.length

    @property
    def pending_bytes(self) -> int:
        return self._length - self._core.length

    @property
    def failure(self) -> FencelogError | None:
        return self._core.finished

    def append(self, payload: bytes) -> int:
        """Queue one entry and return its id. Entries are stored in the order of the calls.

        Raises FencelogError before anything is queued: LEDGER_CLOSED (closing or failed),
        PAYLOAD_TOO_LARGE, OVERLOADED.
        """
        if self._closing or self._core.finished is not None:
            raise FencelogError(
                ErrorCode.LEDGER_CLOSED, f"the writer of ledger {self.ledger_id} is finished"
            )
        size = len(payload)
        if size > MAX_ENTRY_BYTES:
            raise FencelogError(
                ErrorCode.PAYLOAD_TOO_LARGE, f"an entry of {size} bytes, limit {MAX_ENTRY_BYTES}"
            )
        if self.pending_bytes + size > WRITER_MAX_PENDING_BYTES:
            raise FencelogError(
                ErrorCode.OVERLOADED, f"ledger {self.ledger_id} waits for its bookies"
            )
        entry_id = self._next_entry_id
        self._next_entry_id += 1
        self._length += size
        self._queue.append(payload)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)
        return entry_id

    async def close(self) -> LedgerMetadata:
        """Wait until everything is acknowledged, then close the ledger at LAC (rule 8).

        Raises the writer's failure if there was one; LEDGER_FENCED when somebody else is recovering
        the ledger or has closed it at another entry.
        """
        self._closing = True
        self._flush()
        while self._core.finished is None and (self._core.has_pending or self._change is not None):
            self._settled.clear()
            await self._settled.wait()
        self._stop_retrying()
        if self._core.finished is not None:
            raise self._core.finished
        last, length = self._core.lac, self._core.length
        metadata, _ = await update_metadata(
            self._ledgers,
            self.metadata,
            self._version,
            lambda base: closed_by_writer(base, last_entry_id=last, length=length),
        )
        return metadata

    async def abandon(self) -> None:
        """Give the ledger up without closing it; somebody will recover it."""
        self._closing = True
        self._stop_retrying()
        if self._change is not None:
            self._change.cancel()
            await asyncio.gather(self._change, return_exceptions=True)
        self._core.fail(FencelogError(ErrorCode.LEDGER_CLOSED, "the writer was abandoned"))
        self._settled.set()

    # -- the pipeline ----------------------------------------------------------------------------

    def _flush(self) -> None:
        """Send what is queued as runs. The LAC that they carry is the one known now."""
        self._flush_scheduled = False
        queue, self._queue = self._queue, []
        core, metadata = self._core, self._core.metadata
        start = 0
        while start < len(queue) and core.finished is None:
            end = self._run_end(queue, start)
            payloads = queue[start:end]
            run = build_run(
                metadata.ledger_id,
                core.last_add_pushed + 1,
                payloads,
                lac=core.lac,
                length_before=self._length_pushed,
                digest_type=metadata.digest_type,
                key=self._key,
            )
            self._length_pushed += sum(map(len, payloads))
            self._execute(core.push(run, count=end - start, length=self._length_pushed))
            start = end

    def _run_end(self, queue: list[bytes], start: int) -> int:
        """How far the run that begins at ``start`` goes: by entries and by bytes, at least one."""
        limit = min(len(queue), start + self._max_run_entries)
        size, end = 0, start
        while end < limit:
            size += len(queue[end]) + self._overhead
            if size > TARGET_RUN_BYTES and end > start:
                break
            end += 1
        return end

    def _on_reply(
        self, run: PendingRun, index: int, bookie_id: str, error: FencelogError | None
    ) -> None:
        if error is not None and error.code not in FATAL_CODES:
            self._placement.report_failure(bookie_id)
        effects = self._core.reply(run, index, bookie_id, error)
        if effects:
            self._execute(effects)

    def _execute(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(run, index, bookie_id):
                    self._bookies.client(bookie_id).add(
                        run.data,
                        recovery=False,
                        incarnation=self._incarnations.get(bookie_id, ""),
                        on_reply=partial(self._on_reply, run, index, bookie_id),
                    )
                case Acknowledged(lac, _):
                    self._on_ack(lac)
                    self._settled.set()
                case ChangeEnsemble():
                    self._change = asyncio.get_running_loop().create_task(
                        self._change_ensemble(effect), name=f"ensemble of {self.ledger_id}"
                    )
                case Failed(error):
                    self._queue.clear()
                    self._stop_retrying()
                    self._on_failure(error)
                    self._settled.set()

    # -- ensemble change -------------------------------------------------------------------------

    async def _change_ensemble(self, change: ChangeEnsemble) -> None:
        """Find replacements and commit them (rule 2). Ends in exactly one report to the core."""
        effects: list[Effect]
        try:
            ensemble = self._placement.replace(self._core.ensemble, change.failed)
            for bookie_id in set(ensemble) - set(self._core.ensemble):
                self._incarnations[bookie_id] = self._bookies.describe(bookie_id).incarnation
            metadata, self._version = await update_metadata(
                self._ledgers,
                self.metadata,
                self._version,
                lambda base: with_new_ensemble(base, change.first_entry_id, ensemble),
            )
            effects = self._core.ensemble_changed(metadata)
        except FencelogError as error:
            if error.code in (ErrorCode.NOT_ENOUGH_BOOKIES, ErrorCode.METADATA_UNAVAILABLE):
                effects = self._core.ensemble_unchanged()
                self._retry_later()
            else:
                effects = self._core.fail(error)
        finally:
            self._change = None
        self._execute(effects)
        self._settled.set()

    def _retry_later(self) -> None:
        if self._retry is None and self._core.finished is None and not self._closing:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(REPLACE_RETRY_S, self._retry_now)

    def _retry_now(self) -> None:
        self._retry = None
        self._execute(self._core.change_ensemble())

    def _stop_retrying(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
