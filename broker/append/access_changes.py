"""Changes of producer access to a partition: durable before anything is appended under the change.

One change is made at a time: new appends are held, those before them settle, the change is recorded
in the state log, and only then the appends that waited are decided, by the new access. So a caller
that was notified of a new fencing token or epoch knows that no append of the previous one follows,
on any owner.

While the outcome of a change is not known appends are refused, since the next owner might not know
of the change. So a change begins with a proof that the state log can be written: where it cannot,
because metadata or bookies are unavailable, nothing is changed and appends continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from fencelog.broker.append.conditional_appends import ConditionalAppends
from fencelog.broker.append.conditions import NO_CONDITIONS, AppendResult
from fencelog.broker.append.producer_access import WAIT
from fencelog.broker.append.producer_table import ProducerState
from fencelog.broker.ledger_list.state_core import Event
from fencelog.broker.ledger_list.state_log import StateLog
from fencelog.broker.limits import MAX_WAITING_CHANGES
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import SequenceRange, producer_digest

_DECIDED_BY_ACCESS = (
    ErrorCode.PRECONDITION_FAILED,
    ErrorCode.PRODUCER_BUSY,
    ErrorCode.PRODUCER_FENCED,
)
"""The refusals of a change that a later owner may make, as the access is another one there."""


class AccessChanges:
    """Changes the access to one partition. A change continues if its caller goes away."""

    def __init__(self, appends: ConditionalAppends, state_log: StateLog) -> None:
        self._appends = appends
        self._access = appends.access
        self._state_log = state_log
        self._turn = asyncio.Lock()
        self._growth = asyncio.Lock()
        self._promised = self._access.partitions
        """The number of partitions that is durable in the state log: no owner writes a key that was
        routed by fewer."""
        self._changed: asyncio.Event | None = None
        """The event that is set at the next change, None if no claim waits for one."""
        self._tasks: set[asyncio.Task[Event]] = set()

    async def fence(self, token: str | None, *, expected: tuple[str | None] | None = None) -> None:
        """Set the fencing token, if it is ``expected[0]`` now. Raises FencelogError:
        PRECONDITION_FAILED, STATE_UNKNOWN, BOOKIE_UNAVAILABLE, OVERLOADED, why the log ended."""
        await self._change(lambda: self._access.fence(token, expected=expected))

    async def claim(self, producer_id: str, mode: str, *, wait_ms: int) -> int:
        """Give this producer the exclusive right to append; return the epoch that it has to name.

        ``mode``: one of MODES; WAIT waits up to ``wait_ms`` for another holder to release. Raises
        PRODUCER_BUSY besides what ``fence`` raises.
        """
        digest = producer_digest(producer_id.encode())

        def claim() -> Event:
            known = self._appends.producers.get(digest)
            seen = -1 if known is None else known.epoch
            return self._access.claim(producer_id, mode, seen_epoch=seen)

        loop = asyncio.get_running_loop()
        give_up = loop.time() + wait_ms / 1000
        while True:
            changed = self._changed = self._changed or asyncio.Event()
            try:
                return int((await self._change(claim))[-1])
            except FencelogError as error:
                left_s = give_up - loop.time()
                if error.code is not ErrorCode.PRODUCER_BUSY or mode != WAIT or left_s <= 0:
                    raise
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await changed.wait()

    async def release(self, producer_id: str, epoch: int) -> None:
        """Allow all producers to append again. Raises PRODUCER_FENCED besides what ``fence``
        raises."""
        await self._change(lambda: self._access.release(producer_id, epoch))

    async def find_key(self, sequences: SequenceRange, partitions: int) -> AppendResult | None:
        """Return the append under an idempotency key, if it is here; None: it is not, and none that
        was routed by less than ``partitions`` ever will be. Raises IDEMPOTENCY_KEY_REUSED besides
        what ``fence`` and the append in flight raise."""
        if self._promised < partitions and not self._appends.is_terminated:
            await self._promise(partitions)
        return await self._appends.find_key(sequences)

    async def producer(self, producer_id: str) -> ProducerState | None:
        """Return what the log holds of a producer, once all its appends in flight are settled.
        Raises READ_UNKNOWN."""
        return await self._appends.producer(producer_digest(producer_id.encode()))

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold new appends meanwhile, begun when those before them are settled. Raises
        FencelogError: BOOKIE_UNAVAILABLE, why the log ended, or what any append is refused with
        that names no token and no producer."""
        async with self._turn:
            try:
                self._access.check(NO_CONDITIONS)
            except FencelogError as error:
                raise await self._appends.confirmed(error) from error
            self._appends.check_settled()
            try:
                await self._appends.drain()
                yield
            finally:
                self._appends.open()

    def close(self) -> None:
        """Notify the claims that wait for a release: the log has ended."""
        self._tell()

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def shown(self) -> dict[str, Any]:
        """Return ``fencing_token``, ``exclusive`` (``producer_id``, ``epoch``) and ``count``, the
        number of producers that are remembered."""
        holder = self._access.holder
        return {
            "fencing_token": self._access.token,
            "exclusive": None if holder is None else holder._asdict(),
            "count": self._appends.producers.count,
        }

    async def _promise(self, partitions: int) -> None:
        """Make it durable that the topic has so many partitions. One change serves all who wait for
        it."""
        async with self._growth:
            if self._promised < partitions:
                await self._change(lambda: self._access.grow(partitions))
                self._promised = partitions

    async def _change(self, decide: Callable[[], Event]) -> Event:
        if len(self._tasks) >= MAX_WAITING_CHANGES:
            raise FencelogError(
                ErrorCode.OVERLOADED, f"{len(self._tasks)} changes of who may append wait"
            )
        task = asyncio.get_running_loop().create_task(self._carry_out(decide))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except FencelogError as error:
            if error.code not in _DECIDED_BY_ACCESS:
                raise
            raise await self._appends.confirmed(error) from error

    def _ended(self, task: asyncio.Task[Event]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the error is the caller's, which may have gone away

    async def _carry_out(self, decide: Callable[[], Event]) -> Event:
        async with self._turn:
            self._state_log.admit()
            decide()  # an append that is refused anyhow delays no other
            await self._prove_writable()
            try:
                await self._appends.drain()
                event = decide()
                self._state_log.admit()
            except BaseException:
                self._appends.open()
                raise
            self._access.apply(event)
            recorded = self._state_log.recorded(event)
            try:
                await self._state_log.settled(recorded)
            except FencelogError as error:
                self._refuse_until(recorded, error)
                raise
            self._open()
            return event

    async def _prove_writable(self) -> None:
        """Write the token as it is. When that is durable every previous change is durable too,
        since they are in order. Raises BOOKIE_UNAVAILABLE, or why the log has ended: nothing is
        changed."""
        try:
            await self._state_log.record(["fencing_token", self._access.token])
        except FencelogError as error:
            self._state_log.admit()
            raise FencelogError(
                ErrorCode.BOOKIE_UNAVAILABLE,
                "who may append cannot be changed now: the state log is not written",
            ) from error

    def _open(self) -> None:
        """Admit appends again: the change is durable."""
        self._appends.open()
        self._tell()

    def _refuse_until(self, recorded: asyncio.Future[None], error: FencelogError) -> None:
        self._appends.refuse(
            FencelogError(
                ErrorCode.BOOKIE_UNAVAILABLE,
                f"a change of who may append is not durable yet: {error.detail}",
            )
        )

        def opened(done: asyncio.Future[None]) -> None:
            if not done.cancelled() and done.exception() is None:
                self._open()

        recorded.add_done_callback(opened)
