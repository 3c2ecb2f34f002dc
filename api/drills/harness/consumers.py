"""Consumers of a drill: they pull, acknowledge, and remember deliveries and confirmations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio

from fencelog.api.client import FencelogClient
from fencelog.api.client.tasks import task_group
from fencelog.api.drills.harness.deliveries import Deliveries
from fencelog.api.drills.harness.report import DrillReport
from fencelog.ledgers.errors import FencelogError

SUBSCRIPTION = "drill"

PULL_MESSAGES = 1000
PULL_WAIT_S = 0.2
RETRY_DELAY_S = 0.02

LEASE_MS = 5000
"""The lease time, short enough that a drill can wait for the messages of a lost answer."""

FINISH_S = 60.0
"""The time to consume all that is left in the log when appending has ended."""


class DrillConsumers:
    """Consumers of one shared subscription to a topic with one partition. Each asks one broker, and
    the next one when it does not answer."""

    def __init__(self, clients: Sequence[FencelogClient], topic: str, *, timeout_s: float) -> None:
        self._clients = clients
        self._topic = topic
        self._timeout_s = timeout_s
        self._ended = False
        self._progress = anyio.Event()
        self.deliveries = Deliveries()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Create the subscription and let the consumers work until the context is left."""
        await self._clients[0].create_subscription(
            self._topic, SUBSCRIPTION, start="earliest", lease_ms=LEASE_MS
        )
        async with task_group() as group:
            for number in range(len(self._clients)):
                group.start_soon(self._consume, number)
            try:
                yield
            finally:
                self._ended = True

    async def finish(self, log: Sequence[bytes]) -> None:
        """Wait until everything in the log is acknowledged, or for FINISH_S."""
        with anyio.move_on_after(FINISH_S):
            while len(self.deliveries.confirmed_at) < len(log):
                self._progress = anyio.Event()
                await self._progress.wait()

    def report(self, log: Sequence[bytes], report: DrillReport) -> None:
        """Note the messages that the consumers got, and whether they should have."""
        found = self.deliveries.compare(log)
        report.notes.append(
            f"{found.delivered:,} messages delivered, {found.acknowledged:,} acknowledged, "
            f"{found.redelivered:,} deliveries again of what was not"
        )
        report.expect(found.missed == 0, f"{found.missed:,} messages were never delivered")
        report.expect(
            found.forgotten == 0,
            f"{found.forgotten:,} deliveries of what had been acknowledged, confirmed, before",
        )
        report.expect(found.different == 0, f"{found.different:,} deliveries of other bytes")
        left = len(log) - found.acknowledged
        report.expect(left == 0, f"{left:,} messages could not be acknowledged to the end")

    async def _consume(self, number: int) -> None:
        current = number
        leased: dict[str, int] = {}
        while leased or not self._ended:
            client = self._clients[current % len(self._clients)]
            try:
                with anyio.fail_after(self._timeout_s):
                    if leased:
                        await self._acknowledge(client, leased)
                    else:
                        leased = await self._pull(client, f"consumer-{number}")
            except (FencelogError, TimeoutError):
                if self._ended:
                    return
                current += 1
                await anyio.sleep(RETRY_DELAY_S)

    async def _pull(self, client: FencelogClient, name: str) -> dict[str, int]:
        """Return offsets by ack id. The messages that a lost answer has leased are delivered again
        when their leases end."""
        asked_at = anyio.current_time()
        messages = await client.pull(
            self._topic,
            SUBSCRIPTION,
            max_messages=PULL_MESSAGES,
            wait_s=PULL_WAIT_S,
            consumer=name,
        )
        for message in messages:
            self.deliveries.delivered(message.offset, message.value, asked_at=asked_at)
        return {message.ack_id: message.offset for message in messages}

    async def _acknowledge(self, client: FencelogClient, leased: dict[str, int]) -> None:
        """Acknowledge all of them, again until it is confirmed, since a lost answer may have been a
        confirmation. Removes those that are settled."""
        stale = set(await client.ack(self._topic, SUBSCRIPTION, list(leased)))
        confirmed = [offset for ack_id, offset in leased.items() if ack_id not in stale]
        self.deliveries.acknowledged(confirmed, now=anyio.current_time())
        leased.clear()
        self._progress.set()
