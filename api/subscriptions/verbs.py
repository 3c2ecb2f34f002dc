"""The requests of consumers: pull, ack, nack, extend, seek, and the requests between brokers.

All are plain ASGI, and all may be sent to any broker. None of them keeps anything here: leases and
cursors are the partition owners'. A request about several partitions of which some could not be
asked is never answered as done; each of these requests may be repeated.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from fencelog.api.http.asgi import JSON, Exchange
from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.metrics import ApiMetrics
from fencelog.api.http.targets import Endpoint, Target
from fencelog.api.http.waits import Waits
from fencelog.api.subscriptions.exclusive_lease import ExclusiveLease
from fencelog.api.subscriptions.owners import Asked, SubscriptionOwners, all_or_problem, together
from fencelog.api.subscriptions.parts import (
    PARAMETERS,
    by_partition,
    chosen_partitions,
    each_once,
    find,
    one_a_partition,
)
from fencelog.api.subscriptions.pull import PullService
from fencelog.api.subscriptions.requests import (
    Acked,
    AckRequest,
    ExtendRequest,
    FoundOffsets,
    LeaseRequest,
    NackRequest,
    PartitionOffset,
    Pulled,
    PullRequest,
    SeekRequest,
    Stale,
    WaitRequest,
    only_one,
    read_body,
)
from fencelog.api.subscriptions.wait import SubscriptionWaits
from fencelog.broker.limits import MAX_BODY_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition.partition_log import PartitionLog

S = TypeVar("S", bound=msgspec.Struct)


class SubscriptionVerbs:
    """The endpoints of ``POST …/subscriptions/NAME:VERB``."""

    def __init__(
        self,
        broker: Broker,
        owners: SubscriptionOwners,
        pull: PullService,
        exclusive_lease: ExclusiveLease,
        waits: Waits,
        bodies: BodyReader,
        metrics: ApiMetrics,
    ) -> None:
        self._broker = broker
        self._owners = owners
        self._pull = pull
        self._exclusive_lease = exclusive_lease
        self._waiting = SubscriptionWaits(broker, owners)
        self._waits = waits
        self._bodies = bodies
        self._metrics = metrics

    # -- taking ----------------------------------------------------------------------------------

    async def pull(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 with messages, perhaps none. Raises SUBSCRIPTION_BUSY, SUBSCRIPTION_NOT_FOUND,
        …."""
        request = await self._read(exchange, PullRequest)
        asked = await find(self._broker, exchange, target)
        partitions = chosen_partitions(exchange, asked)

        async def answer() -> None:
            messages = await self._pull.pull(asked, partitions, request)
            body = msgspec.json.encode(Pulled(messages))
            await exchange.respond(200, JSON, body)
            self._metrics.read(len(messages), len(body))

        await self._waits.run(exchange, answer())

    async def wait(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 ``{"partitions"}``: those of the requested ones from which a pull would return
        messages; also those that are not this broker's (any more). No effects."""
        request = await self._read(exchange, WaitRequest)
        asked = await find(self._broker, exchange, target)

        async def answer() -> None:
            await respond(exchange, await self._waiting.wait_here(asked, request))

        await self._waits.run(exchange, answer())

    async def hold(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 ``{}``: the consumer of the body is the only one. Raises SUBSCRIPTION_BUSY."""
        request = await self._read(exchange, LeaseRequest)
        asked = await find(self._broker, exchange, target)
        await respond(exchange, await self._exclusive_lease.at_arbiter(asked, request))

    # -- giving back -----------------------------------------------------------------------------

    async def ack(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 ``{"acked", "stale"}`` once the acknowledgements are durable."""
        request = await self._read(exchange, AckRequest)
        asked = await find(self._broker, exchange, target)
        if only_one(request, "ack_ids", "through") == "ack_ids":
            acked = await self.ack_ids(asked, request.ack_ids or ())
        else:
            through = one_a_partition(request.through or (), asked)
            acked = await self._together(
                asked,
                {p: self._ack_through(asked, p, i, request.consumer) for p, i in through.items()},
            )
        await respond(exchange, acked)

    async def ack_ids(self, asked: Asked, ack_ids: Sequence[str]) -> Acked:
        """Acknowledge messages of any partitions, durably. Raises STATE_UNKNOWN with ``acked``,
        ``stale`` and ``failed`` if some partitions have done it."""
        groups = by_partition(ack_ids, asked)
        return await self._together(asked, {p: self._ack(asked, p, i) for p, i in groups.items()})

    async def _together(self, asked: Asked, parts: dict[int, Coroutine[Any, Any, Acked]]) -> Acked:
        done, errors = await together(parts)
        acked = sum(answer.acked for answer in done.values())
        stale = [ack_id for answer in done.values() for ack_id in answer.stale]
        all_or_problem(done, errors, f"{asked.path}:ack", acked=acked, stale=stale)
        return Acked(acked, stale)

    def _ack(self, asked: Asked, partition: int, ack_ids: list[str]) -> Coroutine[Any, Any, Acked]:
        async def local(log: PartitionLog) -> Acked:
            result = await log.subscriptions.ack(asked.subscription.info, ack_ids)
            return Acked(result.acked, result.stale)

        request = AckRequest(ack_ids=ack_ids)
        return self._owners.ask(asked, partition, Endpoint.ACK, request, local, Acked)

    def _ack_through(
        self, asked: Asked, partition: int, ack_id: str, consumer: str
    ) -> Coroutine[Any, Any, Acked]:
        async def local(log: PartitionLog) -> Acked:
            info = asked.subscription.info
            result = await log.subscriptions.ack_through(info, ack_id, consumer or None)
            return Acked(result.acked, result.stale)

        request = AckRequest(through=[ack_id], consumer=consumer)
        return self._owners.ask(asked, partition, Endpoint.ACK, request, local, Acked)

    async def nack(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 ``{"stale"}``: the others are delivered again after ``delay_ms``, or at once
        where they have not ``failed``. Raises BAD_REQUEST for these with a delay, and for failures
        that are not named one by one."""
        exchange.query(PARAMETERS)
        request = await self._read(exchange, NackRequest)
        if request.delay_ms is not None and not request.failed:
            detail = "messages that have not failed are delivered again at once"
            raise FencelogError(ErrorCode.BAD_REQUEST, detail, field="delay_ms")
        by_name = only_one(request, "ack_ids", "consumer") == "consumer"
        if by_name and request.failed:
            detail = "all that a consumer has is given back as unused: failed is false"
            raise FencelogError(ErrorCode.BAD_REQUEST, detail, field="failed")
        if by_name and not request.consumer:
            detail = "consumers without a name cannot be told apart"
            raise FencelogError(ErrorCode.BAD_REQUEST, detail, field="consumer")
        asked = await find(self._broker, exchange, target)
        if by_name:
            parts = {
                p: self._release(asked, p, request) for p in chosen_partitions(exchange, asked)
            }
            await respond(exchange, await self._stale(f"{asked.path}:nack", parts))
        else:
            await respond(exchange, await self.nack_ids(asked, request))

    def _release(
        self, asked: Asked, partition: int, request: NackRequest
    ) -> Coroutine[Any, Any, Stale]:
        async def local(log: PartitionLog) -> Stale:
            await log.subscriptions.release(asked.subscription.info, request.consumer or "")
            return Stale()

        return self._owners.ask(asked, partition, Endpoint.NACK, request, local, Stale)

    async def nack_ids(self, asked: Asked, request: NackRequest) -> Stale:
        """Give messages of any partitions back. Raises STATE_UNKNOWN with ``stale`` and ``failed``
        if some partitions have done it."""
        delay_ms, failed = request.delay_ms, request.failed

        def nack(partition: int, ids: list[str]) -> Coroutine[Any, Any, Stale]:
            async def local(log: PartitionLog) -> Stale:
                info = asked.subscription.info
                return Stale(await log.subscriptions.nack(info, ids, delay_ms, failed=failed))

            part = NackRequest(ids, delay_ms, failed)
            return self._owners.ask(asked, partition, Endpoint.NACK, part, local, Stale)

        groups = by_partition(request.ack_ids or (), asked)
        return await self._stale(f"{asked.path}:nack", {p: nack(p, i) for p, i in groups.items()})

    async def extend(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 ``{"stale"}``: the others' leases end ``lease_ms`` from now."""
        request = await self._read(exchange, ExtendRequest)
        asked = await find(self._broker, exchange, target)
        lease_ms = request.lease_ms

        def extend(partition: int, ids: list[str]) -> Coroutine[Any, Any, Stale]:
            async def local(log: PartitionLog) -> Stale:
                info = asked.subscription.info
                return Stale(await log.subscriptions.extend(info, ids, lease_ms))

            part = ExtendRequest(ids, lease_ms)
            return self._owners.ask(asked, partition, Endpoint.EXTEND, part, local, Stale)

        groups = by_partition(request.ack_ids, asked)

        async def extend_all() -> Stale:
            parts = {p: extend(p, ids) for p, ids in groups.items()}
            return await self._stale(exchange.path, parts)

        hold = LeaseRequest(request.consumer, lease_ms, renew=True)
        await respond(exchange, await self._exclusive_lease.while_held(asked, hold, extend_all))

    async def _stale(self, path: str, parts: dict[int, Coroutine[Any, Any, Stale]]) -> Stale:
        done, errors = await together(parts)
        stale = [ack_id for answer in done.values() for ack_id in answer.stale]
        all_or_problem(done, errors, path, stale=stale)
        return Stale(stale)

    # -- moving ----------------------------------------------------------------------------------

    async def seek(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 ``{"offsets"}``: the next offset of each partition; leases are forgotten."""
        request = await self._read(exchange, SeekRequest)
        asked = await find(self._broker, exchange, target)
        if only_one(request, "to", "time", "offsets") == "offsets":
            chosen = each_once(request.offsets or (), asked)
            wanted = {at.partition: SeekRequest(offsets=[at]) for at in chosen}
        else:
            wanted = dict.fromkeys(chosen_partitions(exchange, asked), request)
        done, errors = await together(
            {partition: self._seek(asked, partition, part) for partition, part in wanted.items()}
        )
        offsets = [offset for answer in done.values() for offset in answer.offsets]
        all_or_problem(done, errors, exchange.path, offsets=msgspec.to_builtins(offsets))
        await respond(exchange, FoundOffsets(offsets))

    def _seek(
        self, asked: Asked, partition: int, request: SeekRequest
    ) -> Coroutine[Any, Any, FoundOffsets]:
        async def local(log: PartitionLog) -> FoundOffsets:
            wanted = await seek_offset(log, request)
            offset = await log.subscriptions.seek(asked.subscription.info, wanted)
            return FoundOffsets([PartitionOffset(partition, offset)])

        return self._owners.ask(asked, partition, Endpoint.SEEK, request, local, FoundOffsets)

    # -- parts -----------------------------------------------------------------------------------

    async def _read(self, exchange: Exchange, type_: type[S]) -> S:
        return read_body(exchange, await self._bodies.read(exchange, MAX_BODY_BYTES), type_)


async def respond(exchange: Exchange, answer: msgspec.Struct) -> None:
    await exchange.respond(200, JSON, msgspec.json.encode(answer))


async def seek_offset(log: PartitionLog, request: SeekRequest) -> int:
    """Return the offset that a cursor of this log is to move to. Raises READ_UNKNOWN, CORRUPT, why
    the log is closed."""
    if request.offsets is not None:
        return request.offsets[0].offset
    if request.time is not None:
        return await log.offset_for_time(request.time)
    return log.earliest_offset if request.to == "earliest" else log.tail_offset
