"""The choice of another broker for a partition, and the request that it opens it."""

from __future__ import annotations

import asyncio
import logging

from fencelog.broker.cluster.balance_core import place, targets
from fencelog.broker.cluster.broker_directory import BrokerDirectory
from fencelog.broker.cluster.load import PARTITION_COST
from fencelog.broker.cluster.peers import Peers
from fencelog.broker.config import BalancePolicy
from fencelog.broker.limits import MAX_OFFERS, OFFER_TIMEOUT_MS
from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import ErrorCode, FencelogError

log = logging.getLogger(__name__)


class PartitionTransfer:
    """The transfer of partitions between this broker and the others."""

    def __init__(
        self, directory: BrokerDirectory, peers: Peers, *, own_id: str, policy: BalancePolicy
    ) -> None:
        self._directory = directory
        self._peers = peers
        self._own_id = own_id
        self._policy = policy

    @property
    def is_elsewhere(self) -> bool:
        """Tell whether a partition without an owner should be taken by another broker."""
        return place(self._own_id, self._directory.views(), self._policy) != self._own_id

    def is_registered(self, url: str) -> bool:
        """Tell whether a broker is registered at a URL, as far as is known here."""
        return self._directory.id_at(url) is not None

    async def offer(self, topic: TopicName, partition: int, *, to: str | None = None) -> str | None:
        """Have another broker open a partition that has no owner: ``to``, otherwise the least
        loaded. Return the broker that has taken it; None: no broker would. Never raises
        FencelogError."""
        directory = self._directory
        wanted = targets(self._own_id, directory.views())[:MAX_OFFERS] if to is None else [to]
        for broker_id in wanted:
            url = directory.url_of(broker_id)
            if url is None:
                continue
            directory.took(broker_id)  # at once: other offers may be in flight at the same time
            try:
                async with asyncio.timeout(OFFER_TIMEOUT_MS / 1000):
                    await self._peers.open(url, topic, partition)
            except (FencelogError, TimeoutError) as error:
                about = {"topic": str(topic), "partition": partition, "broker_id": broker_id}
                log.info("not taken by %s: %s", url, error, extra=about)
                directory.took(broker_id, -PARTITION_COST)
                continue
            return broker_id
        return None

    def taken(self) -> None:
        """Note that this broker has opened a partition."""
        self._directory.took(self._own_id)

    def check_may_take(self) -> None:
        """Check that this broker still takes partitions. Raises DRAINING if it takes none any
        more."""
        if self._directory.is_draining:
            raise FencelogError(ErrorCode.DRAINING, f"{self._own_id} hands its partitions over")
