"""The append of batches to one partition in order, and the handling of unknown outcomes.

One request is in flight at a time: two on two connections could overtake each other. Refusals that
promise that nothing was written (``Effects.NONE``) are repeated for a while when they are
retryable, and for as long as it takes where the topic's rate asks for a pause. An append whose
answer is lost is never simply sent again.

With ``resume`` the caller promises to be the partition's only producer. Each append then names the
offset that it expects (If-Offset), so that of any number of copies one is written: also of one that
waits at a broker while its client has gone, and is passed on to the next owner. An append whose
outcome is unknown is sent again until it is written, or the log shows that it has been.
"""

from __future__ import annotations

from functools import partial

import anyio

from fencelog.api.client import FencelogClient
from fencelog.api.client.retry import RETRY_S, Pause, retry_not_applied, whole_pause
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from fencelog.ledgers.record_batch import encode_columns, encode_values, open_batch

_PAUSE_S = 0.25
"""The pause between two attempts whose outcome is unknown."""


class PartitionAppender:
    """An appender to one partition. Not to be used by two tasks at once."""

    def __init__(
        self,
        client: FencelogClient,
        topic: str,
        *,
        partition: int | None,
        key: str | None = None,
        resume: bool = False,
        pause: Pause = whole_pause,
    ) -> None:
        """Configure the appender. Without ``partition`` the service chooses it at the first append,
        by ``key`` if given; the others follow it there. ``pause`` takes the pauses that the topic's
        rate asks for."""
        self._client = client
        self._topic = topic
        self._partition = partition
        self._key = key
        self._resume = resume
        self._take_pause = pause
        self._completion: anyio.CancelScope | None = None
        """The time in which an unknown outcome has to become known."""
        self._end: int | None = None
        self.acknowledged = 0

    @property
    def partition(self) -> int | None:
        return self._partition

    @property
    def end(self) -> int | None:
        """The offset after the last acknowledged message; None before the first."""
        return self._end

    async def append(self, values: list[bytes]) -> None:
        """Append a batch; durable on return.

        Raises FencelogError; where ``error.code.effects`` is MAYBE the batch may have been
        written and this appender must not be used further. With ``resume`` also PRECONDITION_FAILED
        where another producer has appended: nothing was written.
        """
        if self._resume and self._end is None and self._partition is not None:
            self._end = await self._tail(self._partition)
        try:
            await self._send(values)
        except FencelogError as error:
            if error.code.effects is Effects.NONE or self._end is None:
                raise
            await self._complete(values, error)

    async def _send(self, values: list[bytes]) -> None:
        if self._key is None:
            batch = encode_values(values)
        else:
            batch = encode_columns(values, [self._key.encode()] * len(values), None, None)
        appended = await retry_not_applied(
            lambda: self._client.append_batch(
                self._topic,
                batch,
                partition=self._partition,
                key=self._key,
                if_offset=self._end if self._resume else None,
            ),
            pause=self._pause,
        )
        self._partition = appended.partition
        self._settle(appended.offset + appended.count, appended.count)

    async def _complete(self, values: list[bytes], lost: FencelogError) -> None:
        """Send values again whose outcome is unknown, until one copy is written. Raises ``lost`` if
        it stays unknown."""
        with anyio.move_on_after(RETRY_S) as self._completion:
            while True:
                if await self._is_written(values, lost):
                    return
                try:
                    await self._send(values)
                    return
                except FencelogError as error:
                    is_there = error.code is ErrorCode.PRECONDITION_FAILED  # though not durable yet
                    if error.code.effects is Effects.NONE and not is_there:
                        raise lost from error
                await anyio.sleep(_PAUSE_S)
        raise lost

    async def _is_written(self, values: list[bytes], lost: FencelogError) -> bool:
        """Tell whether the log has the values where they belong. Raises ``lost`` where it has
        others."""
        start, partition = self._end, self._partition
        if start is None or partition is None or not self._resume:
            raise lost
        try:
            found = await self._values_from(partition, start)
        except FencelogError as error:  # a refused read says nothing about the append
            raise lost from error
        if found and found != values:
            raise _another_producer(lost)
        if found:
            self._settle(start + len(found), len(found))
        return bool(found)

    async def _pause(self, pause_s: float) -> bool:
        if self._completion is not None:  # it begins anew: the service works
            self._completion.deadline = anyio.current_time() + pause_s + RETRY_S
        return await self._take_pause(pause_s)

    def _settle(self, end: int, count: int) -> None:
        self._end = end
        self.acknowledged += count

    async def _tail(self, partition: int) -> int:
        read = self._client.read
        page = await retry_not_applied(
            lambda: read(self._topic, partition, "latest", max_messages=1), pause=self._pause
        )
        return page.tail_offset

    async def _values_from(self, partition: int, start: int) -> list[bytes]:
        """Return all values from an offset to the tail."""
        found: list[bytes] = []
        position, at_tail = start, False
        while not at_tail:
            read = partial(self._client.read, self._topic, partition, position)
            page = await retry_not_applied(read, pause=self._pause)
            for frame in page.batches:
                values = open_batch(frame.batch)[1].values()
                found += values[max(0, position - frame.base_offset) :]
                position = frame.base_offset + frame.count
            at_tail = page.at_tail
        return found


def _another_producer(lost: FencelogError) -> FencelogError:
    return FencelogError(
        lost.code, f"{lost.detail}; another producer appends to the partition, so it stays unknown"
    )
