"""The wait for messages of a subscription, in all partitions at once, without any effect.

Each broker is asked once for all partitions that it owns: a pull that waits costs a connection for
each of the other brokers, not for each partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from fencelog.api.http.targets import Endpoint
from fencelog.api.routing.owner_proxy import owner_url
from fencelog.api.subscriptions.owners import Asked, SubscriptionOwners
from fencelog.api.subscriptions.requests import Ready, WaitRequest
from fencelog.ledgers.errors import ErrorCode, FencelogError

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition.partition_log import PartitionLog

Waits = list[Coroutine[Any, Any, Ready]]


class SubscriptionWaits:
    """Asks owners to report when there are messages."""

    def __init__(self, broker: Broker, owners: SubscriptionOwners) -> None:
        self._broker = broker
        self._owners = owners

    async def wait(
        self, asked: Asked, partitions: Sequence[int], consumer: str, wait_s: float
    ) -> tuple[list[int], list[FencelogError]]:
        """Return the partitions that have messages, as soon as there is one; and why others could
        not be asked."""
        urls = await asyncio.gather(*(self._owner(asked, p) for p in partitions))
        errors = [url for url in urls if isinstance(url, FencelogError)]
        groups: dict[str | None, list[int]] = {}
        for partition, url in zip(partitions, urls, strict=True):
            if not isinstance(url, FencelogError):
                groups.setdefault(url, []).append(partition)
        waits: Waits = []
        for url, group in groups.items():
            request = WaitRequest(group, wait_s, consumer)
            waits.append(
                self.wait_here(asked, request) if url is None else self._there(asked, request)
            )
        ready, failed = await _first(waits)
        return ready, errors + failed

    async def wait_here(self, asked: Asked, request: WaitRequest) -> Ready:
        """Return the partitions of ``request`` that have messages, as soon as there is one.
        Partitions that are not this broker's are returned at once, and the caller has to look for
        their owners again."""
        logs = {p: self._broker.open_log(asked.topic.name, p) for p in request.partitions}
        away = [partition for partition, log in logs.items() if log is None]
        if away:
            return Ready(away)
        ready, errors = await _first(
            [self._one(asked, log, request) for log in logs.values() if log is not None]
        )
        if errors and not ready:
            raise errors[0]
        return Ready(ready)

    async def _one(self, asked: Asked, log: PartitionLog, request: WaitRequest) -> Ready:
        await self._owners.prepare(log, asked)
        wait_ms = round(request.wait * 1000)
        info = asked.subscription.info
        is_ready = await log.subscriptions.wait(info, request.consumer, wait_ms)
        return Ready([log.partition] if is_ready else [])

    async def _there(self, asked: Asked, request: WaitRequest) -> Ready:
        async def here_after_all(log: PartitionLog) -> Ready:
            return await self.wait_here(asked, request)

        return await self._owners.ask(
            asked, request.partitions[0], Endpoint.WAIT, request, here_after_all, Ready
        )

    async def _owner(self, asked: Asked, partition: int) -> str | FencelogError | None:
        """Return the URL of the partition's owner, or None if it is this broker."""
        topic = asked.topic.name
        if self._broker.open_log(topic, partition) is not None:
            return None
        try:
            await self._broker.partition(topic, partition)
        except FencelogError as error:
            url = owner_url(error) if error.code is ErrorCode.NOT_OWNER else None
            return url or error
        return None


async def _first(waits: Waits) -> tuple[list[int], list[FencelogError]]:
    """Return the first result that names a partition, and the errors until then; the other waits
    are cancelled."""
    pending = {asyncio.create_task(wait) for wait in waits}
    errors: list[FencelogError] = []
    try:
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            ready: list[int] = []
            for task in done:
                try:
                    ready += task.result().partitions
                except FencelogError as error:
                    errors.append(error)
            if ready:
                return ready, errors
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    return [], errors
