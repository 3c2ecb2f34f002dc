"""The metrics of a process with a broker: of HTTP, the broker, the bookies beside it, and those of
self-healing, which belong to the cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from fencelog.api.http.metrics import ApiMetrics
from fencelog.api.metrics.bookies import bookie_metrics, measure_bookies
from fencelog.api.metrics.brokers import (
    broker_metrics,
    ledger_metrics,
    partition_metrics,
    topic_metrics,
)
from fencelog.api.metrics.exposition import exposition, http_metrics
from fencelog.api.metrics.healing import healing_metrics
from fencelog.api.metrics.table import Metric
from fencelog.bookie.engine.bookie import Bookie
from fencelog.broker.broker import Broker
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.metrics import LedgerCounts

_HEALING_S = 2.0
"""The time for the metadata store to answer: Prometheus waits 10 s for everything."""

_log = logging.getLogger(__name__)


class Healing(Protocol):
    """Self-healing as ``AutorecoveryAdmin`` shows it."""

    def now_us(self) -> int: ...

    async def status(self) -> dict[str, Any]: ...

    async def checks(self) -> dict[str, Any]: ...


class ServiceMetrics:
    """All metrics of one process. ``local``: its bookies."""

    def __init__(
        self,
        counted: ApiMetrics,
        broker: Broker,
        ledgers: LedgerCounts,
        local: Sequence[Bookie],
        healing: Healing,
    ) -> None:
        self._counted = counted
        self._broker = broker
        self._ledgers = ledgers
        self._local = local
        self._healing = healing

    async def text(self, *, partitions: bool = False) -> bytes:
        """Return them in Prometheus' text format, with those of partitions if they are wanted."""
        broker = self._broker
        found = [
            *http_metrics(self._counted),
            *broker_metrics(broker.metrics, pending_bytes=broker.pending_bytes),
            *ledger_metrics(self._ledgers),
        ]
        stats, now_us = await broker.measure(), broker.host.now_us()
        for metric in topic_metrics(stats, now_us=now_us):
            found.append(metric)
            await asyncio.sleep(0)  # Each has a row for many topics or subscriptions.
        if partitions:
            found += partition_metrics(await broker.measure_partitions())
        found += await self._of_bookies()
        found += await self._of_healing()
        return exposition(found)

    async def _of_bookies(self) -> list[Metric]:
        """Return those of the bookies in this process; none where there is none."""
        if not self._local:
            return []
        try:
            return list(bookie_metrics(await measure_bookies(self._local)))
        except FencelogError as error:  # of a disk: the process is about to end
            _log.warning("no metrics of bookies: %s", error)
            return []

    async def _of_healing(self) -> list[Metric]:
        """Return those of self-healing; none while the metadata store is away."""
        healing = self._healing
        try:
            async with asyncio.timeout(_HEALING_S):
                status, checks = await healing.status(), await healing.checks()
        except (FencelogError, TimeoutError) as error:
            _log.warning("no metrics of self-healing: %s", error)
            return []
        return list(healing_metrics(status, checks, now_us=healing.now_us()))
