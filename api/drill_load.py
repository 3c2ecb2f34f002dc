"""Clients that append at full speed and remember exactly what they were told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from fencelog.api.client import FencelogClient
from fencelog.api.drill_account import Attempt, message_value
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from fencelog.ledgers.record_batch import encode_values, open_batch

BATCH_MESSAGES = 20
"""Messages of one append: small enough that many appends are on the way at the kill."""

MESSAGE_BYTES = 100

RETRY_DELAY_S = 0.02
"""After a refusal; the failover time is known to this precision."""

GIVE_UP_S = 90.0
"""A service that refuses for so long is down: fifteen sessions of a killed broker."""


class LoadClient:
    """One producer: one append under way at a time, so its messages have an order.

    What was refused with the promise that nothing was written is sent again; what was lost is
    not: its outcome is unknown, and the client goes on with new messages.
    """

    def __init__(self, number: int, servers: Sequence[str], topic: str, partition: int) -> None:
        self._number = number
        self._client = FencelogClient(servers)
        self._topic = topic
        self._partition = partition
        self._next_sequence = 0
        self.attempts: list[Attempt] = []
        self.acknowledged = 0

    async def close(self) -> None:
        await self._client.close()

    async def run(
        self, *, is_over: Callable[[], bool], on_acknowledged: Callable[[float], None]
    ) -> None:
        """Append until ``is_over``; ``on_acknowledged`` gets the loop time of each sending.

        Raises FencelogError when every append of GIVE_UP_S was refused.
        """
        loop = asyncio.get_running_loop()
        served_at = loop.time()
        batch = self._next_batch()
        while not is_over():
            sent_at = loop.time()
            try:
                appended = await self._client.append_batch(
                    self._topic, batch, partition=self._partition
                )
            except FencelogError as error:
                if error.code.effects is Effects.NONE:
                    if loop.time() - served_at > GIVE_UP_S:
                        raise
                    await asyncio.sleep(RETRY_DELAY_S)
                    continue
                self._settle(None)
            else:
                served_at = loop.time()
                self._settle(appended.offset)
                on_acknowledged(sent_at)
            batch = self._next_batch()

    def _next_batch(self) -> bytes:
        first = self._next_sequence
        return encode_values(
            [
                message_value(self._number, sequence, size=MESSAGE_BYTES)
                for sequence in range(first, first + BATCH_MESSAGES)
            ]
        )

    def _settle(self, offset: int | None) -> None:
        first = self._next_sequence
        self.attempts.append(Attempt(self._number, first, BATCH_MESSAGES, offset))
        self._next_sequence = first + BATCH_MESSAGES
        if offset is not None:
            self.acknowledged += BATCH_MESSAGES


async def read_log(servers: Sequence[str], topic: str, partition: int) -> list[bytes]:
    """Every value of a partition, in order; index = offset. Raises FencelogError."""
    values: list[bytes] = []
    async with FencelogClient(servers) as client:
        async for frame in client.batches(topic, partition, 0):
            if frame.base_offset != len(values):
                raise FencelogError(
                    ErrorCode.CORRUPT,
                    f"{topic}, partition {partition}: a batch at offset {frame.base_offset} "
                    f"follows offset {len(values) - 1}",
                )
            values += open_batch(frame.batch)[1].values()
    return values
