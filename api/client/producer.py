"""Exactly-once producers of the Python client, and the access to a partition.

producer = ExactlyOnceProducer(client, "default/orders", "billing-7")
await producer.resume()                 # where an earlier run of it ended
await producer.append([b"a", b"b"])     # sent until its outcome is known, written once
"""

from __future__ import annotations

from typing import Any

import anyio

from fencelog.api.client.client import Appended, FencelogClient, topic_path
from fencelog.api.client.conditions import Producer
from fencelog.api.client.http import path_part
from fencelog.api.client.retry import (
    RETRY_S,
    Pause,
    asked_pause_s,
    final_error,
    retry_not_applied,
    whole_pause,
)
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from fencelog.ledgers.record_batch import encode_values
from fencelog.ledgers.record_batch.format import BODY_START, batch_count

_PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.5)


class ExactlyOnceProducer:
    """A producer that numbers what it appends to one partition, with one append at a time: those of
    several tasks wait for each other.

    ``sequence``: the number of the next message. An append that failed, or was cancelled, has not
    moved it. Where it may have been written the same messages must be appended again, or the
    producer has to ``resume``, before any others are: under numbers that are in the log already
    they would count as appended, and be nowhere.
    """

    def __init__(
        self,
        client: FencelogClient,
        topic: str,
        producer_id: str,
        *,
        partition: int = 0,
        epoch: int = 0,
        fencing_token: str | None = None,
        timeout_s: float = RETRY_S,
        pause: Pause = whole_pause,
    ) -> None:
        """Configure the producer. ``epoch``: 0, or the epoch that ``PartitionAccess.claim`` has
        returned. ``timeout_s``: the time for which an append is repeated that was refused, or whose
        outcome is unknown, after the first such answer; it begins anew after each ``pause``
        that the topic's rate asks for."""
        self._client = client
        self._topic = topic
        self._access = PartitionAccess(client, topic, partition)
        self._fencing_token = fencing_token
        self._timeout_s = timeout_s
        self._pause = pause
        self.id = producer_id
        self.partition = partition
        self.epoch = epoch
        self.sequence = 0
        self._appending = anyio.Lock()
        self._undecided: tuple[Producer, bytes] | None = None
        """The batch that may have been written under these numbers."""

    async def resume(self) -> int:
        """Go on where the log says that this producer's epoch ended; return the next sequence."""
        async with self._appending:
            return await self._resume()

    async def _resume(self) -> int:
        found = await retry_not_applied(lambda: self._access.producer(self.id), pause=self._pause)
        if found["epoch"] > self.epoch:
            raise FencelogError(
                ErrorCode.PRODUCER_FENCED,
                f"producer {self.id} has epoch {found['epoch']}, not {self.epoch}",
                epoch=found["epoch"],
            )
        self.sequence = int(found["next_sequence"]) if found["epoch"] == self.epoch else 0
        self._undecided = None
        return self.sequence

    async def append(self, values: list[bytes]) -> Appended:
        """Append messages of these values, as ``append_batch``."""
        return await self.append_batch(encode_values(values), len(values))

    async def append_batch(self, batch: bytes, count: int) -> Appended:
        """Append a record batch of ``count`` messages, exactly once; durable on return.

        It is sent again while it is refused for a transient reason or its outcome is unknown.
        Raises FencelogError: APPEND_UNKNOWN if it may have been written all the same;
        SEQUENCE_REUSED, with nothing done, if another batch may have its numbers; BAD_REQUEST, with
        nothing done, for another ``count`` than the batch's own.
        """
        if len(batch) >= BODY_START and (own := batch_count(batch)) != count:
            raise FencelogError(ErrorCode.BAD_REQUEST, f"the batch has {own} messages, not {count}")
        async with self._appending:
            producer = Producer(self.id, self.epoch, self.sequence)
            self._check_numbers_are_free(producer, batch)
            was_undecided = self._undecided is not None
            self._undecided = (producer, batch)  # also if it is cancelled
            try:
                appended = await self._append(batch, producer, is_unknown=was_undecided)
            except FencelogError as error:
                if error.code.effects is Effects.NONE:
                    self._undecided = None
                raise
            self._undecided = None
            self.sequence += count
            return appended

    def _check_numbers_are_free(self, producer: Producer, batch: bytes) -> None:
        if self._undecided is None:
            return
        numbered, sent = self._undecided
        if numbered != producer:
            self._undecided = None  # the caller has set other numbers
        elif sent != batch:
            raise FencelogError(
                ErrorCode.SEQUENCE_REUSED,
                f"other messages may have been written from number {producer.sequence} on: append "
                "them again, or resume",
            )

    async def _append(self, batch: bytes, producer: Producer, *, is_unknown: bool) -> Appended:
        """Append a batch, one whose outcome ``is_unknown`` so far once more."""
        give_up: float | None = None
        attempt = 0
        while True:
            try:
                return await self._client.append_batch(
                    self._topic,
                    batch,
                    partition=self.partition,
                    producer=producer,
                    fencing_token=self._fencing_token,
                )
            except FencelogError as error:
                maybe = error.code.effects is Effects.MAYBE
                is_unknown = is_unknown or maybe
                asked_s = asked_pause_s(error)
                if asked_s is None:
                    now = anyio.current_time()
                    give_up = now + self._timeout_s if give_up is None else give_up
                    is_over = now >= give_up
                    is_final = is_over or not (maybe or error.code.retryable)
                else:
                    is_final = not await self._pause(asked_s)
                if is_final:
                    raise final_error(error, is_unknown=is_unknown) from error
            if asked_s is not None:
                give_up = None
                continue
            await anyio.sleep(_PAUSES_S[min(attempt, len(_PAUSES_S) - 1)])
            attempt += 1


class PartitionAccess:
    """The right to append to one partition: its fencing token, and the exclusive producer."""

    def __init__(self, client: FencelogClient, topic: str, partition: int = 0) -> None:
        self._client = client
        self._path = f"{topic_path(topic)}/partitions/{partition}"

    async def fence(self, token: str | None, **expected: str | None) -> None:
        """Set the fencing token (None: none), with ``expected=TOKEN`` only if that is the current
        one.

        Raises FencelogError: PRECONDITION_FAILED, STATE_UNKNOWN (it may have been set).
        """
        await self._change("POST", f"{self._path}:fence", json={"token": token, **expected})

    async def claim(self, producer_id: str, *, mode: str = "exclusive", wait_ms: int = 0) -> int:
        """Claim the partition for this producer alone, and return the epoch that it has to send.
        ``mode``: "exclusive" (PRODUCER_BUSY if another producer holds it), "fencing" (take it over)
        or "wait".

        Raises FencelogError: PRODUCER_BUSY, STATE_UNKNOWN (it may have been claimed).
        """
        body = {"mode": mode, "wait_ms": wait_ms}
        path = f"{self._producer_path(producer_id)}:claim"
        return int((await self._change("POST", path, json=body, wait_ms=wait_ms))["epoch"])

    async def release(self, producer_id: str, epoch: int) -> None:
        """Release the claim, so that every producer may append again. Raises PRODUCER_FENCED if the
        partition is not held with this epoch."""
        path = self._producer_path(producer_id)
        await self._change("DELETE", path, params={"epoch": epoch})

    async def producer(self, producer_id: str) -> dict[str, Any]:
        """Return ``epoch`` and ``next_sequence`` of a producer once all that it had sent is
        decided; zeros for one that the partition does not know."""
        return await self._client.get_object(self._producer_path(producer_id))

    async def producers(self) -> dict[str, Any]:
        """Return ``fencing_token``, ``exclusive`` (``producer_id`` and ``epoch``, or None) and
        ``count``, the number of producers that are remembered."""
        return await self._client.get_object(f"{self._path}/producers")

    async def _change(
        self, method: str, path: str, *, wait_ms: int = 0, **options: Any
    ) -> dict[str, Any]:
        return await self._client.change_object(
            method, path, lost=ErrorCode.STATE_UNKNOWN, extra_wait_s=wait_ms / 1000, **options
        )

    def _producer_path(self, producer_id: str) -> str:
        return f"{self._path}/producers/{path_part(producer_id)}"
