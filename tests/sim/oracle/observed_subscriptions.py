"""The requests to a subscription at an instance of the log's owner, and noted there: by consumers
that call it directly, and by the service's own endpoints
(``topics/calls/called_subscriptions.py``)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from fencelog.broker.dispatch import base
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.registry.subscription_config import SubscriptionInfo
from fencelog.broker.subscriptions.answers import AckResult, PulledMessage
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from tests.sim.oracle.owner_view import Lease
from tests.sim.oracle.subscription_history import Given, SubscriptionHistory


class Full(NamedTuple):
    """An owner's subscription that may read nothing new. ``asks``: acknowledgements that had begun
    anywhere: what one of them does, or undoes, is not seen here."""

    dispatch: object
    rewinds: int
    next_offset: int
    ranges: int
    acked_to: int
    asks: int

    def is_passed(self, now: Full | None) -> bool:
        """Tell whether it has read on, though nothing else has changed since."""
        return (
            now is not None
            and now._replace(next_offset=self.next_offset) == self
            and now.next_offset > self.next_offset
        )


class ObservedSubscriptions:
    """``history.opened`` or ``history.noticed`` comes first."""

    def __init__(self, instance: PartitionLog, history: SubscriptionHistory) -> None:
        self.instance = instance
        self.history = history
        self._real = instance.subscriptions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    # -- handing out -----------------------------------------------------------------------------

    async def pull(
        self,
        info: SubscriptionInfo,
        consumer: str,
        *,
        max_messages: int,
        max_bytes: int,
        lease_ms: int | None = None,
    ) -> list[PulledMessage]:
        history, instance, loop = self.history, self.instance, asyncio.get_running_loop()
        view = history.views[instance]
        began_s, seeks = loop.time(), view.seeks
        view.pulling[consumer] += 1
        full = self._full()
        try:
            with self._judged():
                messages = await self._real.pull(
                    info,
                    consumer,
                    max_messages=max_messages,
                    max_bytes=max_bytes,
                    lease_ms=lease_ms,
                )
        except (FencelogError, asyncio.CancelledError):
            view.pulling[consumer] -= 1
            history.check_leases(self._leases(), instance)
            raise
        view.pulling[consumer] -= 1
        history.handed_out(
            messages,
            consumer,
            owner=instance,
            seeks=seeks,
            began_s=began_s,
            now_s=loop.time(),
            lease_s=(lease_ms or info.config.lease_ms) / 1000,
        )
        history.check_leases(self._leases(), instance)
        if full is not None and full.is_passed(self._full()):
            history.violate(18, f"reads on at {full.next_offset}, {full.ranges} ranges are acked")
        for message in messages:
            history.given[message.ack_id] = Given(
                message.offset, history.seeks_begun, instance.epoch
            )
        return messages

    async def wait(self, info: SubscriptionInfo, consumer: str, wait_ms: int) -> bool:
        with self._judged():
            return await self._real.wait(info, consumer, wait_ms)

    async def hold(
        self, info: SubscriptionInfo, consumer: str, *, lease_ms: int | None, renew: bool = False
    ) -> None:
        with self._judged():
            await self._real.hold(info, consumer, lease_ms=lease_ms, renew=renew)

    async def open(self, info: SubscriptionInfo) -> None:
        with self._judged():
            await self._real.open(info)

    @contextmanager
    def _judged(self) -> Iterator[None]:
        """Judge a refusal, which is final for a client that hears of no other owner."""
        newest_epoch = self.history.log.newest_epoch
        try:
            yield
        except FencelogError as error:
            self.history.turned_away(error, self.instance, newest_epoch)
            raise

    def _full(self) -> Full | None:
        """Return where the owner reads on, if it has as many ranges of acknowledged messages as it
        may, and is beyond them: then nothing new is delivered."""
        used = self._real._in_use.get(self.history.info.subscription_id)
        if used is None:
            return None
        acks, limit = used.cursor.acks, vars(base)["MAX_ACK_RANGES"]
        if len(acks) < limit or acks.next_unacked(used.dispatch.next_offset) < acks.end:
            return None
        self.history.log.counts["pulls over the limit of ranges"] += 1
        return Full(
            used.dispatch,
            used.dispatch.rewinds,
            used.dispatch.next_offset,
            len(acks),
            acks.acked_to,
            self.history.asks,
        )

    def _leases(self) -> dict[int, str]:
        """Return the holder of each message, by offset, in the owner's view."""
        used = self._real._in_use.get(self.history.info.subscription_id)
        leases = {} if used is None else used.dispatch.leases.by_offset
        return {offset: lease.consumer for offset, lease in leases.items()}

    # -- what consumers say ----------------------------------------------------------------------

    async def ack(self, info: SubscriptionInfo, ack_ids: Sequence[str]) -> AckResult:
        history = self.history
        given = [history.given[ack_id] for ack_id in ack_ids]
        outdated = {one.offset for one in given if history.outdates(one.pulled_at, self.instance)}

        async def ack() -> tuple[AckResult, list[int]]:
            result = await self._real.ack(info, ack_ids)
            history.called_stale(result.stale, self.instance)
            return result, self._offsets(result.stale)

        result, confirmed = await self._asked([one.offset for one in given], ack)
        if wrong := outdated.intersection(confirmed):
            history.violate(19, f"{wrong} acknowledged by ids from before a seek")
        return result

    async def ack_through(
        self, info: SubscriptionInfo, ack_id: str, consumer: str | None = None
    ) -> AckResult:
        history = self.history
        given = history.given[ack_id]
        is_outdated = history.outdates(given.pulled_at, self.instance)
        below = range(history.log.start_offset, given.offset + 1)

        async def ack() -> tuple[AckResult, Sequence[int]]:
            with self._judged():
                result = await self._real.ack_through(info, ack_id, consumer)
            history.called_stale(result.stale, self.instance)
            return result, below if result.stale else ()

        result, confirmed = await self._asked(below, ack)
        if is_outdated and confirmed:
            history.violate(19, f"all to {given.offset} by an id from before a seek")
        return result

    async def _asked(
        self,
        offsets: Sequence[int],
        ack: Callable[[], Awaitable[tuple[AckResult, Sequence[int]]]],
    ) -> tuple[AckResult, list[int]]:
        """Return what an acknowledgement gives, and what is confirmed by it; ``ack`` gives what of
        it was stale as well."""
        history, now_s = self.history, asyncio.get_running_loop().time()
        ask = history.acknowledging(offsets, self.instance, now_s)
        try:
            result, stale = await ack()
        except FencelogError as error:
            if error.code.effects is Effects.NONE:  # it was refused at once
                history.refused(ask, self.instance)
            raise
        return result, history.acknowledged(ask, stale, self.instance)

    async def nack(
        self,
        info: SubscriptionInfo,
        ack_ids: Sequence[str],
        delay_ms: int | None = None,
        *,
        failed: bool = True,
    ) -> list[str]:
        now_s = asyncio.get_running_loop().time()
        failures = {} if failed else dict(self._failures())
        stale = await self._real.nack(info, ack_ids, delay_ms, failed=failed)
        self.history.called_stale(stale, self.instance)
        returned = self.history.named(sorted(set(ack_ids).difference(stale)), self.instance, now_s)
        self.history.refusing(returned, self.instance)
        if not failed:
            self.history.log.counts["messages given back unused"] += len(returned)
            now = self._failures()
            if counted := [o for o in returned if now.get(o, 0) > failures.get(o, 0)]:
                self.history.violate(18, f"{counted} were not used, and count as failed")
        return stale

    async def release(self, info: SubscriptionInfo, consumer: str) -> None:
        view = self.history.views[self.instance]
        had = view.begin_giving_back(consumer)
        given_back: Mapping[int, Lease] = {}
        try:
            await self._real.release(info, consumer)
            given_back = had
        finally:
            view.end_giving_back(consumer, given_back)
        self.history.log.counts["messages given back by name"] += len(had)
        self.history.check_leases(self._leases(), self.instance)

    def _failures(self) -> Mapping[int, int]:
        """Return how often each message has failed, by offset, in the owner's view."""
        used = self._real._in_use.get(self.history.info.subscription_id)
        return {} if used is None else used.dispatch.cursor.failures

    async def extend(
        self, info: SubscriptionInfo, ack_ids: Sequence[str], lease_ms: int
    ) -> list[str]:
        now_s = asyncio.get_running_loop().time()
        stale = await self._real.extend(info, ack_ids, lease_ms)
        self.history.called_stale(stale, self.instance)
        kept = self.history.named(sorted(set(ack_ids).difference(stale)), self.instance, now_s)
        self.history.extended(kept, self.instance, now_s + lease_ms / 1000)
        return stale

    def _offsets(self, ack_ids: set[str] | Sequence[str]) -> list[int]:
        return sorted(self.history.given[ack_id].offset for ack_id in ack_ids)

    async def seek(self, info: SubscriptionInfo, offset: int) -> int:
        history = self.history
        await self._check_below_tail(offset)
        seek = history.seeking(offset, self.instance)
        try:
            found = await self._real.seek(info, offset)
        except FencelogError as error:
            if error.code.effects is Effects.NONE:  # it was refused at once
                history.not_sought(seek)
            raise
        history.sought(seek, found)
        return found

    async def _check_below_tail(self, offset: int) -> None:
        """Have the owner refuse a seek first that is beyond its tail: its view does not change
        while it makes sure of that."""
        log = self.history.log
        known_end = log.known_end
        try:
            await self.instance._reader.check_below_tail(offset)
        except FencelogError as error:
            if error.code is ErrorCode.OFFSET_BEYOND_TAIL:
                log.denied(offset, known_end)
            raise
