"""A consumer: a loop over a subscription's messages that keeps their leases alive.

    async with client.consume("default/orders", "billing") as messages:
        async for message in messages:
            handle(message.value)
            messages.ack(message)

The loop survives lost brokers and lost answers: a pull of unknown outcome is repeated, and the
messages that it had leased are delivered when that lease ends; in an exclusive or failover
subscription they are given back first, so that none comes before them. Only errors that are not
transient end it.

Leases are extended for as long as a message is held. Acknowledgements are gathered: while some are
in flight, the next ones wait and go together. At the end of the block those in flight are waited
for, and messages that were not acknowledged are given back at once: as failures, if the loop has
come to them. After a failure in an exclusive or failover subscription, messages come again in order
from the first one that is not acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from fencelog.api.client.pulls import Pulls
from fencelog.api.client.retry import is_transient, retry_idempotent
from fencelog.api.client.subscription import MAX_MESSAGES, LeasedMessage, SubscriptionCalls
from fencelog.broker.limits import MAX_ACK_IDS
from fencelog.broker.registry.subscription_config import ORDERED
from fencelog.ledgers.errors import ErrorCode, Fault, FencelogError
from fencelog.ledgers.host import SystemHost

WAIT_S = 30.0
"""The time of one long poll."""

EXTENSIONS = 3
"""The extensions in the time of one lease: two may fail before the message goes to another
consumer."""


class Consumer:
    """A consumer, made by ``FencelogClient.consume``; an async context manager and an async
    iterator, for one task."""

    def __init__(
        self,
        client: SubscriptionCalls,
        topic: str,
        subscription: str,
        *,
        consumer: str = "",
        max_messages: int = MAX_MESSAGES,
        lease_ms: int | None = None,
    ) -> None:
        self._client = client
        self._topic = topic
        self._subscription = subscription
        self._consumer = consumer or f"consumer-{SystemHost().random_bytes(6).hex()}"
        self._max_messages = max_messages
        self._lease_ms = lease_ms or 0
        self._waiting: deque[LeasedMessage] = deque()
        self._held: dict[str, int] = {}
        """The partition of each message that is leased, by its ack id."""
        self._acks: list[str] = []
        self._nacks: dict[int | None, list[str]] = {}
        self._unused: list[str] = []
        """Messages that the loop has not come to, to be given back."""
        self._is_entered = self._is_ordered = False
        self._goes_back = False
        """True from a failure in an ordered subscription on, until the service knows of it."""
        self._pulls = Pulls(client, topic, subscription, self._consumer)
        self._given_back = anyio.Event()
        self._sending = anyio.Lock()
        self._group = anyio.create_task_group()
        self._pull = anyio.CancelScope()
        self._failure: FencelogError | None = None

    async def __aenter__(self) -> Consumer:
        settings = await self._client.subscription(self._topic, self._subscription)
        self._lease_ms = self._pulls.lease_ms = self._lease_ms or int(settings["lease_ms"])
        self._is_ordered = self._pulls.is_in_order = settings["type"] in ORDERED
        await self._group.__aenter__()
        self._is_entered = True
        for work in (self._keep_leases, self._give_back):
            self._group.start_soon(self._beside, work)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Give back what was not acknowledged, and send what is gathered, even if the block was
        cancelled. Raises the error that acknowledging failed with, unless the block itself has
        failed."""
        self._group.cancel_scope.cancel()
        try:
            await self._group.__aexit__(None, None, None)
        finally:
            unused = {message.ack_id for message in self._waiting} & self._held.keys()
            self._unused += sorted(unused)
            self._nacks.setdefault(0, []).extend(sorted(self._held.keys() - unused))
            with anyio.CancelScope(shield=True):
                await self._beside(self._send)
        if self._failure is not None and kind is None:
            raise self._failure

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> LeasedMessage:
        """Return the next message; wait for it without end. Raises FencelogError: an error that is
        not transient; BAD_REQUEST outside ``async with``, where nobody would send what is
        acknowledged."""
        if not self._is_entered:
            how = "a consumer is used as: async with client.consume(…) as messages"
            raise FencelogError(ErrorCode.BAD_REQUEST, how)
        while True:
            while self._waiting:
                message = self._waiting.popleft()
                if message.ack_id in self._held:
                    return message
            await self._fill()

    def ack(self, message: LeasedMessage) -> None:
        """Acknowledge a message. The acknowledgement is durable when the block has ended, or
        ``flush`` has."""
        self._held.pop(message.ack_id, None)
        self._acks.append(message.ack_id)
        self._given_back.set()

    def nack(self, message: LeasedMessage, *, delay_ms: int | None = None) -> None:
        """Refuse a message: it is delivered again after ``delay_ms`` or the backoff. So is, in an
        exclusive or failover subscription, all of its partition that is not acknowledged, in
        order."""
        was_held = self._held.pop(message.ack_id, None) is not None
        self._nacks.setdefault(delay_ms, []).append(message.ack_id)
        if was_held and self._is_ordered:  # of others the service says that they are stale
            partition, self._goes_back = message.partition, True
            self._held = {held: of for held, of in self._held.items() if of != partition}
            self._waiting = deque(m for m in self._waiting if m.partition != partition)
        self._given_back.set()

    async def flush(self) -> None:
        """Return when everything that was acknowledged is durable. Raises FencelogError."""
        await self._send()

    # -- beside the loop -------------------------------------------------------------------------

    async def _fill(self) -> None:
        """Pull until there are messages. Raises FencelogError, also one of the work beside it."""
        with anyio.CancelScope() as self._pull:
            while self._goes_back and self._failure is None:
                await self._go_back()
            if self._failure is None:
                messages = await retry_idempotent(self._pull_once, timeout_s=None, passes=True)
                self._held.update((message.ack_id, message.partition) for message in messages)
                self._waiting.extend(messages)
        if self._failure is not None:
            raise self._failure

    async def _pull_once(self) -> list[LeasedMessage]:
        """Return the messages of a pull. Raises FencelogError."""
        return await self._pulls.pull(
            self._forget_held,
            max_messages=self._max_messages,
            wait_s=WAIT_S,
            lease_ms=self._lease_ms,
        )

    async def _forget_held(self) -> None:
        """Let go of what comes again. What was acknowledged does not. Raises FencelogError."""
        await self._send()
        self._held.clear()

    async def _go_back(self) -> None:
        """Have the failures known before the next pull, which would go on behind them. Raises
        FencelogError: an error that is not transient."""
        try:
            await self._send()
        except FencelogError as error:
            if not is_transient(error):
                raise
        else:
            self._goes_back = False

    async def _beside(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do work beside the loop; the first failure is kept, and ends the pull that waits."""
        try:
            await work()
        except FencelogError as error:
            self._failure = self._failure or error
            self._pull.cancel()

    async def _keep_leases(self) -> None:
        while True:
            await anyio.sleep(self._lease_ms / 1000 / EXTENSIONS)
            held = list(self._held)
            for first in range(0, len(held), MAX_ACK_IDS):
                ids = held[first : first + MAX_ACK_IDS]
                try:
                    stale = await self._client.extend(
                        self._topic,
                        self._subscription,
                        ids,
                        self._lease_ms,
                        consumer=self._consumer,
                    )
                except FencelogError as error:
                    if error.code.fault is Fault.CLIENT:
                        raise
                else:
                    for ack_id in stale:
                        self._held.pop(ack_id, None)

    async def _give_back(self) -> None:
        while True:
            await self._given_back.wait()
            try:
                await self._send()
            except FencelogError as error:
                if not is_transient(error):
                    raise

    async def _send(self) -> None:
        """Send what is to be acknowledged or given back so far. What fails is kept for the next
        call."""
        async with self._sending:
            await self._send_all()

    async def _send_all(self) -> None:
        self._given_back = anyio.Event()
        acks, self._acks = self._acks, []
        nacks, self._nacks = self._nacks, {}
        unused, self._unused = self._unused, []
        client, topic, name = self._client, self._topic, self._subscription
        try:
            while acks:
                ids = acks[:MAX_ACK_IDS]
                await retry_idempotent(partial(client.ack, topic, name, ids))
                del acks[:MAX_ACK_IDS]
            for delay_ms in list(nacks):
                while ids := nacks[delay_ms][:MAX_ACK_IDS]:
                    await retry_idempotent(
                        partial(client.nack, topic, name, ids, delay_ms=delay_ms)
                    )
                    del nacks[delay_ms][:MAX_ACK_IDS]
            while ids := unused[:MAX_ACK_IDS]:
                await retry_idempotent(partial(client.nack, topic, name, ids, failed=False))
                del unused[:MAX_ACK_IDS]
        finally:
            self._acks = acks + self._acks
            self._unused = unused + self._unused
            for delay_ms, ids in nacks.items():
                if ids:
                    self._nacks.setdefault(delay_ms, []).extend(ids)
            if self._acks or self._nacks:
                self._given_back.set()
