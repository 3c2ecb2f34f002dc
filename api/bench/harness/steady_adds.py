"""Adds to one ledger at a steady rate; latencies count from the time at which each was due."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from time import perf_counter

import anyio

from fencelog.api.bench.harness.histogram import LatencyHistogram
from fencelog.api.bench.harness.open_loop import TICK_S
from fencelog.ledgers.client import LedgerClient, Replication
from fencelog.ledgers.errors import FencelogError


class SteadyAdds:
    """A writer of one ledger; ``latencies`` is replaced to begin another measurement."""

    def __init__(self, *, per_s: float, payload_bytes: int) -> None:
        self._per_s = per_s
        self._payload = os.urandom(payload_bytes)
        self._due_s: deque[float] = deque()
        self._last_ack = -1
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.latencies = LatencyHistogram()

    async def run(self, client: LedgerClient, replication: Replication) -> None:
        """Add until cancelled. Raises FencelogError when an add fails."""
        writer = await client.create(
            replication, on_ack=self._acknowledged, on_failure=self._on_failure
        )
        begin, sent = perf_counter(), 0
        try:
            while not self._failed.done():
                due = int((perf_counter() - begin) * self._per_s) + 1
                for number in range(sent, due):
                    self._due_s.append(begin + number / self._per_s)
                    writer.append(self._payload)
                sent = max(sent, due)
                await anyio.sleep(TICK_S)
            self._failed.result()
        finally:
            self._failed.cancel()
            with anyio.CancelScope(shield=True):
                await writer.close()

    def _acknowledged(self, lac: int) -> None:
        now = perf_counter()
        for _ in range(lac - self._last_ack):
            self.latencies.record(now - self._due_s.popleft())
        self._last_ack = lac

    def _on_failure(self, error: FencelogError) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)
