"""The writer's shell: batches appends into runs and carries out what ``WriterCore`` decides.

One writer owns one ledger. ``append`` only queues; all entries queued in one iteration of the event
loop are sent as one run (or a few), together with those of the process's other writers
(``writer/outbox.py``), and are acknowledged together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.request_context import NO_CONTEXTS, Contexts, merge
from fencelog.ledgers.format.run import Payload, Run, RunHeader, build_run, run_of
from fencelog.ledgers.ledger_metadata.model import NO_ENTRY, LedgerMetadata
from fencelog.ledgers.ledger_metadata.update import MetadataAccess
from fencelog.ledgers.limits import MAX_ENTRY_BYTES, WRITER_MAX_PENDING_BYTES
from fencelog.ledgers.metastore.port import Version
from fencelog.ledgers.metrics import LedgerCounts
from fencelog.ledgers.placement.placement import Placement
from fencelog.ledgers.rpc.bookie_port import BookieDirectory
from fencelog.ledgers.writer.core import (
    Acknowledged,
    ChangeEnsemble,
    Effect,
    Failed,
    Send,
    WriterCore,
)
from fencelog.ledgers.writer.explicit_lac import ExplicitLac, LacReplies
from fencelog.ledgers.writer.metadata import PreparedClose, WriterMetadata
from fencelog.ledgers.writer.options import WriterOptions
from fencelog.ledgers.writer.outbox import OnLacReply, Outbox
from fencelog.ledgers.writer.run_batching import RunBatching

OnAcknowledged = Callable[[int], None]
OnFailure = Callable[[FencelogError], None]
OnEnsembleChange = Callable[[LedgerMetadata, LedgerMetadata], None]
"""A function of a ledger's metadata before and after its writer has replaced bookies."""

REPLACE_RETRY_S = 1.0
"""The interval at which a writer without a full ensemble looks for a replacement."""

_NO_CHANGE = (
    ErrorCode.NOT_ENOUGH_BOOKIES,
    ErrorCode.METADATA_UNAUTHORIZED,
    ErrorCode.METADATA_UNAVAILABLE,
    ErrorCode.BAD_REQUEST,
)
"""The reasons for which an ensemble stays as it is; the writer continues with it as long as it
can."""

_BLAMELESS = frozenset({ErrorCode.LEDGER_FENCED, ErrorCode.WRONG_INCARNATION})
"""Refusals of a bookie that is well: it may still be chosen for other ledgers."""


class LedgerWriter:
    """The single writer of an open ledger. Made by ``LedgerClient.create``.

    ``on_ack(lac)`` is called with the new LAC whenever it grows: all entries up to it are
    acknowledged, in order. ``on_failure(error)`` is called once, when the writer is finished:
    entries above ``last_add_confirmed`` are then of unknown outcome up to ``last_add_pushed``, and
    certainly not written above it. ``incarnations``: those of the ensemble when it was chosen.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        version: Version,
        *,
        ledgers: MetadataAccess,
        bookies: BookieDirectory,
        outbox: Outbox,
        placement: Placement,
        incarnations: Mapping[str, str],
        key: bytes,
        on_ack: OnAcknowledged,
        on_failure: OnFailure,
        options: WriterOptions,
        metrics: LedgerCounts | None = None,
        on_ensemble_change: OnEnsembleChange | None = None,
    ) -> None:
        self._metrics = metrics or LedgerCounts()
        self._on_ensemble_change = on_ensemble_change
        delay = options.delay_ensemble_change
        self._core = WriterCore(metadata, lac=NO_ENTRY, length=0, delay_changes=delay)
        self._own = WriterMetadata(
            metadata,
            version,
            ledgers=ledgers,
            bookies=bookies,
            placement=placement,
            incarnations=incarnations,
            now_us=placement.host.now_us,
        )
        self._outbox = outbox
        self._placement = placement
        self._incarnations = self._own.incarnations
        self._key = key
        self._on_ack = on_ack
        self._on_failure = on_failure
        self._queue: list[Payload] = []
        self._contexts: dict[int, Contexts] | None = None
        """The contexts of queued entries, by entry id; None: there are none, as mostly."""
        self._next_entry_id = 0
        self._length = 0
        self._length_pushed = 0
        self._flush_scheduled = False
        self._closing = False
        self._settled: asyncio.Event | None = None
        """The event that is set when ``close`` may go on; None until that waits: most ledgers are
        idle, and an event takes 800 bytes."""
        self._change: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._explicit_lac = ExplicitLac(
            self._core,
            outbox.lac_timer,
            interval_ms=options.explicit_lac_interval_ms,
            tell=self._send_explicit_lac,
        )
        self._batching = RunBatching.of(metadata)
        self.append_soon = outbox.append_soon
        """Calls a function in the next turn of the loop, together with those of the process's other
        writers and before any of them sends: what it appends, here or there, leaves in that
        turn."""

    @property
    def ledger_id(self) -> int:
        return self._core.metadata.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """Return the metadata as committed; fragments change with the ensemble."""
        return self._core.metadata

    @property
    def incarnations(self) -> Mapping[str, str]:
        """Return the incarnations of the bookies that have joined its ensemble."""
        return self._incarnations

    @property
    def last_add_confirmed(self) -> int:
        return self._core.lac

    @property
    def last_add_pushed(self) -> int:
        """Return the last entry that was sent to bookies; later ones were never sent."""
        return self._core.last_add_pushed

    @property
    def length(self) -> int:
        """Return the payload bytes up to ``last_add_confirmed``."""
        return self._core.length

    @property
    def pending_bytes(self) -> int:
        """Return the bytes of the entries that are not acknowledged yet, with their headers."""
        entries = self._next_entry_id - 1 - self._core.lac
        return self._length - self._core.length + entries * self._batching.overhead

    @property
    def failure(self) -> FencelogError | None:
        return self._core.finished

    def append(self, payload: Payload, contexts: Contexts = NO_CONTEXTS) -> int:
        """Queue one entry and return its id. Entries are stored in the order of the calls.
        ``contexts``: the requests that bookies are to know it by.

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
        if contexts:
            self._contexts = self._contexts or {}
            self._contexts[entry_id] = contexts
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._outbox.flush_soon(self._flush)
        return entry_id

    async def close(self) -> LedgerMetadata:
        """Wait until everything is acknowledged, then close the ledger at LAC (rule 8).

        Raises the writer's failure if there was one; LEDGER_FENCED when another client is
        recovering the ledger, has closed it at another entry or deleted it; METADATA_UNAVAILABLE:
        close again.
        """
        await self._finish()
        try:
            return await self._own.close(last_entry_id=self._core.lac, length=self._core.length)
        except FencelogError as error:
            if error.code is ErrorCode.LEDGER_FENCED:
                self._core.fail(error)
            raise

    async def prepare_close(self) -> PreparedClose:
        """Wait until everything is acknowledged; the caller closes the ledger at LAC by a commit,
        together with other changes, see ``WriterMetadata.prepare_close``. If that is refused,
        ``close`` may follow. Raises the writer's failure if there was one."""
        await self._finish()
        core = self._core
        return self._own.prepare_close(last_entry_id=core.lac, length=core.length)

    async def _finish(self) -> None:
        """Wait until everything is acknowledged; from then on answers of bookies are ignored.
        Raises the writer's failure if there was one."""
        self._closing = True
        self._flush()
        while self._core.finished is None and (self._core.has_pending or self._change is not None):
            settled = self._settled = self._settled or asyncio.Event()
            settled.clear()
            await settled.wait()
        self._stop()
        if self._core.finished is not None:
            raise self._core.finished
        self._core.seal()

    async def tell_lac(self) -> None:
        """Tell the bookies the LAC; return when a recovery is certain to hear it, or when all have
        answered.

        For a ledger that is to be abandoned complete: its recovery begins above the LAC, and writes
        what it finds there once more. Like the LAC in an add it is a hint: it names what is
        acknowledged in order, and where it is lost, recovery begins lower.
        """
        replies = LacReplies(self._core.metadata)

        def on_reply(bookie_id: str, error: FencelogError | None) -> None:
            self._on_lac_reply(bookie_id, error)
            replies.take(error)

        self._send_explicit_lac(self._core.lac, on_reply)
        await replies.enough.wait()

    async def abandon(self) -> None:
        """Give the ledger up without closing it; another process will recover it."""
        self._closing = True
        self._core.fail(FencelogError(ErrorCode.LEDGER_CLOSED, "the writer was abandoned"))
        self._queue.clear()
        self._stop()
        self._tell_close()
        if self._change is not None:
            await asyncio.gather(self._change, return_exceptions=True)

    def _stop(self) -> None:
        """Stop the tasks and timers beside the pipeline."""
        self._explicit_lac.stop()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._change is not None:
            self._change.cancel()

    # -- the pipeline ----------------------------------------------------------------------------

    def _flush(self) -> None:
        """Send the queue as runs. They carry the LAC that is known now."""
        self._flush_scheduled = False
        queue, self._queue = self._queue, []
        core, metadata = self._core, self._core.metadata
        known, self._contexts = self._contexts, None
        start = 0
        while start < len(queue) and core.finished is None:
            end = self._batching.end_of_run(queue, start)
            payloads = queue[start:end]
            first, lac = core.last_add_pushed + 1, core.lac
            data = build_run(
                metadata.ledger_id,
                first,
                payloads,
                lac=lac,
                length_before=self._length_pushed,
                digest_type=metadata.digest_type,
                key=self._key,
            )
            header = RunHeader(metadata.ledger_id, first, end - start, len(data))
            self._length_pushed += sum(map(len, payloads))
            contexts = NO_CONTEXTS
            if known is not None:
                contexts = merge(known.get(first + i, NO_CONTEXTS) for i in range(end - start))
            count, length = end - start, self._length_pushed
            sends = core.push(data, count=count, length=length, contexts=contexts)
            run = Run(header, lac, data, contexts)
            self._outbox.send(run, sends, self._incarnations, self._on_reply)
            start = end

    def _on_reply(self, send: Send, error: FencelogError | None) -> None:
        run, index, bookie_id = send
        if error is not None and error.code not in _BLAMELESS:
            self._placement.report_failure(bookie_id)
        if effects := self._core.reply(run, index, bookie_id, error):
            self._execute(effects)

    def _execute(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Acknowledged():  # the hot path: no pattern that takes it apart
                    self._on_ack(effect.lac)
                    self._explicit_lac.acknowledged()
                    if self._settled is not None:
                        self._settled.set()
                case Send(run):  # once more, to a new member, before anything is acknowledged
                    once_more = run_of(run.data)._replace(contexts=run.contexts)
                    self._outbox.send(once_more, (effect,), self._incarnations, self._on_reply)
                    self._outbox.hand_over()
                case ChangeEnsemble():
                    self._change = asyncio.get_running_loop().create_task(
                        self._change_ensemble(effect), name=f"ensemble of {self.ledger_id}"
                    )
                case Failed(error):
                    self._metrics.fenced_writers += error.code is ErrorCode.LEDGER_FENCED
                    self._queue.clear()
                    self._stop()
                    self._on_failure(error)
                    self._tell_close()

    def _tell_close(self) -> None:
        if self._settled is not None:
            self._settled.set()

    def _send_explicit_lac(self, lac: int, on_reply: OnLacReply | None = None) -> None:
        ensemble, on_reply = self._core.ensemble, on_reply or self._on_lac_reply
        self._outbox.send_lac((self.ledger_id, lac), ensemble, self._incarnations, on_reply)

    def _on_lac_reply(self, bookie_id: str, error: FencelogError | None) -> None:
        if error is not None:
            self._execute(self._core.on_lac_reply(bookie_id, error))

    # -- ensemble change -------------------------------------------------------------------------

    async def _change_ensemble(self, change: ChangeEnsemble) -> None:
        """Find replacements and commit them (rule 2). This ends in exactly one report to the
        core."""
        before = self._own.metadata
        try:
            effects = self._core.ensemble_changed(await self._own.change_ensemble(change))
            self._metrics.ensemble_changes += 1
            if self._on_ensemble_change is not None:
                self._on_ensemble_change(before, self._own.metadata)
        except FencelogError as error:
            if error.code in _NO_CHANGE:
                self._metrics.ensemble_changes_refused += 1
                effects = self._core.ensemble_unchanged()
                self._retry_later()
            else:
                effects = self._core.fail(error)
        except Exception as error:  # a bug; waiting callers have to learn of it
            effects = self._core.fail(FencelogError(ErrorCode.INTERNAL, repr(error)))
        finally:
            self._change = None
        self._execute(effects)
        self._tell_close()

    def _retry_later(self) -> None:
        if self._retry is None and self._core.finished is None and not self._closing:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(REPLACE_RETRY_S, self._retry_now)

    def _retry_now(self) -> None:
        self._retry = None
        self._execute(self._core.change_ensemble())
