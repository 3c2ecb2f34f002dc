"""Clients that append at full speed and remember exactly how each append was answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio
from anyio.abc import TaskGroup

from fencelog.api.client import FencelogClient
from fencelog.api.client.conditions import Producer
from fencelog.api.client.retry import retry_not_applied
from fencelog.api.client.tasks import task_group
from fencelog.api.drills.harness.account import Attempt, message_value
from fencelog.api.drills.harness.senders import Sender
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from fencelog.ledgers.record_batch import encode_values, open_batch

BATCH_MESSAGES = 20
"""The messages of one append: so few that many appends are in flight at the kill."""

MESSAGE_BYTES = 100

RETRY_DELAY_S = 0.02
"""The pause after a refusal; interruptions are known to this precision."""

GIVE_UP_S = 90.0
"""The time without any acknowledgement after which a service is down: fifteen sessions of a killed
broker."""


NEVER = frozenset({ErrorCode.SEQUENCE_MISMATCH, ErrorCode.PRODUCER_FENCED})
"""The errors that a producer never gets if it counts correctly and is not fenced."""


class LoadClient:
    """A producer with one append in flight at a time, so that its messages have an order.

    An append that was refused with the promise that nothing was written is sent again. A lost one
    has an unknown outcome: a client that numbers its messages (``producer_id``) sends them again
    until an answer says where they are; another one does not, and goes on with new messages.
    """

    def __init__(
        self,
        number: int,
        sender: Sender,
        *,
        producer_id: str | None = None,
        retry_delay_s: float = RETRY_DELAY_S,
        pause_s: float = 0,
    ) -> None:
        """Configure the client. ``pause_s``: between an acknowledgement and the next append."""
        self._number = number
        self._sender = sender
        self._producer_id = producer_id
        self._retry_delay_s = retry_delay_s
        self._pause_s = pause_s
        self._served_at = anyio.current_time()
        self._next_sequence = 0
        self.attempts: list[Attempt] = []
        self.acknowledged = 0
        self.refused = 0
        self.resolved = 0
        """The appends of unknown outcome that were acknowledged when they were sent again."""
        self.longest_wait_s = 0.0
        """The longest time between two acknowledgements."""

    async def run(
        self, *, is_over: Callable[[], bool], on_acknowledged: Callable[[float], None]
    ) -> None:
        """Append until ``is_over``; ``on_acknowledged`` gets the loop time of each sending.

        Raises FencelogError with a code of NEVER.
        """
        self._served_at = anyio.current_time()
        while not is_over():
            await self._append_next(is_over, on_acknowledged)
            if self._pause_s:
                await anyio.sleep(self._pause_s)

    async def _append_next(
        self, is_over: Callable[[], bool], on_acknowledged: Callable[[float], None]
    ) -> None:
        batch, producer = self._next_batch(), self._producer()
        is_unknown = False
        while not is_over():
            sent_at = anyio.current_time()
            try:
                offset = await self._sender.append(batch, producer)
            except FencelogError as error:
                if error.code in NEVER:
                    raise
                is_lost = error.code.effects is Effects.MAYBE
                self.refused += not is_lost
                is_unknown = is_unknown or is_lost
                if is_unknown and producer is None:
                    break
                await anyio.sleep(self._retry_delay_s)
            else:
                self.resolved += is_unknown
                self._acknowledge(offset)
                on_acknowledged(sent_at)
                return
        if is_unknown:
            self._settle(None)

    def _next_batch(self) -> bytes:
        first = self._next_sequence
        return encode_values(
            [
                message_value(self._number, sequence, size=MESSAGE_BYTES)
                for sequence in range(first, first + BATCH_MESSAGES)
            ]
        )

    def _producer(self) -> Producer | None:
        if self._producer_id is None:
            return None
        return Producer(self._producer_id, sequence=self._next_sequence)

    def _acknowledge(self, offset: int) -> None:
        now = anyio.current_time()
        self.longest_wait_s = max(self.longest_wait_s, now - self._served_at)
        self._served_at = now
        self.acknowledged += BATCH_MESSAGES
        self._settle(offset)

    def _settle(self, offset: int | None) -> None:
        first = self._next_sequence
        self.attempts.append(Attempt(self._number, first, BATCH_MESSAGES, offset))
        self._next_sequence = first + BATCH_MESSAGES


@dataclass(frozen=True, slots=True)
class Interruption:
    """An interruption. ``began_at``: loop time. ``over``: the loop time of the first
    acknowledgement of an append that was sent since."""

    began_at: float
    over: asyncio.Future[float]

    def ends(self, sent_at: float) -> None:
        """End the interruption if the append that was just acknowledged had been sent after its
        beginning."""
        if sent_at >= self.began_at and not self.over.done():
            self.over.set_result(anyio.current_time())


class ClientLoad:
    """The clients of a drill, from ``running`` on until it is left."""

    def __init__(self) -> None:
        self._group: TaskGroup
        self._ended = False
        self._started_at = anyio.current_time()
        self._heard_at = self._started_at
        self._longest_silence_s = 0.0
        self._interruptions: list[Interruption] = []
        self.clients: list[LoadClient] = []
        """The clients that any broker may serve."""
        self.special: list[LoadClient] = []
        """The other clients: they end no interruption, and the drill does not wait for them."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the clients until the context is left; leaving waits for the appends in flight."""
        async with task_group() as self._group:
            try:
                yield
            finally:
                self._ended = True

    @property
    def attempts(self) -> list[Attempt]:
        """Return the attempts of all clients, each client's in order."""
        return [attempt for one in (*self.clients, *self.special) for attempt in one.attempts]

    @property
    def acknowledged(self) -> int:
        return sum(client.acknowledged for client in self.clients)

    @property
    def resolved(self) -> int:
        """Return the number of appends of unknown outcome that were sent again and acknowledged."""
        return sum(client.resolved for client in self.clients)

    @property
    def longest_wait_ms(self) -> float:
        return max(round(client.longest_wait_s * 1000, 1) for client in self.clients)

    def take_silence_ms(self) -> float:
        """Return the longest time in ms without an acknowledgement to any client, since the last
        call."""
        longest_s, self._longest_silence_s = self._longest_silence_s, 0.0
        return round(longest_s * 1000, 1)

    def next_number(self) -> int:
        """Return the number of the next client."""
        return len(self.clients) + len(self.special)

    def start(self, client: LoadClient) -> None:
        """Let a client append until the end."""
        self.clients.append(client)
        self._run(client, self._on_acknowledged)

    def start_special(self, client: LoadClient, on_acknowledged: Callable[[float], None]) -> None:
        """Let a client append that is served by one broker alone."""
        self.special.append(client)
        self._run(client, on_acknowledged)

    def interrupt(self, *, by_anybody: bool = True) -> Interruption:
        """Begin an interruption: to be called in the turn of the loop that breaks something. Unless
        ``by_anybody``, only acknowledgements that the caller sees end it."""
        interruption = Interruption(
            anyio.current_time(), asyncio.get_running_loop().create_future()
        )
        if by_anybody:
            self._interruptions.append(interruption)
        return interruption

    async def until(self, seconds: float, messages: int | None = None) -> None:
        """Return so many seconds after the start, or after so many acknowledged messages."""
        while anyio.current_time() - self._started_at < seconds:
            if messages is not None and self.acknowledged >= messages:
                return
            await anyio.sleep(RETRY_DELAY_S)

    def _run(self, client: LoadClient, on_acknowledged: Callable[[float], None]) -> None:
        self._group.start_soon(
            partial(client.run, is_over=lambda: self._ended, on_acknowledged=on_acknowledged)
        )

    def _on_acknowledged(self, sent_at: float) -> None:
        now = anyio.current_time()
        self._longest_silence_s = max(self._longest_silence_s, now - self._heard_at)
        self._heard_at = now
        for interruption in self._interruptions[:]:
            interruption.ends(sent_at)
            if interruption.over.done():
                self._interruptions.remove(interruption)


async def end_of(interruption: Interruption) -> float | None:
    """Return the length of an interruption in ms when it is over, or None after GIVE_UP_S."""
    with anyio.move_on_after(GIVE_UP_S):
        return round((await interruption.over - interruption.began_at) * 1000, 1)
    return None


async def read_log(servers: Sequence[str], topic: str, partition: int) -> list[bytes]:
    """Return every value of a partition, in order; index = offset. Raises FencelogError."""
    values: list[bytes] = []
    async with FencelogClient(servers) as client:
        while True:
            page = await retry_not_applied(partial(client.read, topic, partition, len(values)))
            for frame in page.batches:
                if frame.base_offset != len(values):
                    raise FencelogError(
                        ErrorCode.CORRUPT,
                        f"{topic}, partition {partition}: a batch at offset {frame.base_offset} "
                        f"follows offset {len(values) - 1}",
                    )
                values += open_batch(frame.batch)[1].values()
            if page.at_tail:
                return values
