"""The append of a stream to one partition, exactly once over any number of runs of the command.

A message's sequence is its number in the stream. The log says how many of them it has, so another
run of the same stream continues after them, and an append of unknown outcome is simply sent again.
"""

from __future__ import annotations

from fencelog.api.client import FencelogClient
from fencelog.api.client.producer import ExactlyOnceProducer
from fencelog.api.client.retry import Pause, whole_pause
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import encode_columns


class ExactlyOnceStream:
    """An appender to one partition. Not to be used by two tasks at once."""

    def __init__(
        self,
        client: FencelogClient,
        topic: str,
        producer_id: str,
        *,
        partition: int,
        epoch: int = 0,
        key: str | None = None,
        pause: Pause = whole_pause,
    ) -> None:
        self._producer = ExactlyOnceProducer(
            client, topic, producer_id, partition=partition, epoch=epoch, pause=pause
        )
        self._key = key
        self._resumed = False
        self._seen = 0
        self._end: int | None = None
        self.partition = partition
        self.acknowledged = 0

    @property
    def end(self) -> int | None:
        """The offset after the last acknowledged message; None before the first."""
        return self._end

    @property
    def skipped(self) -> int:
        """The number of messages that were in the log before."""
        return self._seen - self.acknowledged

    async def append(self, values: list[bytes]) -> None:
        """Append the next messages of the stream, as far as they are not there; durable on return.
        Raises FencelogError."""
        if not self._resumed:
            await self._producer.resume()
            self._resumed = True
        first = self._seen
        while new := values[max(0, self._producer.sequence - first) :]:
            try:
                await self._append(new)
            except FencelogError as error:
                sent = self._producer.sequence
                if error.code is not ErrorCode.SEQUENCE_MISMATCH:
                    raise
                # An earlier run's append came in late, and may still be in flight.
                if await self._producer.resume() <= sent:
                    raise
        self._seen = first + len(values)

    async def _append(self, values: list[bytes]) -> None:
        keys = None if self._key is None else [self._key.encode()] * len(values)
        batch = encode_columns(values, keys, None, None)
        appended = await self._producer.append_batch(batch, len(values))
        self.acknowledged += len(values)
        if appended.offset >= 0:
            self._end = appended.offset + len(values)
