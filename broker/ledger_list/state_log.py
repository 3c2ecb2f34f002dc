"""The state log, from which the sections of ``state_core`` are rebuilt after a takeover.

It is one ledger, named by the partition's ledger list. It begins with a snapshot and continues with
events. When it has grown, has failed, or belongs to a previous owner, the state continues in a new
one: a snapshot of the state in memory is written there, and only then a compare-and-set of the
ledger list replaces the previous one by it. So

* a takeover fences, recovers and reads one ledger, and the same compare-and-set that makes it owner
  refuses every later change of the previous owner's;
* a failed ledger need not be recovered by its writer: all events in flight to it are in the
  snapshot, and durable once the ledger list names that;
* a topic without subscriptions and producers has none.

Events reach the log in the order in which the state was changed. The code that changes a section
must call ``record`` or ``note`` in the same iteration of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from fencelog.broker.ledger_list.open_ledger import LedgerFactory, OpenLedger
from fencelog.broker.ledger_list.state_core import Event, PartitionState, encode_events
from fencelog.broker.ledger_list.store import LedgerListLost, LedgerListStore
from fencelog.broker.limits import MAX_STATE_EVENTS_WAITING, STATE_LEDGER_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError, copy_of
from fencelog.ledgers.format.entry_header import KIND_STATE, pack_entry
from fencelog.ledgers.metastore.port import Change

RETRY_S = 0.5
"""Pause after a new state ledger could not be written."""

log = logging.getLogger(__name__)

_Waiting = tuple[Event, asyncio.Future[None] | None]
"""An event for the state log, and the future of its caller; None for one that was only noted."""


class StateLog:
    """Writes one partition's state log. It has a task only while there is something to write."""

    def __init__(
        self,
        node: LedgerListStore,
        factory: LedgerFactory,
        state: PartitionState,
        *,
        timeout_s: float,
    ) -> None:
        """Begin without a ledger and without a task. ``timeout_s``: after it a caller gets the
        error that the outcome is unknown."""
        self._node = node
        self._factory = factory
        self._state = state
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._ledger: OpenLedger | None = None
        self._next: asyncio.Task[OpenLedger] | None = None
        self._waiting: list[_Waiting] = []
        self._in_ledger = 0
        self._snapshot_bytes = 0
        self._ledger_bytes = 0
        self._wakeup: asyncio.Event | None = None
        self._scribe: asyncio.Task[None] | None = None
        self._refusal: FencelogError | None = None
        self._on_stop: Callable[[FencelogError], None] = _ignore

    def call_when_stopped(self, on_stop: Callable[[FencelogError], None]) -> None:
        """Call ``on_stop`` if the state log must stop though the log is not lost: the other parts
        of the log must stop then, too."""
        self._on_stop = on_stop

    def admit(self) -> None:
        """Call before the state is changed. Raises OVERLOADED, or why the log has ended."""
        if self._refusal is not None:
            raise copy_of(self._refusal)
        if len(self._waiting) >= MAX_STATE_EVENTS_WAITING:
            raise FencelogError(
                ErrorCode.OVERLOADED,
                f"{len(self._waiting)} changes of {self._node.path} wait to be written",
            )

    def record(self, event: Event) -> Awaitable[None]:
        """Record the event now; the result ends when it is durable, and with it everything that was
        recorded or noted before. Awaiting it raises STATE_UNKNOWN."""
        return self.settled(self.recorded(event))

    def recorded(self, event: Event) -> asyncio.Future[None]:
        """Record the event at once; wait for the result with ``settled``."""
        future: asyncio.Future[None] = self._loop.create_future()
        future.add_done_callback(_retrieve)
        self._put((event, future))
        return future

    async def settled(self, future: asyncio.Future[None]) -> None:
        """Wait for an event that was recorded. Raises STATE_UNKNOWN, after ``timeout_s`` too."""
        await asyncio.wait((future,), timeout=self._timeout_s)
        if not future.done():
            raise self._unknown("its bookies or the metadata do not answer")
        future.result()

    def note(self, event: Event) -> None:
        """Write the event with the next ones; no caller waits for it."""
        self._put((event, None))

    async def prepare_close(self) -> Sequence[Change]:
        """Write the events that wait, and refuse others; return the change that closes the ledger,
        nothing if there is none to close. If that is not made, ``close`` may follow. Never raises;
        the caller sets the time limit."""
        await self._finish()
        if self._ledger is not None:
            with suppress(FencelogError):  # the next owner recovers it
                _, change = await self._ledger.writer.prepare_close()
                return () if change is None else (change,)
        return ()

    async def close(self) -> None:
        """Write the events that wait, close the ledger. Never raises; the caller sets the time
        limit."""
        await self._finish()
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            with suppress(FencelogError):  # the next owner closes it
                await ledger.writer.close()
            await ledger.writer.abandon()

    async def _finish(self) -> None:
        if self._refusal is None:
            self._refusal = FencelogError(ErrorCode.DRAINING, "the partition is being closed")
        if self._scribe is not None:
            await asyncio.wait((self._scribe,))

    async def abandon(self, error: FencelogError) -> None:
        """End at once: the outcome of the events that wait is unknown. Never raises."""
        self._refusal = error
        if self._scribe is not None:
            self._scribe.cancel()
            await asyncio.wait((self._scribe,))
        self._fail(error)
        if self._next is not None:
            self._next.cancel()
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            await ledger.writer.abandon()

    # -- events of the ledger --------------------------------------------------------------------

    def on_ack(self, ledger: OpenLedger) -> None:
        self._tell()

    def on_failure(self, ledger: OpenLedger) -> None:
        self._tell()

    def _tell(self) -> None:
        if self._wakeup is not None:
            self._wakeup.set()

    # -- the writing task ------------------------------------------------------------------------

    def _put(self, waiting: _Waiting) -> None:
        if self._refusal is not None:
            if waiting[1] is not None:
                waiting[1].set_exception(self._unknown(self._refusal.detail))
            return
        self._waiting.append(waiting)
        if self._scribe is None:
            self._scribe = self._loop.create_task(self._write(), name=f"state {self._node.path}")

    async def _write(self) -> None:
        try:
            while self._waiting:
                try:
                    await (self._roll() if self._is_roll_due() else self._append_waiting())
                except FencelogError as error:
                    await self._try_again(error)
        except FencelogError as error:  # the log is lost, or was closed here
            self._refusal = error
            self._fail(error)
        except Exception:
            # A broken invariant, or a programming error: nothing may be reported durable any more.
            log.exception("%s: its state log stops", self._node.path)
            self._refusal = FencelogError(ErrorCode.INTERNAL, f"{self._node.path} has stopped")
            self._fail(self._refusal)
            self._on_stop(self._refusal)
        finally:
            self._scribe = None

    async def _try_again(self, error: FencelogError) -> None:
        """Pause, after the ledger list could not be changed; all events that wait are written to
        the next ledger. A log that refused all events from then on, while messages are appended and
        read, would be of no use. Raises the error where the ledger list is not ours to change any
        more."""
        if isinstance(error, LedgerListLost):
            raise error
        self._node.check_held()
        log.error("%s: its state log cannot go on yet: %s", self._node.path, error)
        await asyncio.sleep(RETRY_S)

    def _is_roll_due(self) -> bool:
        if not self._has_ledger:
            return True
        if self._ledger_bytes <= max(STATE_LEDGER_BYTES, 4 * self._snapshot_bytes):
            return False
        if self._next is None:  # made while the old one is written: the metadata may be unavailable
            self._next = self._loop.create_task(self._create())
            self._next.add_done_callback(_retrieve)
        return self._next.done()

    @property
    def _has_ledger(self) -> bool:
        return self._ledger is not None and self._ledger.failure is None

    async def _create(self) -> OpenLedger:
        return await self._factory.create(self._node.ledger_list.epoch)

    async def _append_waiting(self) -> None:
        """Append all events that wait, as one group. If the ledger fails they wait on, for the next
        one."""
        taken, self._waiting = self._waiting, []
        ledger, is_durable = self._ledger, False
        try:
            if ledger is not None:
                is_durable = await self._append(ledger, [event for event, _ in taken])
        finally:
            if is_durable:
                _succeed(taken)
            else:
                self._waiting = taken + self._waiting

    async def _roll(self) -> None:
        """Continue in a new ledger that begins with the state as it is in memory."""
        created, self._next = self._next or self._create(), None
        try:
            ledger = await created
        except FencelogError as error:
            await self._rest(error)
            return
        ledger.notify(self)
        previous, sizes = self._ledger, (self._in_ledger, self._ledger_bytes)
        self._in_ledger = self._ledger_bytes = 0
        taken, self._waiting = self._waiting, []
        try:
            if not await self._append(ledger, list(self._state.snapshot())):
                self._waiting = taken + self._waiting
                await ledger.writer.abandon()
                await self._delete(ledger.ledger_id)
                self._in_ledger, self._ledger_bytes = sizes
                await self._rest(ledger.failure)
                return
            previous_id = self._node.ledger_list.state_ledger
            await self._node.change(lambda ledger_list: ledger_list.with_state(ledger.ledger_id))
        except BaseException as error:
            self._waiting = taken + self._waiting
            if isinstance(error, LedgerListLost):
                await self._factory.discard(ledger, error)
                raise
            # Listed or not: in neither of the two is anything durable until the list says more.
            self._ledger = None
            for each in (ledger, previous):
                if each is not None:
                    await each.writer.abandon()
            raise
        self._snapshot_bytes = self._ledger_bytes
        self._ledger = ledger
        _succeed(taken)
        if previous is not None:
            await previous.writer.abandon()
        if previous_id is not None:
            await self._delete(previous_id)

    async def _append(self, ledger: OpenLedger, events: list[Event]) -> bool:
        """Append the events; return whether they are durable in the ledger. False: it has
        failed."""
        last = ledger.last_confirmed
        for count, data in encode_events(events):
            payload = pack_entry(
                data,
                count=count,
                first_number=self._in_ledger,
                publish_time_us=self._factory.host.now_us(),
                kind=KIND_STATE,
            )
            try:
                last = ledger.writer.append(payload)
            except FencelogError as error:
                if ledger.failure is None:
                    ledger.failed(error)
                return False
            self._in_ledger += count
            self._ledger_bytes += len(payload)
            if not await self._wait_acknowledged(ledger, last):
                return False
        return True

    async def _wait_acknowledged(self, ledger: OpenLedger, entry_id: int) -> bool:
        while ledger.last_confirmed < entry_id:
            if ledger.failure is not None:
                return False
            self._wakeup = asyncio.Event()
            await self._wakeup.wait()
        return True

    async def _rest(self, error: FencelogError | None) -> None:
        log.warning("%s: no new state ledger yet: %s", self._node.path, error)
        if self._has_ledger:
            return
        await asyncio.sleep(RETRY_S)
        await self._node.check_unchanged()

    async def _delete(self, ledger_id: int) -> None:
        with suppress(FencelogError):  # on no list any more: the sweep finds it
            await self._factory.ledgers.delete(ledger_id, unfenced=True)

    # -- the end ---------------------------------------------------------------------------------

    def _fail(self, error: FencelogError) -> None:
        waiting, self._waiting = self._waiting, []
        _give_up(waiting, self._node.path, error.detail)

    def _unknown(self, why: str) -> FencelogError:
        return _state_unknown(self._node.path, why)


def _succeed(taken: Iterable[_Waiting]) -> None:
    """Answer the callers of events that are durable."""
    for _, future in taken:
        if future is not None and not future.done():
            future.set_result(None)


def _give_up(waiting: Iterable[_Waiting], path: str, why: str) -> None:
    """Answer the callers of events whose outcome is unknown."""
    for _, future in waiting:
        if future is not None and not future.done():
            future.set_exception(_state_unknown(path, why))


def _state_unknown(path: str, why: str) -> FencelogError:
    return FencelogError(
        ErrorCode.STATE_UNKNOWN, f"the change of {path} may have been made, or not: {why}"
    )


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Mark the error of a future as seen: its caller may have gone away."""
    if not future.cancelled():
        future.exception()


def _ignore(error: FencelogError) -> None:
    """Do nothing: there is no listener yet."""
